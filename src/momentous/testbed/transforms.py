"""The same problem seen differently: rotated, rescaled, shifted; the constants follow."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from momentous.testbed.problem import Array, Constants, Problem, Rng

Map = Callable[[Array], Array]


def rotated(problem: Problem, rng: Rng = 0) -> Problem:
    """The problem ``f(Q x)`` with a random orthogonal Q (dense): no coordinate is special any more.

    L, rho and the minimum stay; start and minimiser become ``Q' x``.
    """
    size = problem.dimension
    data = Constants(np.linalg.qr(np.random.default_rng(rng).standard_normal((size, size)))[0])

    def forth(x: Array) -> Array:
        return data.like(x)[0] @ x

    def back(x: Array) -> Array:
        return data.like(x)[0].T @ x

    return _composed(problem, "rotated", forth, back, back)


def scaled(problem: Problem, value_scale: float = 1.0, length_scale: float = 1.0) -> Problem:
    """The problem ``c f(x/s)``, c and s positive, with constants ``L c/s^2`` and ``rho c/s^3``."""
    c, s = float(value_scale), float(length_scale)
    if not (c > 0.0 and s > 0.0):
        raise ValueError(f"scales must be positive, not {c} and {s}")

    def times(factor: float, constant: float | None) -> float | None:
        return None if constant is None else factor * constant

    return _composed(
        problem, "scaled", lambda x: x / s, lambda g: c / s * g, lambda x: s * x, lambda f: c * f,
        gradient_lipschitz=times(c / s**2, problem.gradient_lipschitz),
        hessian_lipschitz=times(c / s**3, problem.hessian_lipschitz),
        constants_radius=s * problem.constants_radius,
        minimum=times(c, problem.minimum),
    )  # fmt: skip


def shifted(problem: Problem, constant: float) -> Problem:
    """The problem ``f + constant``: the same but for rounding, which drowns small decreases."""
    shift = float(constant)
    minimum = None if problem.minimum is None else problem.minimum + shift
    return _composed(problem, "shifted", _same, _same, _same, lambda f: f + shift, minimum=minimum)


def _same(x: Array) -> Array:
    return x


def _composed(
    problem: Problem, how: str, inner: Map, pull_back: Map, inverse: Map, outer: Map = _same,
    **changes: Any,
) -> Problem:  # fmt: skip
    """``outer(f(inner(x)))``; ``pull_back`` turns a gradient of f into one of this."""
    product, minimiser = problem.hessian_product, problem.minimiser

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        f, g = problem.value_and_gradient(inner(x))
        return outer(f), pull_back(g)

    return replace(
        problem,
        name=f"{problem.name}-{how}",
        start=inverse(problem.start),
        value_and_gradient=value_and_gradient,
        value=lambda x: value_and_gradient(x)[0],
        hessian_product=product and (lambda x, v: pull_back(product(inner(x), inner(v)))),
        minimiser=None if minimiser is None else inverse(minimiser),
        **changes,
    )
