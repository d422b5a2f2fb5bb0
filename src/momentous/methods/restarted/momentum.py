"""The two momentum iterations, Nesterov's and the heavy ball: all that RAGD and RHB differ in.

With e = x^k + (1 - theta)(x^k - x^{k-1}) both step to x^{k+1} = e - eta * gradient.  Nesterov takes
the gradient at e, the heavy ball at x^k.  A restart continues from x^k or, for the heavy ball, from
a point a little behind it.  The constants of the theorems differ too.
"""

from __future__ import annotations

import math
from typing import ClassVar

from momentous.core import passes
from momentous.core.machine import Machine
from momentous.core.oracle import Oracle, Sample
from momentous.core.passes import Pass
from momentous.core.space import Array, Space
from momentous.methods.checks import root_of_product, square_over

Stepped = tuple[Array, float, Array]  # x^k, |x^k - x^{k-1}|^2, the sum of the points

NEAR = 0.7  # of a step of the heavy ball: beyond, its end is as good a start as a point before it


class Momentum:
    """Nesterov's momentum iteration, and the constants of its theorem (Algorithm 1).

    y^k = x^k + (1 - theta)(x^k - x^{k-1});  x^{k+1} = y^k - eta grad f(y^k).
    The theorem's parameters are eta = 1/(4L), B = ``radius_factor`` sqrt(eps/rho) and
    theta = ``theta_factor`` (eps rho eta^2)^(1/4) <= ``largest_theta``; a restarted epoch then
    lowers f by ``decrease_factor`` eps^(3/2)/sqrt(rho), and an epoch of K = 1/theta iterations
    without restart ends with an averaged gradient of at most ``promise_factor`` eps.
    """

    theta_factor = 4.0
    radius_factor = 1.0
    largest_theta = 1.0
    decrease_factor = 7 / 8
    promise_factor = 82.0
    curvature_factor = 4.0  # of rho B^2 in the bound on the averaged gradient

    def asked(self, space: Space, x: Array, x_prev: Array, theta: float) -> Array:
        """Where the iteration takes its gradient."""
        return _extrapolated(space, x, x_prev, theta)

    def base(self, space: Space, x: Array, x_prev: Array, theta: float, asked: Array) -> Array:
        """e, the point that the gradient is subtracted from, given where that was taken."""
        return asked

    def gradient_point(self, x: Array, ahead: Array) -> Array:
        """Where the iteration takes its gradient: at e, which is ahead of x."""
        return ahead

    def restart_point(self, m: Machine, x_next: Array, x: Array, theta: float) -> Array:
        """Where the next epoch starts, given x^{k+1} and x^k."""
        return x_next

    # With nothing given (`FreeRadius`):

    free_step: ClassVar[Pass] = passes.NESTEROV_WITH_SUM
    free_iteration: ClassVar[Pass] = passes.FREE_NESTEROV  # the products of the gradient, too

    def first(
        self, space: Space, x: Array, gradient: Array, eta: float
    ) -> tuple[Array, float, float]:
        """x^1, |x^1 - x^0|^2 and |x^0|, where x is x^0."""
        if not space.fuses:
            return *space.stepped(x, -eta, gradient, x), space.norm(x)
        (x_next, y_next), (moved, square), _ = space.compute(
            passes.FIRST_STEP, (gradient, x), (-eta, 0.5)
        )
        space.ahead = (y_next, x_next, x, 0.5)
        return x_next, moved, space.norm_from(square, x)

    def stepped(
        self, space: Space, x: Array, x_prev: Array, sample: Sample, eta: float, k: int,
        points: Array, share: float,
    ) -> Stepped:  # fmt: skip
        """x^k, |x^k - x^{k-1}|^2, and points + share times the point of the sample, where x is
        x^{k-1} and theta = 1/k, k > 1."""
        if space.fuses:
            read, numbers = self._free(x, x_prev, sample.point, points, eta, k, share)
            made, (moved,), _ = space.compute(self.free_step, (sample.gradient, *read), numbers)
            return self.taken(space, x, k, made, moved)
        e = self.base(space, x, x_prev, 1 / k, sample.point)
        x_next, moved = space.stepped(e, -eta, sample.gradient, x)
        return x_next, moved, space.combination(points, share, sample.point)

    def looked(
        self, oracle: Oracle, y: Array, g_prev: Array, x: Array, x_prev: Array, eta: float, k: int,
        points: Array, share: float,
    ) -> tuple[Sample, float, tuple[Array, ...], float]:  # fmt: skip
        """The sample at y, its product with g_prev, and what `stepped` would make of it, for
        `taken`: all in one pass."""
        read, numbers = self._free(x, x_prev, y, points, eta, k, share)
        sample, made, (along, moved) = oracle.gradient_with(
            y, self.free_iteration, (g_prev, *read), numbers
        )
        return sample, along, made, moved

    def _free(
        self, x: Array, x_prev: Array, y: Array, points: Array, eta: float, k: int, share: float
    ) -> tuple[tuple[Array, ...], tuple[float, ...]]:
        """What the two passes read behind the gradients, and their numbers."""
        return (y, x, points), (-eta, 1 - 1 / (k + 1), share)

    def taken(
        self, space: Space, x: Array, k: int, made: tuple[Array, ...], moved: float
    ) -> Stepped:
        """What the two passes have made, as `stepped` gives it; y^k is left for the next
        iteration."""
        x_next, y_next, points = made
        space.ahead = (y_next, x_next, x, 1 - 1 / (k + 1))
        return x_next, moved, points

    def outlook(self, curvature: float, before: float) -> float:
        """|g - g'|/|y - y'| as expected in the next iteration: it goes on changing as it did."""
        return curvature * (curvature / before) if before > 0.0 else curvature

    def roomy(self, k: int) -> float:
        """Where eta |g - g'|/|y - y'| is below this in iteration k of an epoch, eta grows ..."""
        return 0.25

    def growth(self, k: int) -> float:
        """... by this factor."""
        return 1.2

    def apart(self, theta: float, moved: float, fall: float, step: float) -> float:
        """|y^k - y^{k-1}| from |v|^2, eta <g, v> and eta |g| of the step v that led to x^k."""
        beta = 1 - theta  # y^k - y^{k-1} = beta v - eta g
        square = beta * (beta * moved - 2 * fall) + step * step
        return math.sqrt(square) if square > 0.0 else 0.0

    def turning_point(
        self, space: Space, x_next: Array, x: Array, x_prev: Array, climb: float, fall: float
    ) -> Array:
        """Where an epoch ends early whose last step, to x_next, leads uphill.

        ``climb`` and ``fall`` are <g, x - x_prev> with the last gradient and the one before.
        """
        return x_next

    def theta(self, eps: float, rho: float, eta: float) -> float:
        return self.theta_factor * math.sqrt(eta * root_of_product(eps, rho))

    def radius(self, eps: float, rho: float) -> float:
        return self.radius_factor * math.sqrt(eps / rho)

    def eps_for(self, theta: float, rho: float, eta: float) -> float:
        """The eps that has this theta."""
        root = theta / self.theta_factor * theta / self.theta_factor / eta
        return square_over(root, rho)

    def largest_eps(self, rho: float, eta: float) -> float:
        """The eps at which theta is as large as the theorem allows."""
        return self.eps_for(self.largest_theta, rho, eta)

    def promise(self, eta: float, theta: float, radius: float, length: int, rho: float) -> float:
        """Bound on the gradient at the average of an epoch of ``length`` iterations that stayed
        within ``radius`` (Lemma 6, the sharp form with the real K)."""
        return (
            2 * math.sqrt(2) * radius / (eta * length**2)
            + 2 * theta * radius / (eta * length)
            + self.curvature_factor * rho * radius * radius
        )


