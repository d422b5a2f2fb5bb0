"""The newest pairs of L-BFGS, and H of them in compact form.

With the pairs as columns of S and Y, in any order, R the matrix of the products <s_i, y_j> with
pair i no newer than j (and 0 elsewhere), D its diagonal, corrected by values, and U = [S, Y],

    H = gamma I + U K U',    K = [[R^-T (D + gamma Y'Y) R^-1, -gamma R^-T], [-gamma R^-1, 0]]

(theorem 2.2 of [1]_).  So the direction -H g is a combination of the gradient and the pairs whose
weights follow from inner products alone: an iteration computes 2 m products with the new gradient
and adds up 2 m + 1 vectors in one pass, half of the memory traffic of the recursion on vectors, and
two reductions over ranks where that has 2 m in a row.

Where the variables A are held, at steps p_A, the least value of the model <g, p> + <p, B p>/2 with
B = H^-1 has the other entries U w - gamma g, with

    (gamma K^-1 + U_A'U_A) w = U_A'p_A - gamma U_F'g_F,
    gamma K^-1 = -[[0, R], [R', Y'Y + D/gamma]],

and the multipliers (B p + g)_A = (p_A - (U w - gamma g)_A)/gamma: a system of the size of K,
however many variables are held.

.. [1] R. H. Byrd, J. Nocedal, R. B. Schnabel, "Representations of quasi-Newton matrices and their
   use in limited memory methods", Math. Programming 63 (1994).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.linalg.blas import dgemv

from momentous.core.blocks import ROW
from momentous.core.machine import Host, has_kinks
from momentous.core.oracle import Sample
from momentous.core.passes import MOST, Pass, new_pair, padded
from momentous.core.record import record
from momentous.core.rule import Vectors
from momentous.core.space import Array, Space, to_numpy
from momentous.methods.classical.box_model import where_held, zeros_like
from momentous.methods.classical.constants import LBFGS_CONSTANTS
from momentous.methods.classical.curvature import (
    UNIT,
    Curvature,
    CurvatureMachine,
    FusedLine,
    Pair,
    column,
    correction,
    flat,
    is_of_use,
    line_from,
    moved_square,
    solve,
    times,
    zeros,
)
from momentous.methods.classical.face import Face, StoredFace
from momentous.methods.classical.self_scaling import SelfScaling, is_newton
from momentous.methods.search.wolfe import Line

ONE_THREAD = LBFGS_CONSTANTS.one_thread_entries


@record
class Products:
    """The products of pairs by their rows; a new pair takes the row of the oldest.  Zeros have no
    pairs.  On the host numbers are Python's, and arrays are changed in place."""

    inverse: Array  # R^-1
    triangle: Array  # R, kept where variables may be held
    gram: Array  # Y'Y
    diagonal: Array  # D: <s_i, y_i>/t_i, with t_i the correction by values
    gamma: Any  # 1 without pairs
    count: Any
    row: Any  # of the next pair

    @staticmethod
    def unknown(m: Any, most: int) -> Products:
        """Room for so many pairs."""
        if isinstance(m, Host):
            inverse, triangle, gram = np.zeros((3, most, most))
            return Products(inverse, triangle, gram, np.zeros(most), 1.0, 0, 0)
        square, none = zeros(m, most, most), zeros(m, dtype=m.whole)
        return Products(square, square, square, zeros(m, most), zeros(m) + 1.0, none, none)

    @property
    def most(self) -> int:
        return self.diagonal.shape[-1]  # type: ignore[no-any-return]

    def with_pair(self, m: Any, pair: Pair, products: Array, gamma: Any) -> Products:
        """``products`` are those of its y with all rows, its own among them.

        Without the oldest pair the inverse of R is the rest of the old one, and a new pair adds one
        column.
        """
        i, share = self.row, 1.0 / pair.sy
        to_steps, to_changes = products[..., 0, :], products[..., 1, :]
        added = _put(m, _times(m, self.inverse, to_steps) * column(-share), i, share)
        made = Products(
            _put_cross(m, self.inverse, i, None, added),
            _put_cross(m, self.triangle, i, None, to_steps) if has_kinks(m) else self.triangle,
            _put_cross(m, self.gram, i, to_changes, to_changes),
            _put(m, self.diagonal, i, pair.sy / pair.t),
            gamma,
            m.minimum(self.count + 1, self.most),
            (i + 1) % self.most,
        )
        chosen: Products = m.choose(pair.use, made, self)
        return chosen

    def weights(self, m: Any, products: Array) -> Array:
        """w of -H g = U w - gamma g, given U'g."""
        xp, gamma, inverse = _library(m), column(self.gamma), self.inverse
        p = _times(m, inverse, products[..., 0, :])
        rest = gamma * (_times(m, self.gram, p) - products[..., 1, :]) + self.diagonal * p
        q = _times(m, xp.matrix_transpose(inverse), rest)
        return xp.reshape(xp.concat([-q, gamma * p], axis=-1), products.shape)

    def weights_on_face(self, m: Any, gram: Array, right: Array) -> Array:
        """w with (gamma K^-1 + M) w = right, given M = U_A'U_A."""
        xp, gamma, live = _library(m), column(self.gamma), self.diagonal > 0.0
        # Each pair is scaled to <s, y> = 1, and y to the length of s.
        size = 1.0 / xp.sqrt(xp.where(live, self.diagonal, 1.0))
        size = xp.concat([size, gamma * size], axis=-1)
        matrix = self.with_middle(m, gram) * size[..., :, None] * size[..., None, :]
        scaled = size * xp.reshape(right, size.shape)
        if not (isinstance(m, Host) and self.count == self.most):  # rows without pairs
            real = xp.concat([live, live], axis=-1)
            both, unit = real[..., :, None] & real[..., None, :], xp.zeros_like(matrix)
            matrix = xp.where(both, matrix, _plus_diagonal(m, unit, xp.ones_like(size)))
            scaled = xp.where(real, scaled, 0.0)
        w = size * (solve if isinstance(m, Host) else m.solve)(matrix, scaled)
        return xp.reshape(w, right.shape)

    def with_middle(self, m: Any, gram: Array) -> Array:
        """gamma K^-1 + M."""
        k, r, gamma = self.most, self.triangle, column(self.gamma)
        corner = _plus_diagonal(m, gram[..., k:, k:] - self.gram, -self.diagonal / gamma)
        if isinstance(m, Host):
            matrix = gram.copy()
            matrix[:k, k:] -= r
            matrix[k:, :k], matrix[k:, k:] = matrix[:k, k:].T, corner
            return matrix
        xp, side = m.xp, gram[..., :k, k:] - r
        upper = xp.concat([gram[..., :k, :k], side], axis=-1)
        return xp.concat([upper, xp.concat([xp.matrix_transpose(side), corner], axis=-1)], axis=-2)


