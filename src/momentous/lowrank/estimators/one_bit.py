"""The classifier: one of two labels for each pair of ids."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from momentous.io.types import AnyArray, JsonObject
from momentous.lowrank.checks import check_number, corrects_names
from momentous.lowrank.data.ratings import Ratings
from momentous.lowrank.data.vocabulary import Pairs, ratings_of, split_triples
from momentous.lowrank.estimators.base import BiasedCompletion, Weights, holds_values, values_of
from momentous.lowrank.estimators.scikit import ClassifierMixin, metrics
from momentous.lowrank.model import Unknown

if TYPE_CHECKING:
    from sklearn.utils import Tags


@dataclass(eq=False, repr=False)
class OneBitMatrixCompletion(ClassifierMixin, BiasedCompletion):
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
    rank, ridge and all others
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
    """

    _loss = "logistic"

    _: KW_ONLY
    threshold: float | Literal["mean"] | None = None

    def _new_ratings(self, X: Pairs, y: ArrayLike | None, weights: Weights = None) -> Ratings:
        if y is not None or holds_values(X):
            if weights is None and isinstance(X, Ratings):
                weights = X.weights
            self._find_classes(values_of(X, y), weights)
        return super()._new_ratings(X, y, weights)

    def _find_classes(self, values: AnyArray, weights: Weights = None) -> None:
        """The threshold and the two classes of these values."""
        self.threshold_: float | None = None
        if self.threshold is not None:
            if isinstance(self.threshold, str) and self.threshold != "mean":
                raise ValueError(f"threshold={self.threshold!r} must be 'mean', a number or None")
            if self.threshold != "mean":
                check_number("threshold", self.threshold, -math.inf)
            self.threshold_ = (
                float(np.average(values, weights=weights))
                if self.threshold == "mean"
                else float(self.threshold)
            )
        classes = np.unique(self._classes_of(values))
        if classes.size != 2:
            shown = ", ".join(str(one) for one in classes[:5])
            raise ValueError(
                f"Only binary classification is supported. y has {classes.size} classes ({shown}"
                f"{', ...' if classes.size > 5 else ''}), two are needed; for ratings or another "
                "continuous y pass threshold='mean'"
            )
        self.classes_: AnyArray = classes

    @corrects_names
    def partial_fit(
        self,
        X: Pairs,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        classes: ArrayLike | None = None,
    ) -> Self:
        """As for `MatrixCompletion`; the first entries must have labels of both classes.

        ``classes``, which scikit-learn passes, are compared with those of the labels.
        """
        super().partial_fit(X, y, sample_weight)
        if classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"classes={np.unique(classes).tolist()} are not those of the labels so far, "
                f"{self.classes_.tolist()}: pass these, or leave classes out"
            )
        return self

    def _classes_of(self, values: AnyArray) -> AnyArray:
        labels: AnyArray = np.asarray(values)
        if labels.dtype.kind == "f" and not np.all(np.isfinite(labels)):
            bad = np.flatnonzero(~np.isfinite(labels))[0]
            raise ValueError(f"the label at position {bad} is {labels[bad]}; leave the pair out")
        return labels if self.threshold_ is None else labels > self.threshold_

    def _ratings_of(self, X: Pairs, y: ArrayLike | None, weights: Weights = None) -> Ratings:
        classes = self._classes_of(values_of(X, y))
        other = np.flatnonzero(~np.isin(classes, self.classes_))
        if other.size:
            raise ValueError(
                f"the label {classes[other[0]]} at position {other[0]} is none of the classes "
                f"{self.classes_[0]} and {self.classes_[1]}"
            )
        signs = np.where(classes == self.classes_[1], 1.0, -1.0)
        if y is not None:
            return ratings_of(X, signs, self.dtype, weights)
        ratings = ratings_of(X, None, self.dtype)
        return ratings.with_values(signs.astype(ratings.dtype))

    def decision_function(self, X: Pairs) -> AnyArray:
        """The log odds of the second class."""
        X = self._known_pairs(X)
        return self.model_.scores(X, self.unknown)

    def predict_proba(self, X: Pairs) -> AnyArray:
        """The probabilities of both classes, in the order of ``classes_``."""
        X = self._known_pairs(X)
        second = self.model_.predict(X, self.unknown)
        return np.column_stack((1.0 - second, second))

    def predict(self, X: Pairs) -> AnyArray:
        """The more probable class of each pair."""
        unknown: Unknown = "error" if self.unknown == "error" else "mean"
        X = self._known_pairs(X)
        second = self.model_.scores(X, unknown) > 0
        labels: AnyArray = np.where(second, self.classes_[1], self.classes_[0])
        return labels

    @corrects_names
    def score(
        self, X: Pairs, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """The share of labels that are predicted right."""
        X, y = split_triples(X, y)
        found, labels = self.predict(X), self._classes_of(values_of(X, y))
        return float(metrics.accuracy_score(labels, found, sample_weight=sample_weight))

    def _more_facts(self) -> JsonObject:
        return {"threshold": self.threshold_, "classes": self.classes_.tolist()}

    def _restore_facts(self, extra: JsonObject) -> None:
        self.threshold_, self.classes_ = extra["threshold"], np.array(extra["classes"])
        if self.threshold_ is not None:
            check_number("threshold", self.threshold_, -math.inf)
            self.threshold_ = float(self.threshold_)
        known = self.classes_.shape == (2,) and self.classes_.dtype.kind in "biufU"
        if not (known and self.classes_[0] < self.classes_[1]):
            raise ValueError(f"its classes are {extra['classes']!r}")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
