"""Ratings are read as they stand in the file, or the file, the line and the remedy are told."""

import gzip
import io
import json
import os
import stat
import sys
import tempfile
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from momentous.io.archive import read_archive
from momentous.lowrank import Ratings
from momentous.lowrank.data import (
    FORMATS,
    RatingsFileError,
    describe,
    fetch,
    read_ratings,
)
from momentous.lowrank.data.files import cache

# The same ratings in every format: (user, item, rating).
TRIPLES = [
    (1, 20, 5.0), (1, 3, 3.5), (2, 3, 1.0), (7, 100, 4.0), (7, 20, 2.5), (10, 3, 0.5), (12, 5, 3.0),
]  # fmt: skip
USERS, ITEMS = [1, 2, 7, 10, 12], [3, 5, 20, 100]


def dense(ratings):
    """As a table with NaN where nothing is known, in the order of the ids."""
    table = np.full(ratings.shape, np.nan)
    table[ratings.rows, ratings.cols] = ratings.values
    return table


def expected_table(triples=TRIPLES):
    users, items = sorted({t[0] for t in triples}), sorted({t[1] for t in triples})
    table = np.full((len(users), len(items)), np.nan)
    for user, item, rating in triples:
        table[users.index(user), items.index(item)] = rating
    return table


def written(delimiter, header=None, end="\n"):
    stamps = range(978300760, 978300760 + len(TRIPLES))
    rows = [(*triple, stamp) for triple, stamp in zip(TRIPLES, stamps, strict=True)]
    texts = [delimiter.join(map(str, row)) for row in rows]
    return end.join([*([header] if header else []), *texts, ""])


def netflix_text():
    text = ""
    for item in dict.fromkeys(t[1] for t in TRIPLES):
        text += f"{item}:\n"
        text += "".join(f"{u},{r},2005-09-06\n" for u, i, r in TRIPLES if i == item)
    return text


TEXTS = {
    "ratings.dat": written("::"),
    "ratings.csv": written(",", "userId,movieId,rating,timestamp"),
    "u.data": written("\t"),
    "plain.csv": written(","),
    "semicolons.csv": written(";", "User-ID;ISBN;Book-Rating;when"),
    "spaces.txt": written("  "),
    "combined_data_1.txt": netflix_text(),
    "unnamed.txt": netflix_text(),
}


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def check(ratings, users=USERS, items=ITEMS):
    np.testing.assert_array_equal(dense(ratings), expected_table())
    assert ratings.row_ids.tolist() == users
    assert ratings.col_ids.tolist() == items


# --- formats --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEXTS)
def test_every_text_format_gives_the_same_ratings(write, name):
    ratings = Ratings.read(write(name, TEXTS[name]))
    check(ratings)
    assert ratings.row_ids.dtype.kind == "i"
    assert ratings.dtype == np.float64


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.removesuffix("\n"),
        lambda text: text + "\n \n\r\n",
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "  \n"),
        lambda text: "\n" + text.replace("\n", "\n\n"),
    ],
    ids=["windows", "no last line end", "blank at the end", "BOM", "spaces", "blank lines"],
)
def test_how_lines_end_does_not_matter(write, name, change):
    check(read_ratings(write(name, change(TEXTS[name]))))


@pytest.mark.parametrize("name", TEXTS)
def test_compressed_files_are_read_as_they_are(write, name):
    check(read_ratings(write(name + ".gz", gzip.compress(TEXTS[name].encode()))))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"inside/{name}", TEXTS[name])
    check(read_ratings(write(name + ".zip", packed.getvalue())))


def archive_of(**members):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return packed.getvalue()


def test_an_archive_of_movielens_is_read_by_its_ratings(write):
    members = {"ml-1m/README": "read me", "ml-1m/ratings.dat": TEXTS["ratings.dat"]}
    check(read_ratings(write("ml-1m.zip", archive_of(**members))))


def test_the_member_of_an_archive_can_be_named(write):
    path = write("many.zip", archive_of(**{"a.csv": "no", "deep/b.csv": TEXTS["plain.csv"]}))
    check(read_ratings(path / "deep/b.csv"))
    with pytest.raises(RatingsFileError, match=r"no single file.*a\.csv, deep/b\.csv"):
        read_ratings(path)
    with pytest.raises(RatingsFileError, match=r"no member 'c\.csv'.*a\.csv"):
        read_ratings(path / "c.csv")


def test_folders_are_read_by_what_is_in_them(write, tmp_path):
    write("ml/ratings.csv", TEXTS["ratings.csv"])
    write("ml/movies.csv", "movieId,title\n1,x\n")
    check(read_ratings(tmp_path / "ml"))
    check(read_ratings(tmp_path / "ml"))  # the cache is not taken for data
    write("other/a.csv", "1")
    write("other/b.csv", "1")
    with pytest.raises(RatingsFileError, match=r"folder has no single file.*a\.csv, b\.csv"):
        read_ratings(tmp_path / "other")
    (tmp_path / "none").mkdir()
    with pytest.raises(RatingsFileError, match="It has: nothing"):
        read_ratings(tmp_path / "none")


