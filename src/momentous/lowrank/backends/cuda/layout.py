"""Entries on the device: cut into chunks of about equal work, and turned from rows to columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from momentous.io.types import Integers
from momentous.lowrank.backends.cuda.arrays import Array, cupy
from momentous.lowrank.data.ratings import Compressed

SHORTEST, LONGEST = 256, 4096  # entries in a chunk, at most
WARPS = 8192  # that should have a chunk each before chunks get longer


class Chunks(NamedTuple):
    """The groups cut into pieces; chunk c has entries ``begins[c]`` to ``begins[c + 1] - 1``."""

    total: int
    begins: Array  # int64
    owners: Array  # int32: the group
    firsts: Array  # int32: the first chunk of each group, and their number
    order: Array  # int32: the longest first, so that none is left over at the end
    bounds: Array  # uint32, (count, 2): begin and end of each, in that order
    on_host: Integers  # firsts as a NumPy array
    several: Array  # int32: the groups with more than one chunk
    several_on_host: Integers


def cut(starts: Array, entries: int) -> Chunks:
    """Chunks of the groups that these starts describe."""
    length = min(max(entries // WARPS, SHORTEST), LONGEST)
    pieces = (cupy.diff(starts) + (length - 1)) // length
    firsts = cupy.zeros(starts.size, np.int64)
    cupy.cumsum(pieces, out=firsts[1:])
    count = int(firsts[-1])
    chunks = cupy.arange(count, dtype=np.int64)
    owners = cupy.searchsorted(firsts[1:], chunks, side="right")
    begins = cupy.empty(count + 1, np.int64)
    begins[:count] = starts[owners] + (chunks - firsts[owners]) * length
    begins[count] = entries
    order = cupy.argsort(-cupy.diff(begins))
    several = cupy.flatnonzero(pieces > 1).astype(np.int32)
    return Chunks(
        count,
        begins,
        owners.astype(np.int32),
        firsts.astype(np.int32),
        order.astype(np.int32),
        cupy.stack([begins[order], begins[order + 1]], axis=1).astype(np.uint32),
        cupy.asnumpy(firsts),
        several,
        cupy.asnumpy(several),
    )


def owners_of(starts: Array, entries: int) -> Array:
    """The group of each entry, as int32."""
    marks = cupy.zeros(entries + 1, np.int32)
    # Groups without entries share a start: all of them are counted there.
    cupy.add.at(marks, starts[1:-1], np.int32(1))
    return cupy.cumsum(marks[:entries], dtype=np.int32)


def transpose(groups: Compressed, others: int) -> Compressed:
    """The same entries grouped by the other side, which has so many groups; a stable sort."""
    entries = int(groups.others.size)
    order = cupy.argsort(groups.others)
    starts = cupy.zeros(others + 1, np.int64)
    cupy.cumsum(cupy.bincount(groups.others, minlength=others), out=starts[1:])
    rows = owners_of(groups.starts, entries)
    return Compressed(starts, rows[order], groups.values[order])
