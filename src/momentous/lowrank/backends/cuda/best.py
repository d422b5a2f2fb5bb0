"""The best columns of many rows: scores by blocks of rows, and what is best of each."""

from __future__ import annotations

import numpy as np

from momentous.lowrank.backends.cuda.arrays import Array, cupy
from momentous.lowrank.backends.cuda.launch import launch
from momentous.lowrank.backends.cuda.modules import plain_kernels
from momentous.lowrank.data.ratings import Compressed, Floats

SCORES = 1 << 28  # that are held at a time, at most


def best_columns(
    left: Floats, right: Floats, offsets: Floats, seen: list[Compressed], count: int
) -> tuple[Array, Floats]:
    """See `Backend.best_columns`."""
    dtype, rows, others = left.dtype, len(left), len(right)
    features, shifts = cupy.asarray(right), cupy.asarray(offsets, dtype)
    module = plain_kernels(dtype)
    columns, scores = np.empty((rows, count), np.int64), np.empty((rows, count), dtype)
    free = cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()
    length = max(1, min(SCORES, free // (4 * dtype.itemsize)) // others)
    for begin in range(0, rows, length):
        part = slice(begin, min(begin + length, rows))
        block = cupy.asarray(left[part]) @ features.T
        block += shifts
        for known in seen:
            starts = known.starts[part.start : part.stop + 1]
            hidden = cupy.asarray(known.others[starts[0] : starts[-1]])
            launch(module, "hide_seen", 32 * len(block), (
                len(block), others, cupy.asarray(starts - starts[0]), hidden, block,
            ))  # fmt: skip
        best = cupy.empty((len(block), count), np.int64)
        found = cupy.empty((len(block), count), dtype)
        launch(module, "best_columns", 256 * len(block), (others, count, block, best, found))
        columns[part], scores[part] = cupy.asnumpy(best), cupy.asnumpy(found)
    return columns, scores
