"""What is written is read again; pairs of ids are read in every usual form."""

import csv
import io
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from momentous.lowrank import Ratings, RatingsFileError
from momentous.lowrank.data import read_pairs, write_ratings
from momentous.lowrank.data.files.queries import Query
from momentous.lowrank.data.write import write_table


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


# --- writing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "tsv", "dat", "parquet"])
def test_what_is_written_is_read_again(ending):
    ratings = Ratings([0, 0, 1], [0, 1, 1], [0.5, 3.0, 4.0], row_ids=["a", "b"], col_ids=[7, 9])
    write_ratings(ratings, f"r.{ending}")
    again = Ratings.read(f"r.{ending}", cache=False)
    assert again.row_ids.tolist() == ["a", "b"]
    assert again.col_ids.tolist() == [7, 9]
    np.testing.assert_array_equal(again.values, ratings.values)


@pytest.mark.parametrize("ending", ["csv", "tsv", "dat"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ids_with_delimiters_and_all_digits_are_read_again(ending, dtype):
    values = np.array([1 / 3, 1e-7, 12345678.9], dtype)
    ids = ['x, "y"', "tab"] if ending == "dat" else ['x,\t"y"', "a;b"]
    write_ratings(Ratings([0, 0, 1], [0, 1, 1], values, row_ids=ids), f"r.{ending}")
    again = Ratings.read(f"r.{ending}", cache=False, dtype=dtype)
    assert set(again.row_ids) == set(ids)
    np.testing.assert_array_equal(np.sort(again.values), np.sort(values))


@pytest.mark.parametrize(
    ("ending", "name"),
    [("csv", "a\rb"), ("tsv", "b a "), ("dat", "a::b"), ("dat", "a\nb"), ("dat", "ab:")],
)
def test_ids_that_would_be_read_otherwise_are_not_written(ending, name):
    Path(f"r.{ending}").write_text("precious")
    with pytest.raises(ValueError, match=r"cannot stand in .* write \.parquet"):
        write_ratings(Ratings([0], [0], [1.0], row_ids=[name], col_ids=["x"]), f"r.{ending}")
    assert Path(f"r.{ending}").read_text() == "precious"


# What a CSV cannot hold: carriage returns, zero bytes, lone surrogates; spaces around an id.
ODD = st.text(
    st.characters(exclude_characters="\r\0", exclude_categories=["Cs"]), min_size=1
).filter(lambda name: name == name.strip(" \t\n") and len(name.encode()) <= 256)


@given(st.lists(ODD | st.sampled_from(["\xa0", "\x01",
                'a"b', "a,b", 'x\n"y"', '"', '""', '",', '0\n"', "a\n\nb"]),
                min_size=1, max_size=8, unique=True))  # fmt: skip
@example(["\x01"])
@settings(max_examples=40, deadline=None)
def test_any_ids_survive_a_csv(names):
    count = len(names)
    ratings = Ratings(
        np.arange(count), np.zeros(count, int), np.arange(count) + 1.0,
        row_ids=names, col_ids=["it, em"],
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        write_ratings(ratings, Path(folder, "r.csv"))
        again = Ratings.read(Path(folder, "r.csv"), cache=False)
    texts = [str(one) for one in again.row_ids]
    assert dict(zip(texts, again.values, strict=True)) == dict(
        zip(names, ratings.values, strict=True)
    )
    assert texts == sorted(names) or again.row_ids.dtype.kind == "i"


def test_ids_in_a_harmless_table_control_no_terminal_and_are_no_formulas():
    ids = ["=1+2", "@x", "-5", "-x", "+1", "a\x1b[2Jb", "a\nb", "\u202eabc", "plain", "\t=1"]
    columns = {"user": np.array(ids), "prediction": np.full(len(ids), -1.5)}
    tables = {}
    for harmless in (True, False):
        file = io.StringIO()
        write_table(file, columns, harmless=harmless)
        file.seek(0)
        header, *rows = csv.reader(file)
        assert header == ["user", "prediction"]
        assert {value for _, value in rows} == {"-1.5"}
        tables[harmless] = [user for user, _ in rows]
    assert tables[False] == ids
    assert tables[True] == [
        "'=1+2", "'@x", "-5", "'-x", "+1", "a\\x1b[2Jb", "a\\nb", "\\u202eabc", "plain", "\\t=1",
    ]  # fmt: skip


# --- pairs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    ["a,x\nb,y\n", "a\tx\nb\ty", "a::x::3\nb::y::4", "a x\nb y\n", '"a";x\r\n\r\nb;y\r\n',
     "\ufeffuserId,movieId\na,x\nb,y\n", "item,time,user\nx,1,a\ny,2,b\n",
     'time|"Film ID"|customer\n1|x|a\n2|y|b\n'],
)  # fmt: skip
def test_pairs_are_read_in_the_usual_forms(lines):
    Path("pairs").write_bytes(lines.encode())
    assert read_pairs(Path("pairs")).tolist() == [["a", "x"], ["b", "y"]]


def test_a_file_without_pairs_is_refused():
    Path("pairs").write_text("user,item\n")
    with pytest.raises(ValueError, match="no pairs"):
        read_pairs(Path("pairs"))


@pytest.mark.parametrize(
    ("text", "columns"),
    [("who,what\nx,a\ny,b\n", ["what", "who"]), ("item,user\nx,a\ny,b\n", [1, 0]),
     ("1;x;a\n2;y;b\n", [2, 1])],
)  # fmt: skip
def test_the_columns_of_pairs_are_those_asked_for(text, columns):
    Path("pairs").write_text(text)
    assert read_pairs(Path("pairs"), columns).tolist() == [["a", "x"], ["b", "y"]]


def test_a_name_with_a_delimiter_in_quotes_is_one_field():
    Path("pairs").write_text('"Doe; Jane",x\n"say ""hi""",y\n')
    assert read_pairs(Path("pairs")).tolist() == [["Doe; Jane", "x"], ['say "hi"', "y"]]


def test_pairs_come_from_tables_queries_json_and_parquet_too():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"item": ["x", "y"], "user": ["a", "b"]})
    table.to_parquet("pairs.parquet")
    Path("pairs.jsonl").write_text(
        "".join(json.dumps({"user": u, "item": i}) + "\n" for u, i in (("a", "x"), ("b", "y")))
    )
    query = Query("FROM r", {"r": "pairs.parquet"})
    for source in (table, Path("pairs.parquet"), "pairs.jsonl", query):
        assert read_pairs(source).tolist() == [["a", "x"], ["b", "y"]]


def test_pairs_come_from_the_standard_input(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(b"a,x\nb,y\n"))
    monkeypatch.setattr(sys, "stdin", stream)
    assert read_pairs("-").tolist() == [["a", "x"], ["b", "y"]]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a,x\nb\n")))
    with pytest.raises(RatingsFileError, match=r"^standard input, line 2: expected 2 fields"):
        read_pairs("-")


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [("a,b\nc\n", 2, "expected 2 fields"), ("a,b\n\n,c\n", 3, "id of the user, which is empty"),
     ("a\nb\n", 1, "expected lines of user and item")],
)  # fmt: skip
def test_a_bad_pair_is_named_by_its_line(text, line, problem):
    Path("pairs").write_text(text)
    with pytest.raises(RatingsFileError, match=problem) as told:
        read_pairs(Path("pairs"))
    assert told.value.line == line