def test_netflix_in_many_files(write, tmp_path):
    by_movie = {}
    for user, movie, rating in TRIPLES:
        by_movie.setdefault(movie, f"{movie}:\n")
        by_movie[movie] += f"{user},{rating},2005-09-06\n"
    paths = [write(f"training_set/mv_{movie:07}.txt", text) for movie, text in by_movie.items()]
    check(read_ratings(tmp_path / "training_set"))
    check(read_ratings(paths))
    members = {f"combined_data_{k}.txt": text for k, text in enumerate(by_movie.values(), 1)}
    check(read_ratings(write("archive.zip", archive_of(**members))))


def test_columns_by_name_and_by_number(write):
    text = "when,stars,who,what,why\n" + "".join(
        f"0,{rating},{user},{item},x\n" for user, item, rating in TRIPLES
    )
    path = write("mine.csv", text)
    check(read_ratings(path, columns=("who", "what", "stars")))
    check(read_ratings(path, columns=(2, 3, 1)))
    with pytest.raises(RatingsFileError, match=r"header.*columns=.*when, stars, who"):
        read_ratings(path)
    with pytest.raises(RatingsFileError, match="no column 'item'; there are when, stars"):
        read_ratings(path, columns=("who", "item", "stars"))
    with pytest.raises(RatingsFileError, match="no column 5; there are 5"):
        read_ratings(path, columns=(2, 3, 5))
    with pytest.raises(ValueError, match="two or three different"):
        read_ratings(path, columns=(1, 1, 2))
    with pytest.raises(RatingsFileError, match="no header to find the column 'who'"):
        read_ratings(write("bare.csv", TEXTS["plain.csv"]), columns=("who", "what", "stars"))


def test_quoted_fields(write):
    text = '"user","item","rating"\n"Smith, J.","a ""b""",4.5\nplain,"x",3\n"Smith, J.",x, "2.5" \n'
    ratings = read_ratings(write("quoted.csv", text))
    assert ratings.row_ids.tolist() == ["Smith, J.", "plain"]
    assert ratings.col_ids.tolist() == ['a "b"', "x"]
    np.testing.assert_array_equal(dense(ratings), [[4.5, 2.5], [np.nan, 3.0]])
    with pytest.raises(RatingsFileError) as told:
        read_ratings(write("open.csv", text + '"never closed,x,3\n'))
    assert told.value.line == 5


def test_matrices_keep_their_shape(write, tmp_path):
    table = np.array([[0.0, 2.5, 0.0], [0.0, 0.0, 0.0], [4.0, 0.0, -1.5]])
    matrix = scipy.sparse.csr_array(table)
    scipy.io.mmwrite(tmp_path / "m.mtx", matrix, comment="made by hand")
    scipy.sparse.save_npz(tmp_path / "m.npz", matrix)
    write("m.mtx.gz", gzip.compress((tmp_path / "m.mtx").read_bytes()))
    for name in ("m.mtx", "m.npz", "m.mtx.gz"):
        ratings = read_ratings(tmp_path / name)
        assert ratings.shape == (3, 3)
        assert ratings.row_ids is None
        np.testing.assert_array_equal(ratings.to_sparse().toarray(), table)
    assert read_ratings(tmp_path / "m.npz", dtype=np.float32).dtype == np.float32


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("%%MatrixMarket matrix array real general\n2 2\n1\n", 1, "coordinate"),
        ("%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n1 1 3\n", 1, "general"),
        ("%%MatrixMarket matrix coordinate real general\n%\n2 2\n1 1 3\n", 3, "numbers of rows"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n3 1 3\n", 3, "row from 1 to 2"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 0 3\n", 3, "column from 1 to 2"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1\n", 3, "row, column and value"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 3\n", None, "promises 2"),
        ("%%MatrixMarket matrix coordinate real general\n", None, "ends before"),
    ],
)
def test_a_damaged_matrix_market_file_is_told_by_line(write, text, line, problem):
    with pytest.raises(RatingsFileError, match=problem) as told:
        read_ratings(write("m.mtx", text))
    assert told.value.line == line


