"""The pieces of half a sweep for one row that no loss takes part in: sums, systems, solutions.

A row's part of the other factor is gathered in pieces, in strips of 8 columns (see `tiles`); the
last strip is filled up with zeros, and the system with 1 on the diagonal, so that nothing depends
on whether 8 divides the rank.

This file needs numba, so is itself imported only where it is used.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from momentous.io.types import AnyArray
from momentous.lowrank.backends.base import DAMPING, LEAST
from momentous.lowrank.backends.blocks import Matrix
from momentous.lowrank.backends.numba.compiler import compiled_kernel, thread_pool
from momentous.lowrank.backends.numba.elimination import substitute
from momentous.lowrank.backends.numba.tiles import SIDE, add_products, gather_lines
from momentous.lowrank.data.ratings import Floats

# Numbers gathered at a time: these and a few tiles fit the fastest cache.  32 to 256 entries; in
# single precision no more than 64, because sums of that many products are in single precision, too.
GATHERED = 4096
FEWEST, MOST, MOST_IN_SINGLE = 32, 256, 64
# Sums of products are in single precision, for factors in single precision, where all weights are
# above this share of the trace: their error, at most 1e-6 of it, is then small beside the penalty.
PENALTY_SHARE = 1e-4
LEAST_PENALTY = 1e-20  # products of factors that matter beside it do not underflow
RANGES = 4  # of rows for each thread, so that none waits long for the others


def system_in_strips(matrix: Matrix) -> Matrix:
    """A symmetric matrix, filled up with zeros, in the order of a row's system."""
    more = -len(matrix) % SIDE
    full = np.pad(matrix, (0, more))
    return np.ascontiguousarray(full.reshape(len(full), -1, SIDE).transpose(1, 0, 2))


@compiled_kernel()
def whole_strips(size: int) -> int:
    """The least multiple of 8 that is no less."""
    return (size + SIDE - 1) // SIDE * SIDE


