"""The Hessian at a point, seen through its products with vectors, and its smallest eigenvalue."""

import math
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from momentous.core.admission import Admission
from momentous.core.oracle import Oracle, Sample
from momentous.core.space import Array, set_writable, to_numpy
from momentous.io.types import AnyFunction, Unchecked

Matrix = NDArray[np.float64]

# Without tau, an eigenvalue of the size of its error is taken for 0 where the error is no more than
# this fraction of the largest: of the whole matrix ...
NEGLIGIBLE = 1e-6
RELATIVE = 1e-3  # ... and by Lanczos, whose number of products goes with the root of its inverse
MARGIN = 4.0  # what is below zero by so many times its error is below zero
SETTLED = 10  # this many Lanczos steps must have looked for the largest eigenvalue
SPREAD = 10.0  # variables whose scales differ by no more are left as they are
ROUNDS, SAMPLES = 4, 4  # of products with random vectors that find scales of many variables
LOST = 1 / 16  # no product is worth anything if rounding may take more than this of a step
# Step lengths that are tried differ by no more than this factor.  What f does within w of x is seen
# by the steps that are shorter than w, and is accurate to (h/w)^2.
RATIO = 200.0
TENTH = 10.0
ALIKE = 0.25  # products by the longest and the shortest step, which rounding leaves a digit or two
CLOSE = 1e-4  # products that agree to this fraction need none in between
NOISE = 4.0  # products that differ by so many times their noise differ by more than noise


