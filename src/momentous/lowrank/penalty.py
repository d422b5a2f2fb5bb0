"""How factors and biases are kept small: a ridge that can grow with a row's number of entries."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.checks import check_number

HELD = 1e12  # a weight with which a parameter stays at 0


@dataclass(frozen=True)
class Penalty:
    """The weights of the squared parameters of a row (or column) with c entries.

    A row's parameters are its factors, of weight ``ridge (c + offset) ** weighting``, and with
    ``biases`` its bias as the last one.  A ``weighting`` of 0 is the plain ridge of one weight for
    all, 1 the weighted-lambda regularisation of Zhou et al. [1]_; halfway between predicts best on
    most data here (``benchmarks/held_out.py``).

    .. [1] Y. Zhou, D. Wilkinson, R. Schreiber, R. Pan, "Large-scale parallel collaborative
       filtering for the Netflix prize", AAIM 2008.
    """

    ridge: float
    bias_ridge: float = 0.0  # of the bias: so many ratings of 0 beside the real ones
    weighting: float = 0.0
    biases: bool = False
    row_biases: bool = True  # False holds the biases of rows, though not of columns, at 0
    offsets: tuple[float, float] = (0.0, 0.0)  # of rows and of columns, beside their entries

    def __post_init__(self) -> None:
        for name in ("ridge", "bias_ridge", "weighting"):
            check_number(name, getattr(self, name), 0.0)
        of_rows, of_cols = self.offsets
        for offset in (of_rows, of_cols):
            check_number("offset", offset, 0.0)
        object.__setattr__(self, "offsets", (float(of_rows), float(of_cols)))  # files have a list

    def transposed(self) -> Penalty:
        """That of the transposed matrix."""
        return dataclasses.replace(self, offsets=self.offsets[::-1])

    @property
    def uniform(self) -> bool:
        """One weight for all parameters?"""
        return self.weighting == 0.0 and not self.biases

    def weights(
        self, counts: NDArray[np.int64], rank: int, *, of_rows: bool = True
    ) -> NDArray[np.float64]:
        """One weight per parameter: an array of shape (rows, rank), or (rows, rank + 1)."""
        entries = np.maximum(counts + self.offsets[0 if of_rows else 1], 1.0)
        of_factors = self.ridge * entries**self.weighting
        weights = np.repeat(of_factors[:, None], rank + self.biases, axis=1)
        if self.biases:
            held = of_rows and not self.row_biases
            weights[:, -1] = HELD if held else self.bias_ridge
        return weights