def test_parquet(write, tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    users, items, values = zip(*TRIPLES, strict=True)
    path = tmp_path / "r.parquet"
    parquet.write_table(
        arrow.table({"t": [0] * 7, "user_id": users, "rating": values, "item_id": items}), path
    )
    check(read_ratings(path))
    check(read_ratings(path, columns=(1, 3, 2)))
    check(read_ratings(write("r.parquet.gz", gzip.compress(path.read_bytes()))))
    names = [f"u{user:02}" for user in users]
    parquet.write_table(arrow.table({"user": names, "item": items, "rating": values}), path)
    check(read_ratings(path), users=[f"u{user:02}" for user in USERS])
    holes = [*values[:3], None, float("nan"), *values[5:]]
    parquet.write_table(arrow.table({"user": users, "item": items, "rating": holes}), path)
    with pytest.raises(RatingsFileError, match="finite number") as told:
        read_ratings(path)
    assert told.value.line == 4
    with pytest.warns(RuntimeWarning, match="2 malformed"):
        assert read_ratings(path, skip_bad=True).nnz == 5
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(RatingsFileError, match="cannot be read"):
        read_ratings(path)


def test_parquet_that_is_damaged_late_is_an_error_with_its_name(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, count = tmp_path / "r.parquet", 3000  # more rows than come with the first block
    columns = [f"u{k % 50}" for k in range(count)], range(count), np.arange(count) % 5.0
    table = arrow.table(dict(zip(("user", "item", "rating"), columns, strict=True)))
    parquet.write_table(table, path, compression="none")
    users, data = parquet.read_metadata(path).row_group(0).column(0), bytearray(path.read_bytes())
    last = users.dictionary_page_offset + users.total_compressed_size
    data[last - 300 : last - 250] = b"\xff" * 50
    path.write_bytes(data)
    with pytest.raises(RatingsFileError, match="cannot be read") as told:
        read_ratings(path)
    assert told.value.path == str(path)


# --- ids ------------------------------------------------------------------------------------------


def test_ids_with_leading_zeros_stay_strings(write):
    ratings = read_ratings(write("r.dat", "1::007::3::0\n1::7::4::0\n2::0012::5::0\n"))
    assert ratings.row_ids.tolist() == [1, 2]
    assert ratings.col_ids.tolist() == ["0012", "007", "7"]


def test_a_late_string_makes_all_ids_strings(write):
    ratings = read_ratings(write("r.csv", "10,1,1\n9,1,2\n-3,1,3\n10,2,4\nbob,1,5\n9,2,6\n"))
    assert ratings.row_ids.tolist() == ["-3", "10", "9", "bob"]
    np.testing.assert_array_equal(dense(ratings)[:, 0], [3, 1, 2, 5])


def test_ids_may_be_large_negative_or_in_another_alphabet(write):
    text = "9007199254740993,ä,1\n-5,жук,2\n9007199254740992,ä,3\n"
    ratings = read_ratings(write("r.csv", text))
    assert ratings.row_ids.tolist() == [-5, 9007199254740992, 9007199254740993]
    assert ratings.col_ids.tolist() == ["ä", "жук"]
    assert np.nansum(dense(ratings)[2]) == 1
    longer = read_ratings(write("s.csv", "12345678901234567890123,1,2\n5,1,3\n"))
    assert longer.row_ids.tolist() == ["12345678901234567890123", "5"]


def test_the_last_of_two_ratings_counts(write):
    path = write("r.csv", "1,1,5\n1,2,3\n1,1,2\n")
    for _ in range(2):  # the second time from the cache: what was said is said again
        with pytest.warns(RuntimeWarning, match="1 of 3 ratings"):
            ratings = read_ratings(path)
        assert ratings.values.tolist() == [2.0, 3.0]


# --- numbers --------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1e300, 1e300).map(repr) | st.decimals(-1e9, 1e9).map(str), max_size=20))
@settings(max_examples=30, deadline=None)
def test_ratings_are_read_to_the_last_bit(texts):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "r.csv")
        path.write_text("".join(f"1,{k},{text}\n" for k, text in enumerate(["3.5", *texts])))
        values = read_ratings(path, cache=False).values
    assert values[1:].tolist() == [float(text) for text in texts]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, min_size=1, max_size=20))
@settings(max_examples=30, deadline=None)
def test_integers_are_read_exactly(numbers):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "r.csv")
        path.write_text("".join(f"{number},1,2\n" for number in numbers))
        ids = read_ratings(path, cache=False).row_ids
    assert ids.dtype == np.int64
    assert ids.tolist() == sorted(numbers)


@pytest.mark.parametrize("text", ["+1", "01", "-0", "-", "1.0", "1e3", "12a", "٣", "1" * 20, "1_0"])
def test_an_id_that_only_looks_like_a_number_is_text(write, text):
    assert read_ratings(write("r.csv", f"{text},1,2\n5,1,2\n")).row_ids.dtype.kind == "U"


@pytest.mark.parametrize(
    "text",
    ["", ".", "1.2.3", "five", "1_0", "0x10", "--1", "1e", "٣", "nan", "-inf", "1e999",
     "9" * 400],
)  # fmt: skip
def test_a_rating_that_only_looks_like_a_number_is_refused(write, text):
    with pytest.raises(RatingsFileError, match="finite number as the rating") as told:
        read_ratings(write("r.csv", f"1,1,4\n1,2,{text}\n"))
    assert told.value.line == 2


@pytest.mark.parametrize(
    ("text", "values"),
    [("1;1;3,5\n1;2;-0,25\n", [3.5, -0.25]), ("user;item;rating\na;b;4\na;c;1,5e1\n", [4.0, 15.0]),
     ('1,1,"3,5"\n1,2,"4,0"\n', [3.5, 4.0]), ("1\t1\t3,5\n1\t2\t4,5\n", [3.5, 4.5]),
     ("1  1 3,5\n1 2  2\n", [3.5, 2.0])],
)  # fmt: skip
def test_decimal_commas_are_read_where_they_are_asked_for(write, text, values):
    path = write("r.csv", text)
    assert read_ratings(path, decimal=",", cache=False).values.tolist() == values
    with pytest.raises(RatingsFileError, match=r"decimal=','") as told:
        read_ratings(path, cache=False)
    assert told.value.line is not None
    with pytest.raises(ValueError, match=r"decimal='x' must be"):
        read_ratings(path, decimal="x")


