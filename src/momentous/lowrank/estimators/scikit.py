"""What the estimators take from scikit-learn, which is imported with them and not before."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from momentous.io.optional import LazyModule, require

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
