"""Which rows and marks of a long curve are needed for it to look as it does with all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

BINS = 1500  # of a long curve on paper: more than a page has room for
MOST_ROWS = 1500  # of a curve on a screen, besides those of special events
STRETCHES = 300  # of such a curve; four rows are kept of each, so 1200 and as many as 300 restarts


def outline(column: np.ndarray, bins: int = BINS) -> np.ndarray:
    """The rows that a curve needs to look the same: first, lowest and highest of every bin.

    All of them where there are few; NaN in a bin of numbers is passed over.
    """
    size = len(column)
    if size <= 4 * bins:
        return np.arange(size)
    edges = [part[0] for part in np.array_split(np.arange(size), bins)]
    kept = {0, size - 1, *map(int, edges)}
    for start, stop in pairwise([*edges, size]):
        kept |= _extremes(column, start, stop)
    return np.array(sorted(kept))


def kept_rows(
    columns: Sequence[np.ndarray], events: Iterable[tuple[int, str]], window: range = range(0)
) -> np.ndarray:
    """The rows that several columns need that can be looked at closely, in order.

    Of each stretch the least and the largest of each of the columns, and the first restart; every
    row with any other event; and every row of the window.  Curves of at most `MOST_ROWS` rows keep
    them all.

    Parameters
    ----------
    columns : sequence of ndarray
        Of the same length; what is not finite is passed over.
    events : iterable of (int, str)
        Row and kind.
    window : range
        Where the true pattern of restarts can be seen; rows beyond the end are none.
    """
    size = len(columns[0])
    if size <= MOST_ROWS:
        return np.arange(size)
    kept = {0, size - 1, *(row for row in window if row < size)}
    restarts = []
    for row, kind in events:
        restarts.append(row) if kind == "RESTART" else kept.add(row)
    restart_rows = np.array(sorted(restarts), dtype=int)
    for start, stop in stretches(size):
        for column in columns:
            kept |= _extremes(column, start, stop)
        kept.update(restart_rows[slice(*np.searchsorted(restart_rows, (start, stop)))][:1].tolist())
    return np.array(sorted(kept), dtype=int)


def stretches(size: int) -> list[tuple[int, int]]:
    """Rows cut into at most `STRETCHES` pieces, fine on a linear and on a logarithmic axis."""
    half = STRETCHES // 2
    even = np.linspace(0, size, half + 1)
    growing = np.geomspace(1, max(size, 1), half)
    edges = np.unique(np.concatenate([even, growing]).astype(int)).tolist()
    return list(pairwise(edges))


def _extremes(column: np.ndarray, start: int, stop: int) -> set[int]:
    """The rows of the least and of the largest number in a piece, if there are numbers."""
    piece = column[start:stop]
    known = np.flatnonzero(np.isfinite(piece))
    if not known.size:
        return set()
    found = piece[known]
    return {int(start + known[found.argmin()]), int(start + known[found.argmax()])}


def far_enough_apart(points: np.ndarray, least: float) -> list[int]:
    """Of points along a curve those that are at least that far from the one kept before.

    Parameters
    ----------
    points : ndarray of shape (n, 2)
        Where they are on paper; those that are not finite are left out.
    least : float
        The distance.
    """
    kept: list[int] = []
    before = (-math.inf, -math.inf)
    for i, point in enumerate(points.tolist()):
        if all(map(math.isfinite, point)) and math.dist(point, before) >= least:
            kept.append(i)
            before = point
    return kept
