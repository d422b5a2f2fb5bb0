"""The nonlinear conjugate gradient method of Polak and Ribiere, with a line search on values."""

from __future__ import annotations

import dataclasses
import math

from momentous.core.method import Method
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.space import Array
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.core.step import Step
from momentous.methods.checks import check_whole
from momentous.methods.classical.gradient_descent import DescentMemory
from momentous.methods.endings import Events
from momentous.methods.search.backtracking import (
    SHORTEST,
    Found,
    check_steps,
    first_step,
    halted,
    limited,
    search,
)
from momentous.methods.search.rounding import Rounding

# A direction is one of descent if its cosine with -g is above this.
SMALLEST_COSINE = 1e-10


@record
class ConjugateMemory(DescentMemory):
    """A point, and the direction of the next search."""

    p: Array = None  # -delta^k: the search goes along -p
    slope: float = math.nan  # <p, g>
    steepest: bool = True  # is p the gradient?

    def along_the_gradient(self) -> ConjugateMemory:
        """The same, but the next search goes along the gradient."""
        x = self.current
        square = x.grad_norm * x.grad_norm
        return dataclasses.replace(self, p=x.gradient, slope=square, steepest=True)


@dataclasses.dataclass(frozen=True)
class ConjugateGradient(Method[ConjugateMemory]):
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

    step_size: float | None = None
    gradient_lipschitz: float | None = None
    guarded: bool = True
    max_halvings: int = 10
    growth: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steps(self, self.step_size, self.gradient_lipschitz, self.growth)
        check_whole(self, "max_halvings")

    def start(
        self, oracle: Oracle, x0: Array, tol: float | None, seed: int
    ) -> Step[ConjugateMemory]:
        sample = oracle.gradient(x0)
        t = first_step(oracle, sample, self.step_size, self.gradient_lipschitz)
        origin = None if self.guarded else Sample(x0, sample.value)
        memory = ConjugateMemory(t * self.growth, t * SHORTEST, Rounding(), sample, origin)
        return memory.along_the_gradient().as_step(sample, t)

    def step(self, oracle: Oracle, memory: ConjugateMemory) -> Step[ConjugateMemory]:
        x, p, space = memory.current, memory.p, oracle.space
        if x.grad_norm == 0.0:
            return memory.as_step(x, memory.trial, ending=halted(x, memory.trial, x.value))
        norm = x.grad_norm if memory.steepest else space.norm(p)
        found = search(
            oracle,
            x,
            p,
            memory.slope,
            limited(space, memory.trial, norm),
            memory.shortest,
            memory.rounding,
            most=self.max_halvings,
            guarded=self.guarded,
            with_gradient=self.guarded,
        )
        if self.guarded and not found.accepted:
            return self._failed(memory, found)
        sample = oracle.gradient(found.sample.point)
        if not (sample.has_finite_gradient and math.isfinite(found.sample.value)):
            return self._lost(memory, sample, found)
        after = dataclasses.replace(
            memory,
            current=sample,
            trial=found.step_size * self.growth,
            shortest=found.shortest,
            rounding=found.rounding,
        )
        after, restarted = self._turned(oracle, after, x)
        events = found.events + _restart(found) if restarted else found.events
        return after.as_step(sample, found.step_size, events)

    def _turned(
        self, oracle: Oracle, memory: ConjugateMemory, before: Sample
    ) -> tuple[ConjugateMemory, bool]:
        """With the next direction, from the one that led here; was it of no use?"""
        space, x = oracle.space, memory.current
        change = x.grad_norm * x.grad_norm - space.inner(x.gradient, before.gradient)
        beta = change / before.grad_norm / before.grad_norm
        if not 0.0 < beta < math.inf:
            return memory.along_the_gradient(), False
        p = space.combination(x.gradient, beta, memory.p)
        slope = space.inner(p, x.gradient)
        if self.guarded and not slope >= SMALLEST_COSINE * x.grad_norm * space.norm(p):
            return memory.along_the_gradient(), True
        return dataclasses.replace(memory, p=p, slope=slope, steepest=False), False

    def _failed(self, memory: ConjugateMemory, found: Found) -> Step[ConjugateMemory]:
        """Stay, and go on along the gradient; or, if that was the direction, with less."""
        x, t = memory.current, found.step_size
        if memory.steepest:
            after = dataclasses.replace(memory, trial=t / 2, rounding=found.rounding)
            return after.as_step(x, t, found.events, found.ending(x))
        # The trials say little about steps along another direction: keep the last step size.
        after = dataclasses.replace(memory, rounding=found.rounding).along_the_gradient()
        return after.as_step(x, t, found.events + _restart(found))

    def _lost(self, memory: ConjugateMemory, sample: Sample, found: Found) -> Step[ConjugateMemory]:
        """The paper's rule has accepted a point where there is nothing to go on with."""
        t = found.step_size
        ending = Ending(
            Status.NON_FINITE,
            f"the objective ({found.sample.value}) or its gradient is not finite after "
            f"{self.max_halvings} halvings of the step, down to {t:.3g}; give a smaller step_size, "
            "or leave out guarded=False",
            {"grad_norm": sample.grad_norm, "step_size": t},
        )
        events = found.events or (Event(EventKind.NON_FINITE, sample.grad_norm),)
        return memory.as_step(sample, t, events, ending)


def _restart(found: Found) -> Events:
    return (Event(EventKind.RESTART, found.step_size),)
