"""The leading singular vectors that a start on ranks is made of."""

from __future__ import annotations

import numpy as np
import pytest

from momentous.lowrank import factors

ROWS, COLS = 80, 60


def matrix(rank):
    rng = np.random.default_rng(1)
    return rng.standard_normal((ROWS, rank)) @ rng.standard_normal((rank, COLS))


@pytest.mark.parametrize("rank", [0, 1, 3, 5, COLS])
def test_vectors_are_orthonormal_and_the_leading_ones_at_any_rank_of_the_matrix(rank):
    A, calls, count = matrix(rank), [], 5

    def product(x):
        calls.append(1)
        return A.T @ (A @ x)

    V = factors.leading_vectors(product, COLS, count)
    np.testing.assert_allclose(V.T @ V, np.eye(count), rtol=0, atol=1e-13)
    sizes = np.linalg.svd(A, compute_uv=False)
    np.testing.assert_allclose(
        np.linalg.norm(A @ V, axis=0), sizes[:count], rtol=0, atol=1e-12 * max(sizes[0], 1.0)
    )
    assert len(calls) <= 100