@pytest.mark.parametrize(
    ("text", "is_told"),
    [("1;1;4\n1;2;3,5\n", True), ("1;1;4\n1;2;-1.234,5e1\n", True), ("1;1;4\n1;2;five\n", False),
     ("1;1;4\n1;2;\n", False), ("1;1;4\n1;2;3,5 stars\n", False), ("1;1;4\n1,5;2;x\n", False),
     ('1,1,4\n1,2,"3,5"\n', True), ('{"user":1,"item":2,"rating":"3,5"}\n', True),
     ("1:\n1,2,2005-01-01\n1,x,2005-01-01\n", False)],
)  # fmt: skip
def test_decimal_commas_are_named_where_the_rating_has_one(write, text, is_told):
    with pytest.raises(RatingsFileError, match="finite number as the rating") as told:
        read_ratings(write("r.txt", text), cache=False)
    assert ("decimal=" in told.value.problem) is is_told


def test_a_decimal_point_is_none_where_commas_are_asked_for(write):
    for number in ("4.5", "1.234,5"):
        with pytest.raises(RatingsFileError, match=r"decimal comma.*decimal=','") as told:
            read_ratings(write("r.csv", f"1;1;3,5\n1;2;{number}\n"), decimal=",", cache=False)
        assert told.value.line == 2


def test_some_users_are_read_and_all_items_stay_known(write):
    def even(ids):
        return np.array([int(str(one)[-1]) % 2 == 0 for one in ids], bool)

    paths = [write("a.csv", "1,7,3\n2,8,4\n3,9,5\n"), write("b.csv", "4,7,1\n5,10,3\n")]
    ratings = read_ratings(paths, users=even)
    assert (ratings.row_ids.tolist(), ratings.col_ids.tolist()) == ([2, 4], [7, 8, 9, 10])
    assert ratings.values.tolist() == [4.0, 1.0]
    nobody = read_ratings(paths, users=lambda ids: np.zeros(len(ids), bool))
    assert (nobody.shape, nobody.nnz) == ((0, 4), 0)
    # Together the ids are texts, of which those of the first file alone know nothing.
    texts = read_ratings([*paths, write("c.csv", "x6,7,3\n")], users=even)
    assert texts.row_ids.tolist() == ["2", "4", "x6"]
    with pytest.raises(RatingsFileError, match="no ratings"):
        read_ratings(write("d.csv", "user,item,rating\n"), users=even)


@pytest.mark.parametrize(
    ("option", "words"),
    [({"limits": 3}, r"limits=3 must be Limits\(\.\.\.\)"),
     ({"delimiter": 3}, "delimiter=3 must be a text"),
     ({"columns": [0, 1, 2.5]}, r"columns=\[0, 1, 2.5\] must be two or three .* whole"),
     ({"columns": [False, True, 2]}, "must be two or three .* whole numbers"),
     ({"columns": 3}, "columns=3 must be two or three"), ({"format": []}, r"unknown format \[\]"),
     ({"users": ["ann"]}, r"users=\['ann'\] must be a function"),
     ({"users": lambda ids: np.arange(len(ids))}, r"array\(\[0, 1\]\) for 2 ids.*one flag"),
     ({"users": lambda ids: None}, "returned array.None.* for 2 ids"),
     ({"dtype": "foo"}, "float32 or float64, not in 'foo'"),
     ({"threads": 1.5}, "threads must be a whole number, not 1.5"),
     ({"skip_bad": "no"}, "skip_bad='no' must be True or False"),
     ({"sep": ";"}, "read_ratings.. has no parameter 'sep'; it is called delimiter here")],
)  # fmt: skip
def test_an_option_that_cannot_be_is_named_with_what_it_must_be(write, option, words):
    with pytest.raises((ValueError, TypeError), match=words) as told:
        read_ratings(write("r.csv", "ann,x,1\nbob,y,2\n"), cache=False, **option)
    assert not isinstance(told.value, RatingsFileError)  # the file is right


@pytest.mark.parametrize("source", [3, None, [3], {"user": [1]}, np.ones((2, 2))])
def test_what_is_no_source_is_told_what_would_be_one(source):
    with pytest.raises(TypeError, match=r"neither a path.*Ratings\(rows, cols, values\)"):
        read_ratings(source)


