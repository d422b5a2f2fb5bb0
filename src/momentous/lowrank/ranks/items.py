"""The items' half of a sweep, where the users that an item has entries of are on many ranks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from momentous.distributed import Ranks
from momentous.io.types import AnyArray, Matrix
from momentous.lowrank.backends.base import FULL_STEP, Backend, RowStep, Side
from momentous.lowrank.backends.conjugate import RowSlopes
from momentous.lowrank.backends.sums import (
    DensePart,
    furthest_moves,
    numbers_per_row,
)
from momentous.lowrank.data.ratings import Compressed, Floats

NUMBERS_PER_MESSAGE = 1 << 25  # of the items' systems, which are added up over ranks


class SpreadItems(Side):
    """The entries of all ranks by item: each rank sums over its own, and has a share of the items.

    In a `RowStep` for them, weights are those of the share, as a NumPy array, and ``current`` is of
    all items.  For exact solutions the sums travel that make an item's system; for conjugate
    gradients the products of the systems with the directions of each step.  What goes over ranks,
    and all small systems and solutions, are NumPy arrays.

    Parameters
    ----------
    own : Side
        This rank's entries by item.
    weights, counts
        Of this rank's share of the items; counts are of the entries on all ranks, or the sums of
        their weights.
    """

    def __init__(
        self,
        own: Side,
        backend: Backend,
        ranks: Ranks,
        weights: Floats,
        counts: AnyArray,
    ):
        super().__init__(own.groups, own.loss)
        self.own, self.backend, self.ranks, self._counts = own, backend, ranks, counts
        self.count = own.groups.starts.size - 1
        # So much of the penalty stands beside the sums of one rank.
        self.weights_per_rank = self._everywhere(weights)
        self.weights_per_rank /= ranks.size

    @property
    def counts(self) -> AnyArray:
        return self._counts

    def _everywhere(self, share: Floats) -> Floats:
        """What all ranks have of the items, from their shares."""
        whole: Floats = self.ranks.all_gather(share, self.ranks.shares(self.count))
        return whole

    def own_rows(self, rows: Floats) -> Floats:
        return self.backend.to_host(rows[self.ranks.share(self.count)])

    def dense_part(self, step: RowStep) -> DensePart | None:
        own = self.own.dense_part(step)
        if own is None:
            return None
        sums = np.concatenate([own.gram.ravel(), own.pull, [own.rest]])
        whole, size = self.ranks.all_reduce(sums), len(own.pull)
        gram, pull = whole[: size * size].reshape(size, size), whole[size * size : -1]
        return DensePart(own.weight, gram, pull, float(whole[-1]))

    # --- systems travel ---------------------------------------------------------------------------

    def lines(self, step: RowStep) -> Iterator[tuple[slice[int, int], Floats, float]]:
        block, (rows, width) = self.ranks.block(self.count), step.weights.shape
        length = max(1, NUMBERS_PER_MESSAGE // (numbers_per_row(width) * self.ranks.size))
        for first in range(0, block, length):
            part = slice(first, min(first + length, block))
            lines, losses = self._lines(step, part.start, part.stop)
            own = len(range(rows)[part])
            yield part, self.ranks.reduce_scatter(lines)[:own], losses

    def _lines(self, step: RowStep, first: int, last: int) -> tuple[Floats, float]:
        """The sums for the rows first to last - 1 of the share of every rank, one share after
        another and all of them equally long."""
        block, size = self.ranks.block(self.count), self.ranks.size
        width, dtype = step.features.shape[1], step.features.dtype
        lines = np.zeros((size, last - first, numbers_per_row(width)), dtype)
        losses, step = 0.0, step._replace(weights=self.weights_per_rank)
        for rank in range(size):
            begin = min(rank * block + first, self.count)
            end = min(rank * block + last, (rank + 1) * block, self.count)
            if begin < end:
                lines[rank, : end - begin], found = self.own.row_sums(step, begin, end)
                losses += found
        return lines.reshape(-1, lines.shape[2]), losses

    # --- products travel: what `Side.improve_rows` asks for ---------------------------------------

    def row_slopes(self, step: RowStep) -> RowSlopes:
        own = self.own.row_slopes(step)
        sums = np.column_stack([own.downwards, own.curved]).astype(step.features.dtype)
        mine = self.ranks.reduce_scatter(sums).astype(np.float64)
        return own._replace(downwards=mine[:, :-1], curved=mine[:, -1])

    def row_products(
        self, features: Floats, curvatures: Floats | None, directions: Floats
    ) -> Matrix:
        dtype = features.dtype
        everywhere = self._everywhere(directions.astype(dtype))
        turned = self.own.row_products(features, curvatures, everywhere)
        mine: Matrix = self.ranks.reduce_scatter(turned.astype(dtype)).astype(np.float64)
        return mine

    def furthest_moves(self, features: Floats, change: Matrix) -> AnyArray:
        """Of this rank's share; zeros where no prediction on any rank can move too far."""
        lengths = [
            np.einsum("jq,jq->j", rows, rows, dtype=np.float64).max(initial=0.0)
            for rows in (self.backend.to_host(features), change)
        ]
        furthest, longest = self.ranks.all_reduce(np.array(lengths), "max")
        if furthest * longest <= FULL_STEP**2:
            return np.zeros(len(change))
        to_host, own = self.backend.to_host, self.groups
        groups = Compressed(to_host(own.starts), to_host(own.others), to_host(own.values))
        moves = furthest_moves(groups, to_host(features), self._everywhere(change))
        reach: AnyArray = self.ranks.all_reduce(moves, "max")[self.ranks.share(self.count)]
        return reach
