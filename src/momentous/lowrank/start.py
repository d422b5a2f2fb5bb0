"""Balanced factors: of a product U V', and of the observed matrix as the place to start from."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse.linalg

from momentous.lowrank.ratings import Floats, Ratings


def svd_start(ratings: Ratings, rank: int) -> tuple[Floats, Floats]:
    """Balanced factors of the best approximation of rank r to the matrix with zeros for gaps.

    With A S B' the truncated SVD, ``U = A sqrt(S)`` and ``V = B sqrt(S)``, so ``U'U = V'V``. The
    largest entry of each column of A is made positive, so that the outcome depends neither on the
    solver nor on its seed where the singular values are distinct.

    Parameters
    ----------
    ratings : Ratings
    rank : int
        At most ``min(ratings.shape)``.

    Returns
    -------
    U, V : ndarray
        float64, of shapes (m, r) and (n, r).

    References
    ----------
    .. [1] Li & Lin, Restarted nonconvex accelerated gradient descent, JMLR 24 (2023), section 4.
    """
    matrix = ratings.to_sparse().astype(np.float64)
    m, n = ratings.shape
    if not np.any(matrix.data):  # which the sparse solver refuses
        return np.zeros((m, rank)), np.zeros((n, rank))
    if rank < min(m, n):
        # A fixed first vector in place of a random one.
        first = np.random.default_rng(0).standard_normal(min(m, n))
        left, sizes, right = scipy.sparse.linalg.svds(matrix, k=rank, v0=first)
    else:  # all of them: beyond what the sparse solver can do
        left, sizes, right = np.linalg.svd(matrix.toarray(), full_matrices=False)
    return _balanced_factors(left, sizes, right)


def balanced(U: Floats, V: Floats) -> tuple[Floats, Floats]:
    """The balanced factors of U V': the same product, and ``U'U = V'V`` diagonal, decreasing.

    From the thin QR decompositions of both and an SVD of the small matrix ``R_U R_V'``; the m x n
    product is never formed.
    """
    (m, r), (n, s) = U.shape, V.shape
    if r != s or r > min(m, n):
        raise ValueError(
            f"U and V must have equally many columns, at most as many as rows; their shapes are "
            f"{U.shape} and {V.shape}"
        )
    (q_left, r_left), (q_right, r_right) = np.linalg.qr(U), np.linalg.qr(V)
    left, sizes, right = np.linalg.svd(r_left @ r_right.T)
    return _balanced_factors(q_left @ left, sizes, right @ q_right.T)


def _balanced_factors(left: Any, sizes: Any, right: Any) -> tuple[Floats, Floats]:
    """Split left diag(sizes) right evenly, largest first, with fixed signs."""
    order = np.argsort(-sizes, kind="stable")
    left, right, roots = left[:, order], right[order].T, np.sqrt(np.maximum(sizes[order], 0.0))
    largest = np.argmax(np.abs(left), axis=0)
    signs = np.where(left[largest, np.arange(left.shape[1])] < 0.0, -1.0, 1.0)
    scale = (signs * roots).astype(left.dtype)
    return np.ascontiguousarray(left * scale), np.ascontiguousarray(right * scale)
