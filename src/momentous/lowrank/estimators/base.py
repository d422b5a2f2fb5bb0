"""What the estimators share: fits, predictions, fitted attributes, further entries, files."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from momentous.core.method import Method
from momentous.core.result import Result
from momentous.core.status import Status
from momentous.io.logs import say, shown
from momentous.io.progress import Lines, progress_bar
from momentous.io.types import AnyArray, JsonObject
from momentous.lowrank.backends.base import BACKENDS, device_of_each
from momentous.lowrank.checks import check_number, corrects_names, thread_count
from momentous.lowrank.data.files.dialect import PAIR
from momentous.lowrank.data.ids import require_unmasked
from momentous.lowrank.data.ratings import (
    WEIGHT_RANGE,
    Floats,
    Ratings,
    Rng,
    SparseMatrix,
    checked_weights,
    is_sparse,
)
from momentous.lowrank.data.vocabulary import (
    Pairs,
    pairs_of,
    ratings_of,
    refuse_path,
    remedy_of,
    split_triples,
    width_of,
)
from momentous.lowrank.estimators.answers import Answers
from momentous.lowrank.estimators.scikit import validate_data
from momentous.lowrank.losses import Loss, find_loss
from momentous.lowrank.model import (
    LowRankModel,
    Unknown,
    fit_model,
    load_model,
    save_model,
    updated,
)
from momentous.lowrank.model.files import MALFORMED, damaged, fit_facts, from_plain
from momentous.lowrank.model.fitted import check_unknown
from momentous.lowrank.options import FitOptions
from momentous.lowrank.solvers.certificate import Certificate
from momentous.lowrank.solvers.fit import ITERATIONS, SWEEPS, FitConfig, FitProgress, Watcher

if TYPE_CHECKING:
    from sklearn.utils import Tags
    from typing_extensions import TypeIs

LOGGER = logging.getLogger("momentous.fit")
Seed = int | np.random.Generator | np.random.RandomState | None
Weights = Floats | None  # of the pairs, in the caller's order; None: 1 each


@dataclass(eq=False, repr=False)
class BaseCompletion(Answers, FitOptions):
    """What all estimators of a model share; ``_loss`` is the one loss that an estimator is for.

    Fields are the parameters: scikit-learn asks constructors to keep their arguments as they are.
    Those of a fit come from `FitOptions`.
    """

    _loss: ClassVar[str | None] = None
    _least_weight: ClassVar[float] = WEIGHT_RANGE[0]

    _: KW_ONLY
    unknown: Unknown = "mean"
    dtype: DTypeLike | None = None
    random_state: Seed = 0
    warm_start: bool = False
    verbose: bool | int = False

    def _fit(self, ratings: Ratings) -> None:
        check_unknown(self.unknown)
        start = self.model_ if self.warm_start and hasattr(self, "model_") else None
        config = self._config()
        with self._watching(config) as watch:
            fit = fit_model(ratings, config, start=start, watch=watch)
            self.model_: LowRankModel = self._without_run(fit.model)
            self.result_: Result | None = fit.result
            self.objective_, self.message_ = fit.objective, fit.message
            self._certified, self.path_ = (self.model_, fit.certificate), fit.path
            self.n_iter_, self.validation_errors_ = int(fit.result.nit), fit.held_out_errors
            say(LOGGER, logging.INFO, self.message_)
        if fit.error is not None:
            raise MemoryError(fit.message)
        if fit.result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt("the fit was interrupted; the estimator has what was reached")

    @contextlib.contextmanager
    def _watching(self, config: FitConfig) -> Iterator[Watcher | None]:
        """What watches a fit, as ``verbose`` asks for: a bar where people look on, a line per
        iteration and the ending where they do not; all of it goes to the logger, too."""
        bar = progress_bar(bool(self.verbose))
        lines = isinstance(bar, Lines)
        limit = self.max_iterations or (SWEEPS if config.by_sweeps else ITERATIONS)
        level = logging.DEBUG if lines else None
        with shown(LOGGER.name, level), contextlib.nullcontext() if lines else bar:
            if not (self.verbose or LOGGER.isEnabledFor(logging.DEBUG)):
                yield None
                return

            def watch(step: FitProgress) -> None:
                say(LOGGER, logging.DEBUG, str(step))
                if not lines:
                    bar(str(step), step.nit / limit)

            yield watch
            if not lines and hasattr(self, "message_"):
                bar.end(self.message_)

    def _without_run(self, model: LowRankModel) -> LowRankModel:
        """Only a warm start goes on with a run, whose vectors are as long as the factors."""
        return model if self.warm_start else dataclasses.replace(model, run=None)

    @corrects_names
    def fit(
        self,
        X: Pairs,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit to the values y of the pairs X, or to a table X of users, items and values.

        ``sample_weight`` says how often each pair counts, one number above 0 each: with 2 as if it
        were there twice (of `ImplicitMF`: how much it is worth).  `Ratings` have weights of their
        own.
        """
        X, y = split_triples(X, y)
        self._fit(self._new_ratings(X, y, self._weights_of(X, sample_weight)))
        return self

    def _weights_of(self, X: Pairs, sample_weight: ArrayLike | None) -> Weights:
        if sample_weight is None:
            return None
        if holds_values(X):
            raise ValueError(
                "sample_weight needs pairs in the caller's order: pass pairs and y, or "
                "Ratings.with_weights"
            )
        count = len(pairs_of(X)[0])
        return checked_weights(sample_weight, count, "sample_weight", self._least_weight)

    @corrects_names
    def predict(self, X: Pairs) -> AnyArray:
        """What the loss makes of the score of each pair: a rating, or how likely they meet.

        A bare sparse matrix is refused: a slice of one does not say whose rows it has.
        """
        X = self._known_pairs(X)
        return self.model_.predict(X, self.unknown)

    def _config(self, **chosen: object) -> FitConfig:
        given: JsonObject = {
            name: getattr(self, name)
            for name in FitConfig.__dataclass_fields__.keys() - {"loss", "random_state"}
            if hasattr(self, name)
        } | chosen
        return FitConfig(loss=self._loss_object(), random_state=_seed(self.random_state), **given)

    def _loss_object(self) -> Loss:
        loss: str | Loss = getattr(self, "loss", self._loss or "")
        return find_loss(loss)

    # --- what was found ---------------------------------------------------------------------------

    @property
    def certificate_(self) -> Certificate:
        """How far the model is, at most, from the best one of any rank; see `Certificate`.

        Of fits with a fixed ridge: with learned priors it is an error that says so.

        Computed when it is asked for: in the time of 0.8 to 1.9 sweeps of rank 10 on the
        MovieLens-1M twin.
        """
        own = self._fitted
        model, found = getattr(self, "_certified", (None, None))
        if model is not own or found is None:
            found = own.certify(self.gap_tol, self.backend, self.device)
            self._certified = own, found
        return found

    @property
    def rank_(self) -> int:
        """Number of factors: with ``rank="auto"``, or on few rows or columns, not the parameter."""
        return self._fitted.rank

    @property
    def row_factors_(self) -> Floats:
        """U."""
        return self.model_.row_factors

    @property
    def col_factors_(self) -> Floats:
        """V."""
        return self.model_.col_factors

    @property
    def row_bias_(self) -> Floats:
        """b."""
        return self.model_.row_bias

    @property
    def col_bias_(self) -> Floats:
        """c."""
        return self.model_.col_bias

    @property
    def mean_(self) -> float:
        """The score without factors and biases."""
        return self.model_.mean

    @property
    def row_ids_(self) -> AnyArray:
        """The id of each row."""
        return self.model_.rows.ids

    @property
    def col_ids_(self) -> AnyArray:
        """The id of each column."""
        return self.model_.cols.ids

    # --- more entries -----------------------------------------------------------------------------

    @corrects_names
    def fold_in(self, X: Pairs, y: ArrayLike | None = None) -> Self:
        """A copy of this estimator that knows further users, from their entries.

        The items stay as they are: one ridge regression per user (logistic: a few Newton steps).  A
        user who is known already is computed again, from these entries alone; items that are not
        known are left out.
        """
        return self._with_more(self._fitted.fold_in, X, y)

    @corrects_names
    def fold_in_items(self, X: Pairs, y: ArrayLike | None = None) -> Self:
        """The same for further items: the users stay as they are."""
        return self._with_more(self._fitted.fold_in_columns, X, y)

    def _with_more(self, fold: Callable[..., LowRankModel], X: Pairs, y: ArrayLike | None) -> Self:
        other, ratings = copy.copy(self), self._further_ratings(X, y)
        other.model_ = fold(ratings, backend=self.backend, device=self.device)
        return other

    @corrects_names
    def partial_fit(
        self, X: Pairs, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Take further entries, of known and of new users and items; the first call is a `fit`.

        A pair that comes again has its new value and weight from now on.  The users of these
        entries, then their items, are computed again, each from all its entries; all others stay as
        they are, and so do mean, ridge and priors.  The objective of all entries does not rise by
        that (for losses other than the library's own: nearly so).  Many such steps are no
        substitute for a `fit`.
        """
        if not hasattr(self, "model_"):
            return self.fit(X, y, sample_weight)
        X, y = split_triples(X, y)
        ratings = self._further_ratings(X, y, self._weights_of(X, sample_weight))
        self.model_ = updated(self.model_, ratings, self.backend, self.device)
        problem, x = self.model_.problem(self.backend, self.device)
        self.objective_ = problem.value(x)
        self.n_iter_ += 1
        self.result_, self.message_, self.validation_errors_ = None, "", []
        return self

    # --- what X may be ----------------------------------------------------------------------------

    def _ratings_of(self, X: Pairs, y: ArrayLike | None, weights: Weights = None) -> Ratings:
        """X and y as this estimator's loss takes them."""
        return ratings_of(X, y, self.dtype, weights)

    def _new_ratings(self, X: Pairs, y: ArrayLike | None, weights: Weights = None) -> Ratings:
        """What to fit to; the names of the columns are kept."""
        if is_sparse(X) and y is not None:
            raise ValueError("a sparse matrix holds its values already: leave y out, or pass pairs")
        refuse_path(X)
        if y is None and not holds_values(X) and self.__sklearn_tags__().target_tags.required:
            are_pairs = width_of(X) == PAIR
            remedy = "y is missing, one value for each pair" if are_pairs else remedy_of(X)
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: {remedy}"
            )
        ratings = self._ratings_of(X, y, weights)
        self.feature_names_in_: AnyArray  # of a table, by scikit-learn
        if not holds_values(X):
            validate_data(self, X, reset=True, skip_check_array=True)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.n_features_in_ = PAIR
        return ratings

    def _further_ratings(self, X: Pairs, y: ArrayLike | None, weights: Weights = None) -> Ratings:
        X, y = split_triples(X, y)
        return self._ratings_of(self._known_pairs(X), y, weights)

    def _known_pairs(self, X: Pairs) -> Pairs:
        """X, if it says which users and items it is about, with its columns as in the fit."""
        model = self._fitted
        refuse_path(X)
        if is_sparse(X):
            raise ValueError(
                f"X is a sparse matrix of {X.shape[0]} x {X.shape[1]}, which does not say whose "
                f"rows it has (the fit has {len(model.rows)} x {len(model.cols)}, and "
                "row 0 of a slice is not its row 0); pass pairs of ids, Ratings with row_ids, or "
                "Ratings.from_sparse(X) if row and column numbers are the ids of the fit"
            )
        if not isinstance(X, Ratings):
            validate_data(self, X, reset=False, skip_check_array=True)
        return X

    # --- on disk ----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file: arrays and JSON, no pickle.

        A model that is there is replaced; any other file is not, and is an OSError.
        """
        model = self._fitted
        facts = fit_facts(self.get_params(), self.n_iter_, self.objective_)
        if hasattr(self, "feature_names_in_"):
            facts["feature_names"] = self.feature_names_in_.tolist()
        save_model(model, path, facts | self._more_facts())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save`, or the command ``momentous fit``, has written."""
        return cls._from_file(path, *load_model(path))

    @classmethod
    def _from_file(
        cls, path: str | os.PathLike[str], model: LowRankModel, extra: JsonObject
    ) -> Self:
        try:
            return cls._restored(model, extra)
        except MALFORMED as error:
            raise damaged(path, error) from error

    @classmethod
    def _restored(cls, model: LowRankModel, extra: JsonObject) -> Self:
        """A fitted estimator; what a file says about it is checked."""
        # The command's files have the loss apart, and parameters of other losses' estimators.
        saved = {"loss": model.loss, **dataclasses.asdict(model.loss), **extra["parameters"]}
        names = cls._get_param_names()
        own: JsonObject = {name: from_plain(saved[name]) for name in names if name in saved}
        estimator = cls(**own)
        ours = estimator._loss_object().name
        elsewhere = {one._loss for one in _estimators(BaseCompletion) if one._loss}
        if model.loss.name != ours or (cls._loss is None and ours in elsewhere):
            raise ValueError(
                f"it is for the {model.loss} loss, which {cls.__name__} is not for; load it with "
                "the other estimator"
            )
        estimator._check_parameters()
        check_number("n_iter", extra["n_iter"], 0, whole=True)
        estimator.model_, estimator.result_ = estimator._without_run(model), None
        estimator.n_iter_, estimator.objective_ = extra["n_iter"], float(extra["objective"])
        estimator.validation_errors_, estimator.message_ = [], ""
        estimator.n_features_in_ = PAIR
        names_in = extra.get("feature_names")
        if names_in is not None:
            if len(names_in) != PAIR or not all(isinstance(name, str) for name in names_in):
                raise ValueError(f"its feature names are {names_in!r}")
            estimator.feature_names_in_ = np.array(names_in, object)
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
        if self.device not in ("auto", *device_of_each().values()):
            raise ValueError(f"its device is {self.device!r}")
        if self.backend not in ("auto", *BACKENDS):
            raise ValueError(f"its backend {self.backend!r} is not known: import what registers it")

    def _more_facts(self) -> JsonObject:
        """What the file of this estimator has beside what all have."""
        return {}

    def _restore_facts(self, extra: JsonObject) -> None:
        """Take that from what a file has, checked."""

    def __dir__(self) -> list[str]:
        """Without a certificate that has yet to be computed: scikit-learn's ``__dir__``, and its
        display in a notebook, read every attribute that is listed."""
        computed = getattr(self, "_certified", (None, None))[1] is not None
        return [name for name in object.__dir__(self) if computed or name != "certificate_"]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags


@dataclass(eq=False, repr=False)
class BiasedCompletion(BaseCompletion):
    """Estimators of models with a mean and biases."""

    _: KW_ONLY
    ridge: float | Literal["fixed", "path"] | None = None
    bias_ridge: float | None = None
    weighting: float | None = None
    biases: bool = True
    centre: bool = True


def holds_values(X: Pairs) -> TypeIs[Ratings | SparseMatrix]:
    """Does X have the values, too?"""
    return isinstance(X, Ratings) or is_sparse(X)


def values_of(X: Pairs, y: ArrayLike | None) -> AnyArray:
    """y, or the values that the pairs come with, in the order in which predictions come."""
    return ratings_of(X, None).values if y is None else require_unmasked(y, "values")


def _estimators(of: type[BaseCompletion]) -> list[type[BaseCompletion]]:
    """A class and all that are derived from it."""
    return [of, *(one for derived in of.__subclasses__() for one in _estimators(derived))]


def _seed(random_state: Seed) -> Rng:
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return random_state
