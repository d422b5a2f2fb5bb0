"""L-BFGS: the practical peer, steppable and on any array."""

from __future__ import annotations

import dataclasses
import math

from momentous.core.arrays import Array, Space
from momentous.core.method import Method, State
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.methods.epoch import check_positive


@record
class Pair:
    """A step s, the change y of the gradient along it, and 1/<s, y>."""

    step: Array
    change: Array
    weight: float


@record
class LBFGSState(State):
    """The iterate is ``sample``; the pairs are what is known of the curvature."""

    pairs: tuple[Pair, ...]  # the oldest first
    scale: float  # <s, y>/<y, y> of the newest pair: the initial matrix is its multiple of I

    @property
    def accepted(self) -> Sample:
        return self.sample


@dataclasses.dataclass(frozen=True)
class LBFGS(Method):
    """Limited-memory BFGS with a weak Wolfe line search (Nocedal [1]_, Liu & Nocedal [2]_).

    The direction is -H g by the two-loop recursion from (<s, y>/<y, y>) I.  The step length is
    found by bisection and doubling [3]_: f(x + t d) <= f(x) + c1 t <g, d> and
    <grad f(x + t d), d> >= c2 <g, d>.  The first trial is 1, in the first iteration
    min(1, 1/|g|).  Where values cannot tell, within rounding, the first condition is replaced by
    <grad f(x + t d), d> <= (2 c1 - 1) <g, d>, its equivalent for a quadratic [4]_.  A search that
    fails drops the pairs and goes on with the gradient; if that fails too, the run ends.

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
    .. [3] A. S. Lewis, M. L. Overton, "Nonsmooth Optimization via Quasi-Newton Methods", Math.
       Programming 141 (2013): the weak Wolfe bisection.
    .. [4] W. W. Hager, H. Zhang, "A New Conjugate Gradient Method with Guaranteed Descent and an
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
        return LBFGSState(sample, 0.0, (), None, (), 1.0)

    def step(self, oracle: Oracle, state: State) -> LBFGSState:
        assert isinstance(state, LBFGSState)
        space, here = oracle.space, state.sample
        if here.grad_norm == 0.0:
            ending = Ending(Status.COMPLETED, "the gradient is exactly zero", {"grad_norm": 0.0})
            return dataclasses.replace(state, events=(), ending=ending)
        direction = self._direction(space, state)
        slope = space.inner(here.gradient, direction)
        if not (slope < 0 and math.isfinite(slope)):
            return self._forgotten(state)
        first = 1.0 if state.pairs else min(1.0, 1.0 / here.grad_norm)
        t, there = self._search(oracle, here, direction, slope, first)
        if there is None:
            return self._forgotten(state)
        return self._moved(space, state, there, t)

    def _direction(self, space: Space, state: LBFGSState) -> Array:
        """-H g, by the two loops."""
        q, coefficients = state.sample.gradient, []
        for pair in reversed(state.pairs):
            a = pair.weight * space.inner(pair.step, q)
            coefficients.append(a)
            q = space.combination(q, -a, pair.change)
        q = q * -state.scale
        for pair, a in zip(state.pairs, reversed(coefficients), strict=True):
            b = pair.weight * space.inner(pair.change, q)
            q = space.combination(q, -(a + b), pair.step)
        return q

    def _search(
        self, oracle: Oracle, here: Sample, direction: Array, slope: float, t: float
    ) -> tuple[float, Sample | None]:
        """A step length that satisfies both conditions, and what is known there."""
        space, c1, c2 = oracle.space, self.sufficient_decrease, self.curvature
        low, high = 0.0, math.inf
        noise = space.value_noise(here.value)
        for _ in range(self.max_trials):
            point = space.combination(here.point, t, direction)
            value = oracle.value(point)
            falls = value <= here.value + c1 * t * slope
            if math.isfinite(value) and (falls or abs(value - here.value) <= noise):
                there = oracle.gradient(point)
                slope_there = space.inner(there.gradient, direction)
                if there.finite and (falls or slope_there <= (2 * c1 - 1) * slope):
                    if slope_there >= c2 * slope:
                        return t, there
                    low = t
                else:
                    high = t
            else:
                high = t
            t = (low + high) / 2 if high < math.inf else 2 * low
        return t, None

    def _moved(self, space: Space, state: LBFGSState, there: Sample, t: float) -> LBFGSState:
        here, pairs, scale = state.sample, state.pairs, state.scale
        s = space.combination(there.point, -1.0, here.point)
        y = space.combination(there.gradient, -1.0, here.gradient)
        sy, yy = space.inner(s, y), space.inner(y, y)
        if sy > 1e-10 * math.sqrt(space.inner(s, s)) * math.sqrt(yy) and yy > 0:
            pairs, scale = (*pairs, Pair(s, y, 1 / sy))[-self.memory :], sy / yy
        return LBFGSState(there, t, (), None, pairs, scale)

    def _forgotten(self, state: LBFGSState) -> LBFGSState:
        """No way along that direction: drop the pairs; without pairs there is no way at all."""
        here = state.sample
        if state.pairs:
            event = Event(EventKind.RESTART, float(len(state.pairs)))
            return LBFGSState(here, 0.0, (event,), None, (), 1.0)
        ending = Ending(
            Status.NO_PROGRESS,
            f"{self.max_trials} trials along the gradient, of norm {here.grad_norm:.3g}, do not "
            "lower the objective: rounding is reached, or jac is not the gradient of fun",
            {"grad_norm": here.grad_norm, "trials": self.max_trials},
        )
        return LBFGSState(here, 0.0, (), ending, (), 1.0)
