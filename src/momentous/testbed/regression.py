"""Losses of residuals: regression with a nonconvex loss, and generalised linear models."""

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import ArrayLike

from momentous.testbed.constants import Constants
from momentous.testbed.losses import Loss, find_loss
from momentous.testbed.problem import Array, Problem


def generalised_linear(
    matrix: ArrayLike, targets: ArrayLike, loss: Loss | str = "geman-mcclure"
) -> Problem:
    """Mean loss of the residuals, ``f(x) = (1/m) sum_i phi(<a_i, x> - b_i)``.

    The constants are global upper bounds: ``L = sup|phi''| |A|^2/m`` and
    ``rho = sup|phi'''| (|A|^2/m) max|a_i|``, in the spectral norm. The minimum is the lower
    bound ``inf phi``.

    Parameters
    ----------
    matrix : array_like, shape (m, d)
        The rows a_i.
    targets : array_like, shape (m,)
        The b_i.
    loss : Loss or str
        The loss phi, or its name in `LOSSES`.
    """
    phi = find_loss(loss)
    A = np.asarray(matrix, dtype=np.float64)
    b = np.asarray(targets, dtype=np.float64)
    if A.ndim != 2 or b.shape != A.shape[:1]:
        raise ValueError(f"matrix and targets do not fit: shapes {A.shape} and {b.shape}")
    m, d = A.shape
    data = Constants(A, b)
    steepness = float(np.linalg.norm(A, 2)) ** 2 / m

    def value(x: Array) -> Array:
        A, b = data.like(x)
        return array_namespace(x).mean(phi.value(A @ x - b))

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        A, b = data.like(x)
        residual = A @ x - b
        return array_namespace(x).mean(phi.value(residual)), A.T @ phi.slope(residual) / m

    def hessian_product(x: Array, v: Array) -> Array:
        A, b = data.like(x)
        return A.T @ (phi.curvature(A @ x - b) * (A @ v)) / m

    return Problem(
        name=f"regression-{phi.name}-{m}x{d}",
        description=f"mean {phi.name} loss of {m} residuals in {d} unknowns",
        start=np.zeros(d),
        value=value,
        value_and_gradient=value_and_gradient,
        hessian_product=hessian_product,
        gradient_lipschitz=phi.curvature_bound * steepness,
        hessian_lipschitz=phi.third_bound * steepness * float(np.linalg.norm(A, axis=1).max()),
        minimum=phi.infimum,
    )


def robust_regression(
    loss: Loss | str = "geman-mcclure",
    samples: int = 60,
    dimension: int = 30,
    rng: int | np.random.Generator | None = 0,
) -> Problem:
    """Linear regression with gross errors and a loss that forgives them.

    The data follow the experiments of Carmon, Duchi, Hinder and Sidford, "Convex until proven
    guilty" (2017): ``b = A z + 3 n + o`` with Gaussian A and n, ``z ~ N(0, 4 I)`` and o Bernoulli
    with probability 0.3; the start is 0. For the constants see `generalised_linear`.
    """
    rng = np.random.default_rng(rng)
    A = rng.standard_normal((samples, dimension))
    z = 2.0 * rng.standard_normal(dimension)
    noise = 3.0 * rng.standard_normal(samples)
    outliers = (rng.random(samples) < 0.3).astype(np.float64)
    return generalised_linear(A, A @ z + noise + outliers, loss)