class Hessian:
    """Products with the Hessian at x, exact or by differences, and what they are worth.

    Once there are scales D (`rescale`) they are products with D H D: x = D z, and steps and vectors
    are those of z.
    """

    def __init__(
        self,
        oracle: Oracle,
        sample: Sample,
        hessp: AnyFunction | None,
        args: tuple[object, ...],
        step: float | None,
        room: Array | None = None,
    ):
        self.oracle, self.space, self.sample = oracle, oracle.space, sample
        self.hessp, self.args, self.given_step = hessp, args, step
        self.room = room  # how far each variable may go, where there are bounds
        self._admission = Admission(self.space)
        self.forward = False
        self.truncation = 0.0  # a bound on it, or 0 where it is only measured
        self.change = 0.0  # with another step: what the error of a product is, by all that was seen
        self.noise = 0.0  # of differences of gradients, where that was measured
        self.shortest_used = math.inf  # of steps of their own along unit vectors
        self.products = 0
        self.scales: Array | None = None
        self._set_step()

    def _set_step(self) -> None:
        self.scale = 1.0 + self.space.norm(self._in_scales(self.sample.point))
        usual = self.given_step or self.space.rounding ** (1.0 / 3.0) * self.scale
        # Some are along a random vector with entries of about 1, of which the largest counts.
        largest = max(4.0, 1.0 + 1.5 * math.sqrt(2.0 * math.log(max(2, self.space.size))))
        ones = self.space.xp.ones_like(self.sample.point)
        self.step = self.within(ones, largest * usual) / largest

    def rescale(self, scales: Array) -> None:
        """From here on products are those with D H D."""
        self.scales = scales
        self._set_step()

    def _in_scales(self, x: Array) -> Array:
        return x if self.scales is None else x / self.scales

    def scaled(self, v: Array) -> Array:
        """D v."""
        return v if self.scales is None else self.scales * v

    def within(self, v: Array, h: float) -> float:
        """The step h along v, or one that keeps x +- h v within its bounds."""
        if self.room is None:
            return h
        sizes = np.abs(to_numpy(self.scaled(v)).reshape(-1))
        moves = sizes > 0.0
        room = to_numpy(self.room).reshape(-1)[moves] / sizes[moves]
        return min(h, float(np.min(room, initial=math.inf)) * (1.0 - 8.0 * self.space.rounding))

    def check_products(self, rho: float | None, dense: bool) -> int:
        """How many products check others, at most: those of `choose_step`, of `checked` for the
        eigenvector, and of `compare` for a whole matrix."""
        if self.hessp is not None:
            return 1
        if rho is not None:
            return 2 if dense else 3
        shorter = len(self.shorter_steps) + dense
        # A unit vector takes a product for the whole matrix, and is counted there.
        return (self.space.dimension + 3) * (shorter + 2) if dense else 2 * shorter + 5

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
            given = self.hessp(self.sample.point, self.scaled(v), *self.args)
            product = self.scaled(self._admission.admit(given, "hessp"))
            if not math.isfinite(self.space.norm(product)):
                raise ValueError("hessp returned values that are not finite; check it at x")
            return product
        product = self._difference(v, self.step)
        if product is None:
            self.refuse(self.step)
        return product

    def refuse(self, h: float) -> NoReturn:
        raise ValueError(
            f"the gradient is not finite within {2.0 * h:.3g} of x; pass hessp= or a smaller step="
        )

    def _difference(self, v: Array, h: float) -> Array | None:
        """H v by a step h v; None where the gradient is not finite."""
        self.products += 1
        set_writable(v, False)
        x, h, move = self.sample.point, self.within(v, h), self.scaled(v)
        behind = self.sample if self.forward else self.oracle.gradient(x - h * move)
        before = behind.gradient
        ahead = self.oracle.gradient(x + h * move)
        if not (behind.has_finite_gradient and ahead.has_finite_gradient):
            return None
        with np.errstate(over="ignore"):
            product = (ahead.gradient - before) * ((1.0 if self.forward else 0.5) / h)
        if not math.isfinite(self.space.norm(product)):
            raise ValueError(
                f"the Hessian at x is beyond the numbers of {self.space.describe()['dtype']}; "
                "scale fun or its variables, or pass x in higher precision"
            )
        return self.scaled(product)

    @property
    def shorter_steps(self) -> list[float]:
        return [] if self.truncation or self.hessp is not None else self._shorter(self.step)

    def _shorter(self, h: float, scale: float | None = None) -> list[float]:
        """Steps down to the shortest of which rounding takes half of `LOST`."""
        shortest = 2.0 * self.space.rounding * (scale or self.scale) / LOST
        if shortest >= h:
            return []
        count = math.ceil(math.log(h / shortest) / math.log(RATIO))
        return [h * (shortest / h) ** (k / count) for k in range(1, count + 1)]

    def ladder(self, v: Array, whole: bool = True) -> "Ladder":
        """Products with v by ever shorter steps, down to what rounding leaves of the entries of x
        that v moves.  Unless ``whole``, without those in the middle where the others agree."""
        x = self._in_scales(self.sample.point)
        scale = 1.0 + self.space.norm(self.space.each(_where_moved, x, v))
        h = self.given_step or self.space.rounding ** (1.0 / 3.0) * scale
        h = self.within(v, h)
        # A tenth shows 99 parts in 100 of an error that goes with h^2, with little noise.
        steps = [h, h / TENTH, *self._shorter(h / TENTH, scale)] if self._shorter(h, scale) else [h]

        def measure(h: float) -> Matrix | None:
            product = self._difference(v, h)
            return None if product is None else self.space.whole(product).astype(float)

        last = 2.0 * steps[-1] if len(steps) > 1 else steps[0] / 2.0
        chosen = steps if whole or len(steps) < 4 else [steps[0], steps[1], steps[-1]]
        found = Ladder(chosen, [measure(h) for h in chosen], last, measure(last), scale)
        if chosen is not steps and not found.agrees():
            middle = [measure(h) for h in steps[2:-1]]
            found.steps, found.products[2:-1] = steps, middle
        return found

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
        return error_of_steps(changes, steps, self.noise if noise is None else noise)

    def compare(self, G: Matrix, v: Array, shortest: bool = False) -> Array:
        """See how far products with v are from what the matrix makes of it, above their noise: all
        of the vector, or along v, which has less noise.  What is returned is the best product, or
        that of the shortest step."""
        space, u = self.space, self.space.rounding
        ladder, along = self.ladder(v), space.whole(v).astype(float)
        made, size = (G + G.T) @ along / 2.0, float(np.linalg.norm(along))
        # Rounding moves x by some vector, of which the matrix makes as much as of any other; along
        # v that is its product with G v.
        lost = NOISE * u * ladder.scale
        noise = ladder.noise(u) + lost * float(np.linalg.norm(G, 2)) * size
        noise_along = lost * float(np.linalg.norm(made)) + noise / math.sqrt(along.size)
        spread = abs(float(np.sum(ladder.spread() * along))) / size
        if math.isfinite(spread):
            noise_along = lost * float(np.linalg.norm(made)) + NOISE * ladder.last * spread
        # A longer step than those behind the matrix may well show another curvature.
        for h, product in zip(ladder.steps, ladder.products, strict=True):
            if h > self.shortest_used and h > ladder.steps[-1]:
                continue
            if product is None:
                self.change = math.inf
                continue
            apart = product - made
            far, near = float(np.linalg.norm(apart)), abs(float(apart @ along)) / size
            if not far <= noise / h:
                self.change = max(self.change, 2.0 * far)
            if not near <= noise_along / h:
                self.change = max(self.change, 2.0 * near)
        best, _ = ladder.best(u, np.ones(along.size), given=False)
        best = ladder.products[-1] if shortest else best
        return space.part(np.full(along.size, math.inf) if best is None else best)

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
            return "check that hessp is symmetric, <a, H b> = <b, H a>"
        return f"pass hessp=, a step= other than {self.step:.2g}, or more precise x"


