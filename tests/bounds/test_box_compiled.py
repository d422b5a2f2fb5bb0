"""Bounds in JAX: one compiled loop takes the steps of the host, inside of the box."""

import numpy as np
import pytest
from tests.bounds.boxes import random_box

import momentous

jax = pytest.importorskip("jax")
jnp = jax.numpy

from momentous.jax import minimize, solve  # noqa: E402
from momentous.jax.flat import Flat  # noqa: E402


@pytest.fixture(autouse=True)
def _double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def function(problem):
    Q, c = jnp.asarray(problem.Q), jnp.asarray(problem.c)

    def f(x):
        # Outside it is of no use to anybody.
        inside = jnp.all((x >= problem.lower) & (x <= problem.upper))
        return jnp.where(inside, x @ Q @ x / 2 + c @ x + problem.waves * jnp.cos(x).sum(), jnp.nan)

    return f


@pytest.mark.parametrize(
    ("method", "parameters", "seed"),
    [
        ("auto", {}, 0),
        ("lbfgs", {"memory": 5}, 3),
        ("lbfgs", {}, 3),
        ("ada-ragd", {}, 3),
        ("ada-rhb", {}, 0),
        ("ada-ragd", {"by_paper": True}, 3),
    ],
)
def test_the_compiled_run_is_that_of_the_host(method, parameters, seed):
    problem = random_box(seed)
    options = {"method": method, "tol": 1e-8, "bounds": problem.bounds, **parameters}
    host = momentous.minimize(problem.both, problem.start, jac=True, **options)
    found = solve(function(problem), jnp.asarray(problem.start), **options)
    assert found.success
    assert int(found.nfev) == host.nfev
    assert np.allclose(found.x, host.x, atol=1e-10)
    assert problem.stationarity(found.x) <= 1.001e-8
    assert float(found.grad_norm) <= 1e-8


def test_bounds_are_vmapped():
    def f(x):
        return jnp.sum((x**2 - 1) ** 2) + x[0] * x[1]

    starts = jnp.asarray(np.random.default_rng(0).standard_normal((6, 3)))
    tops = jnp.abs(starts)

    def one(x0, top):
        return solve(f, x0, bounds=(None, top), method="lbfgs", tol=1e-8)

    many = jax.jit(jax.vmap(one))(starts, tops)
    assert many.success.all()
    assert (many.x <= tops).all()
    single = minimize(f, starts[2], bounds=(None, tops[2]), method="lbfgs", tol=1e-8)
    assert np.allclose(single.x, many.x[2], atol=1e-8)


def test_trees_have_trees_of_bounds():
    x0 = {"a": jnp.ones(2), "b": jnp.zeros(3)}

    def f(x):
        return jnp.sum((x["a"] - 3) ** 2) + jnp.sum((x["b"] + 2) ** 2)

    forms = [
        {"a": (0, 2), "b": (-1, None)},
        ({"a": None, "b": -1.0}, {"a": 2.0, "b": None}),
    ]
    for bounds in forms:
        found = minimize(f, x0, bounds=bounds, tol=1e-6)
        assert found.success
        assert found.x["a"].tolist() == [2.0, 2.0]
        assert found.x["b"].tolist() == [-1.0] * 3
        assert found.active["a"].tolist() == [1, 1]
        assert found.multipliers["b"].tolist() == [2.0] * 3
    found = solve(f, x0, bounds=forms[0], method="lbfgs")
    assert found.x["b"].tolist() == [-1.0] * 3


def test_no_finite_bound_is_no_bound():
    def f(x):
        return jnp.sum((x - 1.0) ** 4)

    plain = solve(f, jnp.zeros(3), method="ada-ragd")
    boxed = solve(f, jnp.zeros(3), method="ada-ragd", bounds=(None, jnp.inf))
    assert (plain.x == boxed.x).all()
    with pytest.raises(ValueError, match="these do: auto"):
        solve(f, jnp.zeros(3), method="rhb", bounds=(0, 1), gradient_lipschitz=1.0,
              hessian_lipschitz=1.0)  # fmt: skip


def test_the_solution_is_differentiated_by_arguments_and_by_bounds():
    A = jnp.array([[2.0, 0.5, 0.0], [0.5, 3.0, 0.2], [0.0, 0.2, 1.0]])

    def f(x, c):
        return x @ A @ x / 2 + c @ x

    @jax.jit
    def solution(c, top):
        bounds = (jnp.full(3, -10.0), top)
        found = solve(f, jnp.zeros(3), (c,), bounds=bounds, method="lbfgs", tol=1e-12)
        return jnp.append(found.x, found.fun)

    c, top, h = jnp.array([-5.0, 1.0, 2.0]), jnp.array([1.0, 10.0, 10.0]), 1e-4
    assert solution(c, top)[0] == 1.0  # at its bound
    by_c, by_top = jax.jit(jax.jacobian(solution, (0, 1)))(c, top)
    for i in range(3):
        step = h * jnp.eye(3)[i]
        expected = (solution(c + step, top) - solution(c - step, top)) / (2 * h)
        assert np.allclose(by_c[:, i], expected, atol=1e-6)
        expected = (solution(c, top + step) - solution(c, top - step)) / (2 * h)
        assert np.allclose(by_top[:, i], expected, atol=1e-6)


def bowl(x):  # one for both forms: it is compiled once
    return jnp.sum((x - 2.0) ** 2)


@pytest.mark.parametrize("form", ["arrays", "pairs"])
def test_two_variables_have_the_same_bounds_inside_and_outside_of_compiled_code(form):
    def bounds(low, high):
        arrays = (jnp.stack([low, low]), jnp.stack([high, 2 * high]))
        return arrays if form == "arrays" else [(low, high), (None, 2 * high)]

    start, given = Flat(jnp.full(2, 0.5)), (jnp.asarray(0.0), jnp.asarray(0.75))
    outside = start.bounds(bounds(*given))
    inside = jax.jit(lambda *of: start.bounds(bounds(*of)))(*given)
    np.testing.assert_array_equal(outside, inside)
    found = solve(bowl, jnp.full(2, 0.5), bounds=bounds(*given), method="lbfgs")
    assert found.x.tolist() == [0.75, 1.5]


def test_compiled_bounds_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="1 parts for 3 variables"):
        jax.jit(lambda u: solve(jnp.sum, jnp.zeros(3), bounds=[(0.0, u)]).x)(1.0)
