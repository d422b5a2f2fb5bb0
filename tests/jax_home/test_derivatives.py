"""Derivatives of solutions by the arguments of their function, and where there are none."""

from __future__ import annotations

import numpy as np
import pytest

import momentous

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from momentous.jax import minimize, solve  # noqa: E402

DRAWN = np.random.default_rng(5)
ROWS, TARGETS = DRAWN.standard_normal((30, 3)), DRAWN.standard_normal(30)
START = {"w": np.zeros(3), "b": np.array(0.5)}
RATES = np.array([0.5, 0.8, 1.3])
# What is differentiated does not depend on the method: this one is compiled soonest.
METHOD = momentous.RAGD(step_size=0.02, momentum=0.5, radius=1e6, epoch_length=10**6)


@pytest.fixture(autouse=True, scope="module")
def _doubles():
    with jax.enable_x64(True):
        yield


def loss(p, given, scale):
    residuals = ROWS @ p["w"] + p["b"] - scale * TARGETS
    value = jnp.sum(jnp.log1p(residuals**2)) + given["rate"] * jnp.sum(p["w"] ** 2)
    return value, {"length": jnp.sum(p["w"] ** 2), "count": 3}


def found(rate, scale=1.0):
    given = {"rate": rate, "unused": 2}
    return solve(loss, START, (given, scale), tol=1e-10, has_aux=True, method=METHOD)


def numbers(rate):
    """All of a solution that has a derivative, as one vector."""
    at = found(rate)
    return jnp.concatenate([at.x["w"], jnp.stack([at.x["b"], at.fun, at.aux["length"]])])


@pytest.fixture(scope="module")
def differences():
    run, h = jax.jit(jax.vmap(numbers)), 1e-4
    return (run(RATES + h) - run(RATES - h)) / (2 * h)


@pytest.mark.parametrize("derivative", [jax.jacfwd, jax.jacrev])
def test_they_are_those_of_differences_under_vmap_and_jit(derivative, differences):
    made = jax.jit(jax.vmap(derivative(numbers)))(jnp.array(RATES))
    np.testing.assert_allclose(made, differences, atol=1e-6)


def test_what_the_function_reads_besides_its_arguments_is_an_argument_too(differences):
    def length(rate):
        read = {"rate": rate}
        return solve(lambda p: loss(p, read, 1.0)[0], START, tol=1e-10, method=METHOD).x["b"]

    slopes = jax.jit(jax.vmap(jax.grad(length)))(jnp.array(RATES))
    np.testing.assert_allclose(slopes, differences[:, 3], atol=1e-6)


def test_a_start_changes_nothing():
    slope = jax.jit(jax.grad(lambda b: solve(lambda p: jnp.cosh(p - 1), b, method=METHOD).x))(0.5)
    assert slope == 0.0


# Of the solution by a: a line of minima, a saddle, and a minimum that is not reached.
REFUSED = [
    lambda x, a: (x[0] + x[1] - a) ** 2,
    lambda x, a: (x[0] - a) ** 2 - x[1] ** 2,
    lambda x, a: jnp.sum(jnp.cosh(x - a)),
]


def test_there_is_none_where_the_solution_is_no_smooth_function():
    @jax.jit
    @jax.value_and_grad
    def first(a, index, most):
        def fun(x, a):
            return jax.lax.switch(index, REFUSED, x, a)

        x0 = jnp.array([0.3, 0.0])
        return solve(fun, x0, (a,), method=METHOD, tol=1e-10, max_evaluations=most).x[0]

    for index, most in ((0, 1000), (1, 1000), (2, 3)):
        x, slope = first(0.4, index, most)
        assert jnp.isfinite(x), index
        assert jnp.isnan(slope), index
    assert first(0.4, 2, 1000)[1] == pytest.approx(1.0)


def square(x):
    return jnp.sum(x**2)


HOST_RUNS = [
    lambda a: minimize(lambda x: jnp.sum((x - a) ** 2), jnp.zeros(2)).x,
    lambda a: momentous.minimize(square, a * jnp.ones(2), jac="autodiff").x,
    lambda a: momentous.minimize_many(jax.vmap(square), a * jnp.ones((2, 2))).x,
]


@pytest.mark.parametrize("change", [jax.jit, jax.vmap, jax.grad])
@pytest.mark.parametrize("run", HOST_RUNS)
def test_runs_on_the_host_point_to_solve(change, run):
    with pytest.raises(TypeError, match=r"use momentous\.jax\.solve there"):
        change(lambda a: jnp.sum(run(a)))(jnp.ones(2) if change is jax.vmap else 1.0)


def quadratic_of(d, condition):
    """The derivative of its solution by a factor of the right-hand side, and what it is."""
    drawn = np.random.default_rng(d)
    Q = np.linalg.qr(drawn.standard_normal((d, d)))[0]
    A, b = (Q * np.logspace(0, np.log10(condition), d)) @ Q.T, drawn.standard_normal(d)
    x = np.linalg.solve(A, b)

    def solution(a):
        return solve(lambda x, a: x @ (A @ x) / 2 - a * (b @ x), x, (a,), tol=1e3, method=METHOD).x

    slope = jax.jit(jax.jacfwd(solution))(1.0)
    jax.effects_barrier()
    return slope, x


@pytest.mark.parametrize(("d", "condition"), [(60, 1e7), (200, 1e10)])
def test_they_are_right_for_ill_conditioned_hessians(d, condition):
    slope, expected = quadratic_of(d, condition)
    assert np.linalg.norm(slope - expected) <= 1e-5 * np.linalg.norm(expected)


def test_beyond_500_variables_a_failure_is_said():
    with pytest.warns(RuntimeWarning, match="of 501 variables is NaN: its Hessian is singular"):
        slope, _ = quadratic_of(501, 1e14)
    assert np.isnan(slope).all()
