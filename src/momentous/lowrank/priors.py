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

from momentous.io.types import AnyArray, Matrix
from momentous.lowrank.backends.sums import partner_sums
from momentous.lowrank.data.ratings import Compressed, Floats
from momentous.lowrank.data.vocabulary import UNKNOWN, Positions
from momentous.lowrank.penalty import HELD

# g: rows with many entries vary more.  With 0 rows of few entries overfit as sweeps go on, and 0.5
# is worse still (benchmarks/held_out.py --real).
GROWTH = -0.4
LARGEST_SHARE = 0.99  # that an entry can have in its own prediction
LEAST_CALIBRATION = 1e-3  # where all ratings are fitted exactly


def growth_of(counts: AnyArray) -> Matrix:
    """``c_i^g``, one number per row."""
    growth: Matrix = np.maximum(counts, 1.0) ** GROWTH
    return growth


def precisions(prior: Matrix, counts: AnyArray, biases: bool) -> Matrix:
    """``prior_k c_i^g`` for rows with so many entries: one number per parameter."""
    found: Matrix = growth_of(counts)[:, None] * prior
    if biases:
        found[:, -1] = prior[-1]
    return found


class PartnerSums(NamedTuple):
    """For each parameter of the rows of a side, summed over a row's partners."""

    variances: Matrix
    squares: Matrix  # of the means

    def weights(self, noise: float, precision: Matrix, held: bool) -> Matrix:
        """W; a bias that is ``held`` stays at 0."""
        weights = noise * precision
        weights += self.variances
        if held:
            weights[:, -1] = HELD
        return weights

    def own_variances(self, noise: float, weights: Matrix, held: bool) -> Matrix:
        """S."""
        found: Matrix = weights + self.squares
        np.divide(noise, found, out=found)
        if held:
            found[:, -1] = 0.0
        return found


class LearnedPriors(NamedTuple):
    """What a model with learned priors knows beside the means of its parameters.

    A row's parameters are its factors and, with biases, its bias as the last one.
    """

    noise: float  # the variance of a rating around its prediction
    priors: tuple[Matrix, Matrix]  # of rows and of columns, one number per parameter
    variances: tuple[Floats, Floats]  # of each row's and of each column's parameters
    biases: bool
    row_biases: bool = True  # False: those of rows are held at 0
    calibration: float = 1.0  # a factor of standard deviations: `calibration_of`

    def transposed(self) -> LearnedPriors:
        """Those of the transposed matrix."""
        return self._replace(priors=self.priors[::-1], variances=self.variances[::-1])

    def grown(self, *more: int) -> LearnedPriors:
        """With so many more rows, and columns, that have no entries."""
        return self.at(
            *(
                np.append(np.arange(len(old)), np.full(count, UNKNOWN))
                for old, count in zip(self.variances, more, strict=True)
            )
        )

    def at(self, *places: Positions) -> LearnedPriors:
        """Those of the rows, and columns, in these places; without a place (-1) the prior's."""
        found = []
        for which, (old, place) in enumerate(zip(self.variances, places, strict=True)):
            of_prior = 1.0 / self.priors[which]
            if which == 0 and self.biases and not self.row_biases:
                of_prior[-1] = 0.0
            new = old[place] if len(old) else np.empty((len(place), old.shape[1]), old.dtype)
            new[place == UNKNOWN] = of_prior
            found.append(new)
        return self._replace(variances=(found[0], found[1]))

    def with_rows(self, rows: Positions, variances: Matrix) -> LearnedPriors:
        """With these of some rows."""
        own, others = self.variances
        own = own.copy()
        own[rows] = variances
        return self._replace(variances=(own, others))

    def of_rows(self, groups: Compressed, col_factors: Floats) -> tuple[Matrix, Matrix]:
        """The weights and the variances of rows with these entries, for the columns as they are."""
        rank, counts = col_factors.shape[1], groups.group_weights
        numbers = np.hstack([self.variances[1][:, :rank], col_factors.astype(np.float64) ** 2])
        sums = partner_sums(groups, numbers)
        parts = [sums[:, :rank], sums[:, rank:]]
        if self.biases:
            of_bias = np.zeros(len(sums)), counts
            parts = [np.column_stack(both) for both in zip(parts, of_bias, strict=True)]
        held = self.biases and not self.row_biases
        partners = PartnerSums(*parts)
        weights = partners.weights(
            self.noise, precisions(self.priors[0], counts, self.biases), held
        )
        return weights, partners.own_variances(self.noise, weights, held)


# --- predictions ----------------------------------------------------------------------------------


class PredictionVariance(NamedTuple):
    """Of ``b_i + c_j + u_i . v_j`` for some pairs: the row's part, the column's, that of both."""

    rows: Matrix
    cols: Matrix
    both: Matrix

    @classmethod
    def at(
        cls,
        rows: tuple[Floats, Floats],
        cols: tuple[Floats, Floats],
        biases: bool,
    ) -> PredictionVariance:
        """From the parameters of a row and of a column for each pair, and their variances."""
        u, s, v, t = (one.astype(np.float64, copy=False) for one in (*rows, *cols))
        rank = s.shape[1] - biases
        products = [
            np.einsum("ij,ij->i", one[:, :rank], other[:, :rank])
            for one, other in ((s, v * v), (u * u, t), (s, t))
        ]
        if biases:
            products[0] += s[:, -1]
            products[1] += t[:, -1]
        return cls(*products)

    @property
    def total(self) -> Matrix:
        """Their sum."""
        return self.rows + self.cols + self.both

    def standardised_errors(
        self,
        residuals: Matrix,
        values: Matrix,
        noise: float,
        limits: tuple[float, float],
        weights: Matrix | float = 1.0,
    ) -> Matrix:
        """Errors of predictions without the entry itself, in their standard deviations.

        The share of an entry in its own prediction is h, what it adds to the parameters' precision,
        with all of its weight: without it the residual e (a rating less its prediction) is
        e/(1 - h), for the row and for the column.
        """
        own, far = (np.minimum(weights * part / noise, LARGEST_SHARE) for part in self[:2])
        without = np.clip(values - residuals / ((1.0 - own) * (1.0 - far)), *limits)
        spread = noise + self.rows / (1.0 - own) + self.cols / (1.0 - far) + self.both
        errors: Matrix = np.abs(values - without) / np.sqrt(spread)
        return errors


def calibration_of(errors: Matrix) -> float:
    """The factor with which standard deviations cover as many errors as those of a normal law.

    Between the factors for 80 and for 95 % of the errors, which differ: ratings have longer tails
    than a normal law, or shorter ones, and predictions are within a range.
    """
    factors = [
        float(np.quantile(errors, share)) / normal
        for share, normal in ((0.8, 1.2816), (0.95, 1.96))
    ]
    return max((2.0 * factors[0] + factors[1]) / 3.0, LEAST_CALIBRATION)
