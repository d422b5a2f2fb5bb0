"""Block-diagonal matrices: one r x r matrix for each row of a factor, its Cholesky factor, solves.

Rows come last in these arrays, and factors are turned likewise: every operation is then one on long
vectors, and NumPy is as fast as compiled loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partialmethod

import numpy as np
from numpy.typing import DTypeLike, NDArray

from momentous.lowrank.data.ratings import Floats

Matrix = NDArray[np.float64]
BLOCK = 8192  # rows that are worked on at a time: long vectors that still fit the caches
NUMBERS = 1 << 20  # in the temporaries of a refresh


def _parts(rows: int, length: int) -> Iterator[slice[int, int]]:
    return (slice(i, min(i + length, rows)) for i in range(0, rows, length))


def factorise(A: Matrix) -> None:
    """Cholesky's A = L L' for every block, in place, in the lower triangles."""
    rank = len(A)
    for part in _parts(A.shape[2], max(1, NUMBERS // rank**2)):
        L = A[:, :, part]
        for q in range(rank):
            L[q:, q] -= np.einsum("pki,ki->pi", L[q:, :q], L[q, :q])
            np.sqrt(L[q, q], out=L[q, q])
            L[q + 1 :, q] /= L[q, q]


def _down(L: Floats, v: Floats, y: Floats) -> None:
    for p in range(len(v)):
        np.einsum("qi,qi->i", L[p, : p + 1], v[: p + 1], out=y[p])


def _up(L: Floats, v: Floats, y: Floats) -> None:
    for q in range(len(v)):
        np.einsum("pi,pi->i", L[q:, q], v[q:], out=y[q])


def _forward(L: Floats, v: Floats, y: Floats) -> None:
    for p in range(len(v)):
        np.subtract(v[p], np.einsum("qi,qi->i", L[p, :p], y[:p]), out=y[p])
        y[p] /= L[p, p]


def _backward(L: Floats, v: Floats, y: Floats) -> None:
    for q in range(len(v) - 1, -1, -1):
        np.subtract(v[q], np.einsum("pi,pi->i", L[q + 1 :, q], y[q + 1 :]), out=y[q])
        y[q] /= L[q, q]


@dataclass(frozen=True, eq=False)
class Blocks:
    """D = L L', a block for each row of a factor, and that factor."""

    L: Floats  # (r, r, rows)
    factor: Floats  # (r, rows)

    @classmethod
    def of(cls, blocks: Matrix, factor: Floats, dtype: DTypeLike) -> Blocks:
        """Of positive definite blocks, of which the lower triangles are given and overwritten."""
        factorise(blocks)
        return cls(blocks.astype(dtype, copy=False), np.ascontiguousarray(factor.T))

    def _each(self, rule: Callable[[Floats, Floats, Floats], None], v: Floats) -> Floats:
        out = np.empty_like(v)
        for part in _parts(v.shape[1], BLOCK):
            rule(self.L[:, :, part], v[:, part], out[:, part])
        return out

    down = partialmethod(_each, _down)  # L v
    up = partialmethod(_each, _up)  # L' v
    forward = partialmethod(_each, _forward)  # L^-1 v
    backward = partialmethod(_each, _backward)  # L'^-1 v

    def products(self) -> Matrix:
        """``4 sum_i D_i^-1 (x) u_i u_i'`` with indices (a, b, c, d) for u_a, D_bc, u_d."""
        rank = len(self.factor)
        p, q = np.tril_indices(rank)
        total = np.zeros((p.size, p.size))
        for part in _parts(self.factor.shape[1], max(1, NUMBERS // rank**2)):
            U = self.factor[:, part]
            total += _inverses(self.L[:, :, part])[p, q] @ (U[p] * U[q]).T
        place = np.empty((rank, rank), np.intp)
        place[p, q] = place[q, p] = np.arange(p.size)
        full: Matrix = 4.0 * total[place[:, :, None, None], place].transpose(2, 0, 1, 3)
        return full


def _inverses(L: Floats) -> Floats:
    """D^-1 of every block: its lower triangle."""
    X, D = np.zeros_like(L), np.zeros_like(L)  # X = L^-1
    for p in range(len(L)):
        X[p, p] = 1.0
        X[p, :p] = -np.einsum("ki,kqi->qi", L[p, :p], X[:p, :p])
        X[p, : p + 1] /= L[p, p]
    for p in range(len(L)):
        np.einsum("ki,kqi->qi", X[p:, p], X[p:, : p + 1], out=D[p, : p + 1])
    return D
