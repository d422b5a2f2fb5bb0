"""`minimize_many`: every lane is its single run, and nothing leaks from one to another."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest

from momentous import (
    CheckpointError,
    ManyResult,
    Rule,
    Status,
    certify,
    minimize,
    minimize_many,
)
from momentous.methods.registry import rules

RADIUS = {"step_size": 1e-4, "momentum": 0.9, "radius": 20.0, "epoch_length": 300}
OPTIONS: dict[str, dict[str, Any]] = {
    "ragd": RADIUS,
    "rhb": RADIUS,
    "perturbed-ragd": RADIUS | {"eps": 1e-1, "hessian_lipschitz": 100.0},
}


def starts(count: int = 20, d: int = 4, seed: int = 0) -> np.ndarray:
    return 1.2 * np.random.default_rng(seed).standard_normal((count, d))


def rosenbrock(X: np.ndarray) -> tuple[Any, np.ndarray]:
    a, b = X[..., 1:] - X[..., :-1] ** 2, 1 - X[..., :-1]
    gradient = np.zeros_like(X)
    gradient[..., 1:] = 200 * a
    gradient[..., :-1] += -400 * a * X[..., :-1] - 2 * b
    return np.sum(100 * a**2 + b**2, axis=-1), gradient


def powell(X: np.ndarray) -> tuple[Any, np.ndarray]:
    """Singular at its minimum."""
    a, b, c, d = (X[..., i] for i in range(4))
    p, q, r, s = a + 10 * b, c - d, b - 2 * c, a - d
    parts = (
        2 * p + 40 * s**3, 20 * p + 4 * r**3, 10 * q - 8 * r**3, -10 * q - 40 * s**3,
    )  # fmt: skip
    return p**2 + 5 * q**2 + r**4 + 10 * s**4, np.stack(parts, axis=-1)


def cosines(X: np.ndarray) -> tuple[Any, np.ndarray]:
    """Values that cancel: searches look at their noise."""
    return np.sum(1 - np.cos(X), axis=-1) + 1e7, np.sin(X)


def barrier(X: np.ndarray) -> tuple[Any, np.ndarray]:
    """NaN beyond a wall."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sum(X**2 - np.log(2.5 - X), axis=-1), 2 * X + 1 / (2.5 - X)


def slope(X: np.ndarray) -> tuple[Any, np.ndarray]:
    return np.sum(X, axis=-1), np.ones_like(X)


FUNCTIONS = [rosenbrock, powell, cosines, barrier, slope]


def require_single_runs(fun: Any, X: np.ndarray, result: ManyResult, **options: Any) -> None:
    def of_one(x: np.ndarray) -> Any:  # by the operations of the batch, to the last bit
        values, gradients = fun(x[None])
        return float(values[0]), gradients[0]

    for x, lane in zip(X, result, strict=True):
        single = minimize(of_one, x, jac=True, trace=False, **options)
        assert (lane.status, lane.message) == (single.status, single.message)
        assert (lane.nit, lane.restarts) == (single.nit, single.restarts)
        if single.success:  # where not, `minimize` may evaluate more at the end
            assert (lane.nfev, lane.njev) == (single.nfev, single.njev)
        np.testing.assert_array_equal(lane.x, single.x)
        np.testing.assert_array_equal(lane.jac, single.jac)
        assert lane.fun == single.fun
        assert lane.success == single.success


@pytest.mark.parametrize("fun", FUNCTIONS, ids=lambda fun: fun.__name__)
@pytest.mark.parametrize("method", ["auto", "lbfgs"])
def test_exact_lanes_have_the_bits_of_single_runs(fun: Any, method: str) -> None:
    X, options = starts(12), {"method": method, "tol": 1e-6}
    require_single_runs(fun, X, minimize_many(fun, X, jac=True, exact=True, **options), **options)


QUASI_NEWTON = ("safeguarded", "lbfgs", "ssbroyden")


