"""The objective of a low-rank model: losses of the entries and a penalty, as a function of x."""

from __future__ import annotations

import copy
import dataclasses
import math
import operator
from functools import cached_property
from typing import Self, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from momentous.distributed import Alone, Ranks, Variables
from momentous.io.types import AnyArray, AnyDType, Matrix
from momentous.lowrank.backends import Backend, PlainTerms, RowStep, Side, find_backend
from momentous.lowrank.checks import check_number, thread_count
from momentous.lowrank.data.draws import mix, normals
from momentous.lowrank.data.ratings import Floats, Ratings
from momentous.lowrank.factors import balanced, products
from momentous.lowrank.losses import Loss, find_loss
from momentous.lowrank.penalty import Penalty
from momentous.lowrank.ranks.items import SpreadItems
from momentous.lowrank.ranks.ratings import RankRatings

ROWS, COLS = 0, 1


class LowRankObjective:
    """Fit a matrix of rank r to observed entries: value and gradient in one pass over them.

    With N entries X_ij, factors U (m x r) and V (n x r), biases b and c,
    ``z_ij = mean + b_i + c_j + u_i . v_j`` and ``D = U'U - V'V``

        ``F = (1/N) sum_{ij} l(z_ij, X_ij) + (balance/2N) |D|_F^2
        + (1/2N) (sum_i w_i . p_i^2 + sum_j w_j . q_j^2)``

    where l is the loss (times the entry's weight where entries have weights, whose sum is N then),
    p_i = (u_i, b_i) and q_j = (v_j, c_j) are the parameters of a row and of a
    column, and w their weights (see `Penalty`).  A loss with a dense part adds
    ``(dense_weight/2N) sum_{all pairs} z_ij^2``, which costs no pass over the pairs.  With the
    defaults, no biases, mean 0 and ridge 0, this is the matrix completion problem of [1]_, with the
    logistic loss its one-bit problem.

    A point x is one flat vector: all p_i, then all q_j.

    On many ranks the rows are spread, with their entries, and every rank makes the same calls.  x
    is this rank's part of the point: the parameters of its rows, then those of its share of the n
    columns (``ranks.share(n)``).  Values are those of the whole, and the same on all ranks.  With w
    parameters per row, the numbers that travel are

    ===========================  ===================================================================
    value and gradient           all_gather n w, reduce_scatter n w (as much as one all_reduce of
                                 n w), and about w^2 in two all_reduces
    half a sweep over rows       all_gather n w
    half a sweep over columns    reduce_scatter n (w (w + 1) / 2 + w)
    by k conjugate gradients     reduce_scatter n (w + 1), and k times all_gather n w and
                                 reduce_scatter n w; with all_gather n w where the columns were
                                 rescaled
    its value, or the penalty    1
    start                        all_reduce n per product of the matrix with a vector
    ===========================  ===================================================================

    Newton's steps for columns, where one may go too far, take all_gather n w and all_reduce n more.

    Parameters
    ----------
    ratings : Ratings
        For the logistic loss labels +1 and -1, as `Ratings.signs` makes them.  `RankRatings` are
        spread over ranks already.
    rank : int
        From 1 to ``min(ratings.shape)``.
    loss : str or Loss
        "squared", "logistic", "implicit", or one of your own.
    balance : float
        Weight of the term that keeps the factors of equal size; it is 0 at every minimiser.
    ridge : float or Penalty
        Weight of the squared factors; a `Penalty` has biases, and weights that differ by row.
    dtype : float32 or float64, optional
        Of the computation; by default that of the ratings. Sums over all entries that make the
        value are in double precision in any case.
    threads : int, optional
        By default as many as this process may use. The same number gives the same bits on the same
        machine.
    mean : float
        What is predicted without factors and biases.
    backend : str or Backend
        "numba" (compiled), "numpy", "cuda", or "auto": on the CPU the compiled one where numba is
        installed.
    device : {"cpu", "cuda", "auto"}
        "cuda" is an NVIDIA GPU, by CuPy: points and gradients are CuPy arrays then.  "auto" takes
        it where there is one and a million entries or more (on ranks: per rank).
    ranks : Ranks, optional
        Spread ratings that every rank has over these.

    References
    ----------
    .. [1] Li & Lin, Restarted nonconvex accelerated gradient descent, JMLR 24 (2023), section 4.

    Examples
    --------
    >>> from momentous import minimize
    >>> from momentous.lowrank import LowRankObjective, Ratings
    >>> ratings = Ratings([0, 0, 1, 1, 2], [0, 1, 0, 1, 0], [1.0, 2.0, 2.0, 4.0, 3.0])
    >>> problem = LowRankObjective(ratings, rank=1)
    >>> result = minimize(problem.value_and_gradient, problem.start(), jac=True, tol=1e-9)
    >>> problem.predict(result.x, 2, 1).round(4)
    np.float64(6.0)
    """

    def __init__(
        self,
        ratings: Ratings,
        rank: int,
        loss: str | Loss = "squared",
        balance: float = 1.0,
        ridge: float | Penalty = 0.0,
        dtype: DTypeLike | None = None,
        threads: int | None = None,
        *,
        mean: float = 0.0,
        backend: str | Backend = "auto",
        device: str = "cpu",
        ranks: Ranks | None = None,
    ):
        if not isinstance(ratings, Ratings):
            raise TypeError(f"expected Ratings, not {type(ratings).__name__}")
        if ranks is not None and not isinstance(ratings, RankRatings):
            ratings = RankRatings.share_of(ratings, ranks)
        self.ranks = ratings.ranks if isinstance(ratings, RankRatings) else Alone()
        self.rank = _rank(rank, ratings.whole.shape)
        self.loss = find_loss(loss).of(ratings.by_row.values)
        self.loss.check(ratings)
        check_number("balance", balance, 0.0)
        self.balance, self.mean = float(balance), float(mean)
        self.penalty = ridge if isinstance(ridge, Penalty) else Penalty(ridge)
        self.dtype: AnyDType = np.dtype(ratings.dtype if dtype is None else dtype)
        self.ratings = ratings.astype(self.dtype)
        self.nnz, self.weight = ratings.whole.nnz, ratings.whole.weight  # N
        # The mean number of entries: all ranks choose alike.
        self.backend = find_backend(backend, device, self.nnz // self.ranks.size)
        if self.ranks.size > 1:
            self.backend.use_local_device()
        self._asked_threads = thread_count(threads)
        # Groups of the pass are the longer side: the shorter factor is the one that must fit the
        # caches, and of whose gradient each thread has a copy.
        self._long = 0 if ratings.shape[0] >= ratings.shape[1] else 1
        self._sides: dict[int, Side] = {}
        self.threads = self.side(self._long).threads
        self._gathered: tuple[Floats, Floats] | None = None  # the last columns, before and after

    def with_rank(self, rank: int) -> Self:
        """The same objective for factors of another rank; the entries are shared."""
        other = copy.copy(self)
        other.rank = _rank(rank, self.ratings.whole.shape)
        for name in ("weights", "_start", "_spread_items"):
            other.__dict__.pop(name, None)
        return other

    def with_ridge(self, ridge: float) -> Self:
        """The same objective with another ridge of the factors."""
        other = self.with_rank(self.rank)
        other.penalty = dataclasses.replace(self.penalty, ridge=ridge)
        return other

    @property
    def ridge(self) -> float:
        """Weight of the squared factors."""
        return self.penalty.ridge

    @property
    def width(self) -> int:
        """Parameters per row: the rank, and one more with biases."""
        return self.rank + self.penalty.biases

    @property
    def dimension(self) -> int:
        """Length of x: ``(m + n) (r + biases)``; on ranks, of this rank's part of it."""
        items = self.items
        return (self.ratings.shape[0] + items.stop - items.start) * self.width

    def side(self, which: int) -> Side:
        """The entries by row (0) or by column (1) as the backend works on them, made once."""
        if which not in self._sides:
            self._sides[which] = self.backend.side_of(
                self.ratings, which, self.loss, self._asked_threads, self._sides.get(1 - which)
            )
        return self._sides[which]

    def counts(self, which: int) -> AnyArray:
        """The number of entries, on all ranks, of each row (0) or column (1) in x; with weights
        their sum."""
        return self._col_counts if which == COLS else self.own_counts(ROWS)

    def own_counts(self, which: int) -> AnyArray:
        """The same of this rank's entries, for all columns."""
        weights, ratings = self.ratings.weights, self.ratings
        if weights is None:
            return self.side(which).counts.astype(np.float64)
        return np.bincount(ratings.cols if which else ratings.rows, weights, ratings.shape[which])

    @cached_property
    def _counts_on_device(self) -> list[Floats]:
        return [self.backend.xp.asarray(self.counts(k), np.float64) for k in (ROWS, COLS)]

    @cached_property
    def _col_counts(self) -> AnyArray:
        share: AnyArray = self.ranks.reduce_scatter(self.own_counts(COLS))
        return share

    @cached_property
    def weights(self) -> tuple[Floats, Floats]:
        """The weights of the parameters of rows and columns, one per parameter."""
        rows, cols = (
            self.penalty.weights(self.counts(which), self.rank, of_rows=which == 0)
            for which in (0, 1)
        )
        xp, dtype = self.backend.xp, self.dtype
        return xp.asarray(rows.astype(dtype)), xp.asarray(cols.astype(dtype))

    def __repr__(self) -> str:
        threads = f", {self.threads} threads" if self.threads > 1 else ""
        return (
            f"<LowRankObjective {self.loss}, rank {self.rank}, {self.dtype}, "
            f"{self.backend.name}{threads}, of {self.ratings!r}>"
        )

    # --- points -----------------------------------------------------------------------------------

    def start(self) -> Floats:
        """The balanced factors of the truncated SVD of what the loss says, without biases."""
        return self._start.copy()

    @cached_property
    def _start(self) -> Floats:
        values = self.loss.start_values(self.ratings, self.mean)
        U, V = self.backend.svd_start(self.ratings, self.rank, values, self.ranks)
        return self._without_biases(U, V[self.items])

    def random_start(self, rng: np.random.Generator, scale: float = 0.1) -> Floats:
        """Small random factors and no biases: enough for a sweep to begin with.

        They belong to the ids of rows and the numbers of columns, whoever draws them.
        """
        seed = self.ratings.shared_seed(rng)
        cols = mix(np.arange(self.ratings.shape[1], dtype=np.uint64)[self.items])
        U = scale * normals(self.ratings.row_keys, self.rank, seed)
        return self._without_biases(U, scale * normals(cols, self.rank, ~seed))

    def _without_biases(self, *factors: Floats) -> Floats:
        extra = self.width - self.rank
        xp = self.backend.xp
        P, Q = (xp.pad(xp.asarray(side), [(0, 0), (0, extra)]) for side in factors)
        return self.join(P, Q)

    def split(self, x: ArrayLike) -> tuple[Floats, Floats]:
        """The parameters (P, Q) in x, as read-only views where x has the right dtype.

        Without biases these are the factors (U, V).
        """
        P, Q = self._parts(self._check_point(x))
        if self.backend.xp is np:
            P.flags.writeable = Q.flags.writeable = False
        return P, Q

    def join(self, P: ArrayLike, Q: ArrayLike) -> Floats:
        """The point x that has these parameters."""
        x: Floats = self.backend.xp.empty(self.dimension, self.dtype)
        for part, given, name in zip(self._parts(x), (P, Q), "UV", strict=True):
            array = self.backend.xp.asarray(given)
            if array.shape != part.shape:
                raise ValueError(f"{name} must be of shape {part.shape}, not {array.shape}")
            part[...] = array
        return x

    def predict(self, x: ArrayLike, rows: ArrayLike, cols: ArrayLike) -> Floats:
        """z_ij for each pair: a rating, or for the logistic loss the log odds of +1."""
        P, Q = self.split(x)
        sides = (self.backend.to_host(side) for side in (P, self.gathered(Q)))
        return products(*self._widen(*sides), rows, cols)[()]

    def _check_point(self, x: ArrayLike) -> Floats:
        """The point as an array of the backend."""
        flat = self.backend.asarray(x, self.dtype)
        if flat.shape != (self.dimension,):
            m, w = self.ratings.shape[0], self.width
            of_rank = ", this rank's part" if self.ranks.size > 1 else ""
            raise ValueError(
                f"x must be a flat vector of length ({m} + {self.dimension // w - m}) * {w} = "
                f"{self.dimension}{of_rank}, not of shape {flat.shape}"
            )
        return flat

    def _parts(self, x: Floats) -> tuple[Floats, Floats]:
        cut = self.ratings.shape[0] * self.width
        return x[:cut].reshape(-1, self.width), x[cut:].reshape(-1, self.width)

    # --- the function -----------------------------------------------------------------------------

    def value(self, x: ArrayLike, *, balance: float | None = None) -> float:
        """F(x); not finite, without a warning, where x is so large that numbers overflow.

        ``balance`` takes the place of the objective's own.
        """
        P, Q = self.split(x)
        balance = self.balance if balance is None else balance
        with np.errstate(over="ignore", invalid="ignore"):
            left, right = self._widen(P, self.gathered(Q))
            return self._sum(self.losses(P, Q), P, Q, *self._grams(left, right), balance)

    def losses(self, P: Floats, Q: Floats) -> float:
        """The sum of the losses of this rank's entries alone."""
        left, right = self._widen(P, self.gathered(Q))
        return self.side(self._long).value(*self._long_first(left, right))

    def gradient(self, x: ArrayLike) -> Floats:
        """Gradient of F at x."""
        return self.value_and_gradient(x)[1]

    def value_and_gradient(self, x: ArrayLike) -> tuple[float, Floats]:
        """F and its gradient at x, for ``minimize(..., jac=True)``."""
        xp, r, scale = self.backend.xp, self.rank, 1.0 / self.weight
        flat = self._check_point(x)
        gradient: Floats = xp.empty(self.dimension, self.dtype)
        if self.penalty.uniform and not self.mean and self.ranks.size == 1:
            terms = PlainTerms(scale, self.balance, self.ridge, self.loss.dense_weight)
            shape, cut = (-1, r), self.ratings.shape[0]
            value = self.backend.plain_objective(
                self.side, flat.reshape(shape), cut, terms, gradient.reshape(shape)
            )
            if value is not None:
                return value, gradient
        (P, Q), parts = self._parts(flat), self._parts(gradient)
        with np.errstate(over="ignore", invalid="ignore"):
            left, right = self._widen(P, self.gathered(Q))
            grams = self._grams(left, right)
            pull = 2.0 * self.balance * (grams[0] - grams[1])[:r, :r]
            for which, (part, side) in enumerate(zip(parts, (P, Q), strict=True)):
                turn = -pull if which else pull
                if self.penalty.uniform:
                    xp.matmul(side, self._matrix(scale * (self.ridge * np.eye(r) + turn)), out=part)
                else:
                    part[:, :r] = side[:, :r] @ self._matrix(scale * turn)
                    part[:, r:] = 0.0
                    part += self.weights[which] * side * self.dtype.type(scale)
            losses = self._add_losses(left, right, grams, scale, *parts)
            return self._sum(losses, P, Q, *grams, self.balance), gradient

    def _add_losses(
        self,
        left: Floats,
        right: Floats,
        grams: tuple[Matrix, Matrix],
        scale: float,
        grad_P: Floats,
        grad_Q: Floats,
    ) -> float:
        """Add the gradient of the losses; returns their sum over this rank's entries."""
        xp, width, kept = self.backend.xp, self.width, self._item_columns
        own = grad_P if left.shape == grad_P.shape else xp.zeros_like(left)
        alone = self.ranks.size == 1
        far = grad_Q if alone and right.shape == grad_Q.shape else xp.zeros_like(right)
        losses = self.side(self._long).add_gradient(
            *self._long_first(left, right), scale, *self._long_first(own, far)
        )
        if own is not grad_P:
            grad_P += own[:, :width]
        if far is not grad_Q:
            sent = xp.ascontiguousarray(far[:, kept])
            grad_Q += sent if alone else self.ranks.reduce_scatter(sent)
        if self.loss.dense_weight:
            factor = scale * self.loss.dense_weight
            grad_P += left @ self._matrix(factor * grams[1][:, :width])
            grad_Q += right[self.items] @ self._matrix(factor * grams[0][:, kept])
        return losses

    def _matrix(self, small: Matrix) -> Floats:
        """A small matrix where the factors are, in their precision."""
        there: Floats = self.backend.xp.asarray(small.astype(self.dtype))
        return there

    def _widen(self, P: Floats, Q: Floats) -> tuple[Floats, Floats]:
        """Two factors whose product is z: with biases (U, b, 1) and (V, 1, c + mean)."""
        if not (self.penalty.biases or self.mean):
            return P, Q
        xp = self.backend.xp
        left, right = (xp.ones((len(side), self.width + 1), self.dtype) for side in (P, Q))
        left[:, : self.width] = P
        right[:, : self.rank] = Q[:, : self.rank]
        right[:, -1] = self.mean
        if self.penalty.biases:
            right[:, -1] += Q[:, -1]
        return left, right

    @property
    def _item_columns(self) -> list[int]:
        """The columns of `_widen`'s right factor that are parameters: V and c."""
        return [*range(self.rank), *([-1] if self.penalty.biases else [])]

    def _long_first(self, rows: Floats, cols: Floats) -> tuple[Floats, Floats]:
        return (cols, rows) if self._long else (rows, cols)

    def _grams(self, left: Floats, right: Floats) -> tuple[Matrix, Matrix]:
        """The Gram matrices of the factors of all rows and of all columns, as NumPy arrays."""
        return self.gram(left), self.backend.to_host(self.backend.gram(right))

    def _sum(
        self, losses: float, P: Floats, Q: Floats, gram_left: Matrix, gram_right: Matrix,
        balance: float,
    ) -> float:  # fmt: skip
        """F, from this rank's losses and the Gram matrices of the whole."""
        gram_U, gram_V = (gram[: self.rank, : self.rank] for gram in (gram_left, gram_right))
        squares = 0.0
        if not self.penalty.uniform:
            squares = sum(map(self.backend.weighted_squares, self.weights, (P, Q)))
        losses, squares = map(float, self.ranks.all_reduce(np.array([losses, squares])))
        if self.penalty.uniform:
            squares = self.ridge * float(gram_U.trace() + gram_V.trace())
        if self.loss.dense_weight:
            losses += 0.5 * self.loss.dense_weight * float((gram_left * gram_right).sum())
        imbalance = float(((gram_U - gram_V) ** 2).sum())
        return (losses + 0.5 * (balance * imbalance + squares)) / self.weight

    def penalty_of(self, side: Floats, which: int) -> float:
        """The penalty's part of F: of the rows (0) or of the columns (1)."""
        if self.penalty.uniform:
            squares = self.ridge * float(self.backend.xp.sum(side * side, dtype=np.float64))
        else:
            squares = self.backend.weighted_squares(self.weights[which], side)
        return self.ranks.sum(0.5 * squares / self.weight)

    # --- one side for the other -------------------------------------------------------------------

    def half_sweep(
        self,
        which: int,
        own: Floats | None,
        other: Floats,
        *,
        with_value: bool = True,
        steps: int | None = None,
    ) -> tuple[Floats, float]:
        """New parameters of the rows (0) or columns (1), and what the step says about F.

        That is N times this side's part of the least F for a quadratic loss, and the sum of the
        losses before the step for others; see `Side.solve_rows`.  With ``steps``, so many of
        conjugate gradients are taken in the coordinates of `principal_axes`, and it is the losses
        before for all; see `Side.improve_rows`.
        """
        fixed = other if which == COLS else self.gathered(other)
        current = own if own is None or which == ROWS else self.gathered(own)
        weights = self.weights[which]
        if steps is None:
            return self.solve_side(which, current, fixed, weights, with_value=with_value)
        axes, squares = self.principal_axes(which, other)
        current = None if current is None else self.turned(current, axes)
        fixed = self.turned(fixed, axes)
        found, value = self.solve_side(
            which, current, fixed, weights, with_value=with_value, steps=steps, squares=squares
        )
        return self.turned(found, axes.T), value

    def solve_side(
        self,
        which: int,
        current: Floats | None,
        fixed: Floats,
        weights: Floats,
        *,
        with_value: bool = True,
        steps: int | None = None,
        squares: Matrix | None = None,
    ) -> tuple[Floats, float]:
        """The same with any weights of the parameters, in the coordinates as they are.

        Of columns, those of all ranks are given.  With ``steps``, ``squares`` are those of
        `Side.improve_rows`.
        """
        features, offsets = self._features(fixed)
        side = self.side(which)
        if which == COLS and self.ranks.size > 1:
            ours = "weights" in self.__dict__ and weights is self.weights[COLS]
            weights = self.backend.to_host(weights)
            side = self._spread_items if ours else self._spread(weights)
        step = RowStep(weights, features, offsets, current, with_value)
        if steps is None:
            found, value = side.solve_rows(step)
        else:
            assert squares is not None
            found, value = side.improve_rows(step, squares, steps)
        found = self.backend.xp.asarray(found)
        return found, self.ranks.sum(value) if with_value else 0.0

    def _spread(self, weights: Floats) -> SpreadItems:
        counts = self.counts(COLS)
        return SpreadItems(self.side(COLS), self.backend, self.ranks, weights, counts)

    @cached_property
    def _spread_items(self) -> SpreadItems:
        return self._spread(self.backend.to_host(self.weights[COLS]))

    def principal_axes(self, which: int, other: Floats) -> tuple[Floats, Matrix]:
        """Axes for the factors, orthonormal, in which those of the other side are uncorrelated over
        all entries, and the mean squares of the features along them.

        There the system of a row is nearly diagonal, as far as its entries are like all others; so
        few steps of conjugate gradients do.  Of a loss with a dense part it is the mean system of
        all rows that is diagonal.
        """
        U = other[:, : self.rank]
        second = self.gram(U, self._counts_on_device[1 - which]) / self.weight
        mean = second
        if self.loss.dense_weight:
            mean = second * self._curvature_per_row(which)
            mean = mean + self.loss.dense_weight * self.gram(U, self.backend.xp.ones(len(U)))
        axes = np.eye(self.rank)  # where something is not finite: no others are better then
        if np.all(np.isfinite(mean)):
            axes = np.linalg.eigh(mean)[1]
        squares = np.ones(self.width)
        squares[: self.rank] = np.sum(axes * (second @ axes), axis=0)
        # On a device products in double precision would take as long as a pass over the entries.
        dtype = np.float64 if self.backend.xp is np else self.dtype
        return self.backend.asarray(axes, dtype), squares

    def _curvature_per_row(self, which: int) -> float:
        largest = self.loss.largest_curvature(self.ratings.by_row.values)
        own = float(np.sum(np.broadcast_to(largest, self.ratings.values.shape)))
        return self.ranks.sum(own) / self.ratings.whole.shape[which]

    def turned(self, side: Floats, axes: Floats) -> Floats:
        """The parameters of a side with its factors in other coordinates."""
        r = self.rank
        turned: Floats = (side[:, :r] @ axes).astype(self.dtype)
        if self.width > r:
            turned = self.backend.xp.hstack([turned, side[:, r:]])
        return turned

    def _features(self, other: Floats) -> tuple[Floats, Floats | None]:
        """What the parameters of one side are multiplied with, and what is added."""
        if self.penalty.biases:
            features = other.copy()
            features[:, -1] = 1.0
            return features, other[:, -1] + self.dtype.type(self.mean)
        if self.mean:
            return other, self.backend.xp.full(len(other), self.mean, self.dtype)
        return other, None

    # --- what is spread, on many ranks ------------------------------------------------------------

    @property
    def layout(self) -> Variables | None:
        """How x is spread, for `minimize` and `accelerate`; None: not at all."""
        return Variables(self.ranks) if self.ranks.size > 1 else None

    @property
    def items(self) -> slice[int, int]:
        """Which columns are in x: this rank's share of them."""
        return self.ranks.share(self.ratings.shape[1])

    def factors(self, x: ArrayLike) -> tuple[Floats, Floats]:
        """The parameters (P, Q) in x, as NumPy arrays of our own, Q of all columns."""
        P, Q = self.split(x)
        U, V = (np.array(self.backend.to_host(side)) for side in (P, self.gathered(Q)))
        return U, V

    def gathered(self, Q: Floats) -> Floats:
        """The parameters of all columns, from those of the columns in x; the last are kept."""
        if self.ranks.size == 1:
            return Q
        if self._gathered is None or self._gathered[0] is not Q:
            shares = self.ranks.shares(self.ratings.shape[1])
            self._gathered = (
                Q,
                self.ranks.all_gather(self.backend.xp.ascontiguousarray(Q), shares),
            )
        return self._gathered[1]

    def balanced(self, U: Floats, V: Floats) -> tuple[Floats, Floats]:
        """Balanced factors of the same product, for `factors`."""
        return balanced(U, V, self.ranks)

    def gram(self, factor: Floats, weights: Floats | None = None) -> NDArray[np.float64]:
        """``sum_i w_i u_i u_i'`` over all rows of a side, as a NumPy array."""
        own = np.asarray(self.backend.to_host(self.backend.gram(factor, weights)), np.float64)
        whole: NDArray[np.float64] = self.ranks.all_reduce(own)
        return whole

    def norm(self, x: Floats) -> float:
        """The length of a vector like x."""
        squares = self.backend.xp.sum(self.backend.xp.square(x, dtype=np.float64))
        return math.sqrt(self.ranks.sum(float(squares)))

    # --- entries that take no part ----------------------------------------------------------------

    def error(self, x: Floats, ratings: Ratings, limits: tuple[float, float]) -> float:
        """The loss's error on other entries of the same matrix, block by block."""
        P, Q = self._parts(x)
        left, right = self._widen(P, self.gathered(Q))
        own = self.backend.sum_of_errors(self.loss, left, right, ratings, limits)
        return self.loss.error_of_mean(self.ranks.sum(own) / ratings.whole.weight)


def _rank(rank: SupportsIndex, shape: tuple[int, int]) -> int:
    try:
        r = operator.index(rank)
    except TypeError:
        raise TypeError(f"the rank must be a whole number, not {rank!r}") from None
    if not 1 <= r <= min(shape):
        raise ValueError(
            f"the rank must be from 1 to {min(shape)}, the smaller side of a {shape[0]} x "
            f"{shape[1]} matrix, not {r}"
        )
    return r
