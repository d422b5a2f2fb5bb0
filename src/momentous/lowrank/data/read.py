"""Ratings, or pairs of ids, from a file, a table or a query: the one entry point."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    first_lines,
)
from momentous.lowrank.data.matrices import matrix_market_scan, read_dense, read_npz
from momentous.lowrank.data.numbers import read_numbers
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
from momentous.lowrank.data.text import check_text, delimited_scan, json_scan, netflix_scan

STANDARD_INPUT = "standard input"
LARGE = 1 << 25  # bytes; the reading of a smaller file is over at once
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
        ``https://``).  What these need beyond files on the disk are extensions of DuckDB.
    format : str, optional
        One of `FORMATS`; by default recognised from the name and the first lines.
    delimiter : str, optional
        By default that of ``::``, tab, comma, semicolon, bar and spaces which cuts most of the
        first lines into equally many fields.
    columns : three names or numbers, optional
        Which columns are user, item and rating, by the names in the header or counted from 0.
        By default the header tells, or they are the first three.
    missing : float, optional
        What stands for "no rating" in a dense file, beside nothing and nan; by default 99 if all
        ratings lie between -10 and 10, as in the Jester data.
    skip_bad : bool, optional
        Skip malformed lines, with a warning that says how many, instead of raising an error.
    cache : bool, optional
        Keep what was read beside the file, as ``NAME.momentous.npz``, and use it the next time if
        the file still has the same size and time stamp.  (Not for .npz, Parquet, tables, queries.)
    progress : bool, optional
        Say what is read; by default for large files on a terminal.
    dtype : float32 or float64, optional
        Of the values; by default float64, and float32 for more than 33 million ratings that are
        exact in it.
    threads : int, optional
        How many DuckDB works with; by default all.
    limits : Limits, optional
        How much a file may ask for.

    Raises
    ------
    RatingsFileError
        With the file, the line, and what was expected there.
    FileNotFoundError
    """
    if format is not None and format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; there are {', '.join(FORMATS)}")
    if dtype is not None and np.dtype(dtype) not in (np.float32, np.float64):
        raise ValueError(f"ratings are kept in float32 or float64, not in {np.dtype(dtype)}")
    if threads is not None and threads < 1:
        raise ValueError(f"threads={threads} must be at least 1")
    if delimiter is not None and (not delimiter or set(delimiter) & set('"\n\r')):
        raise ValueError(f"delimiter={delimiter!r} must be a text without quotes and line ends")
    options = _Options(
        format=format,
        delimiter=delimiter,
        columns=checked_columns(columns),
        missing=missing,
        skip_bad=skip_bad,
        dtype=None if dtype is None else str(np.dtype(dtype)),
        limits=limits or Limits(),
    )
    if _is_table(source) or _is_query(source):
        with (
            TemporaryDirectory(prefix="momentous-") as folder,
            open_database(Path(folder), None, threads) as connection,
        ):
            triples = Triples(connection, options.limits, skip_bad)
            with _open_table(connection, source) as (query, name):
                triples.add(table_scan(connection, query, name, options.columns))
            ratings, notes = _finished(triples, name, options)
    else:
        ratings, notes = _read_cached(source, options, cache, progress, threads)
    for note in notes:
        warnings.warn(note, RuntimeWarning, stacklevel=2)
    return ratings


def read_pairs(
    source: Any, columns: Columns | None = None, limits: Limits | None = None
) -> NDArray[Any]:
    """A user and an item of every line, as text, in an array of shape (N, 2).

    A first line with the names of columns is left out, and says which columns they are; without
    one they are the first two.

    Parameters
    ----------
    source : path, table or query
        As `read_ratings` takes them, but one file alone: text with a delimiter, JSON lines or
        Parquet; or ``-``, the standard input.
    columns : two names or numbers, optional
        Which columns are user and item, by the names in the header or counted from 0.
    limits : Limits, optional
        How much a file may ask for.
    """
    options = _Options(columns=checked_columns(columns, 2), limits=limits or Limits(), count=2)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="momentous-")))
        if _is_table(source) or _is_query(source):
            connection = stack.enter_context(open_database(folder))
            query, name = stack.enter_context(_open_table(connection, source))
            scan = table_scan(connection, query, name, options.columns, 2)
        else:
            file = _only_file(source, folder)
            name = STANDARD_INPUT if str(source) == "-" else file.name
            path = file.unpacked(folder, options.limits)
            connection = stack.enter_context(open_database(folder, path.stat().st_size))
            format_ = find_format(path, name, file.inner_name)
            scan = _scan(format_, name, path, connection, folder, options)
        Triples(connection, options.limits).add(scan)
        with duckdb_errors(name):
            found = connection.execute(
                "SELECT user, item FROM triples WHERE problem = 0 ORDER BY rowid"
            ).fetchnumpy()
    if not found["user"].size:
        raise RatingsFileError(name, "has no pairs, at most a header")
    return np.array([found["user"].tolist(), found["item"].tolist()], np.str_).T


