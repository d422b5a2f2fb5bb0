"""Parameter-free restarted accelerated gradient descent (Marumo & Takeda 2024)."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from momentous.core.acceptance import mean_slope
from momentous.core.machine import Host
from momentous.core.oracle import NO_SAMPLE, Oracle, Sample
from momentous.core.record import record
from momentous.core.space import Array, Space
from momentous.core.status import Event, EventKind
from momentous.core.step import Step
from momentous.methods.checks import check
from momentous.methods.parameter_free.base import Claim, ParameterFree, ParameterFreeMemory
from momentous.methods.search.rounding import (
    evaluated,
    gradient_noise,
    jensen_gap,
    smallest_gradient,
    usable,
)


@record
class AGDMemory(ParameterFreeMemory):
    """Nesterov's second sequence, its mean, and what is known of rho in this epoch."""

    origin: Sample = NO_SAMPLE  # x_0
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

    relaxation: float = 0.9
    average_growth: float = 1.5
    hessian_lipschitz: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        is_valid = 0 <= self.hessian_lipschitz < math.inf
        words = "(M at the start of every epoch) must be finite and not negative"
        check(self, "hessian_lipschitz", is_valid, words)

    def _at_rest(self, space: Space, **shared: Any) -> AGDMemory:
        x, M = shared["x"], self.hessian_lipschitz
        return AGDMemory(**shared, origin=x, y=x, average=x.point, hessian=M)

    def step(self, oracle: Oracle, memory: AGDMemory) -> Step[AGDMemory]:
        space, L, x_0, x_old = oracle.space, memory.lipschitz, memory.origin, memory.x
        k = memory.k + 1
        theta, ended = k / (k + 1), Event(EventKind.RESTART, float(k))
        point, moved = space.stepped(memory.y.point, -1 / L, memory.y.gradient, x_old.point)
        if k == 1 and moved == 0.0:
            return self._stuck(oracle, memory)
        S = memory.travelled + moved
        x = evaluated(oracle, point) if math.isfinite(S) else Sample(x_old.point)
        if not usable(x):
            return self._rejected(oracle, memory, x, x_old)
        v = space.combination(point, -1.0, x_old.point)
        slope, required = space.inner(x_old.gradient, v), (1 - theta) * L * S / 2
        change = memory.change + (slope + space.inner(x.gradient, v)) / 2
        claim = Claim(x_0.value, x.value, change, -required, required)
        memory, falls, clear = self._judged(oracle, memory, claim, v, slope)
        if not falls:
            return self._rejected(oracle, memory, x, x_old, clear=clear)
        y = evaluated(oracle, space.combination(point, theta, v))
        if not usable(y):  # x_k has been accepted: go on from there with shorter steps
            lost = Event(EventKind.NON_FINITE, y.grad_norm)
            return self._restarted(oracle, memory, x, x, self.backoff, lost, ended, clear=clear)
        M = max(memory.hessian, self._hessian(space, memory, x, y, v, moved))
        averaged, due = self._averaged(oracle, memory, k, moved)
        sample = smallest_gradient(x, y, averaged)
        if not (k + 1) ** 2.5 * M * math.sqrt(S) <= L:
            return self._restarted(oracle, memory, sample, x, self.relaxation, ended, clear=clear)
        after = dataclasses.replace(
            memory,
            x=x,
            k=k,
            travelled=S,
            confirmed=self._confirmed(memory, clear),
            average_due=due,
            y=y,
            average=space.combination(memory.average, 2 / (k + 2), y.point, memory.average),
            hessian=M,
            change=change,
        )
        return after.as_step(space, sample, 1 / L)

    def _hessian(
        self, space: Space, memory: AGDMemory, x: Sample, y: Sample, v: Array, moved: float
    ) -> float:
        """A lower bound of rho from x_{k-1}, x_k = x_{k-1} + v and y_k = x_k + theta v."""
        k = memory.k + 1
        theta = k / (k + 1)
        gap = jensen_gap(space, x, y, memory.x, theta)
        excess = y.value - x.value - theta * mean_slope(space, x, y, v)
        if self.guards:
            size = memory.size + math.sqrt(k * (memory.travelled + moved))  # at least |x_k|
            gap -= gradient_noise(space, memory.lipschitz, size)
            excess -= memory.rounding.between(Host.of(space), x.value, y.value)
        cube = theta * theta * theta * moved * math.sqrt(moved)
        return max(_ratio(gap, theta * moved), _ratio(12 * excess, cube))

    def _averaged(
        self, oracle: Oracle, memory: AGDMemory, k: int, moved: float
    ) -> tuple[Sample, float]:
        """ybar_{k-1}, where it may be the solution, and when to look again.

        The mean of the gradients, with the weights of ybar_{k-1}, is -2 L v_k/(k + 1).
        """
        mean_norm = 2 * memory.lipschitz * math.sqrt(moved) / (k + 1)
        if k < max(2, memory.average_due) or not mean_norm <= memory.tol:
            return NO_SAMPLE, memory.average_due
        return evaluated(oracle, memory.average), self._next_average(k)


def _ratio(a: float, b: float) -> float:
    """a/b where both are positive, otherwise 0."""
    return a / b if a > 0.0 and b > 0.0 else 0.0