def _where_moved(xp: Unchecked, x: Array, v: Array) -> Array:
    return xp.where(v != 0.0, x, 0.0 * x)


def error_of_steps(changes: list[float], steps: list[float], noise: float) -> float:
    """The error of a product by the first of these steps, from its changes by all of them: twice
    what shows above the noise, and the noise.

    Twice, since a shorter step shows only the difference of both errors, and may have half of the
    longer one's itself.
    """
    seen = [2.0 * c for c, h in zip(changes, steps, strict=True) if not c <= noise / h]
    return max(noise / steps[0], *seen) if seen else noise / steps[0]


@dataclass
class Ladder:
    """Products with one vector by ever shorter steps, None where the gradient is not finite."""

    steps: list[float]
    products: list[Matrix | None]
    last: float  # a step of about the length of the shortest, ...
    again: Matrix | None  # ... and its product: both differ by noise
    scale: float  # 1 + |what v moves of x|

    def spread(self) -> Matrix:
        short = self.products[-1]
        if short is None or self.again is None:
            return np.full(1, math.inf)
        return short - self.again

    def noise(self, rounding: float, weights: Matrix | float = 1.0) -> float:
        """What products differ by through noise, times the step."""
        sizes = [float(np.linalg.norm(weights * p)) for p in self.products if p is not None]
        spread = float(np.linalg.norm(weights * self.spread()))
        spread = self.last * spread if math.isfinite(spread) else 0.0
        return NOISE * (rounding * self.scale * max(sizes, default=0.0) + spread)

    def agrees(self) -> bool:
        """Do the longest step, the next one and the shortest agree, entry by entry?"""
        a, b, c = self.products
        if a is None or b is None or c is None or self.again is None:
            return False
        noise = NOISE * self.last * abs(self.spread()) + LOST * self.steps[-1] * abs(a)
        near = abs(a - b) <= noise / self.steps[1] + CLOSE * abs(a)
        far = abs(a - c) <= noise / self.steps[-1] + ALIKE * abs(a)  # of few digits
        return bool(np.all(near & far))

    def best(self, rounding: float, weights: Matrix, given: bool) -> tuple[Matrix | None, int]:
        """The product by the longest step that the shorter ones agree with, and its place."""
        if given:
            return self.products[0], 0
        errors = [self.error(k, rounding, weights) for k in range(len(self.steps))]
        k = min(range(len(errors)), key=errors.__getitem__)
        return self.products[k], k

    def error(self, k: int, rounding: float, weights: Matrix) -> float:
        """Of the k-th product, in the norm with these weights."""
        product = self.products[k]
        if product is None or rounding * self.scale > LOST * self.steps[k]:
            return math.inf
        changes = [
            math.inf if other is None else float(np.linalg.norm(weights * (product - other)))
            for other in self.products[k:]
        ]
        noise = self.noise(rounding, weights)
        # An error that goes with the square of the step shows in the next one, if not below noise.
        shown = noise / self.steps[min(k + 1, len(self.steps) - 1)]
        return max(shown, error_of_steps(changes, self.steps[k:], noise))


