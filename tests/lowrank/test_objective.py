"""The low-rank objective is what its formula says on every backend, the same bits each time."""

import doctest
import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse.linalg

from momentous import minimize
from momentous.lowrank import LowRankObjective, Ratings, balanced, factors, objective, svd_start
from momentous.lowrank.backends import sums
from momentous.lowrank.losses import Logistic

pytest.importorskip("numba")
from momentous.lowrank.backends.numba import compiler

LOSSES = ("squared", "logistic", "implicit")
BACKENDS = pytest.mark.parametrize("backend", ["numba", "numpy"])


def some_ratings(m, n, count, rng=0, dtype=np.float64):
    rng = np.random.default_rng(rng)
    chosen = rng.choice(m * n, count, replace=False)
    values = rng.integers(1, 6, count).astype(dtype)
    return Ratings(chosen // n, chosen % n, values, (m, n))


def made(loss, rank=3, shape=(30, 20), count=250, **options):
    ratings = some_ratings(*shape, count)
    return LowRankObjective(
        ratings.signs() if loss == "logistic" else ratings, rank, loss, **options
    )


def some_point(problem, scale=0.7):
    x = scale * np.random.default_rng(3).standard_normal(problem.dimension)
    return x.astype(problem.dtype)


def close(one, other, tolerance):
    np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)


def dense_value_and_gradient(problem, x):
    """The formulas on full matrices, in double precision: slow and plain."""
    ratings, r = problem.ratings, problem.rank
    (m, n), N = ratings.shape, ratings.nnz
    x = np.asarray(x, np.float64)
    U, V = x[: m * r].reshape(m, r), x[m * r :].reshape(n, r)
    seen, X = np.zeros((m, n), bool), np.zeros((m, n))
    seen[ratings.rows, ratings.cols], X[ratings.rows, ratings.cols] = True, ratings.values
    Z = U @ V.T
    if problem.loss.name == "squared":
        loss, slope = 0.5 * (Z - X) ** 2, Z - X
    elif problem.loss.name == "logistic":
        loss, slope = np.log1p(np.exp(-X * Z)), -X / (1 + np.exp(X * Z))
    else:  # over all pairs, and X is 0 where nothing was seen
        confidence = 1.0 + problem.loss.alpha * X
        loss, slope = 0.5 * confidence * (Z - seen) ** 2, confidence * (Z - seen)
        seen = np.ones_like(seen)
    E, D = np.where(seen, slope, 0.0), U.T @ U - V.T @ V
    squares = np.sum(U**2) + np.sum(V**2)
    penalty = 0.5 * problem.balance * np.sum(D**2) + 0.5 * problem.ridge * squares
    gradients = (
        E @ V + 2 * problem.balance * U @ D + problem.ridge * U,
        E.T @ U - 2 * problem.balance * V @ D + problem.ridge * V,
    )
    value = (np.sum(loss[seen]) + penalty) / N
    return value, np.concatenate([gradient.ravel() for gradient in gradients]) / N


# --- the function ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(30, 20), (20, 30)], ids=["tall", "wide"])
@BACKENDS
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("dtype", "tolerance"), [("f8", 1e-13), ("f4", 1e-5)])
def test_value_and_gradient_are_those_of_the_formula(loss, backend, shape, dtype, tolerance):
    problem = made(loss, 3, shape, balance=0.7, ridge=0.3, dtype=dtype, backend=backend)
    x = some_point(problem)
    value, gradient = problem.value_and_gradient(x)
    expected, slope = dense_value_and_gradient(problem, x)
    assert value == pytest.approx(expected, rel=tolerance)
    assert np.linalg.norm(gradient - slope) <= tolerance * np.linalg.norm(slope)
    assert problem.value(x) == pytest.approx(value, rel=1e-15)
    assert np.array_equal(problem.gradient(x), gradient)
    assert isinstance(value, float)
    assert gradient.dtype == problem.dtype == np.dtype(dtype)


