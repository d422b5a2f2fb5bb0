"""Saddles with a known spectrum, started exactly on them."""

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import ArrayLike

from momentous.testbed.losses import LOSSES, Loss
from momentous.testbed.problem import Array, Constants, Problem


def saddle(
    p: int = 2, q: int = 2, curvature: float = 1.0, negative_curvature: ArrayLike = 1.0
) -> Problem:
    """Strict saddle at the start, ``f(x, y) = (c/2)|x|^2 + sum_j g_j (1 + cos y_j)``.

    The Hessian at ``(x, y)`` has the eigenvalues c (p times) and ``-g_j cos y_j``: at the origin
    q of them are negative. ``L = max(c, g)`` and ``rho = max g`` are exact and global, the minimum
    0 is attained at ``x = 0, y_j = pi`` (mod 2 pi). Deterministic first-order methods started at
    ``y = 0`` stay there.

    x has p entries and y has q; ``curvature`` is c, ``negative_curvature`` the g_j, all positive.
    """
    return _on_the_hill("saddle", LOSSES["hill"], p, q, curvature, negative_curvature)


def flat_saddle(p: int = 2, q: int = 1, curvature: float = 1.0, height: ArrayLike = 1.0) -> Problem:
    """Degenerate saddle, ``f(x, y) = (c/2)|x|^2 + sum_j g_j (1 - sin(y_j/2)^4)``.

    At the origin the Hessian has the eigenvalues c and 0 only: a second-order stationary point
    that is no local minimum, since f falls like ``-g y^4/16``. A second-order method may stop
    there. ``L = max(c, g)`` and ``rho = 1.368 max g`` are exact and global, the minimum 0 is
    attained at ``x = 0, y_j = pi`` (mod 2 pi), where the Hessian is positive definite.

    Parameters as in `saddle`; ``height`` is the g_j.
    """
    return _on_the_hill("flat-saddle", LOSSES["flat-hill"], p, q, curvature, height)


def _on_the_hill(
    name: str, hill: Loss, p: int, q: int, curvature: float, heights: ArrayLike
) -> Problem:
    """A bowl in p coordinates, the top of a hill in q."""
    c = float(curvature)
    g = np.broadcast_to(np.asarray(heights, dtype=np.float64), (q,))
    if p < 0 or q < 1 or c <= 0.0 or not np.all(g > 0.0):
        raise ValueError("a saddle needs p >= 0, q >= 1 and positive curvatures")
    data = Constants(g)

    def value_and_gradient(z: Array) -> tuple[Array, Array]:
        xp = array_namespace(z)
        (g,) = data.like(z)
        f = 0.5 * c * xp.sum(z[:p] ** 2) + xp.sum(g * hill.value(z[p:]))
        return f, xp.concat([c * z[:p], g * hill.slope(z[p:])])

    def hessian_product(z: Array, v: Array) -> Array:
        (g,) = data.like(z)
        return array_namespace(z).concat([c * v[:p], g * hill.curvature(z[p:]) * v[p:]])

    steepest = float(np.max(g))
    bowl = c if p > 0 else 0.0
    return Problem(
        name=f"{name}-{p}+{q}" + ("" if np.ptp(g) == 0.0 else "-mixed"),
        start=np.zeros(p + q),
        value_and_gradient=value_and_gradient,
        hessian_product=hessian_product,
        gradient_lipschitz=max(bowl, steepest * hill.curvature_bound),
        hessian_lipschitz=steepest * hill.third_bound,
        minimum=0.0,
        minimiser=np.concatenate([np.zeros(p), np.full(q, np.pi)]),
    )
