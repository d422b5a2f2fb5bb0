"""Gaps in a table of numbers, filled from a low-rank model of its columns."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from momentous.lowrank.backends import Backend, RowStep
from momentous.lowrank.data.ratings import Compressed, Floats, Ratings, Rng
from momentous.lowrank.estimators.scikit import (
    BaseEstimator,
    TransformerMixin,
    check_is_fitted,
    validate_data,
)
from momentous.lowrank.losses import Squared
from momentous.lowrank.model.fit import PATH_SHARE
from momentous.lowrank.model.fitted import solve_rows
from momentous.lowrank.objective import LowRankObjective
from momentous.lowrank.penalty import Penalty
from momentous.lowrank.solvers.fit import FitConfig, solve
from momentous.lowrank.solvers.rank_search import FIRST_RANK, MAX_SWEEPS, search_rank
from momentous.lowrank.solvers.ridge_path import follow_path

if TYPE_CHECKING:
    from sklearn.utils import Tags


@dataclass(eq=False, repr=False)
class LowRankImputer(TransformerMixin, BaseEstimator):
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
        Number of factors, at most; more than the smaller side of the matrix are not used.  "auto"
        finds the rank that the ridge asks for, with a proof that no other one is better.
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

    rank: int | Literal["auto"] = 10
    _: KW_ONLY
    ridge: float | Literal["path"] = 0.5
    weighting: float = 0.5
    row_effects: bool = False
    gap_tol: float = 1e-4
    max_iterations: int | None = None
    tol: float = 1e-6
    threads: int | None = None
    backend: str | Backend = "auto"
    device: str = "cpu"
    random_state: Rng = 0

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn the columns' factors and offsets."""
        table = self._validated(X, reset=True)
        there = ~np.isnan(table)
        if not there.any():
            raise ValueError(
                f"all {table.size} entries of X are NaN: there is nothing to learn from"
            )
        self.mean_, self.scale_ = _moments(table, there)
        if not (np.isfinite(self.mean_) & np.isfinite(self.scale_)).all():
            raise ValueError(
                f"X has numbers of size {np.nanmax(np.abs(table)):g}, whose squares overflow: "
                "divide X by a number"
            )
        rows, cols = np.nonzero(there)
        ratings = Ratings(rows, cols, ((table - self.mean_) / self.scale_)[there], table.shape)
        config = FitConfig(
            rank=self.rank,
            ridge=self.ridge,
            gap_tol=self.gap_tol,
            max_iterations=self.max_iterations,
            tol=self.tol,
            random_state=self.random_state,
        )
        # Offsets are fitted, too, and free: the means of what is there are not those of the whole.
        objective, x = self._fitted(ratings, config)
        columns = objective.backend.to_host(objective.split(x)[1])
        self.components_, self.offsets_ = columns[:, :-1].copy(), columns[:, -1].copy()
        self._ridge = objective.ridge
        return self

    def _fitted(self, ratings: Ratings, config: FitConfig) -> tuple[LowRankObjective, Floats]:
        """The objective, and its point at the end of the fit."""

        def problem(entries: Ratings, rank: int, ridge: float) -> LowRankObjective:
            return LowRankObjective(
                entries,
                min(rank, *ratings.shape),
                balance=0.0,
                ridge=Penalty(
                    ridge, weighting=self.weighting, biases=True, row_biases=self.row_effects
                ),
                threads=self.threads,
                backend=self.backend,
                device=self.device,
            )

        if config.rank != "auto":
            objective = problem(ratings, config.rank, float(self.ridge))
            x, result = solve(objective, config)
            self.n_iter_ = int(result.nit)
            return objective, x
        ridge, start = self.ridge, None
        if ridge == "path":
            known, held_out = ratings.split(PATH_SHARE, config.random_state)
            objective = problem(known, FIRST_RANK, 1.0)
            best, self.path_ = follow_path(objective, config.start(objective), held_out)
            ridge, start = best.objective.ridge, best
        objective = problem(ratings, FIRST_RANK if start is None else start.objective.rank, ridge)
        x = config.start(objective) if start is None else start.x
        *_, found = search_rank(objective, x, self.gap_tol, self.max_iterations or MAX_SWEEPS)
        self.certificate_, self.n_iter_ = found.certificate, found.sweeps
        return found.objective, found.x

    def transform(self, X: ArrayLike) -> Floats:
        """Fill the gaps of these rows."""
        check_is_fitted(self)
        table = self._validated(X, reset=False)
        there = ~np.isnan(table)
        if there.all():
            return table
        scaled = (table - self.mean_) / self.scale_
        starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int64)
        groups = Compressed(starts, np.nonzero(there)[1].astype(np.int32), scaled[there])
        penalty = Penalty(self._ridge, weighting=self.weighting, biases=self.row_effects)
        weights = penalty.weights(np.diff(starts), self.components_.shape[1])
        features = self.components_
        if self.row_effects:
            features = np.column_stack([features, np.ones(len(features))])
        step = RowStep(weights, features, self.offsets_)
        factors = solve_rows(groups, Squared(), step, self.backend, self.device, self.threads)
        filled = (factors @ features.T + self.offsets_) * self.scale_ + self.mean_
        return np.where(there, table, filled)

    def _validated(self, X: ArrayLike, reset: bool) -> Floats:
        if isinstance(X, np.ma.MaskedArray):  # what is masked is a gap; scikit-learn would use it
            X = np.ma.filled(X.astype(np.float64), np.nan)
        array: Floats = validate_data(
            self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan", copy=True
        )
        return array

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def _moments(X: Floats, there: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Mean and standard deviation of what is there in each column; 0 and 1 where nothing is."""
    counts = np.maximum(there.sum(axis=0), 1)
    with np.errstate(over="ignore", invalid="ignore"):  # the caller looks
        mean = np.where(there, X, 0.0).sum(axis=0) / counts
        deviation = np.sqrt((np.where(there, X - mean, 0.0) ** 2).sum(axis=0) / counts)
    # A constant column is left as it is, and so is one whose spread is rounding.
    return mean, np.where(deviation > 1e-12 * np.abs(mean), deviation, 1.0)