CLICKS = {
    "c.csv": "user,item\nann,x\nann,y\nann,x\nbob,x\n", "c.txt": "ann x\nann y\nann x\nbob x\n",
    "c.jsonl": "".join(f'{{"user": "{u}", "item": "{i}"}}\n' for u, i in ["ax", "ay", "ax", "bx"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CLICKS)
def test_two_columns_are_pairs_which_are_counted(write, name):
    ratings = read_ratings(write(name, CLICKS[name]))
    assert ratings.to_sparse().toarray().tolist() == [[2.0, 1.0], [1.0, 0.0]]
    assert ratings.col_ids.tolist() == ["x", "y"]
    again = read_ratings(write(name, CLICKS[name] * 2), users=lambda ids: ids == ids[0])
    assert again.values[0] >= 4.0  # also where users are chosen, of files twice as long


def test_pairs_are_counted_where_two_columns_are_asked_for(write):
    path = write("r.csv", "7,1,5\n7,1,3\n8,1,x\n")
    ratings = read_ratings(path, columns=(0, 1), dtype="float32")
    assert (ratings.values.tolist(), ratings.row_ids.tolist()) == ([2.0, 1.0], [7, 8])
    both = read_ratings([path, path], columns=(0, 1))
    assert both.values.tolist() == [4.0, 2.0]
    table = pytest.importorskip("pandas").DataFrame({"user": [1, 1], "item": [2, 2]})
    assert read_ratings(table).values.tolist() == [2.0]
    with pytest.raises(RatingsFileError, match=r"c\.csv: has no ratings, in contrast to .*r\.csv"):
        read_ratings([write("r.csv", "7,1,5\n"), write("c.csv", "7,1\n")])
    clicks = write("c.csv", "user,item,when\nann,x,1\n")
    with pytest.raises(
        RatingsFileError, match="of clicks, which have no rating, name user and item alone"
    ):
        read_ratings(clicks)
    for header in ("item,rating", "user,rating"):  # no pairs, though of two columns
        with pytest.raises(RatingsFileError, match="not say plainly which columns are user and"):
            read_ratings(write("c.csv", f"{header}\n1,5\n2,3\n"))


def test_rows_without_a_rating_are_left_out_where_that_is_asked_for(write):
    pandas = pytest.importorskip("pandas")
    text = "user,item,rating\nann,x,1\nann,y,{}\n,z,{}\nbob,x,3\n"
    for none in ("", " ", "NaN", "NA", '"null"'):
        path = write("r.csv", text.format(none, none))
        with pytest.raises(RatingsFileError, match="missing='drop'") as told:
            read_ratings(path, cache=False)
        assert told.value.line == 3
        kept = read_ratings(path, cache=False, missing="drop")
        assert (kept.values.tolist(), kept.col_ids.tolist()) == ([1.0, 3.0], ["x"])
    table = pandas.read_csv(path).dropna(subset="user")
    assert read_ratings(table, missing="drop").nnz == 2
    lines = (
        '{"user":1,"item":2,"rating":5}\n{"user":1,"item":3}\n{"user":1,"item":3,"rating":null}\n'
    )
    assert read_ratings(write("r.jsonl", lines), missing="drop").nnz == 1
    market = "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 nan\n2 2 3\n"
    assert read_ratings(write("r.mtx", market), missing="drop").nnz == 1
    movies = "1:\n5,3,d\n6,,d\n2:\n5,4,d\n"
    assert read_ratings(write("mv_1.txt", movies), missing="drop").values.tolist() == [3.0, 4.0]
    for wrong, line in (("ann,x", 2), ("ann,x,bad", 2), ("ann,x,\nann,x,1,2", 3)):
        with pytest.raises(RatingsFileError) as told:  # what is wrong is not missing
            read_ratings(write("r.csv", f"user,item,rating\n{wrong}\nbob,y,3\nbob,z,3\n"),
                         cache=False, missing="drop")  # fmt: skip
        assert told.value.line == line
    with pytest.raises(ValueError, match="missing='skip' must be 'error' or 'drop'"):
        read_ratings(path, missing="skip")


def test_values_are_float32_if_asked(write):
    assert read_ratings(write("r.csv", "1,1,0.1\n"), dtype="float32").values.tolist() == [
        float(np.float32(0.1))
    ]
    with pytest.raises(ValueError, match="float32 or float64, not in int64"):
        read_ratings(write("r.csv", "1,1,1\n"), dtype=int)


# --- damage ---------------------------------------------------------------------------------------

DAMAGE = {
    "cut off": lambda cells, sep: sep.join(cells[:2]),
    "one field more": lambda cells, sep: sep.join([*cells, "0"]),
    "only a word": lambda cells, sep: "oops",
    "rating in words": lambda cells, sep: sep.join([*cells[:-2], "five", cells[-1]]),
    "no rating": lambda cells, sep: sep.join([*cells[:-2], "", cells[-1]]),
    "rating nan": lambda cells, sep: sep.join([*cells[:-2], "NaN", cells[-1]]),
    "rating inf": lambda cells, sep: sep.join([*cells[:-2], "-inf", cells[-1]]),
    "rating too large": lambda cells, sep: sep.join([*cells[:-2], "1e999", cells[-1]]),
    "no user": lambda cells, sep: sep.join(["", *cells[1:]]),
    "endless user": lambda cells, sep: sep.join(["x" * 300, *cells[1:]]),
    "not UTF-8": lambda cells, sep: sep.join(["\udce9x", *cells[1:]]),
    "glued to the next": lambda cells, sep: sep.join([*cells, *cells]),
}
DAMAGED = {"ratings.dat": "::", "ratings.csv": ",", "u.data": "\t", "combined_data_1.txt": ","}


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("damage", DAMAGE)
def test_every_damage_in_every_line_is_told_by_its_line(write, name, damage):
    separator = DAMAGED[name]
    whole = TEXTS[name].splitlines()
    header = int(name == "ratings.csv")
    lines = [k for k in range(header, len(whole)) if not whole[k].endswith(":")]
    for k in (lines[0], lines[3], lines[-1]):
        cells = whole[k].split(separator)
        bad = DAMAGE[damage](cells, separator)
        text = "\n".join([*whole[:k], bad, *whole[k + 1 :]])
        path = write(name, text.encode("utf-8", "surrogateescape"))
        with pytest.raises(RatingsFileError, match=r"expected|UTF-8") as told:
            read_ratings(path, cache=False)
        assert told.value.line == k + 1
        assert told.value.path == str(path)
        assert len(told.value.content) <= 80
        assert f"{path}, line {k + 1}: " in str(told.value)
        with pytest.warns(RuntimeWarning, match="skipped 1 malformed line$"):
            ratings = read_ratings(path, skip_bad=True, cache=False)
        assert ratings.nnz == len(TRIPLES) - 1


def test_the_first_of_several_damages_is_told(write):
    text = "1,1,3\n2,1,nan\n3,1\n4,1,x\n5,1,2\n6,1,2\n7,1,2\n"
    with pytest.raises(RatingsFileError, match="finite") as told:
        read_ratings(write("r.csv", text))
    assert told.value.line == 2
    with pytest.warns(RuntimeWarning, match="3 malformed"):
        assert read_ratings(write("r.csv", text), skip_bad=True).row_ids.tolist() == [1, 5, 6, 7]


@pytest.mark.parametrize("bad", ["x7:", ":", "-1:", "007:"])
def test_a_damaged_movie_takes_its_ratings_with_it(write, bad):
    whole = "1:\n5,3,d\n2:\n5,4,d\n6,1,d\n3:\n7,2,d\n"
    path = write("mv_1.txt", whole.replace("2:", bad))
    with pytest.raises(RatingsFileError, match="number of a movie") as told:
        read_ratings(path)
    assert told.value.line == 3
    with pytest.warns(RuntimeWarning, match="3 malformed"):
        assert read_ratings(path, skip_bad=True).row_ids.tolist() == [5, 7]
    with pytest.raises(RatingsFileError, match="'movie:' before the first") as told:
        read_ratings(write("mv_2.txt", whole.removeprefix("1:\n")))
    assert told.value.line == 1


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("r.csv", "", "is empty"),
        ("r.csv", " \n\n", "is empty"),
        ("r.csv.gz", gzip.compress(b"", mtime=0), "is empty"),
        ("r.csv", "user,item,rating\n", "no ratings, at most a header"),
        ("r.dat", b"\x89PNG\0\0\0\1\2\3", "no format known.*MatrixMarket.*netflix"),
        ("r.csv", "1,2,3\n4,5,6\n".encode("utf-16"), "UTF-16"),
        ("r.csv", "hello\nworld\n", "lines of user, item and rating with a delimiter"),
        ("r.csv.gz", gzip.compress(b"1,2,3\n" * 99, mtime=0)[:-9], "cannot be unpacked"),
        ("r.csv.gz", b"not gzip at all", "cannot be unpacked"),
        ("r.npz", b"PK\3\4 and then nothing", "save_npz"),
        ("r.npz", "1,2,3\n", "no format known"),
    ],
)
def test_what_is_no_file_of_ratings_is_told_so(write, name, content, problem):
    path = write(name, content)
    with pytest.raises(RatingsFileError, match=problem) as told:
        read_ratings(path)
    assert str(path) in str(told.value)
    assert not list(path.parent.glob("*.momentous.*"))


