"""What L-BFGS remembers of the curvature, and the direction that follows from it.

The direction is a combination of the gradient, the steps s_i and the changes y_i of the gradient
along them; its weights follow from inner products of those alone, in the compact form of Byrd,
Nocedal and Schnabel, "Representations of quasi-Newton matrices and their use in limited memory
methods", Math. Programming 63 (1994), theorem 2.2.  An iteration computes 2 m products with the new
gradient and 2 m with the new change of it, and adds up 2 m + 1 vectors in one pass: half of the
memory traffic of the recursion on vectors, and two reductions over ranks where that has 2 m in a
row.  Where pairs are listed, the products with the change are differences of known ones.

`Listed` keeps arrays of any library, one by one.  `Stacked` keeps short NumPy vectors as rows of
two arrays of doubles, so that the products with all of them are two calls of BLAS.  Neither ever
changes what it has been made of: see `Stacked` for how.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from momentous.core.blocks import ROW
from momentous.core.machine import Host, has_kinks
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.space import Array, Space
from momentous.methods.classical.compact import Compact
from momentous.methods.classical.curvature import (
    HostCurvature,
    blas,
    correction,
    is_of_use,
    moved_square,
)
from momentous.methods.classical.prox_model import line_with_kinks
from momentous.methods.search.wolfe import Line

# Vectors up to this length are stacked: there calls cost more than arithmetic.
STACKED = 1 << 17
# BLAS libraries keep to one thread for matrices of so many entries (OpenBLAS: 9,216), so that sums
# do not depend on how many threads there are.
ONE_THREAD = 9216


class Pairs(HostCurvature):
    """The newest pairs, the oldest of them first, and their products.

    H is the BFGS update of (<s, y>/<y, y>) I of the newest pair by all pairs.
    """

    __slots__ = (
        "_blas",
        "changes_changes",
        "diagonal",
        "most",
        "scale",
        "steps_changes",
        "to_changes",
        "to_steps",
    )

    _blas: Any
    scale: float  # of I where the pairs begin, if it is not <s, y>/<y, y> of the newest; else 0
    most: int  # pairs to keep
    diagonal: np.ndarray  # <s_i, y_i>/t_i, with t_i the correction by values
    steps_changes: np.ndarray  # [i, j]: <s_i, y_j> for i <= j; nothing below the diagonal is used
    changes_changes: np.ndarray  # [i, j]: <y_i, y_j> for i <= j
    to_steps: np.ndarray  # <s_i, g> with the gradient where the method stands
    to_changes: np.ndarray  # <y_i, g>

    def direction(self, space: Space, gradient: Array) -> Array:
        if not len(self):
            return gradient * -1.0
        return self._combined(space, gradient, *self._weights())

    def _weights(self) -> tuple[float, np.ndarray, np.ndarray]:
        """scale, p and q of -H g = scale Y p - S q - scale g."""
        r, yy, routines = self.steps_changes, self.changes_changes, self._blas
        scale = self.scale or float(r[-1, -1] / yy[-1, -1])
        # H g = scale g + S q - scale Y p, with R p = S'g, R'q = (D + scale Y'Y) p - scale Y'g;
        # R is the upper triangle of S'Y, D its diagonal, corrected.
        p = routines.dtrsv(r, self.to_steps)
        q = routines.dsymv(scale, yy, p, -scale, self.to_changes)
        q += self.diagonal * p
        q = routines.dtrsv(r, q, 1, 0, 0, 1, 0, 1)  # transposed, into q; keywords cost time
        return scale, p, q

    def first_scale(self, m: Any = None) -> float:
        return self.scale or float(self.steps_changes[-1, -1] / self.changes_changes[-1, -1])

    def _make_box_line(self, m: Host, here: Sample) -> Line:
        return line_with_kinks(m, here, Compact(self, m), self.count == 0)

    def _combined(
        self, space: Space, g: Array, scale: float, p: np.ndarray, q: np.ndarray
    ) -> Array:
        """scale Y p - S q - scale g"""
        raise NotImplementedError

    def packed(self) -> StoredPairs | ScaledPairs:
        stored = self.stored()
        return ScaledPairs(stored, self.scale) if self.scale else stored

    def stored(self) -> StoredPairs:
        steps, changes = self.vectors()
        first = len(self.to_steps) - len(self)
        matrices = (self.steps_changes, self.changes_changes)
        upper = (tuple(np.triu(a[first:, first:]).ravel().tolist()) for a in matrices)
        vectors = (self.diagonal, self.to_steps, self.to_changes)
        rest = (tuple(a[first:].tolist()) for a in vectors)
        return StoredPairs(self.most, steps, changes, *upper, *rest)

    def vectors(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """The steps and the changes."""
        raise NotImplementedError

    def rows_of(self) -> tuple[Any, Any]:
        """The same, as many as the matrices have rows."""
        return self.vectors()


class Listed(Pairs):
    """Pairs of arrays of any library, or of long ones."""

    __slots__ = ("changes", "count", "steps")

    def __init__(self, most: int, steps: tuple[Array, ...] = (), changes: tuple[Array, ...] = ()):
        self.most, self._blas, self._line, self.scale = most, blas(), None, 0.0
        self.steps, self.changes, self.count = steps, changes, len(steps)
        self.steps_changes = self.changes_changes = np.empty((0, 0))
        self.diagonal = self.to_steps = self.to_changes = np.empty(0)

    def without_pairs(self) -> Listed:
        return type(self)(self.most)

    def at(self, m: Host, here: Sample) -> Listed:
        moved = type(self)(self.most, self.steps, self.changes)
        moved.steps_changes, moved.changes_changes = self.steps_changes, self.changes_changes
        moved.diagonal, moved.scale = self.diagonal, self.scale
        moved._take_gradient(m.space, here.gradient)
        return moved

    def extended(self, space: Space, here: Sample, there: Sample, noise: float) -> Listed:
        s = space.combination(there.point, -1.0, here.point)
        y = space.combination(there.gradient, -1.0, here.gradient)
        (ss, sy), yy = space.inners((s, y), s), space.inner(y, y)
        scale, used = scale_in_box(space, s, y, sy, yy)
        if not is_of_use(ss, sy, used):
            return self.at(Host.of(space), there)
        old = max(0, len(self) + 1 - self.most)  # pairs for which there is no room
        steps, changes = self.steps[old:], self.changes[old:]
        after = Listed(self.most, (*steps, s), (*changes, y))
        after.scale = scale
        after._take_gradient(space, there.gradient)
        slope = float(after.to_steps[-1]) - sy
        t = correction(here.value - there.value, slope, sy, noise)
        after.diagonal = np.append(self.diagonal[old:], sy / t)
        # y is a difference of gradients, and so are its products.
        to_s = after.to_steps[:-1] - self.to_steps[old:]
        to_y = after.to_changes[:-1] - self.to_changes[old:]
        after.steps_changes = grown(self.steps_changes, old, to_s, sy)
        after.changes_changes = grown(self.changes_changes, old, to_y, yy)
        return after

    def _take_gradient(self, space: Space, g: Array) -> None:
        products = np.array(space.inners((*self.steps, *self.changes), g))
        self.to_steps, self.to_changes = np.split(products, 2)

    def _combined(
        self, space: Space, g: Array, scale: float, p: np.ndarray, q: np.ndarray
    ) -> Array:
        weights = [-scale, *(scale * p).tolist(), *(-q).tolist()]
        return space.weighted_sum(weights, (g, *self.changes, *self.steps))

    def vectors(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        return self.steps, self.changes


def scale_in_box(space: Space, s: Array, y: Array, sy: float, yy: float) -> tuple[float, float]:
    """`Pairs.scale` after a pair, and its <y, y>: in a box, over what has moved."""
    if not has_kinks(space):
        return 0.0, yy
    yy = moved_square(space, s, y)
    return sy / (yy or 1.0), yy


def grown(matrix: np.ndarray, old: int, column: np.ndarray, last: float) -> np.ndarray:
    """The upper triangle without its first ``old`` rows and columns, with one more column."""
    k = len(column) + 1
    new = np.empty((k, k), order="F")
    new[:-1, :-1] = matrix[old:, old:]
    new[:-1, -1], new[-1, -1] = column, last
    return new


class _Rows:
    """Room for twice as many pairs as are kept; behind them, pairs of zeros to begin with.

    A pair has a number, its row.  The product of pairs i <= j, less than m = ``most`` apart, stands
    at place j m + i of a flat array.  There m pairs in a row have the upper triangle of a matrix
    with m rows, column by column, and a new pair writes where no other has written.
    """

    __slots__ = (
        "blas",
        "changes",
        "changes_changes",
        "diagonal",
        "most",
        "steps",
        "steps_changes",
        "used",
    )

    def __init__(self, most: int, size: int):
        self.most, self.used, self.blas = most, most, blas()
        self.steps, self.changes = np.zeros((2 * most, size)), np.zeros((2 * most, size))
        places = 2 * most * (most + 1)
        self.steps_changes, self.changes_changes = np.zeros(places), np.zeros(places)
        self.steps_changes[: most * (most + 1) : most + 1] = 1.0  # R can be inverted
        self.diagonal = np.ones(2 * most)

    def matrix(self, products: np.ndarray, end: int) -> np.ndarray:
        """The upper triangle of the products of the pairs before ``end``."""
        m = self.most
        first = (end - m) * (m + 1)
        return products[first : first + m * m].reshape(m, m).T

    def moved(self, end: int) -> _Rows:
        """The pairs before ``end`` alone, in arrays of their own."""
        new, m = _Rows(self.most, self.steps.shape[1]), self.most
        new.steps[:m], new.changes[:m] = self.steps[end - m : end], self.changes[end - m : end]
        new.diagonal[:m] = self.diagonal[end - m : end]
        here, there = slice(m * m), slice((end - m) * (m + 1), (end - m) * (m + 1) + m * m)
        new.steps_changes[here] = self.steps_changes[there]
        new.changes_changes[here] = self.changes_changes[there]
        return new


class Stacked(Pairs):
    """Pairs in the rows before ``end`` of arrays that the curvatures of a run share.

    A row is written once.  An extension writes the row ``end``, which neither this curvature nor
    any before it looks at; if another extension has taken that row already (a step that was cut
    short is taken again), or if there is none left, it moves to arrays of its own.
    """

    __slots__ = ("changes", "count", "dtype", "end", "rows", "shape", "steps")

    def __init__(self, shape: tuple[int, ...], dtype: Any, rows: _Rows, end: int, count: int):
        self.most, self._blas, self._line, self.scale = rows.most, rows.blas, None, 0.0
        self.dtype = dtype  # of the vectors: float64 or float32
        self.shape, self.rows, self.end, self.count = shape, rows, end, count
        begin = end - rows.most
        self.steps, self.changes = rows.steps[begin:end].T, rows.changes[begin:end].T
        self.diagonal = rows.diagonal[begin:end]

    @staticmethod
    def suits(space: Space) -> bool:
        """Are the vectors of this space such as can be stacked?"""
        whole = not (space.has_own_inner or space.is_part)
        kind = space.library is np.ndarray and space.dtype in (np.float32, np.float64)
        return kind and whole and len(space.shape) > 0 and space.size <= STACKED

    @classmethod
    def filled(
        cls,
        most: int,
        shape: tuple[int, ...],
        dtype: Any = np.float64,
        steps: Sequence[Array] = (),
        changes: Sequence[Array] = (),
    ) -> Stacked:
        """These pairs; their products are for the caller to fill in."""
        rows, k = _Rows(most, math.prod(shape)), len(steps)
        for i in range(k):
            rows.steps[most - k + i] = steps[i].reshape(-1)
            rows.changes[most - k + i] = changes[i].reshape(-1)
        made = cls(shape, dtype, rows, most, k)
        made.to_steps, made.to_changes = np.zeros(most), np.zeros(most)
        made._take_matrices()
        return made

    def without_pairs(self) -> Stacked:
        return Stacked.filled(self.most, self.shape, self.dtype)

    def at(self, m: Host, here: Sample) -> Stacked:
        moved = Stacked(self.shape, self.dtype, self.rows, self.end, self.count)
        moved.scale = self.scale
        moved.steps_changes, moved.changes_changes = self.steps_changes, self.changes_changes
        moved._take_gradient(_flat(here.gradient))
        return moved

    def extended(self, space: Space, here: Sample, there: Sample, noise: float) -> Stacked:
        rows, end = self.rows, self.end
        if rows.used != end or end == 2 * self.most:
            rows, end = rows.moved(end), self.most
        x, before, x_new, g = here.point, here.gradient, there.point, there.gradient
        # Sums are made from fresh arrays: rows of odd length begin at odd places in turn, which
        # changes the last digit of a ddot on old CPUs, and a resumed run has other rows.
        s, y = x_new - x, g - before
        if not space.flat:
            s, y, before, g = map(_flat, (s, y, before, g))
        rows.steps[end], rows.changes[end], rows.used = s, y, end + 1
        inner = self._blas.ddot if s.size <= ROW else space.inner
        sy = inner(s, y)
        scale, used = scale_in_box(space, s, y, sy, inner(y, y))
        if not is_of_use(inner(s, s), sy, used):
            return self.at(Host.of(space), there)
        t = correction(here.value - there.value, inner(s, before), sy, noise)
        rows.diagonal[end] = sy / t
        after = Stacked(self.shape, self.dtype, rows, end + 1, min(self.count + 1, self.most))
        after.scale = scale
        after._take_products(g, y)
        return after

    def _take_products(self, g: np.ndarray, y: np.ndarray) -> None:
        """Those with the gradient, and those of the newest change, which go into the matrices."""
        rows, m = self.rows, self.most
        last = (self.end - 1) * (m + 1) + 1  # behind the place of the newest pair with itself
        r, yy = rows.steps_changes[last - m : last], rows.changes_changes[last - m : last]
        if self.steps.size <= ONE_THREAD:
            self._take_gradient(g)
            product = self._blas.dgemv  # transposed, into the last but five
            product(1.0, self.steps, y, 0.0, r, 0, 1, 0, 1, 1, 1)
            product(1.0, self.changes, y, 0.0, yy, 0, 1, 0, 1, 1, 1)
        else:
            self.to_steps, r[:] = _products(self.steps, g, y)
            self.to_changes, yy[:] = _products(self.changes, g, y)
        self._take_matrices()

    def _take_matrices(self) -> None:
        rows = self.rows
        self.steps_changes = rows.matrix(rows.steps_changes, self.end)
        self.changes_changes = rows.matrix(rows.changes_changes, self.end)

    def _take_gradient(self, g: np.ndarray) -> None:
        if self.steps.size <= ONE_THREAD:
            product, m = self._blas.dgemv, self.most
            self.to_steps = product(1.0, self.steps, g, 0.0, np.empty(m), 0, 1, 0, 1, 1, 1)
            self.to_changes = product(1.0, self.changes, g, 0.0, np.empty(m), 0, 1, 0, 1, 1, 1)
        else:
            (self.to_steps,) = _products(self.steps, g)
            (self.to_changes,) = _products(self.changes, g)

    def _combined(
        self, space: Space, g: Array, scale: float, p: np.ndarray, q: np.ndarray
    ) -> Array:
        if len(self.steps) <= ROW:
            product = self._blas.dgemv
            part = product(scale, self.changes, p, -scale, _flat(g))
            whole = product(-1.0, self.steps, q, 1.0, part, 0, 1, 0, 1, 0, 1)  # into part
        else:
            whole = _flat(g) * -scale
            _add_product(whole, self.changes, scale * p)
            _add_product(whole, self.steps, -q)
        if space.flat:
            return whole
        with np.errstate(over="ignore"):  # a step that overflows is for the search to judge
            return whole.astype(self.dtype, copy=False).reshape(self.shape)

    def vectors(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        window, shape = slice(self.end - self.count, self.end), self.shape
        pair = self.rows.steps[window], self.rows.changes[window]
        steps, changes = (rows.astype(self.dtype, copy=False) for rows in pair)  # as they were
        return tuple(s.reshape(shape) for s in steps), tuple(y.reshape(shape) for y in changes)

    def rows_of(self) -> tuple[Any, Any]:
        return self.steps.T, self.changes.T


def _flat(a: np.ndarray) -> np.ndarray:
    """As a flat array of doubles."""
    flat = a.reshape(-1)
    return flat if flat.dtype == np.float64 else flat.astype(np.float64)


def _products(columns: np.ndarray, *vectors: np.ndarray) -> Sequence[np.ndarray]:
    """Of each vector, the inner products with all columns."""
    if len(columns) <= ROW:
        rows = columns.T
        return [np.vecdot(rows, vector) for vector in vectors]
    parts, whole = _parts(columns)
    both = np.array(vectors)  # so that the columns are read once
    cut = both[:, :whole].reshape(len(both), len(parts), -1).transpose(1, 0, 2)
    sums: np.ndarray = np.matmul(cut, parts).sum(axis=0)
    if whole < len(columns):
        sums += both[:, whole:] @ columns[whole:]
    return sums  # type: ignore[return-value]  # its rows


def _add_product(total: np.ndarray, columns: np.ndarray, weights: np.ndarray) -> None:
    """total += the sum of all columns with their weights."""
    parts, whole = _parts(columns)
    total[:whole] += np.matmul(parts, weights).reshape(-1)
    if whole < total.size:
        total[whole:] += columns[whole:] @ weights


def _parts(columns: np.ndarray) -> tuple[np.ndarray, int]:
    """A stack of matrices, each some rows of all columns and small enough for one thread, and how
    many rows these are together."""
    size, count = columns.shape
    height = max(8, ONE_THREAD // count // 8 * 8)
    whole = size // height * height
    return columns[:whole].T.reshape(count, -1, height).transpose(1, 2, 0), whole


@record
class StoredPairs:
    """`Pairs` in a checkpoint: vectors, and the upper triangles row by row."""

    most: int
    steps: tuple[Array, ...]
    changes: tuple[Array, ...]
    steps_changes: tuple[float, ...]
    changes_changes: tuple[float, ...]
    diagonal: tuple[float, ...]
    to_steps: tuple[float, ...]
    to_changes: tuple[float, ...]

    def unpacked(self, space: Space | None) -> Pairs:
        """As it was; without a space, with its vectors one by one."""
        k = len(self.steps)
        lists = (self.changes, self.diagonal, self.to_steps, self.to_changes)
        if k > self.most or any(len(list_) != k for list_ in lists):
            raise ValueError(f"{k} steps, {len(self.changes)} changes, {self.most} at the most")
        matrices = (self.steps_changes, self.changes_changes)
        r, yy = (np.array(matrix).reshape((k, k)) for matrix in matrices)
        if space is None or not Stacked.suits(space):
            listed = Listed(self.most, self.steps, self.changes)
            listed.diagonal = np.array(self.diagonal)
            listed.steps_changes, listed.changes_changes = map(np.asfortranarray, (r, yy))
            listed.to_steps, listed.to_changes = np.array(self.to_steps), np.array(self.to_changes)
            return listed
        made = Stacked.filled(self.most, space.shape, space.dtype, self.steps, self.changes)
        if k:
            made.steps_changes[-k:, -k:], made.changes_changes[-k:, -k:] = r, yy
            made.diagonal[-k:] = self.diagonal
            made.to_steps[-k:], made.to_changes[-k:] = self.to_steps, self.to_changes
        return made


@record
class ScaledPairs:
    """Pairs that begin with a scale of their own, in a checkpoint."""

    pairs: Any  # `StoredPairs`
    scale: float

    def unpacked(self, space: Space | None) -> Pairs:
        """As they were."""
        pairs: Pairs = self.pairs  # which have been unpacked by now
        pairs.scale = self.scale
        return pairs
