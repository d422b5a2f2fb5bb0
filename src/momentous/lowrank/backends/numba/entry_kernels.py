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
from momentous.lowrank.backends.numba.lanes import row_products, spread_slopes
from momentous.lowrank.backends.numba.row_kernels import (
    PIECE,
    add_penalty,
    add_products,
    eliminate,
    furthest_move,
    gather,
    predict,
    shortest_change,
    substitute,
    workspace,
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
    lanes: tuple[int, ...],
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
    lanes: tuple[int, ...],
    count: int,
    full: int,
    T: Matrix,
    z: Matrix,
    S: Matrix,
    with_value: bool,
    parameters: tuple[float, ...],
) -> float:
    """The loss at the predictions z: in S the gathered factors times its curvatures, below them its
    slopes, downwards; returns the sum of the losses, where it is wanted."""
    rank, total = len(lanes), 0.0
    values, slopes = T[rank], S[rank]
    if with_value:
        for k in range(count):
            value, slope, curvature = entry(z[k], values[k], parameters)
            slopes[k], z[k] = -slope, curvature
            total += value
    else:  # which saves what only the value needs
        for k in range(count):
            _, slope, curvature = entry(z[k], values[k], parameters)
            slopes[k], z[k] = -slope, curvature
    for k in range(count, full):
        slopes[k] = z[k] = 0.0
    for q in range(rank):
        for k in range(full):
            S[q, k] = z[k] * T[q, k]
    return total


@compiled_kernel()
def add_dense(
    lanes: tuple[int, ...], gram: Matrix, pull: Matrix, rest: float, u: Floats, A: Matrix
) -> None:
    """Add the sum over all pairs: its Hessian, its descent direction and, in the corner, twice its
    value at the row u; gram, pull and rest are F'F, F'o and o'o."""
    size = len(lanes)
    for q in range(size):
        moved = 0.0
        for p in range(size):
            moved += gram[q, p] * u[p]
            A[p, q] += DENSE * gram[p, q]
        A[q, size] -= DENSE * (moved + pull[q])
        A[size, size] += DENSE * u[q] * (moved + 2.0 * pull[q])
    A[size, size] += DENSE * rest


@compiled_kernel()
def solve_rows(
    lanes: tuple[int, ...],
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
    size = len(lanes)
    T, A = workspace(lanes)
    S = np.zeros_like(T)
    x, away, inverses, damping = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    z, row = np.empty(PIECE), np.empty(size + 2)
    for i in range(first, last):
        begin, end = starts[i], starts[i + 1]
        if begin == end and DENSE == 0.0:
            continue
        u, A[:] = current[i], 0.0
        loss = most = 0.0
        for piece in range(begin, end, PIECE):
            count = min(PIECE, end - piece)
            full = gather(lanes, others, values, features, piece, count, T)
            for k in range(full):
                z[k] = 0.0
            if offsets.size:
                for k in range(count):
                    z[k] = offsets[others[piece + k]]
            if not from_zero:
                predict(u, count, T, z)
            if UNIT:
                for k in range(count):
                    _, slope, _ = entry(z[k], T[size, k], parameters)
                    T[size, k] = -slope
                add_products(lanes, full, T, T, A)
            else:
                if CUT:
                    for k in range(count):
                        most = max(most, lengths[others[piece + k]])
                loss += weigh(lanes, count, full, T, z, S, with_value or QUADRATIC, parameters)
                add_products(lanes, full, S, T, A)
        if QUADRATIC and not UNIT:
            A[size, size] = 2.0 * loss
        if DENSE != 0.0:
            add_dense(lanes, gram, pull, rest, u, A)
        add_penalty(lanes, weights[i], u, A, damping)
        square = A[size, size]
        eliminate(lanes, A, inverses, row)
        product, step = substitute(lanes, A, inverses, size, x), 1.0
        if QUADRATIC:
            row_values[i] = 0.5 * shortest_change(
                lanes, A, inverses, damping, u, square, product, x, away
            )
        else:
            row_values[i] = loss
        if CUT:
            length = 0.0
            for q in range(size):
                length += x[q] * x[q]
            if length * most > FULL_STEP * FULL_STEP:
                reach = furthest_move(lanes, x, others, features, begin, end)
                if reach > FULL_STEP:
                    step = math.log(1.0 + reach) / reach
        for q in range(size):
            solutions[i, q] = u[q] + step * x[q]


@compiled_kernel()
def sum_rows(
    lanes: tuple[int, ...],
    from_zero: bool,
    starts: NDArray[np.int64],
    others: NDArray[np.int32],
    values: Floats,
    features: Floats,
    offsets: Floats,
    current: Floats,
    base: int,
    first: int,
    last: int,
    parameters: tuple[float, ...],
    lines: Floats,
    losses: Matrix,
) -> None:
    """The sums of `solve_rows` alone, for the rows first to last - 1: one line for each, from row
    ``base`` on, and the losses."""
    size = len(lanes)
    T, A = workspace(lanes)
    S, z = np.zeros_like(T), np.empty(PIECE)
    for i in range(first, last):
        A[:] = 0.0
        loss = 0.0
        for piece in range(starts[i], starts[i + 1], PIECE):
            count = min(PIECE, starts[i + 1] - piece)
            full = gather(lanes, others, values, features, piece, count, T)
            for k in range(full):
                z[k] = 0.0
            if offsets.size:
                for k in range(count):
                    z[k] = offsets[others[piece + k]]
            if not from_zero:
                predict(current[i], count, T, z)
            if UNIT:
                for k in range(count):
                    _, slope, _ = entry(z[k], T[size, k], parameters)
                    T[size, k] = -slope
                add_products(lanes, full, T, T, A)
            else:
                loss += weigh(lanes, count, full, T, z, S, True, parameters)
                add_products(lanes, full, S, T, A)
        losses[i - base] = 0.5 * A[size, size] if UNIT else loss
        place = 0
        for p in range(size):
            for q in range(p + 1):
                lines[i - base, place] = A[q, p]
                place += 1
        for q in range(size):
            lines[i - base, place + q] = A[q, size]
