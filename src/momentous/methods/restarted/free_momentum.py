"""Momentum where nothing is given: theta is 1/k in iteration k of an epoch, k = 1, 2, ...

With v = x^k - x^{k-1} and beta = 1 - 1/k both iterations step to x^{k+1} = x^k + beta v - eta g.
Nesterov's takes the gradient g at y = x^k + beta v, the heavy ball at y = x^k.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

from momentous.core import passes
from momentous.core.machine import Machine
from momentous.core.passes import Pass
from momentous.core.record import record
from momentous.core.rule import Vectors
from momentous.core.space import Array


@record
class Forecast:
    """Of the next step: a pass may be made together with the gradient, before its eta is known."""

    step: float  # what the next eta is expected to be
    curvature: float = math.nan  # |g - g'|/|y - y'| in the last iteration


@record
class FreeEpoch:
    """Where an epoch stands after k of its iterations; v_k = x^k - x^{k-1}."""

    x: Array  # x^k
    x_prev: Array  # x^{k-1}
    points: Array  # sum of (t + 1) eta_t/eta_0 y^t, t < k; x^0 for k = 0
    gradient: Array  # g_{k-1}; any vector for k = 0
    first_step: float  # eta_0
    mean_due: int  # the iteration from which on the mean is looked at again
    early_due: int = 1  # ... and from which on the epoch may end early
    grad_norm: float = 0.0  # |g_{k-1}|
    k: int = 0
    moved: float = 0.0  # |v_k|^2
    slope: float = 0.0  # <g_{k-1}, v_k>
    travelled: float = 0.0  # S, the sum of the |v_t|^2
    weight: float = 1.0  # W = sum of (t + 1) eta_t/eta_0, t < k, that of y^0 included
    path: float = 0.0  # the length of the way y^0, y^1, .., y^{k-1}
    mean_path: float = 0.0  # the mean of that length up to y^t, with the weights of W
    spread: float = 0.0  # W times its variance, no less than that of the y^t
    forecast: Forecast | None = None  # where such a pass is best

    @staticmethod
    def at(m: Machine, x: Array, gradient: Array, eta: float, mean_due: int) -> FreeEpoch:
        """A fresh epoch: x^{-1} = x^0 = x."""
        forecast = Forecast(eta) if m.fuses else None
        return FreeEpoch(x, x, x, gradient, eta, mean_due, forecast=forecast)

    def share(self, m: Machine, eta: float) -> float:
        """The weight of the next point in the mean, besides that of y^0."""
        return m.where(self.k > 0, (self.k + 1) * (eta / self.first_step), 0.0)


@dataclasses.dataclass(frozen=True)
class FreeNesterov:
    """Nesterov's iteration, and how its step may grow.

    b = eta |g - g'|/|y - y'| compares two successive gradients.  These thresholds and factors were
    chosen with the `Constants` of the rule.
    """

    takes_gradient_at_x: ClassVar[bool] = False
    work: ClassVar[Pass] = passes.FREE_NESTEROV

    growth_threshold: float = 0.25  # where b is below this, eta grows ...
    growth: float = 1.2  # ... by this factor; ...
    first_threshold: float = 0.25  # ... and these two after the first step of an epoch
    first_growth: float = 1.2

    def threshold_at(self, m: Machine, k: int) -> float:
        """Where b is below this in iteration k of an epoch, eta grows ..."""
        return m.where(k == 2, self.first_threshold, self.growth_threshold)

    def growth_at(self, m: Machine, k: int) -> float:
        """... by this factor."""
        return m.where(k == 2, self.first_growth, self.growth)

    def given(
        self, epoch: FreeEpoch, y: Array, k: int, eta: float, share: float
    ) -> tuple[Vectors, tuple[float, ...]]:
        """What the pass reads behind the gradient, and its numbers; y is where that is taken, and
        ``share`` the weight of y in the sum of points."""
        return (epoch.gradient, y, epoch.x, epoch.points), (-eta, 1 - 1 / (k + 1), share)

    def made(self, vectors: Vectors) -> Vectors:
        """x^k, where the next gradient is taken, and the sum of points, of what the pass makes."""
        return vectors

    def next_point(self, m: Machine, epoch: FreeEpoch) -> Array:
        """Where the next iteration takes its gradient."""
        return m.combination(epoch.x, 1 - 1 / (epoch.k + 1), epoch.x, epoch.x_prev)

    def predicted_curvature(self, m: Machine, curvature: float, before: float) -> float:
        """|g - g'|/|y - y'| as expected in the next iteration: it goes on changing as it did."""
        known = before > 0.0
        return m.where(known, curvature * (curvature / m.where(known, before, 1.0)), curvature)

    def distance_apart(self, m: Machine, epoch: FreeEpoch, eta: float) -> float:
        """|y^k - y^{k-1}|, from the step v_k that led to x^k with this eta."""
        beta, step = 1 - 1 / (epoch.k + 1), eta * epoch.grad_norm
        # y^k - y^{k-1} = beta v - eta g
        square = beta * (beta * epoch.moved - 2 * (eta * epoch.slope)) + step * step
        return m.sqrt(m.maximum(0.0, square))

    def turning_point(
        self, m: Machine, epoch: FreeEpoch, x_next: Array, climb: float
    ) -> tuple[Array, bool]:
        """Where an epoch ends early whose last step, from its x to x_next, leads uphill; and was
        the last gradient taken there?

        ``climb`` is <g, x - x_prev> with the last gradient; with the one before it is the slope.
        """
        return x_next, False


@dataclasses.dataclass(frozen=True)
class FreeHeavyBall(FreeNesterov):
    """The heavy ball.  Its gradients are taken at x itself: momentum hides the sharp directions
    from successive points, and only the first step of an epoch, along the gradient, shows them."""

    takes_gradient_at_x = True
    work = passes.FREE_HEAVY_BALL

    growth_threshold: float = 0.05
    first_threshold: float = 0.5
    first_growth: float = 10.0
    near: float = 0.7  # of a step: beyond, its end is as good a start as a point before it

    def given(
        self, epoch: FreeEpoch, y: Array, k: int, eta: float, share: float
    ) -> tuple[Vectors, tuple[float, ...]]:
        return (epoch.gradient, epoch.x, epoch.x_prev, epoch.points), (-eta, 1 - 1 / k, share)

    def made(self, vectors: Vectors) -> Vectors:
        x_next, points = vectors
        return x_next, x_next, points

    def next_point(self, m: Machine, epoch: FreeEpoch) -> Array:
        return epoch.x

    def predicted_curvature(self, m: Machine, curvature: float, before: float) -> float:
        """It jumps up and down: a growth of the step is not counted on."""
        return math.inf

    def distance_apart(self, m: Machine, epoch: FreeEpoch, eta: float) -> float:
        return m.sqrt(epoch.moved)

    def turning_point(
        self, m: Machine, epoch: FreeEpoch, x_next: Array, climb: float
    ) -> tuple[Array, bool]:
        """x, where the gradient is known, or, if that is well behind it, the lowest point between
        x_prev and x by the slopes at both."""
        falls = epoch.slope < 0.0
        share = m.where(falls, epoch.slope / m.where(falls, epoch.slope - climb, 1.0), 0.0)
        near = share >= self.near
        between = m.no(near), lambda: m.combination(epoch.x_prev, share, epoch.x, epoch.x_prev)
        return m.case(epoch.x, between), near
