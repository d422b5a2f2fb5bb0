"""The backend in NumPy and SciPy alone: no compiler needed, one thread."""

from __future__ import annotations

from momentous.lowrank.backends.base import Backend, Side
from momentous.lowrank.backends.numpy.entries import NumpySide
from momentous.lowrank.data.ratings import Compressed
from momentous.lowrank.losses import Loss


class NumpyBackend(Backend):
    """Sparse products and batches of linear systems."""

    name = "numpy"

    def side(self, groups: Compressed, loss: Loss, threads: int) -> Side:
        """The entries as they are."""
        return NumpySide(groups, loss)
