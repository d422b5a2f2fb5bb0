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
    _majorise,
    _substitute,
)


@_compiled()
def _rows(
    lanes: tuple[int, ...],
    majorised: bool,
    starts: NDArray[np.int64],
    others: NDArray[np.int32],
    values: Floats,
    features: Floats,
    current: Floats,
    weights: Floats,
    first: int,
    last: int,
    solutions: Floats,
    told: NDArray[np.float64],
) -> None:
    """Solve for the rows first to last - 1.

    The last column of the features is the offset of an entry, and that of ``current`` is 1.
    """
    width = len(lanes)
    T = np.zeros((width + 2, PIECE + GAP))  # features by column, offsets or targets, values
    A = np.empty((width + 2, width + 2))
    x, z, losses = np.empty(width), np.empty((2, PIECE)), np.empty(PIECE)
    for i in range(first, last):
        begin, end = starts[i], starts[i + 1]
        if begin == end:
            continue
        A[:] = 0.0
        loss = 0.0
        for piece in range(begin, end, PIECE):
            count = min(PIECE, end - piece)
            full = _gather(others, values, features, piece, count, T)
            if majorised:
                loss += _majorise(current[i], count, T, z, losses)
            for k in range(full):
                T[width, k] = T[width + 1, k] - T[width, k]
            _add_products(lanes, full, T, A)
        damping = 0.0
        for q in range(width):
            damping += DAMPING * A[q, q]
        for q in range(width):
            A[q, q] += weights[i, q] if weights[i, q] > 0.0 else damping
        squares = A[width, width]
        _factorise(width, A)
        explained = _substitute(width, A, x)
        told[i] = loss if majorised else 0.5 * (squares - explained)
        for q in range(width):
            solutions[i, q] = x[q]


def solve_compiled(
    groups: Compressed,
    features: Floats,
    offsets: Floats,
    current: Floats | None,
    weights: Floats,
    threads: int,
) -> tuple[Floats, float]:
    """See `solve_plainly`; ``threads`` share the rows."""
    rows, width = weights.shape
    solutions = np.zeros((rows, width), features.dtype)
    told = np.zeros(rows)
    features = np.column_stack([features, offsets])
    before = (
        solutions if current is None else np.column_stack([current, np.ones_like(current[:, 0])])
    )
    # To solve a system takes about as long as to take in `width` entries.
    cost = groups.starts + width * np.arange(rows + 1)
    pieces = RANGES * threads if threads > 1 else 1
    shares = np.linspace(0, cost[-1], pieces + 1)[1:-1]
    cuts = [0, *(int(cut) for cut in np.searchsorted(cost, shares)), rows]

    def work(share: tuple[int, int]) -> None:
        _rows(
            (0,) * width, current is not None, groups.starts, groups.others, groups.values,
            features, before, weights, *share, solutions, told,
        )  # fmt: skip

    list(map(work, pairwise(cuts)) if threads == 1 else _pool(threads).map(work, pairwise(cuts)))
    return solutions, float(told.sum())
