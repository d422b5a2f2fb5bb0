"""Momentum under estimates of both Lipschitz constants: the methods of Marumo & Takeda."""

from momentous.methods.parameter_free.agd import ParameterFreeAGD
from momentous.methods.parameter_free.heavy_ball import UniversalHeavyBall

__all__ = ["ParameterFreeAGD", "UniversalHeavyBall"]
