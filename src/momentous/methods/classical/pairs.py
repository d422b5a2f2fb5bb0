"""The pairs of L-BFGS, steps and changes of the gradient: vectors in two kinds of storage.

`Stacked` keeps short vectors of doubles as rows of one array, so that the products with all of them
are one call of BLAS.  `Listed` keeps any arrays, one by one.

Neither changes what it was: a new pair is written into a row that no older storage looks at.
"""

from __future__ import annotations

import functools
from typing import Any, Protocol, Self

import numpy as np

from momentous.core.blocks import ROW
from momentous.core.oracle import Sample
from momentous.core.space import Array, Space

# Vectors up to this length are stacked: there calls cost more than arithmetic.
STACKED = 1 << 15
# BLAS libraries keep to one thread for matrices of so many entries (OpenBLAS: 9,216), so that sums
# do not depend on how many threads there are.
ONE_THREAD = 9216


@functools.cache
def blas() -> Any:
    """SciPy's BLAS, imported where a method needs it."""
    from scipy.linalg import blas as routines

    return routines


class Pairs(Protocol):
    """The newest pairs of a run, the oldest first."""

    most: int  # pairs to keep

    def extended(
        self, space: Space, here: Sample, there: Sample
    ) -> tuple[Self, float, float, float]:
        """With the pair from here to there, without the oldest if there is no room; and the new
        pair's <s, s>, <s, y>, <y, y>."""

    def inners(self, space: Space, a: Array) -> np.ndarray:
        """Row i: <s_i, a> and <y_i, a>."""

    def combined(self, space: Space, weights: np.ndarray, weight: float, a: Array) -> Array:
        """The sum of all s_i and y_i with their weights and of weight a, as a fresh array."""

    def listed(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """The steps and the changes."""

    def filled(self, steps: tuple[Array, ...], changes: tuple[Array, ...]) -> Self:
        """A storage of the same kind with these pairs."""


def no_pairs(space: Space, most: int) -> Pairs:
    """An empty storage for so many pairs."""
    if space.plain and not space.has_own_inner and space.size <= STACKED:
        return Stacked(most, space.shape, _Rows(np.empty((2 * most, 2, space.size))), 0, 0)
    return Listed(most)


class Listed:
    """Arrays of any library, or long ones."""

    __slots__ = ("changes", "most", "steps")

    def __init__(
        self, most: int, steps: tuple[Array, ...] = (), changes: tuple[Array, ...] = ()
    ):
        self.most, self.steps, self.changes = most, steps, changes

    def extended(
        self, space: Space, here: Sample, there: Sample
    ) -> tuple[Listed, float, float, float]:
        s = space.combination(there.point, -1.0, here.point)
        y = space.combination(there.gradient, -1.0, here.gradient)
        first = max(0, len(self.steps) + 1 - self.most)
        after = Listed(self.most, (*self.steps[first:], s), (*self.changes[first:], y))
        return after, space.inner(s, s), space.inner(s, y), space.inner(y, y)

    def inners(self, space: Space, a: Array) -> np.ndarray:
        return np.array([space.inners(self.steps, a), space.inners(self.changes, a)]).T

    def combined(self, space: Space, weights: np.ndarray, weight: float, a: Array) -> Array:
        numbers = [weight, *weights[:, 1].tolist(), *weights[:, 0].tolist()]
        return space.weighted_sum(numbers, (a, *self.changes, *self.steps))

    def listed(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        return self.steps, self.changes

    def filled(self, steps: tuple[Array, ...], changes: tuple[Array, ...]) -> Listed:
        return Listed(self.most, steps, changes)


class _Rows:
    """Room for twice as many pairs as are kept, and how many rows are written to."""

    __slots__ = ("array", "used")

    def __init__(self, array: np.ndarray, used: int = 0):
        self.array, self.used = array, used


class Stacked:
    """Rows ``begin`` to ``end`` of an array (row, step or change, entry) that storages share.

    A row is written once.  An extension of this storage writes the row ``end``, which neither this
    one nor any before it looks at; if another extension has taken that row already (a step that was
    cut short is taken again), or if there is none left, it moves to an array of its own.
    """

    __slots__ = ("_begin", "_end", "_matrix", "_rows", "_shape", "most")

    def __init__(self, most: int, shape: tuple[int, ...], rows: _Rows, begin: int, end: int):
        self.most, self._shape, self._rows = most, shape, rows
        self._begin, self._end = begin, end
        self._matrix = rows.array[begin:end].reshape(2 * (end - begin), rows.array.shape[-1])

    def extended(
        self, space: Space, here: Sample, there: Sample
    ) -> tuple[Stacked, float, float, float]:
        rows, end = self._rows, self._end
        begin = max(self._begin, end + 1 - self.most)
        if rows.used != end or end == len(rows.array):
            kept = rows.array[begin:end]
            rows = _Rows(np.empty_like(rows.array), len(kept))
            rows.array[: len(kept)] = kept
            begin, end = 0, len(kept)
        s, y = rows.array[end]
        np.subtract(there.point.reshape(-1), here.point.reshape(-1), out=s)
        np.subtract(there.gradient.reshape(-1), here.gradient.reshape(-1), out=y)
        rows.used = end + 1
        after = Stacked(self.most, self._shape, rows, begin, end + 1)
        if s.size <= ROW:
            dot = blas().ddot
            return after, dot(s, s), dot(s, y), dot(y, y)
        return after, space.inner(s, s), space.inner(s, y), space.inner(y, y)

    def inners(self, space: Space, a: Array) -> np.ndarray:
        w, a = self._matrix, a.reshape(-1)
        if w.size <= ONE_THREAD:
            return blas().dgemv(1.0, w.T, a, trans=1).reshape(-1, 2)
        parts, whole = _parts(w)
        sums = np.matmul(parts, a[:whole].reshape(len(parts), -1, 1)).sum(axis=0)[:, 0]
        if whole < a.size:
            sums += w[:, whole:] @ a[whole:]
        return sums.reshape(-1, 2)

    def combined(self, space: Space, weights: np.ndarray, weight: float, a: Array) -> Array:
        w, flat = self._matrix, weights.reshape(-1)
        if w.size <= ONE_THREAD:
            return blas().dgemv(1.0, w.T, flat, weight, a.reshape(-1)).reshape(self._shape)
        fresh = a.reshape(-1) * weight
        parts, whole = _parts(w)
        fresh[:whole] += np.matmul(flat, parts).reshape(-1)
        if whole < fresh.size:
            fresh[whole:] += flat @ w[:, whole:]
        return fresh.reshape(self._shape)

    def listed(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        rows = self._rows.array[self._begin : self._end]
        steps, changes = (tuple(r.reshape(self._shape) for r in rows[:, i]) for i in (0, 1))
        return steps, changes

    def filled(self, steps: tuple[Array, ...], changes: tuple[Array, ...]) -> Stacked:
        rows = _Rows(np.empty_like(self._rows.array), len(steps))
        for row, s, y in zip(rows.array, steps, changes, strict=False):
            row[0], row[1] = s.reshape(-1), y.reshape(-1)
        return Stacked(self.most, self._shape, rows, 0, len(steps))


def _parts(matrix: np.ndarray) -> tuple[np.ndarray, int]:
    """The columns of a matrix in parts of equal width, as a stack of matrices small enough for one
    thread, and how many columns these are together."""
    rows, columns = matrix.shape
    width = max(8, ONE_THREAD // rows // 8 * 8)
    whole = columns // width * width
    return matrix[:, :whole].reshape(rows, -1, width).transpose(1, 0, 2), whole
