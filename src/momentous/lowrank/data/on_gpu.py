"""Ids numbered and ratings sorted on a GPU: for a hundred million, a second instead of ten."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import DTypeLike

from momentous.io.optional import require
from momentous.io.types import AnyArray, Integers
from momentous.lowrank.data.files.scans import choose_precision, number_ids
from momentous.lowrank.data.ratings import Compressed, Ratings, repeated_note, stored_ratings

BYTES_PER_RATING = 64  # per rating, at most


def has_room(count: int) -> bool:
    """Can so many ratings be sorted on the GPU?"""
    cupy = require("cupy", "cuda", "device='cuda'")
    try:
        free = cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise RuntimeError(f"the GPU cannot be used ({error}); take device='cpu'") from None
    return bool(BYTES_PER_RATING * count <= free)


def sorted_ratings(
    users: Integers, items: Integers, given: AnyArray, dtype: DTypeLike | None = None
) -> tuple[Ratings, list[str]]:
    """Ratings from triples of numbers, as `make_ratings` gives them."""
    cupy = require("cupy", "cuda", "device='cuda'")
    (rows, row_ids), (cols, col_ids) = (
        number_ids(cupy.asarray(side), cupy) for side in (users, items)
    )
    m, n, count = row_ids.size, col_ids.size, rows.size
    keys = rows.astype(np.int64) * n + cols
    del rows, cols
    order = cupy.argsort(keys)  # stable: of equal pairs the last stays the last
    keys = keys[order]
    last = cupy.ones(count, bool)
    last[:-1] = keys[1:] != keys[:-1]
    if not bool(last.all()):
        keys, order = keys[last], order[last]
    starts = cupy.searchsorted(keys, cupy.arange(m + 1, dtype=np.int64) * n)
    others = cupy.asnumpy((keys % n).astype(np.int32))
    del keys
    values = cupy.asarray(choose_precision(given, dtype))[order]
    storage = Compressed(cupy.asnumpy(starts.astype(np.int64)), others, cupy.asnumpy(values))
    ratings = stored_ratings((m, n), storage, (cupy.asnumpy(row_ids), cupy.asnumpy(col_ids)))
    # What a fit asks for first is at hand here.
    ratings.mean = float(values.mean(dtype=np.float64))
    # CuPy's std(dtype=np.float64) rounds the mean to the dtype of the values.
    away = values.astype(np.float64)
    away -= ratings.mean
    away *= away
    ratings.deviation = math.sqrt(float(away.mean()))
    ratings.value_range = float(values.min()), float(values.max())
    del order, values, away
    cupy.get_default_memory_pool().free_all_blocks()
    return ratings, repeated_note(count, others.size)
