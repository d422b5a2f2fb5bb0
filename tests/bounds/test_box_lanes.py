"""Bounds of many problems at once: every lane keeps to its box, and is its single run."""

import os
import signal
from typing import Any

import numpy as np
import pytest
from tests.bounds.boxes import Boxed, random_box

from momentous import CheckpointError, Status, certify, minimize, minimize_many
from momentous.core.space import to_numpy
from momentous.lanes import many


@pytest.fixture(autouse=True, params=["lanes", "few"])
def _lanes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches run one by one, and here in lanes as well."""
    monkeypatch.setattr(many, "FEW", 0 if request.param == "lanes" else 30)


def batch_of(problem: Boxed) -> Any:
    """A function of many points; it counts those outside, as the problem does."""

    def fun(X: np.ndarray) -> Any:
        found = [problem.both(x) for x in X]
        return np.array([f for f, _ in found]), np.stack([g for _, g in found])

    return fun


def starts(problem: Boxed, count: int = 5) -> np.ndarray:
    drawn = 2 * np.random.default_rng(1).standard_normal((count, problem.start.size))
    drawn[0] = problem.start
    return np.clip(drawn, problem.lower, problem.upper)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("method", "parameters"),
    [("auto", {}), ("lbfgs", {}), ("lbfgs", {"memory": 5}), ("ada-ragd", {}), ("ada-rhb", {})],
)
def test_exact_lanes_in_a_box_have_the_bits_of_single_runs(seed, method, parameters) -> None:
    problem = random_box(seed)
    options = {"jac": True, "bounds": problem.bounds, "method": method, "tol": 1e-8, **parameters}
    X = starts(problem)
    exact = minimize_many(batch_of(problem), X, exact=True, **options)
    fast = minimize_many(batch_of(problem), X, **options)
    for x, lane, other in zip(X, exact, fast, strict=True):
        single = minimize(problem.both, x, trace=False, **options)
        for name in ("nfev", "nit", "status", "message", "fun", "grad_norm", "optimality"):
            assert lane[name] == single[name], name
        for name in ("x", "jac", "active", "multipliers"):
            np.testing.assert_array_equal(lane[name], single[name])
        assert other.status == single.status
        np.testing.assert_allclose(other.x, single.x, atol=1e-6)
    assert problem.outside == 0
    assert max(map(problem.stationarity, fast.x[fast.success])) <= 1.001e-8


def wells(xp: Any, X: Any) -> Any:
    return xp.sum((X**2 - 1) ** 2, axis=-1) + X[..., 0] * X[..., 1]


def wells_with_gradients(X: np.ndarray) -> Any:
    gradients = 4 * X * (X**2 - 1)
    gradients[:, 0] += X[:, 1]
    gradients[:, 1] += X[:, 0]
    return wells(np, X), gradients


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_every_problem_may_have_a_box_of_its_own(library: str) -> None:
    xp = pytest.importorskip("jax.numpy" if library == "jax" else library)
    X = np.random.default_rng(0).standard_normal((30, 3)).astype(np.float32)
    tops = np.abs(X)

    def fun(X: Any) -> Any:
        assert (to_numpy(X.detach() if library == "torch" else X) <= tops.max()).all()
        return wells(xp, X)

    options: dict[str, Any] = {"tol": 1e-3}
    if library == "numpy":
        X, tops, fun, options = X.astype(float), tops.astype(float), wells_with_gradients, {
            "jac": True, "tol": 1e-7,
        }  # fmt: skip
    if library == "jax":  # compiled: what it gets cannot be looked at
        fun = lambda X: wells(xp, X)  # noqa: E731
    result = minimize_many(fun, xp.asarray(X), bounds=(None, xp.asarray(tops)), **options)
    assert result.success.all()
    assert (to_numpy(result.x) <= tops).all()
    active = to_numpy(result.active)
    assert 0 < (active == 1).sum() < 90
    np.testing.assert_array_equal(to_numpy(result.x)[active == 1], tops[active == 1])
    assert (to_numpy(result.multipliers)[active == 1] <= 1e-3).all()
    assert type(result.active) is type(result.x)
    one = minimize(
        wells_of_one, X[7].astype(float), jac=True, bounds=[(None, top) for top in tops[7]]
    )
    np.testing.assert_allclose(to_numpy(result.x)[7], one.x, atol=2e-3)


def wells_of_one(x: np.ndarray) -> Any:
    values, gradients = wells_with_gradients(x[None])
    return float(values[0]), gradients[0]


@pytest.mark.parametrize("jac", ["2-point", "3-point"])
def test_differences_stay_inside(jac: str) -> None:
    lower, upper = np.array([0.0, 0.5, -1.0]), np.array([1.0, 0.5, -1.0 + 1e-9])

    def fun(X: np.ndarray) -> Any:
        assert (lower <= X).all()
        assert (upper >= X).all()
        return wells(np, X)

    X = np.stack([lower, upper])
    result = minimize_many(fun, X, jac=jac, bounds=list(zip(lower, upper, strict=True)), tol=1e-4)
    assert result.success.all()
    np.testing.assert_allclose(result.x[:, 0], [0.0, 0.930403], atol=1e-4)
    assert result.nfev[0] == result.njev[0] * (4 if jac == "2-point" else 7)


@pytest.mark.parametrize("method", ["auto", "gd", "ada-ragd"])
def test_a_problem_whose_box_has_no_finite_side_runs_as_without(tmp_path: Any, method: str) -> None:
    X, path = np.random.default_rng(0).standard_normal((20, 3)), tmp_path / "batch.npz"
    top = np.where(np.arange(20) % 2, 0.7, np.inf)[:, None] + 0.0 * X
    X, options = np.minimum(X, top), {"method": method, "jac": True, "tol": 1e-7}
    result = minimize_many(wells_with_gradients, X, bounds=(None, top), **options)
    for x, high, lane in zip(X, top, result, strict=True):
        single = minimize(wells_of_one, x, bounds=(None, high), **options)
        for name in ("nit", "nfev", "njev", "status", "message"):
            assert lane[name] == single[name], name
        np.testing.assert_array_equal(lane.x, single.x)
    left = iter(range(8))

    def broken(X: np.ndarray) -> Any:
        if next(left, None) is None:
            raise TimeoutError
        return wells_with_gradients(X)

    with pytest.raises(TimeoutError):
        minimize_many(broken, X, bounds=(None, top), checkpoint=path, **options)
    del options["method"]
    resumed = minimize_many(wells_with_gradients, X, bounds=(None, top), resume=path, **options)
    np.testing.assert_array_equal(resumed.x, result.x)
    np.testing.assert_array_equal(resumed.nfev, result.nfev)


def test_a_certificate_of_a_lane() -> None:
    bounds = [(-2.0, 0.3), (None, None), (0.0, None)]
    X = np.clip(np.random.default_rng(0).standard_normal((6, 3)), *np.array(
        [(-2, 0.3), (-9, 9), (0, 9)]).T)  # fmt: skip
    result = minimize_many(wells_with_gradients, X, jac=True, bounds=bounds, tol=1e-8)
    found = certify(wells_of_one, result[2].x, jac=True, eps=1e-3, rho=1.0, bounds=bounds)
    assert found


def test_starts_outside_move_inside_and_bounds_that_are_none_change_nothing() -> None:
    X = np.array([[3.0, 0.0, 0.0], [0.5, 0.5, 0.5]])
    with pytest.warns(RuntimeWarning, match="1 of 2 starts lie outside"):
        result = minimize_many(wells_with_gradients, X, jac=True, bounds=(-2.0, 2.0))
    assert result.success.all()
    free = minimize_many(wells_with_gradients, X, jac=True, bounds=(None, np.inf))
    np.testing.assert_array_equal(free.x, minimize_many(wells_with_gradients, X, jac=True).x)
    with pytest.raises(ValueError, match="these do: auto"):
        minimize_many(wells_with_gradients, X, jac=True, bounds=(-4, 4), method="universal-hb")
    with pytest.raises(ValueError, match=r"no x has 2.0 <= x <= 1.0"):
        minimize_many(wells_with_gradients, X, jac=True, bounds=(2, 1))
    late = minimize_many(wells_with_gradients, X, jac=True, bounds=(-4, 4), max_time=0)
    assert "projected gradient norm" in late[0].message


@pytest.mark.parametrize("exact", [False, True])
def test_a_resumed_batch_has_its_boxes(tmp_path: Any, exact: bool) -> None:
    X, path, calls = np.random.default_rng(3).standard_normal((20, 3)), tmp_path / "b.npz", 0
    options: dict[str, Any] = {"jac": True, "exact": exact, "bounds": (X - 0.2, X + 0.5)}

    def interrupted(X: np.ndarray) -> Any:
        nonlocal calls
        calls += 1
        if calls == 6:
            os.kill(os.getpid(), signal.SIGINT)
        return wells_with_gradients(X)

    cut = minimize_many(interrupted, X, checkpoint=path, interrupts="return", **options)
    assert {Status.INTERRUPTED, Status.CONVERGED} <= {*cut.status.tolist()}
    resumed = minimize_many(wells_with_gradients, X, resume=path, **options)
    whole = minimize_many(wells_with_gradients, X, **options)
    for name in ("x", "nfev", "status", "active"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(whole, name))
    with pytest.raises(CheckpointError, match="other bounds"):
        minimize_many(wells_with_gradients, X, resume=path, jac=True, exact=exact, bounds=(-9, 9))


def test_a_singular_matrix_spoils_its_own_lane_alone() -> None:
    from momentous.lanes.machine import Lanes

    matrices = np.stack([np.eye(2), np.zeros((2, 2)), 2 * np.eye(2)])
    found = Lanes(np.ones((3, 2))).solve(matrices, np.ones((3, 2)))
    np.testing.assert_array_equal(found, [[1, 1], [np.nan, np.nan], [0.5, 0.5]])
