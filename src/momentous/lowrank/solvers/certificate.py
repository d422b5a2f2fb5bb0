r"""Is a fit the best there is, of any rank?  An upper bound of its distance from the optimum.

With a ridge, N F is a convex problem in disguise.  With Z = mean + b 1' + 1 c' + X, phi(Z) the sum
of the losses, W and T the diagonal weights of the factors of rows and columns and beta those of the
biases,

    ``N F(U, V, b, c) >= P(X, b, c) = phi(Z) + |W^(1/2) X T^(1/2)|_* + beta . (b^2, c^2) / 2``

for X = U V', with equality where the factors are balanced (Hastie, Mazumder, Lee and Zadeh [1]_;
the weighted trace norm is that of Srebro and Salakhutdinov [2]_).  By Fenchel's inequality,
``phi(Z) >= -<Y, Z> - phi*(-Y)``, every matrix Y whose largest singular value sigma in
``A = W^(-1/2) Y T^(-1/2)`` is at most 1 bounds the optimum P* from below, by

    ``D(Y) = -phi*(-Y) - mean 1'Y1 - |Y1|^2/(2 beta) - |Y'1|^2/(2 beta)``.

A bias without a weight asks for sums of 0 in its row or column: `_project` subtracts what is
left of them.  At the optimum Y = -grad phi has all that, and D(Y) = P*.  At any other point Y is
divided by sigma, if that is above 1, and ``gap = F - D(Y)/N`` is the bound.  sigma has to be known
from above.  Let the first rows and columns of A be those in the span of the factors:

    ``A = [[A11, A12], [A21, A22]]``, ``sigma <= |[[|A11|, |A12|], [|A21|, |A22|]]|_2``.

Three of the norms are of r rows or columns, and computed.  Without A22 they would be enough: at a
stationary point A11 = 1 and A12 = A21 = 0.  |A22| < 1 comes from an SVD where A is small, and from
k steps of Golub and Kahan's bidiagonalisation otherwise, with a random first vector g.  The
polynomial p of the k-th Lanczos vector has |p(A22'A22) g| = 1, so ``|p(sigma^2)| <= 1/|g_1|`` for
the part g_1 of g along the first singular vector; beyond its zeros, the Ritz values, p rises.  As
|g_1| < delta has a probability of at most ``delta sqrt(2 n/pi)``, the root of p = 1/delta is an
upper bound that fails as rarely (Van Dorsselaer, Hochstenbach and Van der Vorst [3]_, Hochstenbach
[4]_), over the draws of g; A itself has no say in that.  There are `RUNS` of them at a time: the
largest of their bounds fails only if all do.  So each may fail with a probability of
`FAILURE`^(1/RUNS), which takes a third of the steps, and a product with all their vectors at a time
hardly more than one with one of them.

Where |A22| > 1, its Ritz vectors a, b are new columns that lower F: N F falls by
``(sigma - 1)^2/(2 c)`` with c the curvature of phi along a b', which is a proof that the point is
not the optimum, and the way on from there (Lee, Liang, Tang and Toh [5]_).

.. [1] T. Hastie, R. Mazumder, J. Lee, R. Zadeh, "Matrix completion and low-rank SVD via fast
   alternating least squares", JMLR 16 (2015).
.. [2] N. Srebro, R. Salakhutdinov, "Collaborative filtering in a non-uniform world: learning with
   the weighted trace norm", NIPS 2010.
.. [3] J. van Dorsselaer, M. Hochstenbach, H. van der Vorst, "Computing probabilistic bounds for
   extreme eigenvalues of symmetric matrices with the Lanczos method", SIAM J. Matrix Anal. Appl. 22
   (2000).
.. [4] M. Hochstenbach, "Probabilistic upper bounds for the matrix two-norm", J. Sci. Comput. 57
   (2013).
.. [5] C. Lee, L. Liang, T. Tang, K.-C. Toh, "Accelerating nuclear-norm regularized low-rank matrix
   optimization through Burer-Monteiro decomposition", JMLR 25 (2024).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse.linalg import LinearOperator, cg

from momentous.lowrank.backends import Backend
from momentous.lowrank.checks import check_number
from momentous.lowrank.data.ratings import Floats
from momentous.lowrank.objective import LowRankObjective

Matrix = NDArray[np.float64]
Product = Callable[[Any], Any]
FAILURE = 1e-10  # the probability that |A22| is larger than its bound
STEPS = 150  # of the bidiagonalisation, at most; the bound is valid after any number
SLACK = 1.5  # by which the bound of sigma - 1 may exceed what is known to be there
NEAR = 1.25  # the same of sigma, for fits that are known not to be the optimum: fewer products
CLEARLY = 4.0  # times the sigma - 1 that makes no difference: more than the tolerance of the gap
RUNS = 8  # of the bidiagonalisation, from vectors of their own, in the same products
LOOK_EVERY = 2  # steps between two looks at the bound
DENSE = 1 << 18  # cells of A up to which its norm is computed by an SVD
BALANCING = 3000  # steps, at most, of the conjugate gradients that make sums of the residual 0
LEFT_OVER = 1e-9  # of the sum of all |residuals|: the largest sum of one row that counts as 0
FAINT = 1e-7  # singular values of a factor, relative to the largest, that are left to A22
UNKNOWN_SIZE = 0.9  # of A22, as far as the choice of what is left to it knows
# What rounding may add to a norm, and to the gap, relatively: some 1e3 units of double precision.
ROUNDING = 2e-13
EXACT = 1e-13  # of the losses of zero parameters: less is an objective of rounding alone
ENTRIES_OF_ZERO = 1 << 16  # that are looked at for these losses, at least, if there are so many
BLOCK = 1 << 14  # entries whose conjugates are computed at a time: they fit a cache ...
DEVICE_BLOCK = 1 << 24  # ... and on a GPU, whose memory they leave to others
TINY = 1e-300


class Verdict(enum.Enum):
    """The verdict on a fit."""

    GLOBAL = "global"
    NOT_GLOBAL = "not global"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Certificate:
    """How far a fit is from the optimum over all ranks, at most.

    Attributes
    ----------
    verdict : Verdict
        GLOBAL: no matrix of any rank has an objective lower by more than ``gap``, which is within
        the tolerance.  NOT_GLOBAL: a further column lowers it, by ``decrease`` at least.
        UNDECIDED: neither is known; more sweeps decide it.
    gap : float
        The objective is at most this far from the optimum.
    relative_gap : float
        The same over the objective; where that is rounding alone, over 1e-13 of the losses of zero
        parameters and the square of 1e-13 times the mean.
    sigma_max : float
        An upper bound of the largest singular value of the residual (with weights: of the weighted
        residual); at the optimum it is at most ``ridge``.
    ridge : float
    objective, decrease : float
        The objective of the fit, without the balance term, which no optimum needs, and by how much
        at least one column can lower it.
    message : str
    """

    verdict: Verdict
    gap: float
    relative_gap: float
    sigma_max: float
    ridge: float
    objective: float
    decrease: float
    message: str

    def __str__(self) -> str:
        return self.message


class Escape(NamedTuple):
    """Columns that lower F when they are appended to the factors; none where there is no way."""

    left: Matrix
    right: Matrix


def certify(
    objective: LowRankObjective, x: Floats, *, tol: float = 1e-4, steps: int = STEPS, seed: int = 0
) -> Certificate:
    """How far x is from the optimum of its objective over all ranks.

    Parameters
    ----------
    objective : LowRankObjective
        Its ridge must be above 0, and its loss must have a `Loss.conjugate` and a finite
        `Loss.largest_curvature`.  Its ``balance`` is left out: the certificate is of the objective
        with a balance of 0, as ``objective.value(x, balance=0.0)`` is.
    x : array
    tol : float
        The relative gap up to which the verdict is GLOBAL.
    steps : int
        Limit on products with the residual and its transpose.
    seed : int
        Of the random vector; the bound of sigma fails for one in 1e10 of them.
    """
    return examine(objective, x, tol, steps, seed, columns=1)[0]


def examine(
    objective: LowRankObjective,
    x: Floats,
    tol: float = 1e-4,
    steps: int = STEPS,
    seed: int = 0,
    columns: int | None = None,
) -> tuple[Certificate, Escape]:
    """The certificate, and columns by which the fit can be made better; so many, or all found."""
    check_number("tol", tol, 0.0)
    check_number("steps", steps, 1, whole=True)
    if not objective.ridge > 0.0:
        raise ValueError(
            "a fit with ridge=0 has no certificate: the convex problem behind it is that of a "
            "ridge above 0; take a small one"
        )
    dual = Dual(objective, x)
    # The gap is about the penalty times sigma - 1, and without factors the value times its square:
    # less than this makes no difference.
    enough = min(0.3 * tol * dual.value / max(dual.penalty, TINY), math.sqrt(0.3 * tol))
    sigma, pairs = _norm(dual, enough, steps, seed)
    gap = max(dual.value - dual.bound(1.0 / max(1.0, sigma)), 0.0) + ROUNDING * abs(dual.value)
    escape, decrease = dual.escape(pairs, columns)
    count, ridge, value = objective.weight, objective.ridge, dual.value
    relative = gap / max(abs(value), dual.negligible, TINY)
    facts = (
        f"gap {gap / count:.2g} (relative: {relative:.2g}), sigma_max {ridge * sigma:.7g} for "
        f"ridge {ridge:.7g}"
    )
    if relative <= tol:
        verdict, what = Verdict.GLOBAL, "the global optimum, up to a "
    elif decrease > 1e3 * ROUNDING * abs(value):
        verdict = Verdict.NOT_GLOBAL
        lower = f"one more column lowers the objective by {decrease / count:.2g} or more"
        what = f"not the global optimum: {lower}; "
    elif not dual.balanced:
        verdict = Verdict.UNDECIDED
        what = (
            "undecided: biases without a ridge ask for a residual whose sums over rows and columns "
            f"are 0, and {BALANCING} steps have not made them so; take a bias_ridge above 0: "
        )
    else:
        verdict, what = Verdict.UNDECIDED, "undecided, a longer fit may decide it: "
    numbers = (gap / count, relative, ridge * sigma, ridge, value / count, decrease / count)
    return Certificate(verdict, *numbers, what + facts), escape


class _Pairs(NamedTuple):
    """Ritz values of A22 above 1 and their vectors, largest first."""

    left: Matrix
    values: Matrix
    right: Matrix


class Dual:
    """Y = S - dense_weight left right' at a point, as the matrix A, and the bounds it gives.

    Arrays are those of the backend, and NumPy's functions pass CuPy's on.  On many ranks the rows
    of S, and vectors of that side, are this rank's; vectors of columns are whole on every rank.
    """

    def __init__(self, objective: LowRankObjective, x: Floats):
        self.objective, self.summed = objective, objective.ranks.all_reduce
        penalty, r, self.xp = objective.penalty, objective.rank, objective.backend.xp
        asarray, (P, Q) = self.xp.asarray, objective.split(x)
        P, Q = (side.astype(np.float64) for side in (P, objective.gathered(Q)))
        self.U, self.V, self.bias_columns = P[:, :r], Q[:, :r], (P[:, r:], Q[:, r:])
        self.sides = [objective.side(which) for which in (0, 1)]
        self.counts = self.sides[0].counts, self.summed(self.sides[1].counts)
        amounts = objective.own_counts(0), self.summed(objective.own_counts(1))
        weights = [asarray(penalty.weights(n, r, of_rows=not k)) for k, n in enumerate(amounts)]
        self.roots = [np.sqrt(one[:, :1]) for one in weights]
        self.biases = [one[:, -1] for one in weights] if penalty.biases else []

        row_ones, col_ones = (self.xp.ones((len(side), 1)) for side in (P, Q))
        offsets = [col_ones, Q[:, r:]] if penalty.biases else [0.0 * col_ones]
        self.left, self.right = np.hstack([P, row_ones]), np.hstack([self.V, *offsets])
        self.right[:, -1] += objective.mean
        self.values = self.sides[0].values
        z, by_row, losses = self.sides[0].downward_slopes(self.left, self.right)
        self.dense, self.unseen, squares = objective.loss.dense_weight, 0.0, 0.0
        if self.dense:  # the sum of z^2 over all pairs, and over those without an entry
            grams = self.summed(self.left.T @ self.left) * (self.right.T @ self.right)
            squares = self.total(z * z)
            self.unseen = float(np.sum(grams)) - squares
        self.penalty = 0.5 * (self.total(weights[0] * P * P) + float(np.sum(weights[1] * Q * Q)))
        all_losses = self.objective.ranks.sum(losses) + 0.5 * self.dense * (self.unseen + squares)
        self.value = all_losses + self.penalty
        # An exact fit has a value of rounding alone: that of a slope is relative to the mean.
        some = self.values[:: max(1, len(self.values) // ENTRIES_OF_ZERO)]
        zero = objective.loss.entries(asarray(objective.mean), some)[0]
        of_mean = objective.weight * (EXACT * objective.mean) ** 2
        share = len(self.values) / max(1, len(some))
        self.negligible = EXACT * self.total(share * np.sum(zero)) + of_mean

        by_column = self.sides[1].downward_slopes(self.right, self.left)[1]
        self.data = [by_row, by_column]
        self.y = self.data[0] - self.dense * z if self.dense else self.data[0]  # Y on the entries
        # Biases without a weight are taken to lie within this distance from 0: an assumption, which
        # matters for sums that rounding leaves over.
        self.reach, self.balanced = 0.0, True
        self._plain: Product | None = None  # with Y before its projection, where there is one
        if penalty.biases and penalty.bias_ridge == 0.0:
            largest = self.objective.ranks.sum(_largest(P[:, r:]))
            low, high = objective.ratings.whole.value_range
            spread = max(abs(low - objective.mean), abs(high - objective.mean))
            self.reach = 2.0 * (largest + _largest(Q[:, r:]) + spread)
            self._plain = self._product_with(0, self.y)
            self._project(both=penalty.row_biases)
        self._times, self._back = map(self._product_with, (0, 1), self.data)

    def _product_with(self, which: int, data: Matrix) -> Product:
        """S v (0) or S'v (1), for S with these numbers at the entries, in that order."""
        times = self.sides[which].product_with(data)
        return (lambda v: self.summed(times(v))) if which else times

    def total(self, numbers: Any) -> float:
        """The sum of numbers that each rank has its own of."""
        return self.objective.ranks.sum(float(np.sum(numbers)))

    def bound(self, s: float) -> float:
        """D(s Y), for an s with s A of norm 1 at most."""
        if not self.balanced:
            return -math.inf
        sums = self.sums
        conjugate, conjugates = self.objective.loss.conjugate, 0.0
        length = BLOCK if self.xp is np else DEVICE_BLOCK
        for begin in range(0, len(self.y), length):
            part = slice(begin, begin + length)
            conjugates += float(np.sum(conjugate(s * self.y[part], self.values[part])))
        value = -self.objective.ranks.sum(conjugates)
        value -= 0.5 * s * s * self.dense * self.unseen
        value -= s * self.objective.mean * float(np.sum(sums[1]))
        for which, weights in enumerate(self.biases):
            one = np.abs(s * sums[which])
            with np.errstate(divide="ignore", invalid="ignore"):
                cost = np.where(weights > 0.0, 0.5 * one * one / weights, one * self.reach)
            value -= float(np.sum(cost)) if which else self.total(cost)
        return value

    def _project(self, *, both: bool) -> None:
        """Y without its sums over columns, and over rows if ``both``: those of a bias that costs
        nothing.  Y - a 1' - 1 b' on the entries, by conjugate gradients for b; a follows from b.
        ``balanced`` says whether they are 0 then: long chains of entries take many steps.
        """
        if self.dense:
            raise ValueError(
                "with biases, a loss over all pairs has a certificate only if bias_ridge is above 0"
            )
        ones = np.ones_like(self.y)
        seen, seen_back = (self._product_with(which, ones) for which in (0, 1))
        asarray, to_host = self.xp.asarray, self.objective.backend.to_host
        diagonal = np.maximum(self.counts[1], 1.0)
        rows, cols = asarray(np.maximum(self.counts[0], 1.0))[:, None], asarray(diagonal)[:, None]

        def without_rows(b: Matrix) -> Matrix:
            b = asarray(b).reshape(-1, 1)
            system = cols * b - (seen_back(seen(b) / rows) if both else 0.0)
            return np.asarray(to_host(system[:, 0]))

        shape = (len(cols), len(cols))
        system = LinearOperator(shape, without_rows, dtype=np.float64)
        scale = LinearOperator(shape, lambda b: b / diagonal, dtype=np.float64)
        # The system is singular: a right side of rounding alone must not be divided by rounding.
        floor = 1e-15 * math.sqrt(self.total(self.y**2) * float(np.max(cols)))

        def sums() -> list[Matrix]:
            return [
                self._product_with(which, self.data[which])(self.xp.ones((size, 1)))
                for which, size in enumerate((len(cols), len(rows)))
            ]

        for _ in range(2):  # the second one for what rounding leaves over
            own, rest = sums()
            rest = rest - (seen_back(own / rows) if both else 0.0)
            side = to_host(rest[:, 0])
            b = cg(system, side, rtol=1e-12, atol=floor, maxiter=BALANCING, M=scale)[0]
            b = asarray(b)[:, None]
            a = (own - seen(b)) / rows if both else np.zeros_like(own)
            for which, (mine, theirs) in enumerate(((a, b), (b, a))):
                entries = self.sides[which]
                shares = mine[entries.owners, 0] + theirs[entries.groups.others, 0]
                self.data[which] = self.data[which] - shares
        left = [_largest(one) for one in sums()]
        largest = max(left[1], self.objective.ranks.sum(left[0]) if both else 0.0)
        self.balanced = largest <= LEFT_OVER * self.total(np.abs(self.y))
        self.y = self.data[0]

    # --- A as an operator -------------------------------------------------------------------------

    def times(self, b: Matrix) -> Matrix:
        """A b."""
        b = b / self.roots[1]
        out: Matrix = self._times(b)
        if self.dense:
            out -= self.dense * (self.left @ (self.right.T @ b))
        out /= self.roots[0]
        return out

    def back(self, a: Matrix) -> Matrix:
        """A' a."""
        a = a / self.roots[0]
        out: Matrix = self._back(a)
        if self.dense:
            out -= self.dense * (self.right @ self.summed(self.left.T @ a))
        out /= self.roots[1]
        return out

    def images(self, left: Matrix, right: Matrix) -> tuple[Matrix, Matrix]:
        """(A right, A' left); the sums of Y over columns and rows come with them."""
        r, (rows, cols) = right.shape[1], self.roots
        of_right, of_left = self.times(np.hstack([right, cols])), self.back(np.hstack([left, rows]))
        self.sums = (of_right[:, r] * rows[:, 0], of_left[:, left.shape[1]] * cols[:, 0])
        return of_right[:, :r], of_left[:, : left.shape[1]]

    # --- the way on -------------------------------------------------------------------------------

    def curvatures(self, a: Matrix, b: Matrix) -> Matrix:
        """Bounds of the curvature of phi along each ``a_k b_k'``."""
        bends = np.zeros_like(self.y) + self.objective.loss.largest_curvature(self.values)
        if self.objective.ranks.sum(float(not np.isfinite(bends).all())):
            raise ValueError(
                f"the {self.objective.loss.name} loss has no certificate, which needs a finite "
                "bound of its curvature: give it a method `largest_curvature`"
            )
        curved = self._product_with(0, bends)(b * b)
        c: Matrix = self.summed(np.einsum("ik,ik->k", a * a, curved))
        if self.dense:
            c = c + self.dense * self.summed(np.sum(a * a, axis=0)) * np.sum(b * b, axis=0)
        return np.maximum(c, TINY)

    def escape(self, pairs: _Pairs, most: int | None = None) -> tuple[Escape, float]:
        """Columns sqrt(t) a, sqrt(t) b, and what the best one alone takes off the objective.

        ``|sum t_k a_k b_k'|^2 <= K sum t_k^2 |a_k b_k'|^2`` for K columns: t = (sigma - 1)/(K c)
        lowers it.
        """
        a, b = pairs.left[:, :most] / self.roots[0], pairs.right[:, :most] / self.roots[1]
        above = pairs.values[:most] - 1.0
        if self._plain is not None:  # biases stay as they are: the slope is that of Y itself
            above = self.summed(np.einsum("ik,ik->k", a, self._plain(b))) - 1.0
            left = above > ROUNDING
            a, b, above = a[:, left], b[:, left], above[left]
        to_host = self.objective.backend.to_host
        if not above.size:
            return Escape(to_host(a), to_host(b)), 0.0
        c = self.curvatures(a, b)
        steps = np.sqrt(above / (above.size * c))
        escape = Escape(to_host(a * steps), to_host(b * steps))
        return escape, float((0.5 * above**2 / c).max())


