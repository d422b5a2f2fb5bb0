"""The backend in NumPy and SciPy alone: no compiler needed, one thread, block by block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse

from momentous.lowrank.backends.base import Backend, Side
from momentous.lowrank.data.ratings import Compressed, Floats
from momentous.lowrank.losses import Loss

BLOCK = 1 << 17  # entries worked on at a time: the temporaries take this times the rank


class NumpyBackend(Backend):
    """Sparse products and batches of linear systems."""

    name = "numpy"

    def side(self, groups: Compressed, loss: Loss, threads: int) -> Side:
        return NumpySide(groups, loss)


class NumpySide(Side):
    """Every block is made of whole groups, so what is needed beside the factors and the entries
    does not grow with the number of entries."""

    threads = 1

    def __init__(self, groups: Compressed, loss: Loss):
        self.groups, self.loss = groups, loss

    # --- value and gradient -----------------------------------------------------------------------

    def value(self, left: Floats, right: Floats) -> float:
        return sum(self._block(left, right, first, last)[0] for first, last in self._ranges())

    def add_gradient(
        self, left: Floats, right: Floats, scale: float, own: Floats, far: Floats
    ) -> float:
        total = 0.0
        for first, last in self._ranges():
            value, slopes = self._block(left, right, first, last)
            slopes *= slopes.dtype.type(scale)
            own[first:last] += slopes @ right
            far += slopes.T @ left[first:last]
            total += value
        return total

    def _ranges(self) -> Iterator[tuple[int, int]]:
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
        values, slopes, _ = self.loss.entries(z, self.groups.values[entries])
        slopes = np.asarray(slopes, z.dtype)
        shape = (last - first, right.shape[0])
        matrix = scipy.sparse.csr_array((slopes, others, starts - starts[0]), shape=shape)
        return float(np.sum(values, dtype=np.float64)), matrix
