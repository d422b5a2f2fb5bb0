"""Rows that are folded in, all at once, are those of one regression after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from momentous.lowrank import Penalty, Ratings
from momentous.lowrank.data.ratings import Compressed
from momentous.lowrank.model import fit_model
from momentous.lowrank.solvers.fit import FitConfig


def model(loss, dtype=np.float64, **options):
    rng = np.random.default_rng(0)
    full = 3.0 + rng.standard_normal((30, 2)) @ rng.standard_normal((2, 40))
    rows, cols = np.nonzero(rng.random(full.shape) < 0.5)
    ratings = Ratings(rows, cols, full[rows, cols].astype(dtype), full.shape)
    ratings = ratings.signs() if loss == "logistic" else ratings
    config = FitConfig(rank=3, loss=loss, threads=1, **{"ridge": "fixed"} | options)
    return fit_model(ratings, config).model


def newcomers(loss, dtype=np.float64, most=40):
    """Compressed entries of rows with 0, 1, 2, ... entries."""
    rng = np.random.default_rng(1)
    counts = np.array([0, 1, 2, 3, 4, 5, 8, 9, 17, most])
    others = np.concatenate([rng.choice(40, count, replace=False) for count in counts])
    values = rng.uniform(1.0, 5.0, others.size).astype(dtype)
    if loss == "logistic":
        values = np.where(values > 2.5, 1.0, -1.0).astype(dtype)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Compressed(starts, others.astype(np.int32), values)


def one_by_one(fitted, groups):
    """A row at a time: the normal equations, or a general minimiser of the written objective."""
    solutions = []
    for begin, end in zip(groups.starts[:-1], groups.starts[1:], strict=True):
        cols, targets = groups.others[begin:end], groups.values[begin:end].astype(float)
        features = fitted.col_factors[cols].astype(float)
        if fitted.penalty.biases:
            features = np.column_stack([features, np.ones(len(cols))])
        weights = fitted.penalty.weights(np.array([len(cols)]), fitted.rank)[0]
        offsets = fitted.mean + fitted.col_bias[cols].astype(float)
        if not len(cols):
            solutions.append(np.zeros(features.shape[1]))
        elif fitted.loss.quadratic:
            normal = features.T @ features + np.diag(weights)
            solutions.append(np.linalg.solve(normal, features.T @ (targets - offsets)))
        else:

            def value_and_gradient(p, F=features, o=offsets, y=targets, w=weights):
                margins = y * (o + F @ p)
                slopes = -y / (1.0 + np.exp(margins))
                value = np.sum(np.logaddexp(0.0, -margins)) + 0.5 * w @ p**2
                return value, F.T @ slopes + w * p

            found = minimize(
                value_and_gradient, np.zeros(len(weights)), jac=True, options={"gtol": 1e-10}
            )
            solutions.append(found.x)
    return np.array(solutions)


@pytest.mark.parametrize("backend", ["numba", "numpy"])
@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize(
    ("loss", "dtype", "tolerance"),
    [("squared", np.float64, 1e-10), ("squared", np.float32, 1e-4), ("logistic", np.float64, 1e-6)],
)
def test_all_rows_at_once_are_the_rows_one_by_one(loss, dtype, tolerance, biases, backend):
    fitted, groups = model(loss, dtype, biases=biases), newcomers(loss, dtype)
    solved = fitted.solve_rows(groups, backend)
    assert solved.dtype == dtype
    np.testing.assert_allclose(solved, one_by_one(fitted, groups), atol=tolerance)
    assert not solved[0].any()


def test_rows_are_put_where_they_belong():
    fitted = model("squared")
    groups = newcomers("squared")
    counts = np.diff(groups.starts)
    ids = 1000 + np.arange(counts.size)
    ids[3] = 7  # known already: computed anew
    pairs = np.column_stack([np.repeat(ids, counts), groups.others])
    order = np.random.default_rng(2).permutation(len(pairs))
    folded = fitted.fold_in(pairs[order], groups.values[order])
    expected = one_by_one(fitted, groups)
    there = list(folded.rows.ids)
    for i in np.flatnonzero(counts):
        place = there.index(ids[i])
        np.testing.assert_allclose(folded.row_factors[place], expected[i, :-1], atol=1e-10)
        assert folded.row_bias[place] == pytest.approx(expected[i, -1], abs=1e-10)
    others = [i for i in range(30) if i != 7]
    np.testing.assert_array_equal(folded.row_factors[others], fitted.row_factors[others])


def logistic_rows(groups, features, offsets, ridge):
    """Rows of a model with these columns, no mean and no biases of rows."""
    fitted = model("logistic", biases=False, centre=False, max_iterations=1)
    parts = {"col_factors": features, "row_factors": features[:0], "col_bias": offsets}
    return replace(fitted, penalty=Penalty(ridge), **parts).solve_rows(groups)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_rows_without_a_ridge_have_finite_factors(loss):
    fitted = model(loss, ridge=0.0, bias_ridge=0.0, max_iterations=5)
    assert np.all(np.isfinite(fitted.solve_rows(newcomers(loss))))


@pytest.mark.parametrize("ridge", [0.0, 1e-20, 1e-14])
def test_a_ridge_too_small_for_the_systems_is_no_harm(ridge):
    """Half as many labels as factors: the curvatures leave directions to so small a ridge."""
    rng = np.random.default_rng(3)
    features = 5.0 * rng.standard_normal((8, 6))
    others = np.concatenate([rng.choice(8, 3, replace=False) for _ in range(20)])
    labels = rng.choice([-1.0, 1.0], 60)
    groups = Compressed(3 * np.arange(21), others.astype(np.int32), labels)
    rows = logistic_rows(groups, features, np.zeros(8), ridge)
    margins = labels * np.sum(rows.repeat(3, axis=0) * features[others], axis=1)
    assert np.all(margins > 10.0)  # three independent labels can be met


@pytest.mark.parametrize("ridge", [0.0, 1e-20, 0.5])
def test_a_label_that_is_thought_impossible_moves_its_row(ridge):
    """At a score of -60 for +1 the loss is as good as linear: no curvature to go by."""
    groups = Compressed(np.array([0, 1]), np.array([0], np.int32), np.ones(1))
    row = logistic_rows(groups, np.array([[3.0, 4.0]]), np.array([-60.0]), ridge)[0]
    score = row @ [3.0, 4.0] - 60.0
    if ridge < 0.1:
        assert score > 0.0
    else:  # w p = f s, with s the slope at the score
        slope = 1.0 / (1.0 + np.exp(score))
        np.testing.assert_allclose(ridge * row, slope * np.array([3.0, 4.0]), atol=1e-4)


def test_labels_that_agree_are_fitted_as_far_as_the_ridge_lets_them():
    fitted, groups = model("logistic"), newcomers("logistic")
    groups = Compressed(groups.starts, groups.others, np.ones_like(groups.values))
    np.testing.assert_allclose(fitted.solve_rows(groups), one_by_one(fitted, groups), atol=1e-6)
