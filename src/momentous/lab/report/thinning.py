"""Which rows and marks of a long curve are needed for it to look as it does with all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

MOST_ROWS = 1500  # of a curve, besides those of special events
STRETCHES = 300  # of such a curve; four rows are kept of each, so 1200 and as many as 300 restarts


def kept_rows(
    columns: Sequence[np.ndarray], events: Iterable[tuple[int, str]] = (), window: range = range(0)
) -> np.ndarray:
    """The rows that columns of one length need to look the same, in order.

    Of each stretch the least and the largest of each of the columns, and the first restart; every
    row with any other event; and every row of the window, where the true pattern of restarts can be
    seen.  What is not finite is passed over.  Curves of at most `MOST_ROWS` rows keep them all.
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
    """Of points (x, y) along a curve those at least that far from the one kept before.

    Those that are not finite are left out.
    """
    kept: list[int] = []
    before = (-math.inf, -math.inf)
    for i, point in enumerate(points.tolist()):
        if all(map(math.isfinite, point)) and math.dist(point, before) >= least:
            kept.append(i)
            before = point
    return kept
