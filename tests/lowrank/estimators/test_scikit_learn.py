"""What scikit-learn expects of an estimator: names of arguments, columns, weights, its checks."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse

from momentous.lowrank import Ratings

sklearn = pytest.importorskip("sklearn")
from sklearn.ensemble import BaggingRegressor  # noqa: E402
from sklearn.model_selection import cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.utils import get_tags  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402
from sklearn.utils.validation import has_fit_parameter  # noqa: E402

from momentous.lowrank import ImplicitMF, MatrixCompletion, OneBitMatrixCompletion  # noqa: E402

PAIRS = np.argwhere(np.random.default_rng(0).random((12, 9)) < 0.6)
Y = 1.0 + (PAIRS[:, 0] + 2 * PAIRS[:, 1]) % 5
KINDS = (MatrixCompletion, OneBitMatrixCompletion, ImplicitMF)


def made(kind, **options):
    return kind(rank=2, threads=1, backend="numpy", max_iterations=5, **options)


def target(kind):
    return Y > 2 if kind is OneBitMatrixCompletion else Y


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def fitted(request):
    return made(request.param).fit(X=PAIRS, y=target(request.param))


# --- the checks of scikit-learn -------------------------------------------------------------------

WIDE = "it fits a table of 3 or more columns of numbers; X here is two columns of ids"
ONE_COLUMN = "it wants scikit-learn's words for a table of one column or none"
FAIRLY_FAILED = {
    **dict.fromkeys(
        (
            "check_fit_score_takes_y",
            "check_dont_overwrite_parameters",
            "check_n_features_in_after_fitting",
            "check_positive_only_tag_during_fit",
            "check_estimators_dtypes",
            "check_complex_data",
            "check_dtype_object",
            "check_pipeline_consistency",
            "check_estimators_pickle",
            "check_f_contiguous_array_estimator",
            "check_methods_sample_order_invariance",
            "check_methods_subset_invariance",
            "check_dict_unchanged",
            "check_fit2d_predict1d",
            "check_estimators_nan_inf",
        ),
        WIDE,
    ),
    "check_fit2d_1feature": ONE_COLUMN,
    "check_estimators_empty_data_messages": ONE_COLUMN,
}
OF_WEIGHTS = (
    "check_sample_weights_list",
    "check_all_zero_sample_weights_error",
    "check_sample_weight_equivalence_on_dense_data",
)
ALSO_FAILED = {
    MatrixCompletion: dict.fromkeys(
        (
            *OF_WEIGHTS,
            "check_regressors_train",
            "check_regressor_data_not_an_array",
            "check_regressors_no_decision_function",
            "check_regressors_int",
            "check_supervised_y_2d",
            "check_fit2d_1sample",
        ),
        WIDE,
    ),
    OneBitMatrixCompletion: dict.fromkeys(
        (*OF_WEIGHTS, "check_classifiers_one_label_sample_weights", "check_supervised_y_2d"), WIDE
    ),
    ImplicitMF: dict.fromkeys((*OF_WEIGHTS, "check_fit2d_1sample"), WIDE),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_checks_of_scikit_learn_that_fail_are_those_with_a_reason(kind):
    expected = FAIRLY_FAILED | ALSO_FAILED[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(made(kind), expected_failed_checks=expected, on_fail=None)
    wrong = {one["check_name"]: one["exception"] for one in found if one["status"] == "failed"}
    assert not wrong
    assert {one["check_name"] for one in found if one["status"] == "xfail"} == set(expected)


def test_the_tags_say_what_is_taken(fitted):
    tags = get_tags(fitted)
    assert tags.input_tags.string
    assert not tags.input_tags.sparse
    if isinstance(fitted, OneBitMatrixCompletion):
        assert not tags.classifier_tags.multi_class


# --- arguments ------------------------------------------------------------------------------------


def test_arguments_have_the_names_of_scikit_learn(fitted):
    assert fitted.n_features_in_ == 2
    np.testing.assert_array_equal(fitted.predict(X=PAIRS), fitted.predict(PAIRS))
    assert not hasattr(fitted, "feature_names_in_")
    with sklearn.config_context(enable_metadata_routing=True):
        routed = fitted.get_metadata_routing()
        assert list(routed.fit.requests) == ["sample_weight"]
        assert list(routed.predict.requests) in ([], ["return_std"])


def test_columns_in_another_order_or_number_are_refused(fitted, tmp_path):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(PAIRS, columns=["user", "item"])
    named = made(type(fitted)).fit(table, target(type(fitted)))
    assert named.feature_names_in_.tolist() == ["user", "item"]
    np.testing.assert_array_equal(named.predict(table), fitted.predict(PAIRS))
    with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
        named.predict(table[["item", "user"]])
    with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
        named.fold_in(table[["item", "user"]], target(type(fitted)))
    with pytest.raises(ValueError, match=r"3 features, but .* is expecting 2 features"):
        fitted.predict(np.zeros((4, 3), int))
    named.save(tmp_path / "m")
    again = type(fitted).load(tmp_path / "m")
    assert again.feature_names_in_.tolist() == ["user", "item"]
    assert not hasattr(again.fit(PAIRS, target(type(fitted))), "feature_names_in_")


# --- sparse matrices ------------------------------------------------------------------------------


def test_a_matrix_that_does_not_say_whose_rows_it_has_is_refused(fitted):
    values = np.where(target(type(fitted)), 1.0, 2.0)
    S = scipy.sparse.csr_array((values, tuple(PAIRS.T)), shape=(12, 9))
    model = made(type(fitted)).fit(S)
    methods = ["predict", "fold_in"]
    methods += [name for name in ("score", "predict_proba", "decision_function")
                if hasattr(model, name)]  # fmt: skip
    for name in methods:
        # Of the same shape, too: it may be the other half of a matrix.
        for matrix in (S[4:7], S[::-1]):
            with pytest.raises(ValueError, match="does not say whose rows it has"):
                getattr(model, name)(matrix)
    same = model.predict(Ratings.from_sparse(S))
    np.testing.assert_array_equal(same, model.predict(PAIRS))


@pytest.mark.parametrize("cv", [2, 3])
def test_cross_validation_over_the_rows_of_a_matrix_is_refused(cv):
    S = scipy.sparse.csr_array((Y, tuple(PAIRS.T)), shape=(12, 9))
    with pytest.raises(ValueError, match="does not say whose rows it has"):
        cross_val_score(made(MatrixCompletion), S, cv=cv, error_score="raise")


# --- weights --------------------------------------------------------------------------------------


def test_weights_multiply_the_confidence_of_what_was_observed():
    weights = 1.0 + np.arange(len(Y)) % 3
    one = made(ImplicitMF).fit(PAIRS, Y, sample_weight=weights)
    other = made(ImplicitMF).fit(PAIRS, Y * weights)
    np.testing.assert_array_equal(one.row_factors_, other.row_factors_)
    alone = made(ImplicitMF).fit(PAIRS, sample_weight=list(weights))
    np.testing.assert_array_equal(
        alone.row_factors_, made(ImplicitMF).fit(PAIRS, weights).row_factors_
    )
    for bad in (weights[1:], -weights, np.full(len(Y), np.nan)):
        with pytest.raises(ValueError, match=r"sample_weight of shape .* one per pair"):
            made(ImplicitMF).fit(PAIRS, Y, sample_weight=bad)
    with pytest.raises(ValueError, match="sample_weight needs pairs"):
        made(ImplicitMF).fit(Ratings(*PAIRS.T, Y), sample_weight=weights)


@pytest.mark.parametrize("kind", KINDS)
def test_fit_takes_weights_and_no_other_word(kind):
    assert has_fit_parameter(made(kind), "sample_weight")
    with pytest.raises(TypeError, match=r"fit\(\) has no parameter 'epochs'; it has X"):
        made(kind).fit(PAIRS, target(kind), epochs=3)


@pytest.mark.parametrize("kind", [MatrixCompletion, OneBitMatrixCompletion])
def test_pipelines_pass_weights_on(kind):
    weights = 1.0 + np.arange(len(Y)) % 3
    one = made(kind).fit(PAIRS, target(kind), sample_weight=weights)
    named = {f"{kind.__name__.lower()}__sample_weight": weights}
    piped = make_pipeline(made(kind)).fit(PAIRS, target(kind), **named)
    np.testing.assert_array_equal(piped[-1].row_factors_, one.row_factors_)
    assert np.abs(made(kind).fit(PAIRS, target(kind)).row_factors_ - one.row_factors_).max() > 1e-3


def test_predictions_can_be_scored_with_weights(fitted):
    if isinstance(fitted, ImplicitMF):
        pytest.skip("it has no score")
    y, first = target(type(fitted)), np.arange(len(Y)) < 20
    weighted = fitted.score(PAIRS, y, sample_weight=first.astype(float))
    assert weighted == pytest.approx(fitted.score(PAIRS[first], y[first]))


def test_pipelines_and_ensembles_take_the_estimator():
    assert make_pipeline(made(MatrixCompletion)).fit(PAIRS, Y).score(PAIRS, Y) > 0.0
    several = BaggingRegressor(made(MatrixCompletion), 2, bootstrap=False).fit(PAIRS, Y)
    assert several.predict(PAIRS).shape == Y.shape
