"""Ratings from files on many ranks: each rank reads all files, and keeps the users that it owns."""

from __future__ import annotations

from hashlib import sha256
from typing import Unpack

import numpy as np

from momentous.distributed import Ranks
from momentous.lowrank.data.files.queries import Query, Table
from momentous.lowrank.data.files.scans import SINGLE_FROM, choose_precision
from momentous.lowrank.data.files.sources import Paths, is_stream
from momentous.lowrank.data.read import Reading, read_ratings
from momentous.lowrank.ranks.ratings import RankRatings, owners


def read_on_ranks(
    source: Table | Query | Paths, ranks: Ranks, **reading: Unpack[Reading]
) -> RankRatings:
    """This rank's part of the ratings in files; ``reading`` are options of `read_ratings`.

    All ranks must see the files.  What is read and belongs to other ranks is dropped file by file:
    ratings that do not fit into the memory of one rank have to lie in several files.
    """
    if is_stream(source):
        raise ValueError(f"{source} can be read only once, and not by every rank: make it a file")
    own = read_ratings(
        source, **reading | {"users": lambda ids: owners(ids, ranks.size) == ranks.rank}
    )
    if len(set(ranks.gather_text(sha256(own.ids(1).tobytes()).hexdigest()))) > 1:
        raise ValueError(
            f"the ranks have read different items from {source}: all ranks need the same files; "
            "write what a random query returns to a file first"
        )
    # One precision for all ranks: that which one process would have chosen for the whole.
    exact = not own.nnz or choose_precision(own.values, single_from=0).dtype == np.float32
    count, rounded = ranks.all_reduce(np.array([own.nnz, not exact], np.float64))
    if reading.get("dtype") is None:
        own = own.astype(np.float32 if count > SINGLE_FROM and not rounded else np.float64)
    return RankRatings(own, ranks)
