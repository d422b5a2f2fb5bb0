"""The same problem seen differently: rotated, rescaled, shifted; the constants follow."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from momentous.testbed.constants import Constants
from momentous.testbed.problem import Array, Problem


def rotated(problem: Problem, rng: int | np.random.Generator | None = 0) -> Problem:
    """The problem ``f(Q x)`` with a random orthogonal Q (dense): no coordinate is special any more.

    L, rho and the minimum stay; start and minimiser become ``Q' x``.
    """
    size = problem.dimension
    Q = np.linalg.qr(np.random.default_rng(rng).standard_normal((size, size)))[0]
    data = Constants(Q)

    def value(x: Array) -> Array:
        (Q,) = data.like(x)
        return problem.value(Q @ x)

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        (Q,) = data.like(x)
        f, g = problem.value_and_gradient(Q @ x)
        return f, Q.T @ g

    def product(x: Array, v: Array) -> Array:
        (Q,) = data.like(x)
        return Q.T @ _product(problem)(Q @ x, Q @ v)

    return replace(
        problem,
        name=f"{problem.name}-rotated",
        description=f"{problem.description}; rotated",
        start=Q.T @ problem.start,
        value=value,
        value_and_gradient=value_and_gradient,
        hessian_product=None if problem.hessian_product is None else product,
        minimiser=None if problem.minimiser is None else Q.T @ problem.minimiser,
    )


def scaled(problem: Problem, value_scale: float = 1.0, length_scale: float = 1.0) -> Problem:
    """The problem ``c f(x/s)``, with constants ``L c/s^2`` and ``rho c/s^3``.

    Parameters
    ----------
    problem : Problem
        The function f.
    value_scale, length_scale : float
        c and s, both positive.
    """
    c, s = float(value_scale), float(length_scale)
    if not (c > 0.0 and s > 0.0):
        raise ValueError(f"scales must be positive, not {c} and {s}")
    L, rho, minimum = problem.gradient_lipschitz, problem.hessian_lipschitz, problem.minimum

    def value(x: Array) -> Array:
        return c * problem.value(x / s)

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        f, g = problem.value_and_gradient(x / s)
        return c * f, c / s * g

    def product(x: Array, v: Array) -> Array:
        return c / s**2 * _product(problem)(x / s, v)

    return replace(
        problem,
        name=f"{problem.name}-scaled",
        description=f"{problem.description}; value times {c:g}, lengths times {s:g}",
        start=s * problem.start,
        value=value,
        value_and_gradient=value_and_gradient,
        hessian_product=None if problem.hessian_product is None else product,
        gradient_lipschitz=None if L is None else c / s**2 * L,
        hessian_lipschitz=None if rho is None else c / s**3 * rho,
        constants_radius=s * problem.constants_radius,
        minimum=None if minimum is None else c * minimum,
        minimiser=None if problem.minimiser is None else s * problem.minimiser,
    )


def shifted(problem: Problem, constant: float) -> Problem:
    """The problem ``f + constant``: the same but for rounding, which drowns small decreases."""
    shift = float(constant)

    def value(x: Array) -> Array:
        return problem.value(x) + shift

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        f, g = problem.value_and_gradient(x)
        return f + shift, g

    return replace(
        problem,
        name=f"{problem.name}-shifted",
        description=f"{problem.description}; plus {shift:g}",
        value=value,
        value_and_gradient=value_and_gradient,
        minimum=None if problem.minimum is None else problem.minimum + shift,
    )


def _product(problem: Problem) -> Callable[[Array, Array], Array]:
    assert problem.hessian_product is not None
    return problem.hessian_product
