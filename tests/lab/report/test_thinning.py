"""Thinned curves look as they do with all of their rows."""

import math

import numpy as np
import pytest

from momentous.core.status import EventKind
from momentous.lab.report.figures import MOST_ROWS, STRETCHES, kept_rows


def test_short_curves_keep_every_row():
    columns = (np.ones(MOST_ROWS), np.ones(MOST_ROWS))
    assert np.array_equal(kept_rows(columns, []), np.arange(MOST_ROWS))


def noisy(size, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(np.exp(rng.normal(size=size) - 5 * np.arange(size) / size) for _ in range(2))


@pytest.mark.parametrize("size", [MOST_ROWS + 1, 7_000, 100_000])
def test_thinned_curves_keep_the_extremes_of_every_piece(size):
    """Wherever one looks at a hundredth of a long curve, it is as high and as low as it was."""
    columns = noisy(size)
    kept = kept_rows(columns, [])
    assert 500 < len(kept) <= min(size, MOST_ROWS)
    assert np.all(np.diff(kept) > 0)
    for column in columns:
        for piece in np.array_split(np.arange(size), 100):
            inside = kept[(kept >= piece[0] - size / 100) & (kept <= piece[-1] + size / 100)]
            assert column[inside].max() >= column[piece].max()
            assert column[inside].min() <= column[piece].min()
        assert {column.argmin(), column.argmax()} <= set(kept)


def test_the_beginning_of_a_long_curve_stays_fine():
    """On a logarithmic axis the first ten of 100,000 rows are a fifth of the width."""
    assert set(range(11)) <= set(kept_rows(noisy(100_000), []))


def test_thinning_passes_over_what_is_not_finite():
    columns = noisy(10_000)
    columns[0][2_000:4_000] = math.nan
    columns[1][:] = math.inf
    columns[0][4321] = math.inf
    kept = kept_rows(columns, [])
    assert {np.nanargmin(columns[0]), 0, 9_999} <= set(kept)


def test_thinning_keeps_every_special_event_and_some_restarts():
    size = 100_000
    restarts = [(row, EventKind.RESTART) for row in range(50_000, size, 16)]
    special = [
        (33_333, EventKind.ROLLBACK),
        (50_001, EventKind.RADIUS_REACHED),
        (7, EventKind.NEGATIVE_CURVATURE),
    ]
    flat = (np.ones(size), np.ones(size))
    kept = set(kept_rows(flat, restarts + special).tolist())
    assert {row for row, _ in special} <= kept
    assert 50 <= len(kept & {row for row, _ in restarts}) <= STRETCHES
    assert len(kept) <= MOST_ROWS
