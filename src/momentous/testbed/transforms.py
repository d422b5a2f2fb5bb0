"""The same problem with other coordinates; the constants follow."""

from dataclasses import replace

import numpy as np

from momentous.testbed.problem import Array, Constants, Problem, Rng


def rotated(problem: Problem, rng: Rng = 0) -> Problem:
    """The problem ``f(Q x)`` with a random orthogonal Q (dense): no coordinate is special any more.

    L, rho and the minimum stay; start and minimiser become ``Q' x``.
    """
    size, product, minimiser = problem.dimension, problem.hessian_product, problem.minimiser
    Q = np.linalg.qr(np.random.default_rng(rng).standard_normal((size, size)))[0]
    data = Constants(Q)

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        (Q,) = data.like(x)
        f, g = problem.value_and_gradient(Q @ x)
        return f, Q.T @ g

    def turned_product(x: Array, v: Array) -> Array:
        (Q,) = data.like(x)
        assert product is not None
        return Q.T @ product(Q @ x, Q @ v)

    return replace(
        problem,
        name=f"{problem.name}-rotated",
        start=Q.T @ problem.start,
        value_and_gradient=value_and_gradient,
        value=lambda x: value_and_gradient(x)[0],
        hessian_product=None if product is None else turned_product,
        minimiser=None if minimiser is None else Q.T @ minimiser,
    )
