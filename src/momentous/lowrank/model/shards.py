"""Models that many ranks write together: one file with the items, and one shard of users per rank.

Shards are written first, then, atomically, the file that names them: a model is the old one or the
new one at any time, and whole.  Which shard a user is in, a hash of the id says: only the shards of
the users that are wanted are read, one at a time, and only these users are kept.
"""

from __future__ import annotations

import contextlib
import glob
import math
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from momentous.core.checkpoint import shard_path
from momentous.distributed import Ranks
from momentous.distributed.shards import all_or_none
from momentous.io.archive import ArchiveError, ArraySpec, read_archive, write_archive
from momentous.lowrank.data.ids import as_ids
from momentous.lowrank.data.tables import is_plain_number
from momentous.lowrank.data.vocabulary import UNKNOWN, Vocabulary
from momentous.lowrank.ranks.ratings import owners

KIND, VERSION = "low-rank model shard", 1
ENTRIES = ("starts", "others", "values")


class Wanted(Protocol):
    """Which users are wanted of a model."""

    def shards(self, count: int, kind: str) -> Iterable[int]:
        """The shards, of so many, that they may be in; the kind of the ids is that of a dtype."""

    def chosen(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of these they are."""


class OfRank(Wanted):
    """The users of one of so many ranks."""

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size

    def shards(self, count: int, kind: str) -> Iterable[int]:
        # A hash that is `rank` modulo the size is the same modulo what both numbers are divided by.
        common = math.gcd(count, self.size)
        return range(self.rank % common, count, common)

    def chosen(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray(owners(ids, self.size) == self.rank)


class WithIds(Wanted):
    """The users with these ids, which may be texts where the model has numbers."""

    def __init__(self, ids: Any):
        self.ids = Vocabulary(np.unique(as_ids(ids)))

    def shards(self, count: int, kind: str) -> Iterable[int]:
        ids = self.ids.ids
        if kind in "iu" and ids.dtype.kind in "US":
            ids = np.array([int(one) for one in ids if is_plain_number(str(one))], np.int64)
        elif kind in "US":
            ids = ids.astype(np.str_)
        elif kind not in "iu":
            return range(count)
        return [int(one) for one in np.unique(owners(ids, count))] or [0]

    def chosen(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray(self.ids.positions(ids) != UNKNOWN)


def save_shards(
    path: Path, rows: Mapping[str, Any], save_rest: Callable[[dict[str, Any]], None], ranks: Ranks
) -> None:
    """Write this rank's shard; ``save_rest``, on rank 0, writes the file with what it is given.

    A failure of one rank is an OSError on all of them, and leaves the old model as it was.
    """
    token = int(ranks.sum(secrets.randbits(40) if ranks.rank == 0 else 0))
    mine = shard_path(path, token, ranks.rank)
    try:
        all_or_none(ranks, lambda: write_archive(mine, KIND, VERSION, {}, rows))
        kind = np.asarray(rows["row_ids"]).dtype.kind
        manifest = {"token": token, "count": ranks.size, "kind": kind}
        all_or_none(ranks, lambda: save_rest(manifest) if ranks.rank == 0 else None)
    except OSError:
        mine.unlink(missing_ok=True)
        raise
    if ranks.rank == 0:
        remove_shards(path, token)


def remove_shards(path: Path, token: int | None = None) -> None:
    """Remove the shards of models that were written here before."""
    kept = "" if token is None else shard_path(path, token, 0).name[:-1]
    for shard in path.parent.glob(f"{glob.escape(path.name)}.shard-*"):
        if not kept or not shard.name.startswith(kept):
            with contextlib.suppress(OSError):
                shard.unlink()


def load_shards(
    path: Path, manifest: Mapping[str, Any], schema: Mapping[str, ArraySpec], wanted: Wanted | None
) -> dict[str, NDArray[Any]]:
    """The rows that are wanted, or all, in the order of their ids."""
    parts: list[dict[str, NDArray[Any]]] = []
    count = int(manifest["count"])
    shards = range(count) if wanted is None else wanted.shards(count, str(manifest["kind"]))
    for shard in shards:
        file = shard_path(path, int(manifest["token"]), shard)
        try:
            found = read_archive(file, KIND, VERSION, schema).arrays
        except OSError as error:
            raise ArchiveError(f"{path} cannot be read whole: {error}") from error
        parts.append(found if wanted is None else wanted_rows(found, wanted))
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    for name in joined:
        if name.endswith("starts"):
            counts = np.concatenate([np.diff(part[name]) for part in parts])
            joined[name] = _starts(counts)
    return rows_of(joined, np.argsort(joined["row_ids"], kind="stable"))


def wanted_rows(arrays: dict[str, NDArray[Any]], wanted: Wanted) -> dict[str, NDArray[Any]]:
    """Those of the rows that are wanted."""
    return rows_of(arrays, np.flatnonzero(wanted.chosen(arrays["row_ids"])))


def rows_of(arrays: dict[str, NDArray[Any]], rows: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Some of the rows, in that order."""
    found = {name: arrays[name][rows] for name in ("row_ids", "row_factors", "row_bias")}
    for name in arrays:
        if name.endswith("starts"):
            prefix = name.removesuffix("starts")
            starts, others, values = (arrays[prefix + each] for each in ENTRIES)
            counts = np.diff(starts)[rows]
            new = _starts(counts)
            places = np.arange(new[-1]) + np.repeat(starts[rows] - new[:-1], counts)
            found |= {name: new, f"{prefix}others": others[places]}
            found[f"{prefix}values"] = values[places]
    return found


def _starts(counts: NDArray[Any]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])
