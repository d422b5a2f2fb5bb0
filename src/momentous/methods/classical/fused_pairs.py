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

from momentous.core.machine import Host
from momentous.core.oracle import Sample
from momentous.core.passes import MOST, Pass, new_pair, padded
from momentous.core.record import record
from momentous.core.space import Array, Space
from momentous.methods.classical.curvature import FusedLine, correction, is_of_use
from momentous.methods.classical.limited_memory import (
    Listed,
    Pairs,
    StoredPairs,
    grown,
    scale_in_box,
)
from momentous.methods.search.wolfe import Line


class FusedPairs(Listed):
    """`Listed` pairs, with fewer passes over memory."""

    __slots__ = ()

    def _make_line(self, m: Host, here: Sample) -> Line | FusedLine:
        if not len(self):
            return super()._make_line(m, here)
        scale, p, q = self._weights()
        weights = [-scale, *(scale * p).tolist(), *(-q).tolist()]
        vectors = (here.gradient, *self.changes, *self.steps)
        d, end, along = m.space.direction(here.point, weights, vectors)

        # Not after an exception: it may be one of this rank alone, and this is a call over ranks.
        def line() -> Line:
            slope, square = along()
            return Line.of(m, here, d, slope, square, guess=False)

        return FusedLine(d, line, end, *self._new_pair(here.gradient, d))

    def _kept(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """The pairs for which there is room beside a new one."""
        old = max(0, len(self) + 1 - self.most)
        return self.steps[old:], self.changes[old:]

    def _new_pair(self, gradient: Array, s: Array) -> tuple[Pass, tuple[Array, ...]]:
        """The pass that makes a new pair, and its vectors behind the new gradient."""
        steps, changes = self._kept()
        group = padded((*steps, *changes)[:MOST])
        return new_pair(len(group)), (gradient, s, *group)

    def extended(self, space: Space, here: Sample, there: Sample, noise: float) -> Listed:
        line, s, y = self._line, None, None
        if isinstance(line, FusedLine) and there.point is line.end:
            s, (found, made, sums) = line.direction, line.found
            if found is there and made:
                (y,) = made
        if y is None:
            if s is None:
                s = space.combination(there.point, -1.0, here.point)
            work, others = self._new_pair(here.gradient, s)
            (y,), (_, *rest), _ = space.compute(work, (there.gradient, *others))
            sums = tuple(rest)
        to_s, to_y, ss, sy, yy, *products = sums
        scale, used = scale_in_box(space, s, y, sy, yy)
        if not is_of_use(ss, sy, used):
            return self.at(Host.of(space), there)
        steps, changes = self._kept()
        rows, old = (*steps, *changes), len(self) - len(steps)
        products = [*products[: len(rows)], *space.inners(rows[MOST:], there.gradient)]
        after = FusedPairs(self.most, (*steps, s), (*changes, y))
        after.scale = scale
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

    def stored(self) -> StoredFusedPairs:
        stored = super().stored()
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
