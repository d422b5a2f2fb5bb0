"""Ratings from files on many ranks: each rank reads some of the files, and gets its own users.

The files are dealt out in runs, in their order.  What was read goes once from every rank to all,
piece by piece, and each keeps the entries of its own users: of a pair that comes more than once the
last one counts, as in one process.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentous.distributed import Ranks
from momentous.lowrank.data.ratings import Compressed, Ratings, make_ratings
from momentous.lowrank.data.read import is_one_piece, read_ratings
from momentous.lowrank.data.sources import find_sources
from momentous.lowrank.ranks.ratings import RankRatings, owners

PIECE = 1 << 21  # entries that travel at a time


def read_on_ranks(source: Any, ranks: Ranks, **reading: Any) -> RankRatings:
    """This rank's part of the ratings in files; ``reading`` are options of `read_ratings`.

    Where there are fewer files than ranks, the first ranks read them.  A table or a query is read
    by rank 0.
    """
    own = _own_files(source, ranks, reading)
    kinds = [json.loads(text) for text in ranks.gather_text(json.dumps(_kinds(own)))]
    known = [kind for kind in kinds if kind is not None]
    row_kind, col_kind = (
        "U" if any(kind[which] == "U" for kind in known) else "i" for which in (0, 1)
    )
    dtype = np.dtype("float64" if any(kind[2] == "float64" for kind in known) else "float32")
    row_ids, col_ids = (
        np.empty(0, np.int64) if own is None else _ids(own, which) for which in (0, 1)
    )
    items = np.unique(_shared_ids(col_ids, col_kind, ranks))
    places = np.searchsorted(items, _as_kind(col_ids, col_kind))
    parts, mine = [], []
    for root in range(ranks.size):
        users = _shared_ids(row_ids if root == ranks.rank else row_ids[:0], row_kind, ranks)
        chosen = owners(users, ranks.size) == ranks.rank
        mine.append(users[chosen])
        for rows, cols, values in _pieces(own, places, dtype, root, ranks):
            kept = chosen[rows]
            parts.append((users[rows[kept]], cols[kept], values[kept]))
    ids = np.unique(np.concatenate(mine))
    shape = ids.size, items.size
    if not any(part[2].size for part in parts):
        empty = np.zeros(shape[0] + 1, np.int64), np.empty(0, np.int32), np.empty(0, dtype)
        return RankRatings.of_storage(shape, Compressed(*empty), (ids, items), ranks)
    users, cols, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    ratings, notes = make_ratings(
        np.searchsorted(ids, users), cols, values, shape=shape, ids=(ids, items)
    )
    for note in notes:
        warnings.warn(f"rank {ranks.rank}: {note}", RuntimeWarning, stacklevel=2)
    return RankRatings.of_storage(shape, ratings.by_row, (ids, items), ranks)


def _own_files(source: Any, ranks: Ranks, reading: dict[str, Any]) -> Ratings | None:
    if is_one_piece(source):
        return read_ratings(source, **reading) if ranks.rank == 0 else None
    names = [one.name for one in find_sources(source)]
    # With runs of equal length the last ranks could be left without any.
    begin, end = (len(names) * k // ranks.size for k in (ranks.rank, ranks.rank + 1))
    if len(names) < ranks.size:
        begin, end = min(ranks.rank, len(names)), min(ranks.rank + 1, len(names))
    if begin == end:
        return None
    if len(names) > 1:  # another number of ranks would not find what this one has kept
        reading = reading | {"cache": False}
    return read_ratings(names[begin:end] if len(names) > 1 else source, **reading)


def _ids(ratings: Ratings, which: int) -> NDArray[Any]:
    ids = (ratings.row_ids, ratings.col_ids)[which]
    return np.arange(ratings.shape[which]) if ids is None else ids


def _kinds(own: Ratings | None) -> list[str] | None:
    """Whether ids are whole numbers or texts, and the precision of the values."""
    if own is None:
        return None
    return [*("i" if _ids(own, k).dtype.kind in "iu" else "U" for k in (0, 1)), str(own.dtype)]


def _as_kind(ids: NDArray[Any], kind: str) -> NDArray[Any]:
    """Where some ranks have texts, all do: a number as it was written."""
    return ids.astype(np.int64 if kind == "i" else np.str_)


def _shared_ids(ids: NDArray[Any], kind: str, ranks: Ranks) -> NDArray[Any]:
    """The ids of all ranks, one rank after another."""
    own = _as_kind(ids, kind)
    if kind == "i":
        whole: NDArray[Any] = ranks.all_gather(own)
        return whole
    width = int(ranks.all_reduce(np.array([max(1, own.dtype.itemsize // 4)]), "max")[0])
    letters = np.ascontiguousarray(own.astype(f"U{width}")).view(np.int32).reshape(-1, width)
    every = np.ascontiguousarray(ranks.all_gather(letters))
    return every.view(f"U{width}").reshape(-1)


def _pieces(
    own: Ratings | None, places: NDArray[Any], dtype: Any, root: int, ranks: Ranks
) -> Iterator[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """The entries that one rank has read, on all ranks: rows as it counts them, columns as all do,
    and values."""
    from_here = root == ranks.rank and own is not None
    count = int(ranks.sum(own.nnz if from_here and own is not None else 0))
    rows = own.rows if from_here and own is not None else None
    for first in range(0, count, PIECE):
        piece = slice(first, min(first + PIECE, count))
        size = piece.stop - piece.start
        sent: list[NDArray[Any]] = [np.zeros(size, np.int32), np.zeros(size, np.int32)]
        sent.append(np.zeros(size, dtype))
        if own is not None and rows is not None:
            sent = [rows[piece], places[own.cols[piece]].astype(np.int32), own.values[piece]]
            sent[2] = sent[2].astype(dtype)
        got = [ranks.broadcast(array, root) for array in sent]
        yield got[0], got[1], got[2]
