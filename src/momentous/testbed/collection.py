"""A small list of instances to cross with methods and array libraries."""

from functools import cache

from momentous.testbed.chains import carmon_chain, nested_chain, second_order_chain
from momentous.testbed.classics import dixon_price, powell, qing, rosenbrock
from momentous.testbed.losses import LOSSES
from momentous.testbed.matrices import (
    factorisation,
    matrix_completion,
    matrix_sensing,
    phase_retrieval,
    robust_pca,
)
from momentous.testbed.problem import Problem
from momentous.testbed.regression import robust_regression
from momentous.testbed.saddles import flat_saddle, saddle
from momentous.testbed.separable import separable
from momentous.testbed.transforms import rotated, scaled, shifted


def problems(max_dimension: int | None = None) -> list[Problem]:
    """Return small instances of every family, with distinct names.

    Parameters
    ----------
    max_dimension : int, optional
        Leave out those with more variables.
    """
    return [p for p in _instances() if max_dimension is None or p.dimension <= max_dimension]


def with_constants(max_dimension: int | None = None) -> list[Problem]:
    """Return those of `problems` with global L and rho that are known to be bounded below."""
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
