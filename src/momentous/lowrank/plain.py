"""The pass over all entries in NumPy and SciPy, block by block: no compiler needed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from momentous.lowrank.data.ratings import Compressed, Floats
from momentous.lowrank.losses import EntryLoss

BLOCK = 1 << 17  # entries worked on at a time: the temporaries take this times the rank


class PlainPass:
    """Sum of the losses over all entries, and its gradient.

    Every block is made of whole groups, so what is needed beside the factors and the entries does
    not grow with the number of entries.

    Parameters
    ----------
    groups : Compressed
        The entries, grouped by the index of the left factor.
    loss : EntryLoss
    """

    threads = 1

    def __init__(self, groups: Compressed, loss: EntryLoss):
        self.groups, self.loss = groups, loss

    def value(self, left: Floats, right: Floats) -> float:
        """Sum of the losses."""
        return sum(self._block(left, right, first, last)[0] for first, last in self._blocks())

    def add_gradient(
        self,
        left: Floats,
        right: Floats,
        scale: float,
        left_gradient: Floats,
        right_gradient: Floats,
    ) -> float:
        """Add `scale` times the gradient to what is there already; return the sum of the losses."""
        total = 0.0
        for first, last in self._blocks():
            value, slopes = self._block(left, right, first, last)
            slopes *= slopes.dtype.type(scale)
            left_gradient[first:last] += slopes @ right
            right_gradient += slopes.T @ left[first:last]
            total += value
        return total

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Ranges of groups with about `BLOCK` entries; a longer group is a block of its own."""
        starts = self.groups.starts
        first, count = 0, starts.size - 1
        while first < count:
            last = int(np.searchsorted(starts, starts[first] + BLOCK, side="right")) - 1
            last = min(max(last, first + 1), count)
            yield first, last
            first = last

    def _block(
        self, left: Floats, right: Floats, first: int, last: int
    ) -> tuple[float, scipy.sparse.csr_array]:
        """The losses of the groups first to last - 1, summed; their slopes as a sparse matrix."""
        starts = self.groups.starts[first : last + 1]
        entries = slice(starts[0], starts[-1])
        others = self.groups.others[entries]
        rows = np.repeat(np.arange(first, last), np.diff(starts))
        z = np.einsum("ij,ij->i", left[rows], right[others])
        value, slopes = self.loss.evaluate(z, self.groups.values[entries])
        shape = (last - first, right.shape[0])
        return value, scipy.sparse.csr_array((slopes, others, starts - starts[0]), shape=shape)


def products(left: Floats, right: Floats, rows: ArrayLike, cols: ArrayLike) -> Floats:
    """``left[rows[k]] . right[cols[k]]`` for each k, block by block."""
    rows, cols = np.broadcast_arrays(_within(rows, left, "row"), _within(cols, right, "column"))
    out = np.empty(rows.shape, left.dtype)
    flat_rows, flat_cols, flat_out = rows.ravel(), cols.ravel(), out.reshape(-1)
    for start in range(0, flat_out.size, BLOCK):
        block = slice(start, start + BLOCK)
        flat_out[block] = np.einsum("ij,ij->i", left[flat_rows[block]], right[flat_cols[block]])
    return out


def _within(index: ArrayLike, factor: Floats, what: str) -> NDArray[np.intp]:
    array = np.asarray(index)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{what} indices must be integers, not {array.dtype}")
    bad = np.flatnonzero((array < 0) | (array >= factor.shape[0]))
    if bad.size:
        raise IndexError(
            f"the {what} index {array.flat[bad[0]]} at position {bad[0]} is not one of the "
            f"{factor.shape[0]} {what}s; indices count from 0"
        )
    return array.astype(np.intp, copy=False)
