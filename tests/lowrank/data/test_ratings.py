"""Ratings keep every entry once, in order, and refuse what is no rating."""

import doctest
import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from momentous.lowrank import Ratings
from momentous.lowrank.data import ratings as module


def triples(rows, cols, values):
    """What a dictionary makes of them: the last one wins."""
    return dict(
        zip(zip(map(int, rows), map(int, cols), strict=True), map(float, values), strict=True)
    )


def contents(ratings):
    return triples(ratings.rows, ratings.cols, ratings.values)


@pytest.fixture
def small():
    return Ratings([2, 0, 2, 0], [1, 3, 0, 0], [4.0, 3.0, 5.0, 1.0])


# --- storage --------------------------------------------------------------------------------------


def test_entries_are_sorted_by_row_and_then_by_column(small):
    assert small.rows.tolist() == [0, 0, 2, 2]
    assert small.cols.tolist() == [0, 3, 0, 1]
    assert small.values.tolist() == [1.0, 3.0, 5.0, 4.0]
    assert small.by_row.starts.tolist() == [0, 2, 2, 4]
    assert small.shape == (3, 4)
    assert small.nnz == len(small) == 4
    assert small.mean == 3.25
    assert small.density == 4 / 12


def test_by_col_has_the_same_entries_in_the_order_of_columns(small):
    assert small.by_col.starts.tolist() == [0, 2, 3, 3, 4]
    assert small.by_col.others.tolist() == [0, 2, 2, 0]
    assert small.by_col.values.tolist() == [1.0, 5.0, 4.0, 3.0]
    assert small.by_col is small.by_col


def test_the_types_are_as_promised(small):
    for groups in (small.by_row, small.by_col):
        assert groups.starts.dtype == np.int64
        assert groups.others.dtype == np.int32
        assert groups.values.dtype == small.dtype == np.float64


@pytest.mark.parametrize(
    ("given", "kept"),
    [("f4", "f4"), ("f8", "f8"), ("i4", "f8"), ("u1", "f8"), ("f2", "f8"), ("?", "f8")],
)
def test_single_precision_stays_and_everything_else_becomes_double(given, kept):
    assert Ratings([0, 1], [0, 1], np.ones(2, given)).dtype == np.dtype(kept)


def test_nothing_can_be_written_to_and_nothing_of_the_caller_is_kept():
    rows, cols, values = np.array([0, 1]), np.array([0, 1], np.int32), np.array([1.0, 2.0])
    ratings = Ratings(rows, cols, values)
    cols[0], values[0] = 1, 7.0
    assert contents(ratings) == {(0, 0): 1.0, (1, 1): 2.0}
    for groups in (ratings.by_row, ratings.by_col):
        for array in (groups.starts, groups.others, groups.values):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=40
    )
)
@pytest.mark.filterwarnings("ignore:.*rated again later")
def test_any_triples_in_any_order_make_what_a_dictionary_makes_of_them(entries):
    rows, cols, values = (np.array(part) for part in zip(*entries, strict=True))
    ratings = Ratings(rows, cols, values, (5, 4))
    assert contents(ratings) == triples(rows, cols, values)
    assert np.all(np.diff(ratings.rows * 4 + ratings.cols) > 0)
    dense = np.zeros((5, 4))
    for (i, j), value in contents(ratings).items():
        dense[i, j] = value
    turned = ratings.by_col
    again = scipy.sparse.csc_array((turned.values, turned.others, turned.starts), shape=(5, 4))
    assert np.array_equal(again.toarray(), dense)


def test_of_duplicates_the_last_one_counts_and_a_warning_says_how_many():
    with pytest.warns(RuntimeWarning, match="2 of 4 ratings .* last one counts") as caught:
        ratings = Ratings([1, 0, 1, 1], [1, 0, 1, 1], [9.0, 2.0, 8.0, 3.0])
    assert contents(ratings) == {(0, 0): 2.0, (1, 1): 3.0}
    assert caught[0].filename == __file__


def test_the_shape_comes_from_the_caller_or_from_the_ids_or_from_the_indices():
    assert Ratings([0], [1], [1.0]).shape == (1, 2)
    assert Ratings([0], [1], [1.0], (4, 5)).shape == (4, 5)
    named = Ratings([0], [1], [1.0], row_ids=["ann", "bob"], col_ids=[7, 8, 9])
    assert named.shape == (2, 3)
    assert named.row_ids.tolist() == ["ann", "bob"]
    assert named.col_ids.tolist() == [7, 8, 9]


def test_the_text_says_shape_count_density_and_precision():
    assert repr(Ratings([0, 999], [0, 9], [1.0, 2.0])) == (
        "<Ratings 1,000 x 10, 2 entries (0.02%), float64>"
    )
    assert doctest.testmod(module).failed == 0


