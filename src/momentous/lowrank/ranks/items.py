"""Half a sweep over items that all ranks share: each rank sums over its own users, and solves for
its share of the items.

What travels are the items' systems, or for conjugate gradients, where that is less, the products of
the systems with the directions of each step: either way the outcome is the same, but for rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from momentous.io.types import Integers
from momentous.lowrank.backends import Backend, RowStep
from momentous.lowrank.backends.base import FULL_STEP
from momentous.lowrank.backends.conjugate import conjugate_change
from momentous.lowrank.backends.numpy import solve_systems
from momentous.lowrank.backends.sums import DensePart, furthest_moves, numbers_per_row, unpack_lines
from momentous.lowrank.data.ratings import Floats

if TYPE_CHECKING:
    from momentous.lowrank.ranks.objective import RankObjective

LINES = 1 << 25  # numbers of the items' systems that are added up over ranks at a time
COLS = 1
Doubles = NDArray[np.float64]


def numbers_by_products(width: int, steps: int) -> int:
    """What travels per item for so many steps of conjugate gradients: right-hand side and sum of
    curvatures, then a direction there and a product back for each step."""
    return width + 1 + 2 * steps * width


class ItemSweep:
    """New parameters of this rank's share of the items, given the users of all ranks.

    With ``steps`` by so many steps of conjugate gradients, otherwise by solving.  The objective is
    the `RankObjective` that makes this.
    """

    def __init__(
        self, objective: RankObjective, own: Floats | None, users: Floats, steps: int | None
    ):
        self.objective, self.ranks, self.loss = objective, objective.ranks, objective.loss
        self.side, self.steps, self.width = objective.side(COLS), steps, objective.width
        self.axes, self.squares = None, np.ones(self.width)
        if steps is not None:
            assert own is not None
            self.axes, self.squares = objective.principal_axes(COLS, users)
            users = objective.turned(users, self.axes)
        self.features, self.offsets = objective._features(users)
        self.before = np.zeros((len(objective.weights[COLS]), self.width))
        current = None
        if own is not None:
            current = self._in_axes(objective.gathered(own))
            self.before += current[objective.items]
        self.empty = objective.counts(COLS) == 0 if not self.loss.dense_weight else None
        if self.empty is not None:
            self.before[self.empty] = 0.0
        self.penalty = objective.weights[COLS].astype(np.float64)
        self.step = RowStep(objective.share_of_weights, self.features, self.offsets, current)
        self.dense = self._dense_part()

    def solve(self) -> tuple[Floats, float]:
        """The parameters, and this rank's part of what `LowRankObjective.half_sweep` returns."""
        if self.steps is None or self._by_systems(self.steps):
            change, value = self._from_systems()
        else:
            change, value = self._from_products(self.steps)
        if self.loss.self_concordant:
            change *= self._step_lengths(change)[:, None]
        if self.steps is not None and self.empty is not None:
            change[self.empty] = 0.0
        solutions = (self.before + change).astype(self.objective.dtype)
        return self._out_of_axes(solutions), value

    def _in_axes(self, side: Floats) -> Floats:
        return side if self.axes is None else self.objective.turned(side, self.axes)

    def _out_of_axes(self, side: Floats) -> Floats:
        return side if self.axes is None else self.objective.turned(side, self.axes.T)

    # --- systems travel ---------------------------------------------------------------------------

    def _by_systems(self, steps: int) -> bool:
        """Are systems, with the sum of curvatures that preconditions, less than products?"""
        known = self.loss.unit_curvature or self.objective.penalty.biases
        return known and numbers_per_row(self.width) <= numbers_by_products(self.width, steps)

    def _from_systems(self) -> tuple[Doubles, float]:
        change, value = np.zeros_like(self.before), 0.0
        block = self.ranks.block(self.objective.ratings.shape[1])
        length = max(1, LINES // (numbers_per_row(self.width) * self.ranks.size))
        for first in range(0, block, length):
            part = slice(first, min(first + length, block))
            lines, losses = self._lines(part.start, part.stop)
            value += losses
            penalty, before = self.penalty[part], self.before[part]
            mine = self.ranks.reduce_scatter(lines)[: len(penalty)]
            if self.dense is not None:
                mine = mine.astype(np.float64)
                value += self.dense.add_to_lines(mine, before)
            if self.steps is None:
                change[part], least = self._solve_rows(mine, penalty, before)
                value += least
            else:
                systems, b = unpack_lines(mine, self.width)
                b -= penalty * before
                change[part] = self._improve(systems, b, penalty, part, self.steps)
        return change, value

    def _solve_rows(
        self, lines: Floats, penalty: Doubles, before: Doubles
    ) -> tuple[Doubles, float]:
        quadratic = self.loss.quadratic
        backend: Backend = self.objective.backend
        found = backend.solve_lines(lines, penalty, before, quadratic=quadratic)
        if found is None:
            systems, b = unpack_lines(lines, self.width)
            b -= penalty * before
            found = solve_systems(systems, b, penalty, before, shortest=quadratic)
        return found

    def _lines(self, first: int, last: int) -> tuple[Floats, float]:
        """The sums for the rows first to last - 1 of the share of every rank, one share after
        another and all of them equally long."""
        n = self.objective.ratings.shape[1]
        block, size = self.ranks.block(n), self.ranks.size
        lines = np.zeros((size, last - first, numbers_per_row(self.width)), self.objective.dtype)
        losses = 0.0
        for rank in range(size):
            begin, end = (
                min(rank * block + first, n),
                min(rank * block + last, (rank + 1) * block, n),
            )
            if begin < end:
                lines[rank, : end - begin], found = self.side.row_sums(self.step, begin, end)
                losses += found
        return lines.reshape(-1, lines.shape[2]), losses

    def _improve(
        self, systems: Doubles, b: Doubles, penalty: Doubles, part: slice[int, int], steps: int
    ) -> Doubles:
        """By conjugate gradients, with systems at hand; the dense part is in them."""
        curved: Floats | Integers = systems[:, -1, -1]
        if self.loss.unit_curvature:
            curved = self.objective.counts(COLS)[part]
        elif self.dense is not None:
            curved = curved - self.dense.weight * self.dense.gram[-1, -1]

        def product(directions: Doubles) -> Doubles:
            turned = np.einsum("ipq,iq->ip", systems, directions)
            return np.asarray(turned + penalty * directions)

        change: Doubles = conjugate_change(
            b, self._diagonal(curved, penalty), product, steps, self.objective.dtype
        )
        return change

    # --- products travel --------------------------------------------------------------------------

    def _from_products(self, steps: int) -> tuple[Doubles, float]:
        """By conjugate gradients: each step sends directions, and adds up products."""
        ranks, dtype, n = self.ranks, self.objective.dtype, self.objective.ratings.shape[1]
        found, shares = self.side.row_slopes(self.step), ranks.shares(n)
        sums = np.column_stack([found.downwards, found.curved]).astype(dtype)
        mine = ranks.reduce_scatter(sums).astype(np.float64)
        penalty = self.penalty
        b, value = mine[:, :-1] - penalty * self.before, found.losses
        if self.dense is not None:
            value += self.dense.add_to_sides(b, self.before)

        def product(directions: Doubles) -> Doubles:
            everywhere = ranks.all_gather(directions.astype(dtype), shares)
            turned = self.side.row_products(self.features, found.curvatures, everywhere)
            whole = ranks.reduce_scatter(turned.astype(dtype)) + penalty * directions
            if self.dense is not None:
                whole += self.dense.weight * (directions @ self.dense.gram)
            return np.asarray(whole, np.float64)

        change = conjugate_change(b, self._diagonal(mine[:, -1], penalty), product, steps, dtype)
        return change, value

    def _diagonal(self, curved: Floats | Integers, penalty: Doubles) -> Doubles:
        """Of the preconditioner."""
        diagonal: Doubles = np.asarray(curved, np.float64)[:, None] * self.squares + penalty
        if self.dense is not None:
            diagonal += self.dense.weight * self.dense.gram.diagonal()
        return diagonal

    # --- both -------------------------------------------------------------------------------------

    def _dense_part(self) -> DensePart | None:
        """Of the sum over all pairs: F'F, F'o and o'o of all users."""
        own = DensePart.of(self.loss, self.features, self.offsets)
        if own is None:
            return None
        sums = np.concatenate([own.gram.ravel(), own.pull, [own.rest]])
        whole, size = self.ranks.all_reduce(sums), self.width
        gram, pull = whole[: size * size].reshape(size, size), whole[size * size : -1]
        return DensePart(own.weight, gram, pull, float(whole[-1]))

    def _step_lengths(self, change: Doubles) -> Doubles:
        """How much of Newton's steps to take, so that no prediction on any rank moves too far; see
        `Side.solve_rows`."""
        lengths = [
            np.einsum("jq,jq->j", rows, rows, dtype=np.float64).max(initial=0.0)
            for rows in (self.features, change)
        ]
        furthest, longest = self.ranks.all_reduce(np.array(lengths), "max")
        steps: Doubles = np.ones(len(change))
        if furthest * longest <= FULL_STEP**2:
            return steps
        shares = self.ranks.shares(self.objective.ratings.shape[1])
        everywhere = self.ranks.all_gather(change, shares)
        moves = furthest_moves(self.side.groups, self.features, everywhere)
        reach = self.ranks.all_reduce(moves, "max")[self.objective.items]
        far = reach > FULL_STEP
        steps[far] = np.log1p(reach[far]) / reach[far]
        return steps
