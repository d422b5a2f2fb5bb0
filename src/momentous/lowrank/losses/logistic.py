"""The logistic loss, for labels +1 and -1."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from momentous.lowrank.data.ratings import Floats, Ratings, Whole
from momentous.lowrank.losses.base import Loss, Numbers, Triple, ValueRange

RIDGE = 0.8  # chosen on 90/10 splits: benchmarks/held_out.py
ROUNDING = 1e-14  # by which a product of two numbers may lie beside 0 and 1
TINY = 1e-300
FLATTEST = 1e-8  # curvatures below this count as this: more is on the safe side


class Logistic(Loss):
    """``-log sigmoid(x z)``: z are the log odds of +1, predictions its probability.

    |l'''| <= l'' (F. Bach, "Self-concordant analysis for logistic regression", Electron. J. Stat. 4
    (2010)).
    """

    name = "logistic"
    self_concordant = True
    labels = True
    measure = "log_loss"

    @staticmethod
    def entry(z: Numbers, x: Numbers, parameters: tuple[float, ...]) -> Triple:
        """With w = sigmoid(-x z): ``-log(1 - w)``, ``-x w``, ``w (1 - w)``."""
        margin = x * z
        e = np.exp(-np.abs(margin))
        wrong = np.where(margin > 0.0, e, 1.0) / (1.0 + e)
        curvature = np.maximum(wrong * (1.0 - wrong), FLATTEST)
        return np.maximum(-margin, 0.0) + np.log1p(e), -x * wrong, curvature

    def largest_curvature(self, x: Floats) -> float:
        """1/4, at z = 0."""
        return 0.25

    def conjugate(self, y: Floats, x: Floats) -> Floats:
        """``w log w + (1 - w) log(1 - w)`` with w = x y, from 0 to 1."""
        w = x * y
        inside = (w >= -ROUNDING) & (w <= 1.0 + ROUNDING)
        w = np.clip(w, 0.0, 1.0)
        rest = 1.0 - w
        # NumPy has vectors for log, and none for the functions that know 0 log 0.
        entropy = w * np.log(np.maximum(w, TINY)) + rest * np.log(np.maximum(rest, TINY))
        return np.where(inside, entropy, np.inf)

    def check(self, ratings: Ratings) -> None:
        """Labels, and nothing else."""
        bad = np.flatnonzero(np.abs(ratings.values) != 1.0)
        if bad.size:
            k = bad[0]
            raise ValueError(
                f"the {self.name} loss needs labels +1 and -1, but entry {k} is "
                f"{ratings.values[k]:g} ({bad.size} of {ratings.nnz} are no labels); "
                "ratings.signs() makes labels of ratings"
            )

    def mean(self, ratings: Whole) -> float:
        """Log odds of +1, with half a label of each kind added: never infinite."""
        ups = 0.5 * ratings.weight * (1.0 + ratings.mean) + 0.5
        return float(np.log(ups / (ratings.weight + 1.0 - ups)))

    def default_ridge(self, ratings: Whole) -> float:
        """One number: labels have one unit."""
        return RIDGE

    def response(self, z: Floats, value_range: ValueRange) -> Floats:
        """The probability of +1."""
        probability: Floats = expit(z)
        return probability

    def measures(
        self, z: Floats, x: Floats, value_range: ValueRange, weights: Floats | None = None
    ) -> dict[str, float]:
        """Mean log loss, and the share of labels that are predicted right."""
        accuracy = float(np.average((z > 0) == (x > 0), weights=weights))
        return super().measures(z, x, value_range, weights) | {"accuracy": accuracy}
