"""The pairs of L-BFGS where numbers are arrays: the last ones, or the matrix of all.

For a compiled run, and for many runs in lanes, whose axis comes before those of vectors and
matrices.  The formulas are those of `momentous.methods.classical`.  A store of zeros has no pairs.
Vectors are entries here, (..., d), whatever they are elsewhere.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

from momentous.core.machine import has_kinks
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.space import Array
from momentous.methods.classical.box_model import Inverse
from momentous.methods.classical.curvature import (
    Curvature,
    correction,
    is_of_use,
    moved_square,
)
from momentous.methods.classical.prox_model import line_with_kinks
from momentous.methods.search.wolfe import Line


def no_pairs(m: Any, here: Sample, most: int | None) -> Stored:
    """A store of so many pairs (None: of all), for runs that begin here."""

    def zeros(*shape: int, dtype: Any = m.wide) -> Array:
        return m.xp.zeros((*m.lanes_shape, *shape), dtype=dtype, device=m.device)

    d, none, way = m.dimension, zeros(dtype=m.whole), _line(m, here, UNIT, True)
    if most is None:
        return Matrix(zeros(2, d, d), zeros(), none, way)
    steps, changes = (zeros(most, d, dtype=m.dtype) for _ in range(2))  # to be changed in place
    square = zeros(most, most)
    products = Products(square, square, zeros(most), zeros(), none, none)
    return Windows(steps, changes, products, way)


class Pair:
    """A step, and what it says; zeros where it is not of use."""

    def __init__(self, m: Any, moved: Any, here: Sample, there: Sample, noise: Any):
        s = m.entries(m.combination(there.point, -1.0, here.point))
        y = m.entries(m.combination(there.gradient, -1.0, here.gradient))
        ss, sy = m.inner(s, s), m.inner(s, y)
        yy = moved_square(m, s, y) if has_kinks(m) else m.inner(y, y)
        self.use = moved & is_of_use(ss, sy, yy, m)
        self.s, self.y = (m.choose(self.use, a, m.xp.zeros_like(a)) for a in (s, y))
        self.sy, self.yy = m.where(self.use, sy, 1.0), m.where(self.use, yy, 1.0)
        slope = m.inner(self.s, m.entries(here.gradient))
        self.t = correction(here.value - there.value, slope, self.sy, noise, m)


def _line(m: Any, here: Sample, inverse: Inverse, guess: Any) -> Line:
    if has_kinks(m):
        return line_with_kinks(m, here, inverse, guess)
    return Line.along(m, here, inverse.descent(m, here.gradient), guess)


class Unit:
    """H without pairs."""

    def descent(self, m: Any, gradient: Array) -> Array:
        return m.vector(-m.entries(gradient))

    def first_scale(self, m: Any) -> Any:
        return 1.0

    def solve(self, m: Any, held: Array, r: Array) -> tuple[Array, Array]:
        return r, r


UNIT = Unit()


class Stored(Curvature):
    """What both stores share; each is a `box_model.Inverse`."""

    __slots__ = ()

    way: Line  # from where the pairs end

    def line(self, m: Any, here: Sample) -> Line:
        return self.way

    def at(self, m: Any, here: Sample) -> Stored:
        return m.but(self, way=_line(m, here, self, self.count == 0))  # type: ignore[no-any-return]

    def after(
        self, m: Any, moved: Any, failed: Any, here: Sample, there: Sample,
        noise: Callable[[], Any],
    ) -> Stored:  # fmt: skip
        if not m.needs(moved | failed):
            return self
        return self._after(m, moved, failed, here, there, Pair(m, moved, here, there, noise()))

    @abc.abstractmethod
    def descent(self, m: Any, gradient: Array) -> Array:
        """-H g."""

    @abc.abstractmethod
    def solve(self, m: Any, held: Array, r: Array) -> tuple[Array, Array]:
        """See `box_model.Inverse`."""

    @abc.abstractmethod
    def first_scale(self, m: Any) -> Any:
        """See `box_model.Inverse`."""

    @abc.abstractmethod
    def _after(
        self, m: Any, moved: Any, failed: Any, here: Sample, there: Sample, pair: Pair
    ) -> Stored:
        """The long arrays are changed outside of branches, which would copy them."""


@record
class Matrix(Stored):
    """H of all pairs, as scale A + C: see `WholeMatrix`."""

    both: Any  # A - I and C, (..., 2, d, d)
    scale: Any
    count: Any
    way: Line

    def descent(self, m: Any, gradient: Array) -> Array:
        g = m.widened(m.entries(gradient))
        return self._descent(m, g, _times(m, self.both, g[..., None, :]))

    def _descent(self, m: Any, g: Array, products: Array) -> Array:
        """Given (A - I) g and C g."""
        scale = m.where(self.count > 0, self.scale, 1.0)[..., None]
        return m.vector(-(scale * (g + products[..., 0, :]) + products[..., 1, :]))

    def first_scale(self, m: Any) -> Any:
        return m.where(self.count > 0, self.scale, 1.0)

    def solve(self, m: Any, held: Array, r: Array) -> tuple[Array, Array]:
        mask, unit = m.entries(held) != 0.0, m.xp.eye(m.dimension, dtype=m.wide)
        scale = m.where(self.count > 0, self.scale, 1.0)[..., None, None]
        whole = scale * (unit + self.both[..., 0, :, :]) + self.both[..., 1, :, :]
        block = m.where(mask[..., :, None] & mask[..., None, :], whole, unit)
        z = m.solve_positive(block, m.widened(m.entries(r)))
        return m.vector(z), m.vector(_times(m, whole, z))

    def _after(
        self, m: Any, moved: Any, failed: Any, here: Sample, there: Sample, pair: Pair
    ) -> Matrix:
        s, y, g = (m.widened(a) for a in (pair.s, pair.y, m.entries(there.gradient)))
        both, of_g = m.in_pieces(_rank_two, moved, self.both, s, y, g, pair.sy, pair.t)
        if m.needs(failed):
            both = m.choose(failed, m.xp.zeros_like(both), both)

        def extend() -> tuple[Any, Any, Line]:
            scale = m.where(pair.use, pair.sy / pair.yy, self.scale)
            count = self.count + m.where(pair.use, 1, 0)
            made = Matrix(both, scale, count, self.way)
            if has_kinks(m):
                return scale, count, made.at(m, there).way
            return scale, count, Line.along(m, there, made._descent(m, g, of_g), count == 0)

        def forget() -> tuple[Any, Any, Line]:
            return self.scale, m.xp.zeros_like(self.count), _line(m, here, UNIT, True)

        known = self.scale, self.count, self.way
        return Matrix(both, *m.case(known, (moved, extend), (failed, forget)))


def _rank_two(
    m: Any, both: Array, s: Array, y: Array, g: Array, sy: Array, t: Array
) -> tuple[Array, Array, Array]:
    """What a pair takes off A and C, as a product of two matrices; and the new (A - I) g and C g.

    V'AV = A - (s a' + a s')/<s, y>, with a = Ay - (y'Ay/<s, y>)/2 s, and so for C, to which
    s s'/(t <s, y>) is added.  Both are read once for two products.
    """
    xp, (*lanes, two, d, _) = m.xp, both.shape
    products = m.matmul(xp.reshape(both, (*lanes, two * d, d)), xp.stack([y, g], axis=-1))
    products = xp.reshape(products, (*lanes, two, d, 2))
    of_y, of_g = products[..., 0] + xp.stack([y, xp.zeros_like(y)], axis=-2), products[..., 1]
    half, sy = xp.stack([xp.zeros_like(t), 0.5 / t], axis=-1), sy[..., None]
    a = of_y - (0.5 * _times(m, of_y, y) / sy + half)[..., None] * s[..., None, :]
    s, share = xp.broadcast_to(s[..., None, :], a.shape), 1.0 / sy[..., None]
    of_g = of_g - share * (s * _times(m, a, g)[..., None] + a * _times(m, s, g)[..., None])
    return xp.stack([s, a], axis=-1), xp.stack([share * a, share * s], axis=-2), of_g


@record
class Products:
    """Of the pairs that are kept, by their rows, whatever their age."""

    inverse: Any  # of the triangle of S'Y, zero where there is no pair
    changes_changes: Any  # Y'Y
    diagonal: Any  # <s_i, y_i>/t_i, with t_i the correction by values
    scale: Any  # <s, y>/<y, y> of the newest pair
    count: Any
    row: Any  # of the next pair

    def with_pair(self, m: Any, pair: Pair, to_steps: Any, to_changes: Any) -> Products:
        """``to_steps`` and ``to_changes`` are the products of its y with all rows.

        Without the oldest pair the inverse of the triangle is the rest of the old one, and a new
        pair adds one column.
        """
        most = self.diagonal.shape[-1]
        new = m.xp.arange(most, device=m.device) == self.row[..., None]
        cross = new[..., :, None] | new[..., None, :]
        old = m.where(cross, 0.0, self.inverse)
        column = -_times(m, old, m.where(new, 0.0, to_steps))
        column = m.where(new, 1.0, column) / pair.sy[..., None]
        products = m.where(new[..., None, :], to_changes[..., :, None], self.changes_changes)
        made = Products(
            m.where(new[..., None, :], column[..., :, None], old),
            m.where(new[..., :, None], to_changes[..., None, :], products),
            m.where(new, (pair.sy / pair.t)[..., None], self.diagonal),
            pair.sy / pair.yy,
            m.minimum(self.count + 1, most),
            (self.row + 1) % most,
        )
        return m.choose(pair.use, made, self)  # type: ignore[no-any-return]

    def weights(self, m: Any, to_steps: Any, to_changes: Any) -> tuple[Any, Any, Any]:
        """scale, p and q of -H g = scale Y p - S q - scale g, by the products of g with all
        rows."""
        scale = m.where(self.count > 0, self.scale, 1.0)[..., None]
        p = _times(m, self.inverse, to_steps)
        q = self.diagonal * p + scale * (_times(m, self.changes_changes, p) - to_changes)
        return scale, p, _times(m, m.xp.matrix_transpose(self.inverse), q)

    def middle(self, m: Any) -> Array:
        """K."""
        xp, inverse, across = m.xp, self.inverse, m.xp.matrix_transpose(self.inverse)
        scale = m.where(self.count > 0, self.scale, 1.0)[..., None, None]
        part = scale * m.matmul(self.changes_changes, inverse)
        corner = m.matmul(across, part + self.diagonal[..., :, None] * inverse)
        upper = xp.concat([corner, -scale * across], axis=-1)
        lower = xp.concat([-scale * inverse, xp.zeros_like(corner)], axis=-1)
        return xp.concat([upper, lower], axis=-2)


@record
class Windows(Stored):
    """The last pairs, one per row, the newest in place of the oldest."""

    steps: Any  # (..., most, d)
    changes: Any
    products: Products
    way: Line

    @property
    def count(self) -> Any:
        return self.products.count

    def descent(self, m: Any, gradient: Array) -> Array:
        g = m.entries(gradient)
        scale, p, q = self.products.weights(m, *self._times(m, g))
        made = scale * (m.widened(g) - _combined(m, p, self.changes))
        return m.vector(-(made + _combined(m, q, self.steps)))

    def first_scale(self, m: Any) -> Any:
        return m.where(self.count > 0, self.products.scale, 1.0)

    def solve(self, m: Any, held: Array, r: Array) -> tuple[Array, Array]:
        """By way of a matrix of the size of K: see `compact`."""
        xp, known = m.xp, self.products
        scale = m.where(known.count > 0, known.scale, 1.0)[..., None]
        rows = m.widened(xp.concat([self.steps, self.changes], axis=-2))
        chosen, right = rows * (m.entries(held) != 0.0)[..., None, :], m.widened(m.entries(r))
        K = known.middle(m)
        gram = m.matmul(chosen, xp.matrix_transpose(chosen))
        matrix = scale[..., None] * xp.eye(K.shape[-1], dtype=m.wide) + m.matmul(K, gram)
        w = xp.linalg.solve(matrix, _times(m, K, _times(m, chosen, right))[..., None])[..., 0]
        z = (right - _combined(m, w, chosen)) / scale
        return m.vector(z), m.vector(scale * z + _combined(m, w, rows))

    def _times(self, m: Any, vector: Array) -> tuple[Array, Array]:
        return _times(m, self.steps, vector), _times(m, self.changes, vector)

    def _after(
        self, m: Any, moved: Any, failed: Any, here: Sample, there: Sample, pair: Pair
    ) -> Windows:
        known, row = self.products, self.products.row
        steps = m.put(self.steps, row, pair.s, pair.use)
        changes = m.put(self.changes, row, pair.y, pair.use)
        after = Windows(steps, changes, known, self.way)

        def extend() -> tuple[Products, Line]:
            products = known.with_pair(m, pair, *after._times(m, pair.y))
            return products, m.but(after, products=products).at(m, there).way

        def forget() -> tuple[Products, Line]:
            names = Products.__slots__  # type: ignore[attr-defined]
            zeros = (m.xp.zeros_like(getattr(known, name)) for name in names)
            return Products(*zeros), _line(m, here, UNIT, True)

        made = m.case((known, self.way), (moved, extend), (failed, forget))
        return Windows(steps, changes, *made)


def _times(m: Any, rows: Array, vector: Array) -> Array:
    """The products of all rows with a vector."""
    return m.matmul(m.widened(rows), m.widened(vector)[..., None])[..., 0]


def _combined(m: Any, weights: Array, rows: Array) -> Array:
    """The sum of all rows with their weights."""
    weights = m.xp.astype(weights, rows.dtype, copy=False)
    return m.widened(m.matmul(weights[..., None, :], rows)[..., 0, :])
