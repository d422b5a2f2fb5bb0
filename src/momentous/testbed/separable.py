"""Sums of one-dimensional losses: the Lipschitz constants are exact."""

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import ArrayLike

from momentous.testbed.constants import Constants
from momentous.testbed.losses import Loss, find_loss
from momentous.testbed.problem import Array, Problem


def separable(
    loss: Loss | str = "cosine",
    weights: ArrayLike = (1.0, 0.5, 2.0),
    scales: ArrayLike = (1.0, 2.0, 0.5),
) -> Problem:
    """Weighted sum of a loss of each coordinate, ``f(x) = sum_i a_i phi(w_i x_i)``.

    The Hessian is diagonal, hence ``L = max a_i w_i^2 sup|phi''|`` and
    ``rho = max a_i |w_i|^3 sup|phi'''|`` are exact and global; so is the minimum.

    Parameters
    ----------
    loss : Loss or str
        The loss phi, or its name in `LOSSES`.
    weights : array_like
        The a_i, positive.
    scales : array_like
        The w_i, not zero; weights and scales are broadcast against each other.
    """
    phi = find_loss(loss)
    a, w = np.broadcast_arrays(
        np.atleast_1d(np.asarray(weights, dtype=np.float64)),
        np.atleast_1d(np.asarray(scales, dtype=np.float64)),
    )
    if a.ndim != 1 or not np.all(a > 0.0) or not np.all(w != 0.0):
        raise ValueError("weights must be positive and scales not zero, both one-dimensional")
    data = Constants(a, w)

    def value(x: Array) -> Array:
        a, w = data.like(x)
        return array_namespace(x).sum(a * phi.value(w * x))

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        a, w = data.like(x)
        return value(x), a * w * phi.slope(w * x)

    def hessian_product(x: Array, v: Array) -> Array:
        a, w = data.like(x)
        return a * w * w * phi.curvature(w * x) * v

    return Problem(
        name=f"separable-{phi.name}-{a.size}",
        description=f"sum of {a.size} scaled {phi.name} losses, one a coordinate",
        start=np.linspace(0.5, 1.5, a.size) / w,  # between the origin and the flat parts
        value=value,
        value_and_gradient=value_and_gradient,
        hessian_product=hessian_product,
        gradient_lipschitz=float(np.max(a * w**2)) * phi.curvature_bound,
        hessian_lipschitz=float(np.max(a * np.abs(w) ** 3)) * phi.third_bound,
        minimum=float(np.sum(a)) * phi.infimum,
        minimum_is_exact=True,
        minimiser=None if phi.minimiser is None else phi.minimiser / w,
    )
