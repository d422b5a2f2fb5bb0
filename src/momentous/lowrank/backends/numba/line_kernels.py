"""Systems of rows that ranks have added up, solved as `solve_rows` solves those of its own sums.

This file needs numba, so is itself imported only where it is used.
"""

from __future__ import annotations

import numpy as np

from momentous.lowrank.backends.blocks import Matrix
from momentous.lowrank.backends.numba.compiler import compiled_kernel
from momentous.lowrank.backends.numba.elimination import eliminate
from momentous.lowrank.backends.numba.row_kernels import (
    add_penalty,
    shortest_change,
    solve,
    whole_strips,
)
from momentous.lowrank.backends.numba.tiles import SIDE


@compiled_kernel()
def solve_lines(
    quadratic: bool,
    lines: Matrix,
    weights: Matrix,
    before: Matrix,
    first: int,
    last: int,
    changes: Matrix,
    row_values: Matrix,
) -> None:
    """The changes of the rows first to last - 1, from lines as in `lowrank.backends.sums`;
    for a quadratic loss also what the least sum is, less the loss before."""
    size = weights.shape[1]
    width = whole_strips(size)
    strips = width // SIDE
    A, scaled = np.empty((strips, width, SIDE)), np.empty((strips, width, SIDE))
    inverses, shares = np.empty(width), np.empty(max(width, SIDE * SIDE))
    u, side, x = np.zeros(width), np.zeros(width), np.zeros(width)
    damping, other, away = np.zeros(width), np.zeros(width), np.zeros(width)
    for i in range(first, last):
        A[:], side[:], place = 0.0, 0.0, 0
        for p in range(size):
            for q in range(p + 1):
                A[p // SIDE, q, p % SIDE] = A[q // SIDE, p, q % SIDE] = lines[i, place]
                place += 1
        for q in range(size):
            side[q], u[q] = lines[i, place + q], before[i, q]
        penalty, damped = add_penalty(size, weights[i], u, A, side, damping)
        eliminate(A, scaled, inverses, shares)
        product = solve(A, inverses, side, shares, x)
        if quadratic:
            row_values[i] = 0.5 * (penalty - product)
            if damped:
                row_values[i] = 0.5 * shortest_change(
                    A, inverses, damping, u, side, penalty, product, x, other, away, shares
                )
        for q in range(size):
            changes[i, q] = x[q]
