"""Accelerated gradient descent with the restart heuristics of O'Donoghue and Candes."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from momentous.core.arrays import Array
from momentous.core.method import Method, State
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.methods.estimates import Rounding, ValueState
from momentous.methods.line_search import (
    SHORTEST,
    backtracks,
    check_search,
    check_steps,
    first_step,
    halted,
    left_the_domain,
    limited,
    search,
)


@record
class HeuristicState(ValueState):
    """The momentum iteration under way."""

    x: Sample  # x^k, with its value where the method looks at values
    y: Array  # y^k, where the next gradient is taken; the very array x.point after a restart
    start: Sample  # where the momentum was last dropped
    best: Sample  # the lowest x^k, if the method goes back to it; otherwise x0
    count: int  # m: 1 at a restart
    theta: float  # 1 at a restart
    trial: float  # eta, or the first one that the next search tries
    shortest: float  # the least that the gradient alone may accept

    @property
    def accepted(self) -> Sample:
        return self.best


@dataclasses.dataclass(frozen=True)
class HeuristicAGD(Method):
    """Accelerated gradient descent, restarted by the heuristics of O'Donoghue & Candes [1]_.

    Nesterov's iteration with growing momentum,
    ``x^{k+1} = y^k - eta grad f(y^k)``, ``y^{k+1} = x^{k+1} + beta (x^{k+1} - x^k)``, which drops
    the momentum when it leads uphill: by the *function* test if f(x^{k+1}) > f(x^k), by the
    *gradient* test if <grad f(y^k), x^{k+1} - x^k> > 0.  For nonconvex f there is no bound on the
    number of gradients.

    *Fixed step* (``step_size`` or ``gradient_lipschitz`` given): the heuristic RAGD of section 5.1
    of Li & Lin [2]_, a rival of their Algorithm 2.  beta = (m - 1)/(m + 2), where m counts from 1
    and is 1 again after a restart, at which the new, higher point is kept.  One gradient an
    iteration, and one value with the function test.

    *Backtracking* (nothing given, or ``backtracking=True``), as in the experiments of Marumo &
    Takeda [3]_: eta is halved until ``f(x^{k+1}) <= f(y^k) - eta |grad f(y^k)|^2/2`` and multiplied
    by 1/0.9 for the next iteration; beta = theta (1 - theta)/(theta^2 + theta') with
    theta' = theta (sqrt(theta^2 + 4) - theta)/2, from theta = 1; and a restart goes back to x^k
    (in [1]_ it goes on from x^{k+1}).  One gradient an iteration, one value (of y^k) and one a
    trial.  With the function test f(x^k) never rises by more than rounding.  Where values cannot
    tell, the slope at the end of a step decides (which takes the gradient there), and the gradient
    test replaces the function test; how noisy they are is measured (four values, a few times).

    Parameters
    ----------
    step_size : float, optional
        eta; with ``backtracking=True`` the first one to be tried.
    gradient_lipschitz : float, optional
        L; eta = 1/L.  With ``backtracking=True`` a guess to begin with.
    restart : {"function", "gradient"}
        The test.
    backtracking : bool, optional
        By default only where neither ``step_size`` nor ``gradient_lipschitz`` is given; the first
        step is then 1/L with L from one extra gradient near x0, which scales with f and x.
    fall_back : bool, optional
        A restart from a point higher than the lowest x^k so far goes back to that one.  By default
        with backtracking, where its values are known anyway; otherwise it takes one value an
        iteration.  Not in the papers.
    backoff, growth : float
        What a rejected step is divided by, and an accepted one multiplied by.

    References
    ----------
    .. [1] B. O'Donoghue, E. Candes, "Adaptive restart for accelerated gradient schemes", Found.
       Comput. Math. 15 (2015).
    .. [2] H. Li, Z. Lin, "Restarted nonconvex accelerated gradient descent: no more polylogarithmic
       factor in the O(eps^(-7/4)) complexity", JMLR 24 (2023).
    .. [3] N. Marumo, A. Takeda, "Parameter-free accelerated gradient descent for nonconvex
       minimization", SIAM J. Optim. 34 (2024).
    """

    name = "heuristic-agd"
    summary = "AGD restarted by function or gradient (O'Donoghue & Candes)"
    needs = "nothing; or a step size or L"
    guarantee = "none"
    cost = "1 gradient; with backtracking 1 value, and 1 a trial"

    step_size: float | None = None
    gradient_lipschitz: float | None = None
    restart: Literal["function", "gradient"] = "function"
    backtracking: bool | None = None
    fall_back: bool | None = None
    backoff: float = 2.0
    growth: float = 1 / 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steps(self, self.step_size, self.gradient_lipschitz, self.backtracking)
        check_search(self, self.backoff, self.growth)
        if self.restart not in ("function", "gradient"):
            raise ValueError(
                f"HeuristicAGD: restart={self.restart!r} must be 'function' or 'gradient'"
            )

    @property
    def _backtracks(self) -> bool:
        return backtracks(self.step_size, self.gradient_lipschitz, self.backtracking)

    @property
    def _falls_back(self) -> bool:
        return self._backtracks if self.fall_back is None else self.fall_back

    @property
    def _goes_back(self) -> bool:
        """Does a restart begin at the lowest point so far, within rounding?"""
        return self._falls_back or (self._backtracks and self.restart == "function")

    @property
    def _looks_at_values(self) -> bool:
        return self._backtracks or self._falls_back or self.restart == "function"

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> HeuristicState:
        sample = oracle.gradient(x0)
        t = first_step(oracle, sample, self.step_size, self.gradient_lipschitz)
        return HeuristicState(
            sample, t, (), None, Rounding(), sample, x0, sample, sample, 1, 1.0, t, t * SHORTEST
        )

    def stands_by(self, oracle: Oracle, state: State) -> bool:
        """Not at a y^k that the momentum has climbed to, if the method would go back from there."""
        assert isinstance(state, HeuristicState)
        if not self._goes_back:
            return True
        sample, best, known = state.sample, state.best, oracle.last
        oracle.recall(sample)
        value = oracle.value(sample.point)
        if known is not None:
            oracle.recall(known)
        rise, small = value - best.value, math.sqrt(oracle.space.rounding)
        if rise <= small * max(abs(value), abs(best.value)):
            return True
        # A convex function cannot have risen by more than that.
        distance = math.sqrt(oracle.space.distance_squared(sample.point, best.point))
        return rise <= sample.grad_norm * distance

    def step(self, oracle: Oracle, state: State) -> HeuristicState:
        assert isinstance(state, HeuristicState)
        if state.y is state.x.point:
            oracle.recall(state.x)
        sample = oracle.gradient(state.y)
        if sample.finite and self._backtracks:
            oracle.value(state.y)  # the sample knows it from now on
            if not math.isfinite(sample.value):
                return self._off_limits(state, sample, sample.value)
        if not sample.finite:
            return self._off_limits(state, sample, sample.grad_norm)
        if sample.grad_norm == 0.0:
            ending = halted(sample, state.trial, sample.value)
            return dataclasses.replace(state, sample=sample, events=(), ending=ending)
        return (
            self._searched(oracle, state, sample)
            if self._backtracks
            else self._fixed(oracle, state, sample)
        )

    def _fixed(self, oracle: Oracle, state: HeuristicState, y: Sample) -> HeuristicState:
        x, eta, space = state.x, state.trial, oracle.space
        point, moved = space.stepped(y.point, -eta, y.gradient, y.point)
        if moved == 0.0 and y.point is x.point:
            ending = halted(y, eta, 0.0)
            return dataclasses.replace(state, sample=y, events=(), ending=ending)
        x_next = Sample(point)
        if self._looks_at_values:
            value = oracle.value(point)
            if not math.isfinite(value):
                return self._off_limits(state, y, value)
            assert oracle.last is not None
            x_next = oracle.last  # with the gradient, where that came along
        if self.restart == "function":
            uphill = x_next.value > x.value
        else:
            uphill = self._climbs(oracle, y, x_next, x)
        after = dataclasses.replace(state, sample=y, step_size=eta, events=(), ending=None)
        return self._moved(oracle, after, x_next, uphill)

    def _searched(self, oracle: Oracle, state: HeuristicState, y: Sample) -> HeuristicState:
        x, space = state.x, oracle.space
        first = limited(space, state.trial, y.grad_norm)
        square = y.grad_norm * y.grad_norm
        found = search(
            oracle,
            y,
            y.gradient,
            square,
            first,
            state.shortest,
            state.rounding,
            backoff=self.backoff,
            with_gradient=False,
        )
        t, x_next = found.step_size, found.sample
        after = dataclasses.replace(
            state,
            sample=y,
            step_size=t,
            events=found.events,
            ending=None,
            trial=t * self.growth,
            shortest=found.shortest,
            rounding=found.rounding,
        )
        if not found.accepted:
            if y.point is not x.point:  # the momentum has led to where no step helps
                return self._begun_at(dataclasses.replace(after, trial=state.trial), x)
            after.trial, after.ending = t / self.backoff, found.ending(y)
            return after
        rise = x_next.value - x.value
        noise = after.rounding.between(space, x.value, x_next.value)
        if self.restart == "gradient" or abs(rise) <= noise:
            uphill = self._climbs(oracle, y, x_next, x)
        else:
            uphill = rise > 0.0
        return self._moved(oracle, after, x_next, uphill)

    def _climbs(self, oracle: Oracle, y: Sample, x_next: Sample, x: Sample) -> bool:
        """The gradient test."""
        change = oracle.space.combination(x_next.point, -1.0, x.point)
        return oracle.space.inner(y.gradient, change) > 0.0

    def _moved(
        self, oracle: Oracle, state: HeuristicState, x_next: Sample, uphill: bool
    ) -> HeuristicState:
        """From x^k and x^{k+1} to y^{k+1}, or to a restart."""
        x, best, space = state.x, state.best, oracle.space
        if self._goes_back and x_next.value <= best.value:
            state.best = x_next
        if not uphill:
            beta, theta = self._weight(state)
            # The array itself where beta = 0: what is known of x^{k+1} is then known of y^{k+1}.
            y = space.combination(x_next.point, beta, x_next.point, x.point) if beta else None
            return dataclasses.replace(
                state,
                x=x_next,
                y=x_next.point if y is None else y,
                count=state.count + 1,
                theta=theta,
            )
        kept, best = x if self._backtracks else x_next, state.best
        noise = state.rounding.between(space, best.value)
        if not self._falls_back or kept.value <= best.value + noise:
            return self._begun_at(state, kept)
        after = self._begun_at(state, best, EventKind.ROLLBACK)
        if not self._backtracks and best.point is state.start.point:
            after.ending = self._too_long(state)  # the same again would follow, for ever
        return after

    def _weight(self, state: HeuristicState) -> tuple[float, float]:
        """beta for the next extrapolation, and the theta after it."""
        if not self._backtracks:
            return state.count / (state.count + 3), 1.0  # (m - 1)/(m + 2) with m = count + 1
        theta = state.theta
        after = theta * (math.sqrt(theta * theta + 4) - theta) / 2
        return theta * (1 - theta) / (theta * theta + after), after

    def _begun_at(
        self, state: HeuristicState, x: Sample, kind: EventKind = EventKind.RESTART
    ) -> HeuristicState:
        """The same without momentum, from x."""
        return dataclasses.replace(
            state,
            events=(*state.events, Event(kind, float(state.count))),
            x=x,
            y=x.point,
            start=x,
            count=1,
            theta=1.0,
        )

    def _off_limits(self, state: HeuristicState, y: Sample, seen: float) -> HeuristicState:
        """Something is not finite: back to x^k, or to where the momentum began, or the end."""
        events = (Event(EventKind.NON_FINITE, seen),)
        after = dataclasses.replace(state, sample=y, events=events, ending=None)
        if y.point is not state.x.point:
            return self._begun_at(after, state.x)
        if not self._backtracks:
            after.ending = left_the_domain(y, state.trial)
            return after
        if y.point is not state.start.point:
            after.trial = state.trial / (self.backoff * self.growth)
            return self._begun_at(after, state.start, EventKind.ROLLBACK)
        after.ending = halted(y, state.trial, math.nan)
        return after

    def _too_long(self, state: HeuristicState) -> Ending:
        return Ending(
            Status.NO_PROGRESS,
            f"{state.count} iterations from the lowest point so far, objective "
            f"{state.best.value:.6g}, lead only uphill, and the step size {state.trial:.3g} is "
            "fixed; give a smaller one (a larger gradient_lipschitz), or pass backtracking=True",
            {"step_size": state.trial, "fun": state.best.value},
        )
