"""Half a sweep, compiled: the least-squares solution for every row of a factor, rows in parallel.

A row's part of the other factor is gathered in pieces and transposed, so that sums over entries are
the inner loops: a compiler makes vector instructions of them for every rank.  Rows do not depend on
each other, so the result is the same, to the bit, for any number of threads.

This file needs numba, hence is itself imported only where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.kernels import _compiled, _pool, logistic
from momentous.lowrank.plain_sweep import DEPENDENT, HalfStep
from momentous.lowrank.ratings import Compressed, Floats

Matrix = NDArray[np.float64]

PIECE = 128  # entries gathered at a time: up to rank 30 or so they fit the fastest cache
GAP = 8  # more numbers in a row of them, or all rows would fall into the same few lines of it
RANGES = 4  # of rows for each thread, so that none waits long for the others


@_compiled()
def _gather(
    others: NDArray[np.int32], values: Floats, fixed: Floats, begin: int, count: int, T: Matrix
) -> int:
    """Factors of the entries from begin on, by column; below them their ratings; then zeros up to a
    whole number of vectors, which is returned."""
    rank = fixed.shape[1]
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


@_compiled("contract", "reassoc")
def _majorise(u: Floats, count: int, T: Matrix, z: Matrix, losses: Matrix) -> float:
    """Replace labels by targets, z + 4 y sigmoid(-y z); return the sum of the losses."""
    rank = u.size
    predictions, slopes, labels = z[0], z[1], T[rank]
    for k in range(count):
        predictions[k] = 0.0
    for q in range(rank):
        for k in range(count):
            predictions[k] += u[q] * T[q, k]
    for k in range(count):
        slopes[k] = predictions[k]
    logistic(slopes, labels, count, 1.0, losses)
    total = 0.0
    for k in range(count):
        labels[k] = predictions[k] - 4.0 * slopes[k]
        total += losses[k]
    return total


@_compiled("contract", "reassoc")
def _add_products(lanes: tuple[int, ...], full: int, T: Matrix, A: Matrix) -> None:
    """A += T T', the lower triangle in tiles of 2 x 2: each number that is read is used twice."""
    for a in range(0, len(lanes) + 1, 2):
        for c in range(0, a + 1, 2):
            ac = ad = bc = bd = 0.0
            for k in range(full):
                ac += T[a, k] * T[c, k]
                ad += T[a, k] * T[c + 1, k]
                bc += T[a + 1, k] * T[c, k]
                bd += T[a + 1, k] * T[c + 1, k]
            A[a, c] += ac
            A[a, c + 1] += ad
            A[a + 1, c] += bc
            A[a + 1, c + 1] += bd


@_compiled("contract", "reassoc")
def _inner_products(size: int, rank: int, T: Matrix, ridge: float, A: Matrix) -> float:
    """A = T'T + ridge of ``size`` entries, below it their targets; returns the squares of these."""
    square = 0.0
    for a in range(size):
        for c in range(a + 1):
            total = 0.0
            for q in range(rank):
                total += T[q, a] * T[q, c]
            A[a, c] = total
        A[a, a] += ridge
        A[size, a] = T[rank, a]
        square += T[rank, a] * T[rank, a]
    return square


@_compiled("contract", "reassoc")
def _factorise(size: int, A: Matrix) -> int:
    """Cholesky's A = L L' in place, and L^-1 applied to the right-hand side, row ``size`` of A.

    Returns how many columns depend on those before them; their pivots, and their part of the
    solution, are zero.
    """
    dependent = 0
    for a in range(size + 1):
        for c in range(min(a, size)):
            rest = A[a, c]
            for q in range(c):
                rest -= A[a, q] * A[c, q]
            A[a, c] = rest / A[c, c] if A[c, c] > 0.0 else 0.0
        if a < size:
            rest = A[a, a]
            for q in range(a):
                rest -= A[a, q] * A[a, q]
            if rest > DEPENDENT * A[a, a]:
                A[a, a] = math.sqrt(rest)
            else:
                A[a, a] = 0.0
                dependent += 1
    return dependent


