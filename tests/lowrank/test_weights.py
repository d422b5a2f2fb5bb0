"""Weights of entries: weight 2 is the entry twice, on every backend."""

from __future__ import annotations

import re

import numpy as np
import pytest

from momentous.lowrank import (
    LowRankObjective,
    MatrixCompletion,
    OneBitMatrixCompletion,
    Ratings,
    describe,
)
from momentous.lowrank.backends.device import gpu_available
from momentous.lowrank.data.ratings import Compressed, stored_ratings
from momentous.lowrank.data.write import write_ratings
from momentous.lowrank.losses import find_loss
from momentous.lowrank.model import fit_model, load_model, save_model
from momentous.lowrank.penalty import Penalty
from momentous.lowrank.solvers.certificate import Verdict, certify
from momentous.lowrank.solvers.fit import FitConfig
from momentous.lowrank.solvers.sweeps import Sweep

pytest.importorskip("numba")
GPU = [pytest.mark.gpu, pytest.mark.skipif(not gpu_available(), reason="no GPU to use")]
BACKENDS = pytest.mark.parametrize("backend", ["numpy", "numba", pytest.param("cuda", marks=GPU)])
LOSSES = pytest.mark.parametrize("loss", ["squared", "logistic"])
SHAPE = (30, 20)
PENALTY = Penalty(0.7, bias_ridge=0.5, weighting=0.5, biases=True)


def entries(loss, seed=0):
    """Rows, columns, values, and weights 1 to 3."""
    rng = np.random.default_rng(seed)
    rows, cols = np.nonzero(rng.random(SHAPE) < 0.5)
    values = rng.integers(1, 6, rows.size).astype(float)
    weights = rng.integers(1, 4, rows.size).astype(float)
    return rows, cols, np.where(values > 2, 1.0, -1.0) if loss == "logistic" else values, weights


def weighted(loss):
    rows, cols, values, weights = entries(loss)
    return Ratings(rows, cols, values, SHAPE, weights=weights)


def repeated(loss):
    """Each entry as often as its weight says; nothing else in the library makes such ratings."""
    rows, cols, values, weights = entries(loss)
    often = np.repeat(np.arange(rows.size), weights.astype(int))
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows[often], minlength=SHAPE[0]))])
    return stored_ratings(
        SHAPE, Compressed(starts, cols[often].astype(np.int32), values[often]), (None, None)
    )


def problem(ratings, loss, backend="numpy", **options):
    device = "cuda" if backend == "cuda" else "cpu"
    mean = find_loss(loss).mean(ratings)
    given = {"ridge": PENALTY, "balance": 0.0, "mean": mean, "threads": 1} | options
    return LowRankObjective(ratings, 3, loss, backend=backend, device=device, **given)


def some_point(objective):
    x = 0.7 * np.random.default_rng(3).standard_normal(objective.dimension)
    return objective.backend.asarray(x.astype(objective.dtype), objective.dtype)


def close(one, other, accuracy=1e-11):
    one, other = (np.asarray(each.get() if hasattr(each, "get") else each) for each in (one, other))
    np.testing.assert_allclose(one, other, rtol=accuracy, atol=accuracy * np.abs(other).max())


@LOSSES
def test_the_objective_is_what_a_plain_sum_gives(loss):
    rows, cols, values, weights = entries(loss)
    ratings = weighted(loss)
    assert ratings.nnz == np.count_nonzero(weights)
    assert ratings.weight == weights.sum()
    assert ratings.mean == pytest.approx(np.average(values, weights=weights))
    away = values - ratings.mean
    assert ratings.deviation == pytest.approx(np.sqrt(np.average(away**2, weights=weights)))
    objective = problem(ratings, loss)
    x = some_point(objective)
    P, Q = objective.split(x)
    z = objective.mean + np.sum(P[rows, :3] * Q[cols, :3], axis=1) + P[rows, 3] + Q[cols, 3]
    losses = 0.5 * (z - values) ** 2 if loss == "squared" else np.logaddexp(0.0, -values * z)
    total = weights @ losses
    for side, index in ((P, rows), (Q, cols)):
        counts = np.maximum(np.bincount(index, weights, len(side)), 1.0)
        total += 0.5 * np.sum(0.7 * np.sqrt(counts)[:, None] * side[:, :3] ** 2)
        total += 0.5 * np.sum(0.5 * side[:, 3] ** 2)
    assert objective.value(x) == pytest.approx(total / weights.sum(), rel=1e-13)
    step = 1e-6 * np.random.default_rng(4).standard_normal(x.size)
    slope = (objective.value(x + step) - objective.value(x - step)) / 2
    assert objective.gradient(x) @ step == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("plain", [False, True])
