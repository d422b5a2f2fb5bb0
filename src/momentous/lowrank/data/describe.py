"""What a set of ratings looks like, in numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.data.ratings import Ratings

_MOST_BARS = 20


def describe(ratings: Ratings) -> dict[str, Any]:
    """Describe ratings by plain numbers, ready for a table or for JSON.

    Parameters
    ----------
    ratings : Ratings

    Returns
    -------
    dict
        ``users, items, ratings, density, mean, sd, dtype``; ``histogram``: a list of (value, count)
        if there are at most 20 different values, otherwise of (lowest value, count) of 20 equal
        ranges; ``user_activity`` and ``item_activity``: the number of ratings of the least, lower
        quarter, median, upper quarter, ninety-ninth of a hundred and most active one, as
        ``min, 25%, median, 75%, 99%, max``, their ``mean``, and how many are ``empty``.

    Examples
    --------
    >>> from momentous.lowrank import Ratings
    >>> facts = describe(Ratings([0, 0, 1], [0, 1, 1], [5.0, 3.0, 3.0]))
    >>> facts["histogram"], facts["user_activity"]["max"]
    ([(3.0, 2), (5.0, 1)], 2)
    """
    values = ratings.values
    return {
        "users": ratings.shape[0],
        "items": ratings.shape[1],
        "ratings": ratings.nnz,
        "density": ratings.density,
        "mean": ratings.mean,
        "sd": float(np.std(values, dtype=np.float64)),
        "dtype": str(ratings.dtype),
        "histogram": _histogram(values),
        "user_activity": _activity(np.diff(ratings.by_row.starts)),
        "item_activity": _activity(np.bincount(ratings.cols, minlength=ratings.shape[1])),
    }


def _histogram(values: NDArray[np.floating[Any]]) -> list[tuple[float, int]]:
    distinct, counts = np.unique(values, return_counts=True)
    if distinct.size > _MOST_BARS:
        counts, edges = np.histogram(values.astype(np.float64), bins=_MOST_BARS)
        distinct = edges[:-1]
    return list(zip(distinct.tolist(), counts.tolist(), strict=True))


def _activity(counts: NDArray[np.int64]) -> dict[str, float]:
    steps = np.quantile(counts, [0.25, 0.5, 0.75, 0.99])
    names = ("25%", "median", "75%", "99%")
    return {
        "min": int(counts.min()),
        **dict(zip(names, steps.tolist(), strict=True)),
        "max": int(counts.max()),
        "mean": float(counts.mean()),
        "empty": int(np.count_nonzero(counts == 0)),
    }
