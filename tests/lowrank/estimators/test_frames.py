"""Tables in, tables out: pandas, polars and Arrow, with ids that are text."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import cross_val_score

from momentous.lowrank import ImplicitMF, MatrixCompletion, OneBitMatrixCompletion

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")

RNG = np.random.default_rng(0)
CELLS = RNG.permutation(15 * 12)[:120]
USERS = np.array([f"user {k:02}" for k in CELLS // 12])
ITEMS = np.array([f"Filme Nr. {k}" for k in CELLS % 12])
STARS = RNG.integers(1, 6, 120).astype(float)

COLUMNS = {"person": USERS, "film": ITEMS}
PAIRS = np.column_stack([USERS, ITEMS])
MAKE = {
    "pandas": lambda columns: pandas.DataFrame(columns),
    "polars": lambda columns: polars.DataFrame(columns),
    "arrow": lambda columns: pyarrow.table(columns),
}
COLUMN = {"pandas": pandas.Series, "polars": polars.Series, "arrow": pyarrow.Array}
TABLE = {"pandas": pandas.DataFrame, "polars": polars.DataFrame, "arrow": pyarrow.Table}


def fitted(X, y, cls=MatrixCompletion, **more):
    """A small model that answers as it is asked."""
    estimator = cls(rank=2, max_iterations=3, backend="numpy", **more)
    return estimator.set_output(answers="input").fit(X, y)


def as_dict(table):
    """The columns of any table as lists."""
    names = getattr(table, "column_names", None) or table.columns
    return {name: np.asarray(table[name]).tolist() for name in names}


@pytest.fixture(scope="module")
def plain():
    return fitted(PAIRS, STARS)


@pytest.fixture(params=MAKE, scope="module")
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def table(kind):
    return MAKE[kind](COLUMNS)


@pytest.fixture(scope="module")
def model(table):
    return fitted(table, table_column(table, STARS))


def table_column(table, values):
    """Values as a column of the same kind."""
    return MAKE[{v: k for k, v in TABLE.items()}[type(table)]]({"y": values})["y"]


def test_a_table_gives_the_same_model_and_a_column_of_its_kind(kind, table, model, plain):
    predicted = model.predict(table)
    assert isinstance(predicted, COLUMN[kind])
    assert np.array_equal(np.asarray(predicted), plain.predict(PAIRS))
    assert model.feature_names_in_.tolist() == ["person", "film"]
    assert model.score(table, STARS) == plain.score(PAIRS, STARS)


def test_in_pandas_the_index_is_kept():
    some = pandas.DataFrame(COLUMNS).sample(20, random_state=0)
    model = fitted(pandas.DataFrame(COLUMNS), STARS)
    predicted = model.predict(some)
    assert predicted.index.equals(some.index)
    assert predicted.name == "prediction"
    both = some.assign(guess=predicted)  # aligned by the index
    assert np.array_equal(both["guess"], model.model_.predict(some.to_numpy()))


def test_recommendations_for_a_column_of_users_are_one_table(kind, table, model, plain):
    users = ["user 03", "user 11"]
    asked = MAKE[kind]({"person": np.array(users)})["person"]
    found = model.recommend_all(asked, n=3)
    assert isinstance(found, TABLE[kind])
    expected = plain.recommend_all(users, n=3)
    columns = as_dict(found)
    assert list(columns) == ["person", "film", "score"]
    assert columns["person"] == [
        user for user, one in zip(users, expected, strict=True) for _ in one.items
    ]
    assert columns["film"] == [item for one in expected for item in one.items.tolist()]
    assert columns["score"] == [score for one in expected for score in one.scores.tolist()]
    assert as_dict(model.recommend_all(asked, n=3, allowed=[])) == {
        "person": [], "film": [], "score": []
    }  # fmt: skip


def test_arrays_and_lists_have_arrays_and_named_tuples(model, plain):
    assert isinstance(plain.predict(PAIRS.tolist()), np.ndarray)
    assert isinstance(model.recommend_all(["user 03"]), list)
    items, scores = model.recommend("user 03", n=2)
    assert (items.tolist(), scores.tolist()) == tuple(
        each.tolist() for each in plain.recommend("user 03", n=2)
    )


def test_set_output_asks_for_tables_everywhere(kind, model):
    wanted = clone(model).set_output(answers=kind)
    wanted = clone(wanted).fit(PAIRS, STARS)  # scikit-learn's clone keeps it
    assert isinstance(wanted.predict(PAIRS), COLUMN[kind])
    for found, names in (
        (wanted.recommend("user 03"), ["item", "score"]),
        (wanted.similar_items("Filme Nr. 3"), ["item", "similarity"]),
        (wanted.similar_users("user 03"), ["user", "similarity"]),
        (wanted.explain("user 03", "Filme Nr. 3"), ["item", "contribution", "rest", "score"]),
        (wanted.recommend_all(["user 03", "user 04"], n=2), ["user", "item", "score"]),
        (wanted.ranking_metrics([["user 03", "Filme Nr. 99"]], [1.0]),
         ["ndcg", "map", "recall", "precision", "auc", "users", "capped_recall"]),
    ):  # fmt: skip
        assert isinstance(found, TABLE[kind])
        assert list(as_dict(found)) == names
    arrays = wanted.set_output(answers="default")
    arrays = clone(arrays).fit(MAKE[kind](COLUMNS), STARS)
    assert isinstance(arrays.predict(MAKE[kind](COLUMNS)), np.ndarray)
    assert arrays.recommend("user 03")._fields == ("items", "scores")
    with pytest.raises(ValueError, match="answers='numpy' must be one of input, default, pandas"):
        wanted.set_output(answers="numpy")


def test_the_columns_of_an_explanation_sum_up_to_the_score(kind, model):
    found = as_dict(
        clone(model).set_output(answers=kind).fit(PAIRS, STARS).explain("user 03", "Filme Nr. 3")
    )
    assert len(set(found["score"])) == 1
    assert sum(found["contribution"]) + found["rest"][0] == pytest.approx(found["score"][0])


def test_labels_and_their_probabilities_are_tables_too(kind, table):
    labels = np.where(STARS > 3, "yes", "no")
    model = fitted(table, table_column(table, labels), OneBitMatrixCompletion)
    assert isinstance(model.predict(table), COLUMN[kind])
    assert set(np.asarray(model.predict(table)).tolist()) <= {"yes", "no"}
    both = model.predict_proba(table)
    assert list(as_dict(both)) == ["no", "yes"]
    assert np.allclose(np.asarray(both["no"]) + np.asarray(both["yes"]), 1.0)
    assert isinstance(model.decision_function(table), COLUMN[kind])
    assert model.score(table, labels) == np.mean(np.asarray(model.predict(table)) == labels)


def test_implicit_feedback_takes_tables(kind, table):
    model = fitted(table, None, ImplicitMF)
    assert isinstance(model.predict(table), COLUMN[kind])


def test_columns_in_another_order_are_refused(table, model):
    swapped = table[["film", "person"]] if not hasattr(table, "select") else table.select(
        ["film", "person"]
    )  # fmt: skip
    with pytest.raises(ValueError, match="feature names"):
        model.predict(swapped)


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_scikit_learn_scores_tables(name):
    table = MAKE[name](COLUMNS)
    estimator = MatrixCompletion(rank=2, max_iterations=3, backend="numpy")
    truth = table_column(table, STARS)
    by_r2 = cross_val_score(estimator, table, truth, cv=3)
    squares = cross_val_score(estimator, table, truth, cv=3, scoring="neg_mean_squared_error")
    assert np.all(np.isfinite([*by_r2, *squares]))


def test_scikit_learn_gets_the_arrays_that_it_needs(kind, table):
    labels = np.where(STARS > 3, "yes", "no")
    binary = OneBitMatrixCompletion(rank=2, max_iterations=3, backend="numpy")
    losses = cross_val_score(
        binary, table, labels, cv=3, scoring="neg_log_loss", error_score="raise"
    )
    assert np.all(np.isfinite(losses))
    if kind == "pandas":  # these two take no other tables
        calibrated = CalibratedClassifierCV(binary, cv=2).fit(table, labels)
        assert calibrated.predict_proba(table).shape == (120, 2)
        plain = MatrixCompletion(rank=2, max_iterations=3, backend="numpy")
        logarithmic = TransformedTargetRegressor(plain, func=np.log, inverse_func=np.exp)
        assert logarithmic.fit(table, STARS).predict(table).shape == (120,)


def test_ids_in_a_column_called_score_are_not_lost():
    table = pandas.DataFrame({"score": USERS, "item": ITEMS})
    found = fitted(table, STARS).recommend_all(table["score"].iloc[:1], n=2)
    assert list(found) == ["user", "item", "score"]
    assert found["user"].tolist() == [USERS[0]] * 2
