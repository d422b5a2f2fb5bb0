"""`minimize_many(penalty=)`: every problem is its single run."""

from __future__ import annotations

import numpy as np
import pytest

from momentous import (
    L1,
    Box,
    CheckpointError,
    ElasticNet,
    GroupL2,
    Simplex,
    minimize,
    minimize_many,
)

RANDOM = np.random.default_rng(0)
DATA, TARGETS = RANDOM.standard_normal((30, 6)), RANDOM.standard_normal((20, 30))


def squares(x, targets):
    rest = DATA @ x.reshape(-1) - targets
    return 0.5 * rest @ rest, (DATA.T @ rest).reshape(x.shape)


@pytest.mark.parametrize("shape", [(6,), (2, 3)])
@pytest.mark.parametrize("term", [L1(3.0), ElasticNet(2.0, 1.0), GroupL2(3.0)])
def test_every_problem_is_its_single_run(term, shape):
    X, options = RANDOM.standard_normal((20, *shape)), {"jac": True, "penalty": term, "tol": 1e-8}
    result = minimize_many(squares, X, (TARGETS,), vectorized=False, **options)
    assert result.success.all()
    for i in (0, 7, 19):
        single = minimize(squares, X[i], (TARGETS[i],), **options)
        for name in ("x", "fun", "jac", "nit", "nfev", "penalty", "optimality", "message"):
            assert np.array_equal(single[name], result[i][name]), name


def test_a_run_with_a_term_goes_on_where_it_was_saved(tmp_path):
    X, path = RANDOM.standard_normal((5, 6)), tmp_path / "runs.npz"
    options = {"jac": True, "penalty": L1(3.0), "tol": 1e-8, "vectorized": False}
    whole = minimize_many(squares, X, (TARGETS[:5],), **options)

    def breaks_off(x, targets):
        breaks_off.calls += 1
        if breaks_off.calls > 30:
            raise KeyboardInterrupt
        return squares(x, targets)

    breaks_off.calls = 0
    with pytest.raises(KeyboardInterrupt):
        minimize_many(breaks_off, X, (TARGETS[:5],), checkpoint=path, **options)
    rest = minimize_many(squares, X, (TARGETS[:5],), resume=path, **options)
    assert np.array_equal(rest.x, whole.x)
    assert np.array_equal(rest.nfev, whole.nfev)
    for other in (L1(2.0), ElasticNet(3.0, 0.5), None):
        with pytest.raises(CheckpointError, match="another penalty"):
            minimize_many(squares, X, (TARGETS[:5],), resume=path, **options | {"penalty": other})


def test_a_box_is_bounds_and_a_start_outside_a_set_moves_in():
    X, options = RANDOM.random((3, 6)), {"jac": True, "vectorized": False}
    boxed = minimize_many(squares, X, (TARGETS[:3],), penalty=Box(0.0, 1.0), **options)
    bounded = minimize_many(squares, X, (TARGETS[:3],), bounds=(0.0, 1.0), **options)
    assert np.array_equal(boxed.x, bounded.x)
    with pytest.warns(RuntimeWarning, match="infinite at x0"):
        inside = minimize_many(squares, -X, (TARGETS[:3],), penalty=Simplex(1.0), **options)
    assert inside.success.all()
    assert np.allclose(inside.x.sum(axis=1), 1.0)


def test_what_cannot_be_is_refused():
    X, options = np.ones((3, 6)), {"jac": True, "vectorized": False}
    with pytest.raises(ValueError, match="cannot be given together"):
        minimize_many(squares, X, (TARGETS[:3],), penalty=L1(), bounds=(0, 1), **options)
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="for NumPy and JAX"):
        minimize_many(lambda X: (X**2).sum(1), torch.ones(3, 2), penalty=L1())
