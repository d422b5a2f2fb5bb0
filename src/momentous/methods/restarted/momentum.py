"""The two momentum iterations, Nesterov's and the heavy ball: all that RAGD and RHB differ in.

With e = x^k + (1 - theta)(x^k - x^{k-1}) both step to x^{k+1} = e - eta * gradient.  Nesterov takes
the gradient at e, the heavy ball at x^k.  A restart continues from x^k or, for the heavy ball, from
a point a little behind it.  The constants of the theorems differ too.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from momentous.core import passes
from momentous.core.machine import Machine
from momentous.core.passes import Pass
from momentous.core.space import Array
from momentous.methods.checks import root_of_product, square_over

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

    def gradient_point(self, x: Array, ahead: Array) -> Array:
        """Where the iteration takes its gradient: at e, which is ahead of x."""
        return ahead

    def restart_point(self, m: Machine, x_next: Array, x: Array, theta: float) -> Array:
        """Where the next epoch starts, given x^{k+1} and x^k."""
        return x_next

    # With nothing given (`FreeRadius`) theta is 1/k in iteration k, k = 1, 2, ...

    takes_gradient_at_x: ClassVar[bool] = False
    free_work: ClassVar[Pass] = passes.FREE_NESTEROV

    def free_given(
        self, epoch: Any, y: Array, k: Any, eta: Any, share: Any
    ) -> tuple[tuple[Array, ...], tuple[Any, ...]]:
        """What the pass reads behind the gradient, and its numbers; y is where that is taken, and
        ``share`` the weight of y in the sum of points."""
        return (epoch.gradient, y, epoch.x, epoch.points), (-eta, 1 - 1 / (k + 1), share)

    def free_made(self, x_next: Array, y_next: Array, points: Array) -> tuple[Array, Array, Array]:
        """x^k, where the next gradient is taken, and the sum of points, of what the pass makes."""
        return x_next, y_next, points

    def next_point(self, m: Machine, x: Array, x_prev: Array, k: Any) -> Array:
        """Where iteration k + 1 takes its gradient, given x^k and x^{k-1}."""
        return m.combination(x, 1 - 1 / (k + 1), x, x_prev)

    def predicted_curvature(self, m: Machine, curvature: Any, before: Any) -> Any:
        """|g - g'|/|y - y'| as expected in the next iteration: it goes on changing as it did."""
        known = before > 0.0
        return m.where(known, curvature * (curvature / m.where(known, before, 1.0)), curvature)

    def growth_threshold(self, m: Machine, k: Any) -> Any:
        """Where eta |g - g'|/|y - y'| is below this in iteration k of an epoch, eta grows ..."""
        return 0.25

    def growth(self, m: Machine, k: Any) -> Any:
        """... by this factor."""
        return 1.2

    def distance_apart(self, m: Machine, k: Any, moved: Any, fall: Any, step: Any) -> Any:
        """|y^k - y^{k-1}| from |v|^2, eta <g, v> and eta |g| of the step v that led to x^k."""
        beta = 1 - 1 / (k + 1)  # y^k - y^{k-1} = beta v - eta g
        return m.sqrt(m.maximum(0.0, beta * (beta * moved - 2 * fall) + step * step))

    def turning_point(
        self, m: Machine, x_next: Array, x: Array, x_prev: Array, climb: Any, fall: Any
    ) -> tuple[Array, Any]:
        """Where an epoch ends early whose last step, to x_next, leads uphill; and was the last
        gradient taken there?

        ``climb`` and ``fall`` are <g, x - x_prev> with the last gradient and the one before.
        """
        return x_next, False

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

    def gradient_point(self, x: Array, ahead: Array) -> Array:
        return x

    def restart_point(self, m: Machine, x_next: Array, x: Array, theta: float) -> Array:
        a = (1 - 2 * theta) * (1 - theta)
        return m.combination(x_next, a / (1 + a), x, x_next)  # (x^{k+1} + a x^k)/(1 + a)

    takes_gradient_at_x = True
    free_work = passes.FREE_HEAVY_BALL

    def free_given(
        self, epoch: Any, y: Array, k: Any, eta: Any, share: Any
    ) -> tuple[tuple[Array, ...], tuple[Any, ...]]:
        return (epoch.gradient, epoch.x, epoch.x_prev, epoch.points), (-eta, 1 - 1 / k, share)

    def free_made(self, x_next: Array, points: Array) -> tuple[Array, Array, Array]:  # type: ignore[override]
        return x_next, x_next, points

    def next_point(self, m: Machine, x: Array, x_prev: Array, k: Any) -> Array:
        return x

    def predicted_curvature(self, m: Machine, curvature: Any, before: Any) -> Any:
        """It jumps up and down: a growth of the step is not counted on."""
        return math.inf

    # Its gradients are taken at x itself.  Momentum hides the sharp directions from successive
    # points; only the first step of an epoch, along the gradient, shows them.

    def growth_threshold(self, m: Machine, k: Any) -> Any:
        return m.where(k == 2, 0.5, 0.05)

    def growth(self, m: Machine, k: Any) -> Any:
        return m.where(k == 2, 10.0, 1.2)

    def distance_apart(self, m: Machine, k: Any, moved: Any, fall: Any, step: Any) -> Any:
        return m.sqrt(moved)

    def turning_point(
        self, m: Machine, x_next: Array, x: Array, x_prev: Array, climb: Any, fall: Any
    ) -> tuple[Array, Any]:
        """x, where the gradient is known, or, if that is well behind it, the lowest point between
        x_prev and x by the slopes at both."""
        falls = fall < 0.0
        share = m.where(falls, fall / m.where(falls, fall - climb, 1.0), 0.0)
        near = share >= NEAR
        between = (m.no(near), lambda: m.combination(x_prev, share, x, x_prev))
        return m.case(x, between), near


NESTEROV = Momentum()
ESCAPING_NESTEROV = EscapingNesterov()
HEAVY_BALL = HeavyBall()
