"""Accelerated gradient descent with the restart heuristics of O'Donoghue and Candes."""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property
from typing import Any, Literal

from momentous.core.machine import Machine
from momentous.core.oracle import NO_SAMPLE, Sample
from momentous.core.record import record
from momentous.core.rule import BOTH, GRADIENT, RUNNING, VALUE, Ask, Outcome
from momentous.core.space import Array
from momentous.core.status import Ending, EventKind, Status
from momentous.core.step import RiseLimit
from momentous.methods.checks import check
from momentous.methods.endings import left_the_domain
from momentous.methods.search.backtracking import (
    ACCEPTED,
    STUCK,
    Backtracking,
    Beginning,
    GradientSteps,
    Search,
    SearchMemory,
    halt_status,
    halted,
)

# What an evaluation is for.
AT_Y = 0  # y^k
NEXT_X = 1  # x^{k+1}, or a trial of it


@record
class HeuristicMemory(SearchMemory):
    """The momentum iteration under way."""

    y: Array  # y^k; the very array of x^k after a restart
    at_y: Sample  # what is known there, once it is evaluated
    start: Sample  # where the momentum was last dropped
    best: Sample  # the lowest x^k, if the method goes back to it; otherwise x0
    count: int = 1  # m: 1 at a restart
    theta: float = 1.0  # 1 at a restart
    phase: int = AT_Y


