"""Parameter-free restarted accelerated gradient descent (Marumo & Takeda 2024)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cached_property

from momentous.core.acceptance import mean_slope
from momentous.core.machine import Machine
from momentous.core.oracle import NO_SAMPLE, Sample
from momentous.core.record import record
from momentous.core.rule import Outcome, Sums
from momentous.core.space import Array
from momentous.core.status import EventKind
from momentous.methods.checks import check
from momentous.methods.parameter_free.base import (
    MEAN,
    PROBE,
    Claim,
    ParameterFree,
    ParameterFreeMemory,
)
from momentous.methods.search.rounding import gradient_noise, jensen_gap

AHEAD = PROBE + 1  # what an evaluation is for: y_k


@record
class AGDMemory(ParameterFreeMemory):
    """Nesterov's second sequence, its mean, and what is known of rho in this epoch."""

    origin_value: float = math.nan  # f(x_0)
    y: Sample = NO_SAMPLE  # y_k
    average: Array = None  # ybar_k, the weighted mean of y_0, ..., y_k
    hessian: float = 0.0  # M, the estimate of rho
    change: float = 0.0  # f(x_k) - f(x_0) from gradients alone, by the trapezoidal rule


@dataclasses.dataclass(frozen=True)
class ParameterFreeAGD(ParameterFree[AGDMemory]):
    """Parameter-free restarted accelerated gradient descent of Marumo & Takeda [1]_.

    Nesterov's iteration x_k = y_{k-1} - grad f(y_{k-1})/L, y_k = x_k + k/(k+1) (x_k - x_{k-1}) in
    epochs.  With S the sum of |x_i - x_{i-1}|^2 and M the estimate of rho in the epoch, it ends

    - unsuccessfully, at x_{k-1} and with L times alpha, when
      f(x_k) - f(x_0) > -L S/(2 (k + 1));
    - successfully, at x_k and with L times beta, when (k + 1)^5 M^2 S > L^2.

    M is the largest of 12 times the error of the trapezoidal rule between x_k and y_k over
    |y_k - x_k|^3, and of what grad f(x_k) differs by from the mean of the gradients at y_k and
    x_{k-1}, between which x_k lies: both are lower bounds of rho.  Solutions are x_k, y_k and the
    mean of y_0, ..., y_k with the weights 1, 2, ..., k + 1.

    Needs neither constants nor a step size.  O(D L^(1/2) rho^(1/4) eps^(-7/4)) values and gradients
    lead to a gradient norm of eps, D = f(x0) - inf f, without knowing eps [1]_.  Two values and two
    gradients per iteration, one of each in a rejected one; one more of each where the mean is
    evaluated.

    What is not in [1]_: (a) L begins with a probe, one extra gradient.  (b) With ``guards``
    rounding cannot decide: where L S/(2 (k+1)) does not stand out of the noise of the values, the
    change of f is the sum of <grad f(x_i) + grad f(x_{i-1}), x_i - x_{i-1}>/2, whose error is at
    most 6 % of the threshold if rho sqrt(S) (k+1)^(5/2) <= L; what rounding may contribute is
    taken off M.  Values that reject what gradients accept have their noise measured: four values,
    more where it is large, a few times in a run.
    (c) The weighted mean of the gradients is -2 L (x_{k+1} - x_k)/(k + 2), known for nothing: the
    mean of the y_i is evaluated only where that is within the tolerance, and on the schedule of
    ``average_growth``.  The theorem counts every mean among the solutions; that the default, which
    looks at fewer of them, has a bound too is not proven.

    ``ParameterFreeAGD(gradient_lipschitz=1e-3, hessian_lipschitz=1e-16, guards=False,
    average_growth=math.inf)`` is the published program.  Its rules and defaults were checked
    against it.  The text of [1]_ was not at hand: the bound is cited from its abstract, the number
    of the algorithm from memory.

    Parameters
    ----------
    gradient_lipschitz : float, optional
        L to begin with; by default from a probe.  Published: 1e-3.
    backoff : float
        alpha > 1.
    relaxation : float
        beta in (0, 1].
    average_growth : float
        The mean is evaluated again once k has grown by this factor: 1 is every iteration (as the
        theorem has it), infinity never (as the authors' program has it).
    guards : bool
        False: every test as published.  At gradient norms of about sqrt(u |f| L), u the unit
        roundoff, L then grows without bound.
    hessian_lipschitz : float
        M at the start of every epoch.  Published: 1e-16.

    References
    ----------
    .. [1] N. Marumo, A. Takeda, "Parameter-Free Accelerated Gradient Descent for Nonconvex
       Minimization", SIAM Journal on Optimization (2024), Algorithm 1; arXiv:2212.06410.
    """

    name = "parameter-free-agd"
    summary = "restarted AGD that estimates both constants (Marumo & Takeda)"
    guarantee = (
        "with average_growth=1: O(eps^-7/4) values and gradients, eps not an input; none for the "
        "default, 1.5"
    )
    cost = "2 values, 2 gradients"
    memory = AGDMemory

    relaxation: float = 0.9
    average_growth: float = 1.5
    hessian_lipschitz: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        is_valid = 0 <= self.hessian_lipschitz < math.inf
        words = "(M at the start of every epoch) must be finite and not negative"
        check(self, "hessian_lipschitz", is_valid, words)

    def _begin_epoch(self, m: Machine, memory: AGDMemory, **own: object) -> AGDMemory:
        x, M = memory.x, self.hessian_lipschitz
        return super()._begin_epoch(
            m, memory, origin_value=x.value, y=x, average=x.point, hessian=M, change=0.0
        )

    def _plan_step(self, m: Machine, memory: AGDMemory) -> AGDMemory:
        x, y = memory.x.point, memory.y
        point, moved = m.stepped(y.point, -1 / memory.lipschitz, y.gradient, x)
        v = m.combination(point, -1.0, x)
        return self._go_to(m, memory, point, v, moved, (moved > 0.0) | (memory.k > 0))

    @cached_property
    def _phases(self) -> tuple[Callable[..., AGDMemory], ...]:
        return (*super()._phases, self._judge_ahead)

    def _claim(self, m: Machine, memory: AGDMemory, here: Sample, sums: Sums) -> Claim:
        k, S = memory.k + 1, memory.travelled + memory.moved
        required = (1 - k / (k + 1)) * memory.lipschitz * S / 2
        change = memory.change + mean_slope(m, memory.x, here, memory.v)
        return Claim(memory.origin_value, here.value, change, -required, required)

    def _accept(
        self, m: Machine, memory: AGDMemory, here: Sample, claim: Claim, confirmed: float
    ) -> AGDMemory:
        theta = (memory.k + 1) / (memory.k + 2)
        return m.but(
            memory,
            new=here,
            change=claim.by_gradients,
            confirmed=confirmed,
            point=m.combination(here.point, theta, memory.v),
            outcome=Outcome(1 / memory.lipschitz, m.no_events, True, False),
            phase=AHEAD,
        )

    def _judge_ahead(self, m: Machine, memory: AGDMemory, here: Sample, *_: object) -> AGDMemory:
        k, eta = memory.k + 1, 1 / memory.lipschitz

        def go_on() -> AGDMemory:
            M = m.maximum(memory.hessian, self._hessian(m, memory, here))
            shows = here.grad_norm < memory.new.grad_norm
            # The mean of the gradients, with the weights of ybar_{k-1}, is -2 L v_k/(k + 1).
            mean_norm = 2 * memory.lipschitz * m.sqrt(memory.moved) / (k + 1)
            due = (mean_norm <= memory.tol) & (k >= 2) & (k >= memory.average_due)

            def look_at_mean() -> AGDMemory:
                outcome, mean = Outcome(eta, m.no_events, shows, False), memory.average
                return m.but(memory, y=here, hessian=M, point=mean, outcome=outcome, phase=MEAN)

            return m.case(
                memory,
                (due, look_at_mean),
                otherwise=lambda: self._close(m, memory, here, M, memory.average_due, shows),
            )

        def lose() -> AGDMemory:  # x_k has been accepted: go on from there with shorter steps
            lost = m.event(EventKind.NON_FINITE, here.grad_norm)
            events = lost + m.event(EventKind.RESTART, k)
            return self._restart(m, memory, memory.new, self.backoff, events, False)

        return m.case(memory, (m.isfinite(here.grad_norm), go_on), otherwise=lose)

    def _judge_mean(self, m: Machine, memory: AGDMemory, here: Sample, *_: object) -> AGDMemory:
        shows = here.grad_norm < m.minimum(memory.new.grad_norm, memory.y.grad_norm)
        due = self._next_average(m, memory.k + 1)
        return self._close(m, memory, memory.y, memory.hessian, due, shows)

    def _close(
        self, m: Machine, memory: AGDMemory, y: Sample, M: float, average_due: float, shows: bool
    ) -> AGDMemory:
        """The end of an iteration in which x_k was accepted; it may be that of the epoch."""
        k, L, S = memory.k + 1, memory.lipschitz, memory.travelled + memory.moved

        def advance() -> AGDMemory:
            mean = memory.average
            return m.but(
                memory,
                x=memory.new,
                k=k,
                travelled=S,
                average_due=average_due,
                y=y,
                average=m.combination(mean, 2 / (k + 2), y.point, mean),
                hessian=M,
                outcome=Outcome(1 / L, m.no_events, shows),
            )

        def restart() -> AGDMemory:
            ended = m.event(EventKind.RESTART, k)
            return self._restart(m, memory, memory.new, self.relaxation, ended, shows)

        straight = m.power(k + 1, 2.5) * M * m.sqrt(S) <= L
        return m.case(memory, (straight, advance), otherwise=restart)

    def _hessian(self, m: Machine, memory: AGDMemory, y: Sample) -> float:
        """A lower bound of rho from x_{k-1}, x_k = x_{k-1} + v and y_k = x_k + theta v."""
        k, x, moved = memory.k + 1, memory.new, memory.moved
        theta = k / (k + 1)
        gap = jensen_gap(m, x, y, memory.x, theta)
        excess = y.value - x.value - theta * mean_slope(m, x, y, memory.v)
        if self.guards:
            size = memory.size + m.sqrt(k * (memory.travelled + moved))  # at least |x_k|
            gap = gap - gradient_noise(m, memory.lipschitz, size)
            excess = excess - memory.rounding.between(m, x.value, y.value)
        cube = theta * theta * theta * moved * m.sqrt(moved)
        return m.maximum(_ratio(m, gap, theta * moved), _ratio(m, 12 * excess, cube))


def _ratio(m: Machine, a: float, b: float) -> float:
    """a/b where both are positive, otherwise 0."""
    positive = (a > 0.0) & (b > 0.0)
    return m.where(positive, a / m.where(positive, b, 1.0), 0.0)
