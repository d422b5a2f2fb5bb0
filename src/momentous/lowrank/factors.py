"""Factors U and V of a matrix: their products, Gram matrices, balance, and where to start."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse.linalg
from numpy.typing import ArrayLike, NDArray

from momentous.lowrank.data.ratings import Floats, Ratings

BLOCK = 1 << 16  # rows that are held in double precision at a time
PAIRS = 1 << 17  # pairs whose factors are held at a time
GRAM_BLOCK = 4096  # rows whose products are added up in the factor's own precision
# Relative to the mean of the eigenvalues of a Gram matrix: directions of a factor that a ridge has
# made smaller than this keep the scale of the others, because rounding alone would set theirs.
FAINT = 1e-10


def products(left: Floats, right: Floats, rows: ArrayLike, cols: ArrayLike) -> Floats:
    """``left[rows[k]] . right[cols[k]]`` for each k, block by block."""
    rows, cols = np.broadcast_arrays(_within(rows, left, "row"), _within(cols, right, "column"))
    out = np.empty(rows.shape, left.dtype)
    flat_rows, flat_cols, flat_out = rows.ravel(), cols.ravel(), out.reshape(-1)
    for start in range(0, flat_out.size, PAIRS):
        block = slice(start, start + PAIRS)
        flat_out[block] = np.einsum("ij,ij->i", left[flat_rows[block]], right[flat_cols[block]])
    return out


def _within(index: ArrayLike, factor: Floats, what: str) -> NDArray[np.intp]:
    array = np.asarray(index)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{what} indices must be integers, not {array.dtype}")
    bad = np.flatnonzero((array < 0) | (array >= factor.shape[0]))
    if bad.size:
        raise IndexError(
            f"the {what} index {array.flat[bad[0]]} at position {bad[0]} is not one of the "
            f"{factor.shape[0]} {what}s; indices count from 0"
        )
    return array.astype(np.intp, copy=False)


def gram(factor: Floats) -> NDArray[np.float64]:
    """``factor' factor``, with long sums in double precision: the imbalance is a difference."""
    rows, rank = factor.shape
    whole = rows - rows % GRAM_BLOCK
    blocks = factor[:whole].reshape(-1, GRAM_BLOCK, rank)
    total: NDArray[np.float64] = (blocks.transpose(0, 2, 1) @ blocks).sum(axis=0, dtype=np.float64)
    rest = factor[whole:]
    return total + rest.T @ rest


def svd_start(ratings: Ratings, rank: int, values: Floats | None = None) -> tuple[Floats, Floats]:
    """Balanced factors of the best approximation of rank r to the matrix with zeros for gaps.

    With A S B' the truncated SVD, ``U = A sqrt(S)`` and ``V = B sqrt(S)``, so ``U'U = V'V``. The
    largest entry of each column of A is made positive, so that the outcome depends neither on the
    solver nor on its seed where the singular values are distinct.  The start of Li & Lin, JMLR 24
    (2023), section 4.

    Parameters
    ----------
    ratings : Ratings
    rank : int
        At most ``min(ratings.shape)``.
    values : array, optional
        In place of those of the ratings.
    """
    matrix = ratings.to_sparse().astype(np.float64)
    if values is not None:
        matrix.data = values.astype(np.float64)
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


def least_penalty(
    U: Floats,
    V: Floats,
    row_weights: Floats,
    col_weights: Floats,
    *,
    gram: Callable[[Floats, Floats], NDArray[np.float64]] | None = None,
    asarray: Callable[[Floats], Floats] = np.asarray,
) -> tuple[Floats, Floats]:
    """Factors of the same product U V' with the least weighted ridge, turned as little as possible.

    Of all (U S, V S^-1) the sum of ``w_i |u_i|^2`` and ``w_j |v_j|^2`` is least where M = S S'
    solves ``M A M = B`` with ``A = U' W U`` and ``B = V' W V``: M is the geometric mean of A^-1 and
    B [1]_.  Of the many S this is the symmetric one, which is near I wherever (U, V) are nearly
    best already: so momentum can carry on across the change, as it could not across `balanced`.
    All weights, one per row and column, are above zero.

    For factors on a device, ``gram`` makes A and B as NumPy arrays, and ``asarray`` brings S there.

    .. [1] R. Bhatia, "Positive Definite Matrices", Princeton (2007), chapter 4.
    """
    gram = gram or weighted_gram
    A, B = gram(U, row_weights), gram(V, col_weights)
    before = float(np.trace(A) + np.trace(B))
    if not (np.trace(A) > 0.0 and np.trace(B) > 0.0 and np.isfinite(before)):
        return U, V
    unit = np.eye(len(A)) * (FAINT / len(A))
    root, inverse_root = _root_and_inverse(A + np.trace(A) * unit)
    middle, _ = _root_and_inverse(root @ (B + np.trace(B) * unit) @ root)
    S, inverse = _root_and_inverse(inverse_root @ middle @ inverse_root)
    after = float(np.sum(A * (S @ S)) + np.sum(B * (inverse @ inverse)))
    if not after < before:  # nothing left to gain, beyond rounding
        return U, V
    # Multiplied in double precision: a large and a small factor make the rounding of single larger.
    return (U @ asarray(S)).astype(U.dtype), (V @ asarray(inverse)).astype(V.dtype)


def weighted_gram(factor: Floats, weights: Floats) -> NDArray[np.float64]:
    """Sum of w_i u_i u_i', in double precision."""
    total = np.zeros((factor.shape[1],) * 2)
    for begin in range(0, len(factor), BLOCK):
        block = factor[begin : begin + BLOCK].astype(np.float64)
        total += (block * weights[begin : begin + BLOCK, None]).T @ block
    return total


def _root_and_inverse(matrix: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The symmetric square root of a positive definite matrix, and the inverse of that root."""
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    roots = np.sqrt(np.maximum(values, np.finfo(np.float64).eps * values[-1]))
    return (vectors * roots) @ vectors.T, (vectors / roots) @ vectors.T


def _balanced_factors(left: Floats, sizes: Floats, right: Floats) -> tuple[Floats, Floats]:
    """Split left diag(sizes) right evenly, largest first, with fixed signs."""
    order = np.argsort(-sizes, kind="stable")
    left, right, roots = left[:, order], right[order].T, np.sqrt(np.maximum(sizes[order], 0.0))
    largest = np.argmax(np.abs(left), axis=0)
    signs = np.where(left[largest, np.arange(left.shape[1])] < 0.0, -1.0, 1.0)
    scale = (signs * roots).astype(left.dtype)
    return np.ascontiguousarray(left * scale), np.ascontiguousarray(right * scale)