@BACKENDS
@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_is_the_slope_of_the_value(loss, backend):
    problem = made(loss, balance=2.0, ridge=0.5, backend=backend)
    x, h = some_point(problem), 1e-5
    gradient = problem.gradient(x)
    for k in np.random.default_rng(0).choice(x.size, 25, replace=False):
        step = h * (np.arange(x.size) == k)
        slope = (problem.value(x + step) - problem.value(x - step)) / (2 * h)
        assert slope == pytest.approx(gradient[k], rel=1e-6, abs=1e-9)


def test_a_row_longer_than_the_buffer_and_rows_without_entries_count_rightly():
    n = compiler.kernels_for(Logistic).BLOCK + 300
    rows = np.concatenate([np.full(n, 1), [4]])
    cols = np.concatenate([np.arange(n), [7]])
    values = np.random.default_rng(2).standard_normal(n + 1)
    # More rows than columns, so that the long row is one group.
    ratings = Ratings(rows, cols, values, (n + 2, n))
    for backend in ("numba", "numpy"):
        problem = LowRankObjective(ratings, 3, balance=0.0, backend=backend)
        x = some_point(problem)
        value, gradient = problem.value_and_gradient(x)
        expected, slope = dense_value_and_gradient(problem, x)
        assert value == pytest.approx(expected, rel=1e-13)
        assert gradient == pytest.approx(slope, rel=1e-11, abs=1e-15)
        untouched = np.delete(problem.split(gradient)[0], [1, 4], axis=0)
        assert not untouched.any()


def test_the_plain_pass_gives_the_same_in_blocks_of_any_size(monkeypatch):
    problem = made("squared", backend="numpy")
    x = some_point(problem)
    value, gradient = problem.value_and_gradient(x)
    monkeypatch.setattr(sums, "BLOCK", 7)  # less than the longest row
    assert sum(1 for _ in sums.blocks(problem.side(0).groups, problem.rank)) > 20
    assert problem.value(x) == pytest.approx(value, rel=1e-14)
    assert problem.gradient(x) == pytest.approx(gradient, rel=1e-12, abs=1e-16)


@BACKENDS
def test_huge_margins_cost_what_they_should_and_nan_stays_nan(backend):
    ratings = Ratings([0, 1, 1], [0, 0, 1], [1.0, 1.0, -1.0])
    problem = LowRankObjective(ratings, 1, "logistic", balance=0.0, backend=backend)
    assert problem.value(np.array([0.0, 1e6, 1.0, 0.0])) == pytest.approx(math.log(2.0) * 2 / 3)
    assert problem.value(np.array([0.0, -1e6, 1.0, 0.0])) == pytest.approx(1e6 / 3, rel=1e-5)
    value, gradient = problem.value_and_gradient(np.array([0.0, np.nan, 1.0, 0.0]))
    assert math.isnan(value)
    assert np.isnan(gradient[1])


@BACKENDS
@pytest.mark.parametrize("loss", LOSSES)
def test_points_far_out_have_infinite_values_without_a_warning(loss, backend):
    problem = made(loss, backend=backend, dtype="f4")
    x = some_point(problem) * np.float32(1e30)
    value, gradient = problem.value_and_gradient(x)
    assert not math.isfinite(value)
    assert not math.isfinite(problem.value(x))
    assert not np.isfinite(gradient).all()


def test_the_data_term_sees_only_the_product():
    problem = made("squared", balance=0.0)
    U, V = problem.split(some_point(problem))
    G = np.random.default_rng(4).standard_normal((3, 3)) + 3 * np.eye(3)
    turned = problem.join(U @ G, V @ np.linalg.inv(G).T)
    assert problem.value(turned) == pytest.approx(problem.value(problem.join(U, V)), rel=1e-12)


# --- threads --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large():
    return some_ratings(600, 100, 41_000)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_the_same_number_of_threads_gives_the_same_bits(large, loss, dtype):
    ratings = large.signs() if loss == "logistic" else large
    first = LowRankObjective(ratings, 10, loss, dtype=dtype, threads=4)
    again = LowRankObjective(ratings, 10, loss, dtype=dtype, threads=4)
    assert first.threads == 4
    x = some_point(first, 0.4)
    value, gradient = first.value_and_gradient(x)
    for problem in [first, again] * 5:
        v, g = problem.value_and_gradient(x)
        assert v == value
        assert g.tobytes() == gradient.tobytes()
    one = LowRankObjective(ratings, 10, loss, dtype=dtype, threads=1).value_and_gradient(x)
    tolerance = 1e-13 if dtype == "f8" else 1e-5
    assert value == pytest.approx(one[0], rel=tolerance)
    assert np.linalg.norm(gradient - one[1]) <= tolerance * np.linalg.norm(gradient)


