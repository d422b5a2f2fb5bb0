"""The nonlinear conjugate gradient method of Polak and Ribiere, with a line search on values."""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property
from typing import Any

from momentous.core.machine import Machine
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.rule import RUNNING, Outcome
from momentous.core.space import Array
from momentous.core.status import Ending, EventKind, Status
from momentous.methods.checks import check_whole
from momentous.methods.classical.gradient_descent import DescentMemory
from momentous.methods.search.backtracking import (
    ACCEPTED,
    STUCK,
    Backtracking,
    Beginning,
    LineSearchRule,
    Search,
    halt_status,
    halted,
)

# A direction is one of descent if its cosine with -g is above this.
SMALLEST_COSINE = 1e-10


@record
class ConjugateMemory(DescentMemory):
    """A point, and the direction of the search."""

    p: Array = None  # -delta^k: the search goes along -p
    slope: float = math.nan  # <p, g>
    steepest: bool = True  # is p the gradient?


@dataclasses.dataclass(frozen=True)
class ConjugateGradient(LineSearchRule[ConjugateMemory]):
    """Nonlinear conjugate gradients, PR+ with backtracking, as in section 5.1 of Li & Lin [1]_.

    There it is a baseline of Algorithm 2, :class:`momentous.AdaRAGD`.  With g^k = grad f(x^k) and
    delta^{-1} = 0::

        delta^k = -g^k + max(<g^k, g^k - g^{k-1}>/|g^{k-1}|^2, 0) delta^{k-1}
        x^{k+1} = x^k + t delta^k

    where t begins with twice the last one and is halved until
    ``f(x^k + t delta^k) <= f(x^k) + t <delta^k, g^k>/2``.  One gradient per iteration, and one
    value per trial: two as a rule.  Polak & Ribiere [2]_ have the coefficient without the maximum
    with 0, which drops the old direction where it would point back.  There is no bound on the
    number of iterations for nonconvex f.

    *Guarded* (the default).  No iteration raises f by more than rounding does:

    - a direction with <delta, g> > -1e-10 |delta||g| is replaced by -g (the test on values alone
      does not exclude that), and so is one along which no trial is accepted; both are restarts;
    - where values cannot tell because of rounding, a trial is accepted if the objective still falls
      there along delta; a rejected trial may then cost a gradient, too.  How noisy values are is
      measured when a search is long, or tries a shorter step than all before it, and asks for
      little: four values, a few times in a run.

    *As in the paper* (``guarded=False``): a search ends after ``max_halvings`` halvings with the
    last trial, whether that lowers f or not, as the published code does.

    Parameters
    ----------
    step_size, gradient_lipschitz : float, optional
        The first search begins with twice that, or 2/L.  In [1]_ it is the step size that gradient
        descent was tuned to; by default L comes from one extra gradient near x0, which scales.
    guarded : bool
        See above.
    max_halvings : int
        The most halvings in one search, 10 in [1]_.  A guarded search that needs more goes on in
        the next iteration, along -g.
    growth : float
        What a step size is multiplied by for the next search, 2 in [1]_.  With 1.5 a search takes
        about 1.6 values in place of 2.

    References
    ----------
    .. [1] H. Li, Z. Lin, JMLR 24 (2023); see :class:`momentous.RAGD`.
    .. [2] E. Polak, G. Ribiere, "Note sur la convergence de methodes de directions conjuguees",
       Rev. Francaise Informat. Rech. Operationnelle 3 (1969).
    """

    name = "cg"
    ends_at_noise = True
    summary = "nonlinear conjugate gradients, PR+"
    guarantee = "none"
    cost = "1 gradient, 1 value per trial (about 2)"

    guarded: bool = True
    max_halvings: int = 10
    growth: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self, "max_halvings")

    @property
    def _first_growth(self) -> float:
        return self.growth

    def _memory_of(self, known: Beginning) -> ConjugateMemory:
        here = known[0]
        origin = None if self.guarded else Sample(here.point, here.value)
        slope = here.grad_norm * here.grad_norm
        return ConjugateMemory(*known, origin, here.gradient, slope)

    @cached_property
    def _line(self) -> Backtracking:
        return Backtracking(most=self.max_halvings, guarded=self.guarded)

    def _way(self, memory: ConjugateMemory) -> tuple[Sample, Array, float]:
        return memory.current, memory.p, memory.slope

    def _searched(
        self, m: Machine, memory: ConjugateMemory, search: Search, here: Sample
    ) -> ConjugateMemory:
        there, usable = search.held, search.verdict == ACCEPTED
        if not self.guarded:
            usable = m.isfinite(there.grad_norm) & m.isfinite(there.value)
        fail = self._fail if self.guarded else self._lose
        moves = usable & (memory.current.grad_norm != 0.0)
        return m.case(
            memory,
            (moves, lambda: self._advance(m, memory, search, m.same(here.point, there.point))),
            otherwise=lambda: fail(m, memory, search),
        )

    def _advance(
        self, m: Machine, memory: ConjugateMemory, search: Search, shows: bool
    ) -> ConjugateMemory:
        """To the point that the search has found, and the direction there from the last one."""
        x, new, t, events = memory.current, search.held, search.t, search.events(m)
        change = new.grad_norm * new.grad_norm - m.inner(new.gradient, x.gradient)
        beta, first = change / x.grad_norm / x.grad_norm, t * self.growth

        def steepest(events: Any) -> ConjugateMemory:
            return self._along_gradient(m, memory, new, search, first, Outcome(t, events, shows))

        def conjugate() -> ConjugateMemory:
            p = m.combination(new.gradient, beta, memory.p)
            slope, norm = m.inner(p, new.gradient), m.norm(p)
            after = ConjugateMemory(
                new, search.begin(m, first, norm), Outcome(t, events, shows), memory.probe,
                memory.origin, p, slope, False,
            )  # fmt: skip
            if not self.guarded:
                return after
            is_ascent = m.no(slope >= SMALLEST_COSINE * new.grad_norm * norm)
            restart = lambda: steepest(events + m.event(EventKind.RESTART, t))  # noqa: E731
            return m.case(after, (is_ascent, restart))

        is_conjugate = (beta > 0.0) & (beta < math.inf)
        return m.case(memory, (is_conjugate, conjugate), otherwise=lambda: steepest(events))

    def _along_gradient(
        self, m: Machine, memory: ConjugateMemory, x: Sample, search: Search, first: float,
        outcome: Outcome,
    ) -> ConjugateMemory:  # fmt: skip
        """The next search goes along the gradient at x."""
        norm = x.grad_norm
        return ConjugateMemory(
            x, search.begin(m, first, norm), outcome, memory.probe, memory.origin, x.gradient,
            norm * norm,
        )  # fmt: skip

    def _fail(self, m: Machine, memory: ConjugateMemory, search: Search) -> ConjugateMemory:
        """Stay, and go on along the gradient; or, if that was the direction, with less."""
        x, steepest = memory.current, memory.steepest
        events = search.events(m) + m.event(EventKind.RESTART, search.t, m.no(steepest))
        ends = steepest & (search.verdict == STUCK)
        status = m.where(ends, halt_status(m, x, search.held.value), RUNNING)
        # The trials say little about steps along another direction: keep the last step size.
        first = m.where(steepest, search.t / 2, search.first)
        outcome = Outcome(search.t, events, False, status=status)
        return self._along_gradient(m, memory, x, search, first, outcome)

    def _lose(self, m: Machine, memory: ConjugateMemory, search: Search) -> ConjugateMemory:
        """The paper's rule has accepted a point where there is nothing to go on with."""
        zero = memory.current.grad_norm == 0.0
        lost = m.where(m.isfinite(search.lost), search.held.grad_norm, search.lost)
        status = m.where(zero, int(Status.COMPLETED), int(Status.NON_FINITE))
        outcome = Outcome(search.t, m.event(EventKind.NON_FINITE, lost, m.no(zero)), status=status)
        return m.but(memory, search=search, outcome=outcome)

    def accepted(self, memory: ConjugateMemory) -> Sample:
        return memory.current if memory.origin is None else memory.origin

    def ending(self, memory: ConjugateMemory, shown: Sample, status: Status) -> Ending:
        t, tried = memory.outcome.step_size, memory.search.held
        if self.guarded or status is Status.COMPLETED:
            return halted(status, memory.current, t, tried.value)
        return Ending(
            status,
            f"the objective ({tried.value}) or its gradient is not finite after "
            f"{self.max_halvings} halvings of the step, down to {t:.3g}; give a smaller step_size, "
            "or leave out guarded=False",
            {"grad_norm": tried.grad_norm, "step_size": t},
        )
