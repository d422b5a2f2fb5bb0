"""Gradient descent, with a fixed step or by line search."""

from __future__ import annotations

import dataclasses
from functools import cached_property

from momentous.core.machine import Machine
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.rule import GRADIENT, RUNNING, Ask, Outcome
from momentous.core.status import Ending, EventKind, Status
from momentous.io.types import Options
from momentous.methods.classical.projected_gradient import ProjectedGradient
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


@record
class DescentMemory(SearchMemory):
    """Where a method without extrapolation stands."""

    origin: Sample | None = None  # x0, where values do not decide which points are accepted


@dataclasses.dataclass(frozen=True)
class GradientDescent(GradientSteps[DescentMemory]):
    """Gradient descent, x^{k+1} = x^k - eta grad f(x^k).

    *Fixed step* (``step_size`` or ``gradient_lipschitz`` given): eta as given, or 1/L; one gradient
    per iteration, no values.  With eta = 1/L the smallest gradient norm is at most eps after
    2 L (f(x0) - inf f)/eps^2 iterations.  (RAGD, Algorithm 1 of Li & Lin [1]_, takes 1/(4L), and is
    this method as long as it restarts in every iteration.)

    *Backtracking* (nothing given, or ``backtracking=True``), as in the experiments of Marumo &
    Takeda [2]_: the step is halved until ``f(x^{k+1}) <= f(x^k) - eta |grad f(x^k)|^2/2``, which
    eta <= 1/L satisfies, and multiplied by 1/0.9 for the next iteration.  One gradient per
    iteration and one value per trial, on average at most 1.16 trials.  Every iteration lowers f,
    and 4 L (f(x0) - inf f)/eps^2 iterations are enough, if the first step is at least 1/(2L); no
    constant is needed.  The first step is 1/L with L from one extra gradient near x0, which scales
    with f and x.

    With bounds it is the projected gradient method (`ProjectedGradient`), always with backtracking:
    a step that is given is the first to be tried.

    The test knows rounding: where the values cannot tell, a step is accepted if the objective still
    falls at its end.  A rejected trial may then cost a gradient, too.  How noisy values are is
    measured when a search is long, or tries a shorter step than all before it, and asks for
    little: four values, a few times in a run.

    Parameters
    ----------
    step_size : float, optional
        eta; with ``backtracking=True`` the first one to be tried.
    gradient_lipschitz : float, optional
        L; eta = 1/L.  With ``backtracking=True`` a guess to begin with (1e-3 in [2]_).
    backtracking : bool, optional
        By default only where neither of the two is given.
    backoff : float
        What a rejected step is divided by.
    growth : float
        What an accepted step is multiplied by for the next iteration, 1/0.9.

    References
    ----------
    .. [1] H. Li, Z. Lin, JMLR 24 (2023), section 5.1; see :class:`momentous.RAGD`.
    .. [2] N. Marumo, A. Takeda, SIAM J. Optim. (2024); see :class:`momentous.ParameterFreeAGD`.
    """

    name = "gd"
    takes_bounds = takes_penalty = True
    ends_at_noise = True
    summary = "gradient descent, fixed step or backtracking"
    alternatives = (("step_size",), ("gradient_lipschitz",))
    guarantee = "O(eps^-2) gradients"
    cost = "1 gradient; with backtracking 1 value per trial"

    def in_box(self) -> ProjectedGradient:
        """With bounds, or a simple term, it is the projected gradient method."""
        step = self.step_size
        return ProjectedDescent(self.gradient_lipschitz if step is None else 1.0 / step, self)

    def _memory_of(self, known: Beginning) -> DescentMemory:
        here = known[0]
        origin = None if self._backtracks else Sample(here.point, here.value)
        return DescentMemory(*known, origin)

    @cached_property
    def _line(self) -> Backtracking:
        return Backtracking(self.backoff)

    def _ask(self, m: Machine, memory: DescentMemory) -> Ask:
        if self._backtracks:
            return super()._ask(m, memory)
        x = memory.current
        point, moved = m.stepped(x.point, -memory.search.first, x.gradient, x.point)
        return Ask(m.choose(moved == 0.0, x.point, point), GRADIENT, known=x)

    def _tell(self, m: Machine, memory: DescentMemory, here: Sample) -> DescentMemory:
        if self._backtracks:
            return super()._tell(m, memory, here)
        x, eta = memory.current, memory.search.first
        stands, finite = m.same(here.point, x.point), m.isfinite(here.grad_norm)
        status = m.where(stands, halt_status(m, x, 0.0), int(Status.NON_FINITE))
        events = m.event(EventKind.NON_FINITE, here.grad_norm, m.no(finite))
        goes_on = finite & m.no(stands)
        outcome = Outcome(eta, events, status=m.where(goes_on, RUNNING, status))
        return m.but(memory, current=m.choose(goes_on, here, x), outcome=outcome)

    def _searched(
        self, m: Machine, memory: DescentMemory, search: Search, here: Sample
    ) -> DescentMemory:
        x, there, t = memory.current, search.held, search.t
        accepted, stuck = search.verdict == ACCEPTED, search.verdict == STUCK
        new = m.choose(accepted, there, x)
        first = m.where(accepted, t * self.growth, t / self.backoff)
        status = m.where(stuck, halt_status(m, x, there.value), RUNNING)
        shows = accepted & m.same(here.point, there.point)
        outcome = Outcome(t, search.events(m), shows, status=status)
        after = search.begin(m, first, new.grad_norm)
        return DescentMemory(new, after, outcome, memory.probe, memory.origin)

    def accepted(self, memory: DescentMemory) -> Sample:
        return memory.current if memory.origin is None else memory.origin

    def ending(self, memory: DescentMemory, shown: Sample, status: Status) -> Ending:
        t = memory.outcome.step_size
        if status is Status.NON_FINITE and not self._backtracks:
            return left_the_domain(shown, t)
        return halted(status, memory.current, t, memory.search.held.value)


@dataclasses.dataclass(frozen=True)
class ProjectedDescent(ProjectedGradient):
    """The projected gradient method under the name of the one that it stands for."""

    name = GradientDescent.name
    method: GradientDescent | None = None

    def description(self) -> Options:
        """That of the method: a run that is resumed makes this one of it again."""
        assert self.method is not None
        return self.method.description()