def test_ratings_survive_pickling(small):
    assert contents(pickle.loads(pickle.dumps(small))) == contents(small)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (([0], [0], [np.nan]), ValueError, r"position 0 \(row 0, column 0\) is nan"),
        (([0, 3], [0, 5], [1, np.inf]), ValueError, r"position 1 \(row 3, column 5\) is inf"),
        (([0, -2], [0, 0], [1, 1]), ValueError, "row index at position 1 is -2"),
        (([0, 0], [0, -1], [1, 1]), ValueError, "column index at position 1 is -1"),
        (([0, 4], [0, 0], [1, 1], (4, 1)), ValueError, "position 1 is 4, but there are only 4"),
        (([], [], []), ValueError, "no ratings"),
        (([0, 1], [0], [1.0]), ValueError, "2 rows, 1 columns and 1 values"),
        (([0.5], [0], [1.0]), TypeError, "row indices must be integers, not float64"),
        (([0], ["a"], [1.0]), TypeError, "column indices must be integers.*col_ids"),
        (([0], [0], ["good"]), TypeError, "real numbers"),
        (([0], [0], [1j]), TypeError, "real numbers, not complex128"),
        (([[0]], [[0]], [[1.0]]), ValueError, "one flat array"),
        (([2**31], [0], [1.0]), ValueError, "more than the 2147483647 possible"),
    ],
)
def test_what_is_no_rating_is_refused_with_its_position(arguments, kind, words):
    with pytest.raises(kind, match=words):
        Ratings(*arguments)


def test_ids_must_fit_the_shape():
    with pytest.raises(ValueError, match="there are 3 rows but 1 ids"):
        Ratings([0], [0], [1.0], (3, 1), row_ids=["ann"])
    with pytest.raises(ValueError, match="position 0 is 2, but there are only 1 columns"):
        Ratings([0], [2], [1.0], col_ids=["film"])


# --- others made of it ----------------------------------------------------------------------------


@pytest.fixture
def many():
    rng = np.random.default_rng(1)
    chosen = rng.choice(60 * 40, 1000, replace=False)
    return Ratings(chosen // 40, chosen % 40, rng.integers(1, 6, 1000), (60, 40), row_ids=range(60))


def test_a_split_shares_out_every_entry_once(many):
    kept, held = many.split(0.3, rng=5)
    assert (kept.nnz, held.nnz) == (700, 300)
    assert contents(kept) | contents(held) == contents(many)
    assert kept.shape == held.shape == many.shape
    assert kept.row_ids is held.row_ids is many.row_ids
    again, other = many.split(0.3, rng=5)[1], many.split(0.3, rng=6)[1]
    assert contents(again) == contents(held) != contents(other)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, np.nan])
def test_a_split_leaves_something_on_both_sides(many, share):
    with pytest.raises(ValueError, match="between 0 and 1"):
        many.split(share)
    assert many.split(1e-9)[1].nnz == 1
    assert many.split(1 - 1e-9)[0].nnz == 1
    with pytest.raises(ValueError, match="one entry alone"):
        Ratings([0], [0], [1.0]).split(0.5)


@pytest.mark.parametrize(
    ("option", "words"),
    [({"share": "a"}, "share='a' must be a number"),
     ({"share": 0.5, "rng": "a"}, "rng='a' must be a whole number"),
     ({"test_size": 0.2}, "split.. has no parameter 'test_size'; it is called share here"),
     ({"share": 0.5, "random_state": 0}, "'random_state'; it is called rng here")],
)  # fmt: skip
def test_a_split_says_what_it_takes(many, option, words):
    with pytest.raises((ValueError, TypeError), match=words):
        many.split(**option)


def test_signs_are_above_the_mean_or_not():
    ratings = Ratings([0, 0, 1, 1], [0, 1, 0, 1], [1.0, 3.0, 5.0, 3.0])
    assert contents(ratings.signs()) == {(0, 0): -1, (0, 1): -1, (1, 0): 1, (1, 1): -1}
    assert ratings.signs().by_row.others is ratings.by_row.others


def test_signs_compare_with_the_mean_in_double_precision():
    # In single precision the mean rounds to 2^24, and the larger one would not lie above it.
    ratings = Ratings([0, 0], [0, 1], np.array([2**24 - 1, 2**24], np.float32))
    assert ratings.signs().values.tolist() == [-1.0, 1.0]
    assert ratings.signs().dtype == np.float32


def test_sparse_matrices_come_and_go(many):
    matrix = many.to_sparse()
    assert matrix.shape == many.shape
    for form in ("csr", "csc", "coo"):
        assert contents(Ratings.from_sparse(matrix.asformat(form))) == contents(many)
    zero = scipy.sparse.coo_array(([0.0, 2.0], ([0, 1], [0, 1])), shape=(3, 3))
    assert contents(Ratings.from_sparse(zero)) == {(0, 0): 0.0, (1, 1): 2.0}
    with pytest.raises(TypeError, match="SciPy sparse matrix, not ndarray"):
        Ratings.from_sparse(np.eye(2))


def test_a_change_of_precision_keeps_the_entries(many):
    single = many.astype("float32")
    assert single.dtype == np.float32
    assert contents(single) == contents(many)
    assert many.astype(np.float64) is many
    with pytest.raises(ValueError, match="float32 or float64, not in int64"):
        many.astype(int)


def test_other_values_at_the_same_places(many):
    fresh = np.arange(1000.0)
    other = many.with_values(fresh)
    fresh[:] = 0.0
    assert other.values.tolist() == list(range(1000))
    assert other.by_row.others is many.by_row.others
    assert other.row_ids is many.row_ids
    with pytest.raises(ValueError, match="1000 entries but 3 values"):
        many.with_values([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"position 0 \(row 0, column \d+\) is nan"):
        many.with_values(np.full(1000, np.nan))
