"""The BFGS matrix of all pairs of a run, for few variables.

Then the matrix itself is cheaper than its pairs.  It stands on the host, in double precision,
whatever the library of x.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from scipy.linalg.blas import daxpy, ddot, dsymv, dsyr2
from scipy.linalg.lapack import dposv

from momentous.core.machine import Host, has_kinks
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.space import Array, Space, to_numpy
from momentous.methods.classical.curvature import HostCurvature, correction, is_of_use
from momentous.methods.classical.fused_pairs import FusedPairs

PAIRS_ON_RANKS = 40  # kept in place of a matrix where x is spread over ranks


class WholeMatrix(HostCurvature):
    """H of all pairs, from (<s, y>/<y, y>) I of the newest pair: H = scale A + C.

    With V_i = I - y_i s_i'/<s_i, y_i>, A is V_k' ... V_1' V_1 ... V_k, and C what the update adds;
    a pair changes each of them by a matrix of rank two.  That is done when H is first asked for: by
    then nobody holds the curvature before it any more, as a rule, and its matrices need no copy.
    """

    __slots__ = ("_first", "_rest", "_scale", "_update", "count")

    def __init__(
        self,
        first: np.ndarray,
        rest: np.ndarray,
        scale: float,
        count: int,
        update: tuple[np.ndarray, np.ndarray, np.ndarray, float] | None = None,
    ):
        self._first, self._rest = first, rest  # A and C; only the upper triangles are used
        self._scale, self.count = scale, count
        self._line = None
        self._update = update  # of A and C by the newest pair: s, a, c and <s, y>, see `extended`

    @classmethod
    def unknown(cls, dimension: int) -> WholeMatrix:
        """Without pairs, for so many variables."""
        first = np.eye(dimension, order="F")
        return cls(first, np.zeros_like(first), 1.0, 0)

    def without_pairs(self) -> WholeMatrix:
        return WholeMatrix.unknown(len(self._first))

    def at(self, m: Host, here: Sample) -> WholeMatrix:
        return WholeMatrix(self._first, self._rest, self._scale, self.count, self._update)

    def extended(self, space: Space, here: Sample, there: Sample, noise: float) -> WholeMatrix:
        if self._update is not None:
            self._settle()
        x, x_new, g, g_new = here.point, there.point, here.gradient, there.gradient
        if not space.flat:
            x, x_new, g, g_new = (_flat(space, a) for a in (x, x_new, g, g_new))
        s, y = x_new - x, g_new - g
        n, sy, yy = s.size, ddot(s, y), ddot(y, y)
        if has_kinks(space):
            moved = np.where(s != 0.0, y, 0.0)
            yy = ddot(moved, moved)
        if not is_of_use(ddot(s, s), sy, yy):
            return self.at(Host.of(space), there)
        t = correction(here.value - there.value, ddot(s, g), sy, noise)
        # V'AV = A - (s a' + a s')/<s, y>, with a = Ay - (y'Ay/<s, y>)/2 s, and so for C, to which
        # s s'/(t <s, y>) is added.
        a, c = dsymv(1.0, self._first, y), dsymv(1.0, self._rest, y)
        daxpy(s, a, n, -0.5 * ddot(y, a) / sy)
        daxpy(s, c, n, -0.5 * ddot(y, c) / sy - 0.5 / t)
        return WholeMatrix(self._first, self._rest, sy / yy, self.count + 1, (s, a, c, sy))

    def _settle(self) -> None:
        """Update A and C by the newest pair: in place where nobody else holds them."""
        assert self._update is not None
        s, a, c, sy = self._update
        n, alone = s.size, self._holders() == _ALONE
        try:
            self._first = dsyr2(-1.0 / sy, s, a, 0, 1, 0, 1, 0, n, self._first, alone)
            self._rest = dsyr2(-1.0 / sy, s, c, 0, 1, 0, 1, 0, n, self._rest, alone)
        except BaseException:  # interrupted: A and C do not belong together any more
            nothing = WholeMatrix.unknown(n)
            self._first, self._rest = nothing._first, nothing._rest
            self._scale, self.count = 1.0, 0
            raise
        finally:
            self._update = None

    def _holders(self) -> int:
        """The reference count of A, which is that of C, too."""
        return sys.getrefcount(self._first)

    def solve(self, m: Host, held: Array, r: Array) -> tuple[Array, Array]:
        space = m.space
        chosen, z = np.flatnonzero(_flat(space, held)), np.zeros(space.size)
        columns = self.dense()[:, chosen]
        _, found, failed = dposv(columns[chosen], _flat(space, r)[chosen])
        z[chosen] = math.nan if failed else found
        both = (z, columns @ z[chosen])
        z, product = (space.from_numpy(a.reshape(space.shape)) for a in both)
        return z, product

    def first_scale(self, m: Any = None) -> float:
        return self._scale

    def direction(self, space: Space, gradient: Array) -> Array:
        if self._update is not None:
            self._settle()
        g = gradient if space.flat else _flat(space, gradient)
        part = dsymv(-self._scale, self._first, g)
        part = dsymv(-1.0, self._rest, g, 1.0, part, 0, 1, 0, 1, 0, 1)  # into part
        return part if space.flat else space.from_numpy(part.reshape(space.shape))

    def dense(self) -> np.ndarray:
        """H, with both triangles."""
        if self._update is not None:
            self._settle()
        upper = np.triu(self._scale * self._first + self._rest)
        whole: np.ndarray = upper + np.triu(upper, 1).T
        return whole

    def packed(self) -> StoredMatrix:
        if self._update is not None:
            self._settle()
        corner = np.tril_indices(len(self._first))
        parts = (tuple(part.T[corner].tolist()) for part in (self._first, self._rest))
        return StoredMatrix(self.count, self._scale, *parts)


# The reference count of a matrix that one curvature holds.  How many references a call adds depends
# on the Python version and on debuggers: it is measured, in a call of the same form.
_ALONE = WholeMatrix(np.empty((0, 0)), np.empty((0, 0)), 1.0, 0)._holders()


@record
class StoredMatrix:
    """A `WholeMatrix` in a checkpoint: upper triangles, column by column."""

    count: int
    scale: float
    first: tuple[float, ...]
    rest: tuple[float, ...]

    def unpacked(self, space: Space | None) -> HostCurvature:
        """As it was; where x is now spread over ranks, no pairs yet."""
        d = math.isqrt(2 * len(self.first))
        if space is not None and space.is_part and space.dimension == d:
            return FusedPairs(PAIRS_ON_RANKS)
        if space is not None and space.size != d:
            raise ValueError(f"{len(self.first)} numbers are no triangle with {space.size} columns")
        first, rest = np.zeros((d, d), order="F"), np.zeros((d, d), order="F")
        first.T[np.tril_indices(d)], rest.T[np.tril_indices(d)] = self.first, self.rest
        return WholeMatrix(first, rest, self.scale, self.count)


def _flat(space: Space, a: Array) -> np.ndarray:
    """As a flat array on the host, in double precision."""
    flat: np.ndarray = a if space.plain else to_numpy(a).astype(np.float64)
    return flat if flat.ndim == 1 else flat.reshape(-1)
