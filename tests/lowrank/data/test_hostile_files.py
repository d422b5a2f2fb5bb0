"""Damaged, crafted and enormous files end in ratings or in one clear error, never otherwise."""

import gzip
import io
import json
import os
import sys
import warnings
import zipfile

import numpy as np
import pytest
import scipy.sparse

from momentous.lowrank import RatingsFileError, read_ratings
from momentous.lowrank.data import Limits
from momentous.lowrank.data.files import cache, sources

pytest.importorskip("duckdb")


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def npz(**arrays):
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    return packed.getvalue()


CSR = {
    "format": np.bytes_("csr"), "shape": np.array([3, 4]), "indptr": np.array([0, 2, 2, 3]),
    "indices": np.array([1, 3, 0]), "data": np.array([1.0, 2.0, 3.0]),
}  # fmt: skip


# --- matrices -------------------------------------------------------------------------------------


def test_every_form_that_scipy_saves_is_read_as_scipy_reads_it(tmp_path):
    table = np.array([[0.0, 2.5, 0.0], [0.0, 0.0, 0.0], [4.0, 0.0, -1.5]])
    for form in ("csr", "csc", "coo"):
        for kind in (scipy.sparse.csr_array, scipy.sparse.csr_matrix):
            scipy.sparse.save_npz(tmp_path / "m.npz", kind(table).asformat(form))
            ratings = read_ratings(tmp_path / "m.npz")
            np.testing.assert_array_equal(ratings.to_sparse().toarray(), table)
    scipy.sparse.save_npz(tmp_path / "m.npz", scipy.sparse.dia_array(np.eye(3)))
    with pytest.raises(RatingsFileError, match=r"form is 'dia'.*tocsr"):
        read_ratings(tmp_path / "m.npz")


@pytest.mark.parametrize(
    "change",
    [{"indptr": np.array([0, 10**8, 5, 5])}, {"indptr": np.array([0, 2**62, 2, 3])},
     {"indptr": np.array([0, 2, 1, 3])}, {"indptr": np.array([1, 2, 2, 3])},
     {"indptr": np.array([0, 2, 3])}, {"indptr": np.array([0, 2, 2, 2**63 + 3], np.uint64)},
     {"indptr": np.array([0, 2**62, -(2**63), 3])}, {"indptr": np.array([[0, 2, 2, 3]])},
     {"indices": np.array([1, 4, 0])}, {"indices": np.array([1, -1, 0])},
     {"indices": np.array([1, 3])}, {"data": np.array([1.0, np.nan, 2.0])},
     {"data": np.array(["a", "b", "c"])}, {"data": np.ones((3, 1))},
     {"shape": np.array([3])}, {"shape": np.array([3, -4])}, {"shape": np.array([3, 2**40])},
     {"shape": np.array([2.5, 4.0])}, {"format": np.bytes_("xyz")}, {"format": np.arange(3)}],
)  # fmt: skip
def test_a_crafted_sparse_matrix_is_refused(write, change):
    assert read_ratings(write("good.npz", npz(**CSR))).nnz == 3
    path = write("m.npz", npz(**{**CSR, **change}))
    with pytest.raises(RatingsFileError, match=r"save_npz|empty_sides") as told:
        read_ratings(path)
    assert str(path) in str(told.value)


def test_an_array_that_is_shorter_than_it_says_is_refused(write):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    )
    packed = io.BytesIO(npz(**{key: value for key, value in CSR.items() if key != "data"}))
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr("data.npy", header.getvalue())
    with pytest.raises(RatingsFileError, match="save_npz"):
        read_ratings(write("m.npz", packed.getvalue()))


def test_a_matrix_market_header_cannot_ask_for_more_than_there_is(write):
    text = "%%MatrixMarket matrix coordinate real general\n300000000 3 1\n1 1 5\n"
    path = write("m.mtx", text)
    with pytest.raises(RatingsFileError, match=r"300,000,000 rows with 1 entries.*empty_sides"):
        read_ratings(path)
    assert [one.name for one in path.parent.iterdir()] == ["m.mtx"]  # and no cache
    small = write("s.mtx", text.replace("300000000", "500"))
    assert read_ratings(small, cache=False).shape == (500, 3)
    with pytest.raises(RatingsFileError, match="500 rows"):
        read_ratings(small, limits=Limits(empty_sides=100))
    bad = npz(**{**CSR, "shape": np.array([3, 10**9])})
    with pytest.raises(RatingsFileError, match="1,000,000,000 columns"):
        read_ratings(write("m.npz", bad))


