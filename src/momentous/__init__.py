"""Smooth nonconvex optimisation by accelerated first-order methods that carry guarantees."""

from momentous import testbed
from momentous.certify import Certificate, Verdict, certify
from momentous.core.checkpoint import Checkpoint, CheckpointError
from momentous.core.loop import IntermediateResult, Run
from momentous.core.method import Method, State
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.result import Result
from momentous.core.status import Ending, Event, EventKind, Status
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
from momentous.front import iterate, minimize
from momentous.methods import RAGD, RHB, AdaRAGD, AdaRHB, PerturbedRAGD

__version__ = "0.1.0"

__all__ = [
    "RAGD",
    "RHB",
    "AdaRAGD",
    "AdaRHB",
    "Certificate",
    "Checkpoint",
    "CheckpointError",
    "Criterion",
    "Ending",
    "Evaluations",
    "Event",
    "EventKind",
    "GradientNorm",
    "IntermediateResult",
    "Iterations",
    "Method",
    "Oracle",
    "PerturbedRAGD",
    "Progress",
    "Result",
    "Run",
    "Sample",
    "Stagnation",
    "State",
    "Status",
    "Target",
    "Trace",
    "Verdict",
    "WallTime",
    "certify",
    "iterate",
    "minimize",
    "record",
    "testbed",
]
