"""The universal heavy ball (Marumo & Takeda 2025)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from momentous.core.machine import Host
from momentous.core.oracle import NO_SAMPLE, Oracle, Sample
from momentous.core.record import record
from momentous.core.space import Array, Space
from momentous.core.status import Event, EventKind
from momentous.core.step import Step
from momentous.methods.checks import check
from momentous.methods.endings import Events
from momentous.methods.parameter_free.base import Claim, ParameterFree, ParameterFreeMemory
from momentous.methods.search.rounding import (
    Rounding,
    evaluated,
    gradient_noise,
    rise,
    smallest_gradient,
    usable,
)


@record
class HeavyBallMemory(ParameterFreeMemory):
    """The velocity, the mean, the lowest point and what is known of the Hessian in this epoch."""

    v: Array = None  # v_k
    mean: Array = None  # xbar_{k+1}, the mean of x_0, ..., x_k
    mean_norm: float = math.nan  # |grad f(xbar_{k+1})|, NaN where it was not evaluated
    best: Sample = NO_SAMPLE  # the lowest of all x_i and xbar_i evaluated in this epoch
    variation: float = 0.0  # h
    successes: int = 0  # epochs in a row that have ended successfully, up to this one
    mark: float = math.nan  # the gradient norm that the epoch has to contract to end early

    @property
    def lowest(self) -> Sample:
        return self.best


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

    contraction: float = 0.1
    least_relaxation: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "contraction", 0 <= self.contraction < 1, "must be in [0, 1)")
        check(self, "least_relaxation", 0 < self.least_relaxation <= 1, "must be in (0, 1]")

    def _at_rest(self, space: Space, **shared: Any) -> HeavyBallMemory:
        x = shared["x"]
        v, norm = space.combination(x.point, -1.0, x.point), x.grad_norm
        return HeavyBallMemory(**shared, v=v, mean=x.point, mean_norm=norm, best=x, mark=norm)

    def step(self, oracle: Oracle, memory: HeavyBallMemory) -> Step[HeavyBallMemory]:
        space, L, x_old = oracle.space, memory.lipschitz, memory.x
        k = memory.k + 1
        ended = Event(EventKind.RESTART, float(k))
        v = space.combination(memory.v, -1 / L, x_old.gradient)
        point, moved = space.combination(x_old.point, 1.0, v), space.inner(v, v)
        if k == 1 and space.distance_squared(point, x_old.point) == 0.0:
            return self._stuck(oracle, memory)
        S = memory.travelled + moved
        x = evaluated(oracle, point) if math.isfinite(S) else Sample(x_old.point)
        if not usable(x):
            return self._rejected(oracle, memory, x, memory.best)
        slope, reach = space.inner(x_old.gradient, v), L * moved / 2
        by_values = x.value - x_old.value
        by_gradients = (slope + space.inner(x.gradient, v)) / 2
        claim = Claim(x_old.value, x.value, by_gradients, slope + reach, reach)
        memory, falls, clear = self._judged(oracle, memory, claim, v, slope)
        best = self._lower(space, memory.best, x, memory.rounding)
        if not falls:
            return self._rejected(oracle, memory, x, best, clear=clear)
        excess, gap = by_values - by_gradients, memory.mean_norm - L / k * math.sqrt(moved)
        if self.guards:
            excess -= memory.rounding.between(Host.of(space), x_old.value, x.value)
            gap -= gradient_noise(space, L, memory.size + math.sqrt(k * S))  # at least |x_k|
        h = memory.variation
        if excess > 0.0 and moved > 0.0:
            h = max(h, 3 * excess / moved)
        if gap > 0.0 and S > 0.0:  # not where grad f(xbar_k) is unknown
            h = max(h, math.sqrt(8 / (k * S)) * gap)
        if not k * (k + 1) * h <= 3 / 8 * L:
            success = self._succeeded(oracle, memory, x, best, ended, clear=clear)
            if self.contraction:  # it has paid for one early end
                success.memory.mark = min(memory.mark / self.contraction, best.grad_norm)
            return success
        mean = space.combination(memory.mean, 1 / (k + 1), x.point, memory.mean)
        middle, due = NO_SAMPLE, memory.average_due
        events: Events = ()
        if k >= due:
            middle, due = evaluated(oracle, mean), self._next_average(k)
            if not usable(middle):
                events = (Event(EventKind.NON_FINITE, middle.grad_norm),)
        best = self._lower(space, best, middle, memory.rounding)
        sample = smallest_gradient(x, middle)
        if best.grad_norm <= self.contraction * memory.mark:
            return self._succeeded(oracle, memory, sample, best, ended, clear=clear)
        after = dataclasses.replace(
            memory,
            x=x,
            k=k,
            travelled=S,
            confirmed=self._confirmed(memory, clear),
            average_due=due,
            v=v,
            mean=mean,
            mean_norm=middle.grad_norm,
            best=best,
            variation=h,
        )
        return after.as_step(space, sample, 1 / L, events)

    def _succeeded(
        self,
        oracle: Oracle,
        memory: HeavyBallMemory,
        sample: Sample,
        start: Sample,
        ended: Event,
        *,
        clear: bool,
    ) -> Step[HeavyBallMemory]:
        """The successful end of an epoch: L falls, the faster the more of them come in a row."""
        row, beta = memory.successes + 1, self.relaxation
        factor = max(beta ** (2.0 ** min(row, 60) - 1), min(beta, self.least_relaxation))
        after = self._restarted(oracle, memory, sample, start, factor, ended, clear=clear)
        after.memory.successes = row
        return after

    def _restarted(
        self,
        oracle: Oracle,
        memory: HeavyBallMemory,
        sample: Sample,
        start: Sample,
        factor: float,
        *events: Event,
        clear: bool = False,
    ) -> Step[HeavyBallMemory]:
        after = super()._restarted(oracle, memory, sample, start, factor, *events, clear=clear)
        after.memory.mark = min(memory.mark, start.grad_norm)
        return after

    def moved_to(
        self,
        oracle: Oracle,
        memory: HeavyBallMemory,
        sample: Sample,
        tol: float | None,
        seed: int,
    ) -> Step[HeavyBallMemory]:
        """With L as it stands, and with what its successes have earned."""
        after = super().moved_to(oracle, memory, sample, tol, seed)
        after.memory.successes = memory.successes
        after.memory.mark = min(memory.mark, sample.grad_norm)
        return after

    def _lower(self, space: Space, best: Sample, other: Sample, rounding: Rounding) -> Sample:
        """The lower of the two points, the first one where they are level."""
        if not usable(other):
            return best
        change = rise(space, best, other, rounding) if self.guards else other.value - best.value
        return other if change < 0.0 else best
