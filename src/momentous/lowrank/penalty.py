"""How factors and biases are kept small: a ridge that grows with the number of entries of a row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.data.ratings import Ratings
from momentous.lowrank.objective import check_number

HELD = 1e12  # a weight with which a parameter stays at 0


@dataclass(frozen=True)
class Penalty:
    """The weights of the squared parameters of a row (or column) with c entries.

    A row's parameters are its factors and, with ``biases``, its bias as the last one.

    Attributes
    ----------
    ridge : float
        Of the factors, times ``c ** weighting``.  0 is the plain ridge of one weight for all, 1
        the weighted-lambda regularisation of Zhou et al. [1]_; halfway between predicts best on
        most data here (``benchmarks/held_out.py``).
    bias_ridge : float
        Of the bias, the same whatever c: so many ratings of 0 beside the real ones.
    weighting : float
    biases : bool
    row_biases : bool
        False holds the biases of rows, though not of columns, at 0.

    References
    ----------
    .. [1] Y. Zhou, D. Wilkinson, R. Schreiber, R. Pan, "Large-scale parallel collaborative
       filtering for the Netflix prize", AAIM 2008.
    """

    ridge: float
    bias_ridge: float = 0.0
    weighting: float = 0.0
    biases: bool = False
    row_biases: bool = True

    def __post_init__(self) -> None:
        for name in ("ridge", "bias_ridge", "weighting"):
            check_number(name, getattr(self, name), 0.0)

    def weights(
        self, counts: NDArray[np.int64], rank: int, *, of_rows: bool = True
    ) -> NDArray[np.float64]:
        """One weight a parameter: an array of shape (rows, rank), or (rows, rank + 1)."""
        of_factors = self.ridge * np.maximum(counts, 1.0) ** self.weighting
        weights = np.repeat(of_factors[:, None], rank + self.biases, axis=1)
        if self.biases:
            held = of_rows and not self.row_biases
            weights[:, -1] = HELD if held else self.bias_ridge
        return weights


# Chosen on 90/10 splits; see benchmarks/held_out.py for the figures.
WEIGHTING = 0.5
RIDGE_PER_DEVIATION = 1.1
LOGISTIC_RIDGE = 0.8
BIAS_RIDGE = 2.0
LOGISTIC_BIAS_RIDGE = 1.0


def default_ridge(ratings: Ratings, loss: str) -> float:
    """A ridge that predicts well.

    For the squared loss it is proportional to the standard deviation of the ratings: in other
    units, stars in place of per cent, the factors scale by the root of the unit, and the fit is
    then the same fit.
    """
    if loss == "logistic":
        return LOGISTIC_RIDGE
    deviation = float(np.std(ratings.values, dtype=np.float64))
    return RIDGE_PER_DEVIATION * (deviation or 1.0)


def default_bias_ridge(loss: str) -> float:
    """The same in all units."""
    return LOGISTIC_BIAS_RIDGE if loss == "logistic" else BIAS_RIDGE
