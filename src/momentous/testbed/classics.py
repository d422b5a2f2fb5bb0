"""Classical polynomials: no Lipschitz constants, to exercise adaptivity; fast up to 10^6 variables.

The starts are a minimiser plus standard Gaussian noise, as in the experiments of Marumo and Takeda,
"Universal heavy-ball method for nonconvex optimization under Hölder continuous Hessians" (2025).
"""

from collections.abc import Callable

import numpy as np
from array_api_compat import array_namespace

from momentous.testbed.problem import Array, Constants, Problem, Rng, Vector


def rosenbrock(dimension: int = 2, rng: Rng = 0) -> Problem:
    """Curved valley, ``f(x) = sum_{i<d} [100 (x_{i+1} - x_i^2)^2 + (x_i - 1)^2]``.

    The minimum 0 is attained at the vector of ones.
    """
    _check(dimension >= 2, "Rosenbrock's function needs dimension >= 2", dimension)

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        xp = array_namespace(x)
        head, bend = x[:-1], x[1:] - x[:-1] ** 2
        f = 100.0 * xp.sum(bend**2) + xp.sum((head - 1.0) ** 2)
        return f, _overlap(-400.0 * head * bend + 2.0 * (head - 1.0), 200.0 * bend)

    def hessian_product(x: Array, v: Array) -> Array:
        head, bend = x[:-1], x[1:] - x[:-1] ** 2
        dhead, dbend = v[:-1], v[1:] - 2.0 * x[:-1] * v[:-1]
        return _overlap(-400.0 * (dhead * bend + head * dbend) + 2.0 * dhead, 200.0 * dbend)

    minimiser = np.ones(dimension)
    return _problem(f"rosenbrock-{dimension}", minimiser, rng, value_and_gradient, hessian_product)


def dixon_price(dimension: int = 10, rng: Rng = 0) -> Problem:
    """Dixon and Price's function, ``f(x) = (x_1 - 1)^2 + sum_{i>=2} i (2 x_i^2 - x_{i-1})^2``.

    The minimum 0 is attained at ``x_i = 2^(2^(1-i) - 1)``. There are other stationary points;
    methods often end in one of value 2/3.
    """
    _check(dimension >= 2, "Dixon and Price's function needs dimension >= 2", dimension)
    data = Constants(np.arange(2.0, dimension + 1.0))

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        xp = array_namespace(x)
        (i,) = data.like(x)
        tail, bend = x[1:], 2.0 * x[1:] ** 2 - x[:-1]
        pull = i * bend
        first = xp.concat([2.0 * (x[:1] - 1.0), xp.zeros_like(tail)])
        f = (x[0] - 1.0) ** 2 + xp.sum(pull * bend)
        return f, first + _overlap(-2.0 * pull, 8.0 * pull * tail)

    def hessian_product(x: Array, v: Array) -> Array:
        xp = array_namespace(x)
        (i,) = data.like(x)
        tail, bend = x[1:], 2.0 * x[1:] ** 2 - x[:-1]
        dtail, dbend = v[1:], 4.0 * x[1:] * v[1:] - v[:-1]
        first = xp.concat([2.0 * v[:1], xp.zeros_like(dtail)])
        return first + _overlap(-2.0 * i * dbend, 8.0 * i * (dbend * tail + bend * dtail))

    minimiser = np.exp2(np.exp2(1.0 - np.arange(1.0, dimension + 1.0)) - 1.0)
    return _problem(f"dixon-price-{dimension}", minimiser, rng, value_and_gradient, hessian_product)


def powell(dimension: int = 8, rng: Rng = 0) -> Problem:
    """Powell's singular function, over blocks ``(a, b, c, e)`` of four variables.

    ``f(x) = sum [(a + 10 b)^2 + 5 (c - e)^2 + (b - 2 c)^4 + 10 (a - e)^4]``. The minimum 0 is
    attained at 0, where half of the Hessian's eigenvalues vanish.
    """
    _check(dimension >= 4 and dimension % 4 == 0, "Powell's function needs blocks of 4", dimension)

    def terms(x: Array) -> tuple[Array, Array, Array, Array]:
        """The four linear forms per block."""
        blocks = array_namespace(x).reshape(x, (-1, 4))
        a, b, c, e = (blocks[:, k] for k in range(4))
        return a + 10.0 * b, c - e, b - 2.0 * c, a - e

    def assemble(p: Array, q: Array, s: Array, t: Array) -> Array:
        """Transpose of `terms`."""
        xp = array_namespace(p)
        return xp.reshape(xp.stack([p + t, 10.0 * p + s, q - 2.0 * s, -q - t], axis=1), (-1,))

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        p, q, s, t = terms(x)
        s2, t2 = s**2, t**2  # squares are multiplications, higher powers are slow
        f = array_namespace(x).sum(p**2 + 5.0 * q**2 + s2**2 + 10.0 * t2**2)
        return f, assemble(2.0 * p, 10.0 * q, 4.0 * s2 * s, 40.0 * t2 * t)

    def hessian_product(x: Array, v: Array) -> Array:
        _, _, s, t = terms(x)
        dp, dq, ds, dt = terms(v)
        return assemble(2.0 * dp, 10.0 * dq, 12.0 * s**2 * ds, 120.0 * t**2 * dt)

    minimiser = np.zeros(dimension)
    return _problem(f"powell-{dimension}", minimiser, rng, value_and_gradient, hessian_product)


def qing(dimension: int = 10, rng: Rng = 0) -> Problem:
    """Qing's function, ``f(x) = sum_i (x_i^2 - i)^2``, with ``2^d`` minimisers of value 0.

    They are the points with ``|x_i| = sqrt(i)``; the positive one is given.
    """
    _check(dimension >= 1, "Qing's function needs dimension >= 1", dimension)
    i = np.arange(1.0, dimension + 1.0)
    data = Constants(i)

    def value_and_gradient(x: Array) -> tuple[Array, Array]:
        (i,) = data.like(x)
        excess = x**2 - i
        return array_namespace(x).sum(excess**2), 4.0 * x * excess

    def hessian_product(x: Array, v: Array) -> Array:
        (i,) = data.like(x)
        return (12.0 * x**2 - 4.0 * i) * v

    minimiser = np.sqrt(i)
    return _problem(f"qing-{dimension}", minimiser, rng, value_and_gradient, hessian_product)


def _overlap(head: Array, tail: Array) -> Array:
    """Sum of a vector on all coordinates but the last and one on all but the first."""
    xp = array_namespace(head)
    none = xp.zeros_like(head[:1])
    return xp.concat([head, none]) + xp.concat([none, tail])


def _problem(
    name: str,
    minimiser: Vector,
    rng: Rng,
    value_and_gradient: Callable[[Array], tuple[Array, Array]],
    hessian_product: Callable[[Array, Array], Array],
) -> Problem:
    """A function whose minimum is 0, started near a point where it is attained."""
    return Problem(
        name=name,
        start=minimiser + np.random.default_rng(rng).standard_normal(minimiser.size),
        value_and_gradient=value_and_gradient,
        hessian_product=hessian_product,
        minimum=0.0,
        minimiser=minimiser,
    )


def _check(fits: bool, demand: str, dimension: int) -> None:
    if not fits:
        raise ValueError(f"{demand}, not {dimension}")
