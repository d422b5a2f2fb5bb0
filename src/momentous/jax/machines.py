"""Which machine a method has."""

from __future__ import annotations

from typing import Any

from momentous.core.method import Method
from momentous.core.rule import Rule
from momentous.jax.free_radius import FreeRadiusMachine
from momentous.jax.machine import Machine
from momentous.jax.parameter_free_agd import ParameterFreeAGDMachine
from momentous.jax.rules import RuleMachine
from momentous.jax.universal_heavy_ball import UniversalHeavyBallMachine
from momentous.jax.vectors import Tree
from momentous.methods.parameter_free import ParameterFreeAGD, UniversalHeavyBall
from momentous.methods.registry import rules
from momentous.methods.restarted.algorithms import Adaptive


def machine_of(method: Method, x0: Tree, tol: float, key: Any = None) -> Machine:
    """The machine of a method with its parameters, for vectors like x0.

    ``tol`` is the absolute tolerance, from which some methods take their eps; ``key`` is where the
    randomised one draws from.
    """
    if isinstance(method, Adaptive) and method.is_free:
        return FreeRadiusMachine(method.free, x0, tol)
    if isinstance(method, Rule):
        return RuleMachine(method, x0, tol, key)
    if isinstance(method, ParameterFreeAGD):
        return ParameterFreeAGDMachine(method, x0, tol)
    if isinstance(method, UniversalHeavyBall):
        return UniversalHeavyBallMachine(method, x0, tol)
    raise TypeError(
        f"{method.name} has no compiled form; momentous.jax.minimize runs it with a compiled "
        f"function. These have one: {', '.join(rules())}"
    )
