"""What L-BFGS remembers of the curvature, and the direction that follows from it.

The direction is a combination of the gradient, the steps s_i and the changes y_i of the gradient
along them; its weights follow from inner products of those alone, in the compact form of Byrd,
Nocedal and Schnabel, "Representations of quasi-Newton matrices and their use in limited memory
methods", Math. Programming 63 (1994), theorem 2.2.  An iteration computes 2 m products, with the
new gradient (a change is a difference of gradients, so its products are differences of known ones),
and then adds up 2 m + 1 vectors in one pass: less than half the memory traffic of the recursion on
vectors, and one reduction over ranks where that has 2 m in a row.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.space import Array, Space
from momentous.methods.classical.pairs import Listed, Pairs, blas, no_pairs

# A pair whose <s, y> is not this much of |s| |y| says nothing that can be relied on.
SMALLEST_COSINE = 1e-10

_NO_PRODUCTS, _NONE_WITH_GRADIENT = np.empty((0, 0, 2), order="F"), np.empty((0, 2))


class Curvature:
    """The pairs, the oldest first, and their products.

    ``products[i, j]`` for i <= j holds <s_i, y_j> and <y_i, y_j>; what is below the diagonal is not
    used.  ``with_gradient[i]`` holds <s_i, g> and <y_i, g> with the gradient where the method is.
    """

    __slots__ = ("pairs", "products", "with_gradient")

    def __init__(self, pairs: Pairs, products: np.ndarray, with_gradient: np.ndarray):
        self.pairs, self.products, self.with_gradient = pairs, products, with_gradient

    @classmethod
    def unknown(cls, space: Space, most: int) -> Curvature:
        """No pairs yet, and room for so many."""
        return cls(no_pairs(space, most), _NO_PRODUCTS, _NONE_WITH_GRADIENT)

    def __len__(self) -> int:
        return len(self.products)

    def at(self, space: Space, sample: Sample) -> Curvature:
        """The same pairs, with the products of the gradient there."""
        if not len(self):
            return self
        return Curvature(self.pairs, self.products, self.pairs.inners(space, sample.gradient))

    def extended(self, space: Space, here: Sample, there: Sample) -> Curvature:
        """With the pair of the step from here to there, if it is of use."""
        pairs, ss, sy, yy = self.pairs.extended(space, here, there)
        if not (yy > 0 and sy > SMALLEST_COSINE * math.sqrt(ss) * math.sqrt(yy)):
            return self.at(space, there)
        with_gradient = pairs.inners(space, there.gradient)
        k = len(with_gradient)
        dropped = len(self) + 1 - k  # the oldest, where there is no room
        products = np.empty((k, k, 2), order="F")
        products[:-1, :-1] = self.products[dropped:, dropped:]
        products[:-1, -1] = with_gradient[:-1] - self.with_gradient[dropped:]
        products[-1, -1] = sy, yy
        return Curvature(pairs, products, with_gradient)

    def direction(self, space: Space, gradient: Array) -> Array:
        """-H g, where H is the BFGS update of (<s, y>/<y, y>) I of the newest pair by all pairs."""
        if not len(self):
            return gradient * -1.0
        r, yy, to_g = self.products[:, :, 0], self.products[:, :, 1], self.with_gradient
        sy = r.diagonal()
        scale = float(sy[-1] / yy[-1, -1])
        # H g = scale g + S q - scale Y p, with R p = S'g, R'q = (D + scale Y'Y) p - scale Y'g;
        # R is the upper triangle of S'Y, D its diagonal.
        p = blas().dtrsv(r, to_g[:, 0])
        q = blas().dsymv(scale, yy, p, -scale, to_g[:, 1])
        q += sy * p
        q = blas().dtrsv(r, q, trans=1, overwrite_x=1)
        weights = np.empty(to_g.shape)
        np.negative(q, out=weights[:, 0])
        np.multiply(p, scale, out=weights[:, 1])
        return self.pairs.combined(space, weights, -scale, gradient)

    # --- for checkpoints

    def packed(self) -> StoredCurvature:
        steps, changes = self.pairs.listed()
        flat = self.products.ravel(order="F"), self.with_gradient.ravel()
        return StoredCurvature(self.pairs.most, steps, changes, *(tuple(a.tolist()) for a in flat))


@record
class StoredCurvature:
    """A `Curvature` in a checkpoint."""

    most: int
    steps: tuple[Array, ...]
    changes: tuple[Array, ...]
    products: tuple[float, ...]
    with_gradient: tuple[float, ...]

    def unpacked(self, space: Space | None) -> Curvature:
        k = len(self.steps)
        if not (len(self.changes) == k <= self.most):
            raise ValueError(f"{k} steps and {len(self.changes)} changes, {self.most} at the most")
        products = np.array(self.products).reshape((k, k, 2), order="F")
        with_gradient = np.array(self.with_gradient).reshape(k, 2)
        pairs: Any = Listed(self.most, self.steps, self.changes)
        if space is not None:
            pairs = no_pairs(space, self.most).filled(self.steps, self.changes)
        return Curvature(pairs, products, with_gradient)
