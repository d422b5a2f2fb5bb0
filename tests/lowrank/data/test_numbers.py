"""Ids that are tried as numbers are the ids that are read as texts."""

import dataclasses
import warnings

import numpy as np
import pytest

from momentous.lowrank import RatingsFileError, read_ratings
from momentous.lowrank.data import Limits
from momentous.lowrank.data.files import scans

pytest.importorskip("duckdb")

# Ways to write a field; each is a whole number, a number, or neither.
PLAIN = ["0", "7", "10", "99", "100", "-1", "-10", "12345678901", "9223372036854775807"]
ODD = ["007", "-0", "00", "7.0", "7.", ".5", "1e3", "+7", " 7", "7 ", "\t7", "7\t", "1_0", "0x1F",
       "0b1", "-", "", ".", "7:", ":7", "7/1", "1-2", '"7"', "a", "99999999999999999999", "7;1",
       "-9223372036854775808", "1|2", "-.5", "--1"]  # fmt: skip
VALUES = ["5", "3.5", "0.5", ".5", "4.", "-1", "1e0", "05", "5.50"]
ENDS = ["\n", "\n", "\n", "\r\n"]


@pytest.fixture
def both(tmp_path, monkeypatch):
    """Read a text as it comes, and with ids that are texts at first; were they read as numbers?"""
    numbers = []
    read = scans.read_triples

    def watched(scan, work):
        found = read(scan, work)
        numbers.append(not any(isinstance(one, scans.Coded) for one in found[:2]))
        return found

    def as_texts(scan, work):
        sides = ("user",) if scan.movie else ("user", "item")
        texts = {side: getattr(scan, side)._replace(number=None) for side in sides}
        return read(dataclasses.replace(scan, **texts), work)

    def outcome(path, **options):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                ratings = read_ratings(path, cache=False, **options)
            except RatingsFileError as error:
                return str(error)
        arrays = ratings.by_row.starts, ratings.cols, ratings.values, ratings.row_ids
        return [str(one.message) for one in said], *(
            (array.dtype.kind, array.tolist()) for array in (*arrays, ratings.col_ids)
        )

    def both(text, name="r.csv", **options):
        path = tmp_path / name
        path.write_bytes(text.encode())
        numbers.clear()
        monkeypatch.setattr("momentous.lowrank.data.read.read_triples", watched)
        found = outcome(path, **options)
        used = bool(numbers) and all(numbers)
        monkeypatch.setattr("momentous.lowrank.data.read.read_triples", as_texts)
        assert found == outcome(path, **options), text
        return found, used

    return both


def lines_of(rng, count, odd, fields=4):
    """Lines of fields, of which a share is odd."""

    def pick(usual):
        return rng.choice(ODD if rng.random() < odd else usual)

    lines = []
    for _ in range(count):
        cells = [pick(PLAIN), pick(PLAIN), pick(VALUES[:6]), *[pick(PLAIN)] * (fields - 3)]
        if rng.random() < odd / 2:
            cells = cells[: rng.integers(1, 3)] if rng.random() < 0.5 else [*cells, pick(PLAIN)]
        lines.append(cells)
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("delimiter", [",", "::", "\t"])
@pytest.mark.parametrize("odd", [0.0, 0.03, 0.3])
def test_numbers_first_and_texts_give_the_same(both, delimiter, odd):
    rng = np.random.default_rng([len(delimiter), ord(delimiter[0]), int(100 * odd)])
    used = 0
    for case in range(15):
        lines = lines_of(rng, rng.integers(1, 9), odd, fields=rng.integers(3, 6))
        end = str(rng.choice(ENDS))
        text = end.join(delimiter.join(cells) for cells in lines) + end * int(rng.integers(0, 2))
        if case % 3 == 0:
            header = ["user", "item", "rating", "x", "y"][: len(lines[0])]
            text = delimiter.join(header) + end + text
        used += both(text, skip_bad=case % 2 == 1)[1]
    if odd < 0.3:
        assert used > (6 if odd == 0.0 else 1)


