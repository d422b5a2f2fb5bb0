"""What the estimators of tables with gaps share: parameters, entries, fits, factors of rows."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from momentous.lowrank.backends import Backend, RowStep
from momentous.lowrank.data.ratings import Compressed, Floats, Ratings, Rng
from momentous.lowrank.estimators.scikit import BaseEstimator, validate_data
from momentous.lowrank.losses import Squared
from momentous.lowrank.model import Fit, fit_model
from momentous.lowrank.model.fitted import solve_rows
from momentous.lowrank.solvers.fit import FitConfig

if TYPE_CHECKING:
    from sklearn.utils import Tags


@dataclass(eq=False, repr=False)
class TableEstimator(BaseEstimator):
    """Fits a matrix of low rank, with an offset for each column, to what is there of a table.

    A gap is NaN, or masked in an array of ``numpy.ma``.
    """

    _: KW_ONLY
    threads: int | None = None
    backend: str | Backend = "auto"
    device: str = "cpu"
    random_state: Rng = 0

    def _fit_table(self, table: Floats, there: NDArray[np.bool_], **options: object) -> Fit:
        """The fit by sweeps; offsets are not penalised."""
        rows, cols = np.nonzero(there)
        config = FitConfig(
            biases=True,
            bias_ridge=0.0,
            centre=False,
            threads=self.threads,
            backend=self.backend,
            device=self.device,
            random_state=self.random_state,
            **options,  # type: ignore[arg-type]
        )
        fit = fit_model(Ratings(rows, cols, table[there], table.shape), config)
        self.n_iter_ = int(fit.result.nit)
        return fit

    def _best_rows(
        self,
        table: Floats,
        there: NDArray[np.bool_],
        weights: Floats,
        features: Floats,
        offsets: Floats | None = None,
    ) -> Floats:
        """The factors of each row that are best for the entries that it has."""
        starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int64)
        groups = Compressed(starts, np.nonzero(there)[1].astype(np.int32), table[there])
        step = RowStep(weights, np.ascontiguousarray(features), offsets)
        return solve_rows(groups, Squared(), step, self.backend, self.device, self.threads)

    def _validated(self, X: ArrayLike, reset: bool, least: int = 1) -> Floats:
        """X as doubles, with NaN where something is missing."""
        if isinstance(X, np.ma.MaskedArray):  # what is masked is a gap; scikit-learn would use it
            X = np.ma.filled(X.astype(np.float64), np.nan)
        array: Floats = validate_data(
            self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan", copy=True,
            ensure_min_samples=least,
        )  # fmt: skip
        return array

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
