"""The minimisers under Optimistix's own loop: jit, vmap, grad, aux, limits and failures.

RAGD is the one that compiles fastest; what is tested here is the same for all of them.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

jax = pytest.importorskip("jax")
optx = pytest.importorskip("optimistix")

import equinox as eqx  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import momentous  # noqa: E402
import momentous.jax as home  # noqa: E402

minimise, least_squares = map(eqx.filter_jit, (optx.minimise, optx.least_squares))
START = {"w": jnp.ones((2, 2)), "b": jnp.array(0.0)}
SOLVER = home.RAGD(
    rtol=0.0, atol=1e-4, step_size=0.02, momentum=0.8, radius=10.0, epoch_length=1000
)


def loss(p, c):
    value = jnp.sum((p["w"] ** 2 - c) ** 2) + (p["b"] - 1.0) ** 2
    return value, {"b": p["b"]}


def of_value(p, c):
    return loss(p, c)[0]


def solved(c, **options):
    return minimise(of_value, SOLVER, START, args=c, max_steps=500, **options)


def test_a_batch_is_solved_at_once_in_compiled_code():
    roots = jnp.array([1.0, 2.0, 4.0])
    found = jax.jit(jax.vmap(lambda c: solved(c).value["w"]))(roots)
    assert found.shape == (3, 2, 2)
    np.testing.assert_allclose(found[:, 1, 1], np.sqrt(roots), atol=1e-3)


def test_solutions_can_be_differentiated():
    slope = jax.jit(jax.grad(lambda c: solved(c).value["w"][0, 0]))(2.0)
    assert slope == pytest.approx(0.5 / np.sqrt(2.0), abs=1e-3)


def test_aux_belongs_to_the_solution():
    solution = minimise(loss, SOLVER, START, args=2.0, has_aux=True, max_steps=500)
    assert solution.result == optx.RESULTS.successful
    assert solution.aux["b"] == solution.value["b"]
    # The first iteration goes on with the evaluation at x0.
    assert solution.stats["num_iterations"] == solution.stats["num_evaluations"]
    assert solution.stats["grad_norm"] <= 1e-4


def test_a_limit_is_an_error_or_a_result():
    short = minimise(of_value, SOLVER, START, args=2.0, max_steps=5, throw=False)
    assert short.result == optx.RESULTS.nonlinear_max_steps_reached
    assert short.stats["num_steps"] == 5
    with pytest.raises(Exception, match="maximum number of steps"):
        minimise(of_value, SOLVER, START, args=2.0, max_steps=5)


def test_a_solve_that_diverges_says_so():
    """The step is far too long: the first one leads to where nothing is finite."""
    solver = home.RAGD(0.0, 1e-4, step_size=1e30, momentum=0.5, radius=1e-3, epoch_length=10)
    failed = minimise(of_value, solver, START, args=2.0, max_steps=50, throw=False)
    assert failed.result == optx.RESULTS.nonfinite
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(failed.value))


def test_the_perturbed_method_leaves_a_saddle():
    solver = home.PerturbedRAGD(
        0.0, 1e-2, gradient_lipschitz=8.0, hessian_lipschitz=12.0, eps=0.1, perturbation=1e-2
    )

    def saddle(y, args):
        return jnp.sum((y**2 - 1.0) ** 2) / 4

    options = {"key": jax.random.key(3)}
    found = minimise(saddle, solver, jnp.zeros(2), options=options, max_steps=4000, throw=False)
    assert saddle(found.value, None) < 0.1


def test_parameters_are_checked_as_they_are_elsewhere():
    with pytest.raises(ValueError, match=r"momentum=2.0 .* must be in"):
        home.RAGD(0.0, 1e-3, momentum=2.0)
    with pytest.raises(ValueError, match="RAGD needs gradient_lipschitz"):
        minimise(of_value, home.RAGD(0.0, 1e-3), START, args=2.0)


def test_a_relative_tolerance_is_one_of_the_first_gradient():
    solver = home.RAGD(
        rtol=0.1, atol=0.0, step_size=0.02, momentum=0.8, radius=10.0, epoch_length=1000
    )
    solution = minimise(of_value, solver, START, args=2.0, max_steps=500)
    first = np.sqrt(4 * 4.0**2 + 2.0**2)
    assert 0.0 < solution.stats["grad_norm"] <= 0.1 * first


def test_a_minimiser_is_one_class_that_pickle_finds():
    from momentous.jax import minimisers

    assert home.RAGD is minimisers.RAGD is pickle.loads(pickle.dumps(home.RAGD))
    assert home.RAGD.kind is momentous.RAGD
    with pytest.raises(AttributeError, match=r"'momentous\.jax\.minimisers' has no attribute 'CG'"):
        minimisers.CG  # noqa: B018


def test_residuals_are_for_least_squares():
    def residuals(y, c):
        return {"a": y["w"] ** 2 - c, "b": y["b"] - 1.0}

    found = least_squares(residuals, home.LBFGS(0.0, 1e-4), START, args=2.0, max_steps=100)
    np.testing.assert_allclose(found.value["w"], np.sqrt(2.0), atol=1e-3)


def test_root_find_is_refused_with_the_way_out():
    def residuals(y, _):
        return y**2 - 2.0

    with pytest.raises(TypeError, match=r"kink at the root.*optimistix.least_squares"):
        optx.root_find(residuals, SOLVER, jnp.ones(2))
    found = least_squares(residuals, SOLVER, jnp.ones(2), max_steps=500)
    assert np.allclose(found.value, np.sqrt(2.0), atol=1e-3)
