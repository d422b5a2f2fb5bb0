"""Smooth nonconvex optimisation by accelerated first-order methods that carry guarantees."""

from momentous import testbed
from momentous.api import accelerate, iterate, minimize
from momentous.certify import Certificate, Verdict, certify
from momentous.comparison import Comparison, compare
from momentous.core.checkpoint import Checkpoint, CheckpointError
from momentous.core.loop import IntermediateResult, Run
from momentous.core.method import Method
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.result import Result
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.core.step import Report, RiseLimit, Step
from momentous.core.stopping import (
    Criterion,
    Evaluations,
    GradientNorm,
    Iterations,
    Progress,
    Stagnation,
    Target,
    WallTime,
)
from momentous.core.trace import Trace
from momentous.methods import (
    LBFGS,
    RAGD,
    RHB,
    AdaRAGD,
    AdaRHB,
    ConjugateGradient,
    ConvexUntilGuilty,
    GradientDescent,
    HeuristicAGD,
    JinAGD,
    ParameterFreeAGD,
    PerturbedRAGD,
    Safeguarded,
    UniversalHeavyBall,
)
from momentous.version import __version__ as __version__

__all__ = [
    "LBFGS",
    "RAGD",
    "RHB",
    "AdaRAGD",
    "AdaRHB",
    "Certificate",
    "Checkpoint",
    "CheckpointError",
    "Comparison",
    "ConjugateGradient",
    "ConvexUntilGuilty",
    "Criterion",
    "Ending",
    "Evaluations",
    "Event",
    "EventKind",
    "GradientDescent",
    "GradientNorm",
    "HeuristicAGD",
    "IntermediateResult",
    "Iterations",
    "JinAGD",
    "Method",
    "Oracle",
    "ParameterFreeAGD",
    "PerturbedRAGD",
    "Progress",
    "Report",
    "Result",
    "RiseLimit",
    "Run",
    "Safeguarded",
    "Sample",
    "Stagnation",
    "Status",
    "Step",
    "Target",
    "Trace",
    "UniversalHeavyBall",
    "Verdict",
    "WallTime",
    "accelerate",
    "certify",
    "compare",
    "iterate",
    "minimize",
    "record",
    "testbed",
]