def _only_file(source: Any, folder: Path) -> Source:
    if str(source) == "-":
        copy = folder / STANDARD_INPUT
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        return Source(copy)
    sources = find_sources(source)
    if len(sources) != 1:
        problem = f"has {len(sources)} files; name the one with the pairs"
        raise RatingsFileError(str(source), problem)
    return sources[0]


# --- tables and queries ---------------------------------------------------------------------------


def _is_table(source: Any) -> bool:
    """Is this a table of pandas, polars, Arrow or the like?"""
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "iloc")


def _is_query(source: Any) -> bool:
    """Is this SQL or an address, and not a path?"""
    return isinstance(source, str) and bool(
        _ADDRESS.match(source) or (_QUERY.match(source) and not Path(source).exists())
    )


@contextlib.contextmanager
def _open_table(connection: Any, source: Any) -> Iterator[tuple[str, str]]:
    """A query for all rows of a table or a query, and its name for messages."""
    if _is_table(source):
        name = f"the {type(source).__name__}"
        with duckdb_errors(name):
            connection.register("source_table", source)
        try:
            yield "SELECT * FROM source_table", name
        finally:
            connection.unregister("source_table")
    elif _ADDRESS.match(source):
        yield f"SELECT * FROM {quoted_text(source)}", source
    else:
        with duckdb_errors("the query"):
            *before, last = connection.extract_statements(source)
            for statement in before:
                connection.execute(statement)
            if last.type.name != "SELECT":
                raise RatingsFileError("the query", "its last statement must be a SELECT")
        yield last.query.strip().rstrip(";"), "the query"


# --- files ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Options:
    """All that the outcome depends on, as `read_ratings` explains it."""

    limits: Limits
    columns: Columns | None
    format: str | None = None
    delimiter: str | None = None
    missing: float | None = None
    skip_bad: bool = False
    dtype: str | None = None
    count: int = 3  # user, item and rating; or 2: user and item


def _read_cached(
    source: Any, options: _Options, cache: bool, progress: bool | None, threads: int | None
) -> tuple[Ratings, list[str]]:
    sources = find_sources(source)
    kept = None
    if cache:
        place = source if isinstance(source, str | os.PathLike) else source[0]
        key = {**vars(options), "limits": vars(options.limits)}
        kept = Cache(Path(place).expanduser(), sources, key)
        found = kept.load()
        if found is not None:
            return found
    size = sum(one.path.stat().st_size for one in sources)
    if progress or (progress is None and size >= LARGE and sys.stderr.isatty()):
        print(f"reading {sources[0].inner_name} ({size / 1e6:,.1f} MB)", file=sys.stderr)
    ratings, notes, worth_keeping = _read_files(sources, options, threads)
    refusal = kept.save(ratings, notes) if kept and worth_keeping else None
    return ratings, [*notes, refusal] if refusal else notes


def _read_files(
    sources: list[Source], options: _Options, threads: int | None
) -> tuple[Ratings, list[str], bool]:
    """Ratings from files, in their order; their warnings; and whether a cache is any faster."""
    limits, name = options.limits, sources[0].name
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="momentous-")))
        files = [(one.name, one.unpacked(folder, limits)) for one in sources]
        size = sum(path.stat().st_size for _, path in files)
        connection = stack.enter_context(open_database(folder, size, threads))
        formats = [
            options.format or find_format(path, name, one.inner_name)
            for one, (name, path) in zip(sources, files, strict=True)
        ]
        kinds = set(formats)
        if kinds & {"npz", "mtx", "dense"}:
            if len(files) > 1:
                raise RatingsFileError(name, "a matrix must be the only file to read")
            triples = Triples(connection, limits, options.skip_bad)
            ratings, notes = _read_matrix(formats[0], *files[0], triples, options)
        else:
            if kinds == {"netflix"}:
                texts = [check_text(path, name, limits) for name, path in files]
                scans = [netflix_scan(texts, limits)]
            elif "netflix" in kinds:
                problem = "files of the Netflix prize and others cannot be read together"
                raise RatingsFileError(name, problem)
            else:
                scans = [
                    _scan(format_, one, path, connection, folder, options)
                    for (one, path), format_ in zip(files, formats, strict=True)
                ]
            plans = [scan.numbers for scan in scans if scan.numbers is not None]
            whole = len(plans) == len(scans)
            coded = read_numbers(connection, plans, options.dtype) if whole else None
            if coded is not None:
                ratings, notes = make_ratings(*coded[:3], row_ids=coded[3], col_ids=coded[4])
                ratings = _as_asked(ratings, name, options)
            else:
                triples = Triples(connection, limits, options.skip_bad)
                for scan in scans:
                    triples.add(scan)
                ratings, notes = _finished(triples, name, options)
    return ratings, notes, not kinds & {"npz", "parquet"}