def _plus_diagonal(m: Any, matrix: Array, entries: Array) -> Array:
    """A fresh matrix with these numbers more on its diagonal."""
    if isinstance(m, Host):
        matrix.reshape(-1)[:: len(matrix) + 1] += entries
        return matrix
    place = m.xp.arange(entries.shape[-1], device=m.device)
    return m.where(place[:, None] == place, matrix + entries[..., None], matrix)


def _library(m: Any) -> Any:
    """That of the products."""
    return np if isinstance(m, Host) else m.xp


def _times(m: Any, matrix: Array, vector: Array) -> Array:
    if not isinstance(m, Host):
        return times(m, matrix, vector)
    return matrix @ vector if matrix.size <= ONE_THREAD else np.vecdot(matrix, vector)


def _put(m: Any, vector: Array, i: Any, number: Any) -> Array:
    """The vector with a number in place i."""
    if isinstance(m, Host):
        vector[i] = number
        return vector
    place = m.xp.arange(vector.shape[-1], device=m.device) == i[..., None]
    return m.where(place, number[..., None], vector)


def _put_cross(m: Any, matrix: Array, i: Any, row: Array | None, column: Array) -> Array:
    """The matrix with another row i (None: zeros) and, over it, another column i."""
    if isinstance(m, Host):
        matrix[i], matrix[:, i] = 0.0 if row is None else row, column
        return matrix
    place = m.xp.arange(matrix.shape[-1], device=m.device) == i[..., None]
    matrix = m.where(place[..., :, None], 0.0 if row is None else row[..., None, :], matrix)
    return m.where(place[..., None, :], column[..., :, None], matrix)


