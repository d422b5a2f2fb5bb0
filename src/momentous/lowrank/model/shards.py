"""Which users are wanted of a model, and so which of its shards.

Which shard a user is in, a hash of the id says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from momentous.io.types import AnyArray
from momentous.lowrank.data.files.scans import is_plain_number
from momentous.lowrank.data.ids import Ids, as_ids
from momentous.lowrank.data.vocabulary import UNKNOWN, Vocabulary
from momentous.lowrank.ranks.ratings import owners


class OfRank:
    """The users of one of so many ranks."""

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size

    def shards(self, count: int, kind: str) -> Iterable[int]:
        """The shards, of so many, that they may be in; the kind of the ids is that of a dtype."""
        # A hash that is `rank` modulo the size is the same modulo what both numbers are divided by.
        common = math.gcd(count, self.size)
        return range(self.rank % common, count, common)

    def chosen(self, ids: AnyArray) -> NDArray[np.bool_]:
        """Which of these they are."""
        return np.asarray(owners(ids, self.size) == self.rank)


class WithIds:
    """The users with these ids, which may be texts where the model has numbers."""

    def __init__(self, ids: Ids):
        self.ids = Vocabulary(np.unique(as_ids(ids)))

    def shards(self, count: int, kind: str) -> Iterable[int]:
        """As those of a rank."""
        ids = self.ids.ids
        if kind in "iu" and ids.dtype.kind in "US":
            ids = np.array([int(one) for one in ids if is_plain_number(str(one))], np.int64)
        elif kind in "US":
            ids = ids.astype(np.str_)
        elif kind not in "iu":
            return range(count)
        return [int(one) for one in np.unique(owners(ids, count))] or [0]

    def chosen(self, ids: AnyArray) -> NDArray[np.bool_]:
        """Which of these they are."""
        return np.asarray(self.ids.positions(ids) != UNKNOWN)


Wanted = OfRank | WithIds