@LOSSES
@BACKENDS
def test_weight_2_is_the_entry_twice(backend, loss, plain):
    options = {"ridge": 0.7, "balance": 1.0, "mean": 0.0} if plain else {}
    one = problem(weighted(loss), loss, backend, **options)
    other = problem(repeated(loss), loss, "numpy", **options)
    x = some_point(other)
    there = one.backend.asarray(x, one.dtype)
    for found, expected in zip(
        one.value_and_gradient(there), other.value_and_gradient(x), strict=True
    ):
        close(found, expected)
    for which in (0, 1):
        for steps in (None, 2):
            (own, value), (known, least) = (
                each.half_sweep(which, *each.split(y)[:: 1 - 2 * which], steps=steps)
                for each, y in ((one, there), (other, x))
            )
            close(own, known, 1e-9)
            assert value == pytest.approx(least, rel=1e-9)
    sweeps = [Sweep(each).run(y, max_iterations=5) for each, y in ((one, there), (other, x))]
    close(sweeps[0][0], sweeps[1][0], 1e-7)


@LOSSES
@BACKENDS
def test_single_precision_has_weights_too(backend, loss):
    exact = problem(weighted(loss), loss)
    single = problem(weighted(loss), loss, backend, dtype=np.float32)
    x = some_point(exact)
    there = single.backend.asarray(x.astype(np.float32), np.float32)
    assert single.value(there) == pytest.approx(exact.value(x), rel=1e-5)
    close(single.gradient(there), exact.gradient(x), 1e-4)
    found = single.half_sweep(0, *single.split(there))[0]
    close(found, exact.half_sweep(0, *exact.split(x))[0], 1e-3)
    # A few steps need not be those of double precision: beside entries that are repeated.
    often = problem(repeated(loss), loss, backend, dtype=np.float32)
    found = single.half_sweep(0, *single.split(there), steps=2)[0]
    close(found, often.half_sweep(0, *often.split(there), steps=2)[0], 1e-3)


@LOSSES
@pytest.mark.parametrize("steps", [None, 2])
def test_half_sweeps_lower_the_weighted_objective(loss, steps):
    objective = problem(weighted(loss), loss, "numba")
    x = some_point(objective)
    for which in (0, 1, 0, 1):
        before, sides = objective.value(x), list(objective.split(x))
        sides[which] = objective.half_sweep(which, sides[which], sides[1 - which], steps=steps)[0]
        x = objective.join(*sides)
        assert objective.value(x) < before


@pytest.mark.parametrize("bias_ridge", [0.0, 0.5])
@LOSSES
@BACKENDS
def test_the_gap_is_that_of_the_entries_repeated(backend, loss, bias_ridge):
    penalty = Penalty(6.0 if loss == "squared" else 2.0, bias_ridge, 0.5, True)
    one, other = (
        problem(each(loss), loss, at, ridge=penalty)
        for each, at in ((weighted, backend), (repeated, "numpy"))
    )
    x = Sweep(other).run(some_point(other), max_iterations=300, value_tol=1e-15)[0]
    for point in (some_point(other), x):
        found = certify(one, one.backend.asarray(point, one.dtype))
        expected = certify(other, point)
        assert found.verdict is expected.verdict
        assert found.objective == pytest.approx(expected.objective, rel=1e-10)
        assert found.gap == pytest.approx(expected.gap, rel=0.2, abs=1e-9)
    assert found.verdict is Verdict.GLOBAL
    # An upper bound: no fit of a higher rank goes below.
    larger = problem(weighted(loss), loss, ridge=penalty).with_rank(12)
    best = Sweep(larger).run(some_point(larger), max_iterations=300, value_tol=1e-15)[1].fun
    assert best >= found.objective - found.gap - 1e-12


@LOSSES
def test_the_rank_is_found_with_weights(loss):
    fits = [
        fit_model(each(loss), FitConfig(rank="auto", loss=loss, gap_tol=1e-6, backend="numpy"))
        for each in (weighted, repeated)
    ]
    assert fits[0].certificate.relative_gap <= 1e-6
    assert fits[0].objective == pytest.approx(fits[1].objective, rel=2e-6)


@LOSSES
def test_a_model_keeps_its_weights(loss, tmp_path):
    options = {"rank": 2, "loss": loss, "ridge": "fixed", "backend": "numpy", "max_iterations": 5}
    model = fit_model(weighted(loss), FitConfig(validation_share=0.1, **options)).model
    save_model(model, tmp_path / "m")
    again = load_model(tmp_path / "m")[0]
    for one, other in ((model.seen, again.seen), (model.held_out, again.held_out)):
        np.testing.assert_array_equal(one.weights, other.weights)
    assert again.certify().gap == model.certify().gap
    assert again.loss == find_loss(loss)


