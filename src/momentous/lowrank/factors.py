"""Factors U and V of a matrix: their products, Gram matrices, balance, and where to start."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse.linalg
from numpy.typing import ArrayLike, NDArray

from momentous.distributed import Alone, Ranks
from momentous.lowrank.data.ratings import Floats, Ratings

Product = Callable[[Any], Any]
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


def svd_start(
    ratings: Ratings, rank: int, values: Floats | None = None, ranks: Ranks | None = None
) -> tuple[Floats, Floats]:
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
    ranks : Ranks, optional
        Over which the rows are spread: U has those of this rank, V is whole.
    """
    matrix = ratings.to_sparse().astype(np.float64)
    if values is not None:
        matrix.data = values.astype(np.float64)
    return truncated_svd(matrix.__matmul__, matrix.T.__matmul__, ratings.shape, rank, ranks)


def truncated_svd(
    times: Product, back: Product, shape: tuple[int, int], rank: int, ranks: Ranks | None = None
) -> tuple[Floats, Floats]:
    """The same for a matrix of that shape, given products with it and with its transpose.

    From the eigenvectors on its shorter side: ARPACK keeps some twenty vectors.
    """
    ranks = ranks or Alone()
    total, (own, n), rows = ranks.all_reduce, shape, ranks.row_counts(shape[0])
    m, first = sum(rows), sum(rows[: ranks.rank])
    if m >= n:
        V = leading_vectors(lambda x: total(back(times(x))), n, rank)
        return balanced(times(V), V, ranks)

    def product(x: Floats) -> Floats:
        whole: Floats = ranks.all_gather(times(total(back(x[first : first + own]))), rows)
        return whole

    U = leading_vectors(product, m, rank)[first : first + own]
    return balanced(U, total(back(U)), ranks)


def leading_vectors(product: Product, n: int, count: int) -> Floats:
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


def balanced(U: Floats, V: Floats, ranks: Ranks | None = None) -> tuple[Floats, Floats]:
    """The balanced factors of U V': the same product, and ``U'U = V'V`` diagonal, decreasing.

    From the thin QR decompositions of both and an SVD of the small matrix ``R_U R_V'``; the m x n
    product is never formed.  On ``ranks`` U has this rank's rows.
    """
    (m, r), (n, s) = U.shape, V.shape
    if r != s or (ranks is None and r > min(m, n)):
        raise ValueError(
            f"U and V must have equally many columns, at most as many as rows; their shapes are "
            f"{U.shape} and {V.shape}"
        )
    ranks = ranks or Alone()
    own, small = np.linalg.qr(U)
    rows = ranks.row_counts(len(small))
    stacked, r_left = np.linalg.qr(ranks.all_gather(small, rows))
    end = sum(rows[: ranks.rank + 1])
    q_right, r_right = np.linalg.qr(V)
    a, sizes, b = np.linalg.svd(r_left @ r_right.T)
    left, right = own @ stacked[end - len(small) : end] @ a, q_right @ b.T
    # The largest entry of each column on the left is made positive.
    ends = np.vstack([left, -left]).reshape(2, *left.shape).max(axis=1, initial=-np.inf)
    highest, lowest = ranks.all_reduce(ends.astype(np.float64), "max")
    scale = (np.where(highest >= lowest, 1.0, -1.0) * np.sqrt(sizes)).astype(left.dtype)
    return np.ascontiguousarray(left * scale), np.ascontiguousarray(right * scale)


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
