"""The backend in NumPy and SciPy alone: no compiler needed, one thread, block by block."""

from __future__ import annotations

import numpy as np

from momentous.lowrank.backends.base import Backend, Side
from momentous.lowrank.backends.sums import blocks, evaluate
from momentous.lowrank.data.ratings import Compressed, Floats
from momentous.lowrank.losses import Loss


class NumpyBackend(Backend):
    """Sparse products and batches of linear systems."""

    name = "numpy"

    def side(self, groups: Compressed, loss: Loss, threads: int) -> Side:
        return NumpySide(groups, loss)


class NumpySide(Side):
    """A block of entries at a time, so that what is needed beside the factors and the entries does
    not grow with the number of entries."""

    threads = 1

    def __init__(self, groups: Compressed, loss: Loss):
        self.groups, self.loss = groups, loss

    def value(self, left: Floats, right: Floats) -> float:
        return sum(
            float(np.sum(evaluate(block, self.groups, self.loss, right, None, left)[0]))
            for block in blocks(self.groups, right.shape[1])
        )

    def add_gradient(
        self, left: Floats, right: Floats, scale: float, own: Floats, far: Floats
    ) -> float:
        total = 0.0
        for block in blocks(self.groups, right.shape[1]):
            values, slopes, _ = evaluate(block, self.groups, self.loss, right, None, left)
            matrix = block.matrix((scale * slopes).astype(own.dtype), len(right))
            own[block.rows] += matrix @ right
            far += matrix.T @ left[block.rows]
            total += float(np.sum(values))
        return total
