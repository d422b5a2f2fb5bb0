"""Ratings from a file, a table or a query: the one front door."""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from momentous.io.archive import ArchiveError, is_archive
from momentous.lowrank.data.cache import KIND, Cache, read_cache
from momentous.lowrank.data.errors import Limits, RatingsFileError
from momentous.lowrank.data.formats import (
    DELIMITERS,
    FORMATS,
    Columns,
    checked_columns,
    find_dialect,
    find_format,
    take_sample,
)
from momentous.lowrank.data.matrices import matrix_market_scan, read_dense, read_npz
from momentous.lowrank.data.netflix import netflix_scan
from momentous.lowrank.data.progress import shown_progress
from momentous.lowrank.data.ratings import Ratings, make_ratings
from momentous.lowrank.data.sources import Source, find_sources
from momentous.lowrank.data.tables import (
    Scan,
    Triples,
    duckdb_errors,
    open_database,
    quoted_text,
    table_scan,
)
from momentous.lowrank.data.text import check_text, delimited_scan, json_scan, plain_name

_QUERY = re.compile(r"\s*(SELECT|WITH|FROM|ATTACH|INSTALL|LOAD)\s", re.IGNORECASE)
_ADDRESS = re.compile(r"(https?|s3|s3a|gs|gcs|r2|az|azure|abfss|hf|hdfs)://", re.IGNORECASE)


def read_ratings(
    source: Any,
    *,
    format: str | None = None,
    delimiter: str | None = None,
    columns: Columns | None = None,
    missing: float | None = None,
    skip_bad: bool = False,
    cache: bool = True,
    progress: bool | None = None,
    dtype: Any = None,
    threads: int | None = None,
    limits: Limits | None = None,
) -> Ratings:
    """Read ratings from a file, a table or a query.

    Ids may be numbers or any text, and are kept in `row_ids` and `col_ids`, sorted.  In a text file
    they are integers if every one in the column is written as an integer of 64 bits, without
    leading zeros, and strings otherwise; in a table they are what the table says.  A matrix (.mtx,
    .npz, dense) keeps its shape and has no ids; its row 1 is row 0 here.

    Parameters
    ----------
    source : path, list of paths, table or query
        A file, also compressed (.gz, .zip); a pattern (``ratings-*.csv``); a folder or a zip
        archive with the files of MovieLens or of the Netflix prize, or with parts of one table;
        ``archive.zip/member``; or a list, read in its order.

        A table of pandas, polars or Arrow, or anything else with ``__arrow_c_stream__``.

        A query in DuckDB's SQL, ``"SELECT user, item, rating FROM 'big.parquet' WHERE ..."``, with
        statements such as ATTACH before it, separated by semicolons; or an address (``s3://``,
        ``https://``), which is read as ``SELECT * FROM 'address'``.  What these need beyond files
        on the disk (SQLite, PostgreSQL, networks) are extensions that DuckDB fetches itself.
    format : str, optional
        One of `FORMATS`; by default recognised from the name and the first lines.
    delimiter : str, optional
        What stands between the fields of a text file; by default that of ``::``, tab, comma,
        semicolon, bar and spaces which cuts most of the first lines into equally many fields.
    columns : three names or numbers, optional
        Which columns are user, item and rating, by the names in the header or counted from 0.
        By default the header tells, or they are the first three.
    missing : float, optional
        What stands for "no rating" in a dense file, beside nothing and nan; by default 99 if all
        ratings lie between -10 and 10, as in the Jester data.
    skip_bad : bool, optional
        Skip lines that are malformed, with a warning that says how many.  By default the first
        one raises `RatingsFileError`.
    cache : bool, optional
        Keep what was read beside the file, as ``NAME.momentous.npz``, and use it the next time if
        the file still has the same size and time stamp.  (Not for .npz, Parquet, tables, queries.)
    progress : bool, optional
        Show a bar; by default for large files on a terminal.
    dtype : float32 or float64, optional
        Of the values; by default float64, and float32 for more than 33 million ratings that are
        exact in it.
    threads : int, optional
        How many DuckDB works with; by default all.
    limits : Limits, optional
        How much a file may ask for.

    Returns
    -------
    Ratings

    Raises
    ------
    RatingsFileError
        With the file, the line, and what was expected there.
    FileNotFoundError
    """
    if format is not None and format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; there are {', '.join(FORMATS)}")
    if columns is not None:
        columns = checked_columns(columns)
    if dtype is not None and np.dtype(dtype) not in (np.float32, np.float64):
        raise ValueError(f"ratings are kept in float32 or float64, not in {np.dtype(dtype)}")
    if threads is not None and threads < 1:
        raise ValueError(f"threads={threads} must be at least 1")
    if delimiter is not None and (not delimiter or set(delimiter) & set('"\n\r')):
        raise ValueError(f"delimiter={delimiter!r} must be a text without quotes and line ends")
    reader = _Reader(
        format, delimiter, columns, missing, skip_bad, progress, dtype, threads, limits or Limits()
    )
    if is_table(source) or is_query(source):
        ratings, notes = reader.read_table(source)
    else:
        ratings, notes = _read_cached(source, reader, cache)
    for note in notes:
        warnings.warn(note, RuntimeWarning, stacklevel=2)
    return ratings


