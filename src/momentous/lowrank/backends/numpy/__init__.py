"""The backend in NumPy and SciPy alone: no compiler needed, one thread, block by block."""

from __future__ import annotations

from momentous.lowrank.backends.base import Backend, Side
from momentous.lowrank.data.ratings import Compressed
from momentous.lowrank.losses import Loss


class NumpyBackend(Backend):
    """Sparse products and batches of linear systems: those of `Side`."""

    name = "numpy"

    def side(self, groups: Compressed, loss: Loss, threads: int) -> Side:
        return Side(groups, loss)
