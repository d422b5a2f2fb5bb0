"""The paper's averaged output, streamed: two vectors instead of all iterates of the epoch."""

from __future__ import annotations

import math

from momentous.core.arrays import Array, Space
from momentous.core.record import record


@record
class Average:
    """The mean of y^0..y^{K0}, K0 = argmin of |x^{k+1} - x^k| over floor(K/2) <= k <= K-1.

    (Algorithm 1, lines 10-11; for the heavy ball the y^k are the x^k.)  The first minimiser wins.
    While every step is shorter than the one before, mean and snapshot are one array; it is copied
    only when the mean has to move on without the snapshot.

    This is the one part of a state that is updated in place, to save a vector; ``count`` makes an
    update that is repeated after an exception harmless.
    """

    mean: Array = None  # of the points y^0..y^{count-1}
    count: int = 0
    snapshot: Array = None  # the mean at the shortest step so far
    shortest: float = math.inf  # |x^{k+1} - x^k|^2 there

    def add(self, k: int, point: Array, moved: float, length: int, space: Space) -> None:
        """Take in y^k and |x^{k+1} - x^k|^2 = ``moved`` in an epoch of K = ``length``."""
        if self.count != k:
            return
        is_shortest = k >= length // 2 and moved < self.shortest
        if self.snapshot is not None and self.snapshot is self.mean and not is_shortest:
            self.snapshot = space.copy(self.mean)
        if k == 0:
            self.mean = point
        elif k == 1:
            self.mean = space.combination(self.mean, 0.5, point, self.mean)  # an array of our own
        else:
            self.mean = space.move_towards(self.mean, point, 1 / (k + 1))
        self.count = k + 1
        if is_shortest:
            self.shortest, self.snapshot = moved, self.mean
