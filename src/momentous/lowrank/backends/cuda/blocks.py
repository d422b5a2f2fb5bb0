"""Block-diagonal matrices on the device; what `Blocks` does, one thread per row."""

from __future__ import annotations

from functools import partialmethod

import numpy as np
from numpy.typing import DTypeLike

from momentous.lowrank.backends.blocks import Blocks
from momentous.lowrank.backends.cuda.arrays import Array, cupy
from momentous.lowrank.backends.cuda.launch import launch
from momentous.lowrank.backends.cuda.modules import plain_kernels

NUMBERS = 1 << 26  # in the temporaries of a refresh


class CudaBlocks(Blocks):
    """D = L L', a block for each row of a factor, and that factor."""

    @classmethod
    def of(cls, blocks: Array, factor: Array, dtype: DTypeLike) -> CudaBlocks:
        rank, rows = blocks.shape[1:]
        blocks = cupy.ascontiguousarray(blocks)
        launch(plain_kernels(np.float64), "factorise", rows, (rows, rank, blocks))
        return cls(blocks.astype(dtype, copy=False), cupy.ascontiguousarray(factor.T))

    def _apply(self, what: int, v: Array) -> Array:
        rank, rows = self.factor.shape
        v, y = cupy.ascontiguousarray(v, self.L.dtype), cupy.empty_like(self.factor)
        launch(plain_kernels(self.L.dtype), "apply", rows, (rows, rank, what, self.L, v, y))
        return y

    down = partialmethod(_apply, 0)
    up = partialmethod(_apply, 1)
    forward = partialmethod(_apply, 2)
    backward = partialmethod(_apply, 3)

    def products(self) -> Array:
        rank, rows = self.factor.shape
        down, right = cupy.tril_indices(rank)
        total = cupy.zeros((down.size, down.size))
        length = max(1, NUMBERS // rank**2)
        for first in range(0, rows, length):
            part = slice(first, min(first + length, rows))
            L = cupy.ascontiguousarray(self.L[:, :, part])
            X, D = cupy.zeros_like(L), cupy.zeros_like(L)
            count = L.shape[2]
            launch(plain_kernels(L.dtype), "invert", count, (count, rank, L, X, D))
            U = self.factor[:, part]
            total += D[down, right].astype(np.float64) @ (U[down] * U[right]).T.astype(np.float64)
        place = cupy.empty((rank, rank), np.int64)
        place[down, right] = cupy.arange(down.size)
        place[right, down] = cupy.arange(down.size)
        return 4.0 * total[place[:, :, None, None], place].transpose(2, 0, 1, 3)
