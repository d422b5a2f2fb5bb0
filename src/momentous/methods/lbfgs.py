"""L-BFGS: the practical peer, steppable and on any array."""

from __future__ import annotations

import dataclasses
import math

from momentous.core.arrays import Array
from momentous.core.method import Method, State
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.methods.epoch import check_positive
from momentous.methods.estimates import Rounding, ValueState
from momentous.methods.limited_memory import Memory

# A search that goes on for longer asks how noisy the values are.
PATIENCE = 3
DOUBTFUL = 1e-3  # of what values are made of: a smaller change may be noise
# The next trial of a line search: how near to the ends of an interval, and how far beyond the last.
NEAREST = 0.2
LEAST_GROWTH, MOST_GROWTH = 2.0, 4.0


@record
class LBFGSState(ValueState):
    """The iterate is ``sample``."""

    known: Memory  # of the curvature

    @property
    def accepted(self) -> Sample:
        return self.sample


@dataclasses.dataclass
class Trial:
    """A step length, and what is known there."""

    t: float
    value: float
    slope: float


@dataclasses.dataclass(frozen=True)
class LBFGS(Method):
    """Limited-memory BFGS with a weak Wolfe line search (Nocedal [1]_, Liu & Nocedal [2]_).

    The direction is -H g by the two-loop recursion from (<s, y>/<y, y>) I, run on inner products
    [3]_.  A step length t is sought with f(x + t d) <= f(x) + c1 t <g, d> and
    <grad f(x + t d), d> >= c2 <g, d>, by a bracket as in [4]_ whose trials are interpolated
    rather than bisected (8 % fewer gradients on half of the problems of `testbed.suite`).  The
    first trial is 1, in the first iteration min(1, 1/|g|).  Where values cannot tell, within
    rounding, the first condition is replaced by <grad f(x + t d), d> <= (2 c1 - 1) <g, d>, its
    equivalent for a quadratic [5]_.  A search that fails drops the pairs and goes on with the
    gradient; if that fails too, the run ends.

    No guarantee for nonconvex functions.  One value and one gradient a trial, seldom more than one
    trial an iteration.

    Parameters
    ----------
    memory : int
        Pairs to keep.
    sufficient_decrease, curvature : float
        c1 and c2, 0 < c1 < c2 < 1 and c1 < 1/2.
    max_trials : int
        Trials of a line search.

    References
    ----------
    .. [1] J. Nocedal, "Updating Quasi-Newton Matrices with Limited Storage", Math. Comp. 35 (1980).
    .. [2] D. C. Liu, J. Nocedal, "On the Limited Memory BFGS Method for Large Scale Optimization",
       Math. Programming 45 (1989).
    .. [3] W. Chen, Z. Wang, J. Zhou, "Large-scale L-BFGS using MapReduce", NIPS 27 (2014).
    .. [4] A. S. Lewis, M. L. Overton, "Nonsmooth Optimization via Quasi-Newton Methods", Math.
       Programming 141 (2013): the weak Wolfe bisection.
    .. [5] W. W. Hager, H. Zhang, "A New Conjugate Gradient Method with Guaranteed Descent and an
       Efficient Line Search", SIAM J. Optim. 16 (2005): the approximate Wolfe conditions.
    """

    name = "lbfgs"
    summary = "limited-memory BFGS"
    needs = "nothing"
    guarantee = "none"
    cost = "1 value and 1 gradient a trial (about 1)"

    memory: int = 10
    sufficient_decrease: float = 1e-4
    curvature: float = 0.9
    max_trials: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("LBFGS", memory=self.memory, max_trials=self.max_trials)
        c1, c2 = self.sufficient_decrease, self.curvature
        if not (0 < c1 < 0.5 and c1 < c2 < 1):
            raise ValueError(
                f"LBFGS: sufficient_decrease={c1!r} (c1) and curvature={c2!r} (c2) must satisfy "
                "0 < c1 < 1/2 and c1 < c2 < 1"
            )

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> LBFGSState:
        sample = oracle.gradient(x0)
        rounding = Rounding.at(oracle.space, sample.value)
        return LBFGSState(sample, 0.0, (), None, rounding, Memory())

    def moved_to(
        self, oracle: Oracle, state: State, sample: Sample, tol: float | None, seed: int
    ) -> LBFGSState:
        """With the pairs: they are still what is known of the curvature."""
        assert isinstance(state, LBFGSState)
        known = state.known.at(oracle.space, sample)
        return dataclasses.replace(state, sample=sample, events=(), ending=None, known=known)

    def step(self, oracle: Oracle, state: State) -> LBFGSState:
        assert isinstance(state, LBFGSState)
        space, here = oracle.space, state.sample
        if here.grad_norm == 0.0:
            ending = Ending(Status.COMPLETED, "the gradient is exactly zero", {"grad_norm": 0.0})
            return dataclasses.replace(state, events=(), ending=ending)
        direction = state.known.direction(space, here.gradient)
        slope = space.inner(here.gradient, direction)
        if not (slope < 0 and math.isfinite(slope)):
            return self._forgotten(state)
        first = 1.0 if state.known else min(1.0, 1.0 / here.grad_norm)
        t, there, rounding = self._search(oracle, here, direction, slope, first, state.rounding)
        if there is None:
            return self._forgotten(dataclasses.replace(state, rounding=rounding))
        known = state.known.extended(space, here, there, self.memory)
        return LBFGSState(there, t, (), None, rounding, known)

    def _search(
        self,
        oracle: Oracle,
        here: Sample,
        direction: Array,
        slope: float,
        t: float,
        rounding: Rounding,
    ) -> tuple[float, Sample | None, Rounding]:
        """A step length that satisfies both conditions, and what is known there."""
        space, c1, c2 = oracle.space, self.sufficient_decrease, self.curvature
        low, high = Trial(0.0, here.value, slope), None
        for trials in range(1, self.max_trials + 1):
            point = space.combination(here.point, t, direction)
            value = oracle.value(point)
            falls = value <= here.value + c1 * t * slope
            trial = Trial(t, value, math.nan)
            expected = -t * slope
            small = expected <= DOUBTFUL * rounding.size(space, here.value)
            if not falls and trials > PATIENCE and small and rounding.doubts(expected):
                rounding = rounding.measured(oracle, here, direction, slope, expected, t)
            noise = rounding.between(space, here.value, value)
            if math.isfinite(value) and (falls or abs(value - here.value) <= noise):
                there = oracle.gradient(point)
                trial.slope = space.inner(there.gradient, direction)
                if there.finite and (falls or trial.slope <= (2 * c1 - 1) * slope):
                    if trial.slope >= c2 * slope:
                        return t, there, rounding
                    before, low = low, trial
                    if high is None:
                        t = _beyond(before, low)
                        continue
                else:
                    high = trial
            else:
                high = trial
            t = _between(low, high)
        return t, None, rounding

    def _forgotten(self, state: LBFGSState) -> LBFGSState:
        """No way along that direction: drop the pairs; without pairs there is no way at all."""
        here = state.sample
        if state.known:
            event = Event(EventKind.RESTART, float(len(state.known)))
            return LBFGSState(here, 0.0, (event,), None, state.rounding, Memory())
        ending = Ending(
            Status.NO_PROGRESS,
            f"{self.max_trials} trials along the gradient, of norm {here.grad_norm:.3g}, do not "
            "lower the objective: rounding is reached, or jac is not the gradient of fun",
            {"grad_norm": here.grad_norm, "trials": self.max_trials},
        )
        return LBFGSState(here, 0.0, (), ending, state.rounding, Memory())


def _between(low: Trial, high: Trial) -> float:
    """Where the parabola through value and slope at low and value at high is least, not too near
    to either end; the middle where there is no such parabola."""
    width = high.t - low.t
    bend = high.value - low.value - low.slope * width
    share = -low.slope * width / (2 * bend) if bend > 0.0 else math.nan
    if not math.isfinite(share):
        share = 0.5
    return low.t + width * min(max(share, NEAREST), 1.0 - NEAREST)


def _beyond(before: Trial, low: Trial) -> float:
    """Where the slope would vanish if it went on changing as it did, two to four times as far."""
    change = low.slope - before.slope
    further = low.t - low.slope * (low.t - before.t) / change if change > 0.0 else math.inf
    return min(max(further, LEAST_GROWTH * low.t), MOST_GROWTH * low.t)
