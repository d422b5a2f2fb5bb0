"""Losses: slope and curvature are derivatives, arrays and single numbers agree, data is checked."""

from __future__ import annotations

import numpy as np
import pytest

from momentous.lowrank import Ratings, find_loss
from momentous.lowrank.losses import LOSSES, Implicit, Logistic, Squared, restore_loss
from momentous.lowrank.losses.logistic import FLATTEST

Z = np.linspace(-4.0, 4.0, 41)


def observed(loss):
    return np.where(np.arange(Z.size) % 2, 1.0, -1.0 if loss == "logistic" else 3.0)


@pytest.mark.parametrize("loss", list(LOSSES))
def test_slope_and_curvature_are_derivatives_of_the_value(loss):
    one, x, h = find_loss(loss), observed(loss), 1e-4
    value, slope, curvature = one.entries(Z, x)
    above, below = (one.entries(Z + d, x)[0] for d in (h, -h))
    np.testing.assert_allclose(slope, (above - below) / (2 * h), atol=1e-7)
    np.testing.assert_allclose(
        np.full(Z.shape, curvature), (above - 2 * value + below) / h**2, atol=1e-5
    )
    assert np.all(curvature <= one.largest_curvature(x) + 1e-15)


@pytest.mark.parametrize("loss", list(LOSSES))
def test_single_numbers_and_arrays_agree(loss):
    one, x = find_loss(loss), observed(loss)
    singles = np.array([one.entry(z, y, one.parameters) for z, y in zip(Z, x, strict=True)]).T
    for part, expected in zip(one.entries(Z, x), singles, strict=True):
        np.testing.assert_allclose(np.full(Z.shape, part), expected, rtol=1e-12, atol=1e-15)


def test_a_loss_is_found_by_name_class_or_itself():
    assert find_loss("squared") == Squared()
    assert find_loss(Implicit) == Implicit()
    mine = Implicit(alpha=3.0)
    assert find_loss(mine) is mine
    assert mine != Implicit()
    assert restore_loss(mine.describe()) == mine
    assert hash(Squared()) == hash(Squared())
    with pytest.raises(ValueError, match="no loss 'hinge'; known are squared, logistic, implicit"):
        find_loss("hinge")


def test_responses_and_measures_say_what_users_ask():
    z, x = np.array([-2.0, 0.5, 9.0]), np.array([1.0, 1.0, 5.0])
    assert Squared().response(z, (1.0, 5.0)).tolist() == [1.0, 1.0, 5.0]
    assert Squared().measures(z, x, (1.0, 5.0)) == {"rmse": 0.0, "mae": 0.0}
    signs = np.array([-1.0, 1.0, -1.0])
    assert Logistic().response(np.zeros(1), (0, 1)) == 0.5
    measures = Logistic().measures(z, signs, (-1.0, 1.0))
    assert measures["accuracy"] == pytest.approx(2 / 3)
    assert measures["log_loss"] == pytest.approx(np.mean(np.log1p(np.exp(-signs * z))))
    assert Implicit().response(z, (0.0, 1.0)).tolist() == z.tolist()
    assert Implicit().measures(np.ones(3), x, (0.0, 1.0)) == {"rmse_to_one": 0.0}


def test_a_flat_logistic_loss_keeps_a_little_curvature():
    assert Logistic().entries(np.array([90.0]), np.ones(1))[2] == FLATTEST


def test_the_default_ridge_follows_the_unit_of_the_data():
    ratings = Ratings([0, 0, 1], [0, 1, 1], [1.0, 2.0, 4.0])
    tenfold = ratings.with_values(10.0 * ratings.values)
    for loss in (Squared(), Implicit()):
        ratio = loss.default_ridge(tenfold) / loss.default_ridge(ratings)
        assert ratio == pytest.approx(10.0)
    constant = ratings.with_values(np.zeros(3))
    assert Squared().default_ridge(constant) > 0.0
    assert Implicit().default_ridge(constant) > 0.0


def test_the_mean_log_odds_are_finite_for_one_class():
    one, two = Ratings([0, 1], [0, 1], [1.0, 1.0]), Ratings([0, 1], [0, 1], [1.0, -1.0])
    assert np.isfinite(Logistic().mean(one))
    assert Logistic().mean(two) == 0.0