@record
class Pairs(Curvature):
    """The newest pairs, a new one in place of the oldest."""

    rows: Any  # U', the steps over the changes: `StackedRows`, `ListedRows` or `ArrayRows`
    known: Products
    products: Array  # U'g where the run stands
    way: Any = None
    face: Face | None = None  # in the memory of the host, where variables have been held

    @staticmethod
    def unknown(m: Any, most: int) -> Pairs:
        """Room for so many pairs."""
        known = Products.unknown(m, most)
        if isinstance(m, Host):
            return Pairs(_rows_on_host(most, m.space), known, np.zeros((2, most)))
        rows = zeros(m, 2, most, m.dimension, dtype=m.dtype)  # to be changed in place
        return Pairs(ArrayRows(rows), known, zeros(m, 2, most))

    @property
    def count(self) -> Any:
        return self.known.count

    @property
    def gamma(self) -> Any:
        return self.known.gamma

    def after_failure(self, m: Host) -> Pairs:
        return Pairs.unknown(m, self.known.most)

    def at(self, m: Any, here: Sample) -> Pairs:
        products = self.rows.products(m, here.gradient)
        moved = Pairs(self.rows, self.known, products, None, self.face)
        moved.way = moved.known_line(m, here)
        return moved

    def _after(
        self, m: Any, moved: Any, failed: Any, here: Sample, there: Sample, noise: Any,
        scaling: SelfScaling | None,
    ) -> Pairs:  # fmt: skip
        known = self.known
        pair = self.rows.pair(m, moved, here, there, noise, self)
        if pair is None:  # of no use, on the host
            return self.at(m, there)
        rows = self.rows.put(m, known.row, pair)

        def extend() -> tuple[Any, ...]:
            to_change, products = rows.products_with_pair(m, pair, there.gradient, self)
            scaled, gamma = self._scaled(m, pair, here, scaling)
            after = Pairs(rows, scaled.with_pair(m, pair, to_change, gamma), products)
            return after.known, products, after.known_line(m, there)

        def forget() -> tuple[Any, ...]:
            nothing = Products.unknown(m, known.most)
            if not has_kinks(m):
                nothing.triangle = known.triangle  # zeros that no branch needs to copy
            return nothing, self.products, line_from(m, here, UNIT, True)

        state = known, self.products, self.way
        after = Pairs(rows, *m.case(state, (moved, extend), (failed, forget)))
        if self.face is not None:
            after.face = self.face
            self.face.add_row(known.row)
        return after

    def _scaled(
        self, m: Any, pair: Pair, here: Sample, scaling: SelfScaling | None
    ) -> tuple[Products, Any]:
        """What is known, of H scaled before it takes the pair, and gamma: that of the pair where H
        is not scaled by itself."""
        if scaling is None:
            return self.known, pair.gamma
        known, line = self.known, self.line(m, here)
        scales = scaling.scales(m, known.count, is_newton(m, here, line)) & pair.use
        slope = m.where(scales, -line.slope, 1.0)
        bend = pair.slope * pair.slope / slope  # <s, Bs>, of s along -H g
        tau, _ = scaling.factors(m, m.dimension, bend / pair.sy, 1.0)
        tau = m.where(scales, tau, 1.0)
        # By itself gamma never falls.
        gamma = m.minimum(known.gamma / tau, LBFGS_CONSTANTS.most_gamma * pair.gamma)
        gamma = m.where(scales, gamma, pair.gamma)
        return m.but(known, diagonal=known.diagonal / column(tau)), gamma

    def descent(self, m: Any, gradient: Array) -> Array:
        known, products = self.known, self.products
        if m.penalty is not None:  # the model asks for more vectors than the gradient
            products = self.rows.products(m, gradient)
        return self.rows.combine(m, known.weights(m, products), -known.gamma, gradient)

    def held_step(self, m: Any, held: Array, target: Array, gradient: Array) -> Array:
        gamma, known = self.known.gamma, self.known
        if (face := self.kept_face(m)) is not None:
            weights = face.weights_where(m, self, held, target, gradient)
        else:
            nothing = m.each(zeros_like, gradient)
            whole = m.each(where_held, held, target, m.combination(nothing, -gamma, gradient))
            gram, right = self.rows.gram(m, held), self.rows.products(m, whole)
            weights = known.weights_on_face(m, gram, right)
        return self.rows.combine(m, weights, -gamma, gradient)

    def kept_face(self, m: Any) -> Face | None:
        if not (isinstance(m, Host) and "cpu" in str(m.space.device).lower()):
            return None
        if m.space.is_part:  # a checkpoint has no room for what each rank knows
            return Face.empty(m, 2 * self.known.most)
        self.face = self.face or Face.empty(m, 2 * self.known.most)
        return self.face

    def make_line(self, m: Any, here: Sample) -> Line | FusedLine:
        if not (m.fuses and self.count and not has_kinks(m)):
            return Curvature.make_line(self, m, here)  # of a class with slots there is no super()
        line: FusedLine = self.rows.fused_line(m, here, self)
        return line

    def inverse(self, held: np.ndarray | None) -> Callable[[np.ndarray], np.ndarray]:
        known, k, gamma = self.known, self.known.count, self.known.gamma
        rows = self.rows.matrix()[:, :k].reshape(2 * k, -1)
        inverse, gram = known.inverse[:k, :k], known.gram[:k, :k]
        real = Products(inverse, np.linalg.inv(inverse), gram, known.diagonal[:k], gamma, k, 0)
        columns = rows[:, np.zeros(rows.shape[1], bool) if held is None else held]
        matrix = real.with_middle(Host(Space(rows[0])), columns @ columns.T)
        if held is not None:
            rows = np.where(held, 0.0, rows)
        return functools.partial(_multiply, gamma, rows, gamma * np.linalg.inv(matrix))

    def packed(self) -> PackedPairs:
        known, k = self.known, self.known.count

        def numbers(a: np.ndarray) -> tuple[float, ...]:
            return tuple(a.ravel().tolist())

        return PackedPairs(
            known.most, known.row, self.rows.vectors(k), float(known.gamma),
            numbers(known.inverse[:k, :k]), numbers(known.triangle[:k, :k]),
            numbers(known.gram[:k, :k]), numbers(known.diagonal[:k]), numbers(self.products[:, :k]),
            None if self.face is None else self.face.packed(),
        )  # fmt: skip


