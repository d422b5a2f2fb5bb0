"""What the parameter-free methods share: epochs that end in two ways, and tests that know rounding.

An epoch ends *unsuccessfully* when the values say that L is too small, and L grows; it ends
*successfully* when the Hessian varies too much for more momentum, and L may shrink.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any, NamedTuple, TypeVar

from momentous.core.arrays import Array, Space
from momentous.core.method import Method, State
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.methods.epoch import check_positive
from momentous.methods.estimates import Rounding, ValueState, evaluated, rise, usable
from momentous.methods.probe import probed_lipschitz

# A change of f so many times above the noise of its values is judged by the values alone.
SIGNAL = 10.0
# While rounding rejects, L may exceed the largest L that values have confirmed by this factor.
HEADROOM = 2.0**20
# So that 1/L and its square are numbers.
SMALLEST_LIPSCHITZ = 1e-150


@record
class ParameterFreeState(ValueState):
    """Where the epoch stands after k of its iterations, and what outlives it."""

    x: Sample  # x_k
    k: int
    travelled: float  # S = sum of |x_i - x_{i-1}|^2, i <= k
    lipschitz: float  # L
    confirmed: float  # the largest L that has passed its test by values above the noise
    size: float  # |x_0|
    tol: float
    average_due: float  # the iteration from which on the average is evaluated again

    @property
    def accepted(self) -> Sample:
        return self.x


S = TypeVar("S", bound=ParameterFreeState)


class Claim(NamedTuple):
    """That f changes by no more than the bound, and what values and gradients say about it."""

    before: float  # the two values
    after: float
    by_gradients: float  # the change by the trapezoidal rule
    bound: float
    signal: float  # what the values have to show


@dataclasses.dataclass(frozen=True)
class ParameterFree(Method):
    """Momentum under estimates of both Lipschitz constants; see the two methods."""

    gradient_lipschitz: float | None = None
    backoff: float = 2.0
    relaxation: float = 0.5
    average_growth: float = 1.25
    guards: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        owner = type(self).__name__
        check_positive(owner, gradient_lipschitz=self.gradient_lipschitz)
        if not 1 < self.backoff < math.inf:
            raise ValueError(f"{owner}: backoff={self.backoff!r} (alpha) must be finite, above 1")
        if not 0 < self.relaxation <= 1:
            raise ValueError(f"{owner}: relaxation={self.relaxation!r} (beta) must be in (0, 1]")
        if not self.average_growth >= 1:
            raise ValueError(
                f"{owner}: average_growth={self.average_growth!r} must be at least 1 (1: evaluate "
                "the average in every iteration; infinity: never)"
            )

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> ParameterFreeState:
        x = evaluated(oracle, x0)
        L = self.gradient_lipschitz or probed_lipschitz(oracle, x)
        oracle.recall(x)
        goal = self.default_tolerance if tol is None else tol
        rounding = Rounding.at(oracle.space, x.value)
        return self._epoch(oracle.space, x, max(L, SMALLEST_LIPSCHITZ), 0.0, rounding, goal)

    def moved_to(
        self, oracle: Oracle, state: State, sample: Sample, tol: float | None, seed: int
    ) -> State:
        """With L as it stands."""
        assert isinstance(state, ParameterFreeState)
        return self._epoch(
            oracle.space, sample, state.lipschitz, state.confirmed, state.rounding, state.tol
        )

    def with_tolerance(self, state: State, tol: float | None) -> State:
        assert isinstance(state, ParameterFreeState)
        return state if tol is None else dataclasses.replace(state, tol=tol)

    def stands_by(self, oracle: Oracle, state: State) -> bool:
        """Not above the point that the next epoch would start from, unless convexity allows it."""
        assert isinstance(state, ParameterFreeState)
        space, sample, accepted = oracle.space, state.sample, state.accepted
        if not usable(sample):
            return False
        square = space.distance_squared(sample.point, accepted.point)
        return rise(space, accepted, sample, state.rounding) <= sample.grad_norm * math.sqrt(square)

    def _epoch(
        self,
        space: Space,
        start: Sample,
        lipschitz: float,
        confirmed: float,
        rounding: Rounding,
        tol: float,
    ) -> ParameterFreeState:
        """The state at the start of an epoch."""
        shared = {
            "sample": start,
            "step_size": 1 / lipschitz,
            "events": (),
            "ending": None,
            "x": start,
            "k": 0,
            "travelled": 0.0,
            "lipschitz": lipschitz,
            "confirmed": confirmed,
            "rounding": rounding,
            "size": space.norm(start.point),
            "tol": tol,
            "average_due": self._first_average(),
        }
        return self._first_state(space, start, shared)

    @abc.abstractmethod
    def _first_state(
        self, space: Space, start: Sample, shared: dict[str, Any]
    ) -> ParameterFreeState:
        """The same, with the fields of the method's own."""

    def _first_average(self) -> float:
        return 1.0 if math.isfinite(self.average_growth) else math.inf

    def _next_average(self, k: int) -> float:
        return max(k + 1.0, self.average_growth * k)

    def _judged(
        self, oracle: Oracle, state: S, claim: Claim, v: Array, slope: float
    ) -> tuple[S, bool, bool]:
        """Does the claim hold, and did values above their noise decide that?

        Where values alone are against it, over the step v from x_{k-1} with that slope, their noise
        is measured before they are believed.
        """
        holds, clear = self._decided(oracle.space, state, claim)
        doubtful = claim.by_gradients <= claim.bound and state.rounding.doubts(claim.signal)
        if self.guards and not holds and doubtful:
            rounding = state.rounding.measured(oracle, state.x, v, slope, claim.signal)
            state = dataclasses.replace(state, rounding=rounding)
            holds, clear = self._decided(oracle.space, state, claim)
        return state, holds, clear

    def _decided(self, space: Space, state: ParameterFreeState, claim: Claim) -> tuple[bool, bool]:
        """By values; within their noise by the trapezoidal rule, if they do not contradict."""
        noise = state.rounding.between(space, claim.before, claim.after)
        by_values, clear = claim.after - claim.before, claim.signal > SIGNAL * noise
        if clear or not self.guards:
            return by_values <= claim.bound, clear
        return claim.by_gradients <= claim.bound and by_values <= claim.bound + noise, clear

    def _confirmed(self, state: ParameterFreeState, clear: bool) -> float:
        return max(state.confirmed, state.lipschitz) if clear else state.confirmed

    def _restarted(
        self,
        oracle: Oracle,
        state: ParameterFreeState,
        sample: Sample,
        start: Sample,
        factor: float,
        *events: Event,
        clear: bool = False,
    ) -> ParameterFreeState:
        """A new epoch from ``start``, with L changed by the factor."""
        L, confirmed = state.lipschitz, self._confirmed(state, clear)
        after = self._epoch(
            oracle.space,
            start,
            max(factor * L, SMALLEST_LIPSCHITZ),
            confirmed,
            state.rounding,
            state.tol,
        )
        after.sample, after.step_size, after.events = sample, 1 / L, events
        return after

    def _rejected(
        self,
        oracle: Oracle,
        state: ParameterFreeState,
        sample: Sample,
        start: Sample,
        *,
        clear: bool = True,
    ) -> ParameterFreeState:
        """The unsuccessful end of an epoch; ``clear``: not by rounding."""
        events: tuple[Event, ...] = (Event(EventKind.ROLLBACK, state.k + 1.0),)
        if not sample.finite:
            events = (Event(EventKind.NON_FINITE, sample.grad_norm), *events)
        after = self._restarted(oracle, state, sample, start, self.backoff, *events)
        L, norm = after.lipschitz, start.grad_norm
        if self.guards and not clear and L > HEADROOM * state.confirmed > 0.0:
            after.ending = Ending(
                Status.NO_PROGRESS,
                f"no step is accepted although L has grown to {L:.3g}, 2^20 times the largest that "
                f"values could confirm: at gradient norm {norm:.3g} rounding decides; a larger "
                "tol, a higher precision or subtracting a constant from the objective helps, and "
                "so does checking the gradient",
                {"grad_norm": norm, "gradient_lipschitz": L},
            )
        return after

    def _stuck(self, state: ParameterFreeState) -> ParameterFreeState:
        """The first step of an epoch does not move x, and nor would a shorter one."""
        norm, eta = state.x.grad_norm, 1 / state.lipschitz
        numbers = {"grad_norm": norm, "step_size": eta}
        if norm == 0.0:
            ending = Ending(Status.COMPLETED, "the gradient is exactly zero", numbers)
        else:
            ending = Ending(
                Status.NO_PROGRESS,
                f"the step size fell to {eta:.3g}, too small to move x, and no longer step was "
                f"accepted at gradient norm {norm:.3g}; a larger tol, a higher precision or "
                "subtracting a constant from the objective helps, and so does checking the "
                "gradient, and that fun is finite around result.x",
                numbers,
            )
        return dataclasses.replace(state, sample=state.x, events=(), ending=ending)
