"""Ids stay apart, however large they are, and what is masked is not used."""

import numpy as np
import pytest

from momentous.lowrank import (
    ImplicitMF,
    LowRankImputer,
    MatrixCompletion,
    OneBitMatrixCompletion,
    Ratings,
    read_ratings,
    split_by_time,
)
from momentous.lowrank.data.ids import as_ids
from momentous.lowrank.data.vocabulary import Vocabulary, pairs_of

LARGE = [2**63 + 1, 7, 2**63 + 2, 2**63 + 3]  # in float64 three of them are one
TEXTS = sorted(map(str, LARGE))
ITEMS = [1, 2, 3, 1]


@pytest.mark.parametrize(
    ("given", "kept"),
    [([3, 1], "int64"), ([3.0, 1.0], "int64"), (np.array([3, 1], np.uint64), "int64"),
     (np.array([3, 1], np.uint8), "int64"), (np.array([2**63 - 1], np.uint64), "int64"),
     ([2**63 - 1, -(2**63)], "int64"), ([1.5, 2.0], "float64"),
     (LARGE, "str"), (tuple(LARGE), "str"), (np.array(LARGE, np.uint64), "str"),
     (np.array(LARGE, object), "str"), ([2**63, -1], "str"), ([2**70, 1], "str"),
     ([np.uint64(2**63), 1], "str"), (2**63, "str")],
)  # fmt: skip
def test_ids_that_fit_64_bits_are_numbers_and_others_are_text(given, kept):
    ids = as_ids(given)
    assert ids.dtype == kept or (ids.dtype.kind == "U" and kept == "str")
    expected = [
        str(one) if kept == "str" else one for one in np.atleast_1d(np.array(given, object))
    ]
    assert ids.tolist() == expected


@pytest.mark.parametrize("given", [
    np.array([2.0**53, 1.0]), np.array([2.0**24], np.float32), [2**63, 1.0],
    np.column_stack([np.array(LARGE, np.uint64), ITEMS])[:, 0],
])  # fmt: skip
def test_floats_that_merge_ids_are_refused(given):
    with pytest.raises(ValueError, match=r"does not tell whole numbers .* apart; pass ids as"):
        as_ids(given)


def frame(kind):
    if kind == "list":
        return [list(pair) for pair in zip(LARGE, ITEMS, strict=True)]
    if kind == "objects":
        return np.array([LARGE, ITEMS], object).T
    if kind == "unsigned":
        return np.array([LARGE, ITEMS], np.uint64).T
    if kind == "arrow":
        arrow = pytest.importorskip("pyarrow")
        return arrow.table({"user": arrow.array(LARGE, arrow.uint64()), "item": ITEMS})
    module = pytest.importorskip(kind)
    return module.DataFrame({"user": np.array(LARGE, np.uint64), "item": ITEMS})


@pytest.mark.parametrize("kind", ["list", "objects", "unsigned", "pandas", "polars", "arrow"])
def test_large_ids_do_not_merge_users_in_pairs(kind):
    users, items = pairs_of(frame(kind))
    assert users.tolist() == list(map(str, LARGE))
    assert items.tolist() == ITEMS
    assert items.dtype == np.int64
    fitted = MatrixCompletion(rank=1, max_iterations=2).fit(frame(kind), [1.0, 2.0, 3.0, 4.0])
    assert fitted.row_ids_.tolist() == TEXTS
    assert np.isfinite(fitted.predict(frame(kind))).all()
    assert fitted.recommend(2**63 + 1, n=1)[0].tolist() != []


@pytest.mark.parametrize("kind", ["csv", "dat", "jsonl", "parquet", "pandas", "polars", "arrow"])
def test_large_ids_do_not_merge_users_in_files_and_tables(tmp_path, kind):
    pytest.importorskip("duckdb")
    path, between = tmp_path / f"r.{kind}", "::" if kind == "dat" else ","
    rows = list(zip(LARGE, ITEMS, [1, 2, 3, 4], strict=True))
    if kind in ("csv", "dat"):
        path.write_text("".join(between.join(map(str, row)) + "\n" for row in rows))
    elif kind == "jsonl":
        line = '{{"user": {}, "item": {}, "rating": {}}}\n'
        path.write_text("".join(line.format(*row) for row in rows))
    elif kind == "parquet":
        table = frame("arrow").append_column("rating", [[1.0, 2.0, 3.0, 4.0]])
        pytest.importorskip("pyarrow.parquet").write_table(table, path)
    else:
        path = frame(kind)
        if kind == "polars":
            path = path.with_columns(rating=pytest.importorskip("polars").lit(1.0))
        elif kind == "arrow":
            path = path.append_column("rating", [[1.0, 2.0, 3.0, 4.0]])
        else:
            path = path.assign(rating=1.0)
    ratings = read_ratings(path, cache=False)
    assert ratings.row_ids.tolist() == TEXTS
    assert ratings.col_ids.tolist() == [1, 2, 3]
    assert ratings.col_ids.dtype == np.int64
    assert ratings.nnz == 4


def test_rounded_ids_in_a_table_are_refused():
    pytest.importorskip("duckdb")
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"user": [1.0, 2.0**53], "item": [1, 2], "rating": [1, 2]})
    with pytest.raises(ValueError, match=r"line 2: expected ids as integers or text") as told:
        read_ratings(table)
    assert told.value.line == 2


def test_ratings_keep_large_ids_apart():
    ratings = Ratings([0, 1, 2], [0, 0, 0], [1.0, 2.0, 3.0], row_ids=LARGE[:3])
    assert ratings.row_ids.tolist() == list(map(str, LARGE[:3]))
    known = Vocabulary(LARGE)
    assert known.positions(LARGE).tolist() == [0, 1, 2, 3]
    assert known.positions([7, 2**63, 2**63 + 3]).tolist() == [1, -1, 3]
    assert Vocabulary([7, 8]).positions(np.array([7, 2**63], np.uint64)).tolist() == [0, -1]
    assert len(Vocabulary([7, 8]).extended([2**63, 2**63 + 1])) == 4


