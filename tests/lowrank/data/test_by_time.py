"""Ratings cut at a time: nothing that is kept is later than what is held out."""

from __future__ import annotations

import numpy as np
import pytest

from momentous.lowrank import split_by_time

RNG = np.random.default_rng(0)
PAIRS = np.argwhere(RNG.random((8, 6)) < 0.7)
Y = np.arange(len(PAIRS), dtype=float)  # tells which entry is which
TIMES = RNG.permutation(len(PAIRS))


def entries(ratings):
    return {int(value) for value in ratings.values}


def test_the_latest_share_is_held_out():
    kept, held_out = split_by_time(PAIRS, Y, TIMES, 0.25)
    assert held_out.nnz == round(0.25 * len(Y))
    assert entries(kept) | entries(held_out) == set(range(len(Y)))
    assert max(TIMES[list(entries(kept))]) < min(TIMES[list(entries(held_out))])
    assert kept.shape == held_out.shape == (8, 6)
    for value in entries(held_out):
        place = held_out.values == value
        assert [held_out.rows[place][0], held_out.cols[place][0]] == PAIRS[value].tolist()


def test_each_user_can_have_their_own_latest_share():
    kept, held_out = split_by_time(PAIRS, Y, TIMES, 0.25, per_user=True)
    for user in range(8):
        own = PAIRS[:, 0] == user
        early, late = (TIMES[list(entries(one) & set(np.flatnonzero(own)))]
                       for one in (kept, held_out))  # fmt: skip
        assert late.size == max(1, round(0.25 * own.sum()))
        assert early.max() < late.min()
    single = split_by_time([["a", "x"], ["b", "x"], ["b", "y"]], [1, 2, 3], [5, 4, 3], 0.9,
                           per_user=True)  # fmt: skip
    assert entries(single[0]) == {1, 3}


def test_dates_and_a_first_day_are_taken():
    dates = np.datetime64("2024-01-01") + TIMES
    kept, held_out = split_by_time(PAIRS, Y, dates, since="2024-01-11")
    assert entries(kept) == set(np.flatnonzero(TIMES < 10))
    assert entries(held_out) == set(np.flatnonzero(TIMES >= 10))


def test_of_a_pair_that_comes_twice_the_latest_counts():
    pairs = [["a", "x"], ["a", "x"], ["b", "x"]]
    with pytest.warns(RuntimeWarning, match="1 of"):
        kept, _ = split_by_time(pairs, [1.0, 2.0, 3.0], [20, 10, 30], since=30)
    assert entries(kept) == {1}


@pytest.mark.parametrize(
    ("times", "options", "problem"),
    [
        (TIMES[1:], {}, "one value and one time per pair"),
        (np.where(TIMES == 3, np.nan, TIMES), {}, "time at position .* is missing"),
        (TIMES, {"share": 1.0}, "share=1.0 must be a finite number between 0 and 1"),
        (TIMES, {"since": 10**6}, "0 of .* would be held out"),
        (TIMES, {"since": 3, "per_user": True}, "per_user needs a share"),
    ],
)
def test_what_cannot_be_cut_is_said(times, options, problem):
    with pytest.raises(ValueError, match=problem):
        split_by_time(PAIRS, Y, times, **options)
