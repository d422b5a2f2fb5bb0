"""The contributions of a user's ratings sum up to the score, and are what a change of one does."""

from __future__ import annotations

import numpy as np
import pytest

from momentous.lowrank import Ratings
from momentous.lowrank.losses import Implicit
from momentous.lowrank.model import explain, fit_model
from momentous.lowrank.solvers.fit import FitConfig


def fitted(loss, **options):
    rng = np.random.default_rng(0)
    rows, cols = np.nonzero(rng.random((20, 15)) < 0.5)
    values = rng.integers(1, 6, rows.size).astype(float)
    ratings = Ratings(rows, cols, values, (20, 15))
    ratings = ratings.signs() if loss == "logistic" else ratings
    config = FitConfig(rank=2, loss=loss, backend="numpy", max_iterations=8, **options)
    return fit_model(ratings, config).model


@pytest.mark.parametrize("loss", ["squared", "logistic", Implicit(0.5)], ids=str)
@pytest.mark.parametrize("biases", [True, False])
def test_contributions_and_the_rest_are_the_score(loss, biases):
    model = fitted(loss, biases=biases, centre=biases)
    rated = model.seen.cols[model.seen.rows == 4]
    found = explain(model, 4, 3)
    assert sorted(found.items.tolist()) == rated.tolist()
    assert np.all(np.diff(found.contributions) <= 0)
    assert found.score == pytest.approx(model.scores([[4, 3]])[0])
    assert found.rest + found.contributions.sum() == pytest.approx(found.score)
    # The row is the best for its entries, so that nothing but mean and bias is left.
    if not (biases and isinstance(loss, Implicit)):  # biases are zeros that count everywhere
        fresh = model.fold_in(model.seen.where(model.seen.rows == 4), backend="numpy")
        found = explain(fresh, 4, 3)
        assert found.rest == pytest.approx(model.mean + model.col_bias[3], abs=1e-9)
    few = explain(model, 4, 3, n=2)
    assert few.items.size == 2
    assert few.score == explain(model, 4, 3).score


def test_a_contribution_is_what_a_change_of_the_rating_does():
    model = fitted("squared")
    own = model.seen.where(model.seen.rows == 4)
    item, value = int(own.cols[2]), float(own.values[2])
    values = own.values.copy()
    values[2] += 1.0
    before = model.fold_in(own, backend="numpy")
    after = model.fold_in(own.with_values(values), backend="numpy")
    moved = after.scores([[4, 3]])[0] - before.scores([[4, 3]])[0]
    found = explain(before, 4, 3)
    part = found.contributions[found.items.tolist().index(item)]
    assert part == pytest.approx(moved * (value - model.mean - model.col_bias[item]), rel=1e-8)


def test_what_is_not_known_has_no_explanation():
    model = fitted("squared")
    with pytest.raises(ValueError, match="row id 99"):
        explain(model, 99, 3)
    with pytest.raises(ValueError, match="column id 99"):
        explain(model, 4, 99)
    with pytest.raises(ValueError, match="n=0"):
        explain(model, 4, 3, n=0)
