"""The losses of one entry: squared for ratings, logistic for signs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit

from momentous.lowrank.data.ratings import Floats, Ratings


@dataclass(frozen=True)
class EntryLoss:
    """What an entry costs, as a function of the prediction z and the observed x.

    Attributes
    ----------
    name : str
        Its key in `LOSSES`.
    code : int
        Its number in the compiled kernels.
    evaluate : callable
        ``(z, x) -> (sum of the losses, slopes in z)`` on arrays.
    labels_only : bool
        Whether x must be +1 or -1.
    """

    name: str
    code: int
    evaluate: Callable[[Floats, Floats], tuple[float, Floats]] = field(repr=False)
    labels_only: bool = False

    def check(self, ratings: Ratings) -> None:
        """Refuse ratings that this loss is not made for."""
        if not self.labels_only:
            return
        bad = np.flatnonzero(np.abs(ratings.values) != 1.0)
        if bad.size:
            k = bad[0]
            raise ValueError(
                f"the {self.name} loss needs labels +1 and -1, but entry {k} is "
                f"{ratings.values[k]:g} ({bad.size} of {ratings.nnz} are no labels); "
                "ratings.signs() makes labels of ratings"
            )


def _squared(z: Floats, x: Floats) -> tuple[float, Floats]:
    """``(z - x)^2 / 2``."""
    slopes = z - x
    return 0.5 * float(np.sum(np.square(slopes, dtype=np.float64))), slopes


def _logistic(z: Floats, x: Floats) -> tuple[float, Floats]:
    """``-log sigmoid(x z)``, with slope ``-x sigmoid(-x z)``."""
    margins = (x * z).astype(np.float64, copy=False)
    slopes = -x * expit(-margins)
    return float(np.sum(np.logaddexp(0.0, -margins))), slopes.astype(z.dtype, copy=False)


LOSSES = {
    loss.name: loss
    for loss in (
        EntryLoss("squared", 0, _squared),
        EntryLoss("logistic", 1, _logistic, labels_only=True),
    )
}


def find_loss(name: str) -> EntryLoss:
    """The loss of that name."""
    if name not in LOSSES:
        raise ValueError(f"there is no loss {name!r}; known are {', '.join(LOSSES)}")
    return LOSSES[name]
