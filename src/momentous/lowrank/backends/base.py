"""What a backend does: passes over the entries of one side, row solves, plain arrays.

A `Backend` makes a `Side` of the entries grouped by rows (or by columns): whatever it needs to work
on them, on its device.  Objectives and sweeps call sides, and do their own arithmetic,
which is on factors alone, with the functions of ``backend.xp``.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, DTypeLike, NDArray

from momentous.distributed import Ranks
from momentous.io.types import AnyArray, Integers, Matrix
from momentous.lowrank.backends.conjugate import RowSlopes, conjugate_change
from momentous.lowrank.backends.sums import (
    DensePart,
    blocks,
    evaluate,
    furthest_moves,
    numbers_per_row,
    partner_sums,
    solve_lines,
)
from momentous.lowrank.data.ratings import Compressed, Floats, Ratings
from momentous.lowrank.factors import gram, products, svd_start, weighted_gram
from momentous.lowrank.losses import Loss

# Newton's step lowers the loss where no prediction moves by more than the R with e^R - R - 1 = R^2.
FULL_STEP = 1.79
# Scores that are held at a time where the best of many are looked for.  They are computed by the
# million: between short products the threads of BLAS wait in loops that take as much time again.
SCORES = 1 << 24
CACHED_SCORES = 1 << 19  # that are looked through at a time
MIN_GROUPS = 64  # of columns, of whose maxima a bound is made
ERROR_BLOCK = 1 << 15  # entries whose errors are computed at a time: with factors they fit a cache
NUMBERS = 1 << 22  # in the sums of rows that are held at a time


class RowStep(NamedTuple):
    """What a half sweep is asked for; see `Side.solve_rows`."""

    weights: Floats  # (rows, parameters)
    features: Floats  # (others, parameters)
    offsets: Floats | None = None  # (others,); None: zeros
    current: Floats | None = None  # (rows, parameters); None: zeros
    with_value: bool = True


class PlainTerms(NamedTuple):
    """The terms of an objective without biases and mean, times a scale; see `LowRankObjective`."""

    scale: float
    balance: float
    ridge: float
    dense: float


class Side:
    """The entries grouped by one side of the matrix, where a backend works on them.

    "Left" is the side of the groups, "right" the other one.  All is done here by NumPy and SciPy in
    one thread, a block of entries at a time, so that what is needed beside the factors and the
    entries does not grow with the number of entries; backends do some or all of it in their way.
    """

    threads: int = 1  # in use: few entries get fewer than were asked for

    def __init__(self, groups: Compressed, loss: Loss):
        self.groups, self.loss = groups, loss

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of entries of each group, as a NumPy array."""
        return np.diff(self.groups.starts)

    def value(self, left: Floats, right: Floats) -> float:
        """Sum of the losses of all entries, in double precision."""
        return sum(
            float(np.sum(evaluate(block, self.groups, self.loss, right, None, left)[0]))
            for block in blocks(self.groups, right.shape[1])
        )

    def add_gradient(
        self, left: Floats, right: Floats, scale: float, own: Floats, far: Floats
    ) -> float:
        """Add `scale` times the gradient in left and right to ``own`` and ``far``; return the sum
        of the losses."""
        total = 0.0
        for block in blocks(self.groups, right.shape[1]):
            values, slopes, _ = evaluate(block, self.groups, self.loss, right, None, left)
            matrix = block.matrix((scale * slopes).astype(own.dtype), len(right))
            own[block.rows] += matrix @ right
            far += matrix.T @ left[block.rows]
            total += float(np.sum(values))
        return total

    def solve_rows(self, step: RowStep) -> tuple[Floats, float]:
        """For every row i a p_i that lowers G, and what that says about the objective.

            ``G(p) = sum_j l(p.f_j + o_j, X_ij) + weights_i.p^2 / 2``
            ``+ dense_weight sum_{all j} (p.f_j + o_j)^2 / 2``

        Quadratic loss: the minimiser, by one linear system.

        Self-concordant loss: Newton's step d, cut short where it goes too far.  With H the Hessian
        of G and R the largest |d.f_j|, ``G(p + t d) <= G(p) - t d'Hd + (e^(tR) - tR - 1)/R^2 d'Hd``
        because |l'''| <= l'' (Bach [1]_, proposition 1).  So t = 1 lowers G as long as R <= 1.79,
        and t = log(1 + R)/R, where the bound is least, does for every R.  Bounds of the logistic
        loss that hold everywhere, such as l'' <= 1/4 (Boehning & Lindsay [2]_) and tanh(z/2)/(2z)
        (Jaakkola & Jordan [3]_), do not need R, but their steps are shorter: what 60 sweeps with
        the first of them reach takes 26 and 11 accelerated ones with the two, and 8 with this; with
        ridge 5 it is 19, 17 and 15 (MovieLens-100K twin, rank 10; `benchmarks/sweeps.py`).

        Any other loss: the minimiser of a parabola above G, which the loss's curvature gives.

        Solved for is the change of a row.  Where the entries and the penalty do not determine it,
        or hardly, a damping of 1e-10, relatively, makes it the shortest one.  With a quadratic loss
        the row itself is the shortest one, as long as G, by the sums at hand, is no higher there
        than at the current row.  So G does not rise, up to the rounding of these sums, however near
        to singular a system is.  A row without entries gets zeros, unless there is a dense part.

        A backend may solve a row with fewer entries than parameters by a system of its entries.

        Rows are independent and their sums are taken in one order: the outcome does not depend on
        the number of threads.  Sums are in double precision.  A backend may have the matrix of a
        row in single precision, up to 128 entries at a time, where the features are so and the
        penalty is large beside what that loses; never the right-hand side and the losses.

        Returns
        -------
        solutions : array, (rows, parameters)
        value : float
            Quadratic loss: the sum of the least G.  Others: the sum of the losses at ``current``.
            Without ``with_value``: any number.

        References
        ----------
        .. [1] F. Bach, "Self-concordant analysis for logistic regression", Electron. J. Stat. 4
           (2010).
        .. [2] D. Boehning, B. Lindsay, "Monotonicity of quadratic-approximation algorithms", Ann.
           Inst. Statist. Math. 40 (1988).
        .. [3] T. Jaakkola, M. Jordan, "Bayesian parameter estimation via variational methods",
           Stat. Comput. 10 (2000).
        """
        penalty = step.weights.astype(np.float64)
        before, change = np.zeros(penalty.shape), np.zeros(penalty.shape)
        if step.current is not None:
            before += self.own_rows(step.current)
        dense, value = self.dense_part(step), 0.0
        if dense is None:
            before[self.counts == 0] = 0.0
        for part, lines, losses in self.lines(step):
            value += losses
            sums = lines
            if dense is not None:
                sums = exact = lines.astype(np.float64)
                value += dense.add_to_lines(exact, before[part])
            change[part], least = solve_lines(
                sums, penalty[part], before[part], quadratic=self.loss.quadratic
            )
            value += least
        if self.loss.self_concordant:
            self.shorten(change, step.features)
        solutions = before + change
        return solutions.astype(step.features.dtype), value

    def lines(self, step: RowStep) -> Iterator[tuple[slice[int, int], Floats, float]]:
        """The sums of `solve_rows`, for so many rows at a time as can be held, and their losses."""
        rows, size = step.weights.shape
        length = max(1, NUMBERS // numbers_per_row(size))
        for first in range(0, rows, length):
            last = min(first + length, rows)
            yield slice(first, last), *self.row_sums(step, first, last)

    def row_sums(self, step: RowStep, first: int, last: int) -> tuple[Floats, float]:
        """What the entries of the rows first to last - 1 say about a half sweep, for ranks that
        add that up, and the sum of their losses; see `momentous.lowrank.backends.sums`.

        The weights of the step are this rank's share of the penalty: beside them a backend may
        have sums in single precision, as in `solve_rows`.
        """
        features = step.features.astype(np.float64, copy=False)
        size = features.shape[1]
        p, q = np.tril_indices(size)
        squares = features[:, p] * features[:, q]
        out, total = np.zeros((last - first, numbers_per_row(size))), 0.0
        for block in blocks(self.groups, size, first, last):
            values, slopes, curvatures = evaluate(block, self.groups, self.loss, *step[1:4])
            total += float(np.sum(values))
            rows = slice(block.rows.start - first, block.rows.stop - first)
            matrix = block.matrix(np.full(slopes.shape, curvatures, np.float64), len(features))
            out[rows, : p.size] += matrix @ squares
            out[rows, p.size :] -= block.matrix(slopes, len(features)) @ features
        return out, total

    def improve_rows(self, step: RowStep, squares: Matrix, steps: int) -> tuple[Floats, float]:
        """For every row a p_i that lowers G, by so many steps of conjugate gradients from
        ``current``; and the sum of the losses there.

        The preconditioner of a row is diagonal, the sum of its curvatures times ``squares`` and its
        weights: with the mean squares of the features as ``squares`` that is what its system would
        be if its features were uncorrelated and like all others (see `LowRankObjective`, which
        turns the features so that they are).

        The parabola is that of `solve_rows`, and as many steps as parameters give its minimiser.
        Fewer lower it as far as their directions reach, with ``d'Hd = -d.grad G`` for their sum d:
        this is all that the bound for Newton's step asks of d, which is cut short by the same
        rule.  A row without entries gets zeros, unless there is a dense part.

        A backend may multiply and add in the precision of the features, up to 64 entries at a time;
        what it adds up beyond that, and a row's own vectors, are in double precision.
        """
        loss, dtype = self.loss, step.features.dtype
        found = self.row_slopes(step)
        penalty = step.weights.astype(np.float64)
        before = np.zeros(penalty.shape)
        if step.current is not None:
            before += self.own_rows(step.current)
        value = found.losses
        b = found.downwards - penalty * before
        diagonal = found.curved[:, None] * squares + penalty
        dense = self.dense_part(step)
        if dense is not None:
            value += dense.add_to_sides(b, before)
            diagonal += dense.weight * dense.gram.diagonal()

        def product(directions: Matrix) -> Matrix:
            turned = self.row_products(step.features, found.curvatures, directions)
            turned += penalty * directions
            return turned if dense is None else turned + dense.weight * (directions @ dense.gram)

        change = conjugate_change(b, diagonal, product, steps, dtype)
        if loss.self_concordant:
            self.shorten(change, step.features)
        solutions = before + change
        if dense is None:
            solutions[self.counts == 0] = 0.0
        return solutions.astype(dtype), value

    def shorten(self, change: Matrix, features: Floats) -> None:
        """Cut Newton's steps short where they go too far; see `solve_rows`."""
        reach = self.furthest_moves(features, change)
        far = reach > FULL_STEP
        change[far] *= (np.log1p(reach[far]) / reach[far])[:, None]

    def furthest_moves(self, features: Floats, change: Matrix) -> AnyArray:
        """For every row the largest |d_i . f_j| of its entries."""
        return furthest_moves(self.groups, features, change)

    def dense_part(self, step: RowStep) -> DensePart | None:
        """What a sum over all pairs adds to the rows' systems; None for a loss without one."""
        return DensePart.of(self.loss, step.features, step.offsets)

    def own_rows(self, rows: Floats) -> Floats:
        """Those that are solved for here: all, unless others are on other ranks."""
        return rows

    def row_slopes(self, step: RowStep) -> RowSlopes:
        """What the entries of all rows say where the rows are, for ranks that add it up."""
        features = step.features.astype(np.float64, copy=False)
        rows, size, total = self.groups.starts.size - 1, features.shape[1], 0.0
        downwards, curved = np.zeros((rows, size)), np.zeros(rows)
        unit, dtype = self.loss.unit_curvature, step.features.dtype
        curvatures = None if unit else np.empty(self.groups.others.size, dtype)
        for block in blocks(self.groups, size):
            values, slopes, bends = evaluate(block, self.groups, self.loss, *step[1:4])
            total += float(np.sum(values))
            if curvatures is not None:
                curvatures[block.entries] = bends
            downwards[block.rows] -= block.matrix(slopes, len(features)) @ features
            weights = np.full(slopes.shape, bends, np.float64)
            count = len(block.starts) - 1
            curved[block.rows] += np.bincount(block.owners - block.rows.start, weights, count)
        return RowSlopes(downwards, curved, curvatures, total)

    def row_products(
        self, features: Floats, curvatures: Floats | None, directions: Floats
    ) -> Matrix:
        """``sum_j c_ij (d_i . f_j) f_j`` for every row i, in double precision; the curvatures are
        those of `row_slopes`."""
        features = features.astype(np.float64, copy=False)
        out = np.zeros(directions.shape)
        for block in blocks(self.groups, features.shape[1]):
            moves = block.predictions(directions, features)
            if curvatures is not None:
                moves *= curvatures[block.entries]
            out[block.rows] += block.matrix(moves, len(features)) @ features
        return out

    def partner_sums(self, numbers: Floats) -> Matrix:
        """For every row i ``sum_j n_j`` over its entries, times their weights: one number or more
        per partner j.  In double precision; on a device in that of the numbers."""
        return partner_sums(self.groups, numbers)

    # What certificates ask for: arrays of the backend's, in double precision.

    @property
    def values(self) -> Matrix:
        """Those of the entries."""
        values: Matrix = self.groups.values.astype(np.float64, copy=False)
        return values

    @property
    def owners(self) -> Integers:
        """The group of each entry."""
        return np.repeat(np.arange(self.groups.starts.size - 1), self.counts)

    def predictions(self, left: Matrix, right: Matrix) -> Matrix:
        """``left_i . right_j`` for all entries."""
        return np.asarray(products(left, right, self.owners, self.groups.others), np.float64)

    def downward_slopes(self, left: Matrix, right: Matrix) -> tuple[Matrix, Matrix, float]:
        """`predictions`, the loss's slopes there with their signs turned, and the sum of losses."""
        z = self.predictions(left, right)
        losses, slopes, _ = self.loss.entries(z, self.values)
        return z, -slopes, float(losses.sum())

    def product_with(self, data: Matrix) -> Callable[[Matrix], Matrix]:
        """v (others, k) -> S v, for the sparse matrix S with a number for each entry."""
        starts, others = self.groups.starts, self.groups.others

        def times(v: Matrix) -> Matrix:
            matrix = scipy.sparse.csr_array((data, others, starts), shape=(starts.size - 1, len(v)))
            product: Matrix = matrix @ v
            return product

        return times


class Backend(ABC):
    """Makes sides, and holds the arrays."""

    name: ClassVar[str]
    device: ClassVar[str] = "cpu"
    xp: ClassVar[ModuleType] = np  # or a module with the same functions for arrays on the device
    # The rank up to which exact half sweeps are fastest: benchmarks/sweeps.py --steps, gpu.py.
    exact_up_to: ClassVar[int] = 12

    @abstractmethod
    def side(self, groups: Compressed, loss: Loss, threads: int) -> Side:
        """The entries, ready for passes and row solves; at most so many threads."""

    def side_of(
        self, ratings: Ratings, which: int, loss: Loss, threads: int, other: Side | None
    ) -> Side:
        """The entries by row (0) or by column (1); ``other`` is the other side, if it is made."""
        return self.side(ratings.by_col if which else ratings.by_row, loss, threads)

    def gram(self, factor: Floats, weights: Floats | None = None) -> Matrix:
        """``sum_i w_i u_i u_i'``, long sums in double precision; one weight per row, or 1."""
        return gram(factor) if weights is None else weighted_gram(factor, weights)

    def plain_objective(
        self, side: Callable[[int], Side], x: Floats, cut: int, terms: PlainTerms, gradient: Floats
    ) -> float | None:
        """An objective without biases and mean at x, and its gradient, written to ``gradient``.

        Both have the rows of both factors, one below the other; ``cut`` are those of the first.
        None: this backend has no better way than by parts.
        """
        return None

    def weighted_squares(self, weights: Floats, factor: Floats) -> float:
        """The sum of all ``w p^2``, in double precision."""
        return float(self.xp.einsum("ij,ij,ij->", weights, factor, factor, dtype=np.float64))

    def sum_of_errors(
        self,
        loss: Loss,
        left: Floats,
        right: Floats,
        ratings: Ratings,
        value_range: tuple[float, float],
    ) -> float:
        """The sum of the loss's errors over these entries, of which a rank may have none."""
        rows, cols, values, errors = ratings.rows, ratings.cols, ratings.by_row.values, 0.0
        for begin in range(0, ratings.nnz, ERROR_BLOCK):
            block = slice(begin, begin + ERROR_BLOCK)
            z = products(left, right, rows[block], cols[block])
            errors += float(np.sum(loss.error(z, values[block], value_range)))
        return errors

    def best_columns(
        self, left: Floats, right: Floats, offsets: Floats, seen: list[Compressed], count: int
    ) -> tuple[NDArray[np.int64], Floats]:
        """The columns j with the highest ``u_i . v_j + o_j`` for each row i, best first, and these.

        The columns that a row has entries for in ``seen`` are left out, and of equal ones the first
        is better.  Where a row has fewer than ``count`` others, the rest of its columns is -1.
        There are at least ``count`` columns.
        """
        columns = np.full((len(left), count), -1, np.int64)
        scores = np.zeros((len(left), count), left.dtype)
        # The few that may be among the best are found in single precision, and these compared in
        # double: with (u_i, s) of length 1, and no (v_j, o_j/s) longer, the products are wrong by
        # no more than slack/2.  What all offsets have in common makes no difference.
        own = offsets - offsets.mean(dtype=np.float64)
        s = _balance(*(np.abs(each).max(initial=0.0) for each in (left, right, own)))
        lengths = _lengths(left, np.full(len(left), s))
        few = _with_column(right, own / s, float(_lengths(right, own / s).max()) or 1.0)
        slack = 2.0 * (few.shape[1] + 3) * float(np.finfo(np.float32).eps)
        for part in _parts(0, len(left), SCORES // len(right)):
            ones = np.full(part.stop - part.start, s)
            block = _with_column(left[part], ones, lengths[part, None]) @ few.T
            for own_rows in _parts(part.start, part.stop, CACHED_SCORES // len(right)):
                near = block[own_rows.start - part.start : own_rows.stop - part.start]
                for known in seen:
                    starts = known.starts[own_rows.start : own_rows.stop + 1]
                    rows = np.repeat(np.arange(len(near)) * len(right), np.diff(starts))
                    near.reshape(-1)[rows + known.others[starts[0] : starts[-1]]] = -np.inf
                places = np.flatnonzero(near >= _near_best(near, count, slack))
                rows, others = np.divmod(places, len(right))
                rows += own_rows.start
                found = np.einsum("ij,ij->i", left[rows], right[others], dtype=np.float64)
                found += offsets[others]
                order = np.lexsort((others, -found, rows))
                rows, others, found = rows[order], others[order], found[order]
                places = np.arange(rows.size) - np.searchsorted(rows, rows)  # in the row's list
                best = places < count
                at = rows[best], places[best]
                columns[at], scores[at] = others[best], found[best]
        return columns, scores

    def use_local_device(self) -> None:  # noqa: B027  # on the CPU there is nothing to choose
        """Of several ranks on a machine, each takes a device of its own where there are enough."""

    def release_memory(self) -> None:  # noqa: B027  # most keep nothing
        """Give back what is kept for later use, where memory has ended."""

    def svd_start(
        self, ratings: Ratings, rank: int, values: Floats, ranks: Ranks
    ) -> tuple[Floats, Floats]:
        """The balanced factors of the truncated SVD; see `momentous.lowrank.factors`."""
        return svd_start(ratings, rank, values, ranks)

    def asarray(self, array: ArrayLike, dtype: DTypeLike) -> Floats:
        """An array on the device, C-contiguous; the same one where it is that already."""
        there: Floats = self.xp.ascontiguousarray(array, dtype)
        return there

    def to_host(self, array: AnyArray) -> AnyArray:
        """The array as NumPy has it."""
        return np.asarray(array)

    def __repr__(self) -> str:
        return f"<backend {self.name} on {self.device}>"


def _parts(begin: int, end: int, length: int) -> Iterator[slice[int, int, int]]:
    """The numbers from begin to end in parts of that length, at least 1."""
    for first in range(begin, end, max(1, length)):
        yield slice(first, min(first + max(1, length), end))


def _balance(left: float, right: float, offset: float) -> float:
    """The s for which (u, s) and (v, o/s) have parts of like sizes, given the sizes of u, v, o."""
    if offset and left and right:
        return float(np.sqrt(left / right) * np.sqrt(offset))
    return float(left) or 1.0


def _lengths(factor: Floats, column: Floats) -> NDArray[np.float64]:
    """Of the rows of a factor with one more column."""
    squares: NDArray[np.float64] = np.einsum("ij,ij->i", factor, factor, dtype=np.float64)
    return np.sqrt(squares + column.astype(np.float64) ** 2)


def _with_column(
    factor: Floats, column: Floats, length: float | NDArray[np.float64]
) -> NDArray[np.float32]:
    """A factor with one more column, over a length, in single precision."""
    wide = np.empty((len(factor), factor.shape[1] + 1), np.float32)
    np.divide(factor, length, out=wide[:, :-1], casting="same_kind")
    np.divide(column, np.ravel(length), out=wide[:, -1], casting="same_kind")
    return wide


def _near_best(scores: Floats, count: int, slack: float) -> Floats:
    """Per row a bound that all of its ``count`` best are above, by no less than the slack, and few
    others; what is -inf never is.

    The columns are cut into groups: as many groups have a score of the bound or above as the bound
    is the highest but so many of their maxima, and so have as many columns.  That takes one pass,
    where a partition of all columns takes several.
    """
    groups = min(scores.shape[1], max(8 * count, MIN_GROUPS))
    size = scores.shape[1] // groups
    maxima = scores[:, : groups * size].reshape(len(scores), size, groups).max(axis=1)
    lowest = np.partition(maxima, groups - count, axis=1)[:, groups - count, None]
    return np.maximum(lowest - np.float32(slack), np.finfo(np.float32).min)


# In the order in which "auto" looks for one; those that are not loaded yet by module and class.
BACKENDS: dict[str, type[Backend] | str] = {
    "numba": "momentous.lowrank.backends.numba.NumbaBackend",
    "numpy": "momentous.lowrank.backends.numpy.NumpyBackend",
    "cuda": "momentous.lowrank.backends.cuda.CudaBackend",
}
DEVICES = {"cuda": "cuda"}  # of those that are not loaded yet; others are for the CPU
WORTH_IT = 1_000_000  # entries from which on device="auto" takes a GPU: benchmarks/gpu.py
Class = TypeVar("Class", bound=type[Backend])


def register_backend(backend: Class) -> Class:
    """Register a backend by its name; also a decorator."""
    if not (isinstance(backend, type) and issubclass(backend, Backend)):
        raise TypeError(f"expected a subclass of Backend, not {backend!r}")
    BACKENDS[backend.name] = backend
    return backend


def find_backend(backend: str | Backend = "auto", device: str = "cpu", entries: int = 0) -> Backend:
    """The backend of that name; "auto" is the first one for the device that can be loaded.

    ``device="auto"`` is a GPU, where there is one that can be used and so many entries are worth
    it, and else the CPU.
    """
    if isinstance(backend, Backend):
        return backend
    if backend != "auto" and backend not in BACKENDS:
        raise ValueError(
            f"there is no backend {backend!r}; known are auto, {', '.join(BACKENDS)}, and "
            "register_backend adds others"
        )
    devices = device_of_each()
    if device == "auto":
        device = devices[backend] if backend != "auto" else _worthwhile_device(entries)
    if device not in devices.values():
        known = ", ".join(sorted({"auto", *devices.values()}))
        raise ValueError(f"device={device!r} is not supported: known are {known}")
    if backend == "auto":
        return _automatic([name for name, one in devices.items() if one == device])
    if devices[backend] != device:
        raise ValueError(
            f"backend={backend!r} works on {devices[backend]}, not on {device}: take "
            f"device={devices[backend]!r}"
        )
    return _load(backend)()


def device_of_each() -> dict[str, str]:
    """The device of each backend that is known by a name."""
    return {
        name: DEVICES.get(name, "cpu") if isinstance(entry, str) else entry.device
        for name, entry in BACKENDS.items()
    }


def _worthwhile_device(entries: int) -> str:
    if entries < WORTH_IT or not find_spec("cupy"):
        return "cpu"
    available = import_module("momentous.lowrank.backends.device").gpu_available()
    return "cuda" if available else "cpu"


def _automatic(names: list[str]) -> Backend:
    """The first of them that can be loaded."""
    for name in names[:-1]:
        try:
            return _load(name)()
        except ImportError as error:
            if find_spec(name):  # installed, but not for this Python or this NumPy
                warnings.warn(
                    f"{name} cannot be used ({error}); going on with the slower backend in NumPy",
                    RuntimeWarning,
                    stacklevel=4,
                )
    return _load(names[-1])()


def _load(name: str) -> type[Backend]:
    entry = BACKENDS[name]
    if not isinstance(entry, str):
        return entry
    module, _, attribute = entry.rpartition(".")
    loaded: type[Backend] = getattr(import_module(module), attribute)
    return loaded
