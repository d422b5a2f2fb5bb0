"""All formats: how each is recognised and read.

A reader is one function and one entry in `FORMATS`.  It is given files and the `Work`, and gives
scans of their triples, which are then checked, numbered and sorted for all formats alike; the
reader of a matrix, which has a shape and no ids, gives the ratings themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from momentous.lowrank.data.errors import RatingsFileError
from momentous.lowrank.data.files.dialect import WHITESPACE, File
from momentous.lowrank.data.files.matrices import Outcome, read_matrix_market, read_npz
from momentous.lowrank.data.files.scans import Scan, Work
from momentous.lowrank.data.files.sources import NETFLIX
from momentous.lowrank.data.files.tables import parquet_scan
from momentous.lowrank.data.files.text import delimited_scan, json_scan, netflix_scans


@dataclass(frozen=True)
class Format:
    """A format and its reader: one of the two functions."""

    about: str  # for users
    scans: Callable[[list[File], Work], list[Scan]] | None = None
    matrix: Callable[[File, Work], Outcome] | None = None
    recognises: Callable[[File], bool] = lambda file: False  # or else it must be asked for
    pairs: bool = True  # can it hold users and items without ratings?
    is_fast: bool = False  # so that a cache gains nothing


def _is_netflix(file: File) -> bool:
    named = NETFLIX.fullmatch(file.inner_name)
    return bool(named) or any(re.fullmatch(r"\d+:", line) for line in file.head.lines)


def _is_json(file: File) -> bool:
    endings = (".jsonl", ".ndjson", ".json")
    return file.head.lines[0].startswith("{") or file.inner_name.endswith(endings)


def _is_matrix_market(file: File) -> bool:
    return file.inner_name.endswith(".mtx") or file.begin.lower().startswith(b"%%matrixmarket")


def _each(read: Callable[[File, Work], Scan]) -> Callable[[list[File], Work], list[Scan]]:
    """A reader of one file at a time."""
    return lambda files, work: [read(file, work) for file in files]


FORMATS = {
    "dat": Format(
        "user::item::rating::timestamp, as ratings.dat of MovieLens",
        _each(partial(delimited_scan, delimiter="::")),
    ),
    "csv": Format(
        "user,item,rating with or without a header, as ratings.csv of MovieLens",
        _each(partial(delimited_scan, delimiter=",")),
    ),
    "tsv": Format(
        "the same with tabs, as u.data of MovieLens", _each(partial(delimited_scan, delimiter="\t"))
    ),
    "space": Format("the same with spaces", _each(partial(delimited_scan, delimiter=WHITESPACE))),
    "parquet": Format(
        "Parquet with columns of users, items and ratings",
        _each(parquet_scan),
        recognises=lambda file: file.begin.startswith(b"PAR1"),
        is_fast=True,
    ),
    "npz": Format(
        "a matrix written by scipy.sparse.save_npz, or a cache (NAME.momentous.npz)",
        matrix=read_npz,
        recognises=lambda file: file.begin.startswith(b"PK"),
        is_fast=True,
    ),
    "mtx": Format(
        "a matrix in MatrixMarket's coordinate format",
        matrix=read_matrix_market,
        recognises=_is_matrix_market,
    ),
    "netflix": Format(
        "lines 'movie:' and 'user,rating,date', as combined_data_*.txt and mv_*.txt",
        netflix_scans,
        recognises=_is_netflix,
        pairs=False,
    ),
    "json": Format(
        "one JSON object per line, with keys for user, item and rating",
        _each(json_scan),
        recognises=_is_json,
    ),
}
"""What can be read, by the names that `read_ratings` takes; the first that recognises a file."""

TEXT = Format("lines with any delimiter", _each(delimited_scan))
KNOWN = "formats: " + "; ".join(f"{name} ({one.about})" for name, one in FORMATS.items())


def find_format(file: File) -> Format:
    """The format of a file, from its name and its beginning."""
    for one in FORMATS.values():
        if one.recognises(file):
            return one
    binary = b"\0" in file.begin and not file.begin.startswith((b"\xff\xfe", b"\xfe\xff"))
    if binary or file.inner_name.endswith((".parquet", ".npz")):
        raise RatingsFileError(file.name, f"is of no format known here; {KNOWN}")
    return TEXT
