"""The kernels that call a loss: the pass over all entries, and half a sweep.

This file is a template: `kernels_for` loads it once per loss, with ``LOSS`` set; imported as it is,
its kernels are those of the squared loss.  What depends on the loss's kind is decided when a
kernel is compiled.

The pass takes three short steps per block of entries of one group: all inner products into a
buffer, the loss and its slopes on the buffer (a loop that the compiler vectorises), the slopes into
both gradients.  The rows of the right factor are still in the cache when they are read for the
second time.

Rows of half a sweep do not depend on each other, so the result is the same, to the bit, for any
number of threads.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.backends.base import FULL_STEP
from momentous.lowrank.backends.blocks import Matrix
from momentous.lowrank.backends.numba.compiler import compiled_entry, kernel_of
from momentous.lowrank.backends.numba.elimination import eliminate
from momentous.lowrank.backends.numba.lanes import row_products, spread_slopes
from momentous.lowrank.backends.numba.row_kernels import (
    add_penalty,
    furthest_move,
    piece_of,
    scale_lines,
    shortest_change,
    solve,
    well_determined,
    whole_strips,
)
from momentous.lowrank.backends.numba.tiles import (
    SIDE,
    add_dots,
    add_products,
    gather_lines,
)
from momentous.lowrank.data.ratings import Floats
from momentous.lowrank.losses import Loss, Squared
from momentous.lowrank.losses.base import Numbers

LOSS: type[Loss] = globals().get("LOSS", Squared)
QUADRATIC, UNIT, CUT = LOSS.quadratic, LOSS.unit_curvature, LOSS.self_concordant
DENSE = float(LOSS.dense_weight)
BLOCK = 512  # entries in the buffer: these and their rows of the right factor fit the fast caches

entry = compiled_entry(LOSS)
compiled_kernel = kernel_of(LOSS)


@compiled_kernel("contract", "reassoc")
def evaluate(
    z: Floats, x: Floats, count: int, scale: Numbers, parameters: tuple[float, ...]
) -> float:
    """Replace predictions by `scale` times the slopes; return the sum of the losses."""
    total = 0.0
    for k in range(count):
        value, slope, _ = entry(z[k], x[k], parameters)
        z[k] = scale * slope
        total += value
    return total


@compiled_kernel()
def add_groups(
    lanes: tuple[int, ...] | int,
    left: Floats,
    right: Floats,
    starts: NDArray[np.int64],
    others: NDArray[np.int32],
    values: Floats,
    first: int,
    last: int,
    scale: float,
    left_gradient: Floats,
    right_gradient: Floats,
    parameters: tuple[float, ...],
) -> float:
    """Sum of the losses of the groups first to last - 1; scale 0 means that no gradient is made."""
    z = np.empty(BLOCK, left.dtype)
    factor = left.dtype.type(scale)
    total = 0.0
    for i in range(first, last):
        for begin in range(starts[i], starts[i + 1], BLOCK):
            end = min(begin + BLOCK, starts[i + 1])
            row_products(lanes, left, i, right, others, begin, end, z)
            total += evaluate(z, values[begin:end], end - begin, factor, parameters)
            if scale != 0.0:
                spread_slopes(
                    lanes, left, i, right, others, begin, end, z, left_gradient, right_gradient
                )
    return total


@compiled_kernel("contract", "reassoc")
def weigh(
    count: int,
    values: Floats,
    begin: int,
    z: Matrix,
    slopes: Matrix,
    with_value: bool,
    parameters: tuple[float, ...],
) -> float:
    """The loss at the predictions z: its slopes, downwards, and in place of z its curvatures;
    returns the sum of the losses, where it is wanted."""
    total = 0.0
    if with_value:
        for k in range(count):
            value, slope, curvature = entry(z[k], np.float64(values[begin + k]), parameters)
            slopes[k], z[k] = -slope, curvature
            total += value
    else:  # which saves what only the value needs
        for k in range(count):
            _, slope, curvature = entry(z[k], np.float64(values[begin + k]), parameters)
            slopes[k], z[k] = -slope, curvature
    return total


@compiled_kernel()
def add_row(
    from_zero: bool,
    with_value: bool,
    others: NDArray[np.int32],
    values: Floats,
    features: Floats,
    offsets: Floats,
    begin: int,
    end: int,
    u: Matrix,
    parameters: tuple[float, ...],
    T: Floats,
    S: Floats,
    z: Matrix,
    slopes: Matrix,
    A: Matrix,
    side: Matrix,
) -> float:
    """Add the entries from begin to end - 1, at the row u, to its system and its right-hand side;
    returns the sum of their losses."""
    loss, length, size = 0.0, z.size, features.shape[1]
    for piece in range(begin, end, length):
        count = min(length, end - piece)
        gather_lines(others, piece, count, features, T)
        if offsets.size:
            for k in range(count):
                z[k] = offsets[others[piece + k]]
        else:
            for k in range(count):
                z[k] = 0.0
        if not from_zero:
            add_dots(count, u, T, z)
        loss += weigh(count, values, piece, z, slopes, with_value or QUADRATIC, parameters)
        if UNIT:
            add_products(size, count, T, T, A, slopes, side)
        else:
            scale_lines(count, z, T, S)
            add_products(size, count, S, T, A, slopes, side)
    return loss


@compiled_kernel("contract", "reassoc")
def add_dense(gram: Matrix, pull: Matrix, rest: float, u: Matrix, side: Matrix) -> float:
    """Add the descent direction of the sum over all pairs, and return its value at the row u; gram
    (in strips), pull and rest are F'F, F'o and o'o."""
    value = rest
    for q in range(pull.size):
        moved = 0.0
        for p in range(pull.size):
            moved += gram[p // SIDE, q, p % SIDE] * u[p]
        side[q] -= DENSE * (moved + pull[q])
        value += u[q] * (moved + 2.0 * pull[q])
    return 0.5 * DENSE * value


@compiled_kernel()
def newton_cut(
    x: Matrix,
    others: NDArray[np.int32],
    features: Floats,
    lengths: Matrix,
    begin: int,
    end: int,
) -> float:
    """How much of Newton's step x to take; ``lengths`` are the squares |f_j|^2."""
    most = square = 0.0
    for k in range(begin, end):
        most = max(most, lengths[others[k]])
    for q in range(x.size):
        square += x[q] * x[q]
    if square * most > FULL_STEP * FULL_STEP:
        reach = furthest_move(x, others, features, begin, end)
        if reach > FULL_STEP:
            return math.log(1.0 + reach) / reach
    return 1.0


@compiled_kernel()
def solve_rows(
    from_zero: bool,
    with_value: bool,
    starts: NDArray[np.int64],
    others: NDArray[np.int32],
    values: Floats,
    features: Floats,
    lengths: Matrix,
    offsets: Floats,
    gram: Matrix,
    pull: Matrix,
    rest: float,
    current: Floats,
    weights: Floats,
    first: int,
    last: int,
    parameters: tuple[float, ...],
    solutions: Floats,
    row_values: Matrix,
) -> None:
    """Solve for the rows first to last - 1; ``from_zero``: all that is in ``current`` is 0."""
    size = features.shape[1]
    width = whole_strips(size)
    strips, length = width // SIDE, piece_of(width, features.itemsize)
    T, exact_T = np.empty((strips, length, SIDE), features.dtype), np.empty((strips, length, SIDE))
    S, exact_S = np.empty_like(T), np.empty_like(exact_T)
    A, scaled = np.empty((strips, width, SIDE)), np.empty((strips, width, SIDE))
    inverses, shares = np.empty(width), np.empty(max(width, SIDE * SIDE))
    z, slopes = np.empty(length), np.empty(length)
    u, side, x = np.zeros(width), np.zeros(width), np.zeros(width)
    damping, other, away = np.zeros(width), np.zeros(width), np.zeros(width)
    for i in range(first, last):
        begin, end = starts[i], starts[i + 1]
        if begin == end and DENSE == 0.0:
            continue
        if not from_zero:
            for q in range(size):  # numba is seconds slower to compile slices of arrays
                u[q] = current[i, q]
        side[:], A[:] = 0.0, 0.0
        if DENSE != 0.0:
            A += DENSE * gram
        loss = add_row(
            from_zero, with_value, others, values, features, offsets, begin, end, u,
            parameters, T, S, z, slopes, A, side,
        )  # fmt: skip
        if T.itemsize < 8 and not well_determined(size, weights[i], A):
            side[:], A[:] = 0.0, 0.0
            if DENSE != 0.0:
                A += DENSE * gram
            loss = add_row(
                from_zero, with_value, others, values, features, offsets, begin, end, u,
                parameters, exact_T, exact_S, z, slopes, A, side,
            )  # fmt: skip
        if DENSE != 0.0:
            loss += add_dense(gram, pull, rest, u, side)
        penalty, damped = add_penalty(size, weights[i], u, A, side, damping)
        square = 2.0 * loss + penalty
        eliminate(A, scaled, inverses, shares)
        product, step = solve(A, inverses, side, shares, x), 1.0
        row_values[i] = loss
        if QUADRATIC:
            row_values[i] = 0.5 * (square - product)
            if damped:
                row_values[i] = 0.5 * shortest_change(
                    A, inverses, damping, u, side, square, product, x, other, away, shares
                )
        if CUT:
            step = newton_cut(x, others, features, lengths, begin, end)
        for q in range(size):
            solutions[i, q] = u[q] + step * x[q]


@compiled_kernel()
def sum_rows(
    from_zero: bool,
    starts: NDArray[np.int64],
    others: NDArray[np.int32],
    values: Floats,
    features: Floats,
    offsets: Floats,
    current: Floats,
    weights: Floats,
    base: int,
    first: int,
    last: int,
    parameters: tuple[float, ...],
    lines: Floats,
    losses: Matrix,
) -> None:
    """The sums of `solve_rows` alone, for the rows first to last - 1: one line for each, from row
    ``base`` on, and the losses."""
    size = features.shape[1]
    width = whole_strips(size)
    strips, length = width // SIDE, piece_of(width, features.itemsize)
    T, exact_T = np.empty((strips, length, SIDE), features.dtype), np.empty((strips, length, SIDE))
    S, exact_S = np.empty_like(T), np.empty_like(exact_T)
    A, u, side = np.empty((strips, width, SIDE)), np.zeros(width), np.zeros(width)
    z, slopes = np.empty(length), np.empty(length)
    for i in range(first, last):
        if not from_zero:
            for q in range(size):
                u[q] = current[i, q]
        side[:], A[:] = 0.0, 0.0
        losses[i - base] = add_row(
            from_zero, True, others, values, features, offsets, starts[i], starts[i + 1], u,
            parameters, T, S, z, slopes, A, side,
        )  # fmt: skip
        if T.itemsize < 8 and not well_determined(size, weights[i], A):
            side[:], A[:] = 0.0, 0.0
            losses[i - base] = add_row(
                from_zero, True, others, values, features, offsets, starts[i], starts[i + 1], u,
                parameters, exact_T, exact_S, z, slopes, A, side,
            )  # fmt: skip
        place = 0
        for p in range(size):
            for q in range(p + 1):
                lines[i - base, place] = A[p // SIDE, q, p % SIDE]
                place += 1
        for q in range(size):
            lines[i - base, place + q] = side[q]