def test_several_callers_may_evaluate_one_objective_at_the_same_time(large):
    problem = LowRankObjective(large, 10, threads=2)
    points = [some_point(problem, scale) for scale in (0.1, 0.2, 0.3, 0.4)] * 4
    alone = [problem.value_and_gradient(x) for x in points]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(problem.value_and_gradient, points))
    for (v, g), (w, h) in zip(alone, together, strict=True):
        assert v == w
        assert np.array_equal(g, h)


# --- numba is optional ----------------------------------------------------------------------------


# --- points ---------------------------------------------------------------------------------------


def test_the_start_is_the_truncated_svd_split_evenly_with_fixed_signs():
    ratings = some_ratings(40, 25, 400)
    U, V = svd_start(ratings, 4)
    A, sizes, B = np.linalg.svd(ratings.to_sparse().toarray())
    close(U @ V.T, (A[:, :4] * sizes[:4]) @ B[:4], 1e-9)
    close(U.T @ U, np.diag(sizes[:4]), 1e-9)
    close(V.T @ V, np.diag(sizes[:4]), 1e-9)
    largest = U[np.argmax(np.abs(U), axis=0), np.arange(4)]
    assert np.all(largest > 0)


def test_the_start_does_not_depend_on_the_seed_of_the_solver(monkeypatch):
    x = made("logistic").start()
    solver = scipy.sparse.linalg.svds

    def from_elsewhere(matrix, k, v0):
        return solver(matrix, k=k, v0=np.random.default_rng(77).standard_normal(v0.size))

    monkeypatch.setattr(scipy.sparse.linalg, "svds", from_elsewhere)
    assert made("logistic").start() == pytest.approx(x, abs=1e-9)


@pytest.mark.parametrize("rank", [1, 4, 5])
def test_the_start_exists_up_to_full_rank(rank):
    ratings = some_ratings(12, 5, 40)
    problem = LowRankObjective(ratings, rank, dtype="f4")
    x = problem.start()
    assert x.dtype == np.float32
    assert x.shape == (problem.dimension,) == (17 * rank,)
    if rank == 5:
        U, V = problem.split(x)
        close(U @ V.T, ratings.to_sparse().toarray(), 1e-5)


def test_a_start_is_the_callers_own_and_zeros_start_at_zero():
    problem = made("squared")
    problem.start()[:] = 0.0
    assert problem.start().any()
    zeros = Ratings([0, 1], [0, 1], [0.0, 0.0], (3, 3))
    assert not LowRankObjective(zeros, 2).start().any()


def test_balanced_factors_have_the_same_product_and_equal_sizes():
    problem = made("squared")
    U, V = problem.split(some_point(problem))
    P, Q = balanced(U * [1.0, 10.0, 100.0], V)
    close(P @ Q.T, (U * [1.0, 10.0, 100.0]) @ V.T, 1e-10)
    close(P.T @ P, Q.T @ Q, 1e-9)
    sizes = np.diag(P.T @ P)
    close(P.T @ P, np.diag(sizes), 1e-9)
    assert np.all(np.diff(sizes) < 0)
    with pytest.raises(ValueError, match=r"\(30, 3\) and \(20, 2\)"):
        balanced(U, V[:, :2])


def test_points_are_factors_laid_end_to_end():
    problem = made("squared")
    x = some_point(problem)
    U, V = problem.split(x)
    assert U.shape == (30, 3)
    assert V.shape == (20, 3)
    assert np.array_equal(np.concatenate([U.ravel(), V.ravel()]), x)
    assert np.array_equal(problem.join(U, V), x)
    assert np.shares_memory(U, x)
    assert not U.flags.writeable
    assert x.flags.writeable
    with pytest.raises(ValueError, match=r"U must be of shape \(30, 3\), not \(20, 3\)"):
        problem.join(V, U)