def test_further_entries_have_weights_of_their_own():
    rows, cols, values, weights = entries("squared")
    pairs, half = np.column_stack([rows, cols]), rows.size // 2
    fitted = MatrixCompletion(rank=2, backend="numpy", max_iterations=5)
    fitted.partial_fit(pairs[:half], values[:half])
    fitted.partial_fit(pairs[half:], values[half:], sample_weight=weights[half:])
    assert fitted.model_.seen.weight == half + weights[half:].sum()
    fitted.partial_fit(pairs[:3], values[:3])
    assert fitted.model_.seen.weight == half + weights[half:].sum()


def test_the_threshold_of_labels_is_the_weighted_mean():
    rows, cols, values, weights = entries("squared")
    pairs = np.column_stack([rows, cols])
    fitted = OneBitMatrixCompletion(rank=2, threshold="mean", backend="numpy", max_iterations=3)
    fitted.fit(pairs, values, weights)
    assert fitted.threshold_ == pytest.approx(np.average(values, weights=weights))


@LOSSES
def test_evaluation_counts_an_entry_as_often_as_its_weight_says(loss):
    config = FitConfig(rank=2, loss=loss, backend="numpy", max_iterations=5)
    model = fit_model(weighted(loss), config).model
    found = model.evaluate(weighted(loss))
    assert found == pytest.approx(model.evaluate(repeated(loss)))
    assert model.training_error() == pytest.approx(
        found["rmse" if loss == "squared" else "log_loss"]
    )
    assert describe(weighted(loss))["sd"] == pytest.approx(describe(repeated(loss))["sd"])


def test_sigma_is_that_of_the_dense_matrix_of_weighted_residuals():
    rows, cols, values, weights = entries("squared")
    objective = problem(weighted("squared"), "squared", ridge=2.0, mean=0.0)
    x = some_point(objective)
    U, V = objective.split(x)
    residual = np.zeros(SHAPE)
    residual[rows, cols] = weights * (values - (U @ V.T)[rows, cols])
    exact = np.linalg.norm(residual, 2)
    assert exact * (1.0 - 1e-12) <= certify(objective, x).sigma_max <= 1.2 * exact
    scaled = residual[rows, cols] * 2.0 / certify(objective, x).sigma_max
    bound = np.sum(scaled * values - 0.5 * scaled**2 / weights)
    found = certify(objective, x)
    assert found.gap == pytest.approx(found.objective - bound / weights.sum(), rel=1e-9)


def test_bad_weights_are_refused():
    rows, cols, values, weights = entries("squared")
    for bad in (0.0, -1.0, np.inf, np.nan):
        given = np.r_[weights[:-1], bad]
        with pytest.raises(ValueError, match=f"position {rows.size - 1} is .*; leave out pairs"):
            Ratings(rows, cols, values, weights=given)
        with pytest.raises(ValueError, match=r"sample_weight of shape .* numbers from .* is "):
            MatrixCompletion(rank=1).fit(np.column_stack([rows, cols]), values, given)
    with pytest.raises(ValueError, match=r"weights of shape .* one per pair"):
        Ratings(rows, cols, values, weights=weights[1:])
    with pytest.raises(ValueError, match="implicit loss is over all pairs"):
        problem(weighted("squared"), "implicit", ridge=1.0)


@pytest.mark.parametrize("weights", [["a", "b"], [1j, 2.0], [[1.0], [1.0, 2.0]]])
def test_weights_that_are_no_numbers_are_shown(weights):
    shown = re.escape(f"={weights}") + " must be 2 numbers"
    with pytest.raises(TypeError, match="^weights" + shown):
        Ratings([0, 0], [0, 1], [1.0, 2.0], weights=weights)
    with pytest.raises(TypeError, match="^sample_weight" + shown):
        MatrixCompletion(rank=1).fit([["a", "x"], ["b", "y"]], [1.0, 2.0], sample_weight=weights)


def test_weights_can_be_given_to_ratings_and_are_not_lost_in_files(tmp_path):
    rows, cols, values, weights = entries("squared")
    ratings = Ratings(rows, cols, values, SHAPE)
    assert ratings.weights is None
    again = ratings.with_weights(weights)
    np.testing.assert_array_equal(again.by_row.values, weighted("squared").by_row.values)
    with pytest.raises(ValueError, match=r"has no weights: .* Ratings\.with_weights"):
        write_ratings(again, tmp_path / "r.csv")
