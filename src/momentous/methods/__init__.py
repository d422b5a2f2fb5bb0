"""The methods, one family per folder, and their registry by name."""

from momentous.methods.classical import LBFGS, ConjugateGradient, GradientDescent, HeuristicAGD
from momentous.methods.guilty import ConvexUntilGuilty
from momentous.methods.jin import JinAGD
from momentous.methods.parameter_free import ParameterFreeAGD, UniversalHeavyBall
from momentous.methods.registry import (
    AUTO,
    REGISTRY,
    method_class,
    method_of,
    methods_table,
    requirements,
)
from momentous.methods.restarted import RAGD, RHB, AdaRAGD, AdaRHB, PerturbedRAGD
from momentous.methods.safeguarded import Safeguarded

__all__ = [
    "AUTO",
    "LBFGS",
    "RAGD",
    "REGISTRY",
    "RHB",
    "AdaRAGD",
    "AdaRHB",
    "ConjugateGradient",
    "ConvexUntilGuilty",
    "GradientDescent",
    "HeuristicAGD",
    "JinAGD",
    "ParameterFreeAGD",
    "PerturbedRAGD",
    "Safeguarded",
    "UniversalHeavyBall",
    "method_class",
    "method_of",
    "methods_table",
    "requirements",
]