def _scan(
    format_: str, name: str, path: Path, connection: Any, folder: Path, options: _Options
) -> Scan:
    """How a file of triples, or of pairs, is read."""
    columns, limits, count = options.columns, options.limits, options.count
    if format_ == "parquet":
        query = f"SELECT * FROM read_parquet({quoted_text(str(path))})"
        with duckdb_errors(name, "cannot be read as Parquet"):
            connection.execute(f"DESCRIBE {query}")
        return table_scan(connection, query, name, columns, count)
    text = check_text(path, name, limits)
    head = first_lines(path, name)
    if format_ == "json":
        return json_scan(text, head, columns, limits, count)
    delimiter = options.delimiter or DELIMITERS.get(format_)
    dialect = find_dialect(head, delimiter, columns, limits, count)
    return delimited_scan(connection, text, dialect, folder, limits)


def _read_matrix(
    format_: str, name: str, path: Path, triples: Triples, options: _Options
) -> tuple[Ratings, list[str]]:
    """Ratings from a file that is a matrix."""
    limits = options.limits
    if format_ == "npz":
        if is_archive(path, KIND):
            try:
                _, ratings, notes = read_cache(path)
            except ArchiveError as error:
                raise RatingsFileError(name, f"cannot be read: {error}") from error
        else:
            ratings, notes = read_npz(path, name, limits)
        return _as_asked(ratings, name, options), notes
    text = check_text(path, name, limits)
    if format_ == "mtx":
        scan, (rows, cols, entries) = matrix_market_scan(text, limits)
        triples.add(scan)
        present = triples.count + triples.skipped
        if present != entries:
            raise RatingsFileError(name, f"promises {entries} entries and has {present}")
        return _finished(triples, name, options, (rows, cols))
    head = first_lines(path, name)
    delimiter = options.delimiter or find_dialect(head, None, (0, 1, 2), limits).delimiter
    ratings, notes, skipped = read_dense(
        text, head, delimiter, limits, options.missing, options.skip_bad
    )
    return _as_asked(ratings, name, options), _skipped(name, skipped) + notes


def _finished(
    triples: Triples, name: str, options: _Options, shape: tuple[int, int] | None = None
) -> tuple[Ratings, list[str]]:
    """Ratings from all triples; with a shape, ids are indices."""
    if not triples.count:
        raise RatingsFileError(name, "has no ratings, at most a header")
    with duckdb_errors(name):
        # In double precision where a dtype is asked for, so that none becomes infinite unseen.
        rows, cols, values, row_ids, col_ids = triples.coded(options.dtype and np.float64)
    if shape is None:
        ratings, notes = make_ratings(rows, cols, values, row_ids=row_ids, col_ids=col_ids)
    else:
        ratings, notes = make_ratings(row_ids[rows], col_ids[cols], values, shape)
    return _as_asked(ratings, name, options), _skipped(name, triples.skipped) + notes


def _as_asked(ratings: Ratings, name: str, options: _Options) -> Ratings:
    if options.dtype is None:
        return ratings
    largest = float(np.abs(ratings.values).max())
    if options.dtype == "float32" and largest > float(np.finfo(np.float32).max):
        problem = f"a rating of size {largest:g} does not fit into float32; read float64"
        raise RatingsFileError(name, problem)
    return ratings.astype(options.dtype)


def _skipped(name: str, count: int) -> list[str]:
    if not count:
        return []
    return [f"{name}: skipped {count} malformed {'line' if count == 1 else 'lines'}"]
