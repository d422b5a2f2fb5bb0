"""The Gauss-Newton metric is the matrix it says it is, and methods run in it as they are."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from momentous import minimize
from momentous.api import iterate
from momentous.core.checkpoint import Checkpoint, CheckpointError
from momentous.core.status import EventKind, Status
from momentous.lowrank import GaussNewton, LowRankObjective, Metric, Ratings, minimize_in_metric
from momentous.lowrank.backends import blocks
from momentous.lowrank.solvers.metric import DAMPING
from momentous.methods import (
    LBFGS,
    AdaRAGD,
    AdaRHB,
    GradientDescent,
    ParameterFreeAGD,
    Safeguarded,
    UniversalHeavyBall,
)
from momentous.methods.in_metric import InMetric

LOSSES = ("squared", "logistic")
BACKENDS = pytest.mark.parametrize("backend", ["numpy", "numba"])


@pytest.fixture(autouse=True)
def _numba_where_it_is_needed(request):
    call = getattr(request.node, "callspec", None)
    if call and call.params.get("backend") == "numba":
        pytest.importorskip("numba")


def some_ratings(m, n, count, rng=0):
    """Activity falls off along rows and columns; the last row and column stay empty."""
    rng = np.random.default_rng(rng)
    weight = np.outer(1 / np.arange(1, m), 1 / np.arange(1, n)).ravel() ** 0.5
    chosen = rng.choice(weight.size, count, replace=False, p=weight / weight.sum())
    rows, cols = chosen // (n - 1), chosen % (n - 1)
    signal = rng.standard_normal((m, 2)) @ rng.standard_normal((2, n))
    values = 3 + signal[rows, cols] + 0.3 * rng.standard_normal(count)
    return Ratings(rows, cols, values, (m, n))


def made(loss="squared", rank=3, shape=(12, 9), count=50, **options):
    ratings = some_ratings(*shape, count)
    options = {"balance": 0.7, "ridge": 0.3, "backend": "numpy", **options}
    data = ratings.signs() if loss == "logistic" else ratings
    return LowRankObjective(data, rank, loss, **options)


def some_point(problem, rng=1):
    x = np.random.default_rng(rng).standard_normal(problem.dimension)
    return x.astype(problem.dtype)


def residuals(problem, x):
    """Whose sum of squares is 2 N F for the squared loss, data and balance apart."""
    U, V = problem.split(x)
    ratings = problem.ratings
    weight = math.sqrt(1.0 if problem.loss.name == "squared" else 0.25)
    data = weight * np.einsum("kp,kp->k", U[ratings.rows], V[ratings.cols])
    return data, math.sqrt(problem.balance) * (U.T @ U - V.T @ V).ravel()


def dense(problem, x, damping):
    """M from central differences of the residuals, which are exact for these parabolas."""
    size, r, m = problem.dimension, problem.rank, problem.ratings.shape[0]
    steps = np.eye(size)
    pairs = [(residuals(problem, x + e), residuals(problem, x - e)) for e in steps]
    data, balance = (np.array([(a[k] - b[k]) / 2 for a, b in pairs]) for k in (0, 1))
    of_row = np.arange(size) // r
    blocks = np.where(of_row[:, None] == of_row, data @ data.T, 0.0)
    for side in (slice(0, m * r), slice(m * r, size)):
        diagonal = np.diagonal(blocks)[side]
        blocks[side, side] += damping * diagonal.mean() * np.eye(diagonal.size)
    return (blocks + problem.ridge * np.eye(size) + balance @ balance.T) / problem.ratings.nnz


def columns(function, size, dtype=np.float64):
    return np.array([function(e) for e in np.eye(size, dtype=dtype)], np.float64).T


# --- the matrix ---------------------------------------------------------------------------------


@BACKENDS
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("balance", "ridge"), [(0.7, 0.3), (5.0, 0.0), (0.0, 0.2)])
def test_it_is_the_damped_gauss_newton_matrix_without_the_coupling(loss, balance, ridge, backend):
    problem = made(loss, balance=balance, ridge=ridge, backend=backend)
    x = some_point(problem)
    metric, expected = Metric(problem, x, 0.15), dense(problem, x, 0.15)
    size, scale = problem.dimension, abs(expected).max()
    np.testing.assert_allclose(columns(metric.apply, size), expected, rtol=0, atol=1e-14 * scale)
    inverse = np.linalg.inv(expected)
    np.testing.assert_allclose(
        columns(metric.solve, size), inverse, rtol=0, atol=1e-12 * abs(inverse).max()
    )
    assert np.linalg.eigvalsh(expected)[0] > 0.0
    a, b = np.random.default_rng(2).standard_normal((2, size))
    assert metric.inner(a, b) == pytest.approx(a @ expected @ b, rel=1e-11)


@pytest.mark.parametrize("balance", [0.0, 3.0])
def test_in_its_coordinates_it_is_the_sum_of_squares(balance):
    problem = made(balance=balance)
    x = some_point(problem)
    metric, expected = Metric(problem, x), dense(problem, x, DAMPING)
    S = columns(metric.coordinates, problem.dimension)
    np.testing.assert_allclose(S.T @ S, expected, rtol=0, atol=1e-13 * abs(expected).max())
    # Gradients are pulled back by the transpose of what takes coordinates to points.
    out = columns(lambda w: metric.point(metric.origin + w) - x, problem.dimension)
    np.testing.assert_allclose(S @ out, np.eye(len(S)), rtol=0, atol=1e-11)
    np.testing.assert_allclose(columns(metric.pulled, len(S)), out.T, rtol=0, atol=1e-11)
    assert np.array_equal(metric.point(metric.origin), x)


def test_rows_are_worked_on_in_parts_of_any_length(monkeypatch):
    problem = made("logistic", backend="numpy")
    x = some_point(problem)
    whole = columns(Metric(problem, x).solve, problem.dimension)
    monkeypatch.setattr(blocks, "BLOCK", 5)
    monkeypatch.setattr(blocks, "NUMBERS", 40)
    parts = columns(Metric(problem, x).solve, problem.dimension)
    np.testing.assert_allclose(parts, whole, rtol=1e-11, atol=1e-12 * abs(whole).max())


@BACKENDS
def test_single_precision_is_kept_and_is_close(backend):
    problem = made("logistic", dtype=np.float32, backend=backend)
    x = some_point(problem)
    metric = Metric(problem, x)
    v = some_point(problem, 5)
    for function in (metric.apply, metric.solve, metric.coordinates, metric.pulled, metric.point):
        assert function(v).dtype == np.float32
    expected = dense(made("logistic"), x.astype(np.float64), DAMPING)
    solved = np.linalg.solve(expected, v.astype(np.float64))
    np.testing.assert_allclose(metric.solve(v), solved, rtol=0, atol=1e-4 * abs(solved).max())


@pytest.mark.parametrize("zero", ["U", "both"])
def test_factors_of_zeros_still_have_a_metric(zero):
    problem = made(ridge=0.0)
    U, V = (part.copy() for part in problem.split(some_point(problem)))
    U[:] = 0.0
    V[:] = 0.0 if zero == "both" else V
    metric = Metric(problem, problem.join(U, V))
    v = some_point(problem, 3)
    assert metric.inner(v, v) > 0.0
    np.testing.assert_allclose(metric.apply(metric.solve(v)), v, atol=1e-10)


# --- minimising in it -----------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "method",
    [UniversalHeavyBall(1.0), ParameterFreeAGD(1.0), AdaRAGD()],
    ids=lambda method: method.name,
)
def test_it_needs_fewer_evaluations_than_lbfgs_for_the_same_objective(loss, method):
    problem = made(loss, shape=(80, 50), count=1200, balance=1.0, ridge=0.5)
    settings = {"tol": 1e-6, "max_evaluations": 20_000}
    ours = minimize_in_metric(problem, method=method, **settings)
    theirs = minimize(
        problem.value_and_gradient, problem.start(), jac=True, method=LBFGS(memory=10), **settings
    )
    assert ours.success
    assert theirs.success
    assert ours.fun == pytest.approx(theirs.fun, rel=1e-6)
    assert ours.njev < theirs.njev
    assert ours.numbers["refreshes"] > 0


def test_the_euclidean_norm_of_the_gradient_is_what_ends_it():
    problem = made(shape=(30, 20), count=200)
    result = minimize_in_metric(problem, tol=1e-7)
    assert result.status is Status.CONVERGED
    assert result.grad_norm == np.linalg.norm(problem.gradient(result.x)) <= 1e-7
    assert np.array_equal(result.jac, problem.gradient(result.x))
    assert result.fun == problem.value(result.x)
    assert result.trace is not None
    assert len(result.trace) == result.nit + 1


def test_evaluations_are_counted_once_each_and_metrics_apart():
    problem, calls = made(shape=(30, 20), count=200), []

    def counted(x):
        calls.append(x)
        return problem.value_and_gradient(x)

    metrics = GaussNewton(problem)
    run = iterate(
        counted, problem.start(), jac=True, tol=1e-6, method=InMetric(UniversalHeavyBall(), metrics)
    )
    result = run.finish()
    assert result.nfev == result.njev == len(calls)
    assert metrics.count == run.memory.refreshes + 1
    assert 0.0 < metrics.seconds < result.time


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_run_ends_above_its_start(dtype):
    problem = made("logistic", shape=(30, 20), count=200, dtype=dtype)
    x0 = some_point(problem)
    values = [
        minimize_in_metric(problem, x0, tol=0.0, max_evaluations=limit).fun
        for limit in (2, 5, 10, 20, 40, 80, 160)
    ]
    assert values[0] <= problem.value(x0)
    assert all(b <= a for a, b in itertools.pairwise(values))


def test_single_precision_gets_as_far_as_its_rounding():
    problem = made(shape=(40, 30), count=500, dtype=np.float32)
    result = minimize_in_metric(problem, tol=1e-5, max_evaluations=2000)
    assert result.success
    assert result.x.dtype == np.float32
    best = minimize_in_metric(made(shape=(40, 30), count=500), tol=1e-8)
    assert result.fun == pytest.approx(best.fun, rel=1e-4)


def test_the_metric_is_that_of_the_point_where_the_momentum_restarted():
    problem = made(shape=(30, 20), count=200)
    metrics = GaussNewton(problem)
    run = iterate(
        problem.value_and_gradient,
        problem.start(),
        jac=True,
        method=InMetric(UniversalHeavyBall(gradient_lipschitz=1.0), metrics),
    )
    before, moves = run.memory.centre, 0
    for step in run:
        restarted = any(
            event.kind in (EventKind.RESTART, EventKind.ROLLBACK) for event in step.events
        )
        if run.memory.centre is not before:
            moves += 1
            assert restarted
            assert run.memory.centre is run.report.accepted.point
            # The tolerance that the method knows is in the norm that it sees.
            assert run.memory.inner.tol == run.memory.tol * run.memory.dual
            assert np.array_equal(metrics(run.memory.centre).x, run.memory.centre)
        before = run.memory.centre
    assert moves == run.memory.refreshes > 2


@pytest.mark.parametrize("method", [AdaRAGD(), AdaRHB()], ids=lambda method: method.name)
def test_with_nothing_given_the_metric_moves_along_at_no_cost_in_gradients(method):
    problem = made(shape=(30, 20), count=200)
    run = iterate(
        problem.value_and_gradient, problem.start(), jac=True, tol=1e-6,
        method=InMetric(method, GaussNewton(problem)),
    )  # fmt: skip
    before, spent = run.memory.centre, run.oracle.njev
    for step in run:
        if run.memory.centre is not before:
            assert any(event.kind is EventKind.RESTART for event in step.events)
            assert run.memory.centre is run.report.accepted.point
        before = run.memory.centre
    assert run.result.status is Status.CONVERGED
    assert run.memory.refreshes > 2
    assert run.oracle.njev - spent <= 1.2 * run.result.nit


def test_steps_that_overflow_are_taken_back():
    problem = made(shape=(30, 20), count=200)
    method = UniversalHeavyBall(gradient_lipschitz=1e-120)
    result = minimize_in_metric(problem, method=method, tol=1e-5)
    assert result.success
    kinds = {event.kind for _, event in result.trace.events}
    assert EventKind.NON_FINITE in kinds


def test_points_out_of_reach_are_for_the_objective_to_judge():
    problem = made()
    metric = Metric(problem, some_point(problem))
    assert not np.isfinite(metric.point(np.full(problem.dimension, 1e308))).all()


# --- the wrapper ----------------------------------------------------------------------------------


@dataclasses.dataclass
class Flat:
    """The Euclidean metric, at any point."""

    origin: np.ndarray | None = None

    def __call__(self, x):
        return Flat(x)

    def point(self, w):
        return w

    def pulled(self, g):
        return g

    def describe(self):
        return {}


def rosenbrock(x):
    a, b = x[1:] - x[:-1] ** 2, 1 - x[:-1]
    g = np.zeros_like(x)
    g[1:] += 200 * a
    g[:-1] -= 400 * a * x[:-1] + 2 * b
    return float(100 * np.sum(a**2) + np.sum(b**2)), g


@pytest.mark.parametrize(
    "method",
    [UniversalHeavyBall(), ParameterFreeAGD(), LBFGS(), GradientDescent(), AdaRHB(), Safeguarded()],
    ids=lambda method: method.name,
)
@pytest.mark.parametrize("fused", [True, False])
def test_in_the_euclidean_metric_a_method_is_what_it_is_without(method, fused):
    if fused:
        task = {"fun": rosenbrock, "jac": True}
    else:
        task = {"fun": lambda x: rosenbrock(x)[0], "jac": lambda x: rosenbrock(x)[1]}
    options = {"x0": np.zeros(6), "tol": 1e-6, "max_iterations": 400, **task}
    plain = minimize(method=method, **options)
    wrapped = minimize(method=InMetric(method, Flat()), **options)
    assert np.array_equal(wrapped.x, plain.x)
    assert (wrapped.nfev, wrapped.njev, wrapped.nit) == (plain.nfev, plain.njev, plain.nit)
    assert wrapped.restarts == plain.restarts


def test_a_run_that_is_resumed_goes_on_bit_for_bit(tmp_path):
    problem = made(shape=(30, 20), count=200)
    whole = minimize_in_metric(problem, tol=1e-8)
    file = tmp_path / "run.npz"
    part = minimize_in_metric(problem, tol=1e-8, max_iterations=17, checkpoint=Checkpoint(file))
    assert not part.success
    rest = minimize_in_metric(problem, tol=1e-8, resume=file)
    assert np.array_equal(rest.x, whole.x)
    assert (rest.nit, rest.restarts) == (whole.nit, whole.restarts)
    assert rest.numbers["refreshes"] == whole.numbers["refreshes"]
    with pytest.raises(CheckpointError, match="damping"):
        minimize_in_metric(problem, damping=0.1, resume=file)


@pytest.mark.parametrize("damping", [0.0, -1.0, math.nan, math.inf])
def test_a_damping_that_is_not_positive_is_refused(damping):
    with pytest.raises(ValueError, match=r"damping=.* above 0"):
        minimize_in_metric(made(), damping=damping)


def test_what_is_no_objective_no_method_no_point_is_refused():
    problem = made()
    with pytest.raises(TypeError, match="needs a LowRankObjective, not Ratings"):
        Metric(problem.ratings, np.ones(3))
    with pytest.raises(ValueError, match=r"flat vector of length \(12 \+ 9\) \* 3 = 63"):
        Metric(problem, np.ones(3))
    x = some_point(problem)
    x[4] = np.inf
    with pytest.raises(ValueError, match=r"x\[4\] is inf"):
        Metric(problem, x)
    with pytest.raises(TypeError, match="must be a Method"):
        InMetric("universal-hb", GaussNewton(problem))
    with pytest.raises(TypeError, match="metric_at"):
        InMetric(UniversalHeavyBall(), lambda x: x)
