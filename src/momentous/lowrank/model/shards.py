"""Models that many ranks write together: one file with the items, and one shard of users per rank.

Shards are written first, then, atomically, the file that names them: a model is the old one or the
new one at any time, and whole.  A shard is read at a time, and only what is wanted of it is kept.
"""

from __future__ import annotations

import contextlib
import glob
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentous.core.checkpoint import shard_path
from momentous.distributed import Ranks
from momentous.distributed.shards import all_or_none
from momentous.io.archive import ArchiveError, ArraySpec, read_archive, write_archive

KIND, VERSION = "low-rank model shard", 1
ENTRIES = ("starts", "others", "values")
Keep = Callable[[NDArray[Any]], NDArray[np.bool_]]


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
        manifest = {"token": token, "count": ranks.size}
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
    path: Path, shards: Mapping[str, Any], schema: Mapping[str, ArraySpec], keep: Keep | None
) -> dict[str, NDArray[Any]]:
    """The rows of all shards, in the order of their ids; with ``keep`` those that it chooses."""
    parts: list[dict[str, NDArray[Any]]] = []
    for rank in range(int(shards["count"])):
        file = shard_path(path, int(shards["token"]), rank)
        try:
            found = read_archive(file, KIND, VERSION, schema).arrays
        except OSError as error:
            raise ArchiveError(f"{path} cannot be read whole: {error}") from error
        wanted = np.arange(len(found["row_ids"]))
        parts.append(rows_of(found, wanted if keep is None else wanted[keep(found["row_ids"])]))
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    for name in joined:
        if name.endswith("starts"):
            counts = np.concatenate([np.diff(part[name]) for part in parts])
            joined[name] = _starts(counts)
    return rows_of(joined, np.argsort(joined["row_ids"], kind="stable"))


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