def _multiply(gamma: float, rows: np.ndarray, middle: np.ndarray, x: np.ndarray) -> np.ndarray:
    """(gamma I + U K U') x."""
    return gamma * x + rows.T @ (middle @ (rows @ x))  # type: ignore[no-any-return]


@record
class PackedPairs:
    """`Pairs` on the host in a checkpoint: steps, changes, and their products."""

    most: int
    row: int
    vectors: tuple[Array, ...]
    gamma: float
    inverse: tuple[float, ...]
    triangle: tuple[float, ...]
    gram: tuple[float, ...]
    diagonal: tuple[float, ...]
    products: tuple[float, ...]
    face: StoredFace | None

    def unpacked(self, space: Space | None) -> Pairs:
        """As it was; without a space, with its vectors one by one."""
        k, most, vectors = len(self.diagonal), self.most, self.vectors
        fits = self.row == k % most if k < most else k == most and 0 <= self.row < most
        if not (fits and len(vectors) == len(self.products) == 2 * k):
            raise ValueError(f"{len(vectors)} vectors of {k} pairs, {most} at the most")
        squares, diagonal, products = np.zeros((3, most, most)), np.zeros(most), np.zeros((2, most))
        squares[:, :k, :k] = np.reshape(self.inverse + self.triangle + self.gram, (3, k, k))
        diagonal[:k], products[:, :k] = self.diagonal, np.reshape(self.products, (2, k))
        inverse, triangle, gram = squares
        known = Products(inverse, triangle, gram, diagonal, self.gamma if k else 1.0, k, self.row)
        rows = _rows_on_host(most, space).filled(vectors)
        kept = self.face if space is not None and not space.is_part else None
        face = None if kept is None or space is None else kept.face(space.size)
        return Pairs(rows, known, products, None, face)


