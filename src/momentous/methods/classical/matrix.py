"""The BFGS matrix of all pairs of a run, for few variables, where it is cheaper than its pairs.

From gamma I, with gamma = <s, y>/<y, y> of the newest pair, H = gamma A + C.  With
V_i = I - y_i s_i'/<s_i, y_i>, A is V_k' ... V_1' V_1 ... V_k, and C what the update H -> V'HV +
s s'/(t <s, y>) adds, t the correction by values.  A pair changes each by a matrix of rank two:

    V'AV = A - (s a' + a s')/<s, y>,    a = A y - (y'Ay/<s, y>)/2 s,

and so for C, with 1/(2 t) more in the weight of s.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np
from scipy.linalg.blas import daxpy, ddot, dsymv, dsyr2

from momentous.core.machine import Host, has_kinks
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.space import Array, Space, to_numpy
from momentous.methods.classical.compact import correction, is_of_use, solve_positive
from momentous.methods.classical.constants import LBFGS_CONSTANTS
from momentous.methods.classical.curvature import (
    UNIT,
    ArrayCurvature,
    CurvatureMachine,
    HostCurvature,
    Pair,
    line_from,
    times,
    zeros,
)
from momentous.methods.classical.pairs import HostPairs
from momentous.methods.search.wolfe import Line


class DenseInverse:
    """H as an array, on flat NumPy vectors, or on the columns of a matrix."""

    def __init__(self, matrix: np.ndarray):
        self.matrix = matrix

    def times(self, x: np.ndarray) -> np.ndarray:
        product: np.ndarray = self.matrix @ x
        return product

    def solve(self, held: np.ndarray, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """z with (H z)_A = r_A and z = 0 outside of A, where ``held``, and H z."""
        chosen, z = np.flatnonzero(held), np.zeros(r.shape)
        columns = self.matrix[:, chosen]
        z[chosen] = solve_positive(columns[chosen], r[chosen])
        return z, columns @ z[chosen]


class _Halves:
    """A and C, of which only the upper triangles are used; curvatures with the same pairs share
    them."""

    __slots__ = ("__weakref__", "first", "is_promised", "rest")

    def __init__(self, first: np.ndarray, rest: np.ndarray):
        self.first, self.rest = first, rest
        self.is_promised = False  # to an update, which may be made in place

    def arrays_for_update(self) -> tuple[np.ndarray, np.ndarray]:
        """A and C as they are; copies for the second who asks, as where a step is taken again."""
        if self.is_promised:
            return self.first.copy(order="F"), self.rest.copy(order="F")
        self.is_promised = True
        return self.first, self.rest


class HostMatrix(HostCurvature):
    """H of all pairs on the host, in double precision, whatever the library of x.

    A new pair changes A and C when H is first asked for: by then nobody holds the curvature before
    it any more, as a rule, and they are changed in place.
    """

    __slots__ = ("_gamma", "_halves", "_update")

    def __init__(
        self, halves: _Halves | None, gamma: float, count: int,
        update: tuple[Any, ...] = (),
    ):  # fmt: skip
        self._halves, self._gamma, self.count, self._line = halves, gamma, count, None
        # Without halves: A and C before the newest pair, a weak reference to their halves, which is
        # dead once nobody needs them as they were, and s, a, c and <s, y> of the pair.
        self._update = update

    @classmethod
    def unknown(cls, dimension: int) -> HostMatrix:
        """Without pairs, for so many variables."""
        first = np.eye(dimension, order="F")
        return cls(_Halves(first, np.zeros_like(first)), 1.0, 0)

    def without_pairs(self) -> HostMatrix:
        return HostMatrix.unknown(len(self._settled().first))

    def at(self, m: Host, here: Sample) -> HostMatrix:
        return HostMatrix(self._settled(), self._gamma, self.count)

    def extended(self, m: Host, here: Sample, there: Sample, noise: float) -> HostMatrix:
        halves, space = self._halves or self._settled(), m.space
        x, x_new, g, g_new = here.point, there.point, here.gradient, there.gradient
        if not space.flat:
            x, x_new, g, g_new = (_flat(space, a) for a in (x, x_new, g, g_new))
        s, y = x_new - x, g_new - g
        n, sy, yy = s.size, ddot(s, y), ddot(y, y)
        if has_kinks(space):  # see `compact.moved_square`
            moved = np.where(s != 0.0, y, 0.0)
            yy = ddot(moved, moved)
        if not is_of_use(ddot(s, s), sy, yy):
            return self.at(m, there)
        t = correction(here.value - there.value, ddot(s, g), sy, noise)
        first, rest = halves.arrays_for_update()
        a, c = dsymv(1.0, first, y), dsymv(1.0, rest, y)
        daxpy(s, a, n, -0.5 * ddot(y, a) / sy)
        daxpy(s, c, n, -0.5 * ddot(y, c) / sy - 0.5 / t)
        update = first, rest, weakref.ref(halves), s, a, c, sy
        return HostMatrix(None, sy / yy, self.count + 1, update)

    def _settled(self) -> _Halves:
        """A and C with the newest pair: in place where nobody else holds them."""
        halves = self._halves
        if halves is not None:
            return halves
        first, rest, before, s, a, c, sy = self._update
        n, alone = s.size, before() is None
        try:
            first = dsyr2(-1.0 / sy, s, a, 0, 1, 0, 1, 0, n, first, alone)
            rest = dsyr2(-1.0 / sy, s, c, 0, 1, 0, 1, 0, n, rest, alone)
            halves = _Halves(first, rest)
        except BaseException:  # interrupted: A and C do not belong together any more
            nothing = HostMatrix.unknown(n)
            halves, self._gamma, self.count = nothing._halves, 1.0, 0
            raise
        finally:
            self._halves, self._update = halves, ()
        return halves

    def first_scale(self, m: Host) -> float:
        return self._gamma

    def descent(self, m: Host, gradient: Array) -> Array:
        halves, space = self._halves or self._settled(), m.space
        g = gradient if space.flat else _flat(space, gradient)
        part = dsymv(-self._gamma, halves.first, g)
        part = dsymv(-1.0, halves.rest, g, 1.0, part, 0, 1, 0, 1, 0, 1)  # into part
        return part if space.flat else space.from_numpy(part.reshape(space.shape))

    def inverse(self) -> DenseInverse:
        halves = self._settled()
        upper = np.triu(self._gamma * halves.first + halves.rest)
        return DenseInverse(upper + np.triu(upper, 1).T)

    def solve(self, m: Host, held: Array, r: Array) -> tuple[Array, Array]:
        space = m.space
        both = self.inverse().solve(_flat(space, held), _flat(space, r))
        z, product = (space.from_numpy(a.reshape(space.shape)) for a in both)
        return z, product

    def packed(self) -> StoredMatrix:
        halves = self._settled()
        corner = np.tril_indices(len(halves.first))
        parts = (tuple(part.T[corner].tolist()) for part in (halves.first, halves.rest))
        return StoredMatrix(self.count, self._gamma, *parts)


@record
class StoredMatrix:
    """A `HostMatrix` in a checkpoint: upper triangles, column by column."""

    count: int
    gamma: float
    first: tuple[float, ...]
    rest: tuple[float, ...]

    def unpacked(self, space: Space | None) -> HostCurvature:
        """As it was; where x is now spread over ranks, no pairs yet."""
        d = math.isqrt(2 * len(self.first))
        if space is not None and space.is_part and space.dimension == d:
            return HostPairs.unknown(LBFGS_CONSTANTS.pairs_on_ranks)
        if space is not None and space.size != d:
            raise ValueError(f"{len(self.first)} numbers are no triangle with {space.size} columns")
        first, rest = np.zeros((d, d), order="F"), np.zeros((d, d), order="F")
        first.T[np.tril_indices(d)], rest.T[np.tril_indices(d)] = self.first, self.rest
        return HostMatrix(_Halves(first, rest), self.gamma, self.count)


def _flat(space: Space, a: Array) -> np.ndarray:
    """As a flat array on the host, in double precision."""
    flat: np.ndarray = a if space.plain else to_numpy(a).astype(np.float64)
    return flat if flat.ndim == 1 else flat.reshape(-1)


# --- where numbers are arrays ---------------------------------------------------------------------


@record
class ArrayMatrix(ArrayCurvature):
    """H of all pairs where numbers are arrays."""

    both: Array  # A - I and C, (..., 2, d, d)
    gamma: Array
    count: Array
    way: Line

    @classmethod
    def unknown(cls, m: CurvatureMachine, here: Sample) -> ArrayMatrix:
        """Without pairs, for runs that begin here."""
        both = zeros(m, 2, m.dimension, m.dimension)  # to be changed in place
        return cls(both, zeros(m), zeros(m, dtype=m.whole), line_from(m, here, UNIT, True))

    def first_scale(self, m: CurvatureMachine) -> Array:
        return m.where(self.count > 0, self.gamma, 1.0)

    def descent(self, m: CurvatureMachine, gradient: Array) -> Array:
        g = m.widened(m.entries(gradient))
        return self._descent(m, g, times(m, self.both, g[..., None, :]))

    def _descent(self, m: CurvatureMachine, g: Array, products: Array) -> Array:
        """Given (A - I) g and C g."""
        return m.vector(
            -(self.first_scale(m)[..., None] * (g + products[..., 0, :]) + products[..., 1, :])
        )

    def solve(self, m: CurvatureMachine, held: Array, r: Array) -> tuple[Array, Array]:
        mask = m.entries(held) != 0.0
        unit = m.xp.eye(m.dimension, dtype=m.wide, device=m.device)
        scale, both = self.first_scale(m)[..., None, None], self.both
        whole = scale * (unit + both[..., 0, :, :]) + both[..., 1, :, :]
        block = m.where(mask[..., :, None] & mask[..., None, :], whole, unit)
        z = m.solve_positive(block, m.widened(m.entries(r)))
        return m.vector(z), m.vector(times(m, whole, z))

    def _after(
        self, m: CurvatureMachine, moved: Any, failed: Any, here: Sample, there: Sample, pair: Pair
    ) -> ArrayMatrix:
        s, y, g = (m.widened(a) for a in (pair.s, pair.y, m.entries(there.gradient)))
        both, of_g = m.in_pieces(_rank_two, moved, self.both, s, y, g, pair.sy, pair.t)
        if m.needs(failed):
            both = m.choose(failed, m.xp.zeros_like(both), both)

        def extend() -> tuple[Array, Array, Line]:
            gamma = m.where(pair.use, pair.sy / pair.yy, self.gamma)
            count = self.count + m.where(pair.use, 1, 0)
            made = ArrayMatrix(both, gamma, count, self.way)
            if has_kinks(m):
                return gamma, count, made.at(m, there).way
            return gamma, count, Line.along(m, there, made._descent(m, g, of_g), count == 0)

        def forget() -> tuple[Array, Array, Line]:
            return self.gamma, m.xp.zeros_like(self.count), line_from(m, here, UNIT, True)

        known = self.gamma, self.count, self.way
        return ArrayMatrix(both, *m.case(known, (moved, extend), (failed, forget)))


def _rank_two(
    m: CurvatureMachine, both: Array, s: Array, y: Array, g: Array, sy: Array, t: Array
) -> tuple[Array, Array, Array]:
    """What a pair takes off A and C, as a product of two matrices; and the new (A - I) g and C g.

    Both matrices are read once for two products.
    """
    xp, (*lanes, two, d, _) = m.xp, both.shape
    products = m.matmul(xp.reshape(both, (*lanes, two * d, d)), xp.stack([y, g], axis=-1))
    products = xp.reshape(products, (*lanes, two, d, 2))
    of_y, of_g = products[..., 0] + xp.stack([y, xp.zeros_like(y)], axis=-2), products[..., 1]
    half, sy = xp.stack([xp.zeros_like(t), 0.5 / t], axis=-1), sy[..., None]
    a = of_y - (0.5 * times(m, of_y, y) / sy + half)[..., None] * s[..., None, :]
    s, share = xp.broadcast_to(s[..., None, :], a.shape), 1.0 / sy[..., None]
    of_g = of_g - share * (s * times(m, a, g)[..., None] + a * times(m, s, g)[..., None])
    return xp.stack([s, a], axis=-1), xp.stack([share * a, share * s], axis=-2), of_g
