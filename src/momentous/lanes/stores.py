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

# Of the matrices that are changed at a time.
PIECE_BYTES = 1 << 20


def no_pairs(m: Any, most: int | None) -> Curvature:
    """A store of so many pairs (None: of all), whose line is not known yet."""
    xp, size, d = m.xp, m.size, m.dimension

    def zeros(*shape: int, dtype: Any = m.wide) -> Array:
        return xp.zeros((size, *shape), dtype=dtype, device=m.device)

    none = xp.zeros((size,), dtype=m.whole, device=m.device)
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
        products = _times(m.xp, self.both, g[..., None, :])
        return line_along(m, here, _product(self.scale, products), self.count == 0)

    def after(
        self, m: Any, moved: Any, failed: Any, here: Sample, there: Sample,
        noise: Callable[[], Any],
    ) -> Matrix:  # fmt: skip
        both = self.both  # which no branch may copy

        def extend() -> tuple[Any, Any, Line]:
            nonlocal both
            pair = Pair(m, moved, here, there, noise())
            both, of_g = _updated(m, both, moved, pair, there.gradient)
            scale = m.where(pair.use, pair.sy / pair.yy, self.scale)
            count = self.count + m.where(pair.use, 1, 0)
            return scale, count, line_along(m, there, _product(scale, of_g), count == 0)

        def forget() -> tuple[Any, Any, Line]:
            nonlocal both
            unit = m.xp.broadcast_to(_unit(m, m.dimension), both.shape)
            both = m.choose(failed, unit, both)
            way = line_along(m, here, here.gradient, True)
            return m.xp.ones_like(self.scale), m.xp.zeros_like(self.count), way

        known = self.scale, self.count, self.way
        changed = m.case(known, (moved, extend), (failed, forget))
        return self if changed is known else Matrix(both, *changed)


def _product(scale: Array, products: Array) -> Array:
    """H g of A g and C g."""
    return scale[..., None] * products[..., 0, :] + products[..., 1, :]


def _updated(m: Any, both: Array, moved: Any, pair: Pair, g: Array) -> tuple[Array, Array]:
    """A and C with a pair; and their products with g, where a search has moved."""
    xp, d = m.xp, m.dimension
    parts: list[Array] = [xp.astype(a, m.wide, copy=False) for a in (pair.s, pair.y, g)]
    parts += [pair.sy, pair.t]
    if not m.on_numpy:
        columns, rows, of_g = _rank_two(m, both, *parts)
        return both - xp.matmul(columns, rows), of_g
    # In place, as nobody else has them, and in pieces that stay in the cache.
    moved = np.flatnonzero(np.broadcast_to(moved, m.size))
    products, step = np.zeros((m.size, 2, d)), max(1, PIECE_BYTES // (16 * d * d))
    for start in range(0, len(moved), step):
        lanes: Any = moved[start : start + step]
        if len(moved) == m.size:
            lanes = slice(start, start + step)
        part = both[lanes]
        columns, rows, products[lanes] = _rank_two(m, part, *(a[lanes] for a in parts))
        part -= columns @ rows
        if len(moved) < m.size:
            both[lanes] = part
    return both, products


def _rank_two(
    m: Any, both: Array, s: Array, y: Array, g: Array, sy: Array, t: Array
) -> tuple[Array, Array, Array]:
    """What a pair takes off A and C, as a product of two matrices; and the new A g and C g.

    V'AV = A - (s a' + a s')/<s, y>, with a = Ay - (y'Ay/<s, y>)/2 s, and so for C, to which
    s s'/(t <s, y>) is added.  Both are read once for two products.
    """
    xp, inner = m.xp, m.inner
    products = xp.matmul(both, xp.stack([y, g], axis=-1)[..., None, :, :])
    of_y, of_g, s = products[..., 0], products[..., 1], s[..., None, :]
    half = xp.stack([xp.zeros_like(t), 0.5 / t], axis=-1)
    a = of_y - (0.5 * inner(of_y, y[..., None, :]) / sy[..., None] + half)[..., None] * s
    s = xp.broadcast_to(s, a.shape)
    share, g = 1.0 / sy[..., None, None], g[..., None, :]
    of_g = of_g - share * (s * inner(a, g)[..., None] + a * inner(s, g)[..., None])
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
        steps, changes = self.steps, self.changes  # which no branch may copy

        def extend() -> tuple[Products, Line]:
            nonlocal steps, changes
            pair, known = Pair(m, moved, here, there, noise()), self.products
            steps = _with_row(m, steps, known.row, pair.s, pair.use)
            changes = _with_row(m, changes, known.row, pair.y, pair.use)
            given = (_times(m.xp, rows, pair.y, m.wide) for rows in (steps, changes))
            made = Windows(steps, changes, known.with_pair(m, pair, *given), self.way)
            return made.products, made._line(m, there)

        def forget() -> tuple[Products, Line]:
            known, zeros = self.products, m.xp.zeros_like
            nothing = Products(
                zeros(known.inverse), zeros(known.changes_changes), zeros(known.diagonal),
                m.xp.ones_like(known.scale), zeros(known.count), zeros(known.row),
            )  # fmt: skip
            return nothing, line_along(m, here, here.gradient, True)

        known = self.products, self.way
        changed = m.case(known, (moved, extend), (failed, forget))
        return self if changed is known else Windows(steps, changes, *changed)


def _with_row(m: Any, rows: Array, row: Array, vector: Array, use: Array) -> Array:
    """With the vector in a row, where it is of use."""
    if m.on_numpy:  # in place, as nobody else has them
        lanes = np.flatnonzero(use)
        rows[lanes, row[lanes]] = vector[lanes]
        return rows
    put = _is_row(m, row, rows.shape[-2]) & use[..., None]
    return m.where(put[..., None], vector[..., None, :], rows)


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
        way = _line_of(lambda name: np.array(getattr(self.way, name)))
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

        def choose(name: str) -> Any:
            lanes = mask[:, None] if name == "direction" else mask
            return np.where(lanes, getattr(self.way, name), getattr(other.way, name))

        return Own(np.where(mask, self.items, other.items), _line_of(choose))

    def taken(self, index: np.ndarray) -> Own:
        """The lanes with these numbers."""
        return Own(self.items[index], _line_of(lambda name: getattr(self.way, name)[index]))


LINE = ("direction", "slope", "descends", "longest", "first", "guess")


def _row(sample: Any, i: int) -> Sample:
    return Sample(
        sample.point[i], float(sample.value[i]), sample.gradient[i], float(sample.grad_norm[i])
    )


def _stacked(lines: list[Line]) -> Line:
    return _line_of(lambda name: np.array([getattr(line, name) for line in lines]))


def _line_of(part: Callable[[str], Any]) -> Line:
    return Line(*map(part, LINE))