@compiled_kernel()
def piece_of(width: int, itemsize: int) -> int:
    """Entries that are gathered at a time."""
    return min(max(GATHERED // width, FEWEST), MOST if itemsize == 8 else MOST_IN_SINGLE)


@compiled_kernel()
def well_determined(size: int, weights: Floats, A: Matrix) -> bool:
    """Is the penalty so large that errors of single precision in the sums A do not matter?

    Not so where anything overflowed: then the trace is not finite."""
    trace, least = 0.0, np.inf
    for q in range(size):
        trace += A[q // SIDE, q, q % SIDE]
        least = min(least, np.float64(weights[q]))
    return least > PENALTY_SHARE * trace + LEAST_PENALTY


@compiled_kernel()
def add_penalty(
    size: int, weights: Floats, u: Matrix, A: Matrix, side: Matrix, damping: Matrix
) -> tuple[float, bool]:
    """Add that of the row u to the system and its right-hand side; where it is too small, the
    damping.  Returns the penalty at u, twice, and whether there is any damping."""
    trace = value = 0.0
    for q in range(size):
        trace += A[q // SIDE, q, q % SIDE]
    least, damped = max(DAMPING * trace, LEAST), False
    for q in range(size):
        damping[q] = max(least - weights[q], 0.0)
        damped |= damping[q] > 0.0
        A[q // SIDE, q, q % SIDE] += weights[q] + damping[q]
        side[q] -= weights[q] * u[q]
        value += weights[q] * u[q] * u[q]
    for q in range(size, damping.size):
        A[q // SIDE, q, q % SIDE] = 1.0
    return value, damped


@compiled_kernel("contract", "reassoc")
def solve(A: Matrix, inverses: Matrix, side: Matrix, shares: Matrix, x: Matrix) -> float:
    """The solution x for a right-hand side, after elimination; returns side.x, and leaves in
    ``side`` what elimination makes of it."""
    product = 0.0
    substitute(A, inverses, side, shares, x)
    for q in range(side.size):
        product += side[q] * side[q] * inverses[q]
    return product


@compiled_kernel()
def shortest_change(
    A: Matrix,
    inverses: Matrix,
    damping: Matrix,
    u: Matrix,
    side: Matrix,
    square: float,
    product: float,
    x: Matrix,
    pull: Matrix,
    away: Matrix,
    shares: Matrix,
) -> float:
    """Make of x, the shortest change of u, the change to the shortest row, unless that would raise
    the square; returns what the square is then."""
    after = square - product
    for q in range(x.size):
        pull[q] = damping[q] * u[q]
    substitute(A, inverses, pull, shares, away)
    shortest = after
    for q in range(x.size):
        shortest += side[q] * pull[q] * inverses[q]  # (the first right-hand side) . away
        after -= damping[q] * x[q] * x[q]
        shortest -= damping[q] * (u[q] + x[q] - away[q]) * (x[q] - away[q])
    if shortest > square:
        return after
    for q in range(x.size):
        x[q] -= away[q]
    return shortest


@compiled_kernel("contract", "reassoc")
def furthest_move(
    x: Matrix, others: NDArray[np.int32], fixed: Floats, begin: int, end: int
) -> float:
    """The largest |x . v_j| of the entries from begin to end - 1."""
    most = 0.0
    for k in range(begin, end):
        j, product = others[k], 0.0
        for q in range(fixed.shape[1]):
            product += x[q] * fixed[j, q]
        most = max(most, abs(product))
    return most


@compiled_kernel()
def scale_lines(count: int, factors: Matrix, T: Floats, S: Floats) -> None:
    """``S[:, k] = factors[k] T[:, k]`` for the first ``count`` rows of all strips."""
    for s in range(T.shape[0]):
        for k in range(count):
            factor = S.dtype.type(factors[k])
            for q in range(SIDE):
                S[s, k, q] = factor * T[s, k, q]


@compiled_kernel()
def block_rows(
    starts: NDArray[np.int64],
    others: NDArray[np.int32],
    weights: Floats,
    fixed: Floats,
    weighted: bool,
    first: int,
    last: int,
    blocks: Matrix,
) -> None:
    """Fill in the lower triangles of the rows first to last - 1."""
    rank = fixed.shape[1]
    width = whole_strips(rank)
    length = piece_of(width, 8)
    T, A = np.empty((width // SIDE, length, SIDE)), np.empty((width // SIDE, width, SIDE))
    S, factors = np.empty_like(T), np.zeros(length)
    nothing, side = np.zeros(length), np.zeros(width)
    for i in range(first, last):
        begin, end = starts[i], starts[i + 1]
        A[:] = 0.0
        for piece in range(begin, end, length):
            count = min(length, end - piece)
            gather_lines(others, piece, count, fixed, T)
            if weighted:
                for k in range(count):
                    factors[k] = weights[piece + k]
                scale_lines(count, factors, T, S)
                add_products(rank, count, S, T, A, nothing, side)
            else:
                add_products(rank, count, T, T, A, nothing, side)
        for p in range(rank):
            for q in range(p + 1):
                blocks[p, q, i] = A[p // SIDE, q, p % SIDE]


def share_rows(
    work: Callable[[int, int], None], starts: NDArray[np.int64], rank: int, threads: int
) -> None:
    """Call ``work(first, last)`` for ranges of rows that take about equally long."""
    if threads == 1:
        return work(0, starts.size - 1)
    # To solve a system takes about as long as to take in `rank` entries.
    cost = starts + rank * np.arange(starts.size)
    cuts = np.searchsorted(cost, np.linspace(0, cost[-1], RANGES * threads + 1)).tolist()
    list(thread_pool(threads).map(work, cuts[:-1], cuts[1:]))
    return None


def read_only(array: AnyArray) -> AnyArray:
    """A view that cannot be written to: to numba that is a type of its own, and one is enough."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