@dataclass(frozen=True)
class Goal:
    """What is to be shown, and how far Ritz values go towards it."""

    tau: float | None
    size: int
    failure_probability: float
    L: float

    negligible: float = RELATIVE

    def tolerance(self, ritz: Matrix) -> float:
        return self.negligible * float(np.max(np.abs(ritz))) if self.tau is None else self.tau

    def is_saddle(self, t: float, error: float) -> bool:
        """Is an eigenvalue below -tau; or, without tau, below zero by a clear margin?"""
        if self.tau is None:
            return t + MARGIN * error < 0.0
        return t + error < -self.tau

    def is_minimum(self, t: float, error: float, lower: float, ritz: Matrix) -> bool:
        """Is none below -tau; without tau, nor below zero by more than the error?"""
        return lower >= -self.tolerance(ritz) and (self.tau is not None or t >= -error)

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
        t = float(ritz[0])
        lower = max(t - error - self.miss(ritz, beta, error), -self.L)
        decided = self.is_minimum(t, error, lower, ritz) or self.is_saddle(t, error)
        return decided and (self.tau is not None or ritz.size >= SETTLED)

    def steps_needed(self, ritz: Matrix, error: float) -> int | None:
        """Steps that should show the second order, if nothing much changes; None if none can."""
        room = min(float(ritz[0]), 0.0) - error + self.tolerance(ritz)
        if room <= 0.0:
            return None
        delta = room / (float(ritz[-1] - ritz[0]) + 2.0 * (error + room))
        steps = 0.5 + math.acosh(1.0 / self.share) / math.atanh(math.sqrt(delta)) / 2.0
        return min(math.ceil(steps), self.size)


@dataclass
class Whole:
    """A whole matrix of products, D H D, with the error of H and that of D H D."""

    basis: list[Array]
    matrix: Matrix
    scales: Matrix  # D, or ones
    error: float  # of H, where it is not that of its products alone