# --- masks ----------------------------------------------------------------------------------------

PAIRS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
MASK = [False, True, False, False]
MASKED = np.ma.array([1.0, -1.0, 3.0, 4.0], mask=MASK)
COUNTS = np.ma.array([1, 1, 0, 1], mask=MASK)


def fitted():
    return MatrixCompletion(rank=1, max_iterations=2).fit(PAIRS, [1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize(
    "use",
    [lambda: Ratings(PAIRS[:, 0], PAIRS[:, 1], MASKED),
     lambda: Ratings(np.ma.array(PAIRS[:, 0], mask=MASK), PAIRS[:, 1], MASKED.data),
     lambda: Ratings(PAIRS[:, 0], np.ma.array(PAIRS[:, 1], mask=MASK), MASKED.data),
     lambda: Ratings([0, 1], [0, 1], [1, 2], row_ids=np.ma.array([5, 6], mask=[0, 1])),
     lambda: Ratings(PAIRS[:, 0], PAIRS[:, 1], MASKED.data).with_values(MASKED),
     lambda: MatrixCompletion(rank=1).fit(PAIRS, MASKED),
     lambda: MatrixCompletion(rank=1).fit(np.ma.masked_equal(PAIRS, 1), MASKED.data),
     lambda: OneBitMatrixCompletion(rank=1).fit(PAIRS, COUNTS),
     lambda: OneBitMatrixCompletion(rank=1, threshold="mean").fit(PAIRS, MASKED),
     lambda: ImplicitMF(rank=1).fit(PAIRS, COUNTS),
     lambda: ImplicitMF(rank=1).fit(PAIRS, COUNTS.data, sample_weight=MASKED),
     lambda: ImplicitMF(rank=1).fit(PAIRS, COUNTS, sample_weight=COUNTS.data),
     lambda: fitted().predict(np.ma.masked_equal(PAIRS, 1)),
     lambda: fitted().score(PAIRS, MASKED),
     lambda: fitted().fold_in(PAIRS, MASKED),
     lambda: fitted().partial_fit(PAIRS, MASKED),
     lambda: split_by_time(PAIRS, MASKED, [1, 2, 3, 4]),
     lambda: split_by_time(PAIRS, MASKED.data, np.ma.array([1, 2, 3, 4], mask=MASK))],
)  # fmt: skip
def test_what_is_masked_is_refused_with_the_way_out(use):
    with pytest.raises(ValueError, match=r"masked, the first at position \d; leave them out"):
        use()


def test_a_mask_that_hides_nothing_changes_nothing():
    plain = fitted()
    masked = MatrixCompletion(rank=1, max_iterations=2).fit(
        np.ma.array(PAIRS), np.ma.array([1.0, 2.0, 3.0, 4.0], mask=[False] * 4)
    )
    np.testing.assert_array_equal(masked.predict(PAIRS), plain.predict(PAIRS))


def test_the_imputer_takes_what_is_masked_for_gaps():
    X = np.outer([1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, -1.0])
    gap = X.copy()
    gap[3, 2] = np.nan
    hidden = np.ma.array(np.where(np.isnan(gap), 1e6, gap), mask=np.isnan(gap))
    imputer = LowRankImputer(rank=1, ridge=0.0)
    np.testing.assert_array_equal(imputer.fit_transform(hidden), imputer.fit_transform(gap))


# --- numbers that overflow ------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e70, 1e150, 1e160, 1e300])
@pytest.mark.parametrize("options", [{}, {"ridge": 1.0}, {"solver": "lbfgs"}, {"backend": "numpy"}])
def test_ratings_whose_products_overflow_are_refused(size, options):
    with pytest.raises(ValueError, match=r"rating of size .* overflow .* divide all ratings"):
        MatrixCompletion(rank=1, **options).fit(PAIRS, size * np.arange(1.0, 5.0))
    with pytest.raises(ValueError, match=r"rating of size .* overflow .* divide all ratings"):
        fitted().partial_fit(PAIRS[:1], [-size])
    with pytest.raises(ValueError, match=r"rating of size .* overflow .* divide all ratings"):
        fitted().fold_in(PAIRS[:1], [size])


@pytest.mark.parametrize("options", [{"ridge": 0.0}, {"ridge": 1.0}, {}, {"solver": "lbfgs"}])
def test_ratings_below_that_are_fitted(options):
    rng = np.random.default_rng(0)
    pairs = np.argwhere(rng.random((12, 10)) < 0.6)
    values = 1.9e69 * rng.integers(1, 6, len(pairs))
    model = MatrixCompletion(rank=2, max_iterations=30, **options).fit(pairs, values)
    assert np.isfinite(model.objective_)
    assert np.isfinite(model.predict(pairs)).all()


@pytest.mark.parametrize(
    ("alpha", "count"), [(1e300, 1.0), (1e308, 5.0), (1.0, 1e150), (1e40, 1e40)]
)
def test_confidences_that_overflow_are_refused(alpha, count):
    with pytest.raises(ValueError, match=r"alpha=.* times the largest value .* smaller alpha"):
        ImplicitMF(rank=1, alpha=alpha).fit(PAIRS, [count] * 4)


def test_an_imputer_refuses_what_overflows():
    X = 1e200 * np.random.default_rng(0).standard_normal((8, 3))
    with pytest.raises(ValueError, match=r"numbers of size .*e\+200, whose squares overflow"):
        LowRankImputer(rank=1).fit(X)
