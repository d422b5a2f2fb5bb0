"""Models that many ranks write together: one file with the items, and one shard of users per rank.

Shards are written first, then, atomically, the file that names them: a model is the old one or the
new one at any time, and whole.  Which shard a user is in, a hash of the id says: only the shards of
the users that are wanted are read, one at a time, and only these users are kept.
"""

from __future__ import annotations

import contextlib
import math
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from momentous.core.checkpoint import shard_path, shards_beside
from momentous.distributed import Ranks
from momentous.io.archive import ArchiveError, ArraySpec, read_archive, write_archive
from momentous.io.atomic import permissions_of
from momentous.io.types import AnyArray, JsonObject
from momentous.lowrank.data.files.scans import is_plain_number
from momentous.lowrank.data.ids import Ids, as_ids
from momentous.lowrank.data.vocabulary import UNKNOWN, Vocabulary
from momentous.lowrank.model.stored import RUN, StoredRows, StoredSide, unpack_run
from momentous.lowrank.ranks.ratings import owners
from momentous.lowrank.solvers.fit import FitRun

KIND, VERSION = "low-rank model shard", 2
KINDS = ("i", "u", "f", "U", "S")  # of ids


class Wanted(Protocol):
    """Which users are wanted of a model."""

    def shards(self, count: int, kind: str) -> Iterable[int]:
        """The shards, of so many, that they may be in; the kind of the ids is that of a dtype."""

    def chosen(self, ids: AnyArray) -> NDArray[np.bool_]:
        """Which of these they are."""


class OfRank(Wanted):
    """The users of one of so many ranks."""

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size

    def shards(self, count: int, kind: str) -> Iterable[int]:
        # A hash that is `rank` modulo the size is the same modulo what both numbers are divided by.
        common = math.gcd(count, self.size)
        return range(self.rank % common, count, common)

    def chosen(self, ids: AnyArray) -> NDArray[np.bool_]:
        return np.asarray(owners(ids, self.size) == self.rank)


class WithIds(Wanted):
    """The users with these ids, which may be texts where the model has numbers."""

    def __init__(self, ids: Ids):
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

    def chosen(self, ids: AnyArray) -> NDArray[np.bool_]:
        return np.asarray(self.ids.positions(ids) != UNKNOWN)


def save_shards(
    path: Path,
    rows: Mapping[str, AnyArray],
    run: JsonObject | None,
    save_rest: Callable[[JsonObject], None],
    ranks: Ranks,
) -> None:
    """Write this rank's shard; ``save_rest``, on rank 0, writes the file with what it is given.

    ``run`` is what JSON can hold of this rank's part of the run that led to the model.
    A failure of one rank is an OSError on all of them, and leaves the old model as it was.
    """
    token = int(ranks.sum(secrets.randbits(40) if ranks.rank == 0 else 0))
    mine = shard_path(path, token, ranks.rank)
    content = _content(token, ranks.rank, ranks.size) | {"run": run}
    mode = permissions_of(path)  # a shard is for nobody who may not read the model
    try:
        ranks.all_or_none(
            lambda: write_archive(mine, KIND, VERSION, content, rows, permissions=mode)
        )
        kind = np.asarray(rows["row_ids"]).dtype.kind
        manifest = {"token": token, "count": ranks.size, "kind": kind}
        ranks.all_or_none(lambda: save_rest(manifest) if ranks.rank == 0 else None)
    except OSError:
        mine.unlink(missing_ok=True)
        raise
    if ranks.rank == 0:
        remove_shards(path, token)


def remove_shards(path: Path, token: int | None = None) -> None:
    """Remove the shards of models that were written here before."""
    for shard in shards_beside(path):
        if token is None or not shard.name.startswith(shard_path(path, token, 0).name[:-1]):
            with contextlib.suppress(OSError):
                shard.unlink()


def load_shards(
    path: Path,
    manifest: JsonObject,
    schema: Mapping[str, ArraySpec],
    cols: StoredSide,
    wanted: Wanted | None,
) -> tuple[StoredRows, FitRun | None]:
    """The rows that are wanted, or all, in the order of `StoredRows.join`.

    And the run that led to the model, where one of as many ranks asks for its own rows.
    """
    token, count, kind = (manifest[name] for name in ("token", "count", "kind"))
    if not (_is_count(token, 2**40) and _is_count(count, 2**31) and count) or kind not in KINDS:
        raise ValueError(f"its shards are described by {dict(manifest)}"[:200])
    parts: list[StoredRows] = []
    run, of_same_ranks = None, isinstance(wanted, OfRank) and wanted.size == count
    for shard in range(count) if wanted is None else wanted.shards(count, kind):
        file = shard_path(path, token, shard)
        try:
            archive = read_archive(file, KIND, VERSION, schema, RUN if of_same_ranks else None)
            own, expected = archive.content, _content(token, shard, count)
            if {name: own.get(name) for name in expected} != expected:
                raise ValueError(
                    f"is shard {own.get('shard')} of {own.get('count')} of a model with the token "
                    f"{own.get('token')}, where shard {shard} of {count} with the token {token} "
                    "is expected"
                )
            found = StoredRows.with_entries(archive.arrays, cols)
            if of_same_ranks:
                run = unpack_run(own["run"], archive.arrays)
        except OSError as error:
            raise ArchiveError(f"{path} cannot be read whole: {error}") from error
        except ArchiveError:
            raise  # it names the file already
        except (ValueError, KeyError, TypeError) as error:
            problem = f"it lacks {error}" if isinstance(error, KeyError) else error
            raise ValueError(f"{file.name}: {problem}") from error
        parts.append(found if wanted is None else wanted_rows(found, wanted))
    return StoredRows.join(parts), run


def wanted_rows(rows: StoredRows, wanted: Wanted) -> StoredRows:
    """Those of the rows that are wanted."""
    return rows.take(np.flatnonzero(wanted.chosen(rows.ids)))


def _content(token: int, shard: int, count: int) -> JsonObject:
    """What a shard says of itself: of which model it is, and which part."""
    return {"token": token, "shard": shard, "count": count}


def _is_count(number: object, limit: int) -> bool:
    return type(number) is int and 0 <= number < limit
