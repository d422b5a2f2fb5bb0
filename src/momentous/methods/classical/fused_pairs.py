"""The pairs of L-BFGS where a pass over long vectors is one kernel: on a GPU, in JAX, over ranks.

An iteration reads the pairs twice, which is the least: once for their products with the new
gradient, once for the direction.  The first pass makes the new change, and all products of the new
pair; the second makes the direction, the next point, and the slope.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from momentous.core.oracle import Sample
from momentous.core.passes import MOST, new_pair, padded
from momentous.core.record import record
from momentous.core.space import Array, Space
from momentous.methods.classical.curvature import is_of_use
from momentous.methods.classical.limited_memory import Listed, Pairs, StoredPairs, grown


class FusedPairs(Listed):
    """`Listed` pairs, whose changes are not corrected by values, with fewer passes over memory."""

    __slots__ = ("_ahead",)

    def __init__(self, most: int, steps: tuple[Array, ...] = (), changes: tuple[Array, ...] = ()):
        super().__init__(most, steps, changes, corrects=False)
        self._ahead: tuple[Array, Array] = (None, None)  # a direction d, and x + d

    def at(self, space: Space, sample: Sample) -> FusedPairs:
        moved = FusedPairs(self.most, self.steps, self.changes)
        moved.steps_changes, moved.changes_changes = self.steps_changes, self.changes_changes
        products = space.inners((*self.steps, *self.changes), sample.gradient)
        moved.to_steps, moved.to_changes = np.array(products).reshape(2, -1)
        return moved

    def line(self, space: Space, here: Sample) -> tuple[Array, float, float | None, Array]:
        if not len(self):
            return super().line(space, here)
        scale, p, q = self._weights()
        weights = [-scale, *(scale * p).tolist(), *(-q).tolist()]
        vectors = (here.gradient, *self.changes, *self.steps)
        d, end, slope, square = space.direction(here.point, weights, vectors)
        self._ahead = d, end
        return d, slope, square, end

    def extended(self, space: Space, here: Sample, there: Sample, noise: float) -> FusedPairs:
        s, end = self._ahead
        if there.point is not end:
            s = space.combination(there.point, -1.0, here.point)
        old = max(0, len(self) + 1 - self.most)  # pairs for which there is no room
        steps, changes, g = self.steps[old:], self.changes[old:], there.gradient
        rows = (*steps, *changes)
        group = padded(rows[:MOST])
        (y,), sums, _ = space.compute(new_pair(len(group)), (g, here.gradient, s, *group))
        to_s, to_y, ss, sy, yy, *products = sums
        if not is_of_use(ss, sy, yy):
            return self.at(space, there)
        products = [*products[: len(rows)], *space.inners(rows[MOST:], g)]
        after = FusedPairs(self.most, (*steps, s), (*changes, y))
        after.to_steps = np.array([*products[: len(steps)], to_s])
        after.to_changes = np.array([*products[len(steps) :], to_y])
        # y is a difference of gradients, and so are its products.
        column = after.to_steps[:-1] - self.to_steps[old:]
        after.steps_changes = grown(self.steps_changes, old, column, sy)
        column = after.to_changes[:-1] - self.to_changes[old:]
        after.changes_changes = grown(self.changes_changes, old, column, yy)
        return after

    def packed(self) -> StoredFusedPairs:
        stored = super().packed()
        fields = (getattr(stored, field.name) for field in dataclasses.fields(stored))
        return StoredFusedPairs(*fields)


@record
class StoredFusedPairs(StoredPairs):
    """`FusedPairs` in a checkpoint."""

    def unpacked(self, space: Space | None) -> Pairs:
        """As it was; as other pairs where a space has no passes."""
        if space is None or not space.fuses:
            return StoredPairs.unpacked(self, space)  # super() does not work in a record
        listed = StoredPairs.unpacked(self, None)
        made = FusedPairs(self.most, self.steps, self.changes)
        made.steps_changes, made.changes_changes = listed.steps_changes, listed.changes_changes
        made.to_steps, made.to_changes = listed.to_steps, listed.to_changes
        return made