def test_text_that_turns_binary_late_is_told_so(write):
    content = b"1,2,3\n" * 100_000 + b"\0\0\0\n"
    with pytest.raises(RatingsFileError, match="expected 3 fields") as told:
        read_ratings(write("r.csv", content))
    assert told.value.line == 100_001
    with pytest.raises(RatingsFileError, match="without zero bytes"):
        read_ratings(write("r.csv", b"a,2,3\n" * 100_000 + b"a\0,2,3\n"))


def test_a_damaged_archive_is_told_so(write):
    packed = archive_of(**{"ratings.dat": TEXTS["ratings.dat"] * 50})
    broken = packed.replace(b"::20::5.0", b"::20::4.0")  # its checksum no longer fits
    with pytest.raises(RatingsFileError, match="CRC"):
        read_ratings(write("r.zip", broken))


def test_a_missing_file_is_told_with_its_neighbours(write, tmp_path):
    write("ratings.csv", "1,2,3\n")
    with pytest.raises(FileNotFoundError, match=r"rating\.csv.*did you mean 'ratings\.csv'"):
        read_ratings(tmp_path / "rating.csv")
    with pytest.raises(FileNotFoundError, match="nor a folder"):
        read_ratings(tmp_path / "nowhere" / "x.csv")
    with pytest.raises(RatingsFileError, match="list of files"):
        read_ratings([])


def test_an_unknown_format_is_told_with_the_known_ones(write):
    with pytest.raises(ValueError, match="unknown format 'xlsx'; there are dat, csv"):
        read_ratings(write("r.csv", "1,2,3\n"), format="xlsx")
    with pytest.raises(RatingsFileError, match=r"separated by '\\t'"):
        read_ratings(write("r.csv", "1,2,3\n"), format="tsv")
    assert read_ratings(write("r.odd", "1,2,3\n"), format="csv").nnz == 1
    assert set(FORMATS) >= {"dat", "csv", "tsv", "netflix", "mtx", "npz", "parquet"}


# --- the cache ------------------------------------------------------------------------------------


