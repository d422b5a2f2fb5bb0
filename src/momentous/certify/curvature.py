"""The Hessian at a point, seen through its products with vectors, and its smallest eigenvalue."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentous.core.admission import Admission
from momentous.core.oracle import Oracle, Sample
from momentous.core.space import Array, set_writable

Matrix = NDArray[np.float64]

RELATIVE = 1e-3  # tau by default, as a fraction of the largest absolute Ritz value ...
SETTLED = 10  # ... which this many Lanczos steps must have looked for
LOST = 1 / 16  # no product is worth anything if rounding may take more than this of a step


class Hessian:
    """Products with the Hessian at x, exact or by differences, and what they are worth."""

    def __init__(
        self,
        oracle: Oracle,
        sample: Sample,
        hessp: Callable[..., Any] | None,
        args: tuple[Any, ...],
        step: float | None,
    ):
        self.oracle, self.space, self.sample = oracle, oracle.space, sample
        self.hessp, self.args, self.given_step = hessp, args, step
        self._admission = Admission(self.space)
        self.scale = 1.0 + self.space.norm(sample.point)
        self.step = step or self.space.rounding ** (1.0 / 3.0) * self.scale
        self.forward = False
        self.truncation = 0.0  # a bound on it, or 0 where it is only measured
        self.change = 0.0  # with another step, the largest seen
        self.products = 0

    def choose_step(self, rho: float | None, tau: float | None, columns: int) -> None:
        """With rho: a step whose error does for tau; forward differences, at half the cost, if the
        usual step is short enough for that.

        The error of a product is at most rho h/2, forward or central; sqrt(columns) times that is a
        bound on the Frobenius norm of the errors of all of them.
        """
        if self.hessp is not None or rho is None or tau is None:
            return
        slope = math.sqrt(columns) * rho / 2.0
        longest = tau / (16.0 * slope)
        h = self.given_step or 2.0 * math.sqrt(self.space.rounding) * self.scale
        self.forward = h <= longest
        if self.forward:
            self.step = h
        elif self.given_step is None:
            self.step = min(self.step, longest)
        self.truncation = slope * self.step

    def __call__(self, v: Array, stretch: float = 1.0) -> Array:
        """H v, for |v| = 1."""
        self.products += 1
        set_writable(v, False)
        x, h = self.sample.point, stretch * self.step
        if self.hessp is not None:
            product = self._admission.admit(self.hessp(x, v, *self.args), "hessp")
            if not math.isfinite(self.space.norm(product)):
                raise ValueError("hessp returned values that are not finite; check it at x")
            return product
        if self.forward:
            return (self._gradient(x + h * v) - self.sample.gradient) * (1.0 / h)
        behind = self._gradient(x - h * v)
        return (self._gradient(x + h * v) - behind) * (0.5 / h)

    def _gradient(self, x: Array) -> Array:
        sample = self.oracle.gradient(x)
        if not sample.has_finite_gradient:
            raise ValueError(
                f"the gradient is not finite within {2.0 * self.step:.3g} of x; "
                "pass hessp= or a smaller step="
            )
        return sample.gradient

    def checked(self, v: Array) -> Array:
        """H v, having measured what another step does to it.

        Where no bound on the truncation error is known, a tenth of the step: what f does within
        less than the step is seen then.  Otherwise twice the step, which shows noise.
        """
        product = self(v)
        if self.hessp is None:
            other = self(v, stretch=2.0 if self.truncation else 0.1)
            change = self.space.distance_squared(product, other)
            self.change = max(self.change, math.sqrt(change))
        return product

    def error(self, ritz: Matrix) -> float:
        """Of eigenvalues, from products: truncation or what was measured, and rounding."""
        if self.hessp is not None:
            return 8.0 * self.space.rounding * float(np.max(np.abs(ritz)))
        lost = self.space.rounding * self.scale / self.step  # of a step, by rounding x + h v
        if lost > LOST:
            return math.inf
        return max(self.truncation, self.change) + lost * float(np.max(np.abs(ritz)))

    @property
    def remedy(self) -> str:
        if self.hessp is not None:
            return "check that hessp is symmetric, <a, H b> = <b, H a>, or accept a larger tau"
        return f"pass hessp=, a step= other than {self.step:.2g}, more precise x, or a larger tau"


@dataclass(frozen=True)
class Goal:
    """What is to be shown, and how far Ritz values go towards it."""

    tau: float | None
    size: int
    failure_probability: float
    L: float

    def tolerance(self, ritz: Matrix) -> float:
        return RELATIVE * float(np.max(np.abs(ritz))) if self.tau is None else self.tau

    @property
    def share(self) -> float:
        """What |<q, e>| is at least for the unit eigenvectors e of both ends of the spectrum, with
        probability 1 - p: the density of <q, e> is at most sqrt(d/(2 pi))."""
        return self.failure_probability / 2.0 * math.sqrt(math.pi / (2.0 * self.size))

    def miss(self, ritz: Matrix, beta: float, error: float) -> float:
        """How far the smallest Ritz value may be above the smallest eigenvalue (probability 1 - p).

        With the spectrum scaled to [0, 1], the Ritz value of j steps is above delta only if
        |<q, e>| < 1/cosh((2j-1) artanh(sqrt(delta))): take the polynomial r of degree j-1 with
        sqrt(x - delta) r(x) a Chebyshev polynomial of degree 2j-1 on [delta, 1].  Moreover, since
        the Krylov space is invariant up to beta and the error, some Ritz value is within
        (beta + error)/|<q, e>| of the eigenvalue.
        """
        delta = math.tanh(math.acosh(1.0 / self.share) / (2 * ritz.size - 1)) ** 2
        length = 2.0 * self.L
        if delta < 0.5:  # each end is missed by at most delta times the length
            length = min(length, (float(ritz[-1] - ritz[0]) + 2.0 * error) / (1.0 - 2.0 * delta))
        return min(delta * length, (beta + error) / self.share)

    def decided(self, ritz: Matrix, beta: float, error: float) -> bool:
        t, tau = float(ritz[0]), self.tolerance(ritz)
        above = max(t - error - self.miss(ritz, beta, error), -self.L) >= -tau
        return (above or t + error < -tau) and (self.tau is not None or ritz.size >= SETTLED)

    def steps_needed(self, ritz: Matrix, error: float) -> int | None:
        """Steps that should show the second order, if nothing much changes; None if none can."""
        room = min(float(ritz[0]), 0.0) - error + self.tolerance(ritz)
        if room <= 0.0:
            return None
        delta = room / (float(ritz[-1] - ritz[0]) + 2.0 * (error + room))
        steps = 0.5 + math.acosh(1.0 / self.share) / math.atanh(math.sqrt(delta)) / 2.0
        return min(math.ceil(steps), self.size)


def whole_matrix(hessian: Hessian) -> tuple[list[Array], Matrix, float]:
    """All unit vectors, and what the Hessian makes of them, column by column."""
    space = hessian.space
    G = np.eye(space.dimension)
    basis = [space.part(unit) for unit in np.eye(space.dimension)]
    for j, unit in enumerate(basis):
        G[:, j] = space.whole(hessian(unit))
    return basis, G, 0.0


def lanczos(
    hessian: Hessian, start: Array, steps: int, goal: Goal
) -> tuple[list[Array], Matrix, float]:
    """An orthonormal Krylov basis Q, G = Q'HQ, and the norm of what HQ has outside of Q.

    G is kept as it comes, although half of it would do if products were exact: its asymmetry tells
    how far from that they are.
    """
    from scipy.linalg import eigvalsh_tridiagonal  # a quarter of a second to import

    space = hessian.space
    basis, G = [start * (1.0 / space.norm(start))], np.zeros((steps, steps))
    for j in range(steps):
        v = hessian(basis[j]) if j > 0 else hessian.checked(basis[0])
        before = space.norm(v)
        for i in (*range(max(0, j - 1), j + 1), *range(j + 1)):  # the recurrence, then all of Q
            c = space.inner(basis[i], v)
            v = v - c * basis[i]
            G[i, j] += c
        beta, here = space.norm(v), G[: j + 1, : j + 1]
        ritz = eigvalsh_tridiagonal(here.diagonal(), here.diagonal(-1))
        error = 2.0 * hessian.error(ritz) + float(np.linalg.norm(here - here.T)) / 2.0
        if j + 1 == steps or beta == 0.0 or goal.decided(ritz, beta, error):
            break
        G[j + 1, j] = beta
        v = v * (1.0 / beta)
        if beta < 0.1 * before:  # what cancellation has left is not orthogonal yet
            for _ in range(2):
                for q in basis:
                    v = v - space.inner(q, v) * q
                v = v * (1.0 / (space.norm(v) or math.inf))
            if space.norm(v) == 0.0:
                break
        basis.append(v)
    return basis, here, beta
