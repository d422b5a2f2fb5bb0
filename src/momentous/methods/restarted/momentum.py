"""Momentum: Nesterov's iteration and the heavy ball, their numbers, and epochs between restarts.

With e = x^k + (1 - theta)(x^k - x^{k-1}) both step to x^{k+1} = e - eta * gradient.  Nesterov takes
the gradient at e, the heavy ball at x^k.  A restart continues from x^k or, for the heavy ball, from
a point a little behind it.  The constants of the theorems differ too.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

from momentous.core import passes
from momentous.core.machine import NUMBERS, Arithmetic, Machine
from momentous.core.method import Method
from momentous.core.passes import Pass
from momentous.core.record import record
from momentous.core.space import Array
from momentous.core.status import Ending, Status
from momentous.core.step import M, Step
from momentous.methods.checks import (
    check_momentum,
    check_positive,
    check_whole,
    needed,
    root_of_product,
    square_over,
)
from momentous.methods.endings import by_own_rule

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

GIVEN = (
    "gradient_lipschitz", "hessian_lipschitz", "eps", "step_size", "momentum", "radius",
    "epoch_length",
)  # fmt: skip


@record
class Parameters:
    """The numbers of Algorithms 1 and 3."""

    step_size: float  # eta
    theta: float  # 1 - momentum
    radius: float  # B
    epoch_length: int  # K
    promise: float  # bound on the averaged gradient of a completed epoch, NaN if none is known
    eps: float  # of the theorem, NaN if everything was given by hand


def whole_epoch(theta: Any, m: Arithmetic = NUMBERS) -> Any:
    """K = floor(1/theta), as the adaptive theorems have it.

    Theorem 1 lets K = 1/theta be fractional; rounding it up would break the descent argument.  The
    small term keeps 1/theta = 20 from becoming 19.
    """
    return m.maximum(1, m.floor(1 / theta + 1e-9))


def check_given(method: Method) -> None:
    """Is what a restarted method was given possible?"""
    check_momentum(method, getattr(method, "momentum", None))
    check_whole(method, "epoch_length", "(K)")
    check_positive(method, *(name for name in GIVEN if name != "momentum"))


def theory_parameters(method: Method, scheme: Momentum, tol: float) -> Parameters:
    """Parameters by hand where given to the method, and by the theorem where not."""
    owner, given = type(method).__name__, (getattr(method, name) for name in GIVEN)
    _, rho, eps, step_size, momentum, radius, epoch_length = given
    if step_size is None:
        step_size = 1 / (4 * needed(method, "gradient_lipschitz", "step_size"))
    if momentum is None or radius is None:
        rho = needed(method, "hessian_lipschitz", "momentum and radius")
        largest = scheme.largest_eps(rho, step_size)
        if eps is None:
            # The output satisfies promise_factor * eps, not eps, and that only if 1/theta is whole:
            # take the next smaller eps for which it is, within the admissible range.
            if not tol:
                raise ValueError(
                    f"{owner} takes eps from tol, and tol={tol:g} is none; give eps=, or a tol "
                    "above 0"
                )
            eps = min(tol / scheme.promise_factor, largest)
            if momentum is None and epoch_length is None:
                K = math.ceil(1 / scheme.theta(eps, rho, step_size) - 1e-9)
                eps = min(eps, scheme.eps_for(1 / K, rho, step_size))
        elif momentum is None and eps > largest * (1 + 1e-12):
            raise ValueError(
                f"eps={eps:.3g} is above {largest:.3g}, the largest for which {owner} has "
                f"theta <= {scheme.largest_theta:g} with these constants; choose a smaller eps, or "
                "give momentum and radius by hand"
            )
    if momentum is not None:
        theta = 1 - momentum
    else:
        theta = min(scheme.theta(eps, rho, step_size), scheme.largest_theta)
    if radius is None:
        radius = scheme.radius(eps, rho)
    length = epoch_length if epoch_length is not None else whole_epoch(theta)
    promise = math.nan
    if rho is not None and math.isfinite(radius):
        promise = scheme.promise(step_size, theta, radius, length, rho)
    return Parameters(
        step_size, theta, radius, length, promise=promise, eps=math.nan if eps is None else eps
    )


@record
class Average:
    """The mean of y^0..y^{K0}, K0 = argmin of |x^{k+1} - x^k| over floor(K/2) <= k <= K-1.

    (Algorithm 1, lines 10-11; for the heavy ball the y^k are the x^k.)  The first minimiser wins.
    """

    mean: Array  # of the points y^0..y^{k-1}
    snapshot: Array  # the mean at the shortest step so far
    shortest: float = math.inf  # |x^{k+1} - x^k|^2 there

    @staticmethod
    def at(x: Array) -> Average:
        return Average(x, x)

    def add(self, m: Machine, k: Any, point: Array, moved: Any, length: Any) -> Average:
        """With y^k and |x^{k+1} - x^k|^2 = ``moved`` in an epoch of K = ``length``."""
        weight = 1 / (k + 1)
        mean = m.case(point, (k > 0, lambda: m.combination(self.mean, weight, point, self.mean)))
        shorter = (k >= length // 2) & (moved < self.shortest)
        return Average(
            mean, m.choose(shorter, mean, self.snapshot), m.where(shorter, moved, self.shortest)
        )


@record
class Epoch:
    """Where an epoch stands after k of its iterations."""

    start: Array  # x^0
    x: Array  # x^k
    ahead: Array  # x^k + (1 - theta)(x^k - x^{k-1})
    average: Average
    k: int = 0
    travelled: float = 0.0  # S = sum of |x^{t+1} - x^t|^2, t < k
    again: bool = False  # was x the last point to be evaluated?

    @staticmethod
    def at(x: Array, again: Any = False) -> Epoch:
        """A fresh epoch: x^{-1} = x^0 = x."""
        return Epoch(x, x, x, Average.at(x), again=again)


def judge(m: Machine, norm: Any, promise: Any, tol: Any) -> Any:
    """The status of a method whose last epoch ran through, by the gradient at its output."""
    above = (tol > 0.0) & m.no(norm <= tol)
    status = m.where(above, int(Status.ABOVE_TOLERANCE), int(Status.COMPLETED))
    return m.where(norm > promise, int(Status.PROMISE_BROKEN), status)


def completed(norm: float, promise: float, tol: float, length: int) -> Ending:
    """The same in words."""
    message = (
        f"an epoch of {length} iterations ran without restart; the gradient norm is {norm:.3g}"
    )
    numbers = {"grad_norm": norm, "promise": promise, "tolerance": tol, "length": length}
    if norm > promise:
        message += (
            f", above the {promise:.3g} that the theorem promises: gradient_lipschitz or "
            "hessian_lipschitz is too small for this function, or the promise is below what "
            "rounding allows"
        )
        return Ending(Status.PROMISE_BROKEN, message, numbers)
    if not math.isnan(promise):
        message += f", the theorem promises {promise:.3g}"
    return by_own_rule(message, numbers, f", the tolerance is {tol:.3g}: lower eps")


def judged_by(step: Step[M], tol: float | None) -> Step[M]:
    """The same step; the ending of a completed epoch is judged by another tolerance."""
    report = step.report
    if tol is None or report.ending is None or "promise" not in report.ending.numbers:
        return step
    numbers = report.ending.numbers
    ending = completed(report.sample.grad_norm, numbers["promise"], tol, int(numbers["length"]))
    return Step(step.memory, dataclasses.replace(report, ending=ending))
