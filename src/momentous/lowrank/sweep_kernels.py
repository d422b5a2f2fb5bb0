"""The pieces of half a sweep for one row, compiled: its entries gathered, weighed, added up.

A row's part of the other factor is gathered in pieces and transposed, so that sums over entries are
the inner loops: a compiler makes vector instructions of them for every rank.

This file needs numba, hence is itself imported only where it is used.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.data.ratings import Floats
from momentous.lowrank.kernels import compiled_kernel, logistic, logistic_slopes, thread_pool
from momentous.lowrank.plain_sweep import FLATTEST

Matrix = NDArray[np.float64]

PIECE = 128  # entries gathered at a time: up to rank 30 or so they fit the fastest cache
GAP = 8  # more numbers in a row of them, or all rows would fall into the same few lines of it
RANGES = 4  # of rows for each thread, so that none waits long for the others


@compiled_kernel()
def room(lanes: tuple[int, ...]) -> tuple[Matrix, Matrix]:
    """For the gathered entries and for the sums of their products; rows in whole tiles."""
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
def weigh(
    lanes: tuple[int, ...], count: int, full: int, T: Matrix, z: Matrix, S: Matrix, losses: Matrix
) -> float:
    """The logistic loss at the predictions z: in S the gathered factors times its curvatures, below
    them its slopes, downwards; returns the sum of the losses, where there is room for them."""
    rank, total = len(lanes), 0.0
    slopes = S[rank]
    for k in range(count):
        slopes[k] = z[k]
    if losses.size:
        logistic(slopes, T[rank], count, -1.0, losses)
        for k in range(count):
            total += losses[k]
    else:
        logistic_slopes(slopes, T[rank], count, -1.0)
    for k in range(count, full):
        slopes[k] = 0.0
    for k in range(full):
        size = abs(slopes[k])
        curvature = size * (1.0 - size)
        z[k] = curvature if curvature > FLATTEST else FLATTEST
    for q in range(rank):
        for k in range(full):
            S[q, k] = z[k] * T[q, k]
    return total


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


def read_only(array: Floats) -> Floats:
    """A view that cannot be written to: to numba that is a type of its own, and one is enough."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
