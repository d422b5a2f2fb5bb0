"""The pieces of half a sweep for one row that no loss takes part in: sums, systems, solutions.

A row's part of the other factor is gathered in pieces and transposed, so that sums over entries are
the inner loops: a compiler makes vector instructions of them for every rank.

This file needs numba, so is itself imported only where it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.backends.base import DAMPING, LEAST
from momentous.lowrank.backends.blocks import Matrix
from momentous.lowrank.backends.numba.compiler import compiled_kernel, thread_pool
from momentous.lowrank.data.ratings import Floats

PIECE = 128  # entries gathered at a time: up to rank 30 or so they fit the fastest cache
GAP = 8  # more numbers in a row of them, or all rows would fall into the same few lines of it
RANGES = 4  # of rows for each thread, so that none waits long for the others


@compiled_kernel()
def workspace(lanes: tuple[int, ...]) -> tuple[Matrix, Matrix]:
    """Arrays for the gathered entries and for the sums of their products; rows in whole tiles."""
    rows = (len(lanes) + 4) // 3 * 3
    return np.zeros((rows, PIECE + GAP)), np.empty((rows, rows))


@compiled_kernel()
def gather(
    lanes: tuple[int, ...],
    others: NDArray[np.int32],
    values: Floats,
    fixed: Floats,
    begin: int,
    count: int,
    T: Matrix,
) -> int:
    """Factors of the entries from begin on, by column; below them their ratings; then zeros up to a
    whole number of vectors, which is returned."""
    rank = len(lanes)
    for k in range(count):
        j = others[begin + k]
        for q in range(rank):
            T[q, k] = fixed[j, q]
        T[rank, k] = values[begin + k]
    full = (count + 7) // 8 * 8
    for k in range(count, full):
        for q in range(rank + 1):
            T[q, k] = 0.0
    return full


@compiled_kernel("contract")
def predict(u: Floats, count: int, T: Matrix, z: Matrix) -> None:
    """Add to z what the row u says about the gathered entries."""
    for q in range(u.size):
        for k in range(count):
            z[k] += u[q] * T[q, k]


@compiled_kernel("contract", "reassoc")
def add_products(lanes: tuple[int, ...], full: int, S: Matrix, T: Matrix, A: Matrix) -> None:
    """A += T S', the upper triangle in tiles of 3 x 3: each number that is read is used thrice."""
    for a in range(0, len(lanes) + 1, 3):
        for c in range(0, a + 1, 3):
            ca = cb = cd = da = db = dd = ea = eb = ed = 0.0
            for k in range(full):
                ca += T[c, k] * S[a, k]
                cb += T[c, k] * S[a + 1, k]
                cd += T[c, k] * S[a + 2, k]
                da += T[c + 1, k] * S[a, k]
                db += T[c + 1, k] * S[a + 1, k]
                dd += T[c + 1, k] * S[a + 2, k]
                ea += T[c + 2, k] * S[a, k]
                eb += T[c + 2, k] * S[a + 1, k]
                ed += T[c + 2, k] * S[a + 2, k]
            A[c, a] += ca
            A[c, a + 1] += cb
            A[c, a + 2] += cd
            A[c + 1, a] += da
            A[c + 1, a + 1] += db
            A[c + 1, a + 2] += dd
            A[c + 2, a] += ea
            A[c + 2, a + 1] += eb
            A[c + 2, a + 2] += ed


@compiled_kernel("contract")
def eliminate(lanes: tuple[int, ...], A: Matrix, inverses: Matrix, row: Matrix) -> None:
    """Gauss's elimination in the upper triangle of A, right-hand sides in columns r and r + 1; the
    inverses of the pivots, 0 where there is nothing to divide by."""
    size = len(lanes)
    for c in range(size):
        inverses[c] = 1.0 / A[c, c] if A[c, c] > 0.0 else 0.0
        for b in range(c, size + 2):  # apart from A, so that what follows can be in vectors
            row[b] = A[c, b]
        for a in range(c + 1, size):
            share = row[a] * inverses[c]
            for b in range(a, size + 2):
                A[a, b] -= share * row[b]


@compiled_kernel("contract", "reassoc")
def substitute(
    lanes: tuple[int, ...], A: Matrix, inverses: Matrix, column: int, x: Matrix
) -> float:
    """The solution x for a right-hand side, after elimination; returns b.x, where b is the
    right-hand side in column r before it."""
    size, product = len(lanes), 0.0
    for a in range(size - 1, -1, -1):
        rest = A[a, column]
        product += A[a, size] * rest * inverses[a]
        for b in range(a + 1, size):
            rest -= A[a, b] * x[b]
        x[a] = rest * inverses[a]
    return product


@compiled_kernel()
def add_penalty(
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
def shortest_change(
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
def furthest_move(
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
def block_rows(
    lanes: tuple[int, ...],
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
    rank = len(lanes)
    T, A = workspace(lanes)
    S = np.zeros_like(T)
    for i in range(first, last):
        begin, end = starts[i], starts[i + 1]
        A[:] = 0.0
        for piece in range(begin, end, PIECE):
            full = gather(lanes, others, weights, fixed, piece, min(PIECE, end - piece), T)
            if weighted:
                for q in range(rank):
                    for k in range(full):
                        S[q, k] = T[rank, k] * T[q, k]
                add_products(lanes, full, S, T, A)
            else:
                add_products(lanes, full, T, T, A)
        for p in range(rank):
            for q in range(p + 1):
                blocks[p, q, i] = A[q, p]


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


def read_only(array: Any) -> Any:
    """A view that cannot be written to: to numba that is a type of its own, and one is enough."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
