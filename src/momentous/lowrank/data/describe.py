"""What a set of ratings looks like, in numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from momentous.io.types import JsonObject
from momentous.lowrank.data.ratings import Ratings

_MOST_BARS = 20
_SHARES = {"25%": 0.25, "median": 0.5, "75%": 0.75, "99%": 0.99}


def describe(ratings: Ratings) -> JsonObject:
    """Describe ratings by plain numbers, ready for a table or for JSON.

    ``histogram`` is a list of (value, count) if there are at most 20 different values, otherwise of
    (lowest value, count) of 20 equal ranges.  ``user_activity`` and ``item_activity`` say how many
    ratings users and items have, and how many have none (``empty``).

    Examples
    --------
    >>> from momentous.lowrank import Ratings, describe
    >>> facts = describe(Ratings([0, 0, 1], [0, 1, 1], [5.0, 3.0, 3.0]))
    >>> facts["histogram"], facts["user_activity"]["max"]
    ([(3.0, 2), (5.0, 1)], 2)
    """
    values = ratings.values
    bars, counts = np.unique(values, return_counts=True)
    if bars.size > _MOST_BARS:
        counts, edges = np.histogram(values.astype(np.float64), bins=_MOST_BARS)
        bars = edges[:-1]
    return {
        "users": ratings.shape[0],
        "items": ratings.shape[1],
        "ratings": ratings.nnz,
        "density": ratings.density,
        "mean": ratings.mean,
        "sd": ratings.deviation,
        "dtype": str(ratings.dtype),
        "histogram": list(zip(bars.tolist(), counts.tolist(), strict=True)),
        "user_activity": _activity(np.diff(ratings.by_row.starts)),
        "item_activity": _activity(np.bincount(ratings.cols, minlength=ratings.shape[1])),
    }


def _activity(counts: NDArray[np.int64]) -> dict[str, float]:
    return {
        "min": int(counts.min()),
        **{name: float(np.quantile(counts, share)) for name, share in _SHARES.items()},
        "max": int(counts.max()),
        "mean": float(counts.mean()),
        "empty": int(np.count_nonzero(counts == 0)),
    }
