"""The loss of implicit feedback: what was not seen counts as a weak 0."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from momentous.lowrank.checks import check_number
from momentous.lowrank.data.ratings import Floats, Ratings, Whole
from momentous.lowrank.losses.base import LARGEST, Loss, Numbers, Triple, ValueRange, largest_size

ALPHA = 1.0
RIDGE_PER_CONFIDENCE = 20.0  # by NDCG@10 on held-out shares: benchmarks/implicit_feedback.py


@dataclass(frozen=True)
class Implicit(Loss):
    """``c (p - z)^2 / 2`` summed over all pairs: confidence-weighted squares [1]_.

    An observed x, how often or how long, has p = 1 and confidence ``c = 1 + alpha x``; all other
    pairs have p = 0 and c = 1.  The sum over all pairs of ``z^2`` is ``<U'U, V'V>``, so that it
    costs no more than the factors: ``dense_weight`` is 1, and an entry here is what an observed
    pair has beyond ``z^2 / 2``.

    Parameters
    ----------
    alpha : float
        How much more an observation counts than its absence.

    References
    ----------
    .. [1] Y. Hu, Y. Koren, C. Volinsky, "Collaborative filtering for implicit feedback datasets",
       ICDM 2008.
    """

    alpha: float = ALPHA

    name = "implicit"
    quadratic = True
    dense_weight = 1.0
    biases = False
    centred = False
    measure = "rmse_to_one"
    weighting = 0.0

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, 0.0)

    @staticmethod
    def entry(z: Numbers, x: Numbers, parameters: tuple[float, ...]) -> Triple:
        """``((1 + alpha x) (1 - z)^2 - z^2) / 2``."""
        more = parameters[0] * x
        missing = 1.0 - z
        return 0.5 * ((1.0 + more) * missing * missing - z * z), more * z - 1.0 - more, more

    def largest_curvature(self, x: Floats) -> Floats:
        """That of the entry; the rest is in the dense part."""
        curvatures: Floats = self.alpha * x.astype(np.float64)
        return curvatures

    def conjugate(self, y: Floats, x: Floats) -> Floats:
        """``y^2/(2 c) - y`` of ``c (1 - z)^2 / 2``."""
        conjugates: Floats = 0.5 * y * y / (1.0 + self.alpha * x) - y
        return conjugates

    def check(self, ratings: Ratings) -> None:
        """Counts or durations: nothing below 0, and no confidence that overflows in products."""
        bad = np.flatnonzero(ratings.values < 0.0)
        if bad.size:
            k = bad[0]
            raise ValueError(
                f"the {self.name} loss needs values of 0 or more, but entry {k} is "
                f"{ratings.values[k]:g} ({bad.size} of {ratings.nnz} are below 0)"
            )
        largest = largest_size(ratings.values)
        if max(self.alpha, largest, self.alpha * largest) >= LARGEST:
            raise ValueError(
                f"alpha={self.alpha:g} times the largest value {largest:g} overflows in the "
                f"products of a fit, which hold confidences below {LARGEST:g}: take a smaller "
                "alpha, or divide all values by a number"
            )

    def start_values(self, ratings: Ratings, mean: float) -> Floats:
        """1 wherever something was observed."""
        return np.ones_like(ratings.values)

    def default_ridge(self, ratings: Whole) -> float:
        """Proportional to the mean of ``alpha x``, so that the unit of x makes no difference."""
        return RIDGE_PER_CONFIDENCE * (self.alpha * ratings.mean or 1.0)

    def error(self, z: Floats, x: Floats, value_range: ValueRange) -> Floats:
        """Of what was held out and should be 1."""
        squares: Floats = np.square(1.0 - z, dtype=np.float64)
        return squares

    def error_of_mean(self, mean: float) -> float:
        """Root mean square error."""
        return math.sqrt(mean)
