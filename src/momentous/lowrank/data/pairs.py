"""Pairs of ids from a file or a table: what to predict ratings for."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.data.errors import Limits, RatingsFileError
from momentous.lowrank.data.formats import (
    KNOWN,
    WHITESPACE,
    Columns,
    Dialect,
    Sample,
    check_columns,
    checked_columns,
    find_format,
    matching,
    places,
    split,
    take_sample,
)
from momentous.lowrank.data.read import is_query, is_table, open_table
from momentous.lowrank.data.sources import find_sources
from momentous.lowrank.data.tables import (
    Scan,
    Triples,
    duckdb_errors,
    open_database,
    quoted_text,
    table_scan,
)
from momentous.lowrank.data.text import check_text, delimited_scan, json_scan, plain_name

STANDARD_INPUT = "-"
_DELIMITERS = ("::", "\t", ";", ",", "|")


def read_pairs(
    source: Any, columns: Columns | None = None, limits: Limits | None = None
) -> NDArray[Any]:
    """A user and an item of every line, as text, in an array of shape (N, 2).

    Fields stand between ``::``, tabs, semicolons, commas, bars or spaces, whichever comes first in
    this list and is in the first line.  A first line with the names of columns is left out, and
    says which columns they are; without one they are the first two.

    Parameters
    ----------
    source : path, table or query
        A file, also compressed, in an archive, in JSON lines or Parquet; ``-``, the standard input;
        a table or a query as `read_ratings` takes them.
    columns : two names or numbers, optional
        Which columns are user and item, by the names in the header or counted from 0.
    limits : Limits, optional
        How much a file may ask for.
    """
    if columns is not None:
        columns = checked_columns(columns, 2)
    limits = limits or Limits()
    with open_database() as (connection, folder):
        triples = Triples(connection, limits)
        if is_table(source) or is_query(source):
            with open_table(connection, source) as (query, name):
                triples.add(table_scan(connection, query, name, columns, 2))
        else:
            path, name, inner_name = _local(source, folder, limits)
            triples.add(_scan(connection, path, name, inner_name, columns, folder, limits))
        with duckdb_errors(name):
            found = connection.execute(
                "SELECT user, item FROM triples WHERE problem = 0 ORDER BY rowid"
            ).fetchnumpy()
    if not found["user"].size:
        raise RatingsFileError(name, "has no pairs, at most a header")
    return np.array([found["user"].tolist(), found["item"].tolist()], np.str_).T


def _local(source: Any, folder: Path, limits: Limits) -> tuple[Path, str, str]:
    """A plain file on the disk, and its names."""
    if str(source) == STANDARD_INPUT:
        copy = folder / "standard-input"
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        return copy, "standard input", ""
    sources = find_sources(source)
    if len(sources) != 1:
        raise RatingsFileError(
            str(source), f"has {len(sources)} files; name the one with the pairs"
        )
    return sources[0].unpacked(folder, limits), sources[0].name, sources[0].inner_name


def _scan(
    connection: Any,
    path: Path,
    name: str,
    inner_name: str,
    columns: Columns | None,
    folder: Path,
    limits: Limits,
) -> Scan:
    with path.open("rb") as file:
        packed = file.read(4) == b"PAR1"
    if packed:
        query = f"SELECT * FROM read_parquet({quoted_text(str(plain_name(path, folder)))})"
        return table_scan(connection, query, name, columns, 2)
    text = check_text(path, name, limits)
    sample = take_sample(path, name)
    if find_format(path, name, inner_name) == "json":
        return json_scan(text, sample, columns, folder, limits, 2)
    return delimited_scan(connection, text, _pairs_dialect(sample, columns, limits), folder, limits)


def _pairs_dialect(sample: Sample, columns: Columns | None, limits: Limits) -> Dialect:
    """How the first line is written, and all others must be.

    Ids may be any text, so that only a name for users tells a header; items may well be called
    "book".
    """
    first = sample.lines[0]
    # A delimiter between quotes is a part of a name.
    bare = re.sub(r'"[^"]*"', "", first)
    delimiter = next((one for one in _DELIMITERS if one in bare), WHITESPACE)
    fields = split(first, delimiter)
    check_columns(len(fields), sample, limits)
    by_name = columns is not None and any(isinstance(one, str) for one in columns)
    names = fields if by_name or matching(fields, KNOWN[0]) else None
    if columns is None and len(fields) < 2:
        raise RatingsFileError(
            sample.name,
            "expected a user and an item in each line, but the first has one field",
            sample.numbers[0],
            first,
        )
    where = places(sample.name, columns, len(fields), names, 2)
    return Dialect(delimiter, len(fields), where, sample.numbers[0] - 1 + (names is not None))
