"""The newest pairs of L-BFGS: windows of rows, on the host and where numbers are arrays."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import array_api_compat
import numpy as np
from scipy.linalg.blas import dgemv, dsymv, dtrsv
from scipy.linalg.lapack import dtrtri

from momentous.core import blocks
from momentous.core.blocks import ROW
from momentous.core.machine import Host, has_kinks
from momentous.core.oracle import Sample
from momentous.core.passes import MOST, Pass, new_pair, padded
from momentous.core.record import record
from momentous.core.space import Array, Space, to_numpy
from momentous.methods.classical import compact
from momentous.methods.classical.compact import CompactInverse, correction, is_of_use, moved_square
from momentous.methods.classical.constants import LBFGS_CONSTANTS
from momentous.methods.classical.curvature import (
    UNIT,
    ArrayCurvature,
    CurvatureMachine,
    FusedLine,
    HostCurvature,
    Pair,
    line_from,
    times,
    zeros,
)
from momentous.methods.search.wolfe import Line

ONE_THREAD = LBFGS_CONSTANTS.one_thread_entries
NOTHING = np.empty(0)


class Window:
    """Room for twice as many pairs as are kept, and for their products; all is written once.

    A pair has a number; the first m = ``most`` are pairs of zeros, so that there are always m.  The
    product of pairs i <= j, less than m apart, stands at place j m + i of a flat array: there m
    pairs in a row have the upper triangle of a matrix, column by column, and a new pair writes
    where no other has written.
    """

    def __init__(self, most: int, shape: tuple[int, ...] = (0,), dtype: Any = np.float64):
        self.most, self.used = most, most
        self.shape, self.dtype = shape, dtype  # of vectors that are stacked
        self.rows = np.zeros((4 * most, math.prod(shape)))  # s_1, y_1, s_2, ... of those
        self.products = np.zeros((2, 2 * most * (most + 1)))  # of S with Y, and of Y with Y
        self.products[0, : most * (most + 1) : most + 1] = 1.0  # R can be inverted
        self.diagonal = np.ones(2 * most)  # <s_i, y_i>/t_i, with t_i the correction by values

    def triangles(self, end: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """R and Y'Y of the last k pairs before ``end``, of which what is below the diagonal is
        anything; and D."""
        m, first = self.most, (end - k) * (self.most + 1)
        r, yy = self.products[:, first : first + k * m].reshape(2, k, m)[:, :, :k]
        return r.T, yy.T, self.diagonal[end - k : end]

    def moved(self, end: int) -> Window:
        """The last pairs before ``end``, in a window of their own."""
        new = self.emptied().filled(self.triangles(end, self.most))
        new.rows[: 2 * self.most] = self.rows[2 * (end - self.most) : 2 * end]
        return new

    def emptied(self) -> Window:
        """One of the same size."""
        return Window(self.most, self.shape, self.dtype)

    def filled(self, products: Sequence[np.ndarray]) -> Window:
        """With these products of the last pairs."""
        for mine, its in zip(self.triangles(self.most, len(products[0])), products, strict=True):
            mine[...] = its
        return self

    def write(self, to_change: np.ndarray, diagonal: float) -> None:
        """The products of the change of a new pair with all vectors, s and y in turn."""
        i, end = self.used, self.used * (self.most + 1) + 1
        # The last place is that of the pair with itself.
        self.products[:, end - self.most : end] = to_change.reshape(-1, 2).T
        self.diagonal[i], self.used = diagonal, i + 1


class HostPairs(HostCurvature):
    """The newest pairs on the host, those before ``end`` in a window, of which ``count`` are real.

    The curvatures of a run share the window.  A new pair is written behind ``end``, where neither
    this curvature nor any before it looks; if another one has taken that place already (a step that
    was cut short is taken again), or if there is none left, the pairs move to a window of their
    own.  U has the columns s_1, y_1, s_2, y_2, ...

    Vectors are arrays of any library, one by one.  Where a pass over long ones is one kernel (on a
    GPU, in JAX, over ranks) an iteration reads the pairs twice, which is the least: once for the
    direction, once for their products with the new gradient.  The first pass makes the direction,
    the point at its end, and the slope.  The second comes with the gradient there: it makes the new
    change, and all products of the new pair, on trust that the search will take that point, as it
    nearly always does; on the same trust it is started before the sums of the first have come,
    where a gradient brings the value.
    """

    __slots__ = ("_inverse", "_vectors", "end", "gamma", "products", "window")

    def __init__(
        self, window: Window, end: int = 0, count: int = 0, gamma: float = 1.0,
        vectors: tuple[Array, ...] = (),
    ):  # fmt: skip
        self.window, self.end, self.count, self.gamma = window, end or window.most, count, gamma
        self.products = NOTHING  # U'g where the method stands
        self._vectors, self._line = vectors, None
        self._inverse: CompactInverse | None = None  # once it is known

    @staticmethod
    def unknown(most: int, space: Space | None = None) -> HostPairs:
        """Room for so many pairs; short NumPy vectors are stacked."""
        if space is not None and space.library is np.ndarray and space.shape:
            whole = not (space.has_own_inner or space.is_part)
            short = space.size <= LBFGS_CONSTANTS.stacked_entries
            if whole and short and space.dtype in (np.float32, np.float64):
                return StackedPairs(Window(most, space.shape, space.dtype))
        return HostPairs(Window(most))

    def without_pairs(self) -> HostPairs:
        return type(self)(self.window.emptied())

    def at(self, m: Host, here: Sample) -> HostPairs:
        moved = type(self)(self.window, self.end, self.count, self.gamma, self._vectors)
        moved.products = moved._products_with(m, here.gradient)
        return moved

    def extended(self, m: Host, here: Sample, there: Sample, noise: float) -> HostPairs:
        s, y, slope, sums = self._measure(m, here, there)
        ss, sy, yy = sums[:3]
        if has_kinks(m):
            yy = moved_square(m, s, y)
        if not is_of_use(ss, sy, yy):
            return self.at(m, there)
        window, end, most = self.window, self.end, self.window.most
        if window.used != end or end == 2 * most:
            window, end = window.moved(end), most
        t = correction(here.value - there.value, slope, sy, noise)
        count = min(self.count + 1, most)
        after = type(self)(window, end + 1, count, sy / yy, (*self._kept(), s, y))
        after.products, to_change = after._new_products(m, self, there.gradient, s, y, sums)
        window.write(to_change, sy / t)
        return after

    def _kept(self) -> tuple[Array, ...]:
        """The vectors for which there is room beside a new pair."""
        return self._vectors[2 * (self.count == self.window.most) :]

    def _pass(self, m: Host, gradient: Array, s: Array) -> tuple[Pass, tuple[Array, ...]]:
        """The pass that makes a new pair, and its vectors behind the new gradient."""
        group = self._kept()
        if m.fuses:
            group = padded(group[:MOST])  # a kernel has room for so many
        return new_pair(len(group)), (gradient, s, *group)

    def _measure(
        self, m: Host, here: Sample, there: Sample
    ) -> tuple[Array, Array, float, Sequence[float]]:
        """s, y, the slope of f along s from here, and <s, s>, <s, y>, <y, y>, <s, g>, <y, g>, and
        products of older vectors with g, the gradient there."""
        line, s = self._line, None
        made: Sequence[Array] = ()
        if isinstance(line, FusedLine) and there.point is line.end:
            s = line.direction
            if line.found[0] is there:
                _, made, sums = line.found
        if s is None:
            s = m.combination(there.point, -1.0, here.point)
        if not made:
            work, others = self._pass(m, here.gradient, s)
            made, sums, _ = m.space.compute(work, (there.gradient, *others), skip=1)
        to_s, to_y, ss, sy, yy, *more = sums
        return s, made[0], to_s - sy, (ss, sy, yy, to_s, to_y, *more)

    def _new_products(
        self, m: Host, before: HostPairs, g: Array, s: Array, y: Array, sums: Sequence[float]
    ) -> tuple[np.ndarray, np.ndarray]:
        """U'g and U'y with the newest pair."""
        kept, (_, sy, yy, to_s, to_y, *found) = self._vectors[:-2], sums
        found = [*found[: len(kept)], *m.space.inners(kept[len(found) :], g)]
        products = self._padded([*found, to_s, to_y])
        to_change = products.copy()
        if kept:  # y is a difference of gradients, and so are its products
            to_change[-2 - len(kept) : -2] -= before.products[-len(kept) :]
        to_change[-2:] = sy, yy
        return products, to_change

    def _products_with(self, m: Host, vector: Array) -> np.ndarray:
        """U'v."""
        return self._padded(m.space.inners(self._vectors, vector))

    def _padded(self, products: Sequence[float]) -> np.ndarray:
        """With zeros for pairs of zeros."""
        padded = np.zeros(2 * self.window.most)
        padded[len(padded) - len(products) :] = products
        return padded

    def weights(self) -> np.ndarray:
        """w of -H g = U w - gamma g."""
        gamma, products = self.gamma, self.products
        r, yy, diagonal = self.window.triangles(self.end, self.window.most)
        p, q = compact.weights(
            lambda v: dtrsv(r, v),
            lambda v: dtrsv(r, v, 1, 0, 0, 1, 0, 1),  # transposed, into v; keywords cost time
            lambda p: dsymv(gamma, yy, p, -gamma, products[1::2]),
            diagonal, products[::2],
        )  # fmt: skip
        w = np.empty(len(products))
        np.negative(q, w[::2])
        np.multiply(p, gamma, w[1::2])
        return w

    def first_scale(self, m: Host) -> float:
        return self.gamma

    def descent(self, m: Host, gradient: Array) -> Array:
        if not self.count:
            return gradient * -1.0
        # With a simple term the model asks for more vectors than the gradient.
        pairs = self if m.penalty is None else self.at(m, Sample(None, gradient=gradient))
        return self._combined(m, gradient, pairs.weights())

    def _combined(self, m: Host, g: Array, weights: np.ndarray) -> Array:
        weights = weights[len(weights) - 2 * self.count :]
        return m.space.weighted_sum([-self.gamma, *weights.tolist()], (g, *self._vectors))

    def _make_line(self, m: Host, here: Sample) -> Line | FusedLine:
        if not (self.count and m.fuses and not has_kinks(m)):
            return super()._make_line(m, here)
        weights, vectors = self.weights()[-2 * self.count :], (here.gradient, *self._vectors)
        given = [-self.gamma, *weights.tolist()]
        d, end, along = m.space.direction(here.point, given, vectors)

        # Not after an exception: it may be one of this rank alone, and this is a call over ranks.
        def line() -> Line:
            slope, square = along()
            return Line.of(m, here, d, slope, square, guess=False)

        return FusedLine(d, line, end, *self._pass(m, here.gradient, d))

    def vectors(self) -> tuple[Array, ...]:
        """The columns of U."""
        return self._vectors

    def rows(self) -> Array:
        """U', in the library of x and the widest type that it has switched on."""
        xp = array_api_compat.array_namespace(self._vectors[0])
        rows = xp.stack([xp.reshape(a, (-1,)) for a in self._vectors])
        return xp.astype(rows, xp.asarray(np.zeros(1)).dtype)

    def inverse(self) -> CompactInverse:
        if self._inverse is None:
            r, yy, diagonal = self.window.triangles(self.end, k := self.count)
            inverse, gram = dtrtri(np.triu(r))[0], np.triu(yy) + np.triu(yy, 1).T
            K = compact.middle(np, np.matmul, inverse, gram, diagonal, self.gamma)
            order = np.arange(2 * k).reshape(2, k).T.reshape(-1)  # s and y in turn
            self._inverse = CompactInverse(self.gamma, self.rows(), K[np.ix_(order, order)])
        return self._inverse

    def solve(self, m: Host, held: Array, r: Array) -> tuple[Array, Array]:
        if not self.count:
            return r, r
        space, xp, H = m.space, m.space.xp, self.inverse()
        held, right = xp.reshape(held, (-1,)), xp.astype(xp.reshape(r, (-1,)), H.rows.dtype)

        def weigh(*sums: Array) -> Array:
            w = compact.held_weights(H.gamma, H.K, *(_totals(space, each) for each in sums))
            return xp.asarray(w, dtype=H.rows.dtype, device=space.device)

        if space.library is np.ndarray and not space.is_part:
            z, made = H.solve(held, right)
        else:
            mask = xp.astype(held != 0.0, H.rows.dtype)
            z, made = compact.solve_masked(xp, xp.matmul, H.rows, mask, right, H.gamma, weigh)
        z, made = (xp.reshape(xp.astype(a, r.dtype, copy=False), r.shape) for a in (z, made))
        return z, made

    def packed(self) -> StoredPairs:
        window, k = self.window, self.count
        r, yy, diagonal = window.triangles(self.end, k)
        products = self.products[len(self.products) - 2 * k :]
        arrays = (np.triu(r).ravel(), np.triu(yy).ravel(), diagonal, products)
        numbers = (tuple(a.tolist()) for a in arrays)
        return StoredPairs(window.most, self.vectors(), self.gamma, *numbers)


