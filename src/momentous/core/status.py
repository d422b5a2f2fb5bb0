"""Why a run ended: one enum, and the numbers behind it."""

from __future__ import annotations

import enum
import functools
import math
import operator

from momentous.core.record import record


class Status(enum.IntEnum):
    """The reason why a run ended.  Zero and the other members of ``SUCCESSES`` are successes
    (``COMPLETED`` only where something was asked for or promised: `Ending.success`).

    0, 1, 2, 3 and 99 mean what they mean to most methods of SciPy.
    """

    CONVERGED = 0  # the gradient norm is within the tolerance
    MAX_ITERATIONS = 1
    NO_PROGRESS = 2  # no step that rounding or the caps allow lowers the objective
    NON_FINITE = 3  # NaN or infinity wherever the method could go
    TARGET_REACHED = 4  # the objective is at or below the target
    COMPLETED = 5  # the method ended by its own rule, and what its theory promises holds
    MAX_EVALUATIONS = 6
    MAX_TIME = 7
    STAGNATED = 8  # no smaller gradient for as long as the user allowed
    ABOVE_TOLERANCE = 9  # the method ended by its own rule, above the tolerance asked for
    PROMISE_BROKEN = 10  # ... and above what its theory promises: the constants cannot be right
    INTERRUPTED = 11  # Ctrl-C
    OBJECTIVE_ROSE = 12  # the gradient is small, but f has risen above the last accepted point
    UNBOUNDED = 13  # the objective falls, or x grows, beyond all bounds
    SMALL_CHANGE = 14  # f, or x, changes by no more than the user asked for
    STOPPED = 99  # by the callback, or by the caller of iterate()

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


def is_one_of(status: int, statuses: frozenset[Status]) -> bool:
    """Is a status among these?  A number, or one of each lane in compiled code."""
    return functools.reduce(operator.or_, [status == int(each) for each in statuses])


@record
class Ending:
    """A status, a sentence for people, and the numbers in it for programs."""

    status: Status
    message: str
    numbers: dict[str, float]

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

    def of_point(self, known: dict[str, float], noun: str) -> Ending:
        """The same with the numbers of the point that is returned, which need not be the last one;
        where the sentence is about another point it says so."""
        numbers, norm, value = self.numbers, known["grad_norm"], known["fun"]
        new = {name: known[name] for name in known.keys() & numbers.keys()}
        changed = {
            name
            for name, number in new.items()
            if number != numbers[name] and not (math.isnan(number) and math.isnan(numbers[name]))
        }
        said = [numbers[name] for name in ("grad_norm", "best_grad_norm") if name in numbers]
        notes = [f"{noun} norm {norm:.3g}"] if said and norm not in said else []
        notes += [f"objective {value:.6g}"] if "fun" in changed else []
        if "grad_norm" in changed:
            new["last_grad_norm"] = numbers["grad_norm"]
        if notes:
            new["grad_norm"] = norm
        message = "; x has ".join([self.message, *([" and ".join(notes)] if notes else [])])
        return Ending(self.status, message, numbers | new) if changed or notes else self


class EventKind(enum.StrEnum):
    """The kinds of events in a step."""

    RESTART = "restart"  # the epoch ended, the momentum was dropped
    ROLLBACK = "rollback"  # the epoch was discarded: back to the last accepted point
    RADIUS_REACHED = "radius reached"  # the adaptive radius B0 fell to the theory's B
    TIGHTENED = "tightened"  # an epoch completed above the tolerance: eps was lowered
    PERTURBED = "perturbed"  # a random displacement was added
    NON_FINITE = "non-finite"  # a NaN or an infinity was met and rejected
    NEGATIVE_CURVATURE = "negative curvature"
    SECANT = "secant"  # a combination of the last points was tried: 1 it was taken, 0 discarded
    FACE = "face"  # so many variables are at their bounds, other than before
    TURN = "turn"  # of two methods that alternate, the other goes on: 0 the fast, 1 the guaranteed


RESTARTS = frozenset({EventKind.RESTART, EventKind.ROLLBACK})  # the momentum was dropped


@record
class Event:
    """A restart, a rollback or the like in a step, with a number that explains it."""

    kind: EventKind
    value: float


def has_restart(events: tuple[Event, ...]) -> bool:
    """Has an epoch ended, and not been discarded?"""
    return any(event.kind is EventKind.RESTART for event in events)