# --- limits ---------------------------------------------------------------------------------------


def test_what_is_packed_has_a_limit(write):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("r.csv", "1,2,3\n" * 100_000)
    small = Limits(unpacked_bytes=100_000)
    for name, content in (
        ("r.zip", packed.getvalue()),
        ("r.csv.gz", gzip.compress(b"1,2,3\n" * 100_000)),
        ("r.npz", npz(**{**CSR, "more": np.zeros(100_000)})),
    ):
        with pytest.raises(RatingsFileError, match=r"unpacks to .*Limits\(unpacked_bytes"):
            read_ratings(write(name, content), limits=small)


def test_what_is_packed_has_a_limit_to_its_ratio(write, monkeypatch):
    monkeypatch.setattr(sources, "RATIO_FROM", 100_000)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("r.csv", "1,2,3\n" * 500_000)
    bombs = {"r.zip": packed.getvalue(), "r.csv.gz": gzip.compress(b"1,2,3\n" * 500_000)}
    for name, content in bombs.items():
        with pytest.raises(RatingsFileError, match=r"times its size.*Limits\(unpacked_ratio"):
            read_ratings(write(name, content))
    wide = Limits(unpacked_ratio=2000)
    with pytest.warns(RuntimeWarning, match="rated again"):
        assert read_ratings(write("r.zip", bombs["r.zip"]), limits=wide, cache=False).nnz == 1


def test_lines_fields_and_ids_have_limits(write):
    path = write("long.csv", "1,2,3\n" * 10 + "x" * 3000 + ",2,3\n" + "1,3,3\n" * 10)
    with pytest.raises(RatingsFileError, match=r"line of more than 1,000.*line_bytes") as told:
        read_ratings(path, limits=Limits(line_bytes=1000))
    assert told.value.line == 11
    with pytest.raises(RatingsFileError, match=r"at most 256 bytes.*id_bytes") as told:
        read_ratings(path)
    assert told.value.line == 11
    with pytest.warns(RuntimeWarning, match="rated again"):
        ratings = read_ratings(path, cache=False, limits=Limits(id_bytes=3000))
    assert ratings.shape == (2, 2)
    many = write("many.csv", ",".join(["x"] * 500) + "\n" + ",".join(["1"] * 500) + "\n")
    with pytest.raises(RatingsFileError, match=r"500 fields per line.*columns"):
        read_ratings(many, limits=Limits(columns=100))
    endless = write("endless.csv", b"1,2,3" * 500_000)
    with pytest.raises(RatingsFileError, match="line_bytes"):
        read_ratings(endless)


