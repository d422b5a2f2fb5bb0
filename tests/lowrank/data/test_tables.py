"""Ratings come from tables as they come from files."""

import gc
import json
import tempfile

import numpy as np
import pytest

from momentous.lowrank import Ratings, RatingsFileError, read_ratings
from momentous.lowrank.checks import thread_count
from momentous.lowrank.data.files import database, scans

duckdb = pytest.importorskip("duckdb")

COLUMNS = {
    "user": ["b", "a", "b"],
    "item": [20, 3, 3],
    "rating": [5.0, 3.5, 1.0],
    "when": [1, 2, 3],
}


def check(ratings, users=("a", "b")):
    assert ratings.row_ids.tolist() == list(users)
    assert ratings.col_ids.tolist() == [3, 20]
    assert ratings.rows.tolist() == [0, 1, 1]
    assert ratings.cols.tolist() == [0, 0, 1]
    assert ratings.values.tolist() == [3.5, 1.0, 5.0]


class Capsule:
    """Nothing but the Arrow protocol."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def made(kind):
    if kind == "pandas":
        return pytest.importorskip("pandas").DataFrame(COLUMNS)
    if kind == "polars":
        return pytest.importorskip("polars").DataFrame(COLUMNS)
    table = pytest.importorskip("pyarrow").table(COLUMNS)
    return {"arrow": table, "batches": table.to_reader(), "capsule": Capsule(table)}[kind]


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "batches", "capsule"])
def test_a_table_is_taken_where_a_file_is(kind):
    check(read_ratings(made(kind)))
    check(Ratings.read(made(kind), columns=("user", 1, 2)))


def test_a_table_keeps_the_kinds_of_its_ids():
    pandas = pytest.importorskip("pandas")
    texts = pandas.DataFrame({"user": ["2", "10"], "item": [2, 10], "rating": [1, 2]})
    ratings = read_ratings(texts)
    assert ratings.row_ids.tolist() == ["10", "2"]  # the table says that they are text
    assert ratings.col_ids.tolist() == [2, 10]
    kinds = pandas.DataFrame({
        "user": pandas.Categorical(["x", "w"]), "item": [2.0, 10.0], "rating": [True, False],
    })  # fmt: skip
    with pytest.raises(RatingsFileError, match="ratings are of type BOOLEAN; expected numbers"):
        read_ratings(kinds)
    ratings = read_ratings(kinds.assign(rating=[1, 2]))
    assert ratings.row_ids.tolist() == ["w", "x"]
    assert ratings.col_ids.tolist() == [2, 10]  # whole numbers in a column of floats


@pytest.mark.parametrize(
    ("change", "row", "problem"),
    [({"rating": [5.0, float("nan"), 1.0]}, 2, "finite number"),
     ({"rating": [5.0, 2.0, float("inf")]}, 3, "finite number"),
     ({"user": ["a", None, "b"]}, 2, "id of the user, which is empty"),
     ({"user": ["a", "b", ""]}, 3, "id of the user, which is empty"),
     ({"user": ["a", "b\0", "c"]}, 2, "without zero bytes"),
     ({"item": ["a", "b", "c" * 300]}, 3, "at most 256 bytes"),
     ({"user": [[1], [2], [3]]}, None, "ids are of type .*; expected numbers or text")],
)  # fmt: skip
def test_a_bad_row_is_named_by_its_number(change, row, problem):
    polars = pytest.importorskip("polars")
    table = polars.DataFrame({**COLUMNS, **change})
    with pytest.raises(RatingsFileError, match=problem) as told:
        read_ratings(table)
    assert told.value.line == row
    if row is not None:
        with pytest.warns(RuntimeWarning, match="skipped 1 malformed line"):
            assert read_ratings(table, skip_bad=True).nnz == 2


def test_a_bad_row_of_a_stream_is_named_too():
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({**COLUMNS, "rating": [5.0, None, 1.0]})
    with pytest.raises(RatingsFileError, match="finite number") as told:
        read_ratings(table.to_reader())
    assert told.value.line == 2


def test_a_table_without_known_names_is_refused():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(RatingsFileError, match="does not say plainly which columns"):
        read_ratings(pandas.DataFrame({"a": [1], "b": [2], "c": [3]}))


def test_json_lines(tmp_path):
    path = tmp_path / "r.jsonl"
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    check(read_ratings(path))
    check(read_ratings(path, columns=("user", "item", "rating"), format="json"))
    path.write_text('{"who/x": "a", "b~": 3, "s": 4}\n{"s": "5", "b~": 4, "who/x": "b\\n"}\n')
    ratings = read_ratings(path, columns=("who/x", "b~", "s"))
    assert ratings.row_ids.tolist() == ["a", "b\n"]
    assert ratings.values.tolist() == [4.0, 5.0]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [("{", "one JSON object"), ("[1, 2]", "one JSON object"), ("7", "one JSON object"),
     ('{"user": "a", "item": 1}', "finite number"),
     ('{"user": "a", "item": 1, "rating": NaN}', "finite number"),
     ('{"user": "a", "item": 1, "rating": "x"}', "finite number"),
     ('{"user": null, "item": 1, "rating": 1}', "id of the user"),
     ('{"user": [1], "item": 1, "rating": 1}', "not lists or objects"),
     ('{"user": "a", "item": {"id": 1}, "rating": 1}', "not lists or objects"),
     ('{"user": "a\\u0000", "item": 1, "rating": 1}', "zero bytes")],
)  # fmt: skip
def test_a_bad_json_line_is_named(tmp_path, bad, problem):
    path = tmp_path / "r.jsonl"
    good = '{"user": "a", "item": 1, "rating": 2}'
    path.write_text(f"{good}\n\n{bad}\n{good.replace('1', '2')}\n")
    with pytest.raises(RatingsFileError, match=problem) as told:
        read_ratings(path, cache=False)
    assert told.value.line == 3
    with pytest.warns(RuntimeWarning, match="skipped 1"):
        assert read_ratings(path, cache=False, skip_bad=True).nnz == 2


def test_patterns_and_folders_of_parts(tmp_path):
    for k in range(3):
        (tmp_path / f"part-{k}.csv").write_text(f"user,item,rating\nu{k},1,{k + 1}\n")
    (tmp_path / "_SUCCESS").write_text("")
    for source in (tmp_path, tmp_path / "part-*.csv", str(tmp_path / "part-?.csv")):
        for _ in range(2):  # the caches are not taken for parts
            assert read_ratings(source).values.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(FileNotFoundError, match="no file fits the pattern"):
        read_ratings(tmp_path / "nothing-*.csv")


def test_a_name_that_looks_like_a_pattern_is_a_name(tmp_path):
    for name in ("r[1].csv", "a*b.csv", "it's {x}.csv"):
        (tmp_path / name).write_text("1,2,3\n")
        assert read_ratings(tmp_path / name, cache=False).nnz == 1


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = tmp_path / "r.csv"
    path.write_text("1,2,3\n")
    read_ratings(path, cache=False)
    path.write_text("1,2,3\n1,2\n")
    with pytest.raises(RatingsFileError):
        read_ratings(path, cache=False)
    gc.collect()
    assert [one.name for one in tmp_path.iterdir()] == ["r.csv"]


def test_the_number_of_threads_is_passed_on(tmp_path):
    table = pytest.importorskip("pandas").DataFrame(COLUMNS)
    check(read_ratings(table, threads=1))
    most = database.THREADS_PER_CORE * thread_count(None)
    for asked, started in ((3, 3), (10**6, most)):
        with database.open_database(tmp_path, asked) as connection:
            found = connection.execute("SELECT current_setting('threads')").fetchall()
            assert found == [(started,)]
    with pytest.raises(ValueError, match="threads must be 1 or more, not 0"):
        read_ratings(table, threads=0)


def test_movies_without_ratings_are_no_items(tmp_path):
    rng = np.random.default_rng(1)
    text = "".join(
        f"{movie}:\n" + "".join(f"{user},{user % 5 + 1},d\n" for user in rng.permutation(40)[:size])
        for movie, size in zip([7, 3, 12, 5, 9], [30, 0, 40, 1, 25], strict=True)
    )
    (tmp_path / "mv_1.txt").write_text(text)
    numbers = read_ratings(tmp_path / "mv_1.txt", cache=False)
    assert numbers.col_ids.tolist() == [5, 7, 9, 12]  # 3 has no ratings
    (tmp_path / "mv_1.txt").write_text(text.replace("\n1,", "\nx,"))
    texts = read_ratings(tmp_path / "mv_1.txt", cache=False)
    assert texts.col_ids.tolist() == numbers.col_ids.tolist()
    assert set(texts.row_ids.tolist()) == {"x", *map(str, numbers.row_ids)} - {"1"}
    assert texts.nnz == numbers.nnz


@pytest.mark.parametrize("delimiter", ["{", "^", "|", "-", "]", "\\", "<>", "¦", "+++"])
def test_any_delimiter_can_be_named(tmp_path, delimiter):
    path = tmp_path / "r.txt"
    path.write_text(f'a{delimiter}"b"{delimiter}3\nc{delimiter}d{delimiter}4\n')
    ratings = read_ratings(path, delimiter=delimiter, cache=False)
    assert ratings.row_ids.tolist() == ["a", "c"]
    assert ratings.col_ids.tolist() == (["b", "d"] if len(delimiter) == 1 else ['"b"', "d"])
    path.write_text(f"a{delimiter}b{delimiter}3\nc{delimiter}d{delimiter}4\nc\n")
    with pytest.raises(RatingsFileError, match="expected 3 fields separated by") as told:
        read_ratings(path, delimiter=delimiter, cache=False)
    assert told.value.line == 3


def test_single_precision_changes_nothing(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    pairs = rng.choice(5000, 2000, replace=False)
    text = "".join(f"u{p // 50}::{p % 50}::{p % 7 / 2}\n" for p in pairs)
    (tmp_path / "r.dat").write_text(text.replace("\n", "\n\n", 700))
    expected = read_ratings(tmp_path / "r.dat", cache=False)
    monkeypatch.setattr(scans, "SINGLE_FROM", 100)
    again = read_ratings(tmp_path / "r.dat", cache=False)
    assert again.dtype == np.float32  # halves are exact in it
    for name in ("rows", "cols", "values", "row_ids", "col_ids"):
        np.testing.assert_array_equal(getattr(again, name), getattr(expected, name))
    (tmp_path / "r.dat").write_text(text + "other::1::0.1\n")
    assert read_ratings(tmp_path / "r.dat", cache=False).dtype == np.float64
    (tmp_path / "r.dat").write_text("1::1::1e300\n")
    with pytest.raises(RatingsFileError, match="does not fit into float32"):
        read_ratings(tmp_path / "r.dat", cache=False, dtype="float32")