def test_the_cache_gives_the_same_ratings_without_reading_the_file(write, monkeypatch):
    path = write("r.dat", "1::007::3.5::0\nx::7::4::0\n")
    first = read_ratings(path)
    assert path.with_name("r.dat.momentous.npz").exists()
    monkeypatch.setattr("momentous.lowrank.data.read._read_files", None)  # would fail if called
    again = read_ratings(str(path))
    np.testing.assert_array_equal(dense(again), dense(first))
    assert again.row_ids.tolist() == first.row_ids.tolist()
    assert again.col_ids.tolist() == first.col_ids.tolist()
    assert again.dtype == first.dtype


@pytest.mark.skipif(os.name != "posix", reason="permissions")
def test_who_may_not_read_the_ratings_may_not_read_their_cache(tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    for name in ("part-0.csv", "part-1.csv"):
        (parts / name).write_text("user,item,rating\n" + f"{name},x,3\n")
    places = {parts / "part-0.csv": tmp_path / "parts/part-0.csv.momentous.npz",
              parts: tmp_path / "parts.momentous.npz"}  # fmt: skip
    for mode in (0o644, 0o600):  # the second time an open cache is there already
        (parts / "part-0.csv").chmod(mode)
        for source, kept in places.items():
            read_ratings(source)
            os.utime(parts / "part-0.csv", (mode, mode))  # so that the next cache is written
            assert stat.S_IMODE(kept.stat().st_mode) & ~mode == 0


def test_a_cache_that_may_not_be_read_is_said_to_be_so(write, monkeypatch):
    path = write("r.csv", "user,item,rating\n1,2,3\n")
    read_ratings(path)
    monkeypatch.setattr(os, "access", lambda *given: False)
    with pytest.warns(RuntimeWarning, match="is one that you may not read"):
        assert read_ratings(path).values.tolist() == [3.0]


def test_a_cache_is_a_file_of_ratings_itself(write):
    path = write("r.dat", "1::007::3.5::0\nx::7::4::0\n")
    first = read_ratings(path)
    again = read_ratings(path.with_name("r.dat.momentous.npz"))
    assert again.col_ids.tolist() == first.col_ids.tolist() == ["007", "7"]
    np.testing.assert_array_equal(dense(again), dense(first))


def test_the_cache_knows_the_file_and_the_options(write):
    path = write("r.csv", "1,2,3,4\n")
    assert read_ratings(path).values.tolist() == [3.0]
    assert read_ratings(path, columns=(0, 1, 3)).values.tolist() == [4.0]
    assert read_ratings(path, dtype="float32").dtype == np.float32
    before = path.stat()
    path.write_text("1,2,5,4\n")  # of the same size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000))
    assert read_ratings(path).values.tolist() == [5.0]


@pytest.mark.parametrize("damage", [lambda old: b"", lambda old: old[:-20], lambda old: b"x" * 99])
def test_what_is_no_cache_is_neither_used_nor_overwritten(write, damage):
    path = write("ratings.dat", TEXTS["ratings.dat"])
    check(read_ratings(path))
    kept = path.with_name("ratings.dat.momentous.npz")
    other = damage(kept.read_bytes())
    kept.write_bytes(other)
    with pytest.warns(RuntimeWarning, match=r"ratings.dat.momentous.npz is no cache of momentous"):
        check(read_ratings(path))
    assert kept.read_bytes() == other


def test_a_cache_of_another_file_or_version_is_replaced(write):
    path = write("ratings.dat", TEXTS["ratings.dat"])
    kept = path.with_name("ratings.dat.momentous.npz")
    cache.write_archive(kept, cache.KIND, cache.VERSION - 1, {}, {})
    check(read_ratings(path))
    key = json.loads(read_archive(kept, cache.KIND, cache.VERSION).content["key"])
    assert key[0][0][0] == "ratings.dat"


@pytest.mark.parametrize("there", ["another file", "a cache", "nothing"])
def test_no_cache_goes_through_a_link(write, there):
    path = write("r.csv", "1,2,3\n")
    precious = path.with_name("precious")
    if there == "another file":
        precious.write_text("precious")
    elif there == "a cache":  # valid, but somebody else may have put the link here
        read_ratings(path)
        path.with_name("r.csv.momentous.npz").rename(precious)
    before = precious.read_bytes() if precious.exists() else None
    path.with_name("r.csv.momentous.npz").symlink_to(precious)
    with pytest.warns(RuntimeWarning, match=r"r.csv.momentous.npz is a symbolic link"):
        assert read_ratings(path).values.tolist() == [3.0]
    assert (precious.read_bytes() if precious.exists() else None) == before
    assert path.with_name("r.csv.momentous.npz").is_symlink()


def test_no_cache_is_looked_for_in_a_pipe(write):
    path = write("r.csv", "1,2,3\n")
    os.mkfifo(path.with_name("r.csv.momentous.npz"))  # to open it would wait for ever
    with pytest.warns(RuntimeWarning, match=r"r.csv.momentous.npz is no plain file"):
        assert read_ratings(path).values.tolist() == [3.0]


def test_every_single_flipped_byte_of_a_cache_is_harmless(write):
    path = write("r.csv", "1,2,3\n4,5,6\n")
    read_ratings(path)
    kept = path.with_name("r.csv.momentous.npz")
    good = kept.read_bytes()
    for place in range(0, len(good), 97):
        kept.write_bytes(good[:place] + bytes([good[place] ^ 0x55]) + good[place + 1 :])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # it may no longer look like a cache
            ratings = read_ratings(path)
        assert ratings.values.tolist() == [3.0, 6.0]
        assert ratings.col_ids.tolist() == [2, 5]


def test_warnings_stay_with_their_file_when_files_are_read_in_parallel(write):
    twice = [write(f"twice{k}.csv", "1,1,5\n1,1,2\n") for k in range(6)]
    once = [write(f"once{k}.csv", "1,1,5\n1,2,2\n") for k in range(6)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with ThreadPoolExecutor(4) as pool:
            list(
                pool.map(
                    read_ratings, [one for pair in zip(twice, once, strict=True) for one in pair]
                )
            )
    for paths, count in ((twice, 1), (once, 0)):
        for path in paths:
            _, _, notes = cache.read_cache(path.with_name(path.name + ".momentous.npz"))
            assert len(notes) == count


def test_no_cache_where_none_is_wanted(write):
    path = write("ratings.dat", TEXTS["ratings.dat"])
    check(read_ratings(path, cache=False))
    assert [file.name for file in path.parent.iterdir()] == ["ratings.dat"]


def test_a_folder_that_cannot_be_written_is_told(write, monkeypatch):
    path = write("ratings.dat", TEXTS["ratings.dat"])

    def refuse(*arguments, **named):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cache, "write_archive", refuse)
    with pytest.warns(RuntimeWarning, match="no cache .*Permission denied"):
        check(read_ratings(path))
    assert [file.name for file in path.parent.iterdir()] == ["ratings.dat"]


# --- around it ------------------------------------------------------------------------------------


def test_what_is_read_is_said_when_asked(write, capsys):
    path = write("ratings.dat", TEXTS["ratings.dat"])
    check(read_ratings(path, cache=False, progress=True))
    assert "reading ratings.dat" in capsys.readouterr().err
    check(read_ratings(path, cache=False))
    assert capsys.readouterr().err == ""


def test_describe_counts_right(write):
    facts = describe(read_ratings(write("ratings.dat", TEXTS["ratings.dat"])))
    assert (facts["users"], facts["items"], facts["ratings"]) == (5, 4, 7)
    assert facts["density"] == 7 / 20
    assert facts["histogram"] == [(v, 1) for v in sorted(t[2] for t in TRIPLES)]
    assert facts["user_activity"]["max"] == 2
    assert facts["item_activity"]["max"] == 3
    assert facts["item_activity"]["median"] == 1.5
    assert facts["user_activity"]["empty"] == 0
    json.dumps(facts)
    many = describe(Ratings(np.arange(50), np.zeros(50, int), np.linspace(0, 1, 50)))
    assert len(many["histogram"]) == 20
    assert sum(count for _, count in many["histogram"]) == 50


def test_an_unknown_data_set_is_told_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no data set 'ml-2m'; there are ml-100k, .*ml-32m"):
        fetch("ml-2m")


def test_without_a_network_fetch_says_what_to_do(tmp_path, monkeypatch, capsys):
    pooch = pytest.importorskip("pooch")

    def offline(*arguments, **options):
        raise OSError("Name or service not known")

    monkeypatch.setattr(pooch.downloaders.HTTPDownloader, "__call__", offline)
    with pytest.raises(ConnectionError, match=r"ml-1m could not .*Ratings\.twin\('ml-1m'\)"):
        fetch("ml-1m", tmp_path)
    told = capsys.readouterr().err
    assert "GroupLens" in told
    assert "commercial use needs their permission" in told
    assert not list(tmp_path.iterdir())


def test_fetch_keeps_what_has_the_right_checksum_and_nothing_else(tmp_path, monkeypatch, capsys):
    pooch = pytest.importorskip("pooch")
    module = sys.modules[fetch.__module__]  # which the function hides
    content = archive_of(**{"ml-1m/ratings.dat": TEXTS["ratings.dat"], "ml-1m/README": "x"})
    source = tmp_path / "served.zip"
    source.write_bytes(content)
    served = []

    def serve(self, url, output_file, pooch, **options):
        served.append(url)
        Path(output_file).write_bytes(content)

    monkeypatch.setattr(pooch.downloaders.HTTPDownloader, "__call__", serve)
    with pytest.raises(ValueError, match="not what GroupLens published"):
        fetch("ml-1m", tmp_path / "kept")
    assert not list((tmp_path / "kept").iterdir())
    right = module.DataSet(1, pooch.file_hash(str(source), "md5"))
    monkeypatch.setitem(module.DATA_SETS, "ml-1m", right)
    capsys.readouterr()
    for _ in range(2):
        check(read_ratings(fetch("ml-1m", tmp_path / "kept")))
    assert len(served) == 2  # the wrong one and the right one; the third call found it there
    assert capsys.readouterr().err.count("GroupLens, University") == 1


def test_what_has_no_checksum_is_not_offered():
    with pytest.raises(ValueError, match="no data set 'ml-latest-small'"):
        fetch("ml-latest-small")
    assert all(len(one.md5) == 32 for one in sys.modules[fetch.__module__].DATA_SETS.values())