@record
class StoredPairs:
    """Pairs in a checkpoint of 0.1.0, s_1, y_1, s_2, ... in the order of age, with upper triangles
    row by row: to be read."""

    most: int
    vectors: tuple[Array, ...]
    gamma: float
    steps_changes: tuple[float, ...]
    changes_changes: tuple[float, ...]
    diagonal: tuple[float, ...]
    products: tuple[float, ...]

    def unpacked(self, space: Space | None) -> Pairs:
        k, products = len(self.diagonal), self.products
        r, yy = (np.reshape(a, (k, k)) for a in (self.steps_changes, self.changes_changes))
        squares = np.linalg.inv(r), r, yy + np.triu(yy, 1).T
        inverse, triangle, gram = (tuple(a.ravel().tolist()) for a in squares)
        vectors, both = self.vectors[::2] + self.vectors[1::2], products[::2] + products[1::2]
        return PackedPairs(
            self.most, k % self.most, vectors, self.gamma, inverse, triangle, gram, self.diagonal,
            both, None,
        ).unpacked(space)  # fmt: skip


# --- where vectors are kept -----------------------------------------------------------------------


def _rows_on_host(most: int, space: Space | None) -> StackedRows | ListedRows:
    """Room for so many pairs; short NumPy vectors are stacked."""
    if space is not None and space.library is np.ndarray and space.shape:
        short = space.size <= LBFGS_CONSTANTS.stacked_entries
        if not space.is_part and short and space.dtype in (np.float32, np.float64):
            return StackedRows(np.zeros((2 * most, space.size)), space)
    return ListedRows((None,) * (2 * most))


def _with_differences(
    products: np.ndarray, pair: Pair, before: Pairs
) -> tuple[np.ndarray, np.ndarray]:
    """U'y, and U'g, which is given: y is a difference of gradients, and so are its products."""
    to_change = products - before.products
    to_change[:, before.known.row] = pair.sy, pair.yy
    return to_change, products