def test_predictions_are_inner_products(monkeypatch):
    monkeypatch.setattr(factors, "PAIRS", 3)
    problem = made("squared")
    x = some_point(problem)
    U, V = problem.split(x)
    rows, cols = np.arange(10), np.arange(10) + 5
    assert problem.predict(x, rows, cols) == pytest.approx(np.sum(U[rows] * V[cols], axis=1))
    assert problem.predict(x, 4, 2) == pytest.approx(U[4] @ V[2])
    everything = problem.predict(x, np.arange(30)[:, None], np.arange(20))
    assert everything == pytest.approx(U @ V.T)
    with pytest.raises(IndexError, match="row index 30 at position 1 is not one of the 30 rows"):
        problem.predict(x, [0, 30], [0, 0])
    with pytest.raises(IndexError, match="column index -1"):
        problem.predict(x, 0, -1)


# --- use ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_minimize_takes_it_as_it_is(loss):
    problem = made(loss, ridge=0.5)
    result = minimize(problem.value_and_gradient, problem.start(), jac=True, tol=1e-8)
    assert result.success
    assert np.linalg.norm(problem.gradient(result.x)) <= 1.1e-8
    U, V = problem.split(result.x)
    close(U.T @ U, V.T @ V, 1e-4)  # balanced at a minimiser


def test_reading_x_is_all_that_happens_to_it():
    problem = made("squared")
    x = some_point(problem)
    value = problem.value(x)
    frozen = x.copy()
    frozen.flags.writeable = False
    assert problem.value_and_gradient(frozen)[0] == value
    assert np.array_equal(frozen, x)
    assert problem.value(np.repeat(x, 2)[::2]) == value  # not contiguous


def test_objectives_survive_pickling():
    problem = made("logistic", ridge=0.1)
    x = some_point(problem)
    assert pickle.loads(pickle.dumps(problem)).value(x) == problem.value(x)


def test_the_example_runs():
    results = doctest.testmod(objective)
    assert results.attempted >= 5
    assert results.failed == 0


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"rank": 0}, ValueError, "rank must be from 1 to 20.* not 0"),
        ({"rank": 21}, ValueError, "smaller side of a 30 x 20 matrix, not 21"),
        ({"rank": 2.0}, TypeError, "whole number, not 2.0"),
        ({"dtype": "int64"}, ValueError, "float32 or float64, not in int64"),
        ({"dtype": "float16"}, ValueError, "float32 or float64, not in float16"),
        ({"threads": 0}, ValueError, "threads must be 1 or more, not 0"),
        ({"threads": "all"}, TypeError, "whole number, not 'all'"),
        ({"balance": -1.0}, ValueError, "balance=-1.0 must be a finite number >= 0"),
        ({"ridge": math.inf}, ValueError, "ridge=inf must be a finite number"),
        ({"backend": "fortran"}, ValueError, "no backend 'fortran'; known are auto, numba, numpy"),
        ({"device": "tpu"}, ValueError, "device='tpu' is not supported: known are auto, cpu, cuda"),
        ({"backend": "cuda"}, ValueError, "works on cuda, not on cpu: take device='cuda'"),
        ({"loss": "hinge"}, ValueError, "no loss 'hinge'; known are squared, logistic"),
        ({"loss": "logistic"}, ValueError, r"entry 0 is \d .*ratings.signs\(\) makes labels"),
    ],
)
def test_what_makes_no_sense_is_refused(options, kind, words):
    with pytest.raises(kind, match=words):
        LowRankObjective(some_ratings(30, 20, 250), **{"rank": 3, **options})


def test_a_point_of_the_wrong_length_is_refused():
    problem = made("squared")
    for x in (np.zeros(149), np.zeros((150, 1))):
        with pytest.raises(ValueError, match=r"length \(30 \+ 20\) \* 3 = 150, not of shape"):
            problem.value(x)
    with pytest.raises(TypeError, match="expected Ratings, not ndarray"):
        LowRankObjective(np.eye(3), 1)
