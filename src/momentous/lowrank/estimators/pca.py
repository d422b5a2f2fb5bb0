"""Principal components of a table with gaps."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from momentous.lowrank.checks import check_number
from momentous.lowrank.data.ratings import Floats
from momentous.lowrank.estimators.scikit import ComponentsMixin, check_is_fitted
from momentous.lowrank.estimators.tables import TableEstimator


@dataclass(eq=False, repr=False)
class PCA(ComponentsMixin, TableEstimator):
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

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Find means and components."""
        table = self._validated(X, reset=True, least=2)
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
        check_number("n_components", self.n_components, 1, whole=True)
        fit = self._fit_table(
            table - middle,
            there,
            rank=max(1, min(self.n_components, table.shape[0] - 1, table.shape[1])),
            ridge=self.ridge_,
            weighting=0.0,
            row_biases=False,
            max_iterations=self.max_iterations,
            tol=self.tol,
        )
        U, V, offsets = fit.model.row_factors, fit.model.col_factors, fit.model.col_bias
        errors = (table - middle - U @ V.T - offsets)[there]
        self.mean_ = middle + offsets + U.mean(axis=0) @ V.T
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
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """The scores of these rows, each from the entries that it has."""
        check_is_fitted(self)
        table = self._validated(X, reset=False)
        there = ~np.isnan(table)
        centred = table - self.mean_
        if there.all() and self.ridge_ == 0.0:
            return np.asarray(centred @ self.components_.T)
        # ridge |u|^2 of balanced factors u = t/sqrt(s), in terms of the scores t
        weights = np.tile(self.ridge_ / np.maximum(self.singular_values_, 1e-300), (len(table), 1))
        scores = self._best_rows(centred, there, weights, self.components_.T)
        return np.asarray(scores, np.float64)

    def inverse_transform(self, X: ArrayLike) -> Floats:
        """The rows that have these scores: with those of a row with gaps, the gaps are filled."""
        check_is_fitted(self)
        return np.asarray(np.asarray(X, np.float64) @ self.components_ + self.mean_)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_