def _norm(dual: Dual, enough: float, steps: int, seed: int) -> tuple[float, _Pairs]:
    """An upper bound of |A|, and the Ritz vectors of A22."""
    summed = dual.summed
    U, V = dual.U * dual.roots[0], dual.V * dual.roots[1]
    left, right = _orthonormal(U, summed), _orthonormal(V, _same)
    a, _, b = np.linalg.svd(summed(left.T @ U) @ (V.T @ right), full_matrices=False)
    left, right = left @ a, right @ b.T
    of_right, of_left = dual.images(left, right)
    kept = _settled(dual, (left, right), (of_right, of_left), 1.0 + 0.3 * enough)
    left, right, of_right, of_left = (one[:, kept] for one in (left, right, of_right, of_left))
    A11 = summed(left.T @ of_right)
    of_right -= left @ A11
    of_left -= right @ A11.T
    block = np.zeros((2, 2))
    block[0, 0] = _norm_of_gram(A11.T @ A11)
    block[1, 0] = _norm_of_gram(summed(of_right.T @ of_right))
    block[0, 1] = _norm_of_gram(of_left.T @ of_left)

    def whole(norm: float) -> float:
        block[1, 1] = norm
        return float(np.linalg.norm(block, 2)) * (1.0 + ROUNDING)

    def times(b: Matrix) -> Matrix:
        out = dual.times(b)
        out -= left @ summed(left.T @ out)
        return out

    def back(a: Matrix) -> Matrix:
        out = dual.back(a)
        return out - right @ (right.T @ out)

    shape = len(dual.U), len(dual.V)
    if dual.objective.ranks.size == 1 and shape[0] * shape[1] <= DENSE:
        outside = dual.xp.eye(shape[1]) - right @ right.T
        a, sizes, b = np.linalg.svd(times(outside), full_matrices=False)
        count = int(np.count_nonzero(sizes > 1.0 + ROUNDING))
        return whole(float(sizes[0])), _Pairs(a[:, :count], sizes[:count], b[:count].T)

    def is_enough(low: float, high: float) -> bool:
        known = whole(low)
        if low - 1.0 > max(CLEARLY * enough, 1e-6) and whole(high) <= NEAR * known:
            return True
        return whole(high) - 1.0 <= max(enough, SLACK * (known - 1.0))

    start = dual.xp.asarray(np.random.default_rng(seed).standard_normal((shape[1], RUNS)))
    start -= right @ (right.T @ start)
    backend = dual.objective.backend
    high, pairs = _bidiagonalise(times, back, start, summed, backend, steps, is_enough)
    return whole(high), pairs


