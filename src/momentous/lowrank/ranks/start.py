"""Factors on many ranks: the truncated SVD to start with, and balanced ones to end with.

Rows of the left factor are spread over ranks, the right one is the same on all of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from momentous.distributed import Ranks
from momentous.lowrank.data.ratings import Floats

LEAST = float(np.finfo(np.float64).tiny)
CYCLES = 100  # at most
EPSILON = float(np.finfo(np.float64).eps)


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

    Lanczos' method with full orthogonalisation, which begins again with the best vectors found
    (K. Wu, H. Simon, "Thick-restart Lanczos method for large symmetric eigenvalue problems", SIAM
    J. Matrix Anal. Appl. 22, 2000).  Where ``product`` gives the same bits on all ranks, so does
    this: random vectors come from a fixed seed.
    """
    rng = np.random.default_rng(0)
    size = min(n, max(2 * count + 1, 20))
    basis, small = np.zeros((n, size)), np.zeros((size, size))
    next_one: Floats = rng.standard_normal(n)
    kept = 0
    next_one /= np.linalg.norm(next_one)
    for _ in range(CYCLES):
        rest = 0.0
        for j in range(kept, size):
            basis[:, j], known = next_one, basis[:, : j + 1]
            next_one, shares = _orthogonal(product(next_one), known)
            small[: j + 1, j] = small[j, : j + 1] = shares
            rest = float(np.linalg.norm(next_one))
            # The space so far is invariant, or what leads out of it is rounding of the product.
            if rest <= size * EPSILON * np.abs(small).max():
                rest, next_one = 0.0, _orthogonal(rng.standard_normal(n), known)[0]
            next_one /= max(float(np.linalg.norm(next_one)), LEAST)
        values, vectors = np.linalg.eigh(small)
        kept = min(size - 1, (count + size) // 2)
        found = basis @ vectors[:, -max(kept, count) :]
        sizes = np.abs(values[-count:])
        settled = rest * np.abs(vectors[-1, -count:]) <= EPSILON * sizes
        # Of a matrix of lower rank the rest of the vectors is arbitrary: their sizes are rounding.
        if np.all(settled | (sizes <= size * EPSILON * sizes.max())):
            break
        basis[:, :kept] = found[:, -kept:]
        small[:] = 0.0
        small[range(kept), range(kept)] = values[-kept:]
    return np.ascontiguousarray(found[:, : -count - 1 : -1])


def _orthogonal(vector: Floats, to: Floats) -> tuple[Floats, Floats]:
    """The part of a vector that is orthogonal to columns, and its shares in these; twice is
    enough."""
    shares = to.T @ vector
    vector = vector - to @ shares
    more = to.T @ vector
    return vector - to @ more, shares + more


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
