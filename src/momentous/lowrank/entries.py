"""From triples as they come to checked entries in order: what `Ratings` is made of."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class Compressed:
    """Entries grouped by row (or by column), sorted by the other index within a group.

    Attributes
    ----------
    starts : int64 array of length groups + 1
        Group i owns the entries ``starts[i]`` to ``starts[i + 1] - 1``.
    others : int32 array, one an entry
        The column where groups are rows, the row where groups are columns.
    values : float array, one an entry
    """

    starts: NDArray[np.int64]
    others: NDArray[np.int32]
    values: Floats


def flat_indices(index: ArrayLike, what: str) -> Integers:
    """Indices as a flat array of integers."""
    array = np.asarray(index)
    if array.ndim != 1:
        raise ValueError(f"{what} indices must be one flat array, not of shape {array.shape}")
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(
            f"{what} indices must be integers, not {array.dtype}; number the ids from 0 and pass "
            f"them as {'row_ids' if what == 'row' else 'col_ids'}"
        )
    return array


def flat_values(values: ArrayLike) -> Floats:
    """Values as a flat array of float32, if they are that, or else of float64."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"ratings must be one flat array, not of shape {array.shape}")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"ratings must be real numbers, not {array.dtype}")
    return array if array.dtype == np.float32 else array.astype(np.float64, copy=False)


def check_finite(values: Floats, place: Callable[[int], tuple[Any, Any]]) -> None:
    """Refuse values that are not finite; `place` gives row and column of a position."""
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        k = int(bad[0])
        row, col = place(k)
        raise ValueError(
            f"the rating at position {k} (row {row}, column {col}) is {values[k]}, and {bad.size} "
            f"of {values.size} are not finite; leave out what was not rated"
        )


def flat_ids(ids: ArrayLike | None, what: str) -> NDArray[Any] | None:
    """Ids as a flat array of our own, if there are any."""
    if ids is None:
        return None
    array = np.array(ids)
    if array.ndim != 1:
        raise ValueError(f"{what} must be one flat array, not of shape {array.shape}")
    array.flags.writeable = False
    return array


def side_length(index: Integers, ids: NDArray[Any] | None, asked: int | None, what: str) -> int:
    """How many rows (or columns) there are; every index must be one of them."""
    least, greatest = int(index.min()), int(index.max())
    size = greatest + 1 if asked is None else int(asked)
    if asked is None and ids is not None:
        size = ids.size
    if least < 0:
        k = int(np.argmin(index))
        raise ValueError(f"the {what} index at position {k} is {least}; indices count from 0")
    if greatest >= size:
        k = int(np.argmax(index))
        raise ValueError(
            f"the {what} index at position {k} is {greatest}, but there are only {size} {what}s; "
            "indices count from 0"
        )
    if ids is not None and ids.size != size:
        raise ValueError(f"there are {size} {what}s but {ids.size} ids for them")
    if size > np.iinfo(np.int32).max:
        raise ValueError(f"{size} {what}s are more than the {np.iinfo(np.int32).max} possible")
    return size


def compress(row: Integers, col: Integers, value: Floats, m: int, n: int) -> Compressed:
    """Sort by row and then by column; of equal pairs keep the last."""
    order: Any = slice(None)
    if not _in_order(row, col):
        order = _stable_order(col, n)
        order = order[_stable_order(row[order], m)]
    # New arrays in any case: the caller may change theirs.
    row, others, values = row[order], col[order].astype(np.int32), np.array(value[order])
    same_as_next = (row[1:] == row[:-1]) & (others[1:] == others[:-1])
    repeated = int(np.count_nonzero(same_as_next))
    if repeated:
        warnings.warn(
            f"{repeated} of {value.size} ratings are for a pair that is rated again later; the "
            "last one counts",
            RuntimeWarning,
            stacklevel=3,  # whoever made the Ratings
        )
        last = np.append(~same_as_next, True)
        row, others, values = row[last], others[last], values[last]
    counts = np.bincount(row, minlength=m)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
    return Compressed(starts, others, values)


def _in_order(row: Integers, col: Integers) -> bool:
    """Are the pairs sorted already, as files and caches often have them?"""
    later, equal = row[1:] > row[:-1], row[1:] == row[:-1]
    return bool(np.all(later | (equal & (col[1:] >= col[:-1]))))


def _stable_order(key: Integers, size: int) -> Integers:
    """Positions in the order of the key, ties in the order given, in linear time.

    SciPy turns a matrix of one row into one compressed by column with a counting sort; NumPy's
    stable sort of 32-bit keys takes several times as long.
    """
    where = np.arange(key.size)
    one_row = scipy.sparse.csr_array((where, key, np.array([0, key.size])), shape=(1, size))
    order: Integers = one_row.tocsc().data
    return order
