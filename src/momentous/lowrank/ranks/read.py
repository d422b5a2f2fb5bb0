"""Ratings from files on many ranks: each rank reads its share, and gets its own users.

What was read goes once to the rank of its user: of a pair that comes more than once the last one
counts, as in one process.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Unpack

import numpy as np

from momentous.distributed import Ranks
from momentous.io.types import AnyArray
from momentous.lowrank.data.errors import RatingsFileError
from momentous.lowrank.data.files.queries import Query, Table
from momentous.lowrank.data.files.scans import SINGLE_FROM, choose_precision
from momentous.lowrank.data.files.sources import Paths, is_stream
from momentous.lowrank.data.ratings import Compressed, Ratings, make_ratings
from momentous.lowrank.data.read import Reading, is_one_piece, read_ratings
from momentous.lowrank.ranks.exchange import exchange_entries
from momentous.lowrank.ranks.pieces import Lines, own_sources
from momentous.lowrank.ranks.ratings import RankRatings


def read_on_ranks(
    source: Table | Query | Paths,
    ranks: Ranks,
    *,
    folder: Path | str = ".",
    **reading: Unpack[Reading],
) -> RankRatings:
    """This rank's part of the ratings in files; ``reading`` are options of `read_ratings`.

    All ranks must see the files, and the ``folder`` where entries are on their way.  A table, a
    query or a pipe, and a file that cannot be cut (packed, or with quotes), is read by one rank.
    """
    own = _own_share(source, ranks, reading)
    kinds = [json.loads(text) for text in ranks.gather_text(json.dumps(_kinds(own)))]
    known = [kind for kind in kinds if kind is not None]
    row_kind, col_kind = (
        "U" if any(kind[which] == "U" for kind in known) else "i" for which in (0, 1)
    )
    dtype = np.dtype("float64" if any(kind[2] == "float64" for kind in known) else "float32")
    if reading.get("dtype") is None and sum(kind[3] for kind in known) > SINGLE_FROM:
        # So many that one process would have kept them in single precision, where that is exact.
        dtype = np.dtype("float32" if all(kind[4] for kind in known) else "float64")
    nothing = np.empty(0, np.int64)
    row_ids, col_ids = (nothing if own is None else _ids(own, which) for which in (0, 1))
    items = _all_ids(_as_kind(col_ids, col_kind), col_kind, ranks, Path(folder))
    places = np.searchsorted(items, _as_kind(col_ids, col_kind)).astype(np.int32)
    storage = Compressed(np.zeros(1, np.int64), nothing.astype(np.int32), nothing.astype(dtype))
    if own is not None:
        values = own.values.astype(dtype, copy=False)
        storage = Compressed(own.by_row.starts, places[own.cols], values)
    del own
    parts = exchange_entries(_as_kind(row_ids, row_kind), storage, ranks, Path(folder))
    ids = np.unique(np.concatenate([part.ids for part in parts]))
    shape = ids.size, items.size
    users = [np.searchsorted(ids, part.ids).astype(np.int32)[part.rows] for part in parts]
    if not any(part.size for part in users):
        empty = np.zeros(shape[0] + 1, np.int64), np.empty(0, np.int32), np.empty(0, dtype)
        return RankRatings.of_storage(shape, Compressed(*empty), (ids, items), ranks)
    ratings, notes = make_ratings(
        np.concatenate(users),
        np.concatenate([part.cols for part in parts]),
        np.concatenate([part.values for part in parts]),
        shape=shape,
        ids=(ids, items),
    )
    for note in notes:
        warnings.warn(f"rank {ranks.rank}: {note}", RuntimeWarning, stacklevel=2)
    return RankRatings.of_storage(shape, ratings.by_row, (ids, items), ranks)


def _own_share(source: Table | Query | Paths, ranks: Ranks, reading: Reading) -> Ratings | None:
    """What this rank reads."""
    if is_one_piece(source) or is_stream(source):
        return read_ratings(source, **reading) if ranks.rank == 0 else None
    own = own_sources(source, ranks, reading)
    if not own:
        return None
    try:
        # What is kept of a piece would be of no use to another number of ranks.
        return read_ratings(own, **reading | {"cache": False})
    except RatingsFileError as error:
        for piece in own:
            if isinstance(piece, Lines) and piece.name == error.path:
                raise piece.with_line_of_file(error) from None
        raise


def _ids(ratings: Ratings, which: int) -> AnyArray:
    ids = (ratings.row_ids, ratings.col_ids)[which]
    return np.arange(ratings.shape[which]) if ids is None else ids


def _kinds(own: Ratings | None) -> list[str | int | bool] | None:
    """Whether ids are whole numbers or texts; the precision of the values, how many there are, and
    whether single precision has them all."""
    if own is None:
        return None
    exact = choose_precision(own.values, single_from=0).dtype == np.float32
    kinds = ("i" if _ids(own, k).dtype.kind in "iu" else "U" for k in (0, 1))
    return [*kinds, str(own.dtype), own.nnz, bool(exact)]


def _as_kind(ids: AnyArray, kind: str) -> AnyArray:
    """Where some ranks have texts, all do: a number as it was written."""
    return ids.astype(np.int64 if kind == "i" else np.str_)


def _all_ids(ids: AnyArray, kind: str, ranks: Ranks, folder: Path) -> AnyArray:
    """The different ids of all ranks, in order: each rank sorts out those that a hash gives it."""
    no_entries = Compressed(
        np.zeros(ids.size + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.float32)
    )
    parts = exchange_entries(ids, no_entries, ranks, folder)
    mine = np.unique(np.concatenate([part.ids for part in parts]))
    return np.sort(_shared_ids(mine, kind, ranks))


def _shared_ids(ids: AnyArray, kind: str, ranks: Ranks) -> AnyArray:
    """The ids of all ranks, one rank after another."""
    own = _as_kind(ids, kind)
    if kind == "i":
        whole: AnyArray = ranks.all_gather(own)
        return whole
    width = int(ranks.all_reduce(np.array([max(1, own.dtype.itemsize // 4)]), "max")[0])
    letters = np.ascontiguousarray(own.astype(f"U{width}")).view(np.int32).reshape(-1, width)
    every = np.ascontiguousarray(ranks.all_gather(letters))
    return every.view(f"U{width}").reshape(-1)
