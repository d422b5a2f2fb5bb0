"""Ratings cut at a time: what came first to fit to, what came later to compare with."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from momentous.io.types import AnyArray
from momentous.lowrank.checks import check_number, corrects_names
from momentous.lowrank.data.ids import require_unmasked
from momentous.lowrank.data.ratings import Ratings
from momentous.lowrank.data.vocabulary import Pairs, pairs_of


@corrects_names
def split_by_time(
    X: Pairs,
    y: ArrayLike,
    times: ArrayLike,
    share: float = 0.1,
    *,
    since: ArrayLike | None = None,
    per_user: bool = False,
) -> tuple[Ratings, Ratings]:
    """Hold out the latest ratings.

    A random share would let a fit know what came later than what it is asked for.

    Parameters
    ----------
    X : array of shape (N, 2) or table of two columns
        A user and an item each.
    y : array of N values
    times : array of N numbers or dates
        When each rating was given.  Of equal times the one that comes later in the order of X is
        the later one.
    share : float
        Between 0 and 1: how much is held out, at least one rating, and at least one stays.
    since : number or date, optional
        Hold out what was given at this time or later, instead of a share.
    per_user : bool
        Hold out the latest share of each user instead, ``round(share * count)`` of them, at least
        one if there are two; a user with one rating keeps it.

    Returns
    -------
    kept, held_out : Ratings
        Of the same shape and with the same ids.  Of a pair that comes more than once in either, the
        latest counts.
    """
    users, items = pairs_of(X)
    values, when = require_unmasked(y, "ratings"), require_unmasked(times, "times")
    if not users.shape == values.shape == when.shape:
        raise ValueError(
            f"there are {users.size} pairs, values of shape {values.shape} and times of shape "
            f"{when.shape}: one value and one time per pair are needed"
        )
    missing = np.flatnonzero(when != when)  # NaN and NaT alone differ from themselves
    if missing.size:
        raise ValueError(f"the time at position {missing[0]} is missing: leave the pair out")
    if since is None:
        check_number("share", share, 0.0, 1.0)
    if since is not None and per_user:
        raise ValueError("per_user needs a share: leave out since, or per_user")
    order = np.argsort(when, kind="stable")
    row_ids, rows = np.unique(users[order], return_inverse=True)
    col_ids, cols = np.unique(items[order], return_inverse=True)
    values, when = values[order], when[order]
    if since is not None:
        held = when >= np.asarray(since, when.dtype)
    elif per_user:
        held = _latest_of_each(rows, share)
    else:
        held = np.arange(len(rows)) >= len(rows) - _count(np.array(len(rows)), share)
    if held.all() or not held.any():
        raise ValueError(
            f"{np.count_nonzero(held)} of {held.size} ratings would be held out; some must be, and "
            f"some must stay: they were given from {when.min()} to {when.max()}"
            if held.size
            else "there are no ratings: at least two pairs are needed"
        )
    shape = len(row_ids), len(col_ids)
    kept, latest = (
        Ratings(rows[one], cols[one], values[one], shape, row_ids=row_ids, col_ids=col_ids)
        for one in (~held, held)
    )
    return kept, latest


def _count(of: AnyArray, share: float) -> AnyArray:
    """How many are held out of so many: at least one, and one stays."""
    count: AnyArray = np.minimum(np.maximum(np.rint(share * of), 1), of - 1)
    return count


def _latest_of_each(rows: AnyArray, share: float) -> NDArray[np.bool_]:
    """A flag per entry, where entries are in the order of time."""
    counts = np.bincount(rows)
    by_row = np.argsort(rows, kind="stable")
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    held = np.empty(len(rows), bool)
    held[by_row] = place >= np.repeat(counts - _count(counts, share), counts)
    return held
