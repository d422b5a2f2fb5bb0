"""Half a sweep, compiled: the best of every row for a fixed other side, rows in parallel.

Rows do not depend on each other, so the result is the same, to the bit, for any number of threads.

This file needs numba, hence is itself imported only where it is used.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.data.ratings import Floats
from momentous.lowrank.kernels import compiled_kernel
from momentous.lowrank.plain_sweep import DAMPING, FULL_STEP, LEAST, HalfStep
from momentous.lowrank.sweep_kernels import (
    PIECE,
    add_products,
    eliminate,
    gather,
    predict,
    read_only,
    room,
    share_rows,
    substitute,
    weigh,
)

Matrix = NDArray[np.float64]


@compiled_kernel()
def _add_penalty(
    lanes: tuple[int, ...], weights: Floats, u: Floats, A: Matrix, damping: Matrix
) -> None:
    """Add that of the row u to the system, and to the value in its corner; where it is too small,
    the damping, with the right-hand side in the last column that draws the row to 0."""
    size, trace = len(lanes), 0.0
    for q in range(size):
        trace += A[q, q]
    least = max(DAMPING * trace, LEAST)
    for q in range(size):
        damping[q] = max(least - weights[q], 0.0)
        A[q, q] += weights[q] + damping[q]
        A[q, size + 1] = damping[q] * u[q]
        A[q, size] -= weights[q] * u[q]
        A[size, size] += weights[q] * u[q] * u[q]


@compiled_kernel()
def _shortest(
    lanes: tuple[int, ...],
    A: Matrix,
    inverses: Matrix,
    damping: Matrix,
    u: Floats,
    square: float,
    product: float,
    x: Matrix,
    pull: Matrix,
) -> float:
    """Make of x, the shortest change of u, the change to the shortest row, unless that would raise
    the square; returns what the square is then."""
    size = len(lanes)
    after = square - product
    shortest = after + substitute(lanes, A, inverses, size + 1, pull)
    for q in range(size):
        after -= damping[q] * x[q] * x[q]
        shortest -= damping[q] * (u[q] + x[q] - pull[q]) * (x[q] - pull[q])
    if shortest > square:
        return after
    for q in range(size):
        x[q] -= pull[q]
    return shortest


@compiled_kernel("contract", "reassoc")
def _furthest(
    lanes: tuple[int, ...],
    x: Matrix,
    others: NDArray[np.int32],
    fixed: Floats,
    begin: int,
    end: int,
) -> float:
    """The largest |x . v_j| of the entries from begin to end - 1."""
    most = 0.0
    for k in range(begin, end):
        j, product = others[k], 0.0
        for q in range(len(lanes)):
            product += x[q] * fixed[j, q]
        most = max(most, abs(product))
    return most


@compiled_kernel()
def _rows(
    lanes: tuple[int, ...],
    anew: bool,
    curved: bool,
    telling: bool,
    starts: NDArray[np.int64],
    others: NDArray[np.int32],
    values: Floats,
    features: Floats,
    lengths: Matrix,
    offsets: Floats,
    current: Floats,
    weights: Floats,
    first: int,
    last: int,
    solutions: Floats,
    told: Matrix,
) -> None:
    """Solve for the rows first to last - 1; ``anew``: all that is in ``current`` is 0."""
    size = len(lanes)
    T, A = room(lanes)
    S = np.zeros_like(T)
    x, pull, inverses, damping = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    z, row = np.empty(PIECE), np.empty(size + 2)
    losses = np.empty(PIECE if curved and telling else 0)
    for i in range(first, last):
        begin, end = starts[i], starts[i + 1]
        if begin == end:
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
            if not anew:
                predict(u, count, T, z)
            if curved:
                for k in range(count):
                    most = max(most, lengths[others[piece + k]])
                loss += weigh(lanes, count, full, T, z, S, losses)
                add_products(lanes, full, S, T, A)
            else:
                for k in range(full):
                    T[size, k] -= z[k]
                add_products(lanes, full, T, T, A)
        _add_penalty(lanes, weights[i], u, A, damping)
        square = A[size, size]
        eliminate(lanes, A, inverses, row)
        product, step = substitute(lanes, A, inverses, size, x), 1.0
        if curved:
            length = 0.0
            for q in range(size):
                length += x[q] * x[q]
            if length * most > FULL_STEP * FULL_STEP:
                reach = _furthest(lanes, x, others, features, begin, end)
                if reach > FULL_STEP:
                    step = math.log(1.0 + reach) / reach
            told[i] = loss
        else:
            told[i] = 0.5 * _shortest(lanes, A, inverses, damping, u, square, product, x, pull)
        for q in range(size):
            solutions[i, q] = u[q] + step * x[q]


def solve_compiled(asked: HalfStep, threads: int) -> tuple[Floats, float]:
    """The same as `solve_plainly`; ``threads`` share the rows."""
    groups, weights, features, offsets, current, curved, telling = asked
    rows, size = weights.shape
    solutions, told = np.zeros((rows, size), features.dtype), np.zeros(rows)
    features = read_only(features)
    # |f_j|^2, which bounds how far a step of a given length can move a prediction.
    lengths = np.einsum("jq,jq->j", features, features, dtype=np.float64) if curved else told
    beside = read_only(np.empty(0, features.dtype) if offsets is None else offsets)
    before = read_only(np.zeros_like(solutions) if current is None else current)
    penalty = read_only(weights)

    def work(first: int, last: int) -> None:
        _rows(
            (0,) * size, current is None, curved, telling, groups.starts, groups.others,
            groups.values, features, lengths, beside, before, penalty, first, last, solutions, told,
        )  # fmt: skip

    share_rows(work, groups.starts, size, threads)
    return solutions, float(told.sum())
