"""Sums of scalar losses: one per coordinate (separable), or one per residual (regression)."""

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import ArrayLike

from momentous.testbed.losses import Loss, find_loss
from momentous.testbed.problem import Array, Constants, Problem, Rng


def separable(
    loss: Loss | str = "cosine",
    weights: ArrayLike = (1.0, 0.5, 2.0),
    scales: ArrayLike = (1.0, 2.0, 0.5),
) -> Problem:
    """Weighted sum of a loss of each coordinate, ``f(x) = sum_i a_i phi(w_i x_i)``.

    phi is a `Loss` or its name in `LOSSES`; the weights a_i are positive, the scales w_i not zero,
    and they are broadcast against each other.  The Hessian is diagonal, so
    ``L = max a_i w_i^2 sup|phi''|`` and ``rho = max a_i |w_i|^3 sup|phi'''|`` are exact and global;
    so is the minimum.
    """
    phi = find_loss(loss)
    a, w = np.broadcast_arrays(
        np.atleast_1d(np.asarray(weights, dtype=np.float64)),
        np.atleast_1d(np.asarray(scales, dtype=np.float64)),
    )
    if a.ndim != 1 or not np.all(a > 0.0) or not np.all(w != 0.0):
        raise ValueError("weights must be positive and scales not zero, both one-dimensional")
    data = Constants(a, w)

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        a, w = data.like(x)
        return array_namespace(x).sum(a * phi.value(w * x)), a * w * phi.slope(w * x)

    def hessian_product(x: Array, v: Array) -> Array:
        a, w = data.like(x)
        return a * w * w * phi.curvature(w * x) * v

    return Problem(
        name=f"separable-{phi.name}-{a.size}",
        description=f"sum of {a.size} scaled {phi.name} losses, one per coordinate",
        start=np.linspace(0.5, 1.5, a.size) / w,  # between the origin and the flat parts
        value_and_gradient=value_and_gradient,
        hessian_product=hessian_product,
        gradient_lipschitz=float(np.max(a * w**2)) * phi.curvature_bound,
        hessian_lipschitz=float(np.max(a * np.abs(w) ** 3)) * phi.third_bound,
        minimum=float(np.sum(a)) * phi.infimum,
        minimum_is_exact=True,
        minimiser=None if phi.minimiser is None else phi.minimiser / w,
    )


def generalised_linear(
    matrix: ArrayLike, targets: ArrayLike, loss: Loss | str = "geman-mcclure"
) -> Problem:
    """Mean loss of the residuals, ``f(x) = (1/m) sum_i phi(<a_i, x> - b_i)``.

    The matrix has the m rows a_i, the targets are the b_i; phi is a `Loss` or its name in `LOSSES`.
    The constants are global upper bounds: ``L = sup|phi''| |A|^2/m`` and
    ``rho = sup|phi'''| (|A|^2/m) max|a_i|``, in the spectral norm. The minimum is the lower
    bound ``inf phi``.
    """
    phi = find_loss(loss)
    A = np.asarray(matrix, dtype=np.float64)
    b = np.asarray(targets, dtype=np.float64)
    if A.ndim != 2 or b.shape != A.shape[:1]:
        raise ValueError(f"matrix and targets do not fit: shapes {A.shape} and {b.shape}")
    m, d = A.shape
    data = Constants(A, b)
    steepness = float(np.linalg.norm(A, 2)) ** 2 / m

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
        value_and_gradient=value_and_gradient,
        hessian_product=hessian_product,
        gradient_lipschitz=phi.curvature_bound * steepness,
        hessian_lipschitz=phi.third_bound * steepness * float(np.linalg.norm(A, axis=1).max()),
        minimum=phi.infimum,
    )


def robust_regression(
    loss: Loss | str = "geman-mcclure", samples: int = 60, dimension: int = 30, rng: Rng = 0
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
