"""What the estimators take from scikit-learn, with types.

scikit-learn comes without types, and a class with an untyped base is untyped itself: checkers and
editors would know nothing of the estimators.  So they see the classes written out here.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from momentous.io.optional import LazyModule, require
from momentous.io.types import JsonObject

# Names of scikit-learn's, implicit's and Surprise's.
_CALLED_HERE = {
    other: ours
    for ours, others in {
        "rank": "n_components n_factors factors k",
        "max_iterations": "max_iter n_iter n_epochs epochs iterations",
        "ridge": "alpha reg reg_all regularization lambda_ l2",
        "threads": "n_jobs num_threads n_threads",
        "random_state": "seed rng",
        "validation_share": "early_stopping validation_fraction",
        "patience": "n_iter_no_change",
        "solver": "algorithm method",
    }.items()
    for other in others.split()
}

if TYPE_CHECKING:
    from typing import Self

    from numpy.typing import ArrayLike
    from sklearn.utils import Tags as Tags

    from momentous.io.types import AnyArray, Floats
    from momentous.lowrank.data.vocabulary import Pairs

    class BaseEstimator:
        """``sklearn.base.BaseEstimator``."""

        def get_params(self, deep: bool = True) -> JsonObject: ...
        def set_params(self, **params: object) -> Self: ...
        def set_fit_request(self, **requests: bool | str | None) -> Self: ...
        def set_score_request(self, **requests: bool | str | None) -> Self: ...
        @classmethod
        def _get_param_names(cls) -> list[str]: ...
        def __sklearn_tags__(self) -> Tags: ...

    class RegressorMixin:
        """``sklearn.base.RegressorMixin``."""

        def score(
            self, X: Pairs, y: ArrayLike, sample_weight: ArrayLike | None = None
        ) -> float: ...

    class ClassifierMixin:
        """``sklearn.base.ClassifierMixin``."""

        def score(
            self, X: Pairs, y: ArrayLike, sample_weight: ArrayLike | None = None
        ) -> float: ...

    class TransformerMixin:
        """``sklearn.base.OneToOneFeatureMixin`` and ``TransformerMixin``."""

        def fit_transform(
            self, X: ArrayLike, y: object = None, **fit_params: object
        ) -> AnyArray: ...
        def set_output(self, *, transform: str | None = None) -> Self: ...
        def get_feature_names_out(self, input_features: ArrayLike | None = None) -> AnyArray: ...

    class ComponentsMixin(TransformerMixin):
        """``sklearn.base.ClassNamePrefixFeaturesOutMixin`` and ``TransformerMixin``."""

    def check_is_fitted(estimator: BaseEstimator, attributes: str | None = None) -> None:
        """``sklearn.utils.validation.check_is_fitted``."""

    def validate_data(estimator: BaseEstimator, X: object, **how: object) -> Floats:
        """``sklearn.utils.validation.validate_data``."""

else:
    _base = require("sklearn.base", "app", "The estimators")
    _validation = require("sklearn.utils.validation", "app", "The estimators")

    class BaseEstimator(_base.BaseEstimator):
        """The same, which knows what other libraries call its parameters."""

        def __new__(cls, *values, **parameters):
            known = cls._get_param_names()
            for name in parameters:
                if name not in known:
                    close = difflib.get_close_matches(name, known, n=1)
                    here = _CALLED_HERE.get(name) or "".join(close)
                    hint = f"is called {here} here" if here in known else f"has {', '.join(known)}"
                    raise TypeError(f"{cls.__name__}() has no parameter {name!r}; it {hint}")
            return super().__new__(cls)

    RegressorMixin, ClassifierMixin = _base.RegressorMixin, _base.ClassifierMixin
    check_is_fitted, validate_data = _validation.check_is_fitted, _validation.validate_data

    class TransformerMixin(_base.OneToOneFeatureMixin, _base.TransformerMixin):
        """One output column per input column."""

    class ComponentsMixin(_base.ClassNamePrefixFeaturesOutMixin, _base.TransformerMixin):
        """Output columns pca0, pca1, and so on."""


metrics = LazyModule("sklearn.metrics", "app", "A score")
