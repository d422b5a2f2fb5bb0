"""Ratings and pairs through pipes: read once, recognised by their first bytes, never cached."""

import gzip
import io
import os
import sys
import threading
import types
import zipfile

import pytest

from momentous.lowrank import Ratings, read_ratings
from momentous.lowrank.data import read_pairs
from momentous.lowrank.data.errors import Limits, RatingsFileError
from momentous.lowrank.data.files.sources import is_stream

TEXT = b"user,item,rating\nann,film one,4.5\nbob,film two,3\nann,film two,1\n"
pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")


def parquet():
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    buffer = io.BytesIO()
    columns = {"user": ["ann", "bob", "ann"], "item": ["film one", "film two", "film two"]}
    parquet.write_table(pyarrow.table({**columns, "rating": [4.5, 3.0, 1.0]}), buffer)
    return buffer.getvalue()


def zipped():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("ratings.csv", TEXT)
    return buffer.getvalue()


CONTENTS = {"text": lambda: TEXT, "gzip": lambda: gzip.compress(TEXT), "parquet": parquet,
            "zip": zipped}  # fmt: skip


@pytest.fixture
def pipe(tmp_path):
    """A function that sends bytes through a named pipe, once, and gives its path."""
    threads = []

    def send(content):
        path = tmp_path / "a pipe"
        os.mkfifo(path)

        def write():
            with path.open("wb") as stream:
                stream.write(content)

        threads.append(threading.Thread(target=write, daemon=True))
        threads[-1].start()
        return path

    yield send
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def standard_input(monkeypatch, content):
    stream = types.SimpleNamespace(buffer=io.BytesIO(content))
    monkeypatch.setattr(sys, "stdin", stream)


def entries(ratings):
    rows, cols = ratings.row_ids[ratings.rows], ratings.col_ids[ratings.cols]
    return sorted(zip(rows.tolist(), cols.tolist(), ratings.values.tolist(), strict=True))


EXPECTED = [("ann", "film one", 4.5), ("ann", "film two", 1.0), ("bob", "film two", 3.0)]


@pytest.mark.parametrize("content", CONTENTS)
def test_a_pipe_is_read_once_and_nothing_is_kept(pipe, tmp_path, content):
    path = pipe(CONTENTS[content]())
    assert is_stream(path)
    assert entries(read_ratings(path)) == EXPECTED
    assert [one.name for one in tmp_path.iterdir()] == ["a pipe"]


def test_the_standard_input_is_a_dash(monkeypatch):
    standard_input(monkeypatch, gzip.compress(TEXT))
    assert entries(Ratings.read("-")) == EXPECTED
    standard_input(monkeypatch, b"user,item\nann,film one\n")
    assert read_pairs("-").tolist() == [["ann", "film one"]]


def test_a_descriptor_is_read_like_process_substitution_gives_it(tmp_path):
    reading, writing = os.pipe()
    os.write(writing, TEXT)
    os.close(writing)
    try:
        assert entries(read_ratings(f"/dev/fd/{reading}")) == EXPECTED
    finally:
        os.close(reading)


def test_a_file_behind_a_descriptor_is_not_cached_either(tmp_path):
    file = tmp_path / "ratings.csv"
    file.write_bytes(TEXT)
    with file.open("rb") as stream:
        assert entries(read_ratings(f"/dev/fd/{stream.fileno()}")) == EXPECTED
    assert list(tmp_path.iterdir()) == [file]
    assert not is_stream(file)


def test_pairs_through_a_pipe(pipe):
    assert read_pairs(pipe(b"ann,film one\nbob,film two\n")).tolist() == [
        ["ann", "film one"], ["bob", "film two"]
    ]  # fmt: skip


def test_errors_name_where_it_came_from(monkeypatch, pipe):
    standard_input(monkeypatch, b"")
    with pytest.raises(RatingsFileError, match="standard input: is empty"):
        read_ratings("-")
    standard_input(monkeypatch, b"user,item,rating\nann,x,much\n")
    with pytest.raises(RatingsFileError, match=r"standard input, line 2|standard input:2"):
        read_ratings("-")
    path = pipe(TEXT * 100)
    with pytest.raises(RatingsFileError, match="a pipe"):
        read_ratings(path, limits=Limits(unpacked_bytes=1000))
