"""Secants of a map: the combination of the last points at which the residual should be least.

This is Anderson's extrapolation, in the form of Walker & Ni: from differences of the last residuals
and images follows the point where a linear map would have its least residual, and how small that
would be.  All of it is decided by inner products, of which one per difference is new in each step.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg.lapack import dposv

from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.space import Array, Space

# Added to the squares of differences of length 1.  It keeps rounding from being multiplied by more
# than its inverse; from 1e-14 to 1e-8 as many maps are needed (half of the map scoreboard).
RIDGE = 1e-8


@record
class Secants:
    """Changes of residual and image between points that followed each other, the oldest first."""

    residuals: tuple[Array, ...] = ()  # changes of y - T(y)
    images: tuple[Array, ...] = ()
    products: tuple[tuple[float, ...], ...] = ()  # of the changes of the residual with each other
    against: tuple[float, ...] = ()  # ... and with the residual at the last point

    def __len__(self) -> int:
        return len(self.residuals)

    def extended(self, space: Space, before: Sample, here: Sample, most: int) -> Secants:
        """With the change from the last point to this one; without the oldest if there are more."""
        residual = space.combination(here.point, -1.0, here.image)
        change = space.combination(residual, -1.0, before.point, before.image)
        image = space.combination(here.image, -1.0, before.image)
        drop = max(len(self) + 1 - most, 0)
        kept = self.residuals[drop:]
        *against, last = space.inners((*kept, change), residual)
        # A change is a difference of residuals, so its products are differences of known ones.
        column = [new - old for new, old in zip(against, self.against[drop:], strict=True)]
        rows = tuple(
            (*row[drop:], entry) for row, entry in zip(self.products[drop:], column, strict=True)
        )
        return Secants(
            (*kept, change),
            (*self.images[drop:], image),
            (*rows, (*column, space.inner(change, change))),
            (*against, last),
        )

    def point(self, space: Space, here: Sample, share: float) -> Array | None:
        """Where the residual should be at most this share of that here; None: nowhere."""
        products, against = np.array(self.products), np.array(self.against)
        lengths = np.sqrt(products.diagonal())
        if not lengths.min() > 0.0:
            return None
        scaled, goal = products / np.outer(lengths, lengths), against / lengths
        scaled.flat[:: len(self) + 1] += RIDGE
        _, weights, failed = dposv(scaled, goal)
        square = here.grad_norm * here.grad_norm
        # The solution of the normal equations takes this much off the square of the residual.
        left = square - float(weights @ goal)
        if failed or not (math.isfinite(left) and left <= share * share * square):
            return None
        weights = -weights / lengths
        return space.weighted_sum([1.0, *weights.tolist()], (here.image, *self.images))
