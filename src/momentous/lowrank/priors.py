"""Learned priors: how sure the factors are, and what the partners' uncertainty adds to a ridge.

With ``x_ij = mean + b_i + c_j + u_i . v_j`` and noise of variance s, a row's factors are fitted to
factors of its partners that are not known exactly.  Where each parameter p_ik has a mean and a
variance S_ik of its own (mean-field variational Bayes with diagonal covariances [1]_), the row's
best mean is the ridge regression of a known partner, with

    ``W_ik = s prior_k c_i^g + sum over partners j of S_jk``    as its ridge,
    ``S_ik = s / (W_ik + sum over partners j of v_jk^2)``    as its variance, and
    ``1 / prior_k = mean over rows with entries of c_i^g (u_ik^2 + S_ik)``    per side and feature,

c_i being the row's number of entries (with weights their sum), at least 1.  The partner of a bias
is 1 and certain, and its prior is without ``c^g``.  Everything in these lines is learned: there is
no constant per data set.

.. [1] Y. J. Lim, Y. W. Teh, "Variational Bayesian approach to movie rating prediction", KDD Cup
   and Workshop 2007.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from momentous.io.types import AnyArray, Matrix
from momentous.lowrank.data.ratings import Floats
from momentous.lowrank.penalty import HELD

# g: rows with many entries vary more.  With 0 rows of few entries overfit as sweeps go on, and 0.5
# is worse still (benchmarks/held_out.py --real).
GROWTH = -0.4


def precisions(prior: Matrix, counts: AnyArray, biases: bool) -> Matrix:
    """``prior_k c_i^g`` for rows with so many entries: one number per parameter."""
    found: Matrix = (np.maximum(counts, 1.0) ** GROWTH)[:, None] * prior
    if biases:
        found[:, -1] = prior[-1]
    return found


class PartnerSums(NamedTuple):
    """For each parameter of the rows of a side, summed over a row's partners."""

    variances: Matrix
    squares: Matrix  # of the means

    def weights(self, noise: float, precision: Matrix, held: bool) -> Matrix:
        """W; a bias that is ``held`` stays at 0."""
        weights = noise * precision + self.variances
        if held:
            weights[:, -1] = HELD
        return weights

    def own_variances(self, noise: float, weights: Matrix, held: bool) -> Matrix:
        """S."""
        found: Matrix = noise / (weights + self.squares)
        if held:
            found[:, -1] = 0.0
        return found


class LearnedPriors(NamedTuple):
    """What a model with learned priors knows beside the means of its parameters."""

    noise: float  # the variance of a rating around its prediction
    priors: tuple[NDArray[np.float64], NDArray[np.float64]]  # of rows and columns
    variances: tuple[Floats, Floats]  # of each row's and each column's parameters
    calibration: float = 1.0  # the factor of standard deviations; see `calibration_of`

    def transposed(self) -> LearnedPriors:
        """Those of the transposed matrix."""
        return self._replace(priors=self.priors[::-1], variances=self.variances[::-1])

    def prior_variances(self, which: int, count: int) -> Matrix:
        """Those of so many rows (0) or columns (1) without entries."""
        one: Matrix = 1.0 / self.priors[which]
        return np.tile(one, (count, 1))
