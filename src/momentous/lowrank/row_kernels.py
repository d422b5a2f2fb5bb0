"""The ridge regressions of all rows, compiled: rows in parallel, each with a penalty of its own.

This file needs numba, hence is itself imported only where it is used.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.kernels import _compiled, _pool
from momentous.lowrank.ratings import Compressed, Floats
from momentous.lowrank.row_solves import DAMPING
from momentous.lowrank.sweep_kernels import (
    GAP,
    PIECE,
    RANGES,
    _add_products,
    _factorise,
    _gather,
    _substitute,
)


@_compiled()
def _rows(
    lanes: tuple[int, ...],
    starts: NDArray[np.int64],
    others: NDArray[np.int32],
    targets: Floats,
    features: Floats,
    weights: Floats,
    first: int,
    last: int,
    solutions: Floats,
    explained: NDArray[np.float64],
) -> None:
    """Solve for the rows first to last - 1."""
    width = len(lanes)
    T = np.zeros((width + 2, PIECE + GAP))
    A = np.empty((width + 2, width + 2))
    x = np.empty(width)
    for i in range(first, last):
        begin, end = starts[i], starts[i + 1]
        if begin == end:
            continue
        A[:] = 0.0
        for piece in range(begin, end, PIECE):
            full = _gather(others, targets, features, piece, min(PIECE, end - piece), T)
            _add_products(lanes, full, T, A)
        damping = 0.0
        for q in range(width):
            damping += DAMPING * A[q, q]
        for q in range(width):
            A[q, q] += weights[i, q] if weights[i, q] > 0.0 else damping
        _factorise(width, A)
        explained[i] = _substitute(width, A, x)
        for q in range(width):
            solutions[i, q] = x[q]


def solve_compiled(
    groups: Compressed,
    features: Floats,
    weights: Floats,
    solutions: Floats,
    explained: NDArray[np.float64],
    threads: int,
) -> None:
    """See `solve_plainly`; ``threads`` share the rows."""
    rows, width = solutions.shape
    # To solve a system takes about as long as to take in `width` entries.
    cost = groups.starts + width * np.arange(rows + 1)
    pieces = RANGES * threads if threads > 1 else 1
    shares = np.linspace(0, cost[-1], pieces + 1)[1:-1]
    cuts = [0, *(int(cut) for cut in np.searchsorted(cost, shares)), rows]

    def work(share: tuple[int, int]) -> None:
        _rows(
            (0,) * width, groups.starts, groups.others, groups.values, features, weights,
            *share, solutions, explained,
        )  # fmt: skip

    list(map(work, pairwise(cuts)) if threads == 1 else _pool(threads).map(work, pairwise(cuts)))