def _read_cached(source: Any, reader: _Reader, cache: bool) -> tuple[Ratings, list[str]]:
    sources = find_sources(source)
    if not cache:
        return reader.read_files(sources)
    place = source if isinstance(source, str | os.PathLike) else source[0]
    kept = Cache(Path(place).expanduser(), sources, reader.key())
    found = kept.load()
    if found is not None:
        return found
    ratings, notes = reader.read_files(sources)
    if reader.worth_keeping:
        refusal = kept.save(ratings, notes)
        notes = [*notes, refusal] if refusal else notes
    return ratings, notes


def is_table(source: Any) -> bool:
    """Is this a table of pandas, polars, Arrow or the like?"""
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "iloc")


def is_query(source: Any) -> bool:
    """Is this SQL or an address, and not a path?"""
    return isinstance(source, str) and bool(
        _ADDRESS.match(source) or (_QUERY.match(source) and not Path(source).exists())
    )


@contextlib.contextmanager
def open_table(connection: Any, source: Any) -> Iterator[tuple[str, str]]:
    """A query for all rows of a table or a query, and its name for messages."""
    if is_table(source):
        name = f"the {type(source).__name__}"
        with duckdb_errors(name):
            connection.register("source_table", source)
        try:
            yield "SELECT * FROM source_table", name
        finally:
            connection.unregister("source_table")
        return
    if _ADDRESS.match(source):
        yield f"SELECT * FROM {quoted_text(source)}", source
        return
    with duckdb_errors("the query"):
        *before, last = connection.extract_statements(source)
        for statement in before:
            connection.execute(statement)
        if last.type.name != "SELECT":
            raise RatingsFileError("the query", "its last statement must be a SELECT")
    yield last.query.strip().rstrip(";"), "the query"


