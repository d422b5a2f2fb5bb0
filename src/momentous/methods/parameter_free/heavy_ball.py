"""The universal heavy ball (Marumo & Takeda 2025)."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

from momentous.core.machine import Machine
from momentous.core.oracle import NO_SAMPLE, Sample
from momentous.core.passes import BALL, GRADIENT_SLOPES
from momentous.core.record import record
from momentous.core.rule import Ask, Outcome, Sums
from momentous.core.space import Array
from momentous.core.status import EventKind
from momentous.methods.checks import check
from momentous.methods.parameter_free.base import (
    MEAN,
    NEW,
    Claim,
    ParameterFree,
    ParameterFreeMemory,
)
from momentous.methods.search.rounding import gradient_noise, rise


@record
class HeavyBallMemory(ParameterFreeMemory):
    """The mean, the lowest point and what is known of the Hessian in this epoch."""

    mean: Array = None  # xbar_{k+1}, the mean of x_0, ..., x_k
    mean_norm: float = math.nan  # |grad f(xbar_{k+1})|, NaN where it was not evaluated
    best: Sample = NO_SAMPLE  # the lowest of all x_i and xbar_i evaluated in this epoch
    variation: float = 0.0  # h
    successes: int = 0  # epochs in a row that have ended successfully, up to this one
    # The gradient norm that the epoch has to contract to end early.
    norm_to_contract: float = math.inf

    OLD_NAMES: ClassVar = {"mark": "norm_to_contract"}


@dataclasses.dataclass(frozen=True)
class UniversalHeavyBall(ParameterFree[HeavyBallMemory]):
    """Universal heavy ball of Marumo & Takeda [1]_, for Hessians of any Hoelder exponent.

    A ball without friction, v_k = v_{k-1} - grad f(x_{k-1})/L, x_k = x_{k-1} + v_k, in epochs that
    begin at rest.  With xbar_k the mean of x_0, ..., x_{k-1}, S the sum of |v_i|^2 and h the
    estimate of how much the Hessian varies in the epoch, it ends

    - unsuccessfully, with L times alpha, when
      f(x_k) - f(x_{k-1}) > <grad f(x_{k-1}), v_k> + L |v_k|^2/2;
    - successfully, with L times beta, when k (k + 1) h > 3 L/8;

    and the next one begins at the lowest of all x_i and xbar_i.  h is the largest of 3 times the
    error of the trapezoidal rule between x_{k-1} and x_k over |v_k|^2, and of
    sqrt(8/(k S)) (|grad f(xbar_k)| - L |v_k|/k), where L |v_k|/k is the norm of the mean gradient.
    For a Lipschitz Hessian h <= rho sqrt(S) max{1/4, sqrt(k/32)}.  Solutions are x_k and xbar_k.

    Needs neither constants nor a step size.  Of the published form [1]_ proves that
    O(D L^(1/2) H^(1/(2+2 nu)) eps^(-(4+3 nu)/(2+2 nu))) values and gradients lead to a gradient
    norm of eps, for the best nu in [0, 1] for which the Hessian is Hoelder continuous with constant
    H: eps^(-7/4) for nu = 1, eps^(-2) for nu = 0.
    Two values and two gradients per iteration (near one of each with ``average_growth`` above 1),
    one of each in a rejected one.

    What is not in [1]_, and what that does to its bound:

    (a) L begins with a probe, one extra gradient.  The theorem takes any first L.
    (b) xbar_k is evaluated only when k has grown by ``average_growth``, without its term of h in
        between: 10-40 % fewer gradients on the classical problems of the testbed.  **No theorem
        covers the default, 1.25.**  ``average_growth=1`` evaluates every xbar_k, as [1]_ does; the
        guard of `Safeguarded` has it.
    (c) beta falls with successes in a row, to beta^(2^n - 1) at the n-th, and no lower than
        ``least_relaxation``: on a flat tail, where f bends less and less, an L that is merely
        halved lags behind.  Per success that costs at most log(1/least_relaxation)/log(alpha)
        rejected steps, a constant factor.
    (d) An epoch also ends, as a success, at a lowest point whose gradient is ``contraction`` times
        the mark, which is |grad f(x_0)| or less.  Near a minimum the Hessian hardly varies, and a
        ball without friction would swing for ever.  Such an end lowers the mark to the gradient
        there, and only an end by h raises it again, by 1/``contraction``: so there are at most as
        many of them as of ends by h, and log(|grad f(x0)|/eps)/log(1/contraction) more, and the
        bound holds with twice the constant and this addend.
    (e) With ``guards`` rounding cannot decide: where L |v_k|^2/2 does not stand out of the noise of
        the values, changes of f come from the gradients by the trapezoidal rule; what rounding may
        contribute is taken off h.  Values that reject what gradients accept have their noise
        measured: four values, more where it is large, a few times in a run.  The theorem is about
        exact arithmetic, where there is no noise.

    So ``UniversalHeavyBall(average_growth=1)`` has the bound of [1]_ with other constants, by the
    arguments in (c) and (d), which are ours and not in [1]_; the default has no bound.

    ``UniversalHeavyBall(gradient_lipschitz=1e-3, relaxation=0.1, least_relaxation=1,
    average_growth=1, contraction=0, guards=False)`` is the published form.  Its rules and defaults
    were checked against the authors' program.  The text of [1]_ was not at hand: the bound is cited
    from its abstract, the number of the algorithm from memory, and the bound on h was derived here.

    Parameters
    ----------
    gradient_lipschitz, backoff, relaxation, average_growth, guards
        As in :class:`ParameterFreeAGD`; published are 1e-3, 2, 0.1 and 1.
    contraction : float
        In [0, 1); published: 0, off.
    least_relaxation : float
        In (0, 1]; published: 1, which keeps beta as it is.

    References
    ----------
    .. [1] N. Marumo, A. Takeda, "Universal Heavy-Ball Method for Nonconvex Optimization under
       Hoelder Continuous Hessians", Mathematical Programming (2025), Algorithm 1,
       doi:10.1007/s10107-024-02100-4; arXiv:2303.01073.
    """

    name = "universal-hb"
    summary = "universal heavy ball (Marumo & Takeda)"
    guarantee = (
        "with average_growth=1: O(eps^-7/4), or the best rate for a Hoelder Hessian; none for the "
        "default, 1.25"
    )
    cost = "1 to 2 values and gradients"
    memory = HeavyBallMemory

    contraction: float = 0.1
    least_relaxation: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "contraction", 0 <= self.contraction < 1, "must be in [0, 1)")
        check(self, "least_relaxation", 0 < self.least_relaxation <= 1, "must be in (0, 1]")

    def _begin_epoch(self, m: Machine, memory: HeavyBallMemory, **own: object) -> HeavyBallMemory:
        x = memory.x
        return super()._begin_epoch(
            m,
            memory,
            v=m.combination(x.point, -1.0, x.point),
            mean=x.point,
            mean_norm=x.grad_norm,
            best=x,
            variation=0.0,
            norm_to_contract=m.minimum(memory.norm_to_contract, x.grad_norm),
        )

    def _plan_step(self, m: Machine, memory: HeavyBallMemory) -> HeavyBallMemory:
        x, shorter = memory.x, -1 / memory.lipschitz
        (v, point), (moved,) = m.run(BALL, (memory.v, x.gradient, x.point), (shorter,))
        moves = m.case(True, (memory.k == 0, lambda: m.distance(point, x.point) > 0.0))
        return self._go_to(m, memory, point, v, moved, moves)

    def ask(self, m: Machine, memory: HeavyBallMemory) -> Ask:
        ask = super().ask(m, memory)
        if not m.fuses:
            return ask
        vectors = memory.x.gradient, memory.v
        with_slopes = ask._replace(work=GRADIENT_SLOPES, vectors=vectors)
        return m.case(ask, (memory.phase == NEW, lambda: with_slopes))

    def accepted(self, memory: HeavyBallMemory) -> Sample:
        return memory.best

    def _claim(self, m: Machine, memory: HeavyBallMemory, here: Sample, sums: Sums) -> Claim:
        x, v = memory.x, memory.v
        slope, slope_there = sums or (m.inner(x.gradient, v), m.inner(here.gradient, v))
        reach = memory.lipschitz * memory.moved / 2
        change = (slope + slope_there) / 2
        return Claim(x.value, here.value, change, slope + reach, reach)

    def _accept(
        self, m: Machine, memory: HeavyBallMemory, here: Sample, claim: Claim, confirmed: float
    ) -> HeavyBallMemory:
        before, after, by_gradients, *_ = claim
        k, L, moved = memory.k + 1, memory.lipschitz, memory.moved
        best, S = self._lowest(m, memory, here), memory.travelled + moved
        excess = after - before - by_gradients
        gap = memory.mean_norm - L / k * m.sqrt(moved)
        if self.guards:
            excess = excess - memory.rounding.between(m, before, after)
            gap = gap - gradient_noise(m, L, memory.size + m.sqrt(k * S))  # at least |x_k|
        # Where nothing has moved, or grad f(xbar_k) is unknown, there is nothing to learn.
        h = m.maximum(memory.variation, 3 * excess / m.where(moved > 0.0, moved, math.inf))
        by_mean = m.sqrt(8 / (k * m.where(S > 0.0, S, math.inf))) * m.where(gap > 0.0, gap, 0.0)
        h = m.maximum(h, by_mean)

        def advance() -> HeavyBallMemory:
            mean, due = memory.mean, k >= memory.average_due
            mean = m.combination(mean, 1 / (k + 1), here.point, mean)
            moved_on = m.but(
                memory,
                x=here,
                new=here,  # so that an older one is let go
                k=k,
                travelled=S,
                confirmed=confirmed,
                mean=mean,
                mean_norm=math.nan,
                best=best,
                variation=h,
                point=mean,
                outcome=Outcome(1 / L, m.no_events, True, m.no(due)),
                phase=MEAN,
            )
            return m.case(moved_on, (m.no(due), lambda: self._close(m, moved_on)))

        def restart() -> HeavyBallMemory:
            norm_to_contract = memory.norm_to_contract
            if self.contraction:  # it has paid for one early end
                norm_to_contract = norm_to_contract / self.contraction
            return self._succeed(
                m,
                m.but(memory, confirmed=confirmed, norm_to_contract=norm_to_contract),
                best,
                k,
                True,
            )

        goes_on = k * (k + 1) * h <= 3 / 8 * L
        return m.case(memory, (goes_on, advance), otherwise=restart)

    def _judge_mean(
        self, m: Machine, memory: HeavyBallMemory, here: Sample, *_: object
    ) -> HeavyBallMemory:
        usable = m.isfinite(here.grad_norm)
        best = m.choose(usable, self._lowest(m, memory, here), memory.best)
        lost = m.event(EventKind.NON_FINITE, here.grad_norm, m.no(usable))
        shows = here.grad_norm < memory.x.grad_norm
        after = m.but(
            memory,
            best=best,
            mean_norm=here.grad_norm,
            average_due=self._next_average(m, memory.k),
            outcome=Outcome(1 / memory.lipschitz, lost, shows),
        )
        return self._close(m, after)

    def _close(self, m: Machine, memory: HeavyBallMemory) -> HeavyBallMemory:
        """The end of an iteration in which x_k was accepted; may be that of the epoch."""
        best, shows = memory.best, memory.outcome.shows
        contracts = best.grad_norm <= self.contraction * memory.norm_to_contract
        return m.case(
            memory,
            (contracts, lambda: self._succeed(m, memory, best, memory.k, shows)),
        )

    def _succeed(
        self, m: Machine, memory: HeavyBallMemory, start: Sample, k: int, shows: bool
    ) -> HeavyBallMemory:
        """The successful end of an epoch: L falls, the faster the more of them come in a row."""
        row, beta = memory.successes + 1, self.relaxation
        factor = m.power(beta, m.power(2.0, m.minimum(row, 60)) - 1)
        factor = m.maximum(factor, min(beta, self.least_relaxation))
        ended = m.event(EventKind.RESTART, k)
        return self._restart(m, memory, start, factor, ended, shows, successes=row)

    def _reject(
        self, m: Machine, memory: HeavyBallMemory, start: Sample, norm: float, clear: bool = True
    ) -> HeavyBallMemory:
        return m.but(super()._reject(m, memory, start, norm, clear), successes=0)

    def _lowest(self, m: Machine, memory: HeavyBallMemory, here: Sample) -> Sample:
        """The lower of the best point and another one, the first where they are level."""
        best = memory.best
        change = here.value - best.value
        if self.guards:
            change = rise(m, best, here, memory.rounding)
        return m.choose(change < 0.0, here, best)
