"""What L-BFGS knows of the curvature in a compiled loop: the last pairs, or the matrix of all.

The formulas are those of `momentous.methods.classical`.  Nothing here stands in a branch that XLA
would copy windows or matrices for.  A store of zeros has no pairs, and its line is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.jax.vectors import Scalar, Tree, number, select, wide
from momentous.methods.classical.box_model import BoxLine
from momentous.methods.classical.curvature import Curvature, correction, is_of_use, moved_square
from momentous.methods.search.wolfe import Line


def no_pairs(like: Tree, most: int | None, kind: type[Line] = Line) -> Curvature:
    """A store of so many pairs (None: of all) of vectors like this one, with such lines."""
    zero, no = number(0.0), jnp.asarray(False)
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
    line = kind(nothing, zero, no, zero, zero, no)
    if most is None:
        size = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(like))
        matrix = jnp.zeros((size, size), wide())
        return Matrix(matrix, matrix, zero, jnp.asarray(0), line)
    rows = jax.tree.map(lambda leaf: jnp.zeros((most, *leaf.shape), leaf.dtype), like)
    matrix = jnp.zeros((most, most), wide())
    known = Products(matrix, matrix, matrix[0], zero, jnp.asarray(0), jnp.asarray(0))
    return Windows(rows, rows, known, line)


class Stored(Curvature):
    """What both stores share."""

    __slots__ = ()

    way: Line  # from where the pairs end; its ``longest`` is 0 where it is not known

    def line(self, m: Any, here: Sample) -> Line:
        return self.way

    def at(self, m: Any, here: Sample) -> Curvature:
        return m.but(self, way=m.but(self.way, longest=number(0.0)))  # type: ignore[no-any-return]


class Pair:
    """A step, and what it says."""

    def __init__(self, m: Any, moved: Scalar, here: Sample, there: Sample, noise: Scalar):
        self.s = m.combination(there.point, -1.0, here.point)
        self.y = m.combination(there.gradient, -1.0, here.gradient)
        ss, sy, yy = m.inner(self.s, self.s), m.inner(self.s, self.y), m.inner(self.y, self.y)
        if m.box is not None:
            yy = moved_square(m, self.s, self.y)
        self.use = moved & is_of_use(ss, sy, yy, m)
        self.sy, self.yy = (jnp.where(self.use, product, 1.0) for product in (sy, yy))
        slope = m.inner(self.s, here.gradient)
        self.t = correction(here.value - there.value, slope, self.sy, noise, m)


@record
class Products:
    """Of the pairs that are kept, by their rows, whatever their age."""

    inverse: Any  # of the triangle of S'Y, zero where there is no pair
    changes_changes: Any  # Y'Y
    diagonal: Any  # <s_i, y_i>/t_i, with t_i the correction by values
    scale: Scalar  # <s, y>/<y, y> of the newest pair
    count: Scalar
    row: Scalar  # of the next pair

    def with_pair(self, pair: Pair, to_steps: Any, to_changes: Any) -> Products:
        """``to_steps`` and ``to_changes`` are the products of its y with all rows.

        Without the oldest pair the inverse of the triangle is the rest of the old one, and a new
        pair adds one column.
        """
        most = len(self.diagonal)
        new = jnp.arange(most) == self.row
        old = jnp.where(new[:, None] | new, 0.0, self.inverse)
        column = jnp.where(new, 1.0, -dot(old, jnp.where(new, 0.0, to_steps))) / pair.sy
        products = jnp.where(new, to_changes[:, None], self.changes_changes)
        made = Products(
            jnp.where(new, column[:, None], old),
            jnp.where(new[:, None], to_changes, products),
            jnp.where(new, pair.sy / pair.t, self.diagonal),
            pair.sy / pair.yy,
            jnp.minimum(self.count + 1, most),
            (self.row + 1) % most,
        )
        return select(pair.use, made, self)  # type: ignore[no-any-return]

    def weights(self, to_steps: Any, to_changes: Any) -> tuple[Any, Any, Any]:
        """scale, p and q of -H g = scale Y p - S q - scale g, by the products of g with all
        rows."""
        scale = jnp.where(self.count > 0, self.scale, 1.0)
        p = dot(self.inverse, to_steps)
        q = self.diagonal * p + scale * (dot(self.changes_changes, p) - to_changes)
        return scale, p, dot(self.inverse.T, q)


@record
class Windows(Stored):
    """The last pairs, one per row, the newest in place of the oldest."""

    steps: Tree
    changes: Tree
    products: Products
    way: Line

    @property
    def count(self) -> Scalar:
        return self.products.count

    def after(
        self, m: Any, moved: Scalar, failed: Scalar, here: Sample, there: Sample,
        noise: Callable[[], Scalar],
    ) -> Windows:  # fmt: skip
        pair, known = Pair(m, moved, here, there, noise()), self.products
        steps = _with_row(self.steps, known.row, pair.s, pair.use)
        changes = _with_row(self.changes, known.row, pair.y, pair.use)
        now = select(moved, there, here)

        def extend() -> tuple[Products, Line]:
            g, y = now.gradient, pair.y
            products = known.with_pair(pair, _products(steps, y), _products(changes, y))
            products = select(failed, jax.tree.map(jnp.zeros_like, products), products)
            if m.box is not None:
                inverse = WindowsInverse(steps, changes, products)
                return products, BoxLine.from_sample(m, now, inverse, products.count == 0)
            d = _descent(steps, changes, products, g)
            return products, Line.of(m, now, d, m.inner(g, d), m.inner(d, d), products.count == 0)

        unknown = moved | failed | (self.way.longest == 0.0)
        products, way = m.case((known, self.way), (unknown, extend))
        return Windows(steps, changes, products, way)


@record
class Matrix(Stored):
    """H of all pairs, as scale A + C: see `WholeMatrix`.  The matrices are short: where there is no
    new pair they are made anew all the same."""

    first: Any  # A, where there are pairs: else it is I
    rest: Any  # C
    scale: Scalar
    count: Scalar
    way: Line

    def after(
        self, m: Any, moved: Scalar, failed: Scalar, here: Sample, there: Sample,
        noise: Callable[[], Scalar],
    ) -> Matrix:  # fmt: skip
        pair = Pair(m, moved, here, there, noise())
        share, s, y = jnp.where(pair.use, 1.0 / pair.sy, 0.0), _flat(pair.s), _flat(pair.y)
        first = jnp.where(self.count > 0, self.first, jnp.eye(len(self.first), dtype=wide()))
        a, c = dot(first, y), dot(self.rest, y)
        a = a - 0.5 * dot(y, a) / pair.sy * s
        c = c - (0.5 * dot(y, c) / pair.sy + 0.5 / pair.t) * s
        first = first - share * (jnp.outer(s, a) + jnp.outer(a, s))
        rest = self.rest - share * (jnp.outer(s, c) + jnp.outer(c, s))
        rest = jnp.where(failed, 0.0, rest)
        count = jnp.where(failed, 0, self.count + pair.use)
        scale = jnp.where(pair.use, pair.sy / pair.yy, self.scale)
        now = select(moved, there, here)
        unknown = moved | failed | (self.way.longest == 0.0)
        if m.box is not None:
            whole = jnp.where(count > 0, scale * first, jnp.eye(len(first), dtype=wide())) + rest
            inverse = MatrixInverse(whole)
            make = partial(BoxLine.from_sample, m, now, inverse, count == 0)
            return Matrix(first, rest, scale, count, m.case(self.way, (unknown, make)))
        g = _flat(now.gradient)
        product = jnp.where(count > 0, scale * dot(first, g), g) + dot(rest, g)
        d = _like(now.gradient, -product)
        way = Line.of(m, now, d, m.inner(now.gradient, d), m.inner(d, d), count == 0)
        return Matrix(first, rest, scale, count, select(unknown, way, self.way))


def _descent(steps: Tree, changes: Tree, known: Products, g: Tree) -> Tree:
    """-H g."""
    scale, p, q = known.weights(_products(steps, g), _products(changes, g))

    def combine(g: Any, y: Any, s: Any) -> Any:
        made = scale * _combined(p, y) - _combined(q, s) - scale * g
        return made.astype(g.dtype)

    return jax.tree.map(combine, g, changes, steps)


class WindowsInverse:
    """H of windows, for the model in a box: see `methods.classical.compact`."""

    def __init__(self, steps: Tree, changes: Tree, products: Products):
        self.steps, self.changes, self.products = steps, changes, products

    def descent(self, m: Any, gradient: Tree) -> Tree:
        return _descent(self.steps, self.changes, self.products, gradient)

    def solve(self, m: Any, held: Tree, r: Tree) -> tuple[Tree, Tree]:
        known, mask = self.products, _flat(held) != 0.0
        scale = jnp.where(known.count > 0, known.scale, 1.0)
        rows = jnp.concatenate([jax.vmap(_flat)(self.steps), jax.vmap(_flat)(self.changes)])
        chosen, right = rows * mask, _flat(r)
        middle = scale * known.changes_changes + jnp.diag(known.diagonal)
        corner = dot(known.inverse.T, dot(middle, known.inverse))
        K = jnp.block(
            [
                [corner, -scale * known.inverse.T],
                [-scale * known.inverse, jnp.zeros_like(corner)],
            ]
        )
        matrix = scale * jnp.eye(len(K), dtype=K.dtype) + dot(K, dot(chosen, chosen.T))
        weights = jnp.linalg.solve(matrix, dot(K, dot(chosen, right)))
        z = (right - dot(weights, chosen)) / scale
        return _like(r, z), _like(r, scale * z + dot(weights, rows))


class MatrixInverse:
    """H itself."""

    def __init__(self, whole: Any):
        self.whole = whole

    def descent(self, m: Any, gradient: Tree) -> Tree:
        return _like(gradient, -dot(self.whole, _flat(gradient)))

    def solve(self, m: Any, held: Tree, r: Tree) -> tuple[Tree, Tree]:
        mask = _flat(held) != 0.0
        block = jnp.where(mask[:, None] & mask, self.whole, jnp.eye(len(mask), dtype=wide()))
        lower = jnp.linalg.cholesky(block)
        half = solve_triangular(lower, _flat(r), lower=True)
        z = solve_triangular(lower.T, half, lower=False)
        return _like(r, z), _like(r, dot(self.whole, z))


def dot(a: Any, b: Any) -> Any:
    return jnp.matmul(a, b, precision="highest", preferred_element_type=wide())


def _products(rows: Tree, vector: Tree) -> Any:
    """The inner products of all rows with a vector."""
    pairs = zip(jax.tree.leaves(rows), jax.tree.leaves(vector), strict=True)
    return sum(dot(row.reshape(len(row), -1), leaf.reshape(-1)) for row, leaf in pairs)


def _combined(weights: Any, rows: Any) -> Any:
    """The sum of all rows with their weights."""
    return dot(weights.astype(rows.dtype), rows.reshape(len(rows), -1)).reshape(rows.shape[1:])


def _with_row(rows: Tree, i: Scalar, vector: Tree, use: Scalar) -> Tree:
    """With the vector in a row; as they were, where it is not of use."""

    def put(row: Any, leaf: Any) -> Any:
        before = jax.lax.dynamic_index_in_dim(row, i, keepdims=False)
        return jax.lax.dynamic_update_index_in_dim(row, jnp.where(use, leaf, before), i, 0)

    return jax.tree.map(put, rows, vector)


def _flat(vector: Tree) -> Any:
    return jnp.concatenate([leaf.reshape(-1).astype(wide()) for leaf in jax.tree.leaves(vector)])


def _like(vector: Tree, entries: Any) -> Tree:
    """A vector of the same form with other entries."""
    leaves, tree = jax.tree.flatten(vector)
    ends = [0]
    for leaf in leaves:
        ends.append(ends[-1] + leaf.size)
    parts = [
        entries[ends[i] : ends[i + 1]].reshape(leaf.shape).astype(leaf.dtype)
        for i, leaf in enumerate(leaves)
    ]
    return tree.unflatten(parts)
