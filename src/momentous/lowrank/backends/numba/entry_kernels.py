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
from typing import Any

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
from momentous.lowrank.backends.numba.row_passes import BLOCK as ENTRIES
from momentous.lowrank.backends.numba.row_passes import CHUNK, add_block, add_block_dots
from momentous.lowrank.backends.numba.row_passes import add_products as add_row_products
from momentous.lowrank.backends.numba.tiles import (
    SIDE,
    add_dots,
    add_products,
    gather_lines,
)
from momentous.lowrank.data.ratings import Floats
from momentous.lowrank.losses import Loss, Squared

LOSS: type[Loss] = globals().get("LOSS", Squared)
QUADRATIC, UNIT, CUT = LOSS.quadratic, LOSS.unit_curvature, LOSS.self_concordant
DENSE = float(LOSS.dense_weight)
BLOCK = 512  # entries in the buffer: these and their rows of the right factor fit the fast caches

entry = compiled_entry(LOSS)
compiled_kernel = kernel_of(LOSS)


@compiled_kernel("contract", "reassoc")
def evaluate(z: Floats, x: Floats, count: int, scale: Any, parameters: tuple[float, ...]) -> float:
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


@compiled_kernel("contract", "reassoc")
def add_gram(gram: Matrix, vector: Matrix, out: Matrix) -> None:
    """Add the product of the dense part's matrix with a vector."""
    for p in range(gram.shape[0]):
        factor = DENSE * vector[p]
        for q in range(gram.shape[1]):
            out[q] += factor * gram[p, q]


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
            u[:size] = current[i]
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
            u[:size] = current[i]
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


@compiled_kernel()
def slope_of_row(
    with_value: bool,
    others: NDArray[np.int32],
    values: Floats,
    features: Floats,
    offsets: Floats,
    begin: int,
    end: int,
    u: Floats,
    parameters: tuple[float, ...],
    z: Matrix,
    slopes: Matrix,
    part: Floats,
    curvatures: Floats,
    side: Matrix,
) -> tuple[float, float]:
    """Add what the entries from begin to end - 1 say at u to ``side``; returns the sums of their
    losses and of their curvatures, which are also kept, unless all of them are 1."""
    loss, curved = 0.0, 0.0
    for chunk in range(begin, end, CHUNK):
        stop = min(chunk + CHUNK, end)
        count = stop - chunk
        z[:], slopes[:], part[:] = 0.0, 0.0, 0.0
        if offsets.size:
            for k in range(count):
                z[k] = offsets[others[chunk + k]]
        for k in range(chunk, stop, ENTRIES):
            add_block_dots(features, others, k, end, u, z, k - chunk)
        loss += weigh(count, values, chunk, z, slopes, with_value, parameters)
        for k in range(chunk, stop, ENTRIES):
            add_block(features, others, k, end, slopes, k - chunk, part)
        for q in range(side.size):
            side[q] += part[q]
        if UNIT:
            curved += count
        else:
            for k in range(count):
                curvatures[chunk - begin + k] = z[k]
                curved += z[k]
    return loss, curved


@compiled_kernel("contract", "reassoc")
def precondition(diagonal: Matrix, rest: Matrix, scaled: Matrix) -> float:
    """The rest over the diagonal, and the product of both."""
    product = 0.0
    for q in range(rest.size):
        scaled[q] = rest[q] / diagonal[q]
        product += rest[q] * scaled[q]
    return product


@compiled_kernel("contract", "reassoc")
def inner(one: Matrix, other: Matrix) -> float:
    """Their product."""
    product = 0.0
    for q in range(one.size):
        product += one[q] * other[q]
    return product


@compiled_kernel()
def improve_rows(
    steps: int,
    squares: Matrix,
    aligned: Floats,
    with_value: bool,
    starts: NDArray[np.int64],
    others: NDArray[np.int32],
    values: Floats,
    features: Floats,
    lengths: Matrix,
    offsets: Floats,
    gram: Matrix,
    pull: Matrix,
    rest_of_all: float,
    current: Floats,
    weights: Floats,
    first: int,
    last: int,
    parameters: tuple[float, ...],
    solutions: Floats,
    row_values: Matrix,
) -> None:
    """So many steps of conjugate gradients for the rows first to last - 1; ``aligned`` is for the
    vectors of the passes, like features."""
    size, width = weights.shape[1], features.shape[1]
    longest = 0
    for i in range(first, last):
        longest = max(longest, starts[i + 1] - starts[i])
    curvatures = np.empty(1 if UNIT else longest, features.dtype)
    z, slopes, moves = np.zeros(CHUNK), np.zeros(CHUNK), np.zeros(ENTRIES)
    narrow, part = aligned[0], aligned[1]
    x, rest, scaled = np.zeros(width), np.zeros(width), np.zeros(width)
    direction, turned, diagonal = np.zeros(width), np.zeros(width), np.full(width, np.inf)
    for i in range(first, last):
        begin, end = starts[i], starts[i + 1]
        if begin == end and DENSE == 0.0:
            continue
        for q in range(size):
            narrow[q] = current[i, q]
        rest[:], x[:] = 0.0, 0.0
        loss, curved = slope_of_row(
            with_value, others, values, features, offsets, begin, end, narrow, parameters, z,
            slopes, part, curvatures, rest,
        )  # fmt: skip
        for q in range(size):
            diagonal[q] = curved * squares[q] + weights[i, q]
        if DENSE != 0.0:
            value = DENSE * rest_of_all
            turned[:] = 0.0
            add_gram(gram, narrow, turned)
            for q in range(size):
                rest[q] -= turned[q] + DENSE * pull[q]
                value += narrow[q] * (turned[q] + 2.0 * DENSE * pull[q])
                diagonal[q] += DENSE * gram[q, q]
            loss += 0.5 * value
        for q in range(size):
            rest[q] -= weights[i, q] * narrow[q]
            if not diagonal[q] > 0.0:
                diagonal[q] = np.inf
        product = precondition(diagonal, rest, scaled)
        direction[:] = scaled
        for step in range(steps):
            turned[:] = 0.0
            for q in range(width):
                narrow[q] = direction[q]
            add_row_products(
                features, others, begin, end, curvatures, not UNIT, narrow, moves, part, turned
            )
            if DENSE != 0.0:
                add_gram(gram, direction, turned)
            for q in range(size):
                turned[q] += weights[i, q] * direction[q]
            curvature = inner(direction, turned)
            if not curvature > 0.0:
                break
            length = product / curvature
            for q in range(width):
                x[q] += length * direction[q]
            if step + 1 == steps:
                break
            for q in range(width):
                rest[q] -= length * turned[q]
            before = product
            product = precondition(diagonal, rest, scaled)
            if not product > 0.0:
                break
            share = product / before
            for q in range(width):
                direction[q] = scaled[q] + share * direction[q]
        row_values[i], cut = loss, 1.0
        if CUT:
            cut = newton_cut(x, others, features, lengths, begin, end)
        for q in range(size):
            solutions[i, q] = current[i, q] + cut * x[q]