@dataclasses.dataclass(frozen=True)
class HeuristicAGD(GradientSteps[HeuristicMemory]):
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

    @cached_property
    def _falls_back(self) -> bool:
        return self._backtracks if self.fall_back is None else self.fall_back

    @cached_property
    def _goes_back(self) -> bool:
        """Does a restart begin at the lowest point so far, within rounding?"""
        return self._falls_back or (self._backtracks and self.restart == "function")

    @cached_property
    def _looks_at_values(self) -> bool:
        return self._backtracks or self._falls_back or self.restart == "function"

    def _memory_of(self, known: Beginning) -> HeuristicMemory:
        here = known[0]
        return HeuristicMemory(*known, here.point, here, here, here)

    @cached_property
    def _line(self) -> Backtracking:
        return Backtracking(self.backoff, with_gradient=False)

    def _way(self, memory: HeuristicMemory) -> tuple[Sample, Array, float]:
        y = memory.at_y
        return y, y.gradient, y.grad_norm * y.grad_norm

    def _ask(self, m: Machine, memory: HeuristicMemory) -> Ask:
        def next_x() -> Ask:
            if self._backtracks:
                return super(HeuristicAGD, self)._ask(m, memory)
            return Ask(self._fixed_step(m, memory)[0], VALUE, known=memory.at_y)

        need = BOTH if self._backtracks else GRADIENT
        # Where no values are looked at, nothing is known of x^k but that it is there.
        known = memory.current if self._looks_at_values else NO_SAMPLE
        at_y: Ask = m.passed_on(Ask(memory.y, need, known=known), self)
        return m.case(at_y, (memory.phase == NEXT_X, lambda: m.passed_on(next_x(), self)))

    def _fixed_step(self, m: Machine, memory: HeuristicMemory) -> tuple[Array, bool]:
        """x^{k+1} by a fixed step from y^k, and whether that is x^k and does not move."""
        y, eta = memory.at_y, memory.search.first
        point, moved = m.stepped(y.point, -eta, y.gradient, y.point)
        stands = (moved == 0.0) & m.same(y.point, memory.current.point)
        return m.choose(stands, y.point, point), stands

    def _tell(self, m: Machine, memory: HeuristicMemory, here: Sample) -> HeuristicMemory:
        next_x = super()._tell if self._backtracks else self._next_known
        known, norm = m.but(memory, at_y=here), here.grad_norm
        return m.case(
            memory,
            (memory.phase == NEXT_X, lambda: next_x(m, memory, here)),
            (m.isfinite(norm), lambda: self._y_known(m, known)),
            otherwise=lambda: self._off_limits(m, known, norm),
        )

    def _y_known(self, m: Machine, memory: HeuristicMemory) -> HeuristicMemory:
        """The gradient at y^k is finite, and so is the value, if that matters."""
        search, norm = memory.search, memory.at_y.grad_norm
        stands, after = norm == 0.0, m.but(memory, search=search.begin(m, search.first, norm))
        go_on = lambda: self._go_on(m, after)  # noqa: E731
        if not self._looks_at_values:
            point, still = self._fixed_step(m, memory)
            stands, go_on = stands | still, lambda: self._move(m, memory, Sample(point))
        return m.case(memory, (stands, lambda: self._halt(m, memory, 0.0)), otherwise=go_on)

    def _next_known(self, m: Machine, memory: HeuristicMemory, here: Sample) -> HeuristicMemory:
        """The value at x^{k+1}, by a fixed step."""
        y, x = memory.at_y.point, memory.current.point
        return m.case(
            memory,
            (m.same(here.point, y) & m.same(y, x), lambda: self._halt(m, memory, 0.0)),
            (m.isfinite(here.value), lambda: self._move(m, memory, here)),
            otherwise=lambda: self._off_limits(m, memory, here.value),
        )

    def _searched(
        self, m: Machine, memory: HeuristicMemory, search: Search, here: Sample
    ) -> HeuristicMemory:
        y, x, events = memory.at_y, memory.current, search.events(m)
        accepted, outcome = search.verdict == ACCEPTED, Outcome(search.t, m.no_events)
        first = m.where(accepted, search.t * self.growth, search.t / self.backoff)
        known = m.but(memory, search=m.but(search, first=first), outcome=outcome)

        def begin() -> HeuristicMemory:
            return self._begin(m, m.but(known, search=search), x, events)

        return m.case(
            memory,
            (accepted, lambda: self._move(m, known, search.held)),
            # The momentum has led to where no step helps.
            (m.no(m.same(y.point, x.point)), begin),
            (search.verdict == STUCK, lambda: self._halt(m, known, search.held.value)),
            otherwise=lambda: self._end(m, known, events),
        )

    def _move(self, m: Machine, memory: HeuristicMemory, x_next: Sample) -> HeuristicMemory:
        """From x^k and x^{k+1} to y^{k+1}, or to a restart."""
        x, best, rounding = memory.current, memory.best, memory.search.rounding
        events = memory.search.events(m)
        if self._goes_back:
            best = m.choose(x_next.value <= best.value, x_next, best)
        known = m.but(memory, best=best)

        def climbs() -> bool:
            """The gradient test."""
            change = m.combination(x_next.point, -1.0, x.point)
            return m.inner(memory.at_y.gradient, change) > 0.0

        uphill, is_level = x_next.value > x.value, False
        if self._backtracks:
            noise = rounding.between(m, x.value, x_next.value)
            is_level = abs(x_next.value - x.value) <= noise
        uphill = climbs() if self.restart == "gradient" else m.case(uphill, (is_level, climbs))

        def advance() -> HeuristicMemory:
            beta, theta = self._weight(m, memory)
            # The array itself where beta = 0: what is known of x^{k+1} is then known of y^{k+1}.
            ahead = lambda: m.combination(x_next.point, beta, x_next.point, x.point)  # noqa: E731
            y, count = m.case(x_next.point, (beta != 0.0, ahead)), memory.count + 1
            after = m.but(known, current=x_next, y=y, count=count, theta=theta)
            return self._end(m, after, events)

        def restart() -> HeuristicMemory:
            kept = x if self._backtracks else x_next
            at_kept = self._begin(m, known, kept, events)
            if not self._falls_back:
                return at_kept
            low = kept.value <= best.value + rounding.between(m, best.value)
            status: Any = RUNNING
            if not self._backtracks:  # from the same start the same would follow, for ever
                again = m.same(best.point, memory.start.point)
                status = m.where(again, int(Status.NO_PROGRESS), RUNNING)
            return m.case(
                known,
                (low, lambda: at_kept),
                otherwise=lambda: self._begin(m, known, best, events, EventKind.ROLLBACK, status),
            )

        return m.case(memory, (uphill, restart), otherwise=advance)

    def _weight(self, m: Machine, memory: HeuristicMemory) -> tuple[float, float]:
        """beta for the next extrapolation, and the theta after it."""
        if not self._backtracks:
            return memory.count / (memory.count + 3), 1.0  # (m - 1)/(m + 2) with m = count + 1
        theta = memory.theta
        after = theta * (m.sqrt(theta * theta + 4) - theta) / 2
        return theta * (1 - theta) / (theta * theta + after), after

    def _off_limits(self, m: Machine, memory: HeuristicMemory, seen: float) -> HeuristicMemory:
        """Something is not finite: back to x^k, or to where the momentum began, or the end."""
        x, y, start, search = memory.current, memory.at_y.point, memory.start, memory.search
        events = m.event(EventKind.NON_FINITE, seen)
        cases = [(m.no(m.same(y, x.point)), lambda: self._begin(m, memory, x, events))]
        if self._backtracks:
            first = search.first / (self.backoff * self.growth)
            shorter = m.but(memory, search=m.but(search, first=first))
            back = lambda: self._begin(m, shorter, start, events, EventKind.ROLLBACK)  # noqa: E731
            cases.append((m.no(m.same(y, start.point)), back))
        ends = lambda: self._end(m, memory, events, int(Status.NON_FINITE))  # noqa: E731
        return m.case(memory, *cases, otherwise=ends)

    # The end of an evaluation.  The first of an iteration, at y^k, is what that shows.

    def _go_on(self, m: Machine, memory: HeuristicMemory) -> HeuristicMemory:
        """To x^{k+1}."""
        outcome = Outcome(memory.outcome.step_size, m.no_events, ended=False)
        return m.but(memory, outcome=outcome, phase=NEXT_X)

    def _end(
        self, m: Machine, memory: HeuristicMemory, events: Any, status: int = RUNNING
    ) -> HeuristicMemory:
        outcome = Outcome(memory.outcome.step_size, events, memory.phase == AT_Y, status=status)
        return m.but(memory, outcome=outcome, phase=AT_Y)

    def _halt(self, m: Machine, memory: HeuristicMemory, value: float) -> HeuristicMemory:
        """No step helps at y^k; the last one led to that value."""
        status = halt_status(m, memory.at_y, value)
        return self._end(m, memory, memory.search.events(m), status)

    def _begin(
        self, m: Machine, memory: HeuristicMemory, x: Sample, events: Any,
        kind: EventKind = EventKind.RESTART, status: int = RUNNING,
    ) -> HeuristicMemory:  # fmt: skip
        """Without momentum, from x."""
        at_x = m.but(memory, current=x, y=x.point, start=x, count=1, theta=1.0)
        return self._end(m, at_x, events + m.event(kind, memory.count), status)

    def accepted(self, memory: HeuristicMemory) -> Sample:
        return memory.best

    def rise_limit(self, m: Machine, memory: HeuristicMemory, shown: Sample) -> RiseLimit | None:
        """Not to stay at a y^k that the momentum has climbed to."""
        if not self._goes_back:
            return None
        return RiseLimit(memory.best, relative=math.sqrt(m.rounding), convex=True)

    def ending(self, memory: HeuristicMemory, shown: Sample, status: Status) -> Ending:
        y, search, best = memory.at_y, memory.search, memory.best
        eta = search.first
        if self._backtracks:
            searched = 0.0 < y.grad_norm < math.inf and math.isfinite(y.value)
            t, value = (search.t, search.held.value) if searched else (eta, math.nan)
            return halted(status, y, t, value)
        if status is Status.NON_FINITE:
            return left_the_domain(y, eta)
        if not memory.outcome.events:
            return halted(status, y, eta, 0.0)
        return Ending(
            status,
            f"{memory.outcome.events[-1].value:.0f} iterations from the lowest point so far, "
            f"objective {best.value:.6g}, lead only uphill, and the step size {eta:.3g} is fixed; "
            "give a smaller one (a larger gradient_lipschitz), or pass backtracking=True",
            {"step_size": eta, "fun": best.value},
        )