class EscapingNesterov(Momentum):
    """Nesterov's iteration with the constants of Theorem 3: a four times smaller theta, and an
    output that satisfies eps itself."""

    theta_factor = 1.0
    promise_factor = 1.0


class HeavyBall(Momentum):
    """x^{k+1} = x^k - eta grad f(x^k) + (1 - theta)(x^k - x^{k-1})   (Algorithm 3)."""

    theta_factor = 10.0
    radius_factor = 0.5
    largest_theta = 0.1
    decrease_factor = 1.0
    promise_factor = 242.0
    curvature_factor = 1.0

    def asked(self, space: Space, x: Array, x_prev: Array, theta: float) -> Array:
        return x

    def base(self, space: Space, x: Array, x_prev: Array, theta: float, asked: Array) -> Array:
        return _extrapolated(space, x, x_prev, theta)

    def gradient_point(self, x: Array, ahead: Array) -> Array:
        return x

    def restart_point(self, m: Machine, x_next: Array, x: Array, theta: float) -> Array:
        a = (1 - 2 * theta) * (1 - theta)
        return m.combination(x_next, a / (1 + a), x, x_next)  # (x^{k+1} + a x^k)/(1 + a)

    free_step = passes.HEAVY_BALL_WITH_SUM
    free_iteration = passes.FREE_HEAVY_BALL

    def _free(
        self, x: Array, x_prev: Array, y: Array, points: Array, eta: float, k: int, share: float
    ) -> tuple[tuple[Array, ...], tuple[float, ...]]:
        return (x, x_prev, points), (-eta, 1 - 1 / k, share)

    def taken(
        self, space: Space, x: Array, k: int, made: tuple[Array, ...], moved: float
    ) -> Stepped:
        x_next, points = made
        return x_next, moved, points

    def outlook(self, curvature: float, before: float) -> float:
        """It jumps up and down: a growth of the step is not counted on."""
        return math.inf

    # Its gradients are taken at x itself.  Momentum hides the sharp directions from successive
    # points; only the first step of an epoch, along the gradient, shows them.

    def roomy(self, k: int) -> float:
        return 0.5 if k == 2 else 0.05

    def growth(self, k: int) -> float:
        return 10.0 if k == 2 else 1.2

    def apart(self, theta: float, moved: float, fall: float, step: float) -> float:
        return math.sqrt(moved)

    def turning_point(
        self, space: Space, x_next: Array, x: Array, x_prev: Array, climb: float, fall: float
    ) -> Array:
        """x, where the gradient is known, or, if that is well behind it, the lowest point between
        x_prev and x by the slopes at both."""
        share = fall / (fall - climb) if fall < 0.0 else 0.0
        return x if share >= NEAR else space.combination(x_prev, share, x, x_prev)


NESTEROV = Momentum()
ESCAPING_NESTEROV = EscapingNesterov()
HEAVY_BALL = HeavyBall()


def _extrapolated(space: Space, x: Array, x_prev: Array, theta: float) -> Array:
    if x is x_prev or theta == 1.0:  # the first iteration of an epoch, or no momentum at all
        return x
    return space.extrapolated(x, x_prev, 1 - theta)
