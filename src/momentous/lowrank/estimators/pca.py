"""Principal components of a table with gaps."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np

from momentous.lowrank.backends import Backend, RowStep
from momentous.lowrank.data.ratings import Compressed, Floats, Ratings
from momentous.lowrank.estimators.scikit import (
    BaseEstimator,
    ComponentsMixin,
    check_is_fitted,
    validate_data,
)
from momentous.lowrank.losses import Squared
from momentous.lowrank.model.fitted import solve_rows
from momentous.lowrank.objective import LowRankObjective
from momentous.lowrank.penalty import Penalty
from momentous.lowrank.solvers.fit import FitConfig, solve


@dataclass(eq=False, repr=False)
class PCA(ComponentsMixin, BaseEstimator):
    """Principal component analysis where entries may be missing (NaN), as in scikit-learn's `PCA`.

    Of all means and matrices of rank k it is the one with the least squared error over the entries
    that are there.  Without gaps and without a ridge that is scikit-learn's PCA.

    Parameters
    ----------
    n_components : int
        k; more than the smaller side of the table, less one, are not used.
    ridge : float, optional
        Weight of the squared factors, in units of the table: it shrinks singular values by about
        as much, and keeps rows with few entries from scores without bounds.  By default 0 where
        nothing is missing, and else the root mean square of the columns' standard deviations.
    max_iterations, tol, threads, backend, device, random_state
        As for `MatrixCompletion`, fitted by sweeps.

    Attributes
    ----------
    components_ : array, (k, columns)
        Orthonormal rows, by falling variance; the largest entry of each is positive.
    explained_variance_, explained_variance_ratio_ : array of length k
        Of the scores, and over the variance of the whole table: of what is there, column by column.
    singular_values_ : array of length k
        Of the fitted matrix, centred.
    mean_ : array
        Of each column of the fitted matrix.  With gaps that is not the mean of what is there.
    noise_variance_ : float
        The mean squared error of the entries that are there.
    ridge_ : float
    n_components_, n_samples_, n_iter_ : int

    References
    ----------
    .. [1] A. Ilin, T. Raiko, "Practical approaches to principal component analysis in the presence
       of missing values", JMLR 11 (2010).

    Examples
    --------
    >>> import numpy as np
    >>> from momentous.lowrank import PCA
    >>> X = np.outer([1.0, 2.0, 3.0, 4.0, 6.0], [1.0, 2.0, -1.0])
    >>> X[3, 2] = np.nan
    >>> pca = PCA(n_components=1, ridge=0.0).fit(X)
    >>> pca.inverse_transform(pca.transform(X))[3].round(2)
    array([ 4.,  8., -4.])
    """

    n_components: int = 2
    _: KW_ONLY
    ridge: float | None = None
    max_iterations: int = 1000
    tol: float = 1e-10
    threads: int | None = None
    backend: str | Backend = "auto"
    device: str = "cpu"
    random_state: Any = 0

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find means and components."""
        table = self._validated(X, reset=True)
        there = ~np.isnan(table)
        empty = np.flatnonzero(~there.any(axis=0))
        if empty.size:
            raise ValueError(
                f"column {empty[0]} of X has no entries ({empty.size} of {table.shape[1]} have "
                "none): leave it out"
            )
        # Columns are brought near 0, for the sweeps; their offsets are fitted, and free.
        middle = np.nanmean(table, axis=0)
        spread = float(np.sqrt(np.mean(np.nanvar(table, axis=0))))
        self.ridge_ = (0.0 if there.all() else spread) if self.ridge is None else self.ridge
        rows, cols = np.nonzero(there)
        ratings = Ratings(rows, cols, (table - middle)[there], table.shape)
        config = FitConfig(
            rank=self.n_components,
            max_iterations=self.max_iterations,
            tol=self.tol,
            random_state=self.random_state,
        )
        objective = LowRankObjective(
            ratings,
            max(1, min(self.n_components, table.shape[0] - 1, table.shape[1])),
            balance=0.0,
            ridge=Penalty(self.ridge_, biases=True, row_biases=False),
            threads=self.threads,
            backend=self.backend,
            device=self.device,
        )
        x, result = solve(objective, config)
        P, Q = objective.factors(x)
        U, V = P[:, :-1], Q[:, :-1]
        errors = (table - middle - U @ V.T - Q[:, -1])[there]
        self.mean_ = middle + Q[:, -1] + U.mean(axis=0) @ V.T
        r_left, (right, r_right) = np.linalg.qr(U - U.mean(axis=0), "r"), np.linalg.qr(V)
        _, sizes, turn = np.linalg.svd(r_left @ r_right.T)
        components = turn @ right.T
        largest = np.argmax(np.abs(components), axis=1)
        components *= np.sign(components[np.arange(len(components)), largest])[:, None]
        self.components_, self.singular_values_ = components, sizes
        self.n_samples_, self.n_components_ = len(table), len(components)
        self.explained_variance_ = sizes**2 / max(len(table) - 1, 1)
        total = float(np.sum(np.nanvar(table, axis=0) * len(table) / max(len(table) - 1, 1)))
        self.explained_variance_ratio_ = self.explained_variance_ / max(total, 1e-300)
        self.noise_variance_ = float(np.mean(errors**2))
        self.n_iter_ = int(result.nit)
        return self

    def transform(self, X: Any) -> Floats:
        """The scores of these rows, each from the entries that it has."""
        check_is_fitted(self)
        table = self._validated(X, reset=False)
        there = ~np.isnan(table)
        centred = table - self.mean_
        if there.all() and self.ridge_ == 0.0:
            return np.asarray(centred @ self.components_.T)
        starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int64)
        groups = Compressed(starts, np.nonzero(there)[1].astype(np.int32), centred[there])
        # ridge |u|^2 of balanced factors u = t/sqrt(s), in terms of the scores t
        weights = np.tile(self.ridge_ / np.maximum(self.singular_values_, 1e-300), (len(table), 1))
        features = np.ascontiguousarray(self.components_.T)
        step = RowStep(weights, features, np.zeros(len(features)))
        scores = solve_rows(groups, Squared(), step, self.backend, self.device, self.threads)
        return np.asarray(scores, np.float64)

    def inverse_transform(self, X: Any) -> Floats:
        """The rows that have these scores: with those of a row with gaps, the gaps are filled."""
        check_is_fitted(self)
        return np.asarray(np.asarray(X, np.float64) @ self.components_ + self.mean_)

    def _validated(self, X: Any, reset: bool) -> Floats:
        array: Floats = validate_data(
            self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan", copy=True,
            ensure_min_samples=2 if reset else 1,
        )  # fmt: skip
        return array

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
