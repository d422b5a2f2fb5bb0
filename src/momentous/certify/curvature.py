"""The Hessian at a point, seen through its products with vectors, and its smallest eigenvalue."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from momentous.core.admission import Admission
from momentous.core.oracle import Oracle, Sample
from momentous.core.space import Array, set_writable
from momentous.io.types import AnyFunction

Matrix = NDArray[np.float64]

RELATIVE = 1e-3  # tau by default, as a fraction of the largest absolute Ritz value ...
SETTLED = 10  # ... which this many Lanczos steps must have looked for
LOST = 1 / 16  # no product is worth anything if rounding may take more than this of a step
# Step lengths that are tried differ by no more than this factor.  What f does within w of x is seen
# by the steps that are shorter than w, and is accurate to (h/w)^2.
RATIO = 200.0
NOISE = 4.0  # products that differ by so many times their noise differ by more than noise


class Hessian:
    """Products with the Hessian at x, exact or by differences, and what they are worth."""

    def __init__(
        self,
        oracle: Oracle,
        sample: Sample,
        hessp: AnyFunction | None,
        args: tuple[object, ...],
        step: float | None,
    ):
        self.oracle, self.space, self.sample = oracle, oracle.space, sample
        self.hessp, self.args, self.given_step = hessp, args, step
        self._admission = Admission(self.space)
        self.scale = 1.0 + self.space.norm(sample.point)
        self.step = step or self.space.rounding ** (1.0 / 3.0) * self.scale
        self.forward = False
        self.truncation = 0.0  # a bound on it, or 0 where it is only measured
        self.change = 0.0  # with another step: what the error of a product is, by all that was seen
        self.noise = 0.0  # of differences of gradients, where that was measured
        self._probe: tuple[Array, list[Array | None], list[float]] | None = None
        self.products = 0

    def check_products(self, rho: float | None, dense: bool) -> int:
        """How many products check others, at most: those of `choose_step`, of `checked` for the
        eigenvector, and of `compare` for a whole matrix."""
        if self.hessp is not None:
            return 1
        if rho is not None:
            return 2 if dense else 3
        shorter = len(self.shorter_steps)
        return 3 * shorter + 8 if dense else 2 * shorter + 5

    def choose_step(self, rho: float | None, tau: float | None, columns: int, q: Array) -> None:
        """With rho: a step whose error does for tau; forward differences, at half the cost, if the
        usual step is short enough for that.  Without: as products with a random unit vector q say.

        The error of a product is at most rho h/2, forward or central; sqrt(columns) times that is a
        bound on the Frobenius norm of the errors of all of them.
        """
        if self.hessp is not None:
            return
        if rho is None or tau is None:
            self._find_step(q * math.sqrt(self.space.dimension))
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

    def __call__(self, v: Array) -> Array:
        """H v, for |v| = 1."""
        if self.hessp is not None:
            self.products += 1
            set_writable(v, False)
            given = self.hessp(self.sample.point, v, *self.args)
            product = self._admission.admit(given, "hessp")
            if not math.isfinite(self.space.norm(product)):
                raise ValueError("hessp returned values that are not finite; check it at x")
            return product
        product = self._difference(v, self.step)
        if product is None:
            raise ValueError(
                f"the gradient is not finite within {2.0 * self.step:.3g} of x; "
                "pass hessp= or a smaller step="
            )
        return product

    def _difference(self, v: Array, h: float) -> Array | None:
        """H v by a step h v; None where the gradient is not finite."""
        self.products += 1
        set_writable(v, False)
        x = self.sample.point
        behind = self.sample if self.forward else self.oracle.gradient(x - h * v)
        before = behind.gradient
        ahead = self.oracle.gradient(x + h * v)
        if not (behind.has_finite_gradient and ahead.has_finite_gradient):
            return None
        return (ahead.gradient - before) * ((1.0 if self.forward else 0.5) / h)

    @property
    def shorter_steps(self) -> list[float]:
        """Down to the shortest of which rounding takes half of `LOST`."""
        shortest = 2.0 * self.space.rounding * self.scale / LOST
        if self.truncation or self.hessp is not None or shortest >= self.step:
            return []
        count = math.ceil(math.log(self.step / shortest) / math.log(RATIO))
        return [self.step * (shortest / self.step) ** (k / count) for k in range(1, count + 1)]

    def _find_step(self, v: Array) -> None:
        """The longest step that shorter ones agree with, along a random v.

        |x| is no measure of the length within which f bends: one coordinate may be far from 0, and
        f bend within a short way along another.  So products with one vector, by ever shorter
        steps, are compared.  v is as long as the root of its size, so that each coordinate moves
        about as far as it does for a unit vector; then |E v|^2 is in the mean the sum of the
        squares of the errors of all columns.
        """
        steps = [self.step, *self.shorter_steps]
        if len(steps) == 1:
            return
        products = [self._difference(v, h) for h in steps]
        sizes = [self.space.norm(product) for product in products if product is not None]
        spread = self._apart(products[-1], self._difference(v, 2.0 * steps[-1]))
        size = max(sizes, default=0.0) / math.sqrt(self.space.dimension)
        self.noise = self._noise(size, steps[-1], spread)
        errors = [
            self._error([self._apart(product, other) for other in products[k:]], steps[k:])
            for k, product in enumerate(products[:-1])
        ]
        best = 0
        if self.given_step is None:
            best = min(range(len(errors)), key=errors.__getitem__)
        self.step, self.change = steps[best], errors[best]
        self._probe = v, products[best:], steps[best:]

    def _noise(self, size: float, h: float, spread: float) -> float:
        """What products differ by through noise, times h: rounding of x, and of gradients, from two
        steps of about the same, shortest length."""
        seen = h * spread if math.isfinite(spread) else 0.0
        return NOISE * (self.space.rounding * self.scale * size + seen)

    def _apart(self, a: Array | None, b: Array | None) -> float:
        if a is None or b is None:
            return math.inf
        return math.sqrt(self.space.distance_squared(a, b))

    def _error(self, changes: list[float], steps: list[float], noise: float | None = None) -> float:
        """The error of a product by the first of these steps, from its changes by all of them:
        twice what shows above the noise, and the noise.

        Twice, since a shorter step shows only the difference of both errors, and may have half of
        the longer one's itself.
        """
        noise = self.noise if noise is None else noise
        seen = [2.0 * c for c, h in zip(changes, steps, strict=True) if not c <= noise / h]
        return max(noise / steps[0], *seen) if seen else noise / steps[0]

    def compare(self, G: Matrix) -> None:
        """See what the whole matrix makes of the random vector whose products are known.

        A direction along which f bends within less than the step shows in the difference, or is the
        difference, if noise hides it: so that is looked along, too.
        """
        if self._probe is None:
            return
        v, products, steps = self._probe
        made = self.space.part(G @ self.space.whole(v))
        error = self._error([self._apart(made, product) for product in products], steps)
        self.change = max(self.change, error)
        if products[-1] is not None:
            apart = products[-1] - made
            size = self.space.norm(apart)
            if size > 0.0:
                self.checked(apart * (1.0 / size))

    def checked(self, v: Array) -> Array:
        """H v, |v| = 1, having measured what another step does to it.

        Where no bound on the truncation error is known, a tenth of the step, which shows 99 parts
        in 100 of an error that goes with h^2; and shorter ones, by which the curvature along v is
        compared, too: it has less noise.  Otherwise twice the step, which shows noise.
        """
        product, space, steps = self(v), self.space, self.shorter_steps
        if self.hessp is not None:
            return product
        if self.truncation:
            change = self._apart(product, self._difference(v, 2.0 * self.step))
            self.change = max(self.change, change)
            return product
        near = 2.0 * self._apart(product, self._difference(v, 0.1 * self.step))
        self.change = max(self.change, near)
        if not steps:
            return product
        others = [self._difference(v, h) for h in steps]
        again = self._difference(v, 2.0 * steps[-1])
        changes = [self._apart(product, other) for other in others]
        along = [math.nan if p is None else space.inner(v, p) for p in (product, *others, again)]
        spread = self._apart(others[-1], again) / math.sqrt(space.dimension)
        sizes = [abs(c) for c in along if math.isfinite(c)]
        noise = self._noise(max(sizes), steps[-1], max(spread, abs(along[-1] - along[-2])))
        bends = [abs(c - along[0]) for c in along[1:-1]]
        steps = [self.step, *steps]
        seen = self._error([0.0, *changes], steps), self._error([0.0, *bends], steps, noise)
        self.change = max(self.change, *(e if math.isfinite(e) else math.inf for e in seen))
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
    hessian.compare(G)
    return basis, G, 0.0


def lanczos(
    hessian: Hessian, q: Array, steps: int, goal: Goal
) -> tuple[list[Array], Matrix, float]:
    """An orthonormal Krylov basis Q, G = Q'HQ, and the norm of what HQ has outside of Q.

    G is kept as it comes, although half of it would do if products were exact: its asymmetry tells
    how far from that they are.
    """
    from scipy.linalg import eigvalsh_tridiagonal  # a quarter of a second to import

    space = hessian.space
    basis, G = [q], np.zeros((steps, steps))
    for j in range(steps):
        # Without rho it is known by now how noisy products are.
        v = hessian.checked(q) if j == 0 and hessian.truncation else hessian(basis[j])
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
                for b in basis:
                    v = v - space.inner(b, v) * b
                v = v * (1.0 / (space.norm(v) or math.inf))
            if space.norm(v) == 0.0:
                break
        basis.append(v)
    return basis, here, beta
