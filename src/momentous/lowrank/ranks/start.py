"""Factors on many ranks: the truncated SVD to start with, and balanced ones to end with.

Rows of the left factor are spread over ranks, the right one is the same on all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from numpy.typing import NDArray

from momentous.distributed import Ranks
from momentous.lowrank.data.ratings import Floats


def svd_on_ranks(part: scipy.sparse.csr_array, rank: int, ranks: Ranks) -> tuple[Floats, Floats]:
    """Balanced factors of the truncated SVD of a matrix whose rows are spread over ranks.

    Returns the rows of this rank on the left, all on the right; signs as in
    `momentous.lowrank.factors.svd_start`.
    """

    def product(x: Floats) -> Floats:
        whole: Floats = ranks.all_reduce(part.T @ (part @ x))
        return whole

    V = leading_vectors(product, part.shape[1], rank)
    return balanced_on_ranks(part @ V, V, ranks)


def leading_vectors(product: Callable[[Floats], Floats], n: int, count: int) -> Floats:
    """Orthonormal eigenvectors, to rounding, of the largest eigenvalues of a symmetric matrix.

    By ARPACK from a fixed first vector.  Where ``product`` gives the same bits on all ranks, so
    does this.
    """
    first: Floats = np.random.default_rng(0).standard_normal(n)
    if not np.any(product(first)):  # which the sparse solver refuses
        return np.eye(n, count)
    if count >= n:
        vectors = np.linalg.eigh(np.column_stack([product(one) for one in np.eye(n)]))[1]
        return np.ascontiguousarray(vectors[:, : -count - 1 : -1])
    matrix = scipy.sparse.linalg.LinearOperator((n, n), product, dtype=np.float64)
    eigsh = scipy.sparse.linalg.eigsh
    # Newer SciPy draws where the space is exhausted: the same on all ranks.
    drawn = {"rng": 0} if "rng" in inspect.signature(eigsh).parameters else {}
    values, vectors = eigsh(matrix, count, v0=first, ncv=min(n, max(2 * count + 1, 20)), **drawn)
    return np.ascontiguousarray(np.linalg.qr(vectors[:, np.argsort(-values, kind="stable")])[0])


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


def _split_evenly(
    left: Floats, sizes: Floats, right: Floats, ranks: Ranks
) -> tuple[Floats, Floats]:
    """The largest entry of each column on the left is made positive."""
    ends = np.vstack([left, -left]).reshape(2, *left.shape).max(axis=1, initial=-np.inf)
    highest, lowest = ranks.all_reduce(ends.astype(np.float64), "max")
    scale = np.where(highest >= lowest, 1.0, -1.0) * np.sqrt(sizes)
    return np.ascontiguousarray(left * scale), np.ascontiguousarray(right * scale)