@_compiled("contract", "reassoc")
def _substitute(size: int, A: Matrix, x: Matrix) -> float:
    """The solution x; returns b.x = |L^-1 b|^2."""
    square = 0.0
    for a in range(size - 1, -1, -1):
        rest = A[size, a]
        square += rest * rest
        for q in range(a + 1, size):
            rest -= A[q, a] * x[q]
        x[a] = rest / A[a, a] if A[a, a] > 0.0 else 0.0
    return square


@_compiled()
def _rows(
    lanes: tuple[int, ...],
    majorised: bool,
    starts: NDArray[np.int64],
    others: NDArray[np.int32],
    values: Floats,
    fixed: Floats,
    current: Floats,
    ridge: float,
    first: int,
    last: int,
    factor: Floats,
    explained: Matrix,
    losses: Matrix,
) -> None:
    """Solve for the rows first to last - 1."""
    rank = len(lanes)
    T = np.zeros((rank + 2, PIECE + GAP))
    A = np.empty((rank + 2, rank + 2))
    x, z, each = np.empty(rank), np.empty((2, PIECE)), np.empty(PIECE)
    for i in range(first, last):
        begin, end = starts[i], starts[i + 1]
        short = end - begin < rank and end - begin <= PIECE
        loss = 0.0
        A[:] = 0.0
        for piece in range(begin, end, PIECE):
            count = min(PIECE, end - piece)
            full = _gather(others, values, fixed, piece, count, T)
            if majorised:
                loss += _majorise(current[i], count, T, z, each)
            if not short:
                _add_products(lanes, full, T, A)
        losses[i] = loss
        if short:
            # Fewer entries than unknowns: the shortest solution is a combination of their factors.
            count = end - begin
            square = _inner_products(count, rank, T, ridge, A)
            if _factorise(count, A) == 0:
                explained[i] = square - ridge * _substitute(count, A, x)
                for q in range(rank):
                    total = 0.0
                    for k in range(count):
                        total += T[q, k] * x[k]
                    factor[i, q] = total
                continue
            A[:] = 0.0
            _add_products(lanes, (count + 7) // 8 * 8, T, A)
        for q in range(rank):
            A[q, q] += ridge
        _factorise(rank, A)
        explained[i] = _substitute(rank, A, x)
        for q in range(rank):
            factor[i, q] = x[q]


def share_rows(
    work: Callable[[int, int], None], starts: NDArray[np.int64], rank: int, threads: int
) -> None:
    """Call ``work(first, last)`` for ranges of rows that take about equally long."""
    if threads == 1:
        return work(0, starts.size - 1)
    # To solve a system takes about as long as to take in `rank` entries.
    cost = starts + rank * np.arange(starts.size)
    cuts = np.searchsorted(cost, np.linspace(0, cost[-1], RANGES * threads + 1)).tolist()
    list(_pool(threads).map(work, cuts[:-1], cuts[1:]))
    return None


def _read_only(array: Floats) -> Floats:
    """A view that cannot be written to: to numba that is a type of its own, and one is enough."""
    view = array.view()
    view.flags.writeable = False
    return view


def compiled_half_step(
    side: Compressed, fixed: Floats, current: Floats | None, ridge: float, threads: int
) -> HalfStep:
    """See `plain_half_step`; ``threads`` is how many share the rows."""
    rows, rank = side.starts.size - 1, fixed.shape[1]
    factor = np.empty((rows, rank), fixed.dtype)
    explained, losses = np.empty(rows), np.empty(rows)
    majorised = current is not None
    fixed, before = _read_only(fixed), _read_only(factor if current is None else current)

    def work(first: int, last: int) -> None:
        _rows(
            (0,) * rank, majorised, side.starts, side.others, side.values, fixed, before, ridge,
            first, last, factor, explained, losses,
        )  # fmt: skip

    share_rows(work, side.starts, rank, threads)
    return HalfStep(factor, float(explained.sum()), float(losses.sum()))