def _totals(space: Space, sums: Array) -> np.ndarray:
    """On the host, over all ranks."""
    here = to_numpy(sums).astype(np.float64)
    return np.asarray(space.totals(here.reshape(-1).tolist())).reshape(here.shape)


class StackedPairs(HostPairs):
    """Pairs of short NumPy vectors: rows of the window, in double precision, so that the products
    with all of them are one call of BLAS."""

    __slots__ = ("columns",)

    def __init__(
        self, window: Window, end: int = 0, count: int = 0, gamma: float = 1.0,
        vectors: tuple[Array, ...] = (),
    ):  # fmt: skip
        super().__init__(window, end, count, gamma)
        self.columns = window.rows[2 * (self.end - window.most) : 2 * self.end].T  # U

    def _measure(
        self, m: Host, here: Sample, there: Sample
    ) -> tuple[Array, Array, float, Sequence[float]]:
        # Sums are made from fresh arrays: rows of odd length begin at odd places in turn, which
        # changes the last digit of a ddot on old CPUs, and a resumed run has other rows.
        s, y, g = there.point - here.point, there.gradient - here.gradient, here.gradient
        inner = m.inner
        if not m.space.flat:
            s, y, g, inner = _flat(s), _flat(y), _flat(g), blocks.inner
        return s, y, inner(s, g), (inner(s, s), inner(s, y), inner(y, y))

    def _new_products(
        self, m: Host, before: HostPairs, g: Array, s: Array, y: Array, sums: Sequence[float]
    ) -> tuple[np.ndarray, np.ndarray]:
        i = 2 * self.end
        self.window.rows[i - 2], self.window.rows[i - 1] = s, y
        products, to_change = _products(self.columns, _flat(g), y)
        return products, to_change

    def _products_with(self, m: Host, vector: Array) -> np.ndarray:
        return _products(self.columns, _flat(vector))[0]

    def _combined(self, m: Host, g: Array, weights: np.ndarray) -> Array:
        columns, gamma = self.columns, self.gamma
        if len(columns) <= ROW:
            whole = dgemv(1.0, columns, weights, -gamma, _flat(g))
        else:
            whole = _flat(g) * -gamma
            parts, cut = _parts(columns)
            whole[:cut] += np.matmul(parts, weights).reshape(-1)
            whole[cut:] += columns[cut:] @ weights
        if m.space.flat:
            return whole
        with np.errstate(over="ignore"):  # a step that overflows is for the search to judge
            return whole.astype(g.dtype, copy=False).reshape(g.shape)

    def vectors(self) -> tuple[Array, ...]:
        rows = self.rows().astype(self.window.dtype, copy=False)  # as they were
        return tuple(row.reshape(self.window.shape) for row in rows)

    def rows(self) -> Array:
        return self.columns.T[len(self.columns.T) - 2 * self.count :]


