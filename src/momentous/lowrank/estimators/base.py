"""What the estimators share: fitted attributes, recommendations, similar items, files."""

from __future__ import annotations

import copy
import dataclasses
import os
from dataclasses import KW_ONLY, dataclass
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np

from momentous.core.method import Method
from momentous.core.result import Result
from momentous.core.status import Status
from momentous.io.optional import require
from momentous.lowrank.backends import BACKENDS, Backend
from momentous.lowrank.checks import check_number, thread_count
from momentous.lowrank.data.ratings import Ratings
from momentous.lowrank.data.vocabulary import ratings_of
from momentous.lowrank.losses import Loss, find_loss
from momentous.lowrank.model import (
    LowRankModel,
    Recommended,
    Unknown,
    fit_model,
    load_model,
    save_model,
)
from momentous.lowrank.model.files import MALFORMED, damaged, fit_facts, from_plain
from momentous.lowrank.model.fitted import check_unknown
from momentous.lowrank.solvers.fit import FitConfig

_BaseEstimator: Any = require("sklearn.base", "app", "The estimators").BaseEstimator
check_is_fitted: Any = require("sklearn.utils.validation", "app", "The estimators").check_is_fitted


@dataclass(eq=False, repr=False)
class BaseCompletion(_BaseEstimator):  # type: ignore[misc]
    """What all estimators of a model share; ``_loss`` is the one loss that an estimator is for.

    Fields are the parameters: scikit-learn asks constructors to keep their arguments as they are.
    """

    _loss: ClassVar[str | None] = None

    rank: int = 10
    _: KW_ONLY
    solver: str | Method | type[Method] = "auto"
    balance: float = 1.0
    max_iterations: int | None = None
    tol: float = 1e-4
    validation_share: float | None = None
    patience: int = 5
    unknown: Unknown = "mean"
    dtype: Any = None
    threads: int | None = None
    backend: str | Backend = "auto"
    device: str = "cpu"
    random_state: Any = 0
    warm_start: bool = False
    verbose: bool = False

    def _fit(self, ratings: Ratings) -> None:
        check_unknown(self.unknown)
        start = self.model_ if self.warm_start and hasattr(self, "model_") else None
        watch = (lambda step: print(step)) if self.verbose else None
        fit = fit_model(ratings, self._config(), start=start, watch=watch)
        self.model_: LowRankModel = fit.model
        self.result_: Result | None = fit.result
        self.objective_, self.message_ = fit.objective, fit.message
        self.n_iter_, self.validation_errors_ = int(fit.result.nit), fit.held_out_errors
        self.n_features_in_ = 2
        if fit.error is not None:
            raise MemoryError(fit.message)
        if fit.result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt("the fit was interrupted; the estimator has what was reached")

    def fit(self, pairs: Any, y: Any = None) -> Self:
        """Fit to the values y of these pairs."""
        self._fit(self._ratings_of(pairs, y))
        return self

    def predict(self, pairs: Any) -> Any:
        """What the loss makes of the score of each pair: a rating, or how likely they meet."""
        check_is_fitted(self)
        return self.model_.predict(pairs, self.unknown)

    def _config(self, **chosen: Any) -> FitConfig:
        chosen = {
            name: getattr(self, name)
            for name in FitConfig.__dataclass_fields__.keys() - {"loss", "random_state"}
            if hasattr(self, name)
        } | chosen
        return FitConfig(loss=self._loss_object(), random_state=_seed(self.random_state), **chosen)

    def _loss_object(self) -> Loss:
        return find_loss(self.loss if self._loss is None else self._loss)

    # --- what was found ---------------------------------------------------------------------------

    row_factors_ = property(attrgetter("model_.row_factors"), doc="U.")
    col_factors_ = property(attrgetter("model_.col_factors"), doc="V.")
    row_bias_ = property(attrgetter("model_.row_bias"), doc="b.")
    col_bias_ = property(attrgetter("model_.col_bias"), doc="c.")
    mean_ = property(attrgetter("model_.mean"), doc="The score without factors and biases.")
    row_ids_ = property(attrgetter("model_.rows.ids"), doc="The id of each row.")
    col_ids_ = property(attrgetter("model_.cols.ids"), doc="The id of each column.")

    def recommend(self, user: Any, n: int = 10, exclude_seen: bool = True) -> Recommended:
        """The n items that suit a user best, and their scores (ratings, probabilities, ...).

        Those that the user has rated are left out.  A user who is not known is an error, or with
        ``unknown="mean"`` gets what all like.
        """
        check_is_fitted(self)
        return self.model_.recommend(user, n, exclude_seen, self.unknown)

    def recommend_all(
        self, users: Any, n: int = 10, exclude_seen: bool = True
    ) -> list[Recommended]:
        """The same for many users at once, on the device of the fit; one answer per user."""
        check_is_fitted(self)
        return self.model_.recommend_all(
            users, n, exclude_seen, self.unknown, backend=self.backend, device=self.device
        )

    def similar(self, item: Any, n: int = 10) -> Recommended:
        """The items whose factors are most like those of an item, and their cosines with them."""
        check_is_fitted(self)
        return self.model_.similar(item, n)

    def fold_in(self, pairs: Any, y: Any = None) -> Self:
        """A copy of this estimator that knows further users, from their entries.

        The items stay as they are: one ridge regression per user (logistic: a few Newton steps).  A
        user who is known already is computed again, from these entries alone; items that are not
        known are left out.
        """
        check_is_fitted(self)
        other = copy.copy(self)
        other.model_ = self.model_.fold_in(
            self._ratings_of(pairs, y), backend=self.backend, device=self.device
        )
        return other

    def _ratings_of(self, pairs: Any, y: Any) -> Ratings:
        return ratings_of(pairs, y, self.dtype)

    # --- on disk ----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file: arrays and JSON, no pickle."""
        check_is_fitted(self)
        facts = fit_facts(self.get_params(), self.n_iter_, self.objective_)
        save_model(self.model_, path, facts | self._more_facts())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save`, or the command ``momentous fit``, has written."""
        model, extra = load_model(path)
        try:
            return cls._restored(model, extra)
        except MALFORMED as error:
            raise damaged(path, error) from error

    @classmethod
    def _restored(cls, model: LowRankModel, extra: dict[str, Any]) -> Self:
        """A fitted estimator; what a file says about it is checked."""
        # The command's files have the loss apart, and parameters of other losses' estimators.
        saved = {"loss": model.loss, **dataclasses.asdict(model.loss), **extra["parameters"]}
        names = cls._get_param_names()
        estimator = cls(**{name: from_plain(saved[name]) for name in names if name in saved})
        ours = estimator._loss_object().name
        elsewhere = {one._loss for one in BaseCompletion.__subclasses__() if one._loss}
        if model.loss.name != ours or (cls._loss is None and ours in elsewhere):
            raise ValueError(
                f"it is for the {model.loss} loss, which {cls.__name__} is not for; load it with "
                "the other estimator"
            )
        estimator._check_parameters()
        check_number("n_iter", extra["n_iter"], 0, whole=True)
        estimator.model_, estimator.result_ = model, None
        estimator.n_iter_, estimator.objective_ = extra["n_iter"], float(extra["objective"])
        estimator.validation_errors_, estimator.n_features_in_, estimator.message_ = [], 2, ""
        estimator._restore_facts(extra)
        return estimator

    def _check_parameters(self) -> None:
        self._config(solver="auto")  # one of the user's own may not be registered here
        check_unknown(self.unknown)
        thread_count(self.threads)
        if np.dtype(self.dtype) not in (np.float32, np.float64):
            raise ValueError(f"its dtype is {self.dtype!r}")
        for name in ("backend", "device", "solver"):
            if not isinstance(getattr(self, name), str | Method):
                raise ValueError(f"its {name} is {getattr(self, name)!r}")
        if self.backend not in ("auto", *BACKENDS):
            raise ValueError(f"its backend {self.backend!r} is not known: import what registers it")

    def _more_facts(self) -> dict[str, Any]:
        """What the file of this estimator has beside what all have."""
        return {}

    def _restore_facts(self, extra: dict[str, Any]) -> None:
        """Take that from what a file has, checked."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.sparse = True
        return tags


def values_of(pairs: Any, y: Any) -> Any:
    """y, or the values that the pairs come with, in the order in which predictions come."""
    return ratings_of(pairs, None).values if y is None else y


def _seed(random_state: Any) -> Any:
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return random_state
