"""Proximal gradient steps: a gradient step on the smooth part, then the map of the other part."""

from collections.abc import Callable

import numpy as np

from momentous.io.types import AnyArray
from momentous.testbed.problem import MapProblem, Rng, Vector


def lasso(
    samples: int, variables: int, weight: float = 0.02, correlation: float = 0.9, rng: Rng = 0
) -> MapProblem:
    """|A x - b|^2/(2 m) + w max|A'b/m| |x|_1 by iterative shrinkage, with steps of 1/L.

    I. Daubechies, M. Defrise, C. De Mol, Commun. Pure Appl. Math. 57 (2004).  Neighbouring columns
    are correlated; a tenth of the true coefficients are not zero.
    """
    rng = np.random.default_rng(rng)
    A = _correlated(rng, samples, variables, correlation)
    truth = rng.standard_normal(variables) * (rng.random(variables) < 0.1)
    b = A @ truth + 0.1 * rng.standard_normal(samples)
    lipschitz = float(np.linalg.norm(A, 2)) ** 2 / samples
    penalty = weight * float(np.abs(A.T @ b).max()) / samples

    def smooth(x: Vector) -> tuple[float, Vector]:
        rest = A @ x - b
        return 0.5 * float(rest @ rest) / samples, A.T @ rest / (samples * lipschitz)

    return MapProblem(
        name=f"lasso-{samples}x{variables}",
        description="iterative shrinkage for the lasso",
        start=np.zeros(variables),
        step_and_value=_shrinking(smooth, penalty, lipschitz),
    )


def nonnegative_squares(
    samples: int, variables: int, correlation: float = 0.9, rng: Rng = 0
) -> MapProblem:
    """|A z - b|^2/(2 m) over z >= 0 by projected gradients, at z = max(x, 0)."""
    rng = np.random.default_rng(rng)
    A = _correlated(rng, samples, variables, correlation)
    b = A @ np.maximum(rng.standard_normal(variables), 0.0) + rng.standard_normal(samples)
    lipschitz = float(np.linalg.norm(A, 2)) ** 2 / samples

    def both(x: Vector) -> tuple[Vector, float]:
        z = np.maximum(x, 0.0)
        rest = A @ z - b
        moved = z - A.T @ rest / (samples * lipschitz)
        return np.maximum(moved, 0.0), 0.5 * float(rest @ rest) / samples

    return MapProblem(
        name=f"nonnegative-squares-{samples}x{variables}",
        description="projected gradients for nonnegative least squares",
        start=np.zeros(variables),
        step_and_value=both,
    )


def sparse_logistic(
    samples: int, variables: int, weight: float = 0.02, correlation: float = 0.9, rng: Rng = 0
) -> MapProblem:
    """Logistic regression with an l1 penalty by proximal gradients, with steps of 1/L."""
    rng = np.random.default_rng(rng)
    A = _correlated(rng, samples, variables, correlation)
    truth = rng.standard_normal(variables) * (rng.random(variables) < 0.1)
    chance = 1.0 / (1.0 + np.exp(-2.0 * (A @ truth)))
    signed = A * np.where(rng.random(samples) < chance, 1.0, -1.0)[:, None]
    lipschitz = float(np.linalg.norm(A, 2)) ** 2 / (4 * samples)
    penalty = weight * float(np.abs(signed.sum(axis=0)).max()) / (2 * samples)

    def smooth(x: Vector) -> tuple[float, Vector]:
        margins = signed @ x
        slope = -signed.T @ np.exp(-np.logaddexp(0.0, margins)) / samples
        return float(np.mean(np.logaddexp(0.0, -margins))), slope / lipschitz

    return MapProblem(
        name=f"sparse-logistic-{samples}x{variables}",
        description="proximal gradients for a sparse logistic regression",
        start=np.zeros(variables),
        step_and_value=_shrinking(smooth, penalty, lipschitz),
    )


def _shrinking(
    smooth: Callable[[Vector], tuple[float, Vector]], penalty: float, lipschitz: float
) -> Callable[[Vector], tuple[Vector, float]]:
    """The step with an l1 penalty beside a smooth part that gives its value and gradient/L."""

    def both(x: Vector) -> tuple[Vector, float]:
        value, step = smooth(x)
        moved = x - step
        image = np.sign(moved) * np.maximum(np.abs(moved) - penalty / lipschitz, 0.0)
        return image, value + penalty * float(np.abs(x).sum())

    return both


def _correlated(
    rng: np.random.Generator, samples: int, variables: int, correlation: float
) -> AnyArray:
    """Columns of variance 1, each correlated with the one before."""
    A = rng.standard_normal((samples, variables))
    for j in range(1, variables):
        A[:, j] = correlation * A[:, j - 1] + np.sqrt(1 - correlation**2) * A[:, j]
    return A
