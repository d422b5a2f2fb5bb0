"""Simple terms in compiled runs of JAX: the same steps as on the host."""

import numpy as np
import pytest

from momentous import L1, ElasticNet, GroupL2, Simplex, minimize

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


def test_compiled_refusals(problem):
    from momentous.jax import solve

    with pytest.raises(ValueError, match="bounds= and penalty= cannot"):
        solve(problem, jnp.zeros(12), penalty=L1(), bounds=(0, 1))
    with pytest.raises(ValueError, match="does not take one"):
        solve(problem, jnp.zeros(12), penalty=L1(), method="ada-ragd")
    with pytest.raises(TypeError, match="must be one of L1"):
        solve(problem, jnp.zeros(12), penalty=0.1)
