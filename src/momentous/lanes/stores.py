"""What L-BFGS knows of the curvature in each of many lanes: the matrix of all pairs, or the last
ones.

The formulas are those of `momentous.methods.classical`, with the axes of lanes, if there are any,
before those of vectors and matrices; so they serve a single compiled run too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from momentous.core.machine import Host
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.space import Array
from momentous.methods.classical.curvature import Curvature, correction, is_of_use
from momentous.methods.search.wolfe import Line


def no_pairs(m: Any, most: int | None) -> Curvature:
    """A store of so many pairs (None: of all), whose line is not known yet."""
    xp, size, d = m.xp, m.size, m.dimension

    def zeros(*shape: int, dtype: Any = m.wide) -> Array:
        return xp.zeros((size, *shape), dtype=dtype, device=m.device)

    none = xp.zeros((size,), dtype=xp.int64, device=m.device)
    if most is None:
        return Matrix(zeros(2, d, d) + _unit(m, d), xp.ones_like(zeros()), none, NO_LINE)
    products = Products(
        zeros(most, most), zeros(most, most), zeros(most), xp.ones_like(zeros()), none, none
    )
    return Windows(zeros(most, d, dtype=m.dtype), zeros(most, d, dtype=m.dtype), products, NO_LINE)


NO_LINE = Line(None, 0.0, False, 0.0, 0.0, False)


def _unit(m: Any, d: int) -> Array:
    """A = I and C = 0, see `Matrix`."""
    both = np.stack([np.eye(d), np.zeros((d, d))])
    return m.xp.asarray(both, dtype=m.wide, device=m.device)


class Stored(Curvature):
    """What both stores share."""

    __slots__ = ()

    way: Line  # from where the pairs end

    def line(self, m: Any, here: Sample) -> Line:
        return self.way

    def at(self, m: Any, here: Sample) -> Curvature:
        return m.but(self, way=self._line(m, here))  # type: ignore[no-any-return]

    def _line(self, m: Any, here: Sample) -> Line:
        raise NotImplementedError


def line_along(m: Any, here: Sample, product: Array, guess: Any) -> Line:
    """Along -H g, given H g."""
    d = m.xp.astype(-product, m.dtype, copy=False)
    return Line.of(m, here, d, m.inner(here.gradient, d), m.inner(d, d), guess)


class Pair:
    """A step, and what it says; zeros where it is not of use."""

    def __init__(self, m: Any, moved: Any, here: Sample, there: Sample, noise: Any):
        s = m.combination(there.point, -1.0, here.point)
        y = m.combination(there.gradient, -1.0, here.gradient)
        ss, sy, yy = m.inner(s, s), m.inner(s, y), m.inner(y, y)
        self.use = moved & is_of_use(ss, sy, yy, m)
        self.s, self.y = (m.choose(self.use, a, m.xp.zeros_like(a)) for a in (s, y))
        self.sy, self.yy = m.where(self.use, sy, 1.0), m.where(self.use, yy, 1.0)
        slope = m.inner(self.s, here.gradient)
        self.t = correction(here.value - there.value, slope, self.sy, noise, m)


@record
class Matrix(Stored):
    """H of all pairs, as scale A + C: see `WholeMatrix`."""

    both: Any  # A and C, (..., 2, d, d)
    scale: Any
    count: Any
    way: Line

    def _line(self, m: Any, here: Sample) -> Line:
        g = m.xp.astype(here.gradient, m.wide, copy=False)
        products = m.xp.matmul(self.both, g[..., None, :, None])[..., 0]
        return line_along(m, here, self._product(products), self.count == 0)

    def _product(self, products: Array) -> Array:
        """H g of A g and C g."""
        return self.scale[..., None] * products[..., 0, :] + products[..., 1, :]

    def after(
        self, m: Any, moved: Any, failed: Any, here: Sample, there: Sample,
        noise: Callable[[], Any],
    ) -> Matrix:  # fmt: skip
        def extend() -> Matrix:
            xp, pair = m.xp, Pair(m, moved, here, there, noise())
            s, y, g = (xp.astype(a, m.wide, copy=False) for a in (pair.s, pair.y, there.gradient))
            # Both matrices are read once for two products, and once more to be changed.
            given = xp.stack([y, g], axis=-1)[..., None, :, :]
            of_y, of_g = (a[..., 0] for a in _parts(xp, xp.matmul(self.both, given)))
            sy, half = pair.sy[..., None], xp.stack([xp.zeros_like(pair.t), 0.5 / pair.t], axis=-1)
            a = of_y - (0.5 * m.inner(of_y, y[..., None, :]) / sy + half)[..., None] * s[..., None, :]
            share = m.where(pair.use, 1.0 / pair.sy, 0.0)[..., None, None]
            a_s, s_s = share * a, share * s[..., None, :]
            of_g = of_g - s_s * m.inner(a, g[..., None, :])[..., None]
            of_g = of_g - a_s * m.inner(s, g)[..., None, None]
            columns = xp.stack([xp.broadcast_to(s[..., None, :], a.shape), a], axis=-1)
            rows = xp.stack([a_s, xp.broadcast_to(s_s, a.shape)], axis=-2)
            made = Matrix(
                self.both - xp.matmul(columns, rows),
                m.where(pair.use, pair.sy / pair.yy, self.scale),
                self.count + xp.astype(pair.use, self.count.dtype),
                self.way,
            )
            way = line_along(m, there, made._product(of_g), made.count == 0)
            return m.but(made, way=m.choose(moved, way, self.way))  # type: ignore[no-any-return]

        def forget() -> Matrix:
            unit = m.xp.broadcast_to(_unit(m, m.dimension), self.both.shape)
            nothing = Matrix(unit, self.scale * 0.0 + 1.0, self.count * 0, self.way)
            return m.but(nothing, way=line_along(m, here, here.gradient, True))  # type: ignore[no-any-return]

        return m.case(self, (moved, extend), (failed, forget))  # type: ignore[no-any-return]


def _parts(xp: Any, a: Array) -> tuple[Array, Array]:
    return a[..., :1], a[..., 1:]


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
        xp, most = m.xp, self.diagonal.shape[-1]
        new = _is_row(m, self.row, most)
        cross = new[..., :, None] | new[..., None, :]
        old = m.where(cross, xp.zeros_like(self.inverse), self.inverse)
        column = -_times(xp, old, m.where(new, xp.zeros_like(to_steps), to_steps))
        column = m.where(new, xp.ones_like(column), column) / pair.sy[..., None]
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
        xp, scale = m.xp, self.scale[..., None]
        p = _times(xp, self.inverse, to_steps)
        q = self.diagonal * p + scale * (_times(xp, self.changes_changes, p) - to_changes)
        return scale, p, _times(xp, xp.matrix_transpose(self.inverse), q)


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

    def _line(self, m: Any, here: Sample) -> Line:
        xp, g = m.xp, here.gradient
        given = (_times(xp, rows, g, m.wide) for rows in (self.steps, self.changes))
        scale, p, q = self.products.weights(m, *given)
        made = scale * (xp.astype(g, m.wide, copy=False) - _combined(m, p, self.changes))
        return line_along(m, here, made + _combined(m, q, self.steps), self.count == 0)

    def after(
        self, m: Any, moved: Any, failed: Any, here: Sample, there: Sample,
        noise: Callable[[], Any],
    ) -> Windows:  # fmt: skip
        def extend() -> Windows:
            pair, known = Pair(m, moved, here, there, noise()), self.products
            put = _is_row(m, known.row, self.steps.shape[-2]) & pair.use[..., None]
            steps, changes = (
                m.where(put[..., None], vector[..., None, :], rows)
                for rows, vector in ((self.steps, pair.s), (self.changes, pair.y))
            )
            given = (_times(m.xp, rows, pair.y, m.wide) for rows in (steps, changes))
            made = Windows(steps, changes, known.with_pair(m, pair, *given), self.way)
            return m.but(made, way=m.choose(moved, made._line(m, there), self.way))  # type: ignore[no-any-return]

        def forget() -> Windows:
            known = self.products
            nothing = Products(
                known.inverse * 0.0, known.changes_changes * 0.0, known.diagonal * 0.0,
                known.scale * 0.0 + 1.0, known.count * 0, known.row * 0,
            )  # fmt: skip
            way = line_along(m, here, here.gradient, True)
            return m.but(self, products=nothing, way=way)  # type: ignore[no-any-return]

        return m.case(self, (moved, extend), (failed, forget))  # type: ignore[no-any-return]


def _times(xp: Any, a: Array, b: Array, dtype: Any = None) -> Array:
    """The products of all rows with a vector."""
    if dtype is not None and a.dtype != dtype:
        a, b = xp.astype(a, dtype), xp.astype(b, dtype)
    return xp.matmul(a, b[..., None])[..., 0]


def _combined(m: Any, weights: Array, rows: Array) -> Array:
    """The sum of all rows with their weights."""
    xp = m.xp
    weights = xp.astype(weights, rows.dtype, copy=False)
    return xp.astype(xp.matmul(weights[..., None, :], rows)[..., 0, :], m.wide, copy=False)


def _is_row(m: Any, row: Array, most: int) -> Array:
    return m.xp.arange(most, device=m.device) == row[..., None]


class Own(Curvature):
    """In every lane what a single run on the host has, bit for bit, one after the other."""

    __slots__ = ("count", "items", "way")

    def __init__(self, items: np.ndarray, way: Line):
        self.items, self.way = items, way
        self.count = np.array([each.count for each in items])

    @classmethod
    def of(cls, m: Any, on_host: Callable[[Any], Any]) -> Own:
        items = np.empty(m.size, object)
        items[:] = [on_host(m.space) for _ in range(m.size)]
        return cls(items, NO_LINE)

    def line(self, m: Any, here: Sample) -> Line:
        return self.way

    def at(self, m: Any, here: Sample) -> Own:
        host, items, made = Host.of(m.space), self.items.copy(), []
        for i, each in enumerate(self.items):
            items[i] = each.at(host, _row(here, i))
            made.append(items[i].line(host, _row(here, i)))
        return Own(items, _stacked(made))

    def after(
        self, m: Any, moved: Any, failed: Any, here: Sample, there: Sample,
        noise: Callable[[], Any],
    ) -> Own:  # fmt: skip
        moved, failed = (np.broadcast_to(a, m.size) for a in (moved, failed))
        changed = (moved | failed) & (True if m.live is None else m.live)
        if not changed.any():
            return self
        host, noises, items = Host.of(m.space), np.broadcast_to(noise(), m.size), self.items.copy()
        way = Line(*(np.array(getattr(self.way, name)) for name in LINE))
        for i in np.flatnonzero(changed).tolist():
            before, after, error = _row(here, i), _row(there, i), float(noises[i])
            items[i] = items[i].after(
                host, bool(moved[i]), bool(failed[i]), before, after, lambda error=error: error
            )
            line = items[i].line(host, after if moved[i] else before)
            for name in LINE:
                getattr(way, name)[i] = getattr(line, name)
        return Own(items, way)

    def merged(self, mask: np.ndarray, other: Own) -> Own:
        """This one where the mask says so, the other elsewhere."""
        parts = (
            np.where(mask[:, None] if name == "direction" else mask, *pair)
            for name in LINE
            for pair in [(getattr(self.way, name), getattr(other.way, name))]
        )
        return Own(np.where(mask, self.items, other.items), Line(*parts))

    def taken(self, index: np.ndarray) -> Own:
        """The lanes with these numbers."""
        return Own(self.items[index], Line(*(getattr(self.way, name)[index] for name in LINE)))


LINE = ("direction", "slope", "descends", "longest", "first", "guess")


def _row(sample: Sample, i: int) -> Sample:
    return Sample(
        sample.point[i], float(sample.value[i]), sample.gradient[i], float(sample.grad_norm[i])
    )


def _stacked(lines: list[Line]) -> Line:
    return Line(*(np.array([getattr(line, name) for line in lines]) for name in LINE))