@pytest.mark.parametrize("name", [name for name in rules() if name not in QUASI_NEWTON])
def test_lanes_of_momentum_methods_have_the_bits_of_single_runs(name: str) -> None:
    X, options = starts(5), {"method": name, "tol": 1e-3, "max_iterations": 500}
    options |= OPTIONS.get(name, {})
    require_single_runs(rosenbrock, X, minimize_many(rosenbrock, X, jac=True, **options), **options)


@pytest.mark.parametrize(("d", "tol"), [(4, 1e-6), (140, 1e-1)], ids=["matrix", "window"])
@pytest.mark.parametrize("method", ["auto", "lbfgs", "ssbroyden"])
def test_fast_lanes_differ_by_rounding(method: str, d: int, tol: float) -> None:
    X = starts(4, d)
    options = {"jac": True, "method": method, "tol": tol}
    fast, exact = (minimize_many(rosenbrock, X, exact=e, **options) for e in (False, True))
    assert fast.success.all()
    close = np.abs(fast.nfev - exact.nfev) <= 0.1 * exact.nfev
    assert np.mean(close) >= 0.75
    np.testing.assert_allclose(np.median(fast.nfev), np.median(exact.nfev), rtol=0.1)


def test_a_short_memory_wraps_around() -> None:
    X, options = starts(6, 10), {"method": "lbfgs", "memory": 3, "tol": 1e-5}
    result = minimize_many(rosenbrock, X, jac=True, **options)
    assert result.success.all()
    single = [minimize(rosenbrock, x, jac=True, **options).nfev for x in X]
    np.testing.assert_allclose(np.mean(result.nfev), np.mean(single), rtol=0.15)


def test_every_row_is_asked_for_by_one_lane_and_counted_there() -> None:
    rows, calls = 0, []

    def counted(X: np.ndarray) -> Any:
        nonlocal rows
        rows += len(X)
        calls.append(len(X))
        return rosenbrock(X)

    result = minimize_many(counted, starts(60), jac=True)
    assert rows == result.nfev.sum()
    assert calls == sorted(calls, reverse=True)  # who has ended is not asked again
    assert calls[-1] < 60


def test_a_lane_does_not_depend_on_the_others() -> None:
    X = starts(30)
    for exact in (False, True):
        whole = minimize_many(rosenbrock, X, jac=True, exact=exact)
        part = minimize_many(rosenbrock, X[7:9], jac=True, exact=exact)
        np.testing.assert_array_equal(whole.nfev[7:9], part.nfev)
        if exact:
            np.testing.assert_array_equal(whole.x[7:9], part.x)


def test_a_bad_lane_harms_no_other() -> None:
    X = starts(10)

    def fun(X: np.ndarray, problem: np.ndarray) -> Any:
        values, gradients = rosenbrock(X)
        values = np.where(problem == 3, np.nan, values)
        gradients[problem == 5] = np.nan
        gradients[problem == 6] *= -1  # no gradient at all
        return values, gradients

    result = minimize_many(fun, X, (np.arange(10),), jac=True)
    good = [i for i in range(10) if i not in (3, 5, 6)]
    assert result.success.tolist() == [i in good for i in range(10)]
    assert result.status[[3, 5]].tolist() == [Status.NON_FINITE] * 2
    assert "fun(x0) is nan" in result[3].message
    assert "gradient at x0" in result[5].message
    assert result.status[6] == Status.NO_PROGRESS
    alone = minimize_many(rosenbrock, X[good], jac=True)
    np.testing.assert_array_equal(alone.nfev, result.nfev[good])


def test_arguments_with_the_axis_of_problems_are_cut() -> None:
    a, shared = np.linspace(1.0, 9.0, 17), np.array([0.5, 2.0])

    def fun(X: np.ndarray, a: np.ndarray, shared: np.ndarray) -> Any:
        assert a.shape == (len(X),)
        assert shared.shape == (2,)
        return np.sum(shared * (X**2 - a[:, None]) ** 2, axis=1), 4 * shared * X * (
            X**2 - a[:, None]
        )

    result = minimize_many(fun, np.ones((17, 2)), (a, shared), jac=True, tol=1e-8)
    np.testing.assert_allclose(result.x, np.sqrt(a)[:, None] * np.ones(2), rtol=1e-6)


