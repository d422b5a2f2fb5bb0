"""What L-BFGS remembers of the curvature, and the direction that follows from it.

The direction is a combination of the gradient, the steps s_i and the changes y_i of the gradient
along them; its weights follow from inner products of those alone, in the compact form of Byrd,
Nocedal and Schnabel, "Representations of quasi-Newton matrices and their use in limited memory
methods", Math. Programming 63 (1994), theorem 2.2.  An iteration computes 2 m products, with the
new gradient (a change is a difference of gradients, so its products are differences of known ones),
and then adds up 2 m + 1 vectors in one pass: less than half the memory traffic of the recursion on
vectors, and one reduction over ranks where that has 2 m in a row.

`Listed` keeps arrays of any library, one by one.  `Stacked` keeps short NumPy vectors as rows of
two arrays, so that the products with all of them are two calls of BLAS.  Neither ever changes what
it has been made of: see `Stacked` for how.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from momentous.core.blocks import ROW
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.space import Array, Space

# A pair whose <s, y> is not this much of |s| |y| says nothing that can be relied on.
SMALLEST_COSINE = 1e-10
# Vectors up to this length are stacked: there calls cost more than arithmetic.
STACKED = 1 << 15
# BLAS libraries keep to one thread for matrices of so many entries (OpenBLAS: 9,216), so that sums
# do not depend on how many threads there are.
ONE_THREAD = 9216


@functools.cache
def blas() -> Any:
    """SciPy's BLAS, whose calls cost a fraction of NumPy's; imported where a run needs it."""
    from scipy.linalg import blas as routines

    return routines


class Curvature:
    """The pairs, the oldest first, and their products."""

    __slots__ = ("_blas", "changes_changes", "most", "steps_changes", "to_changes", "to_steps")

    most: int  # pairs to keep
    steps_changes: np.ndarray  # [i, j]: <s_i, y_j> for i <= j; nothing below the diagonal is used
    changes_changes: np.ndarray  # [i, j]: <y_i, y_j> for i <= j
    to_steps: np.ndarray  # <s_i, g> with the gradient where the method stands
    to_changes: np.ndarray  # <y_i, g>

    def __init__(self, most: int):
        self.most, self._blas = most, blas()
        self.steps_changes = self.changes_changes = np.empty((0, 0), order="F")
        self.to_steps = self.to_changes = np.empty(0)

    @staticmethod
    def unknown(space: Space, most: int) -> Curvature:
        """No pairs yet, and room for so many."""
        if space.plain and not space.has_own_inner and space.size <= STACKED:
            return Stacked(most, _Rows(most, space.shape))
        return Listed(most)

    def __len__(self) -> int:
        return len(self.to_steps)

    def at(self, space: Space, sample: Sample) -> Curvature:
        """The same pairs, with the products of the gradient there."""
        raise NotImplementedError

    def extended(self, space: Space, here: Sample, there: Sample) -> Curvature:
        """With the pair of the step from here to there, if it is of use, and without the oldest if
        there is no room."""
        raise NotImplementedError

    def direction(self, space: Space, gradient: Array) -> Array:
        """-H g, where H is the BFGS update of (<s, y>/<y, y>) I of the newest pair by all pairs."""
        if not len(self.to_steps):
            return gradient * -1.0
        r, yy, routines = self.steps_changes, self.changes_changes, self._blas
        scale = float(r[-1, -1] / yy[-1, -1])
        # H g = scale g + S q - scale Y p, with R p = S'g, R'q = (D + scale Y'Y) p - scale Y'g;
        # R is the upper triangle of S'Y, D its diagonal.
        p = routines.dtrsv(r, self.to_steps)
        q = routines.dsymv(scale, yy, p, -scale, self.to_changes)
        q += r.diagonal() * p
        q = routines.dtrsv(r, q, trans=1, overwrite_x=1)
        return self._combined(space, scale, gradient, p, q)

    def _combined(
        self, space: Space, scale: float, g: Array, p: np.ndarray, q: np.ndarray
    ) -> Array:
        """scale Y p - S q - scale g"""
        raise NotImplementedError

    def _take_products(self, before: Curvature, sy: float, yy: float) -> None:
        """All products of pairs, from those with the two gradients and those of the newest pair."""
        first = len(before) + 1 - len(self)  # of those before that is still here
        s, y = self.to_steps, self.to_changes
        self.steps_changes = _grown(before.steps_changes, s, before.to_steps, first, sy)
        self.changes_changes = _grown(before.changes_changes, y, before.to_changes, first, yy)

    def packed(self) -> StoredCurvature:
        """The form in a checkpoint."""
        steps, changes = self.vectors()
        numbers = (self.steps_changes, self.changes_changes, self.to_steps, self.to_changes)
        plain = (tuple(array.ravel(order="F").tolist()) for array in numbers)
        return StoredCurvature(self.most, steps, changes, *plain)

    def vectors(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """The steps and the changes."""
        raise NotImplementedError


def _grown(
    old: np.ndarray, after: np.ndarray, before: np.ndarray, first: int, last: float
) -> np.ndarray:
    k = len(after)
    new = np.empty((k, k), order="F")
    new[:-1, :-1] = old[first:, first:]
    np.subtract(after[:-1], before[first:], new[:-1, -1])
    new[-1, -1] = last
    return new


class Listed(Curvature):
    """Pairs of arrays of any library, or of long ones."""

    __slots__ = ("changes", "steps")

    def __init__(self, most: int, steps: tuple[Array, ...] = (), changes: tuple[Array, ...] = ()):
        super().__init__(most)
        self.steps, self.changes = steps, changes

    def at(self, space: Space, sample: Sample) -> Listed:
        moved = Listed(self.most, self.steps, self.changes)
        moved.steps_changes, moved.changes_changes = self.steps_changes, self.changes_changes
        moved._take_gradient(space, sample)
        return moved

    def extended(self, space: Space, here: Sample, there: Sample) -> Listed:
        s = space.combination(there.point, -1.0, here.point)
        y = space.combination(there.gradient, -1.0, here.gradient)
        sy, yy = space.inner(s, y), space.inner(y, y)
        if not (yy > 0 and sy > SMALLEST_COSINE * space.norm(s) * math.sqrt(yy)):
            return self.at(space, there)
        first = max(0, len(self) + 1 - self.most)
        after = Listed(self.most, (*self.steps[first:], s), (*self.changes[first:], y))
        after._take_gradient(space, there)
        after._take_products(self, sy, yy)
        return after

    def _take_gradient(self, space: Space, sample: Sample) -> None:
        self.to_steps = np.array(space.inners(self.steps, sample.gradient))
        self.to_changes = np.array(space.inners(self.changes, sample.gradient))

    def _combined(
        self, space: Space, scale: float, g: Array, p: np.ndarray, q: np.ndarray
    ) -> Array:
        weights = [-scale, *(scale * p).tolist(), *(-q).tolist()]
        return space.weighted_sum(weights, (g, *self.changes, *self.steps))

    def vectors(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        return self.steps, self.changes


class _Rows:
    """Room for twice as many pairs as are kept, and how many rows are written to."""

    __slots__ = ("changes", "shape", "steps", "used")

    def __init__(self, most: int, shape: tuple[int, ...]):
        size = math.prod(shape)
        self.steps, self.changes = np.empty((2 * most, size)), np.empty((2 * most, size))
        self.shape, self.used = shape, 0


class Stacked(Curvature):
    """Pairs in rows ``begin`` to ``end`` of two arrays, which the curvatures of a run share.

    A row is written once.  An extension writes the row ``end``, which neither this curvature nor
    any before it looks at; if another extension has taken that row already (a step that was cut
    short is taken again), or if there is none left, it moves to arrays of its own.
    """

    __slots__ = ("begin", "changes", "end", "rows", "steps")

    def __init__(self, most: int, rows: _Rows, begin: int = 0, end: int = 0):
        self.most, self._blas = most, blas()
        self.rows, self.begin, self.end = rows, begin, end
        self.steps, self.changes = rows.steps[begin:end].T, rows.changes[begin:end].T
        if begin == end:
            super().__init__(most)

    def at(self, space: Space, sample: Sample) -> Stacked:
        if self.begin == self.end:
            return self
        moved = Stacked(self.most, self.rows, self.begin, self.end)
        moved.steps_changes, moved.changes_changes = self.steps_changes, self.changes_changes
        moved._take_gradient(sample.gradient.reshape(-1))
        return moved

    def extended(self, space: Space, here: Sample, there: Sample) -> Stacked:
        rows, begin, end = self.rows, self.begin, self.end
        if end - begin == self.most:
            begin += 1
        if rows.used != end or end == len(rows.steps):
            rows = self._copied(begin)
            begin, end = 0, rows.used
        s, y = rows.steps[end], rows.changes[end]
        g = there.gradient.reshape(-1)
        np.subtract(there.point.reshape(-1), here.point.reshape(-1), s)
        np.subtract(g, here.gradient.reshape(-1), y)
        rows.used = end + 1
        inner = self._blas.ddot if s.size <= ROW else space.inner
        sy, yy = inner(s, y), inner(y, y)
        if not (yy > 0 and sy > SMALLEST_COSINE * math.sqrt(inner(s, s)) * math.sqrt(yy)):
            return self.at(space, there)
        after = Stacked(self.most, rows, begin, end + 1)
        after._take_gradient(g)
        after._take_products(self, sy, yy)
        return after

    def filled(self, steps: tuple[Array, ...], changes: tuple[Array, ...]) -> Stacked:
        """A curvature in such rows with these pairs, without their products."""
        rows = self.rows
        for i, (s, y) in enumerate(zip(steps, changes, strict=True)):
            rows.steps[i], rows.changes[i] = s.reshape(-1), y.reshape(-1)
        rows.used = len(steps)
        return Stacked(self.most, rows, 0, len(steps))

    def _copied(self, begin: int) -> _Rows:
        """Rows of their own, with the pairs from ``begin`` on."""
        rows, count = _Rows(self.most, self.rows.shape), self.end - begin
        rows.steps[:count] = self.rows.steps[begin : self.end]
        rows.changes[:count] = self.rows.changes[begin : self.end]
        rows.used = count
        return rows

    def _take_gradient(self, g: np.ndarray) -> None:
        if self.steps.size <= ONE_THREAD:
            product = self._blas.dgemv
            self.to_steps = product(1.0, self.steps, g, trans=1)
            self.to_changes = product(1.0, self.changes, g, trans=1)
        else:
            self.to_steps = _products(self.steps, g)
            self.to_changes = _products(self.changes, g)

    def _combined(
        self, space: Space, scale: float, g: Array, p: np.ndarray, q: np.ndarray
    ) -> Array:
        if self.steps.size <= ONE_THREAD:
            product = self._blas.dgemv
            part = product(scale, self.changes, p, -scale, g.reshape(-1))
            return product(-1.0, self.steps, q, 1.0, part, overwrite_y=1).reshape(space.shape)
        fresh = g.reshape(-1) * -scale
        _add_product(fresh, self.changes, scale * p)
        _add_product(fresh, self.steps, -q)
        return fresh.reshape(space.shape)

    def vectors(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        steps, changes = self.rows.steps, self.rows.changes
        pairs = range(self.begin, self.end)
        shape = self.rows.shape
        return tuple(steps[i].reshape(shape) for i in pairs), tuple(
            changes[i].reshape(shape) for i in pairs
        )


def _products(columns: np.ndarray, a: np.ndarray) -> np.ndarray:
    """The inner products of all columns with ``a``."""
    parts, whole = _parts(columns)
    sums = np.matmul(a[:whole].reshape(len(parts), 1, -1), parts).sum(axis=(0, 1))
    if whole < a.size:
        sums += a[whole:] @ columns[whole:]
    return sums


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
class StoredCurvature:
    """A `Curvature` in a checkpoint: vectors, and numbers column by column."""

    most: int
    steps: tuple[Array, ...]
    changes: tuple[Array, ...]
    steps_changes: tuple[float, ...]
    changes_changes: tuple[float, ...]
    to_steps: tuple[float, ...]
    to_changes: tuple[float, ...]

    def unpacked(self, space: Space | None) -> Curvature:
        """As it was; without a space, with its vectors one by one."""
        k = len(self.steps)
        if not len(self.changes) == len(self.to_steps) == len(self.to_changes) == k <= self.most:
            raise ValueError(f"{k} steps, {len(self.changes)} changes, {self.most} at the most")
        made = Listed(self.most) if space is None else Curvature.unknown(space, self.most)
        if isinstance(made, Stacked):
            made = made.filled(self.steps, self.changes)
        else:
            made = Listed(self.most, self.steps, self.changes)
        made.steps_changes = np.array(self.steps_changes).reshape((k, k), order="F")
        made.changes_changes = np.array(self.changes_changes).reshape((k, k), order="F")
        made.to_steps, made.to_changes = np.array(self.to_steps), np.array(self.to_changes)
        return made
