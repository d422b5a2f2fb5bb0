"""The pairs of L-BFGS where a pass over long vectors is one kernel: on a GPU, in JAX, over ranks.

An iteration reads the pairs twice, which is the least: once for the direction, once for their
products with the new gradient.  The first pass makes the direction, the point at its end, and the
slope.  The second comes with the gradient there: it makes the new change, and all products of the
new pair, on trust that the search will take that point, as it nearly always does; on the same
trust it is started before the sums of the first have come, where a gradient brings the value.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from momentous.core.oracle import Oracle, Sample
from momentous.core.passes import MOST, Pass, new_pair, padded
from momentous.core.record import record
from momentous.core.space import Array, Space
from momentous.methods.classical.curvature import correction, is_of_use
from momentous.methods.classical.limited_memory import Listed, Pairs, StoredPairs, grown
from momentous.methods.search.wolfe import Ahead


class FusedPairs(Listed):
    """`Listed` pairs, with fewer passes over memory."""

    __slots__ = ("_found", "_step")

    def __init__(self, most: int, steps: tuple[Array, ...] = (), changes: tuple[Array, ...] = ()):
        super().__init__(most, steps, changes)
        # A direction d and x + d; and what the look at that point has found.
        self._step: tuple[Array, Array] = (None, None)
        self._found: tuple[Sample, Array, tuple[float, ...]] | None = None

    def at(self, space: Space, sample: Sample) -> FusedPairs:
        moved = FusedPairs(self.most, self.steps, self.changes)
        moved.steps_changes, moved.changes_changes = self.steps_changes, self.changes_changes
        moved.diagonal = self.diagonal
        products = space.inners((*self.steps, *self.changes), sample.gradient)
        moved.to_steps, moved.to_changes = np.array(products).reshape(2, -1)
        return moved

    def line(self, oracle: Oracle, here: Sample) -> tuple[Array, float, Ahead | None]:
        if not len(self):
            return super().line(oracle, here)
        scale, p, q = self._weights()
        weights = [-scale, *(scale * p).tolist(), *(-q).tolist()]
        vectors = (here.gradient, *self.changes, *self.steps)
        d, end, along = oracle.space.direction(here.point, weights, vectors)
        self._step, self._found = (d, end), None

        def look() -> tuple[Sample, float]:
            if self._found is None:
                work, others = self._new_pair(here.gradient, d)
                there, (y,), sums = oracle.gradient_with(end, work, others)
                self._found = there, y, sums
            return self._found[0], self._found[2][0]

        if oracle.fused:
            look()  # the device has this to do before the sums of the pass are waited for
        # Not after an exception: it may be one of this rank alone, and this is a call over ranks.
        slope, square = along()
        return d, slope, Ahead(square, end, look)

    def _kept(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """The pairs for which there is room beside a new one."""
        old = max(0, len(self) + 1 - self.most)
        return self.steps[old:], self.changes[old:]

    def _new_pair(self, gradient: Array, s: Array) -> tuple[Pass, tuple[Array, ...]]:
        """The pass that makes a new pair, and its vectors behind the new gradient."""
        steps, changes = self._kept()
        group = padded((*steps, *changes)[:MOST])
        return new_pair(len(group)), (gradient, s, *group)

    def extended(self, space: Space, here: Sample, there: Sample, noise: float) -> FusedPairs:
        s, end = self._step
        if self._found is not None and self._found[0] is there:
            _, y, sums = self._found
        else:
            if there.point is not end:
                s = space.combination(there.point, -1.0, here.point)
            work, others = self._new_pair(here.gradient, s)
            (y,), (_, *found), _ = space.compute(work, (there.gradient, *others))
            sums = tuple(found)
        to_s, to_y, ss, sy, yy, *products = sums
        if not is_of_use(ss, sy, yy):
            return self.at(space, there)
        steps, changes = self._kept()
        rows, old = (*steps, *changes), len(self) - len(steps)
        products = [*products[: len(rows)], *space.inners(rows[MOST:], there.gradient)]
        after = FusedPairs(self.most, (*steps, s), (*changes, y))
        after.to_steps = np.array([*products[: len(steps)], to_s])
        after.to_changes = np.array([*products[len(steps) :], to_y])
        t = correction(here.value - there.value, to_s - sy, sy, noise)
        after.diagonal = np.append(self.diagonal[old:], sy / t)
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
        made.diagonal = listed.diagonal
        return made