@pytest.mark.parametrize("jac", ["separate", "2-point", "3-point", "by rows"])
def test_ways_to_the_gradient(jac: str) -> None:
    def value(X: np.ndarray, a: Any) -> Any:
        return np.sum((X - a[..., None]) ** 2, axis=-1)

    def gradient(X: np.ndarray, a: Any) -> Any:
        return 2 * (X - a[..., None])

    a = np.arange(5.0)
    given: dict[str, Any] = {"jac": gradient if jac == "separate" else jac}
    fun: Any = value
    if jac == "by rows":
        given = {"jac": True, "vectorized": False}
        fun = lambda x, a: (float(value(x, a)), gradient(x, a))  # noqa: E731
    result = minimize_many(fun, np.ones((5, 3)), (a,), tol=1e-4, **given)
    np.testing.assert_allclose(result.x, a[:, None] * np.ones(3), atol=1e-4)
    values = {"2-point": 4, "3-point": 7}.get(jac, 1)
    more = result.nfev - values * result.njev  # where steps of differences did not fit
    assert not more.any() if values == 1 else (more >= 0).all()


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("rounds", [np.float32, lambda values: np.round(values, 6)])
def test_values_that_are_rounded_are_no_minima_where_runs_begin(rounds: Any, exact: bool) -> None:
    """Over the usual steps of double precision they do not change."""

    def fun(X: np.ndarray) -> np.ndarray:
        return rounds((X[:, 0] - 1) ** 2 + 10 * (X[:, 1] + 2) ** 2)

    result = minimize_many(fun, np.zeros((3, 2)), jac="3-point", exact=exact)
    assert result.x == pytest.approx(np.tile([1.0, -2.0], (3, 1)), abs=1e-3)
    assert not any("norm 0 " in message for message in result.message)


def test_without_a_gradient_numpy_warns() -> None:
    with pytest.warns(RuntimeWarning, match="forward differences"):
        result = minimize_many(lambda X: np.sum(X**2, axis=1), np.ones((2, 3)))
    assert result.success.all()


def test_points_of_any_shape_and_lists_of_starts() -> None:
    def fun(X: np.ndarray) -> Any:
        assert X.shape[1:] == (2, 3)
        return np.sum(X**2, axis=(1, 2)), 2 * X

    result = minimize_many(fun, [np.ones((2, 3)), np.full((2, 3), 5)], jac=True)
    assert result.x.shape == result.jac.shape == (2, 2, 3)
    assert result[1].x.shape == (2, 3)
    mixed = minimize_many(fun, [np.ones((2, 3)), [[5, 5, 5], [5, 5, 5]]], jac=True)
    np.testing.assert_array_equal(mixed.x, result.x)


def test_a_function_of_one_point_may_return_a_list() -> None:
    result = minimize_many(lambda x: [x @ x, 2 * x], starts(3), jac=True, vectorized=False)
    assert result.success.all()


def test_single_precision_stays() -> None:
    result = minimize_many(rosenbrock, starts(10).astype(np.float32), jac=True, tol=1e-2)
    assert result.success.all()
    assert result.x.dtype == result[0].x.dtype == np.float32


def test_limits_and_targets() -> None:
    X = starts(6)
    few = minimize_many(rosenbrock, X, jac=True, max_evaluations=20)
    assert {*few.status.tolist()} == {Status.MAX_EVALUATIONS}
    assert not few.success.any()
    assert (few.nfev <= 24).all()
    assert (few.fun <= rosenbrock(X)[0]).all()
    assert {*minimize_many(rosenbrock, X, jac=True, max_iterations=3).nit.tolist()} == {3}
    target = minimize_many(rosenbrock, X, jac=True, target=4.0)
    assert {*target.status.tolist()} == {Status.TARGET_REACHED}
    late = minimize_many(rosenbrock, X, jac=True, max_time=0)
    assert {*late.status.tolist()} == {Status.MAX_TIME}
    assert "raise max_time" in late[0].message


