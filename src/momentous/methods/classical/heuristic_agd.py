"""Accelerated gradient descent with the restart heuristics of O'Donoghue and Candes."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from momentous.core.machine import Host
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.space import Array
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.core.step import Report, RiseLimit, Step
from momentous.methods.checks import check
from momentous.methods.endings import Events, left_the_domain
from momentous.methods.search.backtracking import (
    SHORTEST,
    Backtracking,
    Searching,
    first_step,
    halted,
)
from momentous.methods.search.rounding import Rounding


@record
class HeuristicMemory(Searching):
    """The momentum iteration under way."""

    x: Sample  # x^k, with its value where the method looks at values
    y: Array  # y^k, where the next gradient is taken; the very array x.point after a restart
    start: Sample  # where the momentum was last dropped
    best: Sample  # the lowest x^k, if the method goes back to it; otherwise x0
    step_size: float  # eta of the last step
    count: int = 1  # m: 1 at a restart
    theta: float = 1.0  # 1 at a restart

    def begun_at(self, x: Sample) -> HeuristicMemory:
        """The same without momentum, from x."""
        return dataclasses.replace(self, x=x, y=x.point, start=x, count=1, theta=1.0)


@dataclasses.dataclass(frozen=True)
class HeuristicAGD(Backtracking[HeuristicMemory]):
    """Accelerated gradient descent, restarted by the heuristics of O'Donoghue & Candes [1]_.

    Nesterov's iteration with growing momentum,
    ``x^{k+1} = y^k - eta grad f(y^k)``, ``y^{k+1} = x^{k+1} + beta (x^{k+1} - x^k)``, which drops
    the momentum when it leads uphill: by the *function* test if f(x^{k+1}) > f(x^k), by the
    *gradient* test if <grad f(y^k), x^{k+1} - x^k> > 0.  For nonconvex f there is no bound on the
    number of gradients.

    *Fixed step* (``step_size`` or ``gradient_lipschitz`` given): the heuristic RAGD of section 5.1
    of Li & Lin [2]_, a baseline of their Algorithm 2.  beta = (m - 1)/(m + 2), where m counts from
    1 and is 1 again after a restart, at which the new, higher point is kept.  One gradient per
    iteration, and one value with the function test.

    *Backtracking* (nothing given, or ``backtracking=True``), as in the experiments of Marumo &
    Takeda [3]_: eta is halved until ``f(x^{k+1}) <= f(y^k) - eta |grad f(y^k)|^2/2`` and multiplied
    by 1/0.9 for the next iteration; beta = theta (1 - theta)/(theta^2 + theta') with
    theta' = theta (sqrt(theta^2 + 4) - theta)/2, from theta = 1; and a restart goes back to x^k
    (in [1]_ it goes on from x^{k+1}).  One gradient per iteration, one value (of y^k) and one
    per trial.  With the function test f(x^k) never rises by more than rounding.  Where values
    cannot tell, the slope at the end of a step decides (which takes the gradient there), and the
    gradient test replaces the function test; how noisy they are is measured (four values, a few
    times).

    Parameters
    ----------
    step_size, gradient_lipschitz, backtracking, backoff, growth
        As in :class:`GradientDescent`.
    restart : {"function", "gradient"}
        The test.
    fall_back : bool, optional
        A restart from a point higher than the lowest x^k so far goes back to that one.  By default
        with backtracking, where its values are known anyway; otherwise it takes one value per
        iteration.  Not in the papers.

    References
    ----------
    .. [1] B. O'Donoghue, E. Candes, "Adaptive restart for accelerated gradient schemes", Found.
       Comput. Math. 15 (2015).
    .. [2] H. Li, Z. Lin, JMLR 24 (2023); see :class:`momentous.RAGD`.
    .. [3] N. Marumo, A. Takeda, SIAM J. Optim. (2024); see :class:`momentous.ParameterFreeAGD`.
    """

    name = "heuristic-agd"
    has_epochs = True
    summary = "AGD restarted by function or gradient (O'Donoghue & Candes)"
    alternatives = (("step_size",), ("gradient_lipschitz",))
    guarantee = "none"
    cost = "1 gradient; with backtracking 1 value, and 1 per trial"

    restart: Literal["function", "gradient"] = "function"
    fall_back: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.restart in ("function", "gradient")
        check(self, "restart", known, "must be 'function' or 'gradient'")

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

    def start(
        self, oracle: Oracle, x0: Array, tol: float | None, seed: int
    ) -> Step[HeuristicMemory]:
        sample = oracle.gradient(x0)
        t = first_step(oracle, sample, self.step_size, self.gradient_lipschitz)
        memory = HeuristicMemory(t, t * SHORTEST, Rounding(), sample, x0, sample, sample, t)
        return self._as_step(oracle, memory, sample)

    def step(self, oracle: Oracle, memory: HeuristicMemory) -> Step[HeuristicMemory]:
        if memory.y is memory.x.point:
            oracle.recall(memory.x)
        sample = oracle.gradient(memory.y)
        if sample.has_finite_gradient and self._backtracks:
            oracle.value(memory.y)  # the sample knows it from now on
            if not math.isfinite(sample.value):
                return self._off_limits(oracle, memory, sample, sample.value)
        if not sample.has_finite_gradient:
            return self._off_limits(oracle, memory, sample, sample.grad_norm)
        if sample.grad_norm == 0.0:
            ending = halted(sample, memory.trial, sample.value)
            return self._as_step(oracle, memory, sample, ending=ending)
        if self._backtracks:
            return self._searched(oracle, memory, sample)
        return self._fixed(oracle, memory, sample)

    def _fixed(self, oracle: Oracle, memory: HeuristicMemory, y: Sample) -> Step[HeuristicMemory]:
        x, eta, space = memory.x, memory.trial, oracle.space
        point, moved = space.stepped(y.point, -eta, y.gradient, y.point)
        if moved == 0.0 and y.point is x.point:
            return self._as_step(oracle, memory, y, ending=halted(y, eta, 0.0))
        x_next = Sample(point)
        if self._looks_at_values:
            value = oracle.value(point)
            if not math.isfinite(value):
                return self._off_limits(oracle, memory, y, value)
            assert oracle.last is not None
            x_next = oracle.last  # with the gradient, where that came along
        if self.restart == "function":
            uphill = x_next.value > x.value
        else:
            uphill = _climbs(oracle, y, x_next, x)
        return self._moved(oracle, memory, y, x_next, uphill)

    def _searched(
        self, oracle: Oracle, memory: HeuristicMemory, y: Sample
    ) -> Step[HeuristicMemory]:
        x, space = memory.x, oracle.space
        found = self._search(oracle, y, memory, with_gradient=False)
        t, x_next = found.step_size, found.sample
        after = dataclasses.replace(
            memory, step_size=t, shortest=found.shortest, rounding=found.rounding
        )
        if not found.accepted:
            if y.point is not x.point:  # the momentum has led to where no step helps
                return self._begun_at(oracle, after, y, x, found.events)
            after.trial = t / self.backoff
            return self._as_step(oracle, after, y, found.events, found.ending(y))
        after.trial = t * self.growth
        rise = x_next.value - x.value
        noise = after.rounding.between(Host.of(space), x.value, x_next.value)
        if self.restart == "gradient" or abs(rise) <= noise:
            uphill = _climbs(oracle, y, x_next, x)
        else:
            uphill = rise > 0.0
        return self._moved(oracle, after, y, x_next, uphill, found.events)

    def _moved(
        self,
        oracle: Oracle,
        memory: HeuristicMemory,
        y: Sample,
        x_next: Sample,
        uphill: bool,
        events: Events = (),
    ) -> Step[HeuristicMemory]:
        """From x^k and x^{k+1} to y^{k+1}, or to a restart."""
        x, space = memory.x, oracle.space
        if self._goes_back and x_next.value <= memory.best.value:
            memory = dataclasses.replace(memory, best=x_next)
        if not uphill:
            beta, theta = self._weight(memory)
            # The array itself where beta = 0: what is known of x^{k+1} is then known of y^{k+1}.
            ahead = space.combination(x_next.point, beta, x_next.point, x.point) if beta else None
            y_next = x_next.point if ahead is None else ahead
            after = dataclasses.replace(
                memory, x=x_next, y=y_next, count=memory.count + 1, theta=theta
            )
            return self._as_step(oracle, after, y, events)
        kept, best = x if self._backtracks else x_next, memory.best
        noise = memory.rounding.between(Host.of(space), best.value)
        if not self._falls_back or kept.value <= best.value + noise:
            return self._begun_at(oracle, memory, y, kept, events)
        ending = None
        if not self._backtracks and best.point is memory.start.point:
            ending = self._too_long(memory)  # the same again would follow, for ever
        return self._begun_at(oracle, memory, y, best, events, EventKind.ROLLBACK, ending)

    def _weight(self, memory: HeuristicMemory) -> tuple[float, float]:
        """beta for the next extrapolation, and the theta after it."""
        if not self._backtracks:
            return memory.count / (memory.count + 3), 1.0  # (m - 1)/(m + 2) with m = count + 1
        theta = memory.theta
        after = theta * (math.sqrt(theta * theta + 4) - theta) / 2
        return theta * (1 - theta) / (theta * theta + after), after

    def _off_limits(
        self, oracle: Oracle, memory: HeuristicMemory, y: Sample, seen: float
    ) -> Step[HeuristicMemory]:
        """Something is not finite: back to x^k, or to where the momentum began, or the end."""
        events = (Event(EventKind.NON_FINITE, seen),)
        if y.point is not memory.x.point:
            return self._begun_at(oracle, memory, y, memory.x, events)
        if not self._backtracks:
            ending = left_the_domain(y, memory.trial)
            return self._as_step(oracle, memory, y, events, ending)
        if y.point is not memory.start.point:
            shorter = memory.trial / (self.backoff * self.growth)
            memory = dataclasses.replace(memory, trial=shorter)
            return self._begun_at(oracle, memory, y, memory.start, events, EventKind.ROLLBACK)
        return self._as_step(oracle, memory, y, events, halted(y, memory.trial, math.nan))

    def _begun_at(
        self,
        oracle: Oracle,
        memory: HeuristicMemory,
        y: Sample,
        x: Sample,
        events: Events,
        kind: EventKind = EventKind.RESTART,
        ending: Ending | None = None,
    ) -> Step[HeuristicMemory]:
        """Without momentum from x, after a step that looked at y."""
        events = (*events, Event(kind, float(memory.count)))
        return self._as_step(oracle, memory.begun_at(x), y, events, ending)

    def _as_step(
        self,
        oracle: Oracle,
        memory: HeuristicMemory,
        sample: Sample,
        events: Events = (),
        ending: Ending | None = None,
    ) -> Step[HeuristicMemory]:
        limit = None
        if self._goes_back:  # not to stay at a y^k that the momentum has climbed to
            small = math.sqrt(oracle.space.rounding)
            limit = RiseLimit(memory.best, relative=small, convex=True)
        eta, noise = memory.step_size, memory.rounding.seen
        return Step(memory, Report(sample, eta, events, ending, memory.best, noise, limit))

    def _too_long(self, memory: HeuristicMemory) -> Ending:
        return Ending(
            Status.NO_PROGRESS,
            f"{memory.count} iterations from the lowest point so far, objective "
            f"{memory.best.value:.6g}, lead only uphill, and the step size {memory.trial:.3g} is "
            "fixed; give a smaller one (a larger gradient_lipschitz), or pass backtracking=True",
            {"step_size": memory.trial, "fun": memory.best.value},
        )


def _climbs(oracle: Oracle, y: Sample, x_next: Sample, x: Sample) -> bool:
    """The gradient test."""
    change = oracle.space.combination(x_next.point, -1.0, x.point)
    return oracle.space.inner(y.gradient, change) > 0.0
