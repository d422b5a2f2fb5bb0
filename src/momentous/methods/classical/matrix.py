"""The BFGS matrix of all pairs of a run, for few variables, where it is cheaper than its pairs.

From gamma I, with gamma = <s, y>/<y, y> of the newest pair, H = gamma A + C.  With
V_i = I - y_i s_i'/<s_i, y_i>, A is V_k' ... V_1' V_1 ... V_k, and C what the update H -> V'HV +
s s'/(t <s, y>) adds, t the correction by values.  A pair changes each by a matrix of rank two:

    V'AV = A - (s a' + a s')/<s, y>,    a = A y - (y'Ay/<s, y>)/2 s,

and so for C, with 1/(2 t) more in the weight of s.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg.blas import daxpy, ddot, dsymv, dsyr2

from momentous.core.machine import Host, has_kinks
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.space import Array, Space
from momentous.methods.classical.box_model import where_held
from momentous.methods.classical.constants import LBFGS_CONSTANTS
from momentous.methods.classical.curvature import (
    UNIT,
    Curvature,
    CurvatureMachine,
    Pair,
    flat,
    line_from,
    solve_positive,
    times,
    zeros,
)
from momentous.methods.classical.pairs import Pairs
from momentous.methods.classical.self_scaling import SelfScaling
from momentous.methods.search.wolfe import Line


@record
class Matrix(Curvature):
    """H of all pairs, on the host in double precision, whatever the library of x."""

    halves: Any  # A and C: `Halves` or `ArrayHalves`
    gamma: Any
    count: Any
    way: Any = None
    products: Any = None  # A g and C g where the run stands, where numbers are arrays

    @staticmethod
    def unknown(m: Any) -> Matrix:
        """Without pairs."""
        if isinstance(m, Host):
            first = np.eye(m.space.size, order="F")
            return Matrix(Halves(first, np.zeros_like(first)), 1.0, 0)
        both = zeros(m, 2, m.dimension, m.dimension) + _nothing(m)  # to be changed in place
        nothing = zeros(m, 2, m.dimension)
        return Matrix(ArrayHalves(both), zeros(m) + 1.0, zeros(m, dtype=m.whole), None, nothing)

    def after_failure(self, m: Host) -> Matrix:
        return Matrix.unknown(m)

    def at(self, m: Any, here: Sample) -> Matrix:
        moved = Matrix(self.halves, self.gamma, self.count)
        if not isinstance(m, Host):
            moved.products = self.halves.products(m, here.gradient)
        moved.way = moved.known_line(m, here)
        return moved

    def without_pairs_at(self, m: Any, here: Sample) -> Curvature:
        self.products = _products_of_nothing(m, here.gradient)
        return Curvature.without_pairs_at(self, m, here)  # in a class with slots no super()

    def _after(
        self, m: Any, moved: Any, failed: Any, here: Sample, there: Sample, noise: Any,
        scaling: SelfScaling | None,
    ) -> Matrix:  # fmt: skip
        if isinstance(m, Host):
            own = Pair.on_host(m, here, there, noise)
            if own is None:
                return self.at(m, there)
            return Matrix(self.halves.with_pair(own), own.gamma, self.count + 1)
        pair = Pair.in_arrays(m, here, there, noise)
        halves, products = self.halves.with_pair(m, failed, pair, there.gradient, self.products)

        def extend() -> tuple[Any, ...]:
            gamma = m.where(pair.use, pair.gamma, self.gamma)
            made = Matrix(halves, gamma, self.count + m.where(pair.use, 1, 0))
            if has_kinks(m):
                return gamma, made.count, made.make_line(m, there), products
            d = halves.descent_from(m, gamma, products)
            return gamma, made.count, Line.along(m, there, d, made.count == 0), products

        def forget() -> tuple[Any, ...]:
            one, none = m.xp.ones_like(self.gamma), m.xp.zeros_like(self.count)
            nothing = _products_of_nothing(m, here.gradient)
            return one, none, line_from(m, here, UNIT, True), nothing

        state: tuple[Any, ...] = self.gamma, self.count, self.way, products
        gamma, count, way, products = m.case(state, (moved, extend), (failed, forget))
        return Matrix(halves, gamma, count, way, products)

    def descent(self, m: Any, gradient: Array) -> Array:
        return self.halves.descent(m, self.gamma, gradient)

    def held_step(self, m: Any, held: Array, target: Array, gradient: Array) -> Array:
        missing = m.combination(target, -1.0, self.descent(m, gradient))
        z = self.halves.solve(m, self.gamma, held, missing)
        p = m.each(where_held, held, target, self.descent(m, m.combination(gradient, -1.0, z)))
        return m.combination(p, -self.gamma, z)

    def inverse(self, held: np.ndarray | None) -> Callable[[np.ndarray], np.ndarray]:
        matrix = self.halves.matrix(self.gamma)
        if held is not None:
            matrix = matrix - matrix[:, held] @ solve_positive(
                matrix[np.ix_(held, held)], matrix[held]
            )
        return functools.partial(np.matmul, matrix)

    def is_at_hand(self, space: Space) -> bool:
        return True

    def packed(self) -> StoredMatrix:
        corner = np.tril_indices(len(self.halves.first))
        parts = (part.T[corner].tolist() for part in (self.halves.first, self.halves.rest))
        return StoredMatrix(self.count, float(self.gamma), *map(tuple, parts))


class Halves:
    """A and C on the host, changed in place; only the upper triangles are used."""

    __slots__ = ("first", "rest")

    def __init__(self, first: np.ndarray, rest: np.ndarray):
        self.first, self.rest = first, rest

    def with_pair(self, pair: Pair) -> Halves:
        s, y, n, sy, first, rest = pair.s, pair.y, pair.s.size, pair.sy, self.first, self.rest
        a, c = dsymv(1.0, first, y), dsymv(1.0, rest, y)
        daxpy(s, a, n, -0.5 * ddot(y, a) / sy)
        daxpy(s, c, n, -0.5 * ddot(y, c) / sy - 0.5 / pair.t)
        # In place; keywords cost time.
        dsyr2(-1.0 / sy, s, a, 0, 1, 0, 1, 0, n, first, 1)
        dsyr2(-1.0 / sy, s, c, 0, 1, 0, 1, 0, n, rest, 1)
        return self

    def descent(self, m: Host, gamma: float, gradient: Array) -> Array:
        """-(gamma A + C) g."""
        space = m.space
        g = gradient if space.flat else flat(space, gradient)
        part = dsymv(-gamma, self.first, g)
        part = dsymv(-1.0, self.rest, g, 1.0, part, 0, 1, 0, 1, 0, 1)  # into part
        return part if space.flat else space.from_numpy(part.reshape(space.shape))

    def matrix(self, gamma: float) -> np.ndarray:
        """gamma A + C."""
        return mirrored(gamma * self.first + self.rest)

    def solve(self, m: Host, gamma: float, held: Array, r: Array) -> Array:
        """z with (H z)_A = r_A and z = 0 outside of A, where ``held``."""
        return solve_on_face(m, held, r, lambda block: gamma * self.first[block] + self.rest[block])


def mirrored(upper: np.ndarray) -> np.ndarray:
    """The symmetric matrix with this upper triangle."""
    upper = np.triu(upper)
    whole: np.ndarray = upper + np.triu(upper, 1).T
    return whole


def solve_on_face(m: Host, held: Array, r: Array, block_of: Callable[[Any], np.ndarray]) -> Array:
    """z with (H z)_A = r_A and z = 0 outside of A, where ``held``, given the blocks of H, of which
    the upper triangle is read."""
    space, z = m.space, np.zeros(m.space.size)
    (chosen,) = flat(space, held).nonzero()
    z[chosen] = solve_positive(block_of((chosen[:, None], chosen)), flat(space, r)[chosen])
    return z if space.flat else space.from_numpy(z.reshape(space.shape))


@record
class StoredMatrix:
    """A `Matrix` on the host in a checkpoint: upper triangles, column by column."""

    count: int
    gamma: float
    first: tuple[float, ...]
    rest: tuple[float, ...]

    def unpacked(self, space: Space | None) -> Curvature:
        """As it was; where x is now spread over ranks, no pairs yet."""
        d = math.isqrt(2 * len(self.first))
        if space is not None and space.is_part and space.dimension == d:
            return Pairs.unknown(Host.of(space), LBFGS_CONSTANTS.pairs_on_ranks)
        if space is not None and space.size != d:
            raise ValueError(f"{len(self.first)} numbers are no triangle with {space.size} columns")
        first, rest = np.zeros((d, d), order="F"), np.zeros((d, d), order="F")
        first.T[np.tril_indices(d)], rest.T[np.tril_indices(d)] = self.first, self.rest
        return Matrix(Halves(first, rest), self.gamma if self.count else 1.0, self.count)


@record
class ArrayHalves:
    """A and C where numbers are arrays."""

    both: Array  # (..., 2, d, d)

    def products(self, m: CurvatureMachine, gradient: Array) -> Array:
        """A g and C g."""
        *lanes, two, d, _ = self.both.shape
        rows = m.xp.reshape(self.both, (*lanes, two * d, d))  # one product for both
        return m.xp.reshape(times(m, rows, m.entries(gradient)), (*lanes, two, d))

    def descent(self, m: CurvatureMachine, gamma: Array, gradient: Array) -> Array:
        """-(gamma A + C) g."""
        return self.descent_from(m, gamma, self.products(m, gradient))

    def descent_from(self, m: CurvatureMachine, gamma: Array, products: Array) -> Array:
        """The same, given A g and C g."""
        return m.vector(-gamma[..., None] * products[..., 0, :] - products[..., 1, :])

    def solve(self, m: CurvatureMachine, gamma: Array, held: Array, r: Array) -> Array:
        """z with (H z)_A = r_A and z = 0 outside of A, where ``held``."""
        first, rest = self.both[..., 0, :, :], self.both[..., 1, :, :]
        return solve_in_arrays(m, held, r, gamma[..., None, None] * first + rest)

    def with_pair(
        self, m: CurvatureMachine, failed: Array, pair: Pair, gradient: Array, before: Array
    ) -> tuple[ArrayHalves, Array]:
        """With a pair, and without any where a search has failed; and the new A g and C g.

        ``before`` are those of the gradient that y begins at: the matrices are read for one
        product, and once more to be changed.
        """
        of_g, g, y = self.products(m, gradient), m.widened(m.entries(gradient)), m.widened(pair.y)
        s = m.widened(m.where(pair.use[..., None], pair.s, 0.0))[..., None, :]
        a, share = of_g - before, 1.0 / pair.sy[..., None]  # A y and C y
        weight = m.xp.stack([m.xp.zeros_like(pair.t), 0.5 / pair.t], axis=-1)
        a = a - (0.5 * times(m, a, y) * share + weight)[..., None] * s
        a = a * share[..., None]
        pairs = m.xp.stack([m.xp.broadcast_to(s, a.shape), a], axis=-2)
        both = m.plus_product(self.both, pairs, -m.xp.flip(pairs, axis=-2))
        if m.needs(failed):
            both = m.where(failed[..., None, None, None], _nothing(m), both)
        along = m.xp.flip(m.matmul(pairs, g[..., None, :, None]), axis=-2)
        less = m.matmul(m.xp.matrix_transpose(along), pairs)[..., 0, :]
        return ArrayHalves(both), of_g - less


def solve_in_arrays(m: CurvatureMachine, held: Array, r: Array, whole: Array) -> Array:
    """z with (H z)_A = r_A and z = 0 outside of A, where ``held``."""
    mask = m.entries(held) != 0.0
    inside = mask[..., :, None] & mask[..., None, :]
    right = m.where(mask, m.widened(m.entries(r)), 0.0)
    return m.vector(m.solve_positive(m.where(inside, whole, _nothing(m)[0]), right))


def _nothing(m: CurvatureMachine) -> Array:
    """A and C without pairs."""
    unit = m.xp.eye(m.dimension, dtype=m.wide, device=m.device)
    return m.xp.stack([unit, m.xp.zeros_like(unit)])


def _products_of_nothing(m: CurvatureMachine, gradient: Array) -> Array:
    """A g and C g without pairs."""
    g = m.widened(m.entries(gradient))
    return m.xp.stack([g, 0.0 * g], axis=-2)