def test_a_tolerance_below_rounding_ends_without_success() -> None:
    def bowl(X: np.ndarray) -> Any:
        return np.sum(np.cosh(X - np.pi / 7), axis=1), np.sinh(X - np.pi / 7)

    result = minimize_many(bowl, starts(6), jac=True, tol=1e-40, max_iterations=2000)
    assert not (result.success & (result.grad_norm > 1e-40)).any()
    assert (result.grad_norm < 1e-6).all()


def test_the_result_is_a_sequence_with_a_table() -> None:
    X = starts(8)
    result = minimize_many(rosenbrock, X, jac=True, disp=False)
    assert len(result) == len(list(result)) == len(result.message) == 8
    assert result[-1].fun == result.fun[7]
    with pytest.raises(IndexError, match="8 problems"):
        result[8]
    with pytest.raises(TypeError, match="not slice; the arrays"):
        result[1:3]  # type: ignore[index]
    assert "8 problems" in repr(result)
    assert "CONVERGED" in repr(result)
    for some, count in ((X[:, 0] > X[:, 0].max() - 1e-9, 1), (X[:, 0] > -np.inf, 8)):
        infinite = np.where(some, np.inf, 0.0)
        broken = minimize_many(lambda X, c: (X[:, 0] - c, X + c[:, None]), X, infinite, jac=True)
        assert f"{count} NON_FINITE" in repr(broken)  # without a warning
    assert certify(rosenbrock, result[0].x, jac=True, eps=1e-3, rho=1.0)


def test_the_best_of_many_starts_and_how_many_reached_it() -> None:
    def well(X: np.ndarray) -> Any:
        return np.sum(X**4 - 8 * X**2 + X, axis=1), 4 * X**3 - 16 * X + 1

    best = minimize_many(well, np.array([[3.0], [-3.0], [-1.0], [1.0]]), jac=True).best
    assert (best.index in (1, 2), best.reached) == (True, 2)
    assert best.x[0] < -2


def test_bar_and_table(capsys: pytest.CaptureFixture[str]) -> None:
    minimize_many(rosenbrock, starts(4), jac=True, disp=True, progress=True)
    shown = capsys.readouterr()
    assert "4 problems" in shown.out
    assert "4 of 4 problems" in shown.err


class BrokenError(Exception):
    pass


def failing(after: int, error: Any) -> Any:
    calls = 0

    def fun(X: np.ndarray) -> Any:
        nonlocal calls
        calls += 1
        if calls > after:
            error()
        return rosenbrock(X)

    return fun


def test_an_exception_brings_what_was_found() -> None:
    def fail() -> None:
        raise BrokenError

    X = starts(20)
    with pytest.raises(BrokenError) as caught:
        minimize_many(failing(34, fail), X, jac=True)
    found = caught.value.result
    assert 0 < found.success.sum() < 20
    assert {*found.status.tolist()} == {Status.CONVERGED, Status.STOPPED}
    assert (found.fun < rosenbrock(X)[0]).all()
    with pytest.raises(BrokenError):
        minimize_many(failing(0, fail), X, jac=True)