def _flat(a: np.ndarray) -> np.ndarray:
    """As a flat array of doubles."""
    flat = a if a.ndim == 1 else a.reshape(-1)
    return flat if flat.dtype == np.float64 else flat.astype(np.float64)


def _products(columns: np.ndarray, *vectors: np.ndarray) -> Sequence[np.ndarray]:
    """Of each vector, the inner products with all columns, in one thread."""
    size, count = columns.shape
    if columns.size <= ONE_THREAD:  # transposed; keywords cost time
        return [dgemv(1.0, columns, v, 0.0, np.empty(count), 0, 1, 0, 1, 1, 1) for v in vectors]
    if columns.size <= 2 * ONE_THREAD:
        half = count // 2  # into the same array, from the middle on
        left, right, sums = columns[:, :half], columns[:, half:], np.empty((len(vectors), count))
        for v, out in zip(vectors, sums, strict=True):
            dgemv(1.0, left, v, 0.0, out, 0, 1, 0, 1, 1, 1)
            dgemv(1.0, right, v, 0.0, out, 0, 1, half, 1, 1, 1)
        return sums  # type: ignore[return-value]  # its rows
    if size <= ROW:
        return [np.vecdot(columns.T, vector) for vector in vectors]
    parts, whole = _parts(columns)
    both = np.array(vectors)  # so that the columns are read once
    cut = both[:, :whole].reshape(len(both), len(parts), -1).transpose(1, 0, 2)
    return np.matmul(cut, parts).sum(axis=0) + both[:, whole:] @ columns[whole:]  # type: ignore[no-any-return]


