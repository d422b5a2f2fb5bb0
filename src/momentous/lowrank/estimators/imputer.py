"""Gaps in a table of numbers, filled from a low-rank model of its columns."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from momentous.lowrank.data.ratings import Floats
from momentous.lowrank.estimators.scikit import TransformerMixin, check_is_fitted
from momentous.lowrank.estimators.tables import TableEstimator
from momentous.lowrank.penalty import Penalty


@dataclass(eq=False, repr=False)
class LowRankImputer(TransformerMixin, TableEstimator):
    """Fill gaps by what a few factors, shared by all columns, say about the rest of the row.

    A gap is NaN, or masked in an array of ``numpy.ma``.

    The columns are brought to mean 0 and standard deviation 1 (of what is there), a matrix of low
    rank, with an offset for each column, is fitted to the entries that are there, and the gaps are
    filled from it; what is there stays as it is.  New rows get their factors from their own
    entries, by one ridge regression, so that ``transform`` needs no new fit.  A row without entries
    is filled with the columns' offsets, a column without entries with zeros.

    Parameters
    ----------
    rank : int or "auto"
        By default the rank that the ridge asks for is found, with a proof that no other one is
        better.  A number: so many factors at most, for tables that are too large for that; more
        than the smaller side of the matrix are not used.
    ridge : float or "path"
        Weight of the squared factors, for columns of standard deviation 1.  "path", with
        ``rank="auto"``: the one of a path with the least error on a tenth of the entries, held out
        while it is followed.
    row_effects : bool
        Fit an offset for each row as well as for each column, neither of them penalised.
    weighting : float
        The ridge of a row with c entries is ``ridge * c ** weighting``.
    gap_tol : float
        With ``rank="auto"``: how near to the optimum the fit is proven to be, relatively.
    max_iterations, tol, threads, backend, device, random_state
        As for `MatrixCompletion`, fitted by sweeps.

    Attributes
    ----------
    components_ : array, (columns, rank)
        The columns' factors (V), after scaling.
    offsets_ : array
        The columns' offsets, after scaling.
    mean_, scale_ : array
        Of each column.
    rank_ : int
        The number of factors: what ``rank="auto"`` has found.
    n_iter_ : int
    certificate_ : Certificate
        With ``rank="auto"``.
    path_ : list of PathPoint
        With ``ridge="path"``: ``ridge``, ``rank`` and ``held_out`` (the error) of each fit.

    Examples
    --------
    >>> import numpy as np
    >>> from momentous.lowrank import LowRankImputer
    >>> X = np.outer([1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, -1.0])
    >>> X[3, 2] = np.nan
    >>> LowRankImputer(rank=1, ridge=0.0).fit_transform(X)[3].round(2)
    array([ 4.,  8., -4.])
    """

    rank: int | Literal["auto"] = "auto"
    _: KW_ONLY
    ridge: float | Literal["path"] = 0.5
    weighting: float = 0.5
    row_effects: bool = False
    gap_tol: float = 1e-4
    max_iterations: int | None = None
    tol: float = 1e-6

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn the columns' factors and offsets."""
        table = self._validated(X, reset=True)
        there = ~np.isnan(table)
        if not there.any():
            raise ValueError(
                f"all {table.size} entries of X are NaN: there is nothing to learn from"
            )
        if self.ridge is None:
            raise ValueError("ridge=None must be a number, or 'path' with rank='auto'")
        self.mean_, self.scale_ = _moments(table, there)
        if not (np.isfinite(self.mean_) & np.isfinite(self.scale_)).all():
            raise ValueError(
                f"X has numbers of size {np.nanmax(np.abs(table)):g}, whose squares overflow: "
                "divide X by a number"
            )
        # Offsets are fitted, too, and free: the means of what is there are not those of the whole.
        names = ("rank", "ridge", "weighting", "gap_tol", "max_iterations", "tol")
        fit = self._fit_table(
            (table - self.mean_) / self.scale_,
            there,
            row_biases=self.row_effects,
            **{name: getattr(self, name) for name in names},
        )
        model = fit.model
        self.components_, self.offsets_ = model.col_factors, model.col_bias
        self.rank_ = model.rank
        self._ridge = model.penalty.ridge
        if fit.certificate is not None:
            self.certificate_ = fit.certificate
        if fit.path:
            self.path_ = fit.path
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """Fill the gaps of these rows."""
        check_is_fitted(self)
        table = self._validated(X, reset=False)
        there = ~np.isnan(table)
        if there.all():
            return table
        penalty = Penalty(self._ridge, weighting=self.weighting, biases=self.row_effects)
        weights = penalty.weights(there.sum(axis=1), self.components_.shape[1])
        features = self.components_
        if self.row_effects:
            features = np.column_stack([features, np.ones(len(features))])
        scaled = (table - self.mean_) / self.scale_
        factors = self._best_rows(scaled, there, weights, features, self.offsets_)
        filled = (factors @ features.T + self.offsets_) * self.scale_ + self.mean_
        return np.where(there, table, filled)


def _moments(X: Floats, there: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Mean and standard deviation of what is there in each column; 0 and 1 where nothing is."""
    counts = np.maximum(there.sum(axis=0), 1)
    with np.errstate(over="ignore", invalid="ignore"):  # the caller looks
        mean = np.where(there, X, 0.0).sum(axis=0) / counts
        deviation = np.sqrt((np.where(there, X - mean, 0.0) ** 2).sum(axis=0) / counts)
    # A constant column is left as it is, and so is one whose spread is rounding.
    return mean, np.where(deviation > 1e-12 * np.abs(mean), deviation, 1.0)
