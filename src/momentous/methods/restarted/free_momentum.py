"""Momentum where nothing is given: theta = 1/k in iteration k of an epoch, and eta by gradients.

With v = x^k - x^{k-1} and beta = 1 - 1/k both iterations step to x^{k+1} = x^k + beta v - eta g.
Nesterov's takes the gradient g at y = x^k + beta v, the heavy ball at y = x^k.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

from momentous.core import passes
from momentous.core.machine import Machine
from momentous.core.oracle import Sample
from momentous.core.passes import Pass
from momentous.core.record import record
from momentous.core.rule import Sums, Vectors
from momentous.core.space import Array


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

    @staticmethod
    def at(x: Array, gradient: Array, eta: float, mean_due: int) -> FreeEpoch:
        """A fresh epoch: x^{-1} = x^0 = x."""
        return FreeEpoch(x, x, x, gradient, eta, mean_due)

    def share(self, m: Machine, eta: float) -> float:
        """The weight of the next point in the mean, besides that of y^0."""
        return m.where(self.k > 0, (self.k + 1) * (eta / self.first_step), 0.0)


@record
class Learned:
    """What outlives an epoch."""

    step_size: float  # eta
    most: float  # the step may not grow beyond this
    sharpness: float  # q = eta^2 rho'
    norm_at_last_halving: float  # the gradient norm when its halving last allowed an early end
    longest_since_paid: float  # eta at its longest since an epoch has paid
    iterations_unpaid: int = 0  # of epochs that ended early and have not paid
    walls: int = 0  # how often something was not finite
    longest: float = 0.0  # eta at its longest in this epoch

    def with_step(self, m: Machine, eta: float) -> Learned:
        """rho' = q/eta^2 stays; q stays while eta is longer than since an epoch last paid.

        If growth kept q and shrinking kept rho', a step that went up and down would let q fall
        without end, and epochs would become ever longer.
        """
        ratio = m.minimum(eta, self.longest_since_paid) / self.step_size
        return Learned(
            eta, self.most, m.maximum(self.sharpness * ratio * ratio, m.smallest**2),
            self.norm_at_last_halving, m.maximum(eta, self.longest_since_paid),
            self.iterations_unpaid, self.walls, m.maximum(self.longest, eta),
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class FreeNesterov:
    """Nesterov's iteration, whose step follows b = eta |g - g'|/|y - y'| of successive gradients.

    These numbers were chosen as those of `free_radius.Constants` were.
    """

    takes_gradient_at_x: ClassVar[bool] = False
    work: ClassVar[Pass] = passes.FREE_NESTEROV

    growth_threshold: float = 0.25  # where b is below this, eta grows ...
    growth: float = 1.2  # ... by this factor; ...
    first_threshold: float = 0.25  # ... and these two after the first step of an epoch
    first_growth: float = 1.2
    longest: float = 1.0  # where b is above this, the step is too long ...
    shortened: float = 0.7  # ... and becomes this much of what would do
    cancelled: float = 1e-12  # a difference of squares this much smaller than they are says nothing

    def advance(
        self, m: Machine, epoch: FreeEpoch, before: Learned, here: Sample, y: Array, sums: Sums
    ) -> tuple[FreeEpoch, Learned, Array, bool]:
        """One iteration: where the epoch stands then, with which eta, where the next gradient is
        taken, and was the last step too long?  ``sums`` has <g, g'>, if anything."""
        k, norm, eta = epoch.k + 1, here.grad_norm, before.step_size
        # The step size, by what the gradients show.
        apart = self.distance_apart(m, epoch, eta)
        change = self._change(m, epoch, here, sums, apart > 0.0)
        bend = eta * change / m.maximum(apart, m.tiny)
        too_long = (bend > self.longest) & m.isfinite(norm)
        grows = (bend < self.threshold_at(m, k)) & (eta < before.most) & (epoch.k > 0)

        def change_step() -> Learned:
            return before.with_step(m, self._next_step(m, before, norm, k, bend))

        now = m.case(before, (grows | too_long, change_step))
        eta = now.step_size
        share = epoch.share(m, eta)
        # The step.
        made, (moved,) = m.run(self.work, *self.given(epoch, here.gradient, y, k, eta, share))
        x_next, y_next, points = self.made(made)
        travelled, weight, path = epoch.travelled + moved, epoch.weight + share, epoch.path + apart
        ahead = path - epoch.mean_path
        mean_path = epoch.mean_path + share / weight * ahead
        # beta v_k = v_{k+1} + eta g: the three squares give the product of the last two.
        beta, step = epoch.k / k, eta * norm
        slope = (beta * beta * epoch.moved - moved - step * step) / (2 * eta)
        reached = FreeEpoch(
            x_next, epoch.x, points, here.gradient, epoch.first_step, epoch.mean_due,
            epoch.early_due, norm, k, moved, slope, travelled, weight, path, mean_path,
            epoch.spread + share * ahead * (path - mean_path),
        )  # fmt: skip
        return reached, now, y_next, too_long

    def _change(self, m: Machine, epoch: FreeEpoch, here: Sample, sums: Sums, later: bool) -> float:
        """|g_k - g_{k-1}|, from the norms and one product where these tell; 0 for k = 0."""
        along = sums[0] if sums else m.inner(here.gradient, epoch.gradient)
        squares = here.grad_norm * here.grad_norm + epoch.grad_norm * epoch.grad_norm
        square = squares - 2 * along
        told = (self.cancelled * squares < square) & (square < math.inf)
        return m.case(
            m.sqrt(m.where(told & later, square, 0.0)),
            (later & m.no(told), lambda: m.distance(here.gradient, epoch.gradient)),
        )

    def _next_step(self, m: Machine, now: Learned, norm: float, k: int, bend: float) -> float:
        """A longer eta, or a shorter one where that is too long."""
        eta, growth = now.step_size, self.growth_at(m, k)
        share = self.shortened * m.maximum(self.longest / m.maximum(bend, self.longest), 0.5)
        cut = growth * bend > self.shortened
        growth = m.where(cut, self.shortened / m.where(cut, bend, 1.0), growth)
        # Where f has no lower bound, a step must stay within what the dtype can hold.
        most = m.minimum(now.most, math.sqrt(m.largest) / m.maximum(norm, 1.0))
        longer = m.maximum(eta, m.minimum(growth * eta, most))
        return m.where(bend > self.longest, eta * share, longer)

    def threshold_at(self, m: Machine, k: int) -> float:
        """Where b is below this in iteration k of an epoch, eta grows ..."""
        return m.where(k == 2, self.first_threshold, self.growth_threshold)

    def growth_at(self, m: Machine, k: int) -> float:
        """... by this factor."""
        return m.where(k == 2, self.first_growth, self.growth)

    def given(
        self, epoch: FreeEpoch, g: Array, y: Array, k: int, eta: float, share: float
    ) -> tuple[Vectors, tuple[float, ...]]:
        """The vectors and numbers of the pass; y is where the gradient g is taken, and ``share``
        the weight of y in the sum of points."""
        return (g, y, epoch.x, epoch.points), (-eta, 1 - 1 / (k + 1), share)

    def made(self, vectors: Vectors) -> Vectors:
        """x^k, where the next gradient is taken, and the sum of points, of what the pass makes."""
        return vectors

    def next_point(self, m: Machine, epoch: FreeEpoch) -> Array:
        """Where the next iteration takes its gradient."""
        return m.combination(epoch.x, 1 - 1 / (epoch.k + 1), epoch.x, epoch.x_prev)

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
        self, epoch: FreeEpoch, g: Array, y: Array, k: int, eta: float, share: float
    ) -> tuple[Vectors, tuple[float, ...]]:
        return (g, epoch.x, epoch.x_prev, epoch.points), (-eta, 1 - 1 / k, share)

    def made(self, vectors: Vectors) -> Vectors:
        x_next, points = vectors
        return x_next, x_next, points

    def next_point(self, m: Machine, epoch: FreeEpoch) -> Array:
        return epoch.x

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
