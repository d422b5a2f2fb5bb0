"""The squared loss, for ratings."""

from __future__ import annotations

import math

import numpy as np

from momentous.lowrank.data.ratings import Floats, Ratings, Whole
from momentous.lowrank.losses.base import LARGEST, Loss, Numbers, Triple, ValueRange, largest_size

RIDGE_PER_DEVIATION = 1.1  # chosen on 90/10 splits: benchmarks/held_out.py


class Squared(Loss):
    """``(z - x)^2 / 2``; predictions are ratings within the range of those seen."""

    name = "squared"
    quadratic = True
    unit_curvature = True
    bias_ridge = 2.0
    measure = "rmse"

    @staticmethod
    def entry(z: Numbers, x: Numbers, parameters: tuple[float, ...]) -> Triple:
        """Half the square."""
        slope = z - x
        return 0.5 * slope * slope, slope, 1.0

    def largest_curvature(self, x: Floats) -> float:
        """1."""
        return 1.0

    def conjugate(self, y: Floats, x: Floats) -> Floats:
        """``y^2/2 - y x``."""
        return 0.5 * y * y - y * x

    def check(self, ratings: Ratings) -> None:
        """Nothing so large that products of factors overflow."""
        largest = largest_size(ratings.values)
        if largest >= LARGEST:
            raise ValueError(
                f"there is a rating of size {largest:g}, and squares of {LARGEST:g} and more "
                "overflow in the products of a fit: divide all ratings by a number"
            )

    def mean(self, ratings: Whole) -> float:
        """That of the ratings."""
        return ratings.mean

    def start_values(self, ratings: Ratings, mean: float) -> Floats:
        """What the mean leaves over."""
        values: Floats = (ratings.values - mean).astype(ratings.dtype, copy=False)
        return values

    def default_ridge(self, ratings: Whole) -> float:
        """Proportional to the standard deviation of the ratings.

        In other units, stars in place of per cent, the factors scale by the root of the unit, and
        the fit is then the same fit.
        """
        return RIDGE_PER_DEVIATION * self.unit(ratings)

    def unit(self, ratings: Whole) -> float:
        """The standard deviation of the ratings; 1 where all are the same."""
        deviation = ratings.deviation
        constant = deviation <= 1e-12 * abs(ratings.mean)  # but for rounding
        return 1.0 if constant else deviation

    def response(self, z: Floats, value_range: ValueRange) -> Floats:
        """A rating within the range of those seen."""
        return np.clip(z, *value_range)

    def error(self, z: Floats, x: Floats, value_range: ValueRange) -> Floats:
        """Squared error of the rating that is predicted."""
        squares: Floats = np.square(np.clip(z, *value_range) - x, dtype=np.float64)
        return squares

    def error_of_mean(self, mean: float) -> float:
        """Root mean square error."""
        return math.sqrt(mean)

    def measures(
        self, z: Floats, x: Floats, value_range: ValueRange, weights: Floats | None = None
    ) -> dict[str, float]:
        """Root mean square error and mean absolute error."""
        errors = np.abs(np.clip(z, *value_range) - x)
        mae = float(np.average(errors, weights=weights))
        return super().measures(z, x, value_range, weights) | {"mae": mae}
