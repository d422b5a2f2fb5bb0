"""The backend in NumPy and SciPy alone: no compiler needed, one thread."""

from __future__ import annotations

from typing import Any

from momentous.lowrank.backends.base import Backend, Blocks, Matrix
from momentous.lowrank.backends.numpy.blocks import BlockSolver
from momentous.lowrank.backends.numpy.entries import NumpySide
from momentous.lowrank.data.ratings import Compressed, Floats
from momentous.lowrank.losses import Loss


class NumpyBackend(Backend):
    """Sparse products and batches of linear systems."""

    name = "numpy"

    def side(self, groups: Compressed, loss: Loss, threads: int) -> NumpySide:
        """The entries as they are."""
        return NumpySide(groups, loss)

    def factorised(self, blocks: Matrix, factor: Floats, dtype: Any) -> Blocks:
        """See `Backend.factorised`."""
        return BlockSolver.of(blocks, factor, dtype)