def whole_matrix(hessian: Hessian, is_measured: bool, is_scaled: bool, q: Array) -> Whole:
    """All unit vectors, and what the Hessian makes of them, column by column.

    Where differences are known to be nothing beforehand, each variable has steps of its own: their
    lengths, and the scales D, are those of x.  With scales to be found, D is such that the largest
    entry of each row of D H D is about 1.
    """
    space, u = hessian.space, hessian.space.rounding
    d = space.dimension
    basis, ones = [space.part(unit) for unit in np.eye(d)], np.ones(d)
    if not is_measured:
        H = np.stack([space.whole(hessian(unit)) for unit in basis], axis=1).astype(float)
        scales = equilibrated(H) if is_scaled else ones
        if np.any(scales != 1.0):
            hessian.rescale(space.part(scales))
        return Whole(basis, scales[:, None] * H * scales, scales, 0.0)
    ladders = [hessian.ladder(unit, whole=False) for unit in basis]
    given = hessian.given_step is not None

    def columns(weights: Matrix) -> tuple[Matrix, list[int]]:
        """H by the best steps in the norm with these weights."""
        found = [each.best(u, weights, given) for each in ladders]
        for each, (product, _) in zip(ladders, found, strict=True):
            if product is None:
                hessian.refuse(each.steps[0])
        return np.stack([p for p, _ in found if p is not None], axis=1), [k for _, k in found]

    def error(chosen: list[int], weights: Matrix) -> float:
        """Of D H D, D the weights, in the norm of Frobenius."""
        pairs = zip(ladders, chosen, weights, strict=True)
        return math.hypot(*(w * each.error(k, u, weights) for each, k, w in pairs))

    scales = ones
    H, chosen = columns(ones)
    for _ in range(ROUNDS if is_scaled else 0):  # the best steps depend on the scales
        scales = equilibrated(H)
        H, chosen = columns(scales)
    if np.any(scales != 1.0):
        hessian.rescale(space.part(scales))
    G = scales[:, None] * H * scales
    hessian.change = error(chosen, scales)
    pairs = zip(ladders, chosen, scales, strict=True)
    hessian.shortest_used = min(each.steps[k] / scale for each, k, scale in pairs)
    # What a direction along which f bends within less than the steps makes of a random vector is
    # seen there, or along the difference, if noise hides it.
    v = q * math.sqrt(d)
    short = hessian.compare(G, v, shortest=True)
    apart = space.whole(short) - (G + G.T) @ space.whole(v) / 2.0
    if 0.0 < (size := float(np.linalg.norm(apart))) < math.inf:
        hessian.compare(G, space.part(apart / size))
    return Whole(basis, G, scales, error(chosen, ones))


def equilibrated(H: Matrix) -> Matrix:
    """D, positive, such that each row of D H D has entries of about 1 at most: the method of Ruiz
    (2001), which keeps symmetry.  Ones where their sizes differ by little.

    D H D has as many negative eigenvalues as H, and hides none of them behind one variable in
    other units.
    """
    G = np.abs(H + H.T) / 2.0
    scales = np.ones(len(G))
    for _ in range(50):
        largest = G.max(axis=0)
        factors = np.where(largest > 0.0, largest, 1.0) ** -0.5
        G = factors[:, None] * G * factors
        scales *= factors
    rows = G.max(axis=0) > 0.0
    if not np.all(np.isfinite(scales)) or scales[rows].max(initial=0.0) <= SPREAD * scales[
        rows
    ].min(initial=math.inf):
        return np.ones(len(G))
    middle = math.exp(float(np.median(np.log(scales[rows]))))
    return np.where(rows, scales / middle, 1.0)


def find_scales(hessian: Hessian, seed: int) -> None:
    """Rescale many variables by what the Hessian makes of random vectors: the square of an entry of
    a product is in the mean that of the norm of its row (Bradley and Murray, 2011)."""
    space = hessian.space
    scales = np.ones(space.size)
    for k in range(ROUNDS):
        squares = np.zeros(space.size)
        for n in range(SAMPLES):
            v = space.normal(seed, 1 + k * SAMPLES + n)
            product = hessian(v * (math.sqrt(space.dimension) / space.norm(v)))
            squares += to_numpy(product).reshape(-1).astype(float) ** 2
        rows = (squares > 0.0) & np.isfinite(squares)
        logs = np.where(rows, np.log(np.where(rows, squares, 1.0)) / 4.0, 0.0)
        count, total = space.totals([float(rows.sum()), float(logs.sum())])
        factors = np.where(rows, np.exp(total / max(count, 1.0) - logs), 1.0)
        apart = (factors > SPREAD) | (factors < 1.0 / SPREAD)
        if not space.totals([float(apart.sum())])[0]:
            return
        scales *= factors
        hessian.rescale(space.from_numpy(scales.reshape(space.shape)))


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