class StackedRows:
    """Short NumPy vectors as rows of one array, in double precision, so that the products with all
    of them are one call of BLAS.  The array is changed in place."""

    __slots__ = ("columns", "rows", "space")

    def __init__(self, rows: np.ndarray, space: Space):
        self.rows, self.columns, self.space = rows, rows.T, space  # U' and U

    def matrix(self) -> np.ndarray:
        """U', (2, most, d)."""
        return self.rows.reshape(2, len(self.rows) // 2, -1)

    def filled(self, vectors: Sequence[np.ndarray]) -> StackedRows:
        """With these steps, and changes along them, from the first row on."""
        k = len(vectors) // 2
        self.matrix()[:, :k] = np.reshape(vectors, (2, k, self.space.size))
        return self

    def vectors(self, count: int) -> tuple[Array, ...]:
        """The first steps, and the changes along them, as they were."""
        chosen = self.matrix()[:, :count].astype(self.space.dtype)
        return tuple(chosen.reshape(2 * count, *self.space.shape))

    def pair(
        self, m: Host, moved: bool, here: Sample, there: Sample, noise: float, pairs: Pairs
    ) -> Pair | None:
        # Sums are made from fresh arrays: rows of odd length begin at odd places in turn, which
        # changes the last digit of a ddot on old CPUs.
        return Pair.on_host(m, here, there, noise)

    def put(self, m: Host, i: int, pair: Pair) -> StackedRows:
        self.rows[i], self.rows[i + len(self.rows) // 2] = pair.s, pair.y
        return self

    def products(self, m: Host, vector: Array) -> np.ndarray:
        """U'v, (2, most)."""
        return _products(self.columns, flat(self.space, vector)).reshape(2, -1)

    def products_with_pair(
        self, m: Host, pair: Pair, gradient: Array, before: Pairs
    ) -> tuple[np.ndarray, np.ndarray]:
        """U'y and U'g."""
        return _with_differences(self.products(m, gradient), pair, before)

    def columns_at(self, m: Host, places: np.ndarray) -> np.ndarray:
        """Those of U' at some variables, (2 most, ...)."""
        columns = np.empty((len(self.rows), len(places)))
        return self.rows.take(places, axis=1, out=columns, mode="clip")  # others make a copy

    def row(self, i: int) -> np.ndarray:
        return self.rows[i]  # type: ignore[no-any-return]

    def combine(self, m: Host, weights: np.ndarray, scale: float, vector: Array) -> Array:
        """U w + scale v."""
        columns, entries, weights = self.columns, flat(self.space, vector), weights.reshape(-1)
        if len(columns) <= ROW:
            whole = dgemv(1.0, columns, weights, scale, entries)
        else:
            whole = entries * scale
            parts, cut = _parts(columns)
            whole[:cut] += np.matmul(parts, weights).reshape(-1)
            whole[cut:] += columns[cut:] @ weights
        if self.space.flat:
            return whole
        with np.errstate(over="ignore"):  # a step that overflows is for the search to judge
            return whole.astype(vector.dtype, copy=False).reshape(vector.shape)


def _products(columns: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """The inner products with all columns, in one thread."""
    size, count = columns.shape
    sums = np.empty(count)
    if columns.size <= 2 * ONE_THREAD:
        # Transposed, into the sums from place i on; keywords cost time.
        height = count if columns.size <= ONE_THREAD else (count + 1) // 2
        for i in range(0, count, height):
            dgemv(1.0, columns[:, i : i + height], vector, 0.0, sums, 0, 1, i, 1, 1, 1)
        return sums
    if size <= ROW:
        return np.vecdot(columns.T, vector, out=sums)
    parts, whole = _parts(columns)
    cut = vector[:whole].reshape(len(parts), 1, -1)
    return np.matmul(cut, parts).sum(axis=(0, 1)) + vector[whole:] @ columns[whole:]  # type: ignore[no-any-return]


def _parts(columns: np.ndarray) -> tuple[np.ndarray, int]:
    """A stack of matrices, each some rows of all columns and small enough for one thread, and how
    many rows these are together."""
    size, count = columns.shape
    height = max(8, ONE_THREAD // count // 8 * 8)
    whole = size // height * height
    return columns[:whole].T.reshape(count, -1, height).transpose(1, 2, 0), whole


class ListedRows:
    """Vectors of any library, one by one, in the memory of the host or of a device.

    Where a pass over long ones is one kernel (on a GPU, in JAX, over ranks) an iteration reads the
    pairs twice, which is the least: once for the direction, once for their products with the new
    gradient.  The first pass makes the direction, the point at its end, and the slope.  The second
    comes with the gradient there: it makes the new change, and all products of the new pair, on
    trust that the search will take that point, as it nearly always does; on the same trust it is
    started before the sums of the first have come, where a gradient brings the value.
    """

    __slots__ = ("_rows",)

    def __init__(self, rows: tuple[Array, ...]):
        self._rows = rows  # None where there is none yet

    def filled(self, vectors: Vectors) -> ListedRows:
        k, missing = len(vectors) // 2, (None,) * ((len(self._rows) - len(vectors)) // 2)
        return ListedRows((*vectors[:k], *missing, *vectors[k:], *missing))

    def vectors(self, count: int = 0) -> Vectors:
        """All that there are."""
        return tuple([row for row in self._rows if row is not None])

    def matrix(self) -> np.ndarray:
        """U', where x is in the memory of the host: the pairs that there are."""
        rows = np.array([row.reshape(-1) for row in self.vectors()], np.float64)
        return rows.reshape(2, len(rows) // 2, -1)

    def _kept(self, i: int) -> list[int]:
        """The rows that stay where a pair takes row i."""
        half = len(self._rows) // 2
        return [j for j, row in enumerate(self._rows) if row is not None and j % half != i]

    def _pass(self, m: Host, gradient: Array, s: Array, i: int) -> tuple[Pass, Vectors]:
        """The pass that makes a new pair, and its vectors behind the new gradient."""
        group = tuple([self._rows[j] for j in self._kept(i)])
        if m.fuses:
            group = padded(group[:MOST])  # a kernel has room for so many
        return new_pair(len(group)), (gradient, s, *group)

    def pair(
        self, m: Host, moved: bool, here: Sample, there: Sample, noise: float, pairs: Pairs
    ) -> Pair | None:
        line, s = pairs.way, None
        made: Sequence[Array] = ()
        if isinstance(line, FusedLine) and there.point is line.end:
            s = line.direction
            if line.found[0] is there:
                _, made, sums = line.found
        if s is None:
            s = m.combination(there.point, -1.0, here.point)
        if not made:
            work, others = self._pass(m, here.gradient, s, pairs.known.row)
            made, sums, _ = m.space.compute(work, (there.gradient, *others), skip=1)
        to_s, _, ss, sy, yy, *_ = sums
        square = moved_square(m, s, made[0]) if has_kinks(m) else yy
        if not is_of_use(ss, sy, square):
            return None
        slope = to_s - sy
        t = correction(here.value - there.value, slope, sy, noise)
        pair = Pair(s, made[0], sy, sy / square, t)
        pair.yy, pair.sums, pair.slope = yy, sums, slope
        return pair

    def put(self, m: Host, i: int, pair: Pair) -> ListedRows:
        rows = list(self._rows)
        rows[i], rows[i + len(rows) // 2] = pair.s, pair.y
        return ListedRows(tuple(rows))

    def products(self, m: Host, vector: Array) -> np.ndarray:
        """U'v, (2, most)."""
        found = np.zeros(len(self._rows))
        found[[row is not None for row in self._rows]] = m.space.inners(self.vectors(), vector)
        return found.reshape(2, -1)

    def products_with_pair(
        self, m: Host, pair: Pair, gradient: Array, before: Pairs
    ) -> tuple[np.ndarray, np.ndarray]:
        """U'y and U'g."""
        i, products = before.known.row, np.zeros(len(self._rows))
        (to_s, to_y, _, _, _, *found), kept = pair.sums, self._kept(i)
        rest = [self._rows[j] for j in kept[len(found) :]]
        products[kept] = [*found[: len(kept)], *m.space.inners(rest, gradient)]
        products[[i, i + len(products) // 2]] = to_s, to_y
        return _with_differences(products.reshape(2, -1), pair, before)

    def columns_at(self, m: Host, places: np.ndarray) -> np.ndarray:
        """Those of U' at some variables, in the memory of the host."""
        nothing = np.zeros(len(places))
        return np.array([nothing if r is None else _flat(r)[places] for r in self._rows], float)

    def row(self, i: int) -> np.ndarray:
        return _flat(self._rows[i])

    def gram(self, m: Host, held: Array) -> np.ndarray:
        """U_A'U_A, on a device: in the widest type that the library has switched on."""
        xp = m.space.xp
        mask, wide = xp.reshape(held, (-1,)) != 0.0, xp.asarray(np.zeros(1)).dtype
        chosen = [xp.astype(xp.reshape(a, (-1,)), wide) * mask for a in self.vectors()]
        there = np.flatnonzero([row is not None for row in self._rows])
        found = np.zeros((len(self._rows),) * 2)
        columns = xp.stack(chosen)
        found[np.ix_(there, there)] = to_numpy(columns @ columns.T)
        return found

    def combine(self, m: Host, weights: np.ndarray, scale: float, vector: Array) -> Array:
        """U w + scale v."""
        return m.space.weighted_sum([scale, *self._real(weights)], (vector, *self.vectors()))

    def _real(self, weights: np.ndarray) -> list[float]:
        """Of the rows that there are."""
        numbers = zip(weights.reshape(-1).tolist(), self._rows, strict=True)
        return [weight for weight, row in numbers if row is not None]

    def fused_line(self, m: Host, here: Sample, pairs: Pairs) -> FusedLine:
        given = [-pairs.known.gamma, *self._real(pairs.known.weights(m, pairs.products))]
        d, end, along = m.space.direction(here.point, given, (here.gradient, *self.vectors()))

        # Not after an exception: it may be one of this rank alone, and this is a call over ranks.
        def line() -> Line:
            slope, square = along()
            return Line.of(m, here, d, slope, square, guess=False)

        return FusedLine(d, line, end, *self._pass(m, here.gradient, d, pairs.known.row))


def _flat(a: Array) -> np.ndarray:
    return to_numpy(a).reshape(-1)


@record
class ArrayRows:
    """The rows where numbers are arrays."""

    rows: Array  # (..., 2, most, d)

    def pair(
        self, m: CurvatureMachine, moved: Any, here: Sample, there: Sample, noise: Any, pairs: Pairs
    ) -> Pair:
        return Pair.in_arrays(m, here, there, noise)

    def put(self, m: CurvatureMachine, i: Array, pair: Pair) -> ArrayRows:
        return ArrayRows(m.put(self.rows, i, m.xp.stack([pair.s, pair.y], axis=-2), pair.use))

    def _matrix(self, m: CurvatureMachine) -> Array:
        """U', (..., 2 most, d)."""
        *lanes, two, most, d = self.rows.shape
        return m.xp.reshape(self.rows, (*lanes, two * most, d))

    def products(self, m: CurvatureMachine, vector: Array) -> Array:
        """U'v, (..., 2, most)."""
        return m.xp.reshape(times(m, self._matrix(m), m.entries(vector)), self.rows.shape[:-1])

    def products_with_pair(
        self, m: CurvatureMachine, pair: Pair, gradient: Array, before: Pairs
    ) -> tuple[Array, Array]:
        """U'y and U'g: the rows are read once."""
        both = m.widened(m.xp.stack([pair.y, m.entries(gradient)], axis=-1))
        found = m.matmul(m.widened(self._matrix(m)), both)
        to_y, to_g = (m.xp.reshape(found[..., i], self.rows.shape[:-1]) for i in range(2))
        return to_y, to_g

    def gram(self, m: CurvatureMachine, held: Array) -> Array:
        """U_A'U_A."""
        mask = m.widened(m.entries(held) != 0.0)
        chosen = m.widened(self._matrix(m)) * mask[..., None, :]
        return m.matmul(chosen, m.xp.matrix_transpose(chosen))

    def combine(self, m: CurvatureMachine, weights: Array, scale: Array, vector: Array) -> Array:
        """U w + scale v."""
        rows, (*lanes, two, most) = self._matrix(m), weights.shape
        w = m.xp.reshape(m.xp.astype(weights, rows.dtype, copy=False), (*lanes, 1, two * most))
        whole = m.widened(m.matmul(w, rows)[..., 0, :])
        return m.vector(whole + scale[..., None] * m.widened(m.entries(vector)))
