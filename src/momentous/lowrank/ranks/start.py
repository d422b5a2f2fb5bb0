"""Factors on many ranks: the truncated SVD to start with, and balanced ones to end with.

Rows of the left factor are spread over ranks, the right one is the same on all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from momentous.distributed import Ranks
from momentous.lowrank.data.ratings import Floats

MORE = 10  # columns of the block beyond the rank
ITERATIONS = 60
ENOUGH = 1e-9  # the relative change of the sum of the singular values that ends the iterations


def svd_on_ranks(
    part: scipy.sparse.csr_array, rank: int, rows: int, ranks: Ranks
) -> tuple[Floats, Floats]:
    """Balanced factors of the truncated SVD of a matrix whose rows are spread over ranks.

    Subspace iteration with a block of ``rank + 10`` columns Y <- orth(A'A Y), which is the same on
    all ranks: one all_reduce of n (rank + 10) numbers per iteration.  Returns the rows of this rank
    on the left, all on the right; signs as in `momentous.lowrank.factors.svd_start`.
    """
    n = part.shape[1]
    width = min(rank + MORE, n, rows)
    block = np.linalg.qr(np.random.default_rng(0).standard_normal((n, width)))[0]
    before = 0.0
    for _ in range(ITERATIONS):
        image = part @ block
        both = np.vstack([part.T @ image, image.T @ image])
        turned, small = np.split(ranks.all_reduce(both), [n])
        # sum of the singular values of A on the block's subspace
        size = float(np.sqrt(np.maximum(np.linalg.eigvalsh(small), 0.0))[-rank:].sum())
        if abs(size - before) <= ENOUGH * size:
            break
        before = size
        block = np.linalg.qr(turned)[0]
    image = part @ block
    small = ranks.all_reduce(image.T @ image)
    squares, vectors = np.linalg.eigh(small)
    squares, vectors = squares[::-1][:rank], vectors[:, ::-1][:, :rank]
    sizes = np.sqrt(np.maximum(squares, 0.0))
    left = (image @ vectors) / np.where(sizes > 0.0, sizes, 1.0)
    return _split_evenly(left, sizes, block @ vectors, ranks)


def balanced_on_ranks(U: Floats, V: Floats, ranks: Ranks) -> tuple[Floats, Floats]:
    """As `momentous.lowrank.factors.balanced`, of this rank's rows of U and all of V."""
    own, small = np.linalg.qr(U)
    rows = ranks.all_reduce(_one_at(ranks, len(small)))
    stacked, r_left = np.linalg.qr(ranks.all_gather(small, [int(count) for count in rows]))
    end = int(rows[: ranks.rank + 1].sum())
    q_right, r_right = np.linalg.qr(V)
    left, sizes, right = np.linalg.svd(r_left @ r_right.T)
    own = own @ stacked[end - len(small) : end] @ left
    return _split_evenly(own, sizes, q_right @ right.T, ranks)


def _one_at(ranks: Ranks, number: int) -> NDArray[np.int64]:
    numbers = np.zeros(ranks.size, np.int64)
    numbers[ranks.rank] = number
    return numbers


def _split_evenly(left: Any, sizes: Any, right: Any, ranks: Ranks) -> tuple[Floats, Floats]:
    """The largest entry of each column on the left is made positive."""
    ends = np.vstack([left, -left]).reshape(2, *left.shape).max(axis=1, initial=-np.inf)
    highest, lowest = ranks.all_reduce(ends.astype(np.float64), "max")
    scale = np.where(highest >= lowest, 1.0, -1.0) * np.sqrt(sizes)
    return np.ascontiguousarray(left * scale), np.ascontiguousarray(right * scale)