def _settled(
    dual: Dual, sides: tuple[Matrix, Matrix], images: tuple[Matrix, Matrix], enough: float
) -> NDArray[np.intp]:
    """The directions of the factors with which the bound of sigma is least, or as many as leave it
    below what is enough: the others are left to A22.

    At a stationary point A v = u and A'u = v for all.  A also leads out of the span of columns that
    are vanishing, or that rounding alone has made, but hardly makes them longer.
    """
    to_host = dual.objective.backend.to_host
    sizes = np.einsum("ik,ik->k", sides[0], images[0])
    left, right = (np.einsum("ik,ik->k", one, one) for one in images)
    left, sizes = to_host(dual.summed(np.stack([left, sizes])))
    errors = np.maximum(np.maximum(left, to_host(right)) - sizes**2, 0.0)
    order = np.argsort(errors, kind="stable")
    corner = np.sqrt(np.concatenate([[0.0], np.cumsum(errors[order])]))
    outside = np.maximum.accumulate(np.append(sizes[order], UNKNOWN_SIZE)[::-1])[::-1]
    bound = 0.5 * (1.0 + outside + np.hypot(1.0 - outside, 2.0 * corner))
    return order[: int(np.flatnonzero(bound <= max(float(bound.min()), enough))[-1])]


def _bidiagonalise(
    times: Product, back: Product, v: Matrix, summed: Product, backend: Backend, steps: int,
    is_enough: Callable[[float, float], bool],
) -> tuple[float, _Pairs]:  # fmt: skip
    """Golub and Kahan's bidiagonalisation from each column of v, all of them in the same products
    and orthogonalised in full; |A22| <= the bound."""
    n, runs = v.shape
    log_delta = math.log(FAILURE) / runs - 0.5 * math.log(2.0 * n / math.pi)
    rights, lefts = _Basis(_same), _Basis(summed)
    v = v / np.maximum(np.linalg.norm(v, axis=0), TINY)
    alphas, betas = np.zeros((0, runs)), np.zeros((0, runs))
    for k in range(min(steps, n)):
        rights.add(v)
        u = lefts.without(times(v))
        alpha = np.sqrt(summed(np.einsum("ib,ib->b", u, u)))
        u /= np.maximum(alpha, TINY)
        lefts.add(u)
        w = rights.without(back(u))
        beta = np.linalg.norm(w, axis=0)
        alphas, betas = (
            np.vstack([before, backend.to_host(now)])
            for before, now in ((alphas, alpha), (betas, beta))
        )
        ended = np.minimum(alphas[-1], betas[-1]) <= 1e-13 * alphas.max(axis=0)
        if ended.any() or (k + 1) % LOOK_EVERY == 0 or k + 1 == min(steps, n):
            sizes = [_singular_values(*one) for one in zip(alphas.T, betas.T, strict=True)]
            low = max(one[0] for one in sizes)
            if ended.any():  # in a space that A22 does not lead out of, the largest one is found
                high = min(one[0] for one, end in zip(sizes, ended, strict=True) if end)
                break
            given = zip(sizes, alphas.T, betas.T, strict=True)
            high = max(_bound(*one, log_delta) for one in given)
            if is_enough(low, high):
                break
        v = w / beta
    if not low > 1.0 + ROUNDING:
        return high, _Pairs(u[:, :0], alpha[:0], v[:, :0])
    alphas, betas = map(backend.xp.asarray, (alphas, betas))
    images = alphas.T[:, :, None] * lefts.vectors
    images[:, 1:] += betas[:-1].T[:, :, None] * lefts.vectors[:, :-1]
    vectors, images = (one.reshape(-1, one.shape[2]).T for one in (rights.vectors, images))
    return high, _ritz_pairs(vectors, images, summed)


