"""Sums of v_j v_j' over the entries of every row, compiled: rows in parallel.

This file needs numba, hence is itself imported only where it is used.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.data.ratings import Compressed, Floats
from momentous.lowrank.kernels import compiled_kernel
from momentous.lowrank.sweep_kernels import (
    PIECE,
    add_products,
    gather,
    read_only,
    room,
    share_rows,
)

Matrix = NDArray[np.float64]


@compiled_kernel()
def _rows(
    lanes: tuple[int, ...],
    starts: NDArray[np.int64],
    others: NDArray[np.int32],
    values: Floats,
    fixed: Floats,
    first: int,
    last: int,
    blocks: Matrix,
) -> None:
    """Fill in the lower triangles of the rows first to last - 1."""
    rank = len(lanes)
    T, A = room(lanes)
    for i in range(first, last):
        begin, end = starts[i], starts[i + 1]
        A[:] = 0.0
        for piece in range(begin, end, PIECE):
            full = gather(lanes, others, values, fixed, piece, min(PIECE, end - piece), T)
            add_products(lanes, full, T, T, A)
        for p in range(rank):
            for q in range(p + 1):
                blocks[p, q, i] = A[q, p]


def compiled_blocks(side: Compressed, fixed: Floats, threads: int) -> Matrix:
    """See `plain_blocks` in `momentous.lowrank.blocks`; ``threads`` share the rows."""
    rows, rank = side.starts.size - 1, fixed.shape[1]
    blocks = np.zeros((rank, rank, rows))
    fixed = read_only(fixed)

    def work(first: int, last: int) -> None:
        _rows(
            (0,) * rank, side.starts, side.others, side.values, fixed, first, last, blocks
        )  # fmt: skip

    share_rows(work, side.starts, rank, threads)
    return blocks
