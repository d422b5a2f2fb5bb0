"""Tables of pandas, polars and Arrow, with ids that are text."""

import re

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import cross_val_score

from momentous.lowrank import ImplicitMF, MatrixCompletion, OneBitMatrixCompletion, Ratings

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
TABLE = {"pandas": pandas.DataFrame, "polars": polars.DataFrame, "arrow": pyarrow.Table}


def fitted(X, y, cls=MatrixCompletion, **more):
    """A small model."""
    return cls(rank=2, max_iterations=3, backend="numpy", **more).fit(X, y)


def as_dict(table):
    """The columns of any table as lists."""
    names = getattr(table, "column_names", None) or table.columns
    return {name: np.asarray(table[name]).tolist() for name in names}


WIDE = pandas.DataFrame(
    [[5.0, np.nan, 3.0, 1.0], [np.nan, 2.0, 4.0, 1.0]], index=["ann", "bob"], columns=[*"wxyz"]
)


def test_what_holds_no_pairs_is_told_its_own_remedy():
    """And each remedy, as it is printed, leads to a fit."""
    dated = pandas.DataFrame(COLUMNS | {"stars": STARS, "date": "2020-01-01"})
    dated = dated.rename(columns={"person": "user"})
    X = WIDE.to_numpy()
    for given, remedy in (
        (dated, "X[['user', 'film', 'stars']]"),
        ("stars.csv", "Ratings.read('stars.csv')"),
        (X, "Ratings(rows, cols, X[rows, cols])"),
        (WIDE, "long = X.melt(ignore_index=False).reset_index().dropna()"),
        (WIDE.rename_axis("user").reset_index(), "long = X.melt(id_vars='user').dropna()"),
        (np.ones((5, 3)), "pass X[:, :2] and y=X[:, 2]"),
        (PAIRS, "y is missing, one value for each pair"),
    ):
        with pytest.raises(ValueError, match=re.escape(remedy)):
            fitted(given, None)
    rows, cols = np.nonzero(~np.isnan(X))
    long = WIDE.melt(ignore_index=False).reset_index().dropna()
    named = WIDE.rename_axis("user").reset_index().melt(id_vars="user").dropna()
    tables = [fitted(one.iloc[:, :2], one.iloc[:, 2]) for one in (long, named)]
    known = [fitted(dated[["user", "film", "stars"]], None),
             fitted(Ratings(rows, cols, X[rows, cols]), None), *tables]  # fmt: skip
    assert [one.model_.seen.nnz for one in known] == [len(STARS), 6, 6, 6]
    three = WIDE[["w", "x", "y"]]  # as many columns as triples have
    for cls in (MatrixCompletion, ImplicitMF):
        with pytest.raises(ValueError, match="one column per item"):
            fitted(three, None, cls)
    with pytest.raises(ValueError, match=r"Ratings.read\('stars.csv'\)"):
        fitted(PAIRS, STARS).predict("stars.csv")


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


def test_a_table_gives_the_same_model(table, model, plain):
    assert np.array_equal(model.predict(table), plain.predict(PAIRS))
    assert model.feature_names_in_.tolist() == ["person", "film"]
    assert model.score(table, STARS) == plain.score(PAIRS, STARS)


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


def test_answers_are_named_tuples_that_become_tables(kind, model, plain):
    assert isinstance(model.recommend_all(["user 03"]), list)
    found = model.recommend("user 03", n=2)
    assert found.items.tolist() == plain.recommend("user 03", n=2).items.tolist()
    columns = as_dict(MAKE[kind](found._asdict()))
    assert columns == {"items": found.items.tolist(), "scores": found.scores.tolist()}
    reasons = pandas.DataFrame(model.explain("user 03", "Filme Nr. 3")._asdict())
    assert reasons["contributions"].sum() + reasons["rest"][0] == pytest.approx(reasons["score"][0])


def test_labels_may_be_a_column(table):
    labels = np.where(STARS > 3, "yes", "no")
    model = fitted(table, table_column(table, labels), OneBitMatrixCompletion)
    assert set(model.predict(table).tolist()) <= {"yes", "no"}
    assert np.allclose(model.predict_proba(table).sum(axis=1), 1.0)
    assert model.score(table, labels) == np.mean(model.predict(table) == labels)


@pytest.mark.parametrize("estimator", [MatrixCompletion, OneBitMatrixCompletion])
def test_a_table_with_the_values_is_scored_as_it_was_fitted(kind, estimator):
    values = STARS if estimator is MatrixCompletion else np.where(STARS > 3, "yes", "no")
    ids = {"user": USERS, "item": ITEMS}
    pairs, whole = MAKE[kind](ids), MAKE[kind]({"rating": values.tolist(), **ids})
    model = estimator(rank=2, max_iterations=3, backend="numpy").fit(whole)
    assert model.score(whole) == model.score(pairs, values)


def test_implicit_feedback_takes_tables(table):
    assert fitted(table, None, ImplicitMF).predict(table).shape == (120,)


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
