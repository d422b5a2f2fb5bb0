"""What the parameter-free methods share: epochs that end in two ways, and tests that know rounding.

An epoch ends *unsuccessfully* when the values say that L is too small, and L grows; it ends
*successfully* when the Hessian varies too much for more momentum, and L may shrink.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any, NamedTuple, Self, TypeVar

from momentous.core.machine import Host
from momentous.core.method import Method
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.space import Array, Space
from momentous.core.status import Ending, Event, EventKind
from momentous.core.step import Report, RiseLimit, Step
from momentous.methods.checks import check, check_positive
from momentous.methods.endings import Events, no_progress, stuck
from momentous.methods.search.probe import probed_lipschitz
from momentous.methods.search.rounding import Rounding, evaluated

# A change of f so many times above the noise of its values is judged by the values alone.
SIGNAL = 10.0
# While rounding rejects, L may exceed the largest L that values have confirmed by this factor.
HEADROOM = 2.0**20
# So that 1/L and its square are numbers.
SMALLEST_LIPSCHITZ = 1e-150


@record
class ParameterFreeMemory:
    """Where the epoch stands after k of its iterations, and what outlives it."""

    x: Sample  # x_k
    lipschitz: float  # L
    confirmed: float  # the largest L that has passed its test by values above the noise
    rounding: Rounding  # how noisy values are
    size: float  # |x_0|
    tol: float
    average_due: float  # the iteration from which on the average is evaluated again
    k: int = 0
    travelled: float = 0.0  # S = sum of |x_i - x_{i-1}|^2, i <= k

    @property
    def lowest(self) -> Sample:
        """The lowest point of the epoch, from which another one would start."""
        return self.x

    def as_step(
        self,
        space: Space,
        sample: Sample,
        step_size: float,
        events: Events = (),
        ending: Ending | None = None,
    ) -> Step[Self]:
        """The step that led here."""
        # Not to stay above the point that the next epoch would start from, unless convexity
        # allows it.
        lowest, rounding = self.lowest, self.rounding
        level = rounding.between(Host.of(space), lowest.value, sample.value)
        limit = RiseLimit(lowest, level=level, convex=True)
        report = Report(sample, step_size, events, ending, lowest, rounding.seen, limit)
        return Step(self, report)


P = TypeVar("P", bound=ParameterFreeMemory)


class Claim(NamedTuple):
    """That f changes by no more than the bound, and what values and gradients say about it."""

    before: float  # the two values
    after: float
    by_gradients: float  # the change by the trapezoidal rule
    bound: float
    signal: float  # what the values have to show


@dataclasses.dataclass(frozen=True)
class ParameterFree(Method[P]):
    """Momentum under estimates of both Lipschitz constants; see the two methods."""

    has_epochs = True

    gradient_lipschitz: float | None = None
    backoff: float = 2.0
    relaxation: float = 0.5
    average_growth: float = 1.25
    guards: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "gradient_lipschitz")
        check(self, "backoff", 1 < self.backoff < math.inf, "(alpha) must be finite, above 1")
        check(self, "relaxation", 0 < self.relaxation <= 1, "(beta) must be in (0, 1]")
        often = "must be at least 1 (1: evaluate the average in every iteration; infinity: never)"
        check(self, "average_growth", self.average_growth >= 1, often)

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> Step[P]:
        x = evaluated(oracle, x0)
        L = self.gradient_lipschitz or probed_lipschitz(oracle, x)
        oracle.recall(x)
        goal = self.default_tolerance if tol is None else tol
        rounding = Rounding.at(Host.of(oracle.space), x.value)
        memory = self._epoch(oracle.space, x, max(L, SMALLEST_LIPSCHITZ), 0.0, rounding, goal)
        return memory.as_step(oracle.space, x, 1 / memory.lipschitz)

    def moved_to(
        self, oracle: Oracle, memory: P, sample: Sample, tol: float | None, seed: int
    ) -> Step[P]:
        """With L as it stands."""
        after = self._epoch(
            oracle.space, sample, memory.lipschitz, memory.confirmed, memory.rounding, memory.tol
        )
        return after.as_step(oracle.space, sample, 1 / after.lipschitz)

    def _epoch(
        self, space: Space, x: Sample, L: float, confirmed: float, rounding: Rounding, tol: float
    ) -> P:
        """The memory at the start of an epoch."""
        due = 1.0 if math.isfinite(self.average_growth) else math.inf
        return self._at_rest(
            space,
            x=x,
            lipschitz=L,
            confirmed=confirmed,
            rounding=rounding,
            size=space.norm(x.point),
            tol=tol,
            average_due=due,
        )

    @abc.abstractmethod
    def _at_rest(self, space: Space, **shared: Any) -> P:
        """The memory at the start of an epoch, given what both methods share."""

    def _next_average(self, k: int) -> float:
        return max(k + 1.0, self.average_growth * k)

    def _judged(
        self, oracle: Oracle, memory: P, claim: Claim, v: Array, slope: float
    ) -> tuple[P, bool, bool]:
        """Does the claim hold, and did values above their noise decide that?

        Where values alone are against it, over the step v from x_{k-1} with that slope, their noise
        is measured before they are believed.
        """
        holds, clear = self._decided(oracle.space, memory, claim)
        doubtful = claim.by_gradients <= claim.bound and memory.rounding.doubts(claim.signal)
        if self.guards and not holds and doubtful:
            rounding = memory.rounding.measured(oracle, memory.x, v, slope, claim.signal)
            memory = dataclasses.replace(memory, rounding=rounding)
            holds, clear = self._decided(oracle.space, memory, claim)
        return memory, holds, clear

    def _decided(self, space: Space, memory: P, claim: Claim) -> tuple[bool, bool]:
        """By values; within their noise by the trapezoidal rule, if they do not contradict."""
        noise = memory.rounding.between(Host.of(space), claim.before, claim.after)
        by_values, clear = claim.after - claim.before, claim.signal > SIGNAL * noise
        if clear or not self.guards:
            return by_values <= claim.bound, clear
        return claim.by_gradients <= claim.bound and by_values <= claim.bound + noise, clear

    def _confirmed(self, memory: P, clear: bool) -> float:
        return max(memory.confirmed, memory.lipschitz) if clear else memory.confirmed

    def _restarted(
        self,
        oracle: Oracle,
        memory: P,
        sample: Sample,
        start: Sample,
        factor: float,
        *events: Event,
        clear: bool = False,
    ) -> Step[P]:
        """A new epoch from ``start``, with L changed by the factor."""
        space, L, confirmed = oracle.space, memory.lipschitz, self._confirmed(memory, clear)
        changed = max(factor * L, SMALLEST_LIPSCHITZ)
        after = self._epoch(space, start, changed, confirmed, memory.rounding, memory.tol)
        return after.as_step(space, sample, 1 / L, events)

    def _rejected(
        self, oracle: Oracle, memory: P, sample: Sample, start: Sample, *, clear: bool = True
    ) -> Step[P]:
        """The unsuccessful end of an epoch; ``clear``: not by rounding."""
        events: Events = (Event(EventKind.ROLLBACK, memory.k + 1.0),)
        if not sample.has_finite_gradient:
            events = (Event(EventKind.NON_FINITE, sample.grad_norm), *events)
        after = self._restarted(oracle, memory, sample, start, self.backoff, *events)
        L, norm = after.memory.lipschitz, start.grad_norm
        if self.guards and not clear and L > HEADROOM * memory.confirmed > 0.0:
            after.report.ending = no_progress(
                f"no step is accepted although L has grown to {L:.3g}, 2^20 times the largest that "
                f"values could confirm: at gradient norm {norm:.3g} rounding decides",
                grad_norm=norm,
                gradient_lipschitz=L,
            )
        return after

    def _stuck(self, oracle: Oracle, memory: P) -> Step[P]:
        """The first step of an epoch does not move x, and nor would a shorter one."""
        x, eta = memory.x, 1 / memory.lipschitz
        return memory.as_step(oracle.space, x, eta, ending=stuck(x.grad_norm, eta))