class _Basis:
    """Orthonormal vectors of each run, in memory that doubles."""

    def __init__(self, summed: Product):
        self.summed, self.count = summed, 0
        self.memory: Any = None

    @property
    def vectors(self) -> Matrix:
        """(runs, vectors, numbers)."""
        vectors: Matrix = self.memory[:, : self.count]
        return vectors

    def add(self, columns: Matrix) -> None:
        """One more for each run."""
        if self.memory is None or self.count == self.memory.shape[1]:
            n, runs = columns.shape
            grown = np.empty_like(columns, shape=(runs, max(8, 2 * self.count), n))
            if self.count:
                grown[:, : self.count] = self.memory
            self.memory = grown
        self.memory[:, self.count] = columns.T
        self.count += 1

    def without(self, columns: Matrix) -> Matrix:
        """Each column without its parts along the vectors of its run."""
        if self.count:
            shares = self.summed(self.vectors @ columns.T[:, :, None])
            columns -= (shares.transpose(0, 2, 1) @ self.vectors)[:, 0].T
        return columns


def _ritz_pairs(vectors: Matrix, images: Matrix, summed: Product) -> _Pairs:
    """The best approximations of singular vectors of A22, of values above 1, in the span of vectors
    whose images under A22 are known."""
    squares, axes = np.linalg.eigh(vectors.T @ vectors)
    kept = squares > FAINT * squares[-1]
    basis = axes[:, kept] / np.sqrt(squares[kept])
    images = images @ basis
    squares, turn = np.linalg.eigh(summed(images.T @ images))
    first = int(np.searchsorted(squares, (1.0 + ROUNDING) ** 2, side="right"))
    sizes, turn = np.sqrt(squares[first:][::-1]), turn[:, first:][:, ::-1]
    return _Pairs(images @ turn / sizes, sizes, vectors @ (basis @ turn))