@dataclass
class _Reader:
    """What was asked for, and how it is done."""

    format: str | None
    delimiter: str | None
    columns: Columns | None
    missing: float | None
    skip_bad: bool
    progress: bool | None
    dtype: Any
    threads: int | None
    limits: Limits
    worth_keeping: bool = True  # whether a cache is any faster

    def key(self) -> dict[str, Any]:
        """All that the outcome depends on."""
        return {
            "format": self.format,
            "delimiter": self.delimiter,
            "columns": self.columns,
            "missing": self.missing,
            "skip_bad": self.skip_bad,
            "dtype": None if self.dtype is None else str(np.dtype(self.dtype)),
            "limits": vars(self.limits),
        }

    def read_table(self, source: Any) -> tuple[Ratings, list[str]]:
        """Ratings from a table or a query."""
        with open_database(self.threads) as (connection, _):
            triples = Triples(connection, self.limits, self.skip_bad)
            with open_table(connection, source) as (query, name):
                triples.add(table_scan(connection, query, name, self.columns))
            return self._finished(triples, name)

    def read_files(self, sources: list[Source]) -> tuple[Ratings, list[str]]:
        """Ratings from files, in their order."""
        total = sum(source.size for source in sources)
        shown = shown_progress(self.progress, sources[0].inner_name, total)
        with open_database(self.threads) as (connection, folder), shown as advance:
            plain = [(source, source.unpacked(folder, self.limits)) for source in sources]
            formats = [
                self.format or find_format(path, source.name, source.inner_name)
                for source, path in plain
            ]
            self.worth_keeping = not {"npz", "parquet"} & set(formats)
            alone = {"npz", "mtx", "dense"} & set(formats)
            if alone and len(sources) > 1:
                raise RatingsFileError(sources[0].name, "a matrix must be the only file to read")
            triples = Triples(connection, self.limits, self.skip_bad)
            name = sources[0].name
            if alone:
                result = self._matrix(formats[0], *plain[0], triples, folder)
            else:
                if set(formats) == {"netflix"}:
                    texts = [check_text(path, one.name, self.limits) for one, path in plain]
                    triples.add(netflix_scan(texts, folder, self.limits))
                elif "netflix" in formats:
                    raise RatingsFileError(
                        name, "files of the Netflix prize and others cannot be read together"
                    )
                else:
                    for (source, path), format_ in zip(plain, formats, strict=True):
                        triples.add(self._scan(format_, source, path, connection, folder))
                        advance(source.size)
                        total -= source.size
                result = self._finished(triples, name)
            advance(total)
            return result

    def _scan(
        self, format_: str, source: Source, path: Path, connection: Any, folder: Path
    ) -> Scan:
        """How a file of triples is read."""
        name = source.name
        if format_ == "parquet":
            query = f"SELECT * FROM read_parquet({quoted_text(str(plain_name(path, folder)))})"
            with duckdb_errors(name, "cannot be read as Parquet"):
                connection.execute(f"DESCRIBE {query}").fetchall()
            return table_scan(connection, query, name, self.columns)
        text = check_text(path, name, self.limits)
        sample = take_sample(path, name)
        if format_ == "json":
            return json_scan(text, sample, self.columns, folder, self.limits)
        delimiter = self.delimiter or DELIMITERS.get(format_)
        dialect = find_dialect(sample, delimiter, self.columns, self.limits)
        return delimited_scan(connection, text, dialect, folder, self.limits)

    def _matrix(
        self, format_: str, source: Source, path: Path, triples: Triples, folder: Path
    ) -> tuple[Ratings, list[str]]:
        """Ratings from a file that is a matrix."""
        name = source.name
        if format_ == "npz":
            if is_archive(path, KIND):
                try:
                    _, ratings, notes = read_cache(path)
                except ArchiveError as error:
                    raise RatingsFileError(name, f"cannot be read: {error}") from error
            else:
                ratings, notes = read_npz(path, name, self.limits)
            return self._as_asked(ratings, name), notes
        text = check_text(path, name, self.limits)
        if format_ == "mtx":
            scan, (rows, cols, entries) = matrix_market_scan(text, folder, self.limits)
            triples.add(scan)
            present = triples.count + triples.skipped
            if present != entries:
                raise RatingsFileError(name, f"promises {entries} entries and has {present}")
            return self._finished(triples, name, (rows, cols))
        sample = take_sample(path, name)
        delimiter = self.delimiter or find_dialect(sample, None, (0, 1, 2), self.limits).delimiter
        ratings, notes, skipped = read_dense(
            text, sample, delimiter, self.limits, self.missing, self.skip_bad
        )
        return self._as_asked(ratings, name), _skipped(name, skipped) + notes

    def _finished(
        self, triples: Triples, name: str, shape: tuple[int, int] | None = None
    ) -> tuple[Ratings, list[str]]:
        """Ratings from all triples; with a shape, ids are indices."""
        if not triples.count:
            raise RatingsFileError(name, "has no ratings, at most a header")
        with duckdb_errors(name):
            found = triples.coded(self._stored_dtype())
        notes = _skipped(name, triples.skipped)
        if shape is None:
            ratings, more = make_ratings(
                found.rows,
                found.cols,
                found.values,
                row_ids=found.row_ids,
                col_ids=found.col_ids,
            )
        else:
            rows, cols = found.row_ids[found.rows], found.col_ids[found.cols]
            ratings, more = make_ratings(rows, cols, found.values, shape)
        return self._as_asked(ratings, name), notes + more

    def _stored_dtype(self) -> Any:
        """Numbers are read in double precision, so that none becomes infinite unseen."""
        return None if self.dtype is None else np.float64

    def _as_asked(self, ratings: Ratings, name: str) -> Ratings:
        if self.dtype is None:
            return ratings
        if np.dtype(self.dtype) == np.float32:
            largest = float(np.abs(ratings.values).max())
            if largest > float(np.finfo(np.float32).max):
                raise RatingsFileError(
                    name, f"a rating of size {largest:g} does not fit into float32; read float64"
                )
        return ratings.astype(self.dtype)


def _skipped(name: str, count: int) -> list[str]:
    if not count:
        return []
    return [f"{name}: skipped {count} malformed {'line' if count == 1 else 'lines'}"]
