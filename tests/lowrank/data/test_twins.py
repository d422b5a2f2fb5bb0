"""A twin has the size and the habits of its model: counts, activities, scale, signal in noise."""

import hashlib

import numpy as np
import pytest
import scipy.sparse.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from momentous.lowrank import Ratings
from momentous.lowrank.data.twins import (
    ITEMS_FALL,
    LEAST_ACTIVE,
    MODELS,
    USERS_FALL,
    expected_counts,
    power_law,
    twin,
    weights_for,
)

SMALL = ["ml-100k", "ml-1m"]


@pytest.fixture(scope="module", params=SMALL)
def made(request):
    return MODELS[request.param], Ratings.twin(request.param)


def test_shape_and_count_are_exact(made):
    model, ratings = made
    assert ratings.shape == (model.users, model.items)
    assert ratings.nnz == model.count


def test_no_pair_is_rated_twice(made):
    _, ratings = made
    pairs = ratings.rows * np.int64(ratings.shape[1]) + ratings.cols
    assert np.unique(pairs).size == ratings.nnz


def test_activities_have_the_extremes_of_the_model(made):
    model, ratings = made
    users = np.diff(ratings.by_row.starts)
    items = np.bincount(ratings.cols, minlength=model.items)
    assert users.min() == LEAST_ACTIVE
    assert users.max() == model.most_active
    assert items.min() >= 1
    assert items.max() == pytest.approx(model.most_rated, rel=0.05)
    assert np.median(users) < 0.7 * users.mean()
    assert np.median(items) < 0.4 * items.mean()


def test_popular_items_are_popular_with_all_users(made):
    """Item counts among the lighter half of users follow those among the heavier half."""
    model, ratings = made
    light = (np.diff(ratings.by_row.starts) < np.median(np.diff(ratings.by_row.starts)))[
        ratings.rows
    ]
    counts = [np.bincount(ratings.cols[mask], minlength=model.items) for mask in (light, ~light)]
    assert np.corrcoef(*counts)[0, 1] > 0.8


def test_who_rates_much_is_not_known_by_the_number(made):
    model, ratings = made
    users = np.diff(ratings.by_row.starts)
    assert abs(np.corrcoef(np.arange(model.users), users)[0, 1]) < 0.1


def test_no_two_users_rate_the_same_items(made):
    """Users of one block choose along the same line; that must not make them alike."""
    _, ratings = made
    users = np.diff(ratings.by_row.starts)
    chosen = np.flatnonzero((users > 30) & (users < 80))[:1500]
    matrix = ratings.to_sparse()[chosen]
    matrix.data = np.ones(matrix.nnz)
    common = (matrix @ matrix.T).toarray()
    of_both = users[chosen][:, None] + users[chosen][None, :] - common
    share = (common / of_both)[np.triu_indices(chosen.size, 1)]
    assert share.max() < 0.4
    assert share.mean() < 0.1


def test_the_scale_is_that_of_the_model(made):
    model, ratings = made
    assert np.unique(ratings.values).tolist() == [1, 2, 3, 4, 5]
    assert ratings.mean == pytest.approx(model.mean, abs=0.1)
    assert 1.0 < ratings.values.std() < 1.15


def residual(ratings):
    """What user and item means leave."""
    left = ratings.values - ratings.mean
    for _ in range(3):
        for index, size in zip((ratings.rows, ratings.cols), ratings.shape, strict=True):
            counts = np.bincount(index, minlength=size)
            left = left - (np.bincount(index, left, minlength=size) / (counts + 3))[index]
    return left


def spectrum(ratings, values, count):
    """Leading singular values, with rows and columns scaled to equal weight."""
    weight = [
        np.bincount(index, minlength=size)[index] ** -0.5
        for index, size in zip((ratings.rows, ratings.cols), ratings.shape, strict=True)
    ]
    matrix = Ratings(ratings.rows, ratings.cols, values * weight[0] * weight[1], ratings.shape)
    start = np.ones(min(ratings.shape))
    return np.sort(scipy.sparse.linalg.svds(matrix.to_sparse(), count, v0=start)[1])[::-1]


def test_there_is_a_signal_of_low_rank_above_the_noise():
    ratings = twin("ml-1m")
    left = residual(ratings)
    assert left.std() < 0.93 * ratings.values.std()  # the biases are gone
    signs = np.random.default_rng(0).choice([-1.0, 1.0], left.size)  # the same sizes, no signal
    seen, noise = spectrum(ratings, left, 6), spectrum(ratings, left * signs, 6)
    assert seen[0] > 1.25 * noise[0]
    assert seen.sum() > 1.05 * noise.sum()
    assert seen[0] > 1.2 * seen[5]  # it decays


def test_the_same_seed_gives_the_same_ratings():
    one, same, other = (
        twin("ml-100k", 3),
        twin("ml-100k", np.random.default_rng(3)),
        twin("ml-100k"),
    )
    assert np.array_equal(one.cols, same.cols)
    assert np.array_equal(one.values, same.values)
    assert not np.array_equal(one.cols, other.cols)


def test_the_ratings_are_those_of_every_machine():
    """Should this fail after a change of twins.py, say in the changelog that twins have changed."""
    ratings = twin("ml-100k")
    content = ratings.cols.astype("<i4").tobytes() + ratings.values.astype("<f4").tobytes()
    assert hashlib.sha256(content).hexdigest()[:16] == "6022ad0acf6a8000"


@pytest.mark.parametrize("name", MODELS)
def test_items_are_expected_to_get_their_popularity(name):
    """Of all models, the large ones too, without making them."""
    model = MODELS[name]
    activity = power_law(model.users, model.count, LEAST_ACTIVE, model.most_active, USERS_FALL)
    popularity = power_law(model.items, model.count, 1, model.most_rated, ITEMS_FALL)
    assert activity.sum() == popularity.sum() == model.count
    expected = expected_counts(weights_for(activity, popularity), activity)
    np.testing.assert_allclose(expected, popularity, rtol=0.02)


@given(
    st.integers(2, 200), st.integers(1, 30), st.integers(0, 200), st.floats(0.1, 0.9),
    st.sampled_from([0.5, 1.5]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_power_laws_have_their_ends_and_their_sum(size, least, more, share, exponent):
    most = least + more
    # Between a curve that falls at once and one that falls evenly.
    total = round(least * size + more + share * more * (size / 2 - 1) * 0.5)
    law = power_law(size, total, least, most, exponent)
    assert law.sum() == total
    assert law[0] == most
    assert law.min() >= least
    assert (np.diff(law) <= 1).all()  # falls, but for the rounding


def test_half_stars_where_the_model_has_them():
    assert MODELS["ml-10m"].half_stars
    assert MODELS["ml-20m"].half_stars
    assert not MODELS["netflix"].half_stars


def test_an_unknown_twin_is_told_with_the_known_ones():
    with pytest.raises(ValueError, match="no twin of 'ml-2m'; there are those of ml-100k, ml-1m"):
        Ratings.twin("ml-2m")
