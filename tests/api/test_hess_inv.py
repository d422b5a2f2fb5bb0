"""``hess_inv`` of a result: the BFGS matrix as a linear operator."""

import itertools
import pickle

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from momentous import LBFGS, iterate, minimize
from momentous.core.machine import Host
from momentous.methods.classical.curvature import correction
from momentous.methods.classical.inverse_hessian import InverseHessian


def quadratic(n):
    """A strongly convex quadratic: the curvature is the same everywhere."""
    rng = np.random.default_rng(n)
    root = rng.standard_normal((n, n))
    A = root @ root.T / n + np.eye(n)
    return lambda x: (0.5 * float(x @ A @ x), A @ x)


def naive(run):
    """H by the printed update, from the points of a run, with all its pairs."""
    points = [(run.report.sample.point, run.report.sample.value, run.report.sample.gradient)]
    points += [(step.x, step.report.sample.value, step.jac) for step in run]
    pairs = []
    for (x, f, g), (x_new, f_new, g_new) in itertools.pairwise(points):
        s, y = (x_new - x).reshape(-1), (g_new - g).reshape(-1)
        noise = run.report.noise  # of values: corrections below it are none
        pairs.append((s, y, correction(f - f_new, float(s @ g.reshape(-1)), float(s @ y), noise)))
    return pairs


def updated(pairs, n):
    s, y, _ = pairs[-1]
    H = np.eye(n) * (s @ y) / (y @ y)
    for s, y, t in pairs:
        V = np.eye(n) - np.outer(y, s) / (s @ y)
        H = V.T @ H @ V + np.outer(s, s) / (t * (s @ y))
    return H


@pytest.mark.parametrize("memory", [None, 4], ids=["whole", "pairs"])
def test_it_is_the_product_of_the_printed_update(memory):
    n = 6
    run = iterate(quadratic(n), np.ones(n), jac=True, method=LBFGS(memory=memory), tol=1e-3)
    pairs = naive(run)
    assert len(pairs) > 4
    H = run.result.hess_inv
    pairs = pairs if memory is None else pairs[-memory:]
    # On a quadratic corrections are rounding, or 1: what matters is that they are the same.
    expected = updated(pairs, n)
    assert np.allclose(H.todense(), expected, rtol=1e-5, atol=1e-7)
    for v in np.random.default_rng(0).standard_normal((3, n)):
        assert np.allclose(H @ v, expected @ v, rtol=1e-5, atol=1e-7)


def test_with_corrections_it_is_what_the_method_goes_by():
    """-H g is the next direction: of a run by pairs, and of one by the matrix."""
    for memory, n in ((None, 5), (3, 5), (None, 200)):
        x0 = np.full(n, 1.3)
        run = iterate(rosen, x0, jac=rosen_der, method=LBFGS(memory=memory), max_iterations=9)
        for _ in run:
            pass
        here, curvature = run.memory.current, run.memory.curvature
        direction = curvature.descent(Host.of(run.oracle.space), here.gradient)
        assert np.allclose(run.result.hess_inv @ here.gradient, -direction, rtol=1e-9)


@pytest.mark.parametrize("method", ["auto", "lbfgs"])
@pytest.mark.parametrize("n", [3, 150], ids=["whole", "pairs"])
def test_it_is_a_symmetric_positive_definite_operator(method, n):
    result = minimize(rosen, np.full(n, 1.3), jac=rosen_der, method=method)
    H = result.hess_inv
    assert isinstance(H, LinearOperator)
    dense = np.asarray(H)
    assert np.array_equal(dense, dense.T)
    assert np.linalg.eigvalsh(dense).min() > 0
    v, w = np.random.default_rng(1).standard_normal((2, n))
    assert np.allclose(H @ v, dense @ v)
    assert np.allclose(H.T @ v, H @ v)
    assert np.allclose(H @ np.column_stack([v, w]), dense @ np.column_stack([v, w]))
    assert (2 * H + H).shape == (n, n)  # SciPy's algebra


def test_it_survives_pickling_and_other_shapes_and_dtypes():
    x0 = np.full((3, 50), 1.3, np.float32)

    def both(x):
        return float(np.sum(x**4 - 8 * x**2)), 4 * x**3 - 16 * x

    result = minimize(both, x0, jac=True, tol=1e-2)
    again = pickle.loads(pickle.dumps(result))
    assert np.array_equal(again.hess_inv @ np.ones(150), result.hess_inv @ np.ones(150))
    # The Hessian at the minima, +-2, is 32 times the identity.
    assert result.hess_inv @ np.ones(150) == pytest.approx(np.full(150, 1 / 32), rel=0.3)


