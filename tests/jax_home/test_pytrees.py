"""`momentous.jax.minimize`, `iterate` and `solve`: pytrees in and out, compiled once."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
import scipy.optimize

from momentous import Status

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import momentous  # noqa: E402
from momentous.jax import iterate, minimize, pytrees, solve  # noqa: E402

START = {"w": jnp.ones((2, 2)), "b": jnp.array(0.0)}


def loss(p, c=2.0):
    return jnp.sum((p["w"] ** 2 - c) ** 2) + (p["b"] - 1.0) ** 2


def test_dir_shows_the_public_names():
    assert {"minimize", "iterate", "solve", "LBFGS"} <= {*dir(momentous.jax)}
    assert {*dir(momentous.jax)} == {*momentous.jax.__all__}


def test_without_jac_an_array_of_jax_is_differentiated():
    result = momentous.minimize(lambda x: jnp.sum((x - 2.0) ** 2), jnp.zeros(3), tol=1e-3)
    assert result.success
    assert result.nfev == result.njev  # differences would take more


@pytest.mark.parametrize("method", ["auto", "ada-rhb"])
def test_the_solution_is_a_tree_like_the_start(method):
    found = minimize(loss, START, method=method, tol=1e-3)
    assert found.success
    assert jax.tree.structure(found.x) == jax.tree.structure(START)
    for tree in (found.x, found.jac, found.best_x):
        assert tree["w"].shape == (2, 2)
        assert tree["b"].shape == ()
    np.testing.assert_allclose(found.x["w"], np.sqrt(2.0), atol=1e-3)


def test_args_and_aux():
    def with_aux(p, c, power):
        return loss(p, c) ** power, {"c": c, "b": p["b"]}

    found = minimize(with_aux, START, (jnp.array(3.0), 1), has_aux=True, tol=1e-3)
    assert found.aux["c"] == 3.0
    assert found.aux["b"] == found.x["b"]
    with pytest.raises(TypeError, match=r"has_aux=True fun must return \(value, aux\)"):
        minimize(loss, START, has_aux=True)


def test_leaves_keep_their_dtypes():
    with jax.enable_x64(True):
        start = {"w": jnp.ones(2, jnp.float32), "b": jnp.zeros((), jnp.float64)}
        found = minimize(loss, start, tol=1e-3)
        assert found.x["w"].dtype == jnp.float32
        assert found.x["b"].dtype == jnp.float64
    with pytest.raises(TypeError, match=r"complex64.*real and imaginary parts"):
        minimize(loss, START | {"b": jnp.array(1j)})


def test_one_array_stays_as_it_is():
    found = minimize(lambda x: jnp.sum((x**2 - 2.0) ** 2), jnp.ones((2, 3)), tol=1e-3)
    assert found.x.shape == (2, 3)


def test_vectors_of_a_run_on_a_cpu_are_numpys_and_the_user_sees_those_of_jax():
    with jax.enable_x64(True):
        start = jnp.linspace(-1.0, 1.0, 12)
        fun = jax.jit(lambda x: jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2))
        pair = jax.jit(jax.value_and_grad(fun))
        by_hand = momentous.minimize(
            lambda x: (float(pair(x)[0]), np.asarray(pair(x)[1])), np.asarray(start), jac=True
        )
        seen = []
        run = iterate(fun, start, callback=lambda xk: seen.append(xk))
        found = run.finish()
        assert run._run.oracle.space.library is np.ndarray
        assert found.njev == by_hand.njev
        np.testing.assert_array_equal(found.x, by_hand.x)
        assert all(isinstance(x, jax.Array) for x in (found.x, found.jac, *seen))
        # A term of the user's own may be written for JAX.
        run = iterate(fun, start, penalty=momentous.L1(0.1))
        assert isinstance(run.result.x, run._run.oracle.space.library)
        assert run._run.oracle.space.library is not np.ndarray


def test_steps_and_callbacks_show_trees():
    seen = []
    run = iterate(loss, START, callback=lambda xk: seen.append(xk["b"]))
    step = next(run)
    assert step.x["w"].shape == step.jac["w"].shape == (2, 2)
    assert step.nit == 1
    assert seen == [step.x["b"]]
    assert run.result.status is Status.STOPPED

    def stop(intermediate_result):
        return bool(intermediate_result.x["b"] > 0)

    assert minimize(loss, START, callback=stop).nit == 1


def test_disp_and_return_all_are_as_of_arrays(capsys):
    found = minimize(lambda p: jnp.sum(p["w"] ** 2), {"w": jnp.ones(2)}, disp=True, return_all=True)
    assert capsys.readouterr().out.startswith(found.message)
    assert [set(each) for each in found.allvecs] == [{"w"}] * (found.nit + 1)


def test_ctrl_c_has_the_result_with_trees():
    def interrupt(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        minimize(lambda p: jnp.sum(p["w"] ** 4), {"w": jnp.ones(2)}, callback=interrupt)
    assert raised.value.result.status is Status.INTERRUPTED
    assert set(raised.value.result.x) == {"w"}


def test_ctrl_c_in_the_first_evaluation_has_the_start_as_a_tree():
    def interrupted(p):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        minimize(interrupted, {"w": jnp.ones(2)})
    assert raised.value.result.status is Status.INTERRUPTED
    assert raised.value.result.x["w"].tolist() == [1.0, 1.0]
    assert raised.value.result.jac is None


def test_a_jitted_function_is_traced_once_for_many_runs():
    traces = []

    @jax.jit
    def counted(p, c):
        traces.append(c)
        return loss(p, c)

    for c in (2.0, 3.0):
        found = minimize(counted, START, (jnp.array(c),), tol=1e-3)
        np.testing.assert_allclose(found.x["w"], np.sqrt(c), atol=1e-3)
    assert len(traces) == 1


def test_a_plain_function_sees_what_has_changed_between_runs():
    target = 2.0

    def moving(x):
        return jnp.sum((x - target) ** 2)

    assert momentous.minimize(moving, jnp.zeros(2), jac="autodiff").x[0] == pytest.approx(2.0)
    target = 5.0
    assert momentous.minimize(moving, jnp.zeros(2), jac="autodiff").x[0] == pytest.approx(5.0)


def test_a_function_that_cannot_be_traced_is_differentiated_with_a_warning():
    def branching(x):
        return jnp.sum(x**2) if x[0] > 0.5 else jnp.sum(x**2) / 2

    with pytest.warns(RuntimeWarning, match=r"cannot be compiled by jax.jit.*jnp.where"):
        found = momentous.minimize(branching, jnp.ones(2), jac="autodiff", tol=1e-3)
    assert found.success


def test_jac_is_refused_and_empty_trees_are():
    with pytest.raises(TypeError, match="differentiates fun itself"):
        minimize(loss, START, jac=True)
    with pytest.raises(ValueError, match="no arrays"):
        minimize(loss, {})


def test_single_precision_is_named_where_it_ends_a_run():
    def far_out(x):
        return jnp.sum(jnp.array([1.0, 100.0, 3.0]) * (x - 1000.3) ** 2 + jnp.cos(x))

    found = minimize(far_out, jnp.zeros(3), tol=1e-12)
    assert found.status is Status.NO_PROGRESS
    assert "x is float32" in found.message
    assert "jax_enable_x64" in found.message


def test_solve_is_the_run_of_minimize_in_one_piece():
    given = {"step_size": 0.05, "momentum": 0.8, "radius": 10.0, "epoch_length": 1000}
    found = solve(loss, START, (jnp.array(2.0),), method="ragd", tol=1e-4, **given)
    by_host = minimize(loss, START, (jnp.array(2.0),), method="ragd", tol=1e-4, **given)
    assert bool(found.success)
    assert found.message == "converged"
    assert int(found.nit) == by_host.nit
    np.testing.assert_allclose(found.x["w"], by_host.x["w"], atol=1e-5)
    short = solve(loss, START, method="ragd", tol=1e-4, max_evaluations=3, **given)
    assert not bool(short.success)
    assert short.message == "max evaluations"
    short = solve(
        loss, START, (jnp.array(2.0),), method="ragd", tol=1e-4, max_iterations=3, **given
    )
    by_host = minimize(loss, START, (jnp.array(2.0),), method="ragd", max_iterations=3, **given)
    assert (short.message, int(short.nit)) == ("max iterations", 3)
    assert (by_host.status.name, by_host.nit) == ("MAX_ITERATIONS", 3)
    traced = jax.jit(lambda most: solve(loss, START, max_iterations=most).nit)
    assert [int(traced(most)) for most in (0, 1, 2)] == [0, 1, 2]


def test_a_solution_is_printed_with_its_status_by_name():
    found = solve(loss, START, tol=1e-3)
    lines = dict(line.strip().split(": ", 1) for line in str(found).splitlines())
    assert (lines["success"], lines["status"]) == ("True", "CONVERGED")
    assert lines["x"].startswith("{b: ")
    assert int(lines["nit"]) == int(found.nit)
    starts = {"w": jnp.ones((3, 2, 2)), "b": jnp.array([0.0, 1.0, 2.0])}
    many = jax.vmap(lambda p, c: solve(loss, p, (c,), method="gd", tol=1e-2))
    assert "status: 3 CONVERGED" in str(many(starts, jnp.array([1.0, 2.0, 3.0])))
    assert "Solution(" in str(jax.eval_shape(lambda p: solve(loss, p), START))


def test_bounds_of_a_tree_are_explained_where_they_are_not_like_it():
    pairs = [(0.0, 1.0)] * 5
    for bounds in (pairs, scipy.optimize.Bounds(0.0, 1.0), {"w": (0.0, 1.0)}):
        for call in (solve, minimize):
            with pytest.raises(ValueError, match=r"tree of 2 arrays.*'b': \(0, None\).*one leaf"):
                call(loss, START, bounds=bounds)
    found = minimize(loss, START, bounds={"w": (0.0, 1.0), "b": None}, tol=1e-3)
    assert float(jnp.max(found.x["w"])) == 1.0
    assert abs(float(found.x["b"]) - 1.0) < 1e-3


def test_solve_names_what_it_cannot_do():
    with pytest.raises(TypeError, match=r"key=3 must be a key of JAX"):
        solve(loss, START, key=3)
    with pytest.raises(ValueError, match=r"max_evaluations=1.5 must be a whole number >= 0"):
        solve(loss, START, max_evaluations=1.5)
    with pytest.raises(TypeError, match="jin-agd has no compiled form"):
        solve(loss, START, method="jin-agd")
    with pytest.raises(TypeError, match=r"returned float32\[2\].*one real number"):
        solve(lambda x: x, jnp.ones(2))
    with pytest.raises(TypeError, match="instance already"):
        solve(loss, START, method=momentous.AdaRAGD(), growth=1.1)
    with pytest.raises(TypeError, match=r"'maxiter'; it is called max_iterations here"):
        solve(loss, START, maxiter=10)
    with pytest.raises(ValueError, match=r"tol=-1.0 must be a number >= 0"):
        solve(loss, START, tol=-1.0)
    with pytest.raises(TypeError, match=r"tol is traced.*give a Python number"):
        jax.jit(lambda tol: solve(loss, START, tol=tol).x)(1e-3)


def test_the_example_in_the_docstring_runs():
    results = doctest.testmod(pytrees)
    assert results.attempted >= 4
    assert results.failed == 0


def test_a_value_that_has_left_jax_is_not_differentiated_to_zero():
    with pytest.raises(TypeError, match="no longer depends on x"):
        momentous.minimize(lambda x: jnp.sum((x - 3) ** 2).item(), jnp.ones(3))