def _parts(columns: np.ndarray) -> tuple[np.ndarray, int]:
    """A stack of matrices, each some rows of all columns and small enough for one thread, and how
    many rows these are together."""
    size, count = columns.shape
    height = max(8, ONE_THREAD // count // 8 * 8)
    whole = size // height * height
    return columns[:whole].T.reshape(count, -1, height).transpose(1, 2, 0), whole


@record
class StoredPairs:
    """`HostPairs` in a checkpoint: vectors, and the upper triangles row by row."""

    most: int
    vectors: tuple[Array, ...]
    gamma: float
    steps_changes: tuple[float, ...]
    changes_changes: tuple[float, ...]
    diagonal: tuple[float, ...]
    products: tuple[float, ...]

    def unpacked(self, space: Space | None) -> HostPairs:
        """As it was; without a space, with its vectors one by one."""
        k, vectors = len(self.diagonal), self.vectors
        if k > self.most or not len(vectors) == len(self.products) == 2 * k:
            raise ValueError(f"{len(vectors)} vectors of {k} pairs, {self.most} at the most")
        r, yy = (np.array(a).reshape(k, k) for a in (self.steps_changes, self.changes_changes))
        new = HostPairs.unknown(self.most, space)
        window = new.window.filled((r, yy, np.array(self.diagonal)))
        made = type(new)(window, window.most, k, self.gamma, vectors)
        made.products = made._padded(self.products)
        if isinstance(made, StackedPairs):
            for column, vector in zip(made.rows(), vectors, strict=True):
                column[:] = vector.reshape(-1)
        return made


# --- where numbers are arrays ---------------------------------------------------------------------


@record
class Products:
    """The products of pairs by their rows, whatever their age: see `compact`."""

    inverse: Array  # R^-1, zero where there is no pair
    gram: Array  # Y'Y
    diagonal: Array  # D
    gamma: Array
    count: Array
    row: Array  # of the next pair

    def with_pair(
        self, m: CurvatureMachine, pair: Pair, to_steps: Array, to_changes: Array
    ) -> Products:
        """``to_steps`` and ``to_changes`` are the products of its y with all rows.

        Without the oldest pair the inverse of the triangle is the rest of the old one, and a new
        pair adds one column.
        """
        most = self.diagonal.shape[-1]
        new = m.xp.arange(most, device=m.device) == self.row[..., None]
        cross = new[..., :, None] | new[..., None, :]
        old = m.where(cross, 0.0, self.inverse)
        column = -times(m, old, m.where(new, 0.0, to_steps))
        column = m.where(new, 1.0, column) / pair.sy[..., None]
        gram = m.where(new[..., None, :], to_changes[..., :, None], self.gram)
        made = Products(
            m.where(new[..., None, :], column[..., :, None], old),
            m.where(new[..., :, None], to_changes[..., None, :], gram),
            m.where(new, (pair.sy / pair.t)[..., None], self.diagonal),
            pair.sy / pair.yy,
            m.minimum(self.count + 1, most),
            (self.row + 1) % most,
        )
        return m.choose(pair.use, made, self)


@record
class ArrayPairs(ArrayCurvature):
    """The last pairs, the newest in place of the oldest."""

    rows: Array  # U' = S' over Y', (..., 2, most, d)
    known: Products
    way: Line

    @classmethod
    def unknown(cls, m: CurvatureMachine, here: Sample, most: int) -> ArrayPairs:
        """Room for so many pairs, for runs that begin here."""
        rows = zeros(m, 2, most, m.dimension, dtype=m.dtype)  # to be changed in place
        square, none = zeros(m, most, most), zeros(m, dtype=m.whole)
        known = Products(square, square, zeros(m, most), zeros(m), none, none)
        return cls(rows, known, line_from(m, here, UNIT, True))

    @property
    def count(self) -> Array:
        return self.known.count

    def first_scale(self, m: CurvatureMachine) -> Array:
        return m.where(self.count > 0, self.known.gamma, 1.0)

    def _matrix(self, m: CurvatureMachine) -> tuple[Array, Array]:
        """U', (..., 2 most, d), and gamma."""
        *lanes, two, most, d = self.rows.shape
        gamma = self.first_scale(m)[..., None]
        return m.xp.reshape(self.rows, (*lanes, two * most, d)), gamma

    def _products(self, m: CurvatureMachine, vector: Array) -> tuple[Array, Array]:
        """S'v and Y'v."""
        found, most = times(m, self._matrix(m)[0], vector), self.rows.shape[-2]
        return found[..., :most], found[..., most:]

    def descent(self, m: CurvatureMachine, gradient: Array) -> Array:
        (rows, gamma), known, g = self._matrix(m), self.known, m.entries(gradient)
        to_steps, to_changes = self._products(m, g)
        p, q = compact.weights(
            lambda v: times(m, known.inverse, v),
            lambda v: times(m, m.xp.matrix_transpose(known.inverse), v),
            lambda p: gamma * (times(m, known.gram, p) - to_changes),
            known.diagonal, to_steps,
        )  # fmt: skip
        w = m.xp.astype(m.xp.concat([-q, gamma * p], axis=-1), rows.dtype, copy=False)
        whole = m.widened(m.matmul(w[..., None, :], rows)[..., 0, :])
        return m.vector(whole - gamma * m.widened(g))

    def solve(self, m: CurvatureMachine, held: Array, r: Array) -> tuple[Array, Array]:
        (rows, gamma), known, xp = self._matrix(m), self.known, m.xp
        scale = gamma[..., None]
        K = compact.middle(xp, m.matmul, known.inverse, known.gram, known.diagonal, scale)

        def weigh(gram: Array, products: Array) -> Array:
            unit = xp.eye(K.shape[-1], dtype=m.wide, device=m.device)
            return m.solve(scale * unit + m.matmul(K, gram), times(m, K, products))

        mask, right = m.widened(m.entries(held) != 0.0), m.widened(m.entries(r))
        z, made = compact.solve_masked(xp, m.matmul, m.widened(rows), mask, right, gamma, weigh)
        return m.vector(z), m.vector(made)

    def _after(
        self, m: CurvatureMachine, moved: Array, failed: Array, here: Sample, there: Sample,
        pair: Pair,
    ) -> ArrayPairs:  # fmt: skip
        known = self.known
        rows = m.put(self.rows, known.row, m.xp.stack([pair.s, pair.y], axis=-2), pair.use)
        after = ArrayPairs(rows, known, self.way)

        def extend() -> tuple[Products, Line]:
            products = known.with_pair(m, pair, *after._products(m, pair.y))
            return products, m.but(after, known=products).at(m, there).way

        def forget() -> tuple[Products, Line]:
            zero = (m.xp.zeros_like(getattr(known, f.name)) for f in dataclasses.fields(Products))
            return Products(*zero), line_from(m, here, UNIT, True)

        return ArrayPairs(rows, *m.case((known, self.way), (moved, extend), (failed, forget)))
