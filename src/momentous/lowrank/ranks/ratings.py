"""The ratings of one rank: those of its own users, and what is known about all of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from momentous.distributed import Ranks
from momentous.io.types import AnyArray
from momentous.lowrank.data.draws import keys_of, mix
from momentous.lowrank.data.ratings import Compressed, Ratings, Rng


class Totals(NamedTuple):
    """What all ranks together have."""

    nnz: int
    weight: float
    shape: tuple[int, int]
    mean: float
    deviation: float
    value_range: tuple[float, float]


class RankRatings(Ratings):
    """The ratings of the users of this rank; columns are the same on all ranks.

    Users belong to ranks by a hash of their id.  Every rank makes the same calls: to make one of
    these is a call over ranks, and so are `where`, `signs` and others that make new ones.

    Parameters
    ----------
    own : Ratings
        With the ids of the rows, and with all columns.
    ranks : Ranks
    """

    def __init__(self, own: Ratings, ranks: Ranks):
        self._take(own.shape, own.by_row, (own.ids(0), own.col_ids))
        self.ranks, shape = ranks, own.shape
        values, weights = self.values.astype(np.float64, copy=False), self.weights
        weights = np.ones(1) if weights is None else weights.astype(np.float64)
        here = [values.size, shape[0], (weights * values).sum(), self.weight]
        sums = ranks.all_reduce(np.array(here, np.float64))
        nnz, rows, weight = int(sums[0]), int(sums[1]), float(sums[3])
        if not nnz:
            raise ValueError("there are no ratings on any rank: at least one entry is needed")
        mean = float(sums[2]) / weight
        squares = ranks.sum(float((weights * np.square(values - mean)).sum()))
        ends = [values.max(), -values.min()] if values.size else [-math.inf, -math.inf]
        high, low = ranks.all_reduce(np.array(ends, np.float64), "max")
        deviation, limits = math.sqrt(squares / weight), (-float(low), float(high))
        self._whole = Totals(nnz, weight, (rows, shape[1]), mean, deviation, limits)

    @classmethod
    def share_of(cls, ratings: Ratings, ranks: Ranks) -> RankRatings:
        """This rank's part of ratings that every rank has."""
        return cls(ratings.of_users(lambda ids: owners(ids, ranks.size) == ranks.rank), ranks)

    def _like(self, storage: Compressed) -> RankRatings:
        return RankRatings(super()._like(storage), self.ranks)

    @property
    def whole(self) -> Totals:
        """Number and weight of the entries, shape, mean, deviation and range of the values on all
        ranks."""
        return self._whole

    def totals(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        sums: NDArray[np.int64] = self.ranks.all_reduce(counts)
        return sums

    def shared_seed(self, rng: Rng) -> np.uint64:
        """That of rank 0."""
        drawn = np.array([super().shared_seed(rng)]).view(np.int64)
        return np.uint64(self.ranks.broadcast(drawn).view(np.uint64)[0])

    @property
    def density(self) -> float:
        """Share of this rank's part of the matrix that is observed."""
        return self.nnz / max(1, math.prod(self.shape))


def owners(ids: AnyArray, size: int) -> NDArray[np.int64]:
    """The rank that each user belongs to."""
    return (mix(keys_of(ids)) % np.uint64(size)).astype(np.int64)
