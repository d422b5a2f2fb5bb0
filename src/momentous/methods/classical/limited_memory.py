"""What L-BFGS remembers of the curvature, and the direction that follows from it.

The two-loop recursion is run on numbers: the direction is a combination of the gradient, the steps
and the changes, and all that it needs are inner products of those.  An iteration computes 2 m of
them, with the new gradient (a change is a difference of gradients, so its products are differences
of known ones), and then adds up 2 m + 1 vectors in one pass: less than half the memory traffic of
the recursion on vectors, and one reduction over ranks where that has 2 m in a row.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from operator import mul

from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.space import Array, Space

# A pair whose <s, y> is not this much of |s| |y| says nothing that can be relied on.
SMALLEST_COSINE = 1e-10


@record
class Curvature:
    """Steps s_i, changes y_i of the gradient along them, the oldest first, and their products."""

    steps: tuple[Array, ...] = ()
    changes: tuple[Array, ...] = ()
    steps_changes: tuple[tuple[float, ...], ...] = ()  # row i: <s_i, y_j> for j >= i, otherwise 0
    changes_changes: tuple[tuple[float, ...], ...] = ()  # row i: <y_i, y_j>
    steps_gradient: tuple[float, ...] = ()  # <s_i, g> with the gradient where the method stands
    changes_gradient: tuple[float, ...] = ()  # <y_i, g>

    def __len__(self) -> int:
        return len(self.steps)

    def at(self, space: Space, sample: Sample) -> Curvature:
        """The same pairs, with the products of the gradient there."""
        g = sample.gradient
        return dataclasses.replace(
            self,
            steps_gradient=space.inners(self.steps, g),
            changes_gradient=space.inners(self.changes, g),
        )

    def extended(self, space: Space, here: Sample, there: Sample, most: int) -> Curvature:
        """With the pair of the step from here to there, if it is of use."""
        moved = self.at(space, there)
        s = space.combination(there.point, -1.0, here.point)
        y = space.combination(there.gradient, -1.0, here.gradient)
        sy, yy = space.inner(s, y), space.inner(y, y)
        if not (yy > 0 and sy > SMALLEST_COSINE * space.norm(s) * math.sqrt(yy)):
            return moved
        to_steps = _differences(moved.steps_gradient, self.steps_gradient)
        to_changes = _differences(moved.changes_gradient, self.changes_gradient)
        new_row = (0.0,) * len(self) + (sy,)
        grown = Curvature(
            steps=(*moved.steps, s),
            changes=(*moved.changes, y),
            steps_changes=(*_with_column(self.steps_changes, to_steps), new_row),
            changes_changes=(*_with_column(self.changes_changes, to_changes), (*to_changes, yy)),
            steps_gradient=(*moved.steps_gradient, space.inner(s, there.gradient)),
            changes_gradient=(*moved.changes_gradient, space.inner(y, there.gradient)),
        )
        return grown if len(grown) <= most else grown.without_the_oldest()

    def without_the_oldest(self) -> Curvature:
        return Curvature(
            steps=self.steps[1:],
            changes=self.changes[1:],
            steps_changes=tuple(row[1:] for row in self.steps_changes[1:]),
            changes_changes=tuple(row[1:] for row in self.changes_changes[1:]),
            steps_gradient=self.steps_gradient[1:],
            changes_gradient=self.changes_gradient[1:],
        )

    def direction(self, space: Space, gradient: Array) -> Array:
        """-H g, where H is the BFGS update of (<s, y>/<y, y>) I of the newest pair by all pairs."""
        m = len(self)
        if m == 0:
            return gradient * -1.0
        scale = self.steps_changes[-1][-1] / self.changes_changes[-1][-1]
        a, c = [0.0] * m, [0.0] * m  # c = a - b, the weights of the steps
        for i in reversed(range(m)):  # the newest first
            row = self.steps_changes[i]
            a[i] = (self.steps_gradient[i] - _dot(row, a)) / row[i]
        for i, column in enumerate(zip(*self.steps_changes, strict=True)):
            q = self.changes_gradient[i] - _dot(self.changes_changes[i], a)
            c[i] = a[i] - (scale * q + _dot(column, c)) / column[i]
        weights = [-scale, *(scale * w for w in a), *(-w for w in c)]
        return space.weighted_sum(weights, (gradient, *self.changes, *self.steps))


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return float(sum(map(mul, a, b)))


def _differences(after: tuple[float, ...], before: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(p - q for p, q in zip(after, before, strict=True))


def _with_column(
    rows: tuple[tuple[float, ...], ...], column: tuple[float, ...]
) -> tuple[tuple[float, ...], ...]:
    return tuple((*row, entry) for row, entry in zip(rows, column, strict=True))
