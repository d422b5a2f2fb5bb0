"""What the estimators take from scikit-learn, which is imported with them and not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from momentous.io.optional import LazyModule, require
from momentous.lowrank.checks import unknown_name

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator as BaseEstimator
    from sklearn.base import ClassifierMixin as ClassifierMixin
    from sklearn.base import RegressorMixin as RegressorMixin
    from sklearn.base import TransformerMixin as TransformerMixin
    from sklearn.utils.validation import check_is_fitted as check_is_fitted
    from sklearn.utils.validation import validate_data as validate_data

    ComponentsMixin = TransformerMixin
else:
    _base = require("sklearn.base", "app", "An estimator")
    _validation = require("sklearn.utils.validation", "app", "An estimator")

    class BaseEstimator(_base.BaseEstimator):
        """The same, which knows what other libraries call its parameters."""

        def __new__(cls, *values, **parameters):
            known = cls._get_param_names()
            for name in parameters:
                if name not in known:
                    raise unknown_name(cls.__name__, name, known)
            return super().__new__(cls)

    RegressorMixin, ClassifierMixin = _base.RegressorMixin, _base.ClassifierMixin
    check_is_fitted, validate_data = _validation.check_is_fitted, _validation.validate_data

    class TransformerMixin(_base.OneToOneFeatureMixin, _base.TransformerMixin):
        """One output column per input column."""

    class ComponentsMixin(_base.ClassNamePrefixFeaturesOutMixin, _base.TransformerMixin):
        """Output columns pca0, pca1, and so on."""


metrics = LazyModule("sklearn.metrics", "app", "A score")
