"""Why a run ended: one enum, and the numbers behind it."""

from __future__ import annotations

import enum
import math
from typing import Any

from momentous.core.record import record


class Status(enum.IntEnum):
    """The reason why a run ended.  Zero and the other members of ``SUCCESSES`` are successes
    (``COMPLETED`` only where something was asked for or promised: `Ending.success`)."""

    CONVERGED = 0  # the gradient norm is within the tolerance
    TARGET_REACHED = 1  # the objective is at or below the target
    COMPLETED = 2  # the method ended by its own rule, and what its theory promises holds
    MAX_ITERATIONS = 3
    MAX_EVALUATIONS = 4
    MAX_TIME = 5
    STAGNATED = 6  # no smaller gradient for as long as the user allowed
    NO_PROGRESS = 7  # no step that rounding or the caps allow lowers the objective
    ABOVE_TOLERANCE = 8  # the method ended by its own rule, above the tolerance asked for
    PROMISE_BROKEN = 9  # ... and above what its theory promises: the constants cannot be right
    NON_FINITE = 10  # NaN or infinity wherever the method could go
    STOPPED = 11  # by the callback, or by the caller of iterate()
    INTERRUPTED = 12  # Ctrl-C
    OBJECTIVE_ROSE = 13  # the gradient is small, but f has risen above the last accepted point
    UNBOUNDED = 14  # the objective falls, or x grows, beyond all bounds
    SMALL_CHANGE = 15  # f, or x, changes by no more than the user asked for

    @property
    def success(self) -> bool:
        return self in SUCCESSES

    @property
    def is_output(self) -> bool:
        """Is the last point evaluated what the method means to return?"""
        return self in OUTPUTS


SUCCESSES = frozenset(
    {Status.CONVERGED, Status.TARGET_REACHED, Status.COMPLETED, Status.SMALL_CHANGE}
)
OUTPUTS = SUCCESSES - {Status.SMALL_CHANGE} | {Status.ABOVE_TOLERANCE, Status.PROMISE_BROKEN}


@record
class Ending:
    """A status, a sentence for people, and the numbers in it for programs."""

    status: Status
    message: str
    numbers: dict[str, Any]

    @property
    def success(self) -> bool:
        """Has the run reached what was asked for, or what a theorem promises?

        A method that ends by its own rule and knows of no promise (it is NaN: parameters were set
        by hand) has not, unless it was given a tolerance.
        """
        without_promise = math.isnan(self.numbers.get("promise", 0.0))
        return self.status.success and not (
            self.status is Status.COMPLETED
            and without_promise
            and not self.numbers.get("tolerance")
        )


class EventKind(enum.StrEnum):
    """What can happen in a step besides the step."""

    RESTART = "restart"  # the epoch ended, the momentum was dropped
    ROLLBACK = "rollback"  # the epoch was discarded: back to the last accepted point
    RADIUS_REACHED = "radius reached"  # the adaptive radius B0 fell to the theory's B
    TIGHTENED = "tightened"  # an epoch completed above the tolerance: eps was lowered
    PERTURBED = "perturbed"  # a random displacement was added
    NON_FINITE = "non-finite"  # a NaN or an infinity was met and rejected
    NEGATIVE_CURVATURE = "negative curvature"
    SECANT = "secant"  # a combination of the last points was tried: 1 it was taken, 0 discarded
    TURN = "turn"  # of two methods that alternate, the other goes on: 0 the fast, 1 the guaranteed


RESTARTS = frozenset({EventKind.RESTART, EventKind.ROLLBACK})  # the momentum was dropped


@record
class Event:
    """Something that happened in a step, with the number that explains it."""

    kind: EventKind
    value: float