def test_a_run_that_is_resumed_has_it(tmp_path):
    path = tmp_path / "run.npz"
    given = {"jac": rosen_der, "method": "lbfgs"}
    minimize(rosen, np.full(150, 1.3), max_iterations=20, checkpoint=path, **given)
    resumed = minimize(rosen, np.full(150, 1.3), resume=path, **given)
    whole = minimize(rosen, np.full(150, 1.3), **given)
    assert np.array_equal(resumed.hess_inv @ np.ones(150), whole.hess_inv @ np.ones(150))


def test_without_a_step_it_is_the_identity():
    for n in (2, 200):
        result = minimize(lambda x: (float(x @ x), 2 * x), np.zeros(n), jac=True)
        assert np.array_equal(result.hess_inv @ np.ones(n), np.ones(n))


def test_methods_without_a_matrix_have_none():
    result = minimize(lambda x: (float(x @ x), 2 * x), np.ones(2), jac=True, method="gd")
    assert "hess_inv" not in result
    assert result.get("hess_inv") is None
    with pytest.raises(AttributeError):
        result.hess_inv  # noqa: B018


def test_copies_of_a_result_have_it():
    result = minimize(rosen, np.full(3, 1.3), jac=rosen_der)
    for other in (result.copy(), result | {"more": 1}, pickle.loads(pickle.dumps(result))):
        assert type(other) is type(result)
        assert isinstance(other.hess_inv, InverseHessian)
        assert np.array_equal(np.asarray(other.hess_inv), np.asarray(result.hess_inv))


def test_it_is_an_array_too():
    result = minimize(rosen, np.full(3, 1.3), jac=rosen_der)
    H, dense, v = result.hess_inv, result.hess_inv.todense(), np.arange(3.0)
    made = {
        "diag(2 H)": (np.diag(2 * H), np.diag(2 * dense)),
        "H + eye": (H + np.eye(3), dense + np.eye(3)),
        "eye + H": (np.eye(3) + H, dense + np.eye(3)),
        "H[0, 0]": (H[0, 0], dense[0, 0]),
        "diagonal": (np.sqrt(H.diagonal()), np.sqrt(np.diag(dense))),
        "sqrt": (np.sqrt(abs(H)), np.sqrt(abs(dense))),
        "H * v": (H * v, dense * v),
        "v @ H @ v": (v @ H @ v, v @ dense @ v),
        "A @ H": (dense @ H, dense @ dense),
        "H @ H": (H @ H, dense @ dense),
        "inverse": (np.linalg.inv(H), np.linalg.inv(dense)),
        "operators": ((H + aslinearoperator(dense)) @ v, 2 * dense @ v),
    }
    for name, (ours, numpys) in made.items():
        assert np.allclose(ours, numpys), name
        assert type(ours) is type(numpys), name
    assert np.allclose(np.asarray(H.T), dense)
    assert np.allclose(list(H), dense)
    more = H
    more += np.eye(3)  # another array
    assert np.allclose(more, dense + np.eye(3))
    H.todense()[0, 0] = H[0][0] = 7.0  # copies
    assert H[0, 0] == dense[0, 0]


def test_with_many_variables_it_is_an_operator_only():
    result = minimize(lambda x: (float(x @ x), 2 * x), np.ones(4001), jac=True)
    H = np.float64(2) * result.hess_inv + result.hess_inv
    assert (H @ np.ones(4001))[0] == pytest.approx(1.5)
    for read in (np.sqrt, lambda H: H[0, 0], lambda H: H.trace()):
        with pytest.raises(TypeError, match=r"4,001 variables is a linear operator only: .*H @ v"):
            read(result.hess_inv)


def test_of_differences_it_warns_when_it_is_read():
    given = {"x0": np.full(2, 1.3), "jac": "2-point"}
    result = minimize(rosen, **given)  # no warning
    again = pickle.loads(pickle.dumps(result))
    for each in (result, again):
        with pytest.warns(RuntimeWarning, match=r"differences of fun.*error-bars\.md") as warned:
            np.diag(each.hess_inv)
        assert warned[0].filename == __file__
        each.hess_inv @ np.ones(2)  # once is enough
