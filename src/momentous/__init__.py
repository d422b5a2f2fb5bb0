"""Smooth nonconvex optimisation by accelerated first-order methods that carry guarantees.

Names are imported when they are first used: ``import momentous`` alone loads neither NumPy nor
SciPy.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from momentous.version import __version__ as __version__

if TYPE_CHECKING:  # the same names as in _NAMES, for editors and type checkers
    from momentous import distributed as distributed
    from momentous import jax as jax
    from momentous import lab as lab
    from momentous import lowrank as lowrank
    from momentous import testbed as testbed
    from momentous import torch as torch
    from momentous.api import accelerate as accelerate
    from momentous.api import iterate as iterate
    from momentous.api import minimize as minimize
    from momentous.certify import Certificate as Certificate
    from momentous.certify import Verdict as Verdict
    from momentous.certify import certify as certify
    from momentous.core.checkpoint import Checkpoint as Checkpoint
    from momentous.core.checkpoint import CheckpointError as CheckpointError
    from momentous.core.loop import IntermediateResult as IntermediateResult
    from momentous.core.loop import Run as Run
    from momentous.core.method import Method as Method
    from momentous.core.oracle import Oracle as Oracle
    from momentous.core.oracle import Sample as Sample
    from momentous.core.record import record as record
    from momentous.core.result import Result as Result
    from momentous.core.status import Ending as Ending
    from momentous.core.status import Event as Event
    from momentous.core.status import EventKind as EventKind
    from momentous.core.status import Status as Status
    from momentous.core.step import Report as Report
    from momentous.core.step import RiseLimit as RiseLimit
    from momentous.core.step import Step as Step
    from momentous.core.stopping import Criterion as Criterion
    from momentous.core.stopping import Evaluations as Evaluations
    from momentous.core.stopping import GradientNorm as GradientNorm
    from momentous.core.stopping import Iterations as Iterations
    from momentous.core.stopping import Progress as Progress
    from momentous.core.stopping import Stagnation as Stagnation
    from momentous.core.stopping import StepLength as StepLength
    from momentous.core.stopping import Target as Target
    from momentous.core.stopping import ValueChange as ValueChange
    from momentous.core.stopping import WallTime as WallTime
    from momentous.core.trace import Trace as Trace
    from momentous.lab.compare import Comparison as Comparison
    from momentous.lab.compare import compare as compare
    from momentous.methods import LBFGS as LBFGS
    from momentous.methods import RAGD as RAGD
    from momentous.methods import RHB as RHB
    from momentous.methods import AdaRAGD as AdaRAGD
    from momentous.methods import AdaRHB as AdaRHB
    from momentous.methods import ConjugateGradient as ConjugateGradient
    from momentous.methods import ConvexUntilGuilty as ConvexUntilGuilty
    from momentous.methods import GradientDescent as GradientDescent
    from momentous.methods import HeuristicAGD as HeuristicAGD
    from momentous.methods import JinAGD as JinAGD
    from momentous.methods import ParameterFreeAGD as ParameterFreeAGD
    from momentous.methods import PerturbedRAGD as PerturbedRAGD
    from momentous.methods import Safeguarded as Safeguarded
    from momentous.methods import UniversalHeavyBall as UniversalHeavyBall

# The public names, by the module that each is imported from.
_NAMES = {
    "certify": ("Certificate", "Verdict", "certify"),
    "core.checkpoint": ("Checkpoint", "CheckpointError"),
    "core.loop": ("IntermediateResult", "Run"),
    "core.method": ("Method",),
    "core.oracle": ("Oracle", "Sample"),
    "core.record": ("record",),
    "core.result": ("Result",),
    "core.status": ("Ending", "Event", "EventKind", "Status"),
    "core.step": ("Report", "RiseLimit", "Step"),
    "core.stopping": (
        "Criterion", "Evaluations", "GradientNorm", "Iterations", "Progress", "Stagnation",
        "StepLength", "Target", "ValueChange", "WallTime",
    ),
    "core.trace": ("Trace",),
    "api": ("accelerate", "iterate", "minimize"),
    "lab.compare": ("Comparison", "compare"),
    "methods": (
        "LBFGS", "RAGD", "RHB", "AdaRAGD", "AdaRHB", "ConjugateGradient", "ConvexUntilGuilty",
        "GradientDescent", "HeuristicAGD", "JinAGD", "ParameterFreeAGD", "PerturbedRAGD",
        "Safeguarded", "UniversalHeavyBall",
    ),
}  # fmt: skip
_SUBMODULES = ("distributed", "jax", "lab", "lowrank", "testbed", "torch")
_MODULE_OF = {name: f"momentous.{module}" for module, names in _NAMES.items() for name in names}

__all__ = sorted([*_MODULE_OF, "testbed"])


if not TYPE_CHECKING:  # to type checkers a misspelt name is an error

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used, and keep it."""
        if name in _SUBMODULES:
            return import_module(f"momentous.{name}")
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'momentous' has no attribute {name!r}")
        value = getattr(import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Package(ModuleType):
    """This package, in which `certify` stays the function.

    Python binds every imported submodule to its name in the package; the module of the same name
    must not take the function's place.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _MODULE_OF and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