@pytest.mark.parametrize("exact", [False, True])
def test_ctrl_c_keeps_what_is_done_and_a_resumed_batch_has_the_same_bits(
    tmp_path: Any, exact: bool
) -> None:
    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    X, path = starts(20), tmp_path / "batch.npz"
    options: dict[str, Any] = {"jac": True, "exact": exact}
    with pytest.raises(KeyboardInterrupt) as caught:
        minimize_many(failing(20, interrupt), X, checkpoint=path, **options)
    found = caught.value.result
    assert Status.INTERRUPTED in found.status
    again = minimize_many(
        failing(3, interrupt), X, resume=path, checkpoint=path, interrupts="return", **options
    )
    assert Status.INTERRUPTED in again.status
    resumed = minimize_many(rosenbrock, X, resume=path, **options)
    whole = minimize_many(rosenbrock, X, **options)
    for name in ("x", "fun", "jac", "nit", "nfev", "status", "restarts"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(whole, name))
    with pytest.raises(CheckpointError, match="other starts"):
        minimize_many(rosenbrock, X + 1, resume=path, **options)
    with pytest.raises(CheckpointError, match="leave method out"):
        minimize_many(rosenbrock, X, resume=path, method="ada-ragd", **options)
    with pytest.raises(CheckpointError, match="resume it with minimize_many"):
        minimize(rosenbrock, X[0], jac=True, resume=path)
    minimize(rosenbrock, X[0], jac=True, checkpoint=tmp_path / "single.npz")
    with pytest.raises(CheckpointError, match="single run"):
        minimize_many(rosenbrock, X, resume=tmp_path / "single.npz", **options)


def test_a_resumed_batch_keeps_its_promises(tmp_path: Any) -> None:
    def fail() -> None:
        raise BrokenError

    X, path = np.arange(12.0).reshape(3, 4) / 8, tmp_path / "batch.npz"
    X[0, 0] = np.nan
    with pytest.raises(BrokenError):
        minimize_many(failing(5, fail), X, jac=True, tol=1e-2, checkpoint=path)
    resumed = minimize_many(rosenbrock, X, jac=True, tol=1e-2, resume=path, checkpoint=path)
    assert resumed.success.tolist() == [False, True, True]
    # A success at 1e-2 is none at 1e-5.
    with pytest.raises(CheckpointError, match=r"written with tol=0.01"):
        minimize_many(rosenbrock, X, jac=True, resume=path)
    with pytest.raises(CheckpointError, match="exact=False"):
        minimize_many(rosenbrock, X, jac=True, tol=1e-2, resume=path, exact=True)
    for other in (X[[0, 2, 1]], X.astype(np.float32)):  # whose sums are the same
        with pytest.raises(CheckpointError, match="other starts"):
            minimize_many(rosenbrock, other, jac=True, tol=1e-2, resume=path)


@pytest.mark.parametrize("exact", [False, True])
def test_a_resumed_batch_asks_every_problem_for_its_function(tmp_path: Any, exact: bool) -> None:
    X, path, none, left = starts(20), tmp_path / "batch.npz", np.zeros(20), iter(range(34))

    def fun(X: np.ndarray, value: np.ndarray, slope: np.ndarray) -> Any:
        values, gradients = rosenbrock(X)
        return values + value, gradients + slope[:, None]

    def broken(*given: np.ndarray) -> Any:
        if next(left, None) is None:
            raise BrokenError
        return fun(*given)

    options: dict[str, Any] = {"jac": True, "exact": exact}
    with pytest.raises(BrokenError) as caught:
        minimize_many(broken, X, (none, none), checkpoint=path, **options)
    found = caught.value.result
    ended, running = np.flatnonzero(found.success)[-1], np.flatnonzero(~found.success)[-1]
    for problem in (ended, running):
        other = np.where(np.arange(20) == problem, 10.0, 0.0)
        for args, what in ((other, none), "fun"), ((none, other), "the distance to .* gradient"):
            with pytest.raises(CheckpointError, match=f"{what} of problem {problem} is"):
                minimize_many(fun, X, args, resume=path, **options)
    assert minimize_many(fun, X, (none, none), resume=path, **options).success.all()


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (np.ones(3), {}, r"X0 has shape \(3,\).*X0\[None\]"),
    (np.ones((0, 3)), {}, "at least one start"),
    ([], {}, "X0 is empty"),
    ([np.ones(2), np.ones(3)], {}, "as many variables"),
    (np.ones((2, 3), complex), {}, "real and imaginary"),
    (np.ones((2, 3)), {"method": "jin-agd"}, "does not run in a batch"),
    (np.ones((2, 3)), {"memry": 3}, "no option 'memry'"),
    (np.ones((2, 3)), {"tol": -1.0}, "tol=-1.0"),
    (np.ones((2, 3)), {"target": np.ones(2)}, r"target=array.* must be a number"),
    (np.ones((2, 3)), {"interrupts": "no"}, "'raise' or 'return'"),
    (np.ones((2, 3)), {"jac": "sometimes"}, "not understood"),
    (np.ones((2, 3)), {"jac": "autodiff"}, "does not differentiate"),
]


