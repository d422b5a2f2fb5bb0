"""Entries of a matrix sorted by row and then by column, in linear time."""

from __future__ import annotations

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from momentous.io.types import AnyArray, Floats, Integers


def compressed_by_row(
    row: Integers, col: Integers, value: AnyArray, m: int, n: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], AnyArray]:
    """Sorted by row and then by column; of equal pairs the last is kept.

    Returns where each row starts, and columns and values, in new arrays.
    """
    is_sorted = not np.any(row[1:] < row[:-1])  # the cheap question first
    if is_sorted and np.all((row[1:] > row[:-1]) | (col[1:] >= col[:-1])):
        # New arrays in any case: the caller may change theirs.
        others, values = col.astype(np.int32), np.array(value)
    else:
        if np.any(col[1:] < col[:-1]):  # Netflix comes column by column
            row, value = (_in_order(part, col, n) for part in (row, value))
        row, others, values = _transpose(row, col, value, m, n)
    same_as_next = (row[1:] == row[:-1]) & (others[1:] == others[:-1])
    if same_as_next.any():
        last = np.append(~same_as_next, True)
        row, others, values = row[last], others[last], values[last]
    counts = np.bincount(row, minlength=m)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
    return starts, others, values


def _transpose(
    row: Integers, col: Integers, value: AnyArray, m: int, n: int
) -> tuple[Integers, NDArray[np.int32], AnyArray]:
    """Entries that come column by column put row by row, by SciPy's counting sort."""
    starts = np.append(0, np.cumsum(np.bincount(col, minlength=n)))
    # In int32 where that is enough: otherwise SciPy makes all indices int64.
    starts = starts.astype(np.int32 if col.size < 2**31 else np.int64)
    turned = scipy.sparse.csc_array((value, row, starts), shape=(m, n)).tocsr()
    rows = np.repeat(np.arange(m, dtype=np.int32), np.diff(turned.indptr))
    return rows, turned.indices.astype(np.int32, copy=False), turned.data


def _in_order(values: AnyArray, key: Integers, size: int) -> AnyArray:
    """Values in the order of their keys below the size, ties as given, in linear time.

    SciPy turns a matrix of one row into one compressed by column with a counting sort; NumPy's
    stable sort of 32-bit keys takes several times as long.
    """
    one_row = scipy.sparse.csr_array((values, key, np.array([0, key.size])), shape=(1, size))
    ordered: AnyArray = one_row.tocsc().data
    return ordered


def sum_repeated(
    rows: Integers, cols: Integers, values: Floats
) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
    """Each pair of row and column once, with the sum of its values."""
    sums = scipy.sparse.coo_array((values, (rows, cols))).tocsr().tocoo()
    return sums.row.astype(np.int32), sums.col.astype(np.int32), sums.data
