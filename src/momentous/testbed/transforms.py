"""The same problem seen differently: rotated, rescaled, shifted; the constants follow."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from momentous.testbed.problem import Array, Constants, Problem, Rng


def rotated(problem: Problem, rng: Rng = 0) -> Problem:
    """The problem ``f(Q x)`` with a random orthogonal Q (dense): no coordinate is special any more.

    L, rho and the minimum stay; start and minimiser become ``Q' x``.
    """
    size, product = problem.dimension, problem.hessian_product
    Q = np.linalg.qr(np.random.default_rng(rng).standard_normal((size, size)))[0]
    data = Constants(Q)

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        (Q,) = data.like(x)
        f, g = problem.value_and_gradient(Q @ x)
        return f, Q.T @ g

    def rotated_product(x: Array, v: Array) -> Array:
        assert product is not None
        (Q,) = data.like(x)
        return Q.T @ product(Q @ x, Q @ v)

    return _transform(
        problem,
        "rotated",
        value_and_gradient,
        start=Q.T @ problem.start,
        hessian_product=rotated_product if product else None,
        minimiser=None if problem.minimiser is None else Q.T @ problem.minimiser,
    )


def scaled(problem: Problem, value_scale: float = 1.0, length_scale: float = 1.0) -> Problem:
    """The problem ``c f(x/s)``, c and s positive, with constants ``L c/s^2`` and ``rho c/s^3``."""
    c, s, product = float(value_scale), float(length_scale), problem.hessian_product
    if not (c > 0.0 and s > 0.0):
        raise ValueError(f"scales must be positive, not {c} and {s}")

    def times(factor: float, constant: float | None) -> float | None:
        return None if constant is None else factor * constant

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        f, g = problem.value_and_gradient(x / s)
        return c * f, c / s * g

    return _transform(
        problem,
        "scaled",
        value_and_gradient,
        start=s * problem.start,
        hessian_product=product and (lambda x, v: c / s**2 * product(x / s, v)),
        gradient_lipschitz=times(c / s**2, problem.gradient_lipschitz),
        hessian_lipschitz=times(c / s**3, problem.hessian_lipschitz),
        constants_radius=s * problem.constants_radius,
        minimum=times(c, problem.minimum),
        minimiser=None if problem.minimiser is None else s * problem.minimiser,
    )


def shifted(problem: Problem, constant: float) -> Problem:
    """The problem ``f + constant``: the same but for rounding, which drowns small decreases."""
    shift = float(constant)

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        f, g = problem.value_and_gradient(x)
        return f + shift, g

    minimum = None if problem.minimum is None else problem.minimum + shift
    return _transform(problem, "shifted", value_and_gradient, minimum=minimum)


def _transform(
    problem: Problem,
    how: str,
    value_and_gradient: Callable[[Array], tuple[Array, Array]],
    **changes: Any,
) -> Problem:
    """The problem with another function under another name."""
    return replace(
        problem,
        name=f"{problem.name}-{how}",
        value_and_gradient=value_and_gradient,
        value=lambda x: value_and_gradient(x)[0],
        **changes,
    )
