"""The first step size, where none is given: from the curvature along the gradient at x0."""

from __future__ import annotations

import numpy as np
import pytest

from momentous import minimize
from momentous.core.machine import NUMBERS


def probed(dtype, parts: int) -> float:
    """Of |A x|^2/2, whose gradient is a sum over so many parts of the rows."""
    random = np.random.default_rng(1)
    A, x0 = random.standard_normal((120, 30)).astype(dtype), np.linspace(-1, 1, 30, dtype=dtype)
    rows = np.array_split(A, parts)

    def both(x):
        return float(np.sum((A @ x) ** 2) / 2), sum(part.T @ (part @ x) for part in rows)

    result = minimize(both, x0, jac=True, method="gd", max_iterations=0)
    return 1 / result.trace["step_size"][0]


@pytest.mark.parametrize(("dtype", "rel"), [(np.float64, 2.0**-13), (np.float32, 2.0**-5)])
def test_the_probe_is_the_curvature_along_the_gradient_whatever_the_order_of_sums(dtype, rel):
    random = np.random.default_rng(1)
    A = random.standard_normal((120, 30)).astype(dtype).astype(float)
    g = A.T @ A @ np.linspace(-1, 1, 30)
    true = np.linalg.norm(A.T @ (A @ g)) / np.linalg.norm(g)
    found = {probed(dtype, parts) for parts in (1, 2, 3, 4, 7)}
    assert len(found) == 1
    assert found.pop() == pytest.approx(true, rel=rel)


def test_the_largest_number_stays_finite():
    largest = float(np.finfo(float).max)
    assert 0.999 * largest < NUMBERS.rounded(largest, 13) <= largest
