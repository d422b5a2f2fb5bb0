"""Simple terms in compiled runs of JAX: the same steps as on the host."""

import numpy as np
import pytest

from momentous import L1, ElasticNet, GroupL2, NonNegative, Simplex, minimize

jax = pytest.importorskip("jax")
jnp = jax.numpy


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 12))
    y = X[:, 0] - 2 * X[:, 3] + 0.3 * rng.standard_normal(30)

    def fun(w):
        e = jnp.asarray(X, w.dtype) @ w - jnp.asarray(y, w.dtype)
        return jnp.mean(jnp.log1p(e * e))

    return fun


def on_host(fun, term, tol):
    pair = jax.jit(jax.value_and_grad(fun))

    def both(x):
        value, gradient = pair(x)
        return float(value), np.asarray(gradient)

    start = np.full(12, 1 / 12)
    return minimize(both, start, jac=True, penalty=term, tol=tol, method="lbfgs")


@pytest.mark.slow
@pytest.mark.parametrize(
    "term", [ElasticNet(0.1, 0.2), GroupL2(0.1, np.arange(12) // 3), Simplex()]
)
def test_compiled_runs_take_the_steps_of_the_host(problem, term):
    from momentous.jax import solve

    with jax.enable_x64(True):
        found = solve(problem, jnp.full(12, 1 / 12), penalty=term, tol=1e-8, method="lbfgs")
        host = on_host(problem, term, 1e-8)
    assert found.success
    assert abs(int(found.nfev) - host.nfev) <= 2
    np.testing.assert_allclose(found.x, host.x, atol=1e-7)
    assert float(found.fun) == pytest.approx(host.fun, abs=1e-12)


@pytest.mark.slow
def test_weights_can_be_vmapped(problem):
    from momentous.jax import solve

    weights = [0.02, 0.1, 0.3]
    with jax.enable_x64(True):
        path = jax.vmap(
            lambda weight: solve(
                problem, jnp.full(12, 1 / 12), penalty=L1(weight), tol=1e-8, method="lbfgs"
            )
        )(jnp.asarray(weights))
        for weight, fun, x in zip(weights, path.fun, path.x, strict=True):
            host = on_host(problem, L1(weight), 1e-8)
            assert float(fun) == pytest.approx(host.fun, abs=1e-10)
            assert ((np.asarray(x) == 0.0) == (host.x == 0.0)).all()


class From0To1(NonNegative):
    def prox(self, x, step):
        return jnp.minimum(super().prox(x, step), 1.0)


def test_a_subclass_keeps_its_own_prox():
    from momentous.jax import solve

    found = solve(lambda x: jnp.sum((x - 3.0) ** 2), jnp.zeros(2), penalty=From0To1())
    np.testing.assert_allclose(found.x, 1.0)


def test_compiled_refusals(problem):
    from momentous.jax import solve

    with pytest.raises(ValueError, match="bounds= and penalty= cannot"):
        solve(problem, jnp.zeros(12), penalty=L1(), bounds=(0, 1))
    with pytest.raises(ValueError, match="does not take one"):
        solve(problem, jnp.zeros(12), penalty=L1(), method="ada-ragd")
    with pytest.raises(TypeError, match="must be one of L1"):
        solve(problem, jnp.zeros(12), penalty=0.1)


@pytest.mark.slow
def test_there_are_no_derivatives_in_either_mode():
    """By weights and by args, of x, fun and aux: NaN, never a silent 0."""
    from momentous.jax import solve

    def fun(x, a):
        return jnp.sum((x["one"] - a) ** 2) + jnp.sum(x["two"] ** 2), (x["one"] * 2, 3)

    def solved(weight, a):
        start = {"one": jnp.zeros(2), "two": jnp.zeros(1)}
        found = solve(fun, start, (a,), penalty=L1(weight), has_aux=True, method="lbfgs")
        return found.x["one"], found.fun, found.aux[0]

    given = jnp.asarray(0.1), jnp.asarray(2.0)
    assert solved(*given)[0] == pytest.approx(1.95, abs=1e-4)
    for by in (0, 1):
        change = tuple(jnp.asarray(float(i == by)) for i in range(2))
        made = jax.jvp(solved, given, change)[1], jax.jacrev(solved, by)(*given)
        for leaf in jax.tree.leaves(made):
            assert np.isnan(leaf).all()
        assert np.isnan(jax.grad(lambda *of: solved(*of)[1], by)(*given))


@pytest.mark.slow
def test_values_of_failed_runs_have_no_derivatives_in_either_mode():
    from momentous.jax import solve

    def value(a):
        fun, options = lambda x, a: jnp.sum((x - a) ** 4), {"method": "lbfgs"}
        return solve(fun, jnp.zeros(2), (a,), max_evaluations=2, **options).fun

    assert np.isnan(jax.grad(value)(3.0))
    assert np.isnan(jax.jvp(value, (3.0,), (1.0,))[1])


def test_weights_may_be_lists():
    from momentous.jax import solve

    found = solve(
        lambda x: jnp.sum((x - 1.0) ** 2), jnp.zeros(2), penalty=L1([0.0, 9.0]), method="lbfgs"
    )
    np.testing.assert_allclose(found.x, [1.0, 0.0], atol=1e-5)