@pytest.mark.parametrize(
    ("content", "count"),
    [("1,2,3\n1,3," + "1" * 20_000 + "x\n", 1), ("1,2,3" + " " * 200_000 + "\n", 1),
     (",".join(["1"] * 100_000) + "\n", 0), (",".join(f"x{k}" for k in range(100_000)) + "\n", 0),
     ('"' * 100_001 + "\n", 0), (('"' + "a," * 100 + "\n") * 1000, 0), ("[" * 500_000, 0),
     ("{" * 500_000, 0), ('{"a":' * 100_000, 0), (" " * 900_000 + "1,2,3\n", 1),
     ("\n" * 900_000, 0), ("1,2,3\n" + "\n" * 900_000, 1)],
    ids=range(12),
)  # fmt: skip
def test_crafted_lines_come_to_an_end(write, content, count):
    """Each of these took time in the square of its size, or memory without a limit."""
    path = write("r.csv", content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        if count:
            assert read_ratings(path, cache=False, skip_bad=True).nnz == count
        else:
            with pytest.raises(RatingsFileError):
                read_ratings(path, cache=False, skip_bad=True)


# --- what looks like something else ---------------------------------------------------------------


def test_a_dense_matrix_is_refused_with_the_way_to_read_it(write):
    path = write("jester.csv", "\n".join(",".join(["99"] * 101) for _ in range(30)))
    with pytest.raises(RatingsFileError, match=r"101 numbers per line.*genfromtxt"):
        read_ratings(path)


@pytest.mark.parametrize("blank", ["\n" * 20_000, " \n" * 10_000, "\r\n" * 70_000, " " * 40_000])
def test_a_file_that_begins_blank_is_read(write, blank):
    path = write("r.csv", blank + "\nuser,item,rating\n1,2,3\n4,5,x\n")
    with pytest.raises(RatingsFileError) as told:
        read_ratings(path, cache=False)
    assert told.value.line == blank.count("\n") + 4
    with pytest.warns(RuntimeWarning, match="skipped 1"):
        ratings = read_ratings(path, cache=False, skip_bad=True)
    assert (ratings.row_ids.tolist(), ratings.col_ids.tolist()) == ([1], [2])


@pytest.mark.parametrize("line", ["11:::2::864", "11::2:::864", ":::2::3", "1:2:3"])
def test_colons_that_run_together_are_refused(write, line):
    with pytest.raises(RatingsFileError, match="expected") as told:
        read_ratings(write("r.dat", f"1::2::3\n2::2::3\n{line}\n"))
    assert told.value.line == 3


@pytest.mark.parametrize(
    ("text", "line"),
    [("1::2::3\n1::2::5:::9\n", 2), ("1::2::5:::9\n", 1), ("1::2::5::9\n1::2:::5::9\n", 2),
     ("1::2::5:::9\n1::2::3\n1::3::3\n", 1)],
)  # fmt: skip
def test_three_colons_are_named_where_they_stand(write, text, line):
    with pytest.raises(RatingsFileError, match="':::' does not say where a field ends") as told:
        read_ratings(write("r.txt", text), cache=False)
    assert told.value.line == line
    assert ":::" in told.value.content


def test_a_closed_quote_with_more_behind_it_is_refused(write):
    for bad in ('"x"y,1,2', '"x" y,1,2', 'x,1,"2', '"x,1,2'):
        with pytest.raises(RatingsFileError, match="quotes") as told:
            read_ratings(write("r.csv", f"a,1,3\nb,1,3\n{bad}\nc,1,3\n"))
        assert told.value.line == 3


def test_a_quote_that_is_not_closed_is_no_line_to_skip(write):
    """It has swallowed what comes after it; other bad lines are skipped."""
    with pytest.raises(RatingsFileError, match="quotes that are closed") as told:
        read_ratings(write("r.csv", 'a,1,3\nb,1\nx,1,"2\nc,1,3\n'), skip_bad=True)
    assert told.value.line == 3
    with pytest.warns(RuntimeWarning, match="skipped 2"):
        ratings = read_ratings(write("r.csv", 'a,1,3\nb,1\n"x"y,1,2\nc,1,3\n'), skip_bad=True)
    assert ratings.row_ids.tolist() == ["a", "c"]


def test_a_carriage_return_ends_a_line(write):
    with pytest.raises(RatingsFileError, match="expected 3 fields") as told:
        read_ratings(write("r.csv", "1,2,3\r\n1,3\r,3\n4,5,6\n4,6,6\n"))
    assert told.value.line == 2


@pytest.mark.parametrize(
    ("text", "users", "items"),
    [("1,2,3\r4,5,6\r", [1, 4], [2, 5]), ("user;item;rating\rx;2;3\ry;5;6", ["x", "y"], [2, 5]),
     ("\r\r 1 2  3\r4\t5 6", [1, 4], [2, 5]), ("1,2,3\n4,5,6\r", [1, 4], [2, 5]),
     ("5:\r1,3,2005\r4,6,2005\r", [1, 4], [5]),
     ('{"user":1,"item":2,"rating":3}\r{"user":4,"item":5,"rating":6}\r', [1, 4], [2, 5])],
)  # fmt: skip
def test_a_carriage_return_alone_ends_the_first_lines_too(write, text, users, items):
    ratings = read_ratings(write("r.txt", text), cache=False)
    assert (ratings.row_ids.tolist(), ratings.col_ids.tolist()) == (users, items)
    assert ratings.values.tolist() == [3, 6]


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text elsewhere")
def test_a_name_that_is_not_utf8_is_read_and_told(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9.csv")
    path.write_text("1,2,3\n4,5,6\n")
    assert read_ratings(path).nnz == 2
    assert read_ratings(path).nnz == 2  # from the cache
    path.write_text("1,2,3\n4,5,x\n")
    with pytest.raises(RatingsFileError, match="finite number") as told:
        read_ratings(path, cache=False)
    assert told.value.path == str(path)


# --- line numbers ---------------------------------------------------------------------------------


def long_text(bad, header=True, quoted=False):
    """Half a million lines with one bad one; with quotes, a record of three lines before it."""
    lines = [f"u{k % 1000},{k},3" for k in range(400_000)]
    if quoted:
        lines[100] = '"u\n\n""1",7,3'
    lines.insert(bad, "u1,5,oops")
    return "\n".join([*(["user,item,rating"] if header else []), *lines, ""])


@pytest.mark.parametrize("bad", [0, 5, 399_999])
@pytest.mark.parametrize("quoted", [False, True])
def test_the_line_is_right_in_a_long_file_read_in_parallel(write, bad, quoted):
    text = long_text(bad, quoted=quoted)
    expected = text.split("\n").index("u1,5,oops") + 1
    for name, content in (("r.csv", text), ("r.csv.gz", gzip.compress(text.encode(), 1))):
        with pytest.raises(RatingsFileError, match="finite number") as told:
            read_ratings(write(name, content), cache=False)
        assert told.value.line == expected
        assert told.value.content == "u1,5,oops"


@pytest.mark.parametrize(
    ("last", "ids"),
    [('"a ""b""",5,3', ['a "b"']), ("x ,5,3", ["x"]), ("x,5,1_0", [])],
)
@pytest.mark.parametrize("usual", ["7", "u"])
def test_what_stands_only_at_the_end_of_a_long_file_is_seen(write, usual, last, ids):
    path = write("r.csv", f"{usual},1,2\n" * 400_000 + last + "\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        ratings = read_ratings(path, cache=False, skip_bad=True)
    assert ratings.row_ids.astype(str).tolist() == sorted([usual, *ids])


def test_lines_that_are_not_utf8_are_counted_and_named(write):
    lines = [b"u%d,%d,3" % (k % 100, k) for k in range(300_000)]
    for k in (70_000, 150_000, 299_999):
        lines[k] = b"caf\xe9,1,3"
    path = write("r.csv", b"\n".join(lines))
    with pytest.raises(RatingsFileError, match="not encoded as UTF-8") as told:
        read_ratings(path, cache=False)
    assert told.value.line == 70_001
    with pytest.warns(RuntimeWarning, match="skipped 3"):
        assert read_ratings(path, cache=False, skip_bad=True).nnz == 299_997
    lines[60_000] = b"u,1,x"
    with pytest.raises(RatingsFileError, match="finite number") as told:
        read_ratings(write("r.csv", b"\n".join(lines)), cache=False)
    assert told.value.line == 60_001


@pytest.mark.parametrize(("after", "line"), [("eve,x,bad,c\n", 4), ("eve,x,1,c\nfay,x,bad,c\n", 5)])
def test_what_is_not_utf8_in_a_column_that_is_not_read_moves_no_line(write, after, line):
    good = b"user,item,rating,note\nann,x,1,a\nbob,x,2,\xff\xfe\n"
    path = write("r.csv", good + after.encode() + b"gus,x,5,d\n")
    with pytest.raises(RatingsFileError, match="finite number as the rating") as told:
        read_ratings(path, cache=False)
    assert told.value.line == line


def test_of_several_files_the_right_one_is_named(write):
    good = write("a.csv", "user,item,rating\n1,1,3\n")
    bad = write("b.csv", "1,2,3\n\n1,3,nan\n")
    with pytest.raises(RatingsFileError) as told:
        read_ratings([good, bad, good])
    assert (told.value.path, told.value.line) == (str(bad), 3)
    one = write("mv_1.txt", "1:\n5,3,d\n6,3,d\n")
    two = write("mv_2.txt", "2:\n5,3,d\n6,x,d\n")
    with pytest.raises(RatingsFileError) as told:
        read_ratings([one, two])
    assert (told.value.path, told.value.line) == (str(two), 3)


# --- the cache ------------------------------------------------------------------------------------


def crafted(**change):
    arrays = {
        "starts": np.array([0, 1, 2]), "others": np.array([0, 1], np.int32),
        "values": np.array([3.0, 6.0]), "row_ids": np.array([1, 4]), "col_ids": np.array([2, 5]),
    }  # fmt: skip
    return {**arrays, **change}


@pytest.mark.parametrize(
    "change",
    [{"starts": np.array([0, 2**62])}, {"starts": np.array([0, 2**62, 2])},
     {"starts": np.array([0, 3, 2])}, {"starts": np.array([-1, 1, 2])},
     {"others": np.array([0, 2], np.int32)}, {"others": np.array([0, -1], np.int32)},
     {"others": np.array([0], np.int32)}, {"others": np.array([0, 1])},
     {"values": np.array([3.0, np.nan])}, {"values": np.array([3.0, 6.0], np.float16)},
     {"starts": np.array([0, 2, 2]), "others": np.array([1, 1], np.int32)},
     {"row_ids": np.array([1])}, {"col_ids": np.array([1.5, 2.0])}],
)  # fmt: skip
def test_a_crafted_cache_counts_as_absent(write, change):
    path = write("r.csv", "1,2,3\n4,5,6\n")
    read_ratings(path)
    kept = path.with_name("r.csv.momentous.npz")
    with np.load(kept) as content:
        header = json.loads(content["header"].tobytes())
    for arrays, is_used in (
        (crafted(values=np.array([7.0, 8.0])), True),
        (crafted(**change), False),
    ):
        cache.write_archive(kept, cache.KIND, cache.VERSION, header["content"], arrays)
        values = read_ratings(path).values.tolist()
        assert values == ([7.0, 8.0] if is_used else [3.0, 6.0])


@pytest.mark.parametrize("change", ["dropped", "all the same", "text"])
@pytest.mark.parametrize("name", ["row_ids", "col_ids"])
def test_a_cache_with_other_ids_counts_as_absent(tmp_path, name, change):
    path = tmp_path / "r.csv"
    path.write_text("".join(f"{u},{i},{(u * i) % 5}\n" for u in range(10, 15) for i in range(4, 8)))
    before = read_ratings(path)
    kept = tmp_path / "r.csv.momentous.npz"
    with np.load(kept) as archive:
        arrays = dict(archive)
    if change == "dropped":
        del arrays[name]
    elif change == "text":
        arrays[name] = arrays[name].astype(str)
    else:
        arrays[name] = np.full_like(arrays[name], arrays[name][0])
    np.savez(kept, **arrays)
    with pytest.raises(ValueError, match="ids"):
        cache.read_cache(kept)
    again = read_ratings(path)
    np.testing.assert_array_equal(again.row_ids, before.row_ids)
    np.testing.assert_array_equal(again.col_ids, before.col_ids)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ({"indices": np.array([0.5, 1.5, 2.5])}, "not of whole numbers"),
        ({"indptr": np.array([0.2, 2.2, 2.2, 3.2])}, "not of whole numbers"),
        ({"indices": np.array([1, 3, 0, 1]), "data": np.ones(4)}, "different lengths"),
        ({"data": np.ones(5)}, "different lengths"),
    ],
)
def test_places_of_a_matrix_that_scipy_would_cut_are_refused(write, damage, told):
    with pytest.raises(RatingsFileError, match=told):
        read_ratings(write("matrix.npz", npz(**CSR | damage)))


def test_a_long_line_without_quotes_is_told_as_that_and_skipped(write):
    path = write(
        "long.csv",
        "".join(f"{i},{i},3\n" for i in range(3000)) + "1,3,4" + "x" * 3000 + "\n5,6,2\n",
    )
    limits = Limits(line_bytes=1000)
    with pytest.raises(RatingsFileError, match="more than the limit of 1,000"):
        read_ratings(path, limits=limits)
    with pytest.warns(RuntimeWarning, match="skipped 1"):
        assert read_ratings(path, limits=limits, skip_bad=True).nnz > 0


def test_two_signs_are_no_number(write):
    with pytest.raises(RatingsFileError, match="finite number"):
        read_ratings(write("signs.csv", "userId,movieId,rating\n1,2,+-3\n"))
