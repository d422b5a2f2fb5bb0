"""The BFGS matrix of all pairs of a run, for few variables.

Then the matrix itself is cheaper than its pairs.  It stands on the host, in double precision,
whatever the library of x.
"""

from __future__ import annotations

import math

import numpy as np

from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.space import Array, Space, to_numpy
from momentous.methods.classical.curvature import Curvature, blas, correction, is_of_use


class WholeMatrix(Curvature):
    """H of all pairs, from (<s, y>/<y, y>) I of the newest pair: H = scale A + C.

    With V_i = I - y_i s_i'/<s_i, y_i>, A is V_k' ... V_1' V_1 ... V_k, and C what the update adds;
    a pair changes each of them by a matrix of rank two.
    """

    __slots__ = ("_blas", "_count", "_first", "_rest", "_scale")

    def __init__(self, first: np.ndarray, rest: np.ndarray, scale: float, count: int):
        self._first, self._rest = first, rest  # A and C; only the upper triangles are used
        self._scale, self._count = scale, count
        self._blas = blas()

    @classmethod
    def unknown(cls, dimension: int) -> WholeMatrix:
        """Without pairs, for so many variables."""
        first, rest = np.eye(dimension), np.zeros((dimension, dimension))
        return cls(np.asfortranarray(first), np.asfortranarray(rest), 1.0, 0)

    def __len__(self) -> int:
        return self._count

    def at(self, space: Space, sample: Sample) -> WholeMatrix:
        return self

    def extended(self, space: Space, here: Sample, there: Sample, noise: float) -> WholeMatrix:
        g = _flat(space, here.gradient)
        s = _flat(space, there.point) - _flat(space, here.point)
        y = _flat(space, there.gradient) - g
        n, routines = s.size, self._blas
        dot, times, add = routines.ddot, routines.dsymv, routines.daxpy
        sy, yy = dot(s, y), dot(y, y)
        if not is_of_use(dot(s, s), sy, yy):
            return self
        t = correction(here.value - there.value, dot(s, g), sy, noise)
        # V'AV = A - (s a' + a s')/<s, y>, with a = Ay - (y'Ay/<s, y>)/2 s, and so for C, to which
        # s s'/(t <s, y>) is added.
        a = times(1.0, self._first, y)
        add(s, a, n, -0.5 * dot(y, a) / sy)
        c = times(1.0, self._rest, y)
        add(s, c, n, -0.5 * dot(y, c) / sy - 0.5 / t)
        update = routines.dsyr2
        first = update(-1.0 / sy, s, a, 0, 1, 0, 1, 0, n, self._first)  # copies, changed
        rest = update(-1.0 / sy, s, c, 0, 1, 0, 1, 0, n, self._rest)
        return WholeMatrix(first, rest, sy / yy, self._count + 1)

    def direction(self, space: Space, gradient: Array) -> Array:
        times, g = self._blas.dsymv, _flat(space, gradient)
        part = times(-self._scale, self._first, g)
        host = times(-1.0, self._rest, g, 1.0, part, 0, 1, 0, 1, 0, 1)  # into part
        host = host.reshape(space.shape)
        return host if space.plain else space.from_numpy(host)

    def packed(self) -> StoredMatrix:
        corner = np.tril_indices(len(self._first))
        parts = (tuple(part.T[corner].tolist()) for part in (self._first, self._rest))
        return StoredMatrix(self._count, self._scale, *parts)


@record
class StoredMatrix:
    """A `WholeMatrix` in a checkpoint: upper triangles, column by column."""

    count: int
    scale: float
    first: tuple[float, ...]
    rest: tuple[float, ...]

    def unpacked(self, space: Space | None) -> WholeMatrix:
        """As it was."""
        d = math.isqrt(2 * len(self.first))
        if space is not None and space.size != d:
            raise ValueError(f"{len(self.first)} numbers are no triangle with {space.size} columns")
        first, rest = np.zeros((d, d), order="F"), np.zeros((d, d), order="F")
        first.T[np.tril_indices(d)], rest.T[np.tril_indices(d)] = self.first, self.rest
        return WholeMatrix(first, rest, self.scale, self.count)


def _flat(space: Space, a: Array) -> np.ndarray:
    if space.plain:
        flat: np.ndarray = a.reshape(-1)
        return flat
    return to_numpy(a).reshape(-1).astype(np.float64)
