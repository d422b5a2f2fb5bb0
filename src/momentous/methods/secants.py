"""Secants of a map: the combination of the last points at which the residual should be least.

This is Anderson's extrapolation, in the form of Walker & Ni: from differences of the last residuals
and images follows the point where a linear map would have its least residual, and how small that
would be.
"""

from __future__ import annotations

import math

import numpy as np

from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.space import Array, Space

# Directions of the Gram matrix with less than this share of its largest eigenvalue are rounding.
SMALLEST_SHARE = 1e-12


@record
class Secants:
    """Changes of residual and image between points that followed each other, the oldest first."""

    residuals: tuple[Array, ...] = ()  # of y - T(y)
    images: tuple[Array, ...] = ()
    products: tuple[tuple[float, ...], ...] = ()  # of the residuals with each other

    def __len__(self) -> int:
        return len(self.residuals)

    def extended(self, space: Space, before: Sample, here: Sample, most: int) -> Secants:
        """With the change from one sample to the next, and without the oldest if there are more."""
        residual = space.combination(here.point, -1.0, before.point)
        image = space.combination(here.image, -1.0, before.image)
        residual = space.combination(residual, -1.0, image)
        drop = max(len(self) + 1 - most, 0)
        kept = self.residuals[drop:]
        column = space.inners((*kept, residual), residual)
        rows = tuple(
            (*row[drop:], entry) for row, entry in zip(self.products[drop:], column, strict=False)
        )
        return Secants((*kept, residual), (*self.images[drop:], image), (*rows, column))

    def point(self, space: Space, here: Sample, share: float) -> Array | None:
        """Where the residual should be at most this share of that here; None: nowhere."""
        residual = space.combination(here.point, -1.0, here.image)
        against = np.array(space.inners(self.residuals, residual))
        products = np.array(self.products)
        lengths = np.sqrt(np.diag(products))
        if not (np.all(np.isfinite(products)) and np.all(lengths > 0)):
            return None
        scaled = products / np.outer(lengths, lengths)
        sizes, axes = np.linalg.eigh(scaled)
        cut = max(SMALLEST_SHARE, (64 * space.rounding) ** 2) * sizes[-1]
        parts = axes.T @ (against / lengths)
        parts = np.divide(parts, sizes, out=np.zeros_like(parts), where=sizes > cut)
        weights = (axes @ parts) / lengths
        square = here.grad_norm * here.grad_norm
        if not (math.isfinite(square) and square - float(weights @ against) <= share**2 * square):
            return None
        return space.weighted_sum([1.0, *(-weights).tolist()], (here.image, *self.images))
