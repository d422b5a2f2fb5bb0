"""Half sweeps by conjugate gradients: to the exact ones with many steps, downhill with few."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from momentous import accelerate
from momentous.lowrank import LowRankObjective, Ratings, Sweep, find_backend
from momentous.lowrank.backends import RowStep
from momentous.lowrank.losses import LOSSES, find_loss
from momentous.lowrank.penalty import Penalty

pytestmark = pytest.mark.slow

BACKENDS = ["numba", "numpy"]
ROWS, COLS, RANK = 40, 90, 5
PENALTIES = {
    "plain": Penalty(0.7),
    "biases": Penalty(0.7, 0.3, 0.5, biases=True),
    "held": Penalty(0.7, 0.3, 1.0, biases=True, row_biases=False),
    "none": Penalty(0.0),
}


@pytest.fixture(params=BACKENDS)
def backend(request):
    pytest.importorskip(request.param)
    return request.param


def some_ratings(loss="squared", dtype=np.float64):
    rng = np.random.default_rng(4)
    # Rows with none, one, fewer than the rank, a block of eight, and more than a chunk of entries.
    counts = np.r_[0, 1, 2, 8, rng.integers(3, 30, ROWS - 6), 65, COLS]
    rows = np.repeat(np.arange(ROWS), counts)
    cols = np.concatenate([rng.choice(COLS, count, replace=False) for count in counts])
    values = rng.integers(1, 6, rows.size).astype(dtype)
    ratings = Ratings(rows, cols, values, (ROWS, COLS))
    return ratings.signs() if loss == "logistic" else ratings


def objective(loss, backend, penalty="biases", dtype=np.float64, rank=RANK, threads=1):
    return LowRankObjective(
        some_ratings(loss, dtype), rank, loss, 0.0, PENALTIES[penalty], dtype, threads,
        mean=0.2, backend=backend,
    )  # fmt: skip


def a_point(problem, scale=0.5):
    rng = np.random.default_rng(1)
    return (scale * rng.standard_normal(problem.dimension)).astype(problem.dtype)


@pytest.mark.parametrize("penalty", ["plain", "biases", "held"])
@pytest.mark.parametrize("loss", LOSSES)
def test_as_many_steps_as_parameters_give_the_exact_half_sweep(loss, penalty, backend):
    problem = objective(loss, backend, penalty)
    x = a_point(problem)
    sides = problem.split(x)
    for which in (0, 1):
        own, other = sides[which], sides[1 - which]
        exact, _ = problem.half_sweep(which, own, other)
        found, losses = problem.half_sweep(which, own, other, steps=3 * problem.width)
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-10 * np.abs(exact).max())
        fixed = sum(problem.penalty_of(side, k) for k, side in enumerate(sides))
        assert losses / problem.nnz + fixed == pytest.approx(problem.value(x), rel=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize("loss", LOSSES)
def test_compiled_steps_are_numpys_at_every_rank(loss, steps):
    pytest.importorskip("numba")
    rng = np.random.default_rng(2)
    for rank in (1, 7, 8, 9, 31, 64):
        F, u = (rng.standard_normal((n, rank)) / rank for n in (COLS, ROWS))
        weights, offsets = 0.05 + rng.random((ROWS, rank)), rng.standard_normal(COLS)
        for step in (RowStep(weights, F), RowStep(weights, F, offsets, u)):
            for dtype, accuracy in ((np.float64, 1e-11), (np.float32, 3e-5)):
                step = RowStep(*(None if one is None else one.astype(dtype) for one in step[:4]))
                squares = np.mean(np.square(F), axis=0)
                groups = some_ratings(loss, dtype).by_row
                (fast, value), (slow, expected) = (
                    find_backend(name).side(groups, find_loss(loss), 2).improve_rows(
                        step, squares, steps
                    )
                    for name in BACKENDS
                )  # fmt: skip
                assert fast.dtype == slow.dtype == dtype
                assert np.abs(fast - slow).max() <= accuracy * np.abs(slow).max(), rank
                assert value == pytest.approx(expected, rel=accuracy)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("loss", LOSSES)
def test_sums_for_ranks_are_numpys(loss, dtype):
    pytest.importorskip("numba")
    groups, rng = some_ratings(loss, dtype).by_row, np.random.default_rng(2)
    F, u, d = (rng.standard_normal((n, 11)).astype(dtype) for n in (COLS, ROWS, ROWS))
    fast, slow = (find_backend(name).side(groups, find_loss(loss), 2) for name in BACKENDS)
    step = RowStep(np.ones_like(u), F, None, u)
    accuracy = 1e-12 if dtype == np.float64 else 3e-6
    one, other = fast.row_slopes(step), slow.row_slopes(step)
    assert (one.curvatures is None) == (other.curvatures is None) == (loss == "squared")
    assert one.losses == pytest.approx(other.losses, rel=accuracy)
    pairs = [(one.downwards, other.downwards), (one.curved, other.curved)]
    pairs.append(tuple(s.row_products(F, p.curvatures, d) for s, p in ((fast, one), (slow, other))))
    for found, expected in pairs:
        np.testing.assert_allclose(found, expected, rtol=0, atol=accuracy * np.abs(expected).max())


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_no_sweep_raises_the_objective(loss, penalty, backend):
    problem = objective(loss, backend, penalty)
    for steps in (1, 2):
        sweep, x = Sweep(problem, steps=steps), a_point(problem, 1.5)
        values = []
        for _ in range(12):
            image, value = sweep(x)
            assert value == pytest.approx(problem.value(x), rel=1e-12)
            values.append(value)
            x = image
        values.append(problem.value(x))
        assert all(after <= before * (1 + 1e-12) for before, after in pairwise(values))
        assert values[-1] < 0.9 * values[0]


@pytest.mark.parametrize("loss", LOSSES)
def test_accelerated_sweeps_find_the_minimum_of_exact_ones_again(loss):
    problem = objective(loss, "numpy", rank=2)
    start, found = problem.random_start(np.random.default_rng(0)), []
    for steps in (None, 1):
        sweep = Sweep(problem, steps=steps)
        options = {"value": True, "tol": 1e-8, "max_iterations": 1000}
        result = accelerate(sweep, sweep.begin(start), **options)
        assert result.success, result.message
        point = sweep.point(result.x)
        assert np.linalg.norm(problem.gradient(point)) < 1e-6
        found.append(problem.value(point))
        start = point + 0.05 * a_point(problem)  # near by, for the second
    assert found[1] == pytest.approx(found[0], rel=1e-9)


def test_the_number_of_threads_does_not_change_a_bit():
    pytest.importorskip("numba")
    ratings = Ratings.twin("ml-100k")
    found = []
    for threads in (1, 3):
        problem = LowRankObjective(ratings, 20, ridge=2.0, threads=threads)
        P, Q = problem.split(problem.random_start(np.random.default_rng(0)))
        found.append(problem.half_sweep(0, P, Q, steps=2)[0])
    np.testing.assert_array_equal(*found)


def test_rows_without_entries_become_zeros_and_without_a_ridge_nothing_is_divided_by_zero(backend):
    problem = objective("squared", backend, "none")
    P, Q = problem.split(a_point(problem))
    found, _ = problem.half_sweep(0, P, Q, steps=2)
    assert np.isfinite(found).all()
    assert not found[0].any()
    assert found[1:].any(axis=1).all()
    still, _ = problem.half_sweep(0, P, np.zeros_like(Q), steps=2)
    np.testing.assert_array_equal(still[1:], P[1:])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_more_steps_than_entries_do_not_run_away(dtype, backend):
    # After as many steps as a row has entries the rest is rounding, and no entry sees the next
    # direction: without a penalty a step along it has no bounds.
    rng = np.random.default_rng(0)
    counts = np.repeat([1, 2, 4], 100)
    cols = np.concatenate([rng.choice(30, count, replace=False) for count in counts])
    rows = np.repeat(np.arange(counts.size), counts)
    ratings = Ratings(rows, cols, 3 + rng.standard_normal(rows.size), (counts.size, 30))
    problem = LowRankObjective(ratings, 8, "squared", 0.0, 0.0, dtype, 1, backend=backend)
    P, Q = problem.split(a_point(problem, 1.0))
    exact, _ = problem.half_sweep(0, P, Q)
    found, _ = problem.half_sweep(0, P, Q, steps=12)
    assert problem.value(problem.join(found, Q)) <= 1e-7
    assert np.abs(found).max() <= 3 * np.abs(exact).max()


@pytest.mark.parametrize("scale", [np.nan, np.inf, 1e160])
def test_a_sweep_from_where_numbers_end_gives_a_value_that_is_not_finite(scale):
    problem = objective("squared", "numpy", "plain")
    with np.errstate(all="ignore"):
        _, value = Sweep(problem, steps=2)(scale * a_point(problem))
    assert not np.isfinite(value)
