"""The fits as scikit-learn estimators: a regressor for ratings, a classifier for two labels."""

from __future__ import annotations

import copy
import os
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from momentous.core.method import Method
from momentous.core.result import Result
from momentous.lowrank.biased import Loss
from momentous.lowrank.fitting import Recipe, fit_model
from momentous.lowrank.imputer import LowRankImputer
from momentous.lowrank.model import LowRankModel, Recommended, Unknown
from momentous.lowrank.names import ratings_of
from momentous.lowrank.penalty import WEIGHTING
from momentous.lowrank.ratings import Compressed, Floats, Ratings
from momentous.lowrank.saving import ModelFileError, load_model, save_model
from momentous.lowrank.scikit import scikit_learn

__all__ = ["LowRankImputer", "MatrixCompletion", "OneBitMatrixCompletion"]

_base: Any = scikit_learn("base")
_BaseEstimator: Any = _base.BaseEstimator
_RegressorMixin: Any = _base.RegressorMixin
_ClassifierMixin: Any = _base.ClassifierMixin
_check_is_fitted = scikit_learn("utils.validation").check_is_fitted


class _Completion(_BaseEstimator):  # type: ignore[misc]
    """What both estimators share."""

    _loss: Loss
    model_: LowRankModel
    result_: Result | None

    def _fit(self, ratings: Ratings) -> None:
        start = self.model_ if self.warm_start and hasattr(self, "model_") else None
        watch = (lambda step: print(step)) if self.verbose else None
        fit = fit_model(ratings, self._recipe(), start=start, watch=watch)
        self.model_, self.result_, self.objective_ = fit.model, fit.result, fit.objective
        self.n_iter_, self.validation_errors_ = int(fit.result.nit), fit.held_out
        self.n_features_in_ = 2

    def _recipe(self) -> Recipe:
        names = Recipe.__dataclass_fields__.keys() - {"loss", "rng"}
        chosen = {name: getattr(self, name) for name in names}
        return Recipe(loss=self._loss, rng=_seed(self.random_state), **chosen)

    # --- what was found ---------------------------------------------------------------------------

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
        """What the model says without factors and biases."""
        return self.model_.mean

    @property
    def row_ids_(self) -> NDArray[Any]:
        """The id of each row."""
        return self.model_.rows.ids

    @property
    def col_ids_(self) -> NDArray[Any]:
        """The id of each column."""
        return self.model_.cols.ids

    def recommend(self, user: Any, n: int = 10, exclude_seen: bool = True) -> Recommended:
        """The items that suit a user best, and their scores (ratings, or probabilities).

        Parameters
        ----------
        user : id
            One that is not known is an error, or with ``unknown="mean"`` gets what all like.
        n : int
            How many, at most.
        exclude_seen : bool
            Leave out what the user has rated.
        """
        _check_is_fitted(self)
        return self.model_.recommend(user, n, exclude_seen, self.unknown)

    def fold_in(self, pairs: Any, y: Any = None) -> Self:
        """A copy of this estimator that knows further users, from their entries.

        The items stay as they are: one ridge regression a user (logistic: a few Newton steps).  A
        user who is known already is computed anew, from these entries alone; items that are not
        known are left out.
        """
        _check_is_fitted(self)
        other = copy.copy(self)
        other.model_ = self.model_.fold_in(self._labelled(pairs, y))
        return other

    def _labelled(self, pairs: Any, y: Any) -> Ratings:
        return ratings_of(pairs, y, self.dtype)

    # --- on disk ----------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file: arrays and JSON, no pickle."""
        _check_is_fitted(self)
        parameters = {name: _plain(value) for name, value in self.get_params().items()}
        facts = {"n_iter": self.n_iter_, "objective": self.objective_}
        save_model(self.model_, path, {"parameters": parameters, **facts, **self._facts()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save`, or the command ``momentous fit``, has written."""
        model, extra = load_model(path)
        if model.loss != cls._loss:
            raise ModelFileError(
                f"{path} holds a model for the {model.loss} loss, {cls.__name__} is for the "
                f"{cls._loss} loss; load it with the other estimator"
            )
        estimator = cls(**extra["parameters"])
        estimator.model_, estimator.result_ = model, None
        estimator.n_iter_, estimator.objective_ = extra["n_iter"], extra["objective"]
        estimator.validation_errors_, estimator.n_features_in_ = [], 2
        estimator._take_facts(extra)
        return estimator

    def _facts(self) -> dict[str, Any]:
        return {}

    def _take_facts(self, extra: dict[str, Any]) -> None:
        pass

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.sparse = True
        return tags


class MatrixCompletion(_RegressorMixin, _Completion):  # type: ignore[misc]
    """Ratings from pairs of ids: mean + biases + a product of rank r.

    X of ``fit`` and ``predict`` is an array (or table) of shape (N, 2) with a row id and a column
    id each, integers or strings; or `Ratings`, or a SciPy sparse matrix, which hold y already.
    Predictions lie within the ratings seen.

    Parameters
    ----------
    rank : int
        Number of factors (r).  More than the smaller side of the matrix are not used.
    solver : str, Method or class
        ``"auto"``: alternating half steps with restarted momentum (`momentous.accelerate`);
        ``"sweep"``: the same without momentum; or any method of `momentous.minimize`: ``"lbfgs"``,
        ``"ada-ragd"``, ``"universal-hb"``, ...
    ridge : float, optional
        Weight of the squared factors; by default 1.2 standard deviations of the ratings (0.8 for
        labels), which was chosen on held-out ratings.
    bias_ridge : float, optional
        Weight of the squared biases; by default 2 (1 for labels).
    weighting : float
        The ridge of a row with c entries is ``ridge * c ** weighting``.
    biases : bool
        Fit a bias for each row and column, together with the factors.
    centre : bool
        Fit to what differs from the mean (for labels: from their log odds).
    balance : float
        Weight of ``|U'U - V'V|^2 / 2``, for methods that go by gradients.
    max_iterations : int, optional
        By default 200 sweeps, or 1000 iterations of another method.
    tol : float
        Stop when ten sweeps lower the objective by less than this, relatively; for other methods
        when the gradient is smaller than this times that of a small random point.
    validation_share : float, optional
        Hold out this share of the entries, stop when the error on them has not improved for
        ``patience`` iterations, and keep the best model.
    patience : int
    unknown : {"mean", "nan", "error"}
        What to predict for ids that the fit has not seen: what is known without them, NaN, or an
        error.
    dtype : float32 or float64, optional
        Of the computation; by default that of the values.
    threads : int, optional
        By default as many as this process may use.  Sweeps give the same bits for any number.
    random_state : int, Generator or None
        For the first factors and the validation share.
    warm_start : bool
        Begin the next fit where the last one ended, for the ids that both know.
    verbose : bool
        Print a line after each iteration.

    Attributes
    ----------
    row_factors_, col_factors_ : array, (rows, rank), (cols, rank)
    row_bias_, col_bias_ : array
    mean_ : float
    row_ids_, col_ids_ : array
        What the rows of the factors stand for.
    n_iter_ : int
    objective_ : float
        The objective that was minimised (without the balance).
    validation_errors_ : list
        After each iteration.
    result_ : Result
        Of the solver, with its trace; None after `load`.
    model_ : LowRankModel

    References
    ----------
    .. [1] Y. Koren, R. Bell, C. Volinsky, "Matrix factorization techniques for recommender
       systems", Computer 42 (2009).
    .. [2] H. Li, Z. Lin, "Restarted nonconvex accelerated gradient descent: no more polylogarithmic
       factor in the O(eps^(-7/4)) complexity", JMLR 24 (2023).

    Examples
    --------
    >>> from momentous.lowrank import MatrixCompletion, Ratings
    >>> known, held_out = Ratings.twin("ml-100k").split(0.1)
    >>> fitted = MatrixCompletion(rank=10).fit(known)
    >>> items, ratings = fitted.recommend(7, n=3)
    >>> round(fitted.score(held_out), 2)
    0.27
    """

    _loss = "squared"

    def __init__(
        self,
        rank: int = 10,
        *,
        solver: str | Method | type[Method] = "auto",
        ridge: float | None = None,
        bias_ridge: float | None = None,
        weighting: float = WEIGHTING,
        biases: bool = True,
        centre: bool = True,
        balance: float = 1.0,
        max_iterations: int | None = None,
        tol: float = 1e-4,
        validation_share: float | None = None,
        patience: int = 5,
        unknown: Unknown = "mean",
        dtype: Any = None,
        threads: int | None = None,
        random_state: Any = 0,
        warm_start: bool = False,
        verbose: bool = False,
    ):
        _keep(self, locals())

    def fit(self, pairs: Any, y: Any = None) -> Self:
        """Fit to the ratings y of these pairs."""
        self._fit(self._labelled(pairs, y))
        return self

    def predict(self, pairs: Any) -> Floats:
        """The rating of each pair."""
        _check_is_fitted(self)
        return self.model_.predict(pairs, self.unknown)

    def score(self, pairs: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The coefficient of determination R^2 of the predictions."""
        return float(super().score(pairs, _values(pairs, y), sample_weight))


class OneBitMatrixCompletion(_ClassifierMixin, _Completion):  # type: ignore[misc]
    """One of two labels from pairs of ids: log odds of rank r, with biases.

    X as for `MatrixCompletion`; y are two classes of any kind, or ratings with ``threshold``.  The
    first of the sorted classes is the one of negative log odds.

    Parameters
    ----------
    threshold : "mean", float or None
        Turn ratings into classes: True above the mean of those in ``fit``, or above this number,
        and otherwise False.
    unknown : {"mean", "nan", "error"}
        As for `MatrixCompletion`; a label cannot be NaN, so that for "nan" ``predict`` takes what
        is known, and ``predict_proba`` gives NaN.
    rank, solver, ridge, bias_ridge, weighting, biases, centre, balance, max_iterations, tol
        As for `MatrixCompletion`.
    validation_share, patience, dtype, threads, random_state, warm_start, verbose
        As for `MatrixCompletion`.

    Attributes
    ----------
    classes_ : array of length 2
    threshold_ : float or None
    mean_ : float
        Log odds of the second class among all labels.

    References
    ----------
    .. [1] M. Davenport, Y. Plan, E. van den Berg, M. Wootters, "1-bit matrix completion",
       Information and Inference 3 (2014).
    .. [2] H. Li, Z. Lin, "Restarted nonconvex accelerated gradient descent: no more polylogarithmic
       factor in the O(eps^(-7/4)) complexity", JMLR 24 (2023).
    """

    _loss = "logistic"

    def __init__(
        self,
        rank: int = 10,
        *,
        threshold: Any = None,
        solver: str | Method | type[Method] = "auto",
        ridge: float | None = None,
        bias_ridge: float | None = None,
        weighting: float = WEIGHTING,
        biases: bool = True,
        centre: bool = True,
        balance: float = 1.0,
        max_iterations: int | None = None,
        tol: float = 1e-4,
        validation_share: float | None = None,
        patience: int = 5,
        unknown: Unknown = "mean",
        dtype: Any = None,
        threads: int | None = None,
        random_state: Any = 0,
        warm_start: bool = False,
        verbose: bool = False,
    ):
        _keep(self, locals())

    def fit(self, pairs: Any, y: Any = None) -> Self:
        """Fit to the labels y of these pairs."""
        values = _values(pairs, y)
        self.threshold_ = None
        if self.threshold is not None:
            self.threshold_ = float(np.mean(values) if self.threshold == "mean" else self.threshold)
        classes = np.unique(self._classes_of(values))
        if classes.size != 2:
            shown = ", ".join(str(one) for one in classes[:5])
            raise ValueError(
                f"two classes are needed, y has {classes.size} ({shown}"
                f"{', ...' if classes.size > 5 else ''}); for ratings pass threshold='mean'"
            )
        self.classes_ = classes
        self._fit(self._labelled(pairs, y))
        return self

    def _classes_of(self, values: Any) -> NDArray[Any]:
        labels: NDArray[Any] = np.asarray(values)
        if labels.dtype.kind == "f" and not np.all(np.isfinite(labels)):
            bad = np.flatnonzero(~np.isfinite(labels))[0]
            raise ValueError(f"the label at position {bad} is {labels[bad]}; leave the pair out")
        return labels if self.threshold_ is None else labels > self.threshold_

    def _labelled(self, pairs: Any, y: Any) -> Ratings:
        classes = self._classes_of(_values(pairs, y))
        strange = np.flatnonzero(~np.isin(classes, self.classes_))
        if strange.size:
            raise ValueError(
                f"the label {classes[strange[0]]} at position {strange[0]} is none of the classes "
                f"{self.classes_[0]} and {self.classes_[1]}"
            )
        signs = np.where(classes == self.classes_[1], 1.0, -1.0)
        if y is not None:
            return ratings_of(pairs, signs, self.dtype)
        ratings = ratings_of(pairs, None, self.dtype)
        return ratings._like(
            Compressed(ratings.by_row.starts, ratings.cols, signs.astype(ratings.dtype))
        )

    def decision_function(self, pairs: Any) -> Floats:
        """The log odds of the second class."""
        _check_is_fitted(self)
        return self.model_.scores(pairs, self.unknown)

    def predict_proba(self, pairs: Any) -> Floats:
        """The probabilities of both classes, in the order of ``classes_``."""
        _check_is_fitted(self)
        second = self.model_.predict(pairs, self.unknown)
        return np.column_stack([1.0 - second, second])

    def predict(self, pairs: Any) -> NDArray[Any]:
        """The more probable class of each pair."""
        _check_is_fitted(self)
        unknown: Unknown = "error" if self.unknown == "error" else "mean"
        second = self.model_.scores(pairs, unknown) > 0
        labels: NDArray[Any] = np.where(second, self.classes_[1], self.classes_[0])
        return labels

    def score(self, pairs: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The share of labels that are predicted right."""
        labels = self._classes_of(_values(pairs, y))
        return float(super().score(pairs, labels, sample_weight))

    def _facts(self) -> dict[str, Any]:
        return {"threshold": self.threshold_, "classes": self.classes_.tolist()}

    def _take_facts(self, extra: dict[str, Any]) -> None:
        self.threshold_, self.classes_ = extra["threshold"], np.array(extra["classes"])


def _keep(estimator: Any, arguments: dict[str, Any]) -> None:
    """Keep the arguments of a constructor as they are, which is all that it may do."""
    for name, value in arguments.items():
        if name not in ("self", "__class__"):
            setattr(estimator, name, value)


def _values(pairs: Any, y: Any) -> Any:
    """y, or the values that the pairs come with, in the order in which predictions come."""
    if y is None and (isinstance(pairs, Ratings) or scipy.sparse.issparse(pairs)):
        return ratings_of(pairs, None).values
    if y is None:
        raise ValueError("y is missing: there must be one value for each pair")
    return y


def _seed(random_state: Any) -> Any:
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return random_state


def _plain(value: Any) -> Any:
    """A parameter as JSON can hold it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.integer | np.floating):
        return value.item()
    if isinstance(value, Method) or (isinstance(value, type) and issubclass(value, Method)):
        return value.name
    if isinstance(value, np.random.Generator | np.random.RandomState):
        return None
    return np.dtype(value).name
