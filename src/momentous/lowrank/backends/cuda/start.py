"""The truncated SVD on the device, by Lanczos's bidiagonalisation."""

from __future__ import annotations

import numpy as np

from momentous.lowrank.backends.cuda import layout
from momentous.lowrank.backends.cuda.arrays import Array, cupy, sparse
from momentous.lowrank.data.ratings import Compressed, Ratings

ACCURACY = 1e-12  # of the singular values, relative to the largest
ROUND = 20  # steps between two looks at what was reached


def truncated_svd(ratings: Ratings, rank: int, values: Array) -> tuple[Array, Array] | None:
    """The balanced factors of the best approximation of that rank, as `svd_start` has them.

    Golub and Kahan's bidiagonalisation [1]_ with all vectors kept orthogonal, from the same first
    vector as on the CPU.  None where the matrix is so small, or all zeros, that it is not worth it.

    .. [1] G. Golub, W. Kahan, "Calculating the singular values and pseudo-inverse of a matrix",
       SIAM J. Numer. Anal. 2 (1965).
    """
    m, n = ratings.shape
    most = min(m, n)
    if most < 2 * rank + 2 * ROUND or not np.any(values):
        return None
    storage = ratings.by_row
    by_row = Compressed(*(cupy.asarray(one) for one in (storage.starts, storage.others, values)))
    by_col = layout.transpose(by_row, n)
    rows, cols = (
        sparse.csr_matrix(
            (one.values.astype(np.float64), one.others, one.starts.astype(np.int32)), shape=shape
        )
        for one, shape in ((by_row, (m, n)), (by_col, (n, m)))
    )
    right = [_unit(cupy.asarray(np.random.default_rng(0).standard_normal(n)))]
    left: list[Array] = []
    diagonal: list[Array] = []
    above: list[Array] = []
    while True:
        for _ in range(ROUND):
            image = rows @ right[-1]
            left.append(_new_direction(image, left, diagonal))
            image = cols @ left[-1]
            right.append(_new_direction(image, right, above))
        steps = len(left)
        # A V_k = U_k B, and A' U_k = V_k B' + b v_{k+1} e_k'.
        a, b = (np.array([float(one) for one in part]) for part in (diagonal, above))
        B = np.diag(a) + np.diag(b[:-1], 1)
        P, sizes, Q = np.linalg.svd(B)
        residual = abs(b[-1]) * np.abs(P[-1, :rank])
        if np.all(residual <= ACCURACY * sizes[0]) or steps + ROUND > most:
            break
    U = cupy.stack(left, axis=1) @ cupy.asarray(P[:, :rank])
    V = cupy.stack(right[:steps], axis=1) @ cupy.asarray(Q[:rank].T)
    largest = cupy.argmax(cupy.abs(U), axis=0)
    signs = cupy.where(U[largest, cupy.arange(rank)] < 0.0, -1.0, 1.0)
    scale = signs * cupy.asarray(np.sqrt(sizes[:rank]))
    return U * scale, V * scale


def _new_direction(image: Array, basis: list[Array], sizes: list[Array]) -> Array:
    """The image's part beyond the basis, of length 1; its length goes to the sizes."""
    if basis:
        stack = cupy.stack(basis)
        for _ in range(2):  # twice is enough (Kahan)
            image = image - (stack @ image) @ stack
    sizes.append(cupy.linalg.norm(image))
    return image / sizes[-1]


def _unit(vector: Array) -> Array:
    return vector / cupy.linalg.norm(vector)
