"""What the estimators take from scikit-learn, with types.

scikit-learn comes without types, and a class with an untyped base is untyped itself: checkers and
editors would know nothing of the estimators.  So they see the classes written out here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from momentous.io.optional import LazyModule, require

if TYPE_CHECKING:
    from typing import Self

    class BaseEstimator:
        """``sklearn.base.BaseEstimator``."""

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...
        def set_fit_request(self, **requests: bool | str | None) -> Self: ...
        def set_score_request(self, **requests: bool | str | None) -> Self: ...
        @classmethod
        def _get_param_names(cls) -> list[str]: ...
        def __sklearn_tags__(self) -> Any: ...
        def _repr_html_inner(self) -> str: ...
        def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]: ...

    class RegressorMixin:
        """``sklearn.base.RegressorMixin``."""

        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...

    class ClassifierMixin:
        """``sklearn.base.ClassifierMixin``."""

        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...

    class TransformerMixin:
        """``sklearn.base.OneToOneFeatureMixin`` and ``TransformerMixin``."""

        def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any: ...
        def set_output(self, *, transform: str | None = None) -> Self: ...
        def get_feature_names_out(self, input_features: Any = None) -> Any: ...

    class ComponentsMixin(TransformerMixin):
        """``sklearn.base.ClassNamePrefixFeaturesOutMixin`` and ``TransformerMixin``."""

    def check_is_fitted(estimator: BaseEstimator, attributes: str | None = None) -> None:
        """``sklearn.utils.validation.check_is_fitted``."""

    def validate_data(estimator: BaseEstimator, X: Any, **how: Any) -> Any:
        """``sklearn.utils.validation.validate_data``."""

else:
    _base = require("sklearn.base", "app", "The estimators")
    _validation = require("sklearn.utils.validation", "app", "The estimators")

    BaseEstimator, RegressorMixin = _base.BaseEstimator, _base.RegressorMixin
    ClassifierMixin = _base.ClassifierMixin
    check_is_fitted, validate_data = _validation.check_is_fitted, _validation.validate_data

    class TransformerMixin(_base.OneToOneFeatureMixin, _base.TransformerMixin):
        """One output column per input column."""

    class ComponentsMixin(_base.ClassNamePrefixFeaturesOutMixin, _base.TransformerMixin):
        """Output columns pca0, pca1, and so on."""


metrics: Any = LazyModule("sklearn.metrics", "app", "A score")
