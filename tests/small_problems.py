"""Small problems to cross with methods and array libraries; the same ones rescaled and shifted."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from momentous.testbed import (
    LOSSES,
    Problem,
    carmon_chain,
    dixon_price,
    factorisation,
    flat_saddle,
    matrix_completion,
    matrix_sensing,
    nested_chain,
    phase_retrieval,
    powell,
    qing,
    robust_pca,
    robust_regression,
    rosenbrock,
    rotated,
    saddle,
    second_order_chain,
    separable,
)
from momentous.testbed.problem import Array

Map = Callable[[Array], Array]


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


# --- the list -------------------------------------------------------------------------------------


def problems(max_dimension: int | None = None) -> list[Problem]:
    """Small instances of every family, to cross with methods and array libraries."""
    return [p for p in _instances() if max_dimension is None or p.dimension <= max_dimension]


def with_constants(max_dimension: int | None = None) -> list[Problem]:
    """Those of `problems` with global L and rho that are known to be bounded below."""
    return [p for p in problems(max_dimension) if p.has_constants]


@cache
def _instances() -> tuple[Problem, ...]:
    return (
        *(separable(loss) for loss in LOSSES.values()),
        robust_regression(),
        robust_regression("sigmoid-squared", samples=20, dimension=5),
        saddle(3, 2),
        saddle(2, 3, curvature=2.0, negative_curvature=(1.0, 0.1, 0.01)),
        flat_saddle(2, 1),
        carmon_chain(6),
        second_order_chain(8, 0.1),
        nested_chain(4, 0.03),
        factorisation(),
        matrix_sensing(),
        matrix_completion(),
        robust_pca(),
        phase_retrieval(),
        rosenbrock(2),
        rosenbrock(10),
        dixon_price(6),
        powell(8),
        qing(10),
        rotated(separable("cosine", weights=(1.0, 0.2, 0.05, 0.01), scales=1.0)),
        scaled(second_order_chain(4, 0.5), value_scale=10.0, length_scale=0.5),
        shifted(separable("geman-mcclure", weights=1.0, scales=(1.0, 0.3)), 1000.0),
    )