@pytest.mark.parametrize(("X0", "options", "message"), REFUSED)
def test_invalid_input(X0: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        minimize_many(rosenbrock, X0, **({"jac": True} | options))


@pytest.mark.parametrize(
    ("fun", "message"),
    [
        (lambda X: (X.sum(), X), r"one value for each.*vectorized=False"),
        (lambda X: (X.sum(axis=1), X[:, :1]), r"gradients of 2 points have shape \(2, 1\)"),
        (lambda X: X.sum(axis=1), "must return .values, gradients."),
        (lambda X: (X.sum(axis=1), X.astype(np.float32)), "dtype float32"),
        (lambda X: (X.sum(axis=1) + 0j, X), "complex128; they must be real"),
        (lambda X: (X.sum(axis=1), np.add(X, 1, out=X)), "work on x.copy"),
        (None, "must be callable"),
    ],
)
def test_functions_that_return_something_else(fun: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        minimize_many(fun, np.ones((2, 3)), jac=True)


def test_all_registered_rules_run_in_lanes() -> None:
    assert all(issubclass(cls, Rule) for name, cls in rules().items()
               if name not in OPTIONS)  # fmt: skip


@pytest.mark.parametrize("count", [1, 3])
def test_all_lanes_may_fail_at_once(count: int) -> None:
    """A kink ends every search, and pairs are dropped in all lanes in one turn."""
    starts = np.random.default_rng(0).normal(size=(count, 2))
    result = minimize_many(
        lambda X: (np.abs(X).sum(1), np.sign(X)), starts, jac=True, max_iterations=200
    )
    assert not result.success.any()


@pytest.mark.parametrize("bounds", [None, [(-3.0, 3.0), (None, 3.0)]])
def test_multistart_draws_starts_around_one_or_between_bounds(bounds: Any) -> None:
    seen = []

    def wells(X: np.ndarray) -> Any:
        seen.append(X.copy())
        return np.sum(X**4 - 8 * X**2 + X, axis=1), 4 * X**3 - 16 * X + 1

    result = minimize_many(
        wells, np.array([1.0, 1.0]), jac=True, multistart=40, bounds=bounds, rng=3
    )
    first = seen[0]
    assert len(result) == len(first) == 40
    assert first[0].tolist() == [1.0, 1.0]
    assert len(np.unique(first[:, 0])) == 40
    if bounds:
        assert (np.abs(first[:, 0]) <= 3).all()
        assert first[:, 0].min() < -2  # uniform over the box
        assert first[:, 0].max() > 2
        assert (np.concatenate(seen)[:, 1] <= 3).all()
    lowest = int(np.sum(np.all(result.x < 0, axis=1)))
    assert 0 < lowest < 40
    assert result.best.reached == lowest
    assert (result.best.x < -2).all()
    again = minimize_many(wells, [1.0, 1.0], jac=True, multistart=40, bounds=bounds, rng=3)
    np.testing.assert_array_equal(again.x, result.x)


def test_multistart_is_refused_where_it_means_nothing() -> None:
    with pytest.raises(ValueError, match="multistart=0 must be a whole number"):
        minimize_many(rosenbrock, np.ones(3), jac=True, multistart=0)
    with pytest.raises(TypeError, match=r"minimize_many\(\.\.\., multistart=m\)\.best"):
        minimize(rosenbrock, np.ones(3), jac=True, multistart=5)