def _singular_values(alphas: Matrix, betas: Matrix) -> Matrix:
    """Of the bidiagonal matrix."""
    return np.asarray(np.linalg.svd(np.diag(alphas) + np.diag(betas[:-1], 1), compute_uv=False))


def _bound(sizes: Matrix, alphas: Matrix, betas: Matrix, log_delta: float) -> float:
    """The root of ``prod(x^2 - sizes^2) = prod(alpha beta)/delta`` above all sizes."""
    logs = float(np.sum(np.log(alphas) + np.log(betas))) - log_delta
    low = float(sizes[0]) ** 2
    high = low + math.exp(logs / len(sizes))  # no factor is less than that of the largest size

    def above(x: float) -> float:
        return float(np.log(np.maximum(x - sizes**2, TINY)).sum()) - logs

    if above(low) >= 0.0:  # all of the product is rounding
        return math.sqrt(low) * (1.0 + 1e-13)
    root: float = brentq(above, low, high * (1.0 + 1e-12), rtol=1e-13)
    return math.sqrt(root) * (1.0 + 1e-13)


def _orthonormal(factor: Matrix, summed: Product) -> Matrix:
    """An orthonormal basis of what the columns span, up to directions that are faint."""
    for faint in (FAINT, 0.0):  # the second time for rounding
        squares, axes = np.linalg.eigh(summed(factor.T @ factor))
        kept = squares > max(faint * faint * float(squares[-1]) if squares.size else 0.0, TINY)
        factor = factor @ (axes[:, kept] / np.sqrt(squares[kept]))
    return factor


def _norm_of_gram(gram: Matrix) -> float:
    return math.sqrt(max(float(np.linalg.eigvalsh(gram)[-1]), 0.0)) if gram.size else 0.0


def _largest(numbers: Matrix) -> float:
    return float(np.abs(numbers).max()) if numbers.size else 0.0


def _same(array: Matrix) -> Matrix:
    return array