@pytest.mark.parametrize("odd", [0.0, 0.02, 0.2])
def test_netflix_numbers_first_and_texts_give_the_same(both, odd):
    rng = np.random.default_rng(int(1000 * odd))
    used = 0
    for case in range(20):
        lines = []
        for movie in rng.choice(PLAIN[:5], rng.integers(1, 4)):
            lines.append(f"{rng.choice(ODD) if rng.random() < odd else movie}:")
            some = lines_of(rng, rng.integers(0, 4), odd, 3)
            lines += [",".join([*cells[::2], "2005-09-06"]) for cells in some]
        end = str(rng.choice(ENDS))
        text = end.join(lines) + end * int(rng.integers(0, 2))
        used += both(text, "combined_data_1.txt", skip_bad=case % 2 == 1)[1]
    if odd < 0.2:
        assert used > (10 if odd == 0.0 else 2)


@pytest.mark.parametrize(
    "text",
    ["1,2,3\n4,5,6\n", "1,2,3,4\n4,5,6,7", "user,item,rating\r\n1,2,3\r\n4,5,6\r\n",
     "1::2::3::978300760\n4::5::6::978300761\n", "1\t2\t3\t881250949\n4\t5\t6\t881250949\n",
     "-1,9223372036854775807,.5\n7,-9223372036854775808,1.25\n"],
)  # fmt: skip
def test_plain_ids_are_read_as_numbers(both, text):
    found, used = both(text)
    assert used
    assert found[0] == []


@pytest.mark.parametrize(
    "text",
    ["1,2,3\n007,5,6\n", "1,2,3\n4.0,5,6\n", "1,2,3\n-0,5,6\n", "1,2,3\n+4,5,6\n",
     "1,2,3\n1e2,5,6\n",
     "1,2,3\n1_0,5,6\n", "1,2,3\n0x1,5,6\n", "1,2,3\n99999999999999999999,5,6\n"],
)  # fmt: skip
def test_an_id_that_is_no_plain_number_is_text(both, text):
    (_, *_, (kind, ids), _), used = both(text)
    assert not used
    assert kind == "U"
    assert ids == sorted(line.split(",")[0] for line in text.split())


@pytest.mark.parametrize(
    "text",
    ["1,2,3\n\n4,5,6\n", "1,2,3\n4,5\n", "1,2,3\n4,5,6,7\n", "1,2,3,4\n1,5,6,7,8\n1,6,7\n1,7,8,9\n",
     "1::2::3::4\n5::6::7:::8\n", "1,2,3\n4,5,6\n ", "1,2,1e1\n", "1,2,3,\n4,5,6,\n",
     "1,2,3\r\r\n4,5,6\r\n", "1,2,3\r4,5,6\r", "1,2,3\n1,3,+5\n", "1,2,3\n4,5,1-2\n", "\n\n1,2,3\n",
     "\ufeff1,2,3\n", "1,2,3\n4,,5\n,5,6\n"],
)  # fmt: skip
def test_odd_lines_are_the_same_beside_numbers_and_texts(both, text):
    both(text)
    both(text, skip_bad=True)


def test_one_id_that_is_text_makes_those_of_all_files_text(tmp_path, both):
    (tmp_path / "a.csv").write_text("5,6,1\n")
    (tmp_path / "b.csv").write_text("05,6,2\n")
    for name, ids in (("c.csv", [3, 5]), ("b.csv", ["05", "5"])):
        (tmp_path / "c.csv").write_text("3,6,4\n")
        ratings = read_ratings([tmp_path / "a.csv", tmp_path / name], cache=False)
        assert ratings.row_ids.tolist() == ids


def test_limits_hold_for_numbers_too(both):
    assert "at most 3 bytes" in both("1,2,3\n1234,2,3\n", limits=Limits(id_bytes=3))[0]


def test_large_files_keep_their_order_and_their_precision(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    count = 60_000  # several blocks of DuckDB
    users, items = rng.permutation(count), rng.integers(0, 10**15, count)
    values = rng.integers(1, 11, count) / 2
    lines = [f"{u},{i},{v}\n" for u, i, v in zip(users, items, values, strict=True)]
    (tmp_path / "r.csv").write_text("".join(lines))
    monkeypatch.setattr(scans, "SINGLE_FROM", 100)
    ratings = read_ratings(tmp_path / "r.csv", cache=False)
    assert ratings.dtype == np.float32
    assert ratings.row_ids.tolist() == list(range(count))
    order = np.argsort(users)
    np.testing.assert_array_equal(ratings.col_ids[ratings.cols], items[order])
    np.testing.assert_array_equal(ratings.values, values[order])
    (tmp_path / "r.csv").write_text("".join(lines) + f"{count},1,0.1\n")
    assert read_ratings(tmp_path / "r.csv", cache=False).dtype == np.float64
