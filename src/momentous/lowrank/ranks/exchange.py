"""Entries on their way from the ranks that have read them to the ranks of their users.

Each rank writes one file, in a folder that all ranks see, with its entries in the order of the
ranks that they belong to, and then reads its own stretch of every file: an entry is written once
and read once.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from momentous.distributed import Ranks
from momentous.io.types import AnyArray, AnyDType
from momentous.lowrank.data.ratings import Compressed
from momentous.lowrank.ranks.ratings import owners


class Entries(NamedTuple):
    """Of some users: their ids, and the entries with the number of the user."""

    ids: AnyArray
    rows: NDArray[np.int32]
    cols: NDArray[np.int32]
    values: AnyArray


def exchange_entries(
    ids: AnyArray, storage: Compressed, ranks: Ranks, folder: Path
) -> list[Entries]:
    """What every rank has read of this rank's users, in the order of the ranks.

    Given are the entries that this rank has read, by user, with columns as all ranks count them.
    All ranks have the same kind of ids and values.
    """
    token = int(ranks.sum(secrets.randbits(40) if ranks.rank == 0 else 0))
    width = ids.dtype.itemsize // 4 if ids.dtype.kind == "U" else 0
    width = int(ranks.all_reduce(np.array([width]), "max")[0])
    kind = np.dtype(f"U{width}" if ids.dtype.kind == "U" else np.int64)
    files = [folder / f"momentous-{token:x}-{rank}.entries" for rank in range(ranks.size)]
    mine = files[ranks.rank]
    try:
        ranks.all_or_none(lambda: _write(mine, ids.astype(kind), storage, ranks.size))
        found: list[Entries] = []
        ranks.all_or_none(
            lambda: found.extend(_read(files, ranks.rank, kind, storage.values.dtype))
        )
    finally:
        with contextlib.suppress(OSError):
            mine.unlink(missing_ok=True)
    return found


def _write(file: Path, ids: AnyArray, storage: Compressed, size: int) -> None:
    """Where the users and the entries of each rank begin, then the four arrays one by one."""
    of_rank = owners(ids, size)
    order = np.argsort(of_rank, kind="stable")
    counts = np.diff(storage.starts)
    begins = np.zeros((2, size + 1), np.int64)
    begins[0, 1:] = np.cumsum(np.bincount(of_rank, minlength=size))
    per_row = counts[order]
    until = np.concatenate([np.zeros(1, np.int64), np.cumsum(per_row)])
    begins[1] = until[begins[0]]
    places = np.arange(until[-1]) + np.repeat(storage.starts[order] - until[:-1], per_row)
    rows = np.arange(len(ids)) - np.repeat(begins[0, :-1], np.diff(begins[0]))
    # For this user alone: the ratings may come from a file that others cannot read.
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        begins.tofile(out)
        ids[order].tofile(out)
        np.repeat(rows.astype(np.int32), per_row).tofile(out)
        storage.others[places].tofile(out)
        storage.values[places].tofile(out)


def _read(files: list[Path], rank: int, kind: AnyDType, dtype: DTypeLike) -> Iterator[Entries]:
    for file in files:
        try:
            size = file.stat().st_size
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{file} is not there: the ranks exchange what they have read through files, and "
                f"must all see the folder {file.parent}"
            ) from None
        ranks = len(files) + 1
        begins = np.fromfile(file, np.int64, 2 * ranks).reshape(2, ranks)
        (users, entries), place = begins[:, -1], begins.nbytes
        parts = []
        for dtype_of, row, count in (
            (kind, 0, users), (np.dtype(np.int32), 1, entries),
            (np.dtype(np.int32), 1, entries), (np.dtype(dtype), 1, entries),
        ):  # fmt: skip
            first, last = (int(each) for each in begins[row, rank : rank + 2])
            offset = place + first * dtype_of.itemsize
            parts.append(np.fromfile(file, dtype_of, last - first, offset=offset))
            place += int(count) * dtype_of.itemsize
        if place != size:
            raise OSError(f"{file} has {size} bytes, and {place} were written")
        yield Entries(*parts)
