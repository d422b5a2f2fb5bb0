"""Systems of rows: sums over entries, Cholesky, solutions.

A row's part of the other factor is gathered in pieces, a column per entry.  Products of features
are then dot products of long rows, sixteen at a time, which the compiler vectorises and keeps in
registers.  Arrays are filled up with zeros to a multiple of 4.

Rows do not depend on each other, so the result is the same, to the bit, for any number of threads.
This file needs numba, so is itself imported only where it is used.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from momentous.io.types import Matrix
from momentous.lowrank.backends.numba.compiler import compiled_kernel
from momentous.lowrank.backends.numba.passes import REGISTER_BYTES
from momentous.lowrank.backends.sums import DAMPING, LEAST
from momentous.lowrank.data.ratings import Floats

SIDE = 4  # rows and columns of a tile
# Entries gathered at a time.  In single precision sums of that many products are in single
# precision, too: at least 4 at once, so of no more than 32 one after the other.
PIECE = 128
COLUMNS = PIECE + 8  # of the arrays for them: with 128 all rows would share a few places of a cache
# Sums of products are in single precision, for factors in single precision, where all weights are
# above this share of the trace: their error, at most 1e-6 of it, is then small beside the penalty.
PENALTY_SHARE = 1e-4
LEAST_PENALTY = 1e-20  # products of factors that matter beside it do not underflow


@compiled_kernel()
def whole_tiles(size: int) -> int:
    """The least multiple of 4 that is no less."""
    return (size + SIDE - 1) // SIDE * SIDE


@compiled_kernel()
def gather(others: NDArray[np.int32], begin: int, count: int, features: Floats, T: Floats) -> int:
    """``T[q, k]`` is the feature q of the entry begin + k.  Returns the number of columns:
    they are filled up with zeros, so that loops take whole registers."""
    register = REGISTER_BYTES // T.itemsize
    whole = (count + register - 1) // register * register
    for q in range(features.shape[1]):
        for k in range(count, whole):
            T[q, k] = 0.0
    for k in range(count):
        j = np.uint32(others[begin + k])  # unsigned: no look at its sign
        for q in range(features.shape[1]):
            T[q, k] = features[j, q]
    return whole


@compiled_kernel("contract", "reassoc")
def add_sums(count: int, S: Floats, T: Floats, A: Matrix) -> None:
    """``A += S T'`` of the first ``count`` columns, in the lower triangle.

    Sixteen sums at a time: each number that is read is used four times."""
    zero = T.dtype.type(0.0)
    for p in range(0, A.shape[0], SIDE):
        for q in range(0, p + 1, SIDE):
            a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = zero
            for k in range(count):
                a, b, c, d = S[p, k], S[p + 1, k], S[p + 2, k], S[p + 3, k]
                t0, t1, t2, t3 = T[q, k], T[q + 1, k], T[q + 2, k], T[q + 3, k]
                a0, a1, a2, a3 = a0 + a * t0, a1 + a * t1, a2 + a * t2, a3 + a * t3
                b0, b1, b2, b3 = b0 + b * t0, b1 + b * t1, b2 + b * t2, b3 + b * t3
                c0, c1, c2, c3 = c0 + c * t0, c1 + c * t1, c2 + c * t2, c3 + c * t3
                d0, d1, d2, d3 = d0 + d * t0, d1 + d * t1, d2 + d * t2, d3 + d * t3
            A[p, q] += a0
            A[p, q + 1] += a1
            A[p, q + 2] += a2
            A[p, q + 3] += a3
            A[p + 1, q] += b0
            A[p + 1, q + 1] += b1
            A[p + 1, q + 2] += b2
            A[p + 1, q + 3] += b3
            A[p + 2, q] += c0
            A[p + 2, q + 1] += c1
            A[p + 2, q + 2] += c2
            A[p + 2, q + 3] += c3
            A[p + 3, q] += d0
            A[p + 3, q + 1] += d1
            A[p + 3, q + 2] += d2
            A[p + 3, q + 3] += d3


@compiled_kernel("contract", "reassoc")
def add_side(count: int, slopes: Matrix, T: Floats, side: Matrix) -> None:
    """``side[q] += sum_k slopes[k] T[q, k]``, in double precision."""
    for q in range(T.shape[0]):
        total = 0.0
        for k in range(count):
            total += slopes[k] * T[q, k]
        side[q] += total


@compiled_kernel("contract")
def scale_columns(count: int, factors: Matrix, T: Floats, S: Floats) -> None:
    """``S[:, k] = factors[k] T[:, k]`` for the first ``count`` columns."""
    for q in range(T.shape[0]):
        for k in range(count):
            S[q, k] = factors[k] * T[q, k]


# --- one system -----------------------------------------------------------------------------------


@compiled_kernel()
def well_determined(size: int, weights: Floats, A: Matrix) -> bool:
    """Is the penalty so large that errors of single precision in the sums A do not matter?

    Not so where anything overflowed: then the trace is not finite."""
    trace, least = 0.0, np.inf
    for q in range(size):
        trace += A[q, q]
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
        trace += A[q, q]
    least, damped = max(DAMPING * trace, LEAST), False
    for q in range(size):
        damping[q] = max(least - weights[q], 0.0)
        damped |= damping[q] > 0.0
        A[q, q] += weights[q] + damping[q]
        side[q] -= weights[q] * u[q]
        value += weights[q] * u[q] * u[q]
    return value, damped


@compiled_kernel("contract", "reassoc")
def factorise(size: int, A: Matrix, inverses: Matrix) -> None:
    """Cholesky's ``A = L L'`` in the lower triangle of A; the diagonal of L, inverted, is in
    ``inverses``, 0 where there is nothing to divide by."""
    for p in range(size):
        for q in range(p + 1):
            rest = A[p, q]
            for k in range(q):
                rest -= A[p, k] * A[q, k]
            if q < p:
                A[p, q] = rest * inverses[q]
            else:
                inverses[p] = 1.0 / math.sqrt(rest) if rest > 0.0 else 0.0


@compiled_kernel("contract", "reassoc")
def solve(size: int, A: Matrix, inverses: Matrix, side: Matrix, x: Matrix) -> float:
    """The solution x for a right-hand side b, after `factorise`; returns b.x, and leaves in
    ``side`` y with L y = b."""
    product = 0.0
    for p in range(size):
        rest = side[p]
        for k in range(p):
            rest -= A[p, k] * side[k]
        side[p] = rest * inverses[p]
        product += side[p] * side[p]
        x[p] = side[p]
    for p in range(size - 1, -1, -1):
        x[p] *= inverses[p]
        for k in range(p):
            x[k] -= A[p, k] * x[p]
    return product


@compiled_kernel()
def shortest_change(
    size: int,
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
) -> float:
    """Make of x, the shortest change of u, the change to the shortest row, unless that would raise
    the square; returns what the square is then."""
    after = square - product
    for q in range(size):
        pull[q] = damping[q] * u[q]
    solve(size, A, inverses, pull, away)
    shortest = after
    for q in range(size):
        shortest += side[q] * pull[q]  # (the first right-hand side) . away
        after -= damping[q] * x[q] * x[q]
        shortest -= damping[q] * (u[q] + x[q] - away[q]) * (x[q] - away[q])
    if shortest > square:
        return after
    for q in range(size):
        x[q] -= away[q]
    return shortest


@compiled_kernel()
def solve_system(
    size: int, quadratic: bool, weights: Floats, u: Matrix, loss: float, A: Matrix, side: Matrix,
    x: Matrix, rooms: Matrix,
) -> float:  # fmt: skip
    """The change x of the row u, given its sums; returns for a quadratic loss the least sum with
    the penalty, for others the loss before.  ``rooms`` are four vectors for its own use."""
    inverses, damping, pull, away = rooms
    penalty, damped = add_penalty(size, weights, u, A, side, damping)
    square = 2.0 * loss + penalty
    factorise(size, A, inverses)
    product = solve(size, A, inverses, side, x)
    if not quadratic:
        return loss
    if not damped:
        return 0.5 * (square - product)
    return 0.5 * shortest_change(
        size, A, inverses, damping, u, side, square, product, x, pull, away
    )
