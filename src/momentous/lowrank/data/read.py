"""Ratings, or pairs of ids, from files, tables and queries: the entry points."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

import numpy as np
from numpy.typing import DTypeLike

from momentous.io.logs import notify
from momentous.io.types import AnyArray
from momentous.lowrank.checks import corrects_names, thread_count
from momentous.lowrank.data.errors import Limits, RatingsFileError
from momentous.lowrank.data.files.cache import Cache
from momentous.lowrank.data.files.database import open_database
from momentous.lowrank.data.files.dialect import PAIR, Columns, File, parse_columns
from momentous.lowrank.data.files.formats import FORMATS, find_format
from momentous.lowrank.data.files.queries import Query, Table, is_table, open_table
from momentous.lowrank.data.files.scans import (
    Coded,
    Options,
    Scan,
    Work,
    choose_precision,
    encode_ids,
    has_ids,
    read_triples,
    skipped_note,
)
from momentous.lowrank.data.files.sources import (
    Paths,
    Source,
    expand_home,
    find_sources,
    is_stream,
    receive,
)
from momentous.lowrank.data.files.text import delimited_scan
from momentous.lowrank.data.on_gpu import has_room, sorted_ratings
from momentous.lowrank.data.ratings import Ratings, Users, make_ratings, no_ratings, rating_dtype
from momentous.lowrank.data.sorting import sum_repeated

if TYPE_CHECKING:
    from typing_extensions import TypeIs

LOGGER = logging.getLogger("momentous.lowrank")
FOLDERS = "momentous-"  # how the names of folders for copies begin
LARGE_FILE_BYTES = 1 << 25  # the reading of a smaller file is over at once


class Reading(TypedDict, total=False):
    """Options of `read_ratings`."""

    format: str | None
    delimiter: str | None
    decimal: str
    columns: Columns | None
    skip_bad: bool
    cache: bool
    progress: bool | None
    dtype: DTypeLike | None
    threads: int | None
    limits: Limits | None
    device: str
    users: Users | None
    missing: Literal["error", "drop"]


@corrects_names
def read_ratings(
    source: Table | Query | Paths,
    *,
    format: str | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
    columns: Columns | None = None,
    skip_bad: bool = False,
    cache: bool = True,
    progress: bool | None = None,
    dtype: DTypeLike | None = None,
    threads: int | None = None,
    limits: Limits | None = None,
    device: str = "cpu",
    users: Users | None = None,
    missing: Literal["error", "drop"] = "error",
) -> Ratings:
    """Read ratings from a file or a table.

    Where there are two columns and no more, of users and items (clicks, plays, purchases), or two
    are asked for, the rating of a pair is how often it comes.

    Ids may be numbers or any text, and are kept in `row_ids` and `col_ids`, sorted.  In a text file
    they are integers if every one in the column is written as an integer of 64 bits, without
    leading zeros, and strings otherwise; in a table they are what the table says, and strings where
    a whole number does not fit into 64 bits with a sign.  A matrix (.mtx, .npz) keeps its shape and
    has no ids; its row 1 is row 0 here.

    Parameters
    ----------
    source : path, list of paths, or table
        A file, also compressed (.gz, .zip); a pattern (``ratings-*.csv``); a folder or a zip
        archive with the files of MovieLens or of the Netflix prize, or with parts of one table;
        ``archive.zip/member``; or a list, read in its order.  ``-`` is the standard input; it and
        pipes are read once, and not cached.

        A table of pandas, polars or Arrow, a relation of DuckDB, or anything else with
        ``__arrow_c_stream__``.

        ``~`` at the beginning is the home folder.  SQL is for `Ratings.query`; for
        addresses read what ``duckdb.sql(...)`` returns.
    format : str, optional
        One of `FORMATS`; by default recognised from the name and the first lines.
    delimiter : str, optional
        By default that of ``::``, tab, comma, semicolon, bar and spaces which cuts most of the
        first lines into equally many fields.
    decimal : {".", ","}
        What stands before the decimals of a rating in a text: "3,5" is a number with ",".
    columns : three names or numbers, or two, optional
        Which columns are user, item and rating, by the names in the header or counted from 0.
        By default the header tells, or they are the first three.  With two, user and item, pairs
        are counted.
    skip_bad : bool, optional
        Skip malformed lines, with a warning that says how many, instead of raising an error.
        Quotes that are not closed are errors still: they have swallowed good lines.
    cache : bool, optional
        Keep what was read beside the file, as ``NAME.momentous.npz``, and use it the next time if
        the file still has the same size and time stamp.  What has that name and is no such cache
        is never overwritten, and links are not followed.  (Not for .npz, Parquet, tables, queries.)
    progress : bool, optional
        Say what is read; by default for large files on a terminal.
    dtype : float32 or float64, optional
        Of the values; by default float64, and float32 for more than 33 million ratings that are
        exact in it.
    threads : int, optional
        How many DuckDB works with, at most 4 per core; by default one per core.
    limits : Limits, optional
        How much a file may ask for.
    device : {"cpu", "cuda"}
        Where ids that are numbers are looked up and ratings are sorted, if they fit; either way
        the ratings are the same.
    users : callable, optional
        Given an array of ids, says which of these users are read, by one flag each.  All items stay
        known, and nothing is cached.  Of several files one is held at a time.
    missing : {"error", "drop"}
        What to do with a row without a rating: one that is empty, NaN, NA or null.

    Raises
    ------
    RatingsFileError
        With the file, the line, and what was expected there.
    FileNotFoundError
    """
    if format is not None and format not in list(FORMATS):
        raise ValueError(f"unknown format {format!r}; there are {', '.join(FORMATS)}")
    if device not in ("cpu", "cuda"):
        raise ValueError(f"device={device!r} must be 'cpu' or 'cuda'")
    threads = None if threads is None else thread_count(threads)
    if delimiter is not None and not _is_delimiter(delimiter):
        raise ValueError(f"delimiter={delimiter!r} must be a text without quotes and line ends")
    if missing not in ("error", "drop"):
        raise ValueError(f"missing={missing!r} must be 'error' or 'drop'")
    if decimal not in (".", ","):
        raise ValueError(f"decimal={decimal!r} must be '.' or ','")
    for name, flag in (("skip_bad", skip_bad), ("cache", cache)):
        if not isinstance(flag, bool | np.bool_):
            raise TypeError(f"{name}={flag!r} must be True or False")
    if users is not None and not callable(users):
        raise TypeError(
            f"users={users!r:.60} must be a function that is given ids and says of each whether "
            "it is wanted, as in users=lambda ids: np.isin(ids, ['ann', 'bob'])"
        )
    names = parse_columns(columns)
    options = Options(
        format=format,
        delimiter=delimiter,
        decimal=decimal,
        columns=names,
        count=None if names is None else len(names),
        missing=missing,
        skip_bad=skip_bad,
        dtype=None if dtype is None else str(rating_dtype(dtype)),
        limits=_checked(limits),
    )
    if is_one_piece(source):
        with _work(options, threads) as work, open_table(work, source) as scan:
            ratings, notes = _make([scan], work, device, users)
    elif is_stream(source):
        with TemporaryDirectory(prefix=FOLDERS) as folder:
            sources = receive(source, Path(folder), options.limits)
            ratings, notes, _ = _read_files(sources, options, threads, device, users)
    else:
        how = threads, device, users
        ratings, notes = _read_cached(source, options, cache and users is None, progress, how)
    for note in notes:
        warnings.warn(note, RuntimeWarning, stacklevel=3)  # behind `corrects_names`
    return ratings


def _is_delimiter(text: object) -> bool:
    return isinstance(text, str) and bool(text) and not set(text) & set('"\n\r')


def _checked(limits: Limits | None) -> Limits:
    if not isinstance(limits, Limits | None):
        raise TypeError(f"limits={limits!r} must be Limits(...), as in Limits(line_bytes=1 << 24)")
    return limits or Limits()


def query_ratings(
    sql: str,
    tables: Mapping[str, Table | Paths] | None = None,
    **reading: Unpack[Reading],
) -> Ratings:
    """Ratings from a query in DuckDB's SQL.

    Its result is read as a table is: by the names of its columns, or by ``columns``.  The query
    reads its tables alone.  For other files, databases, addresses and extensions use DuckDB itself:
    ``Ratings.read(duckdb.sql(...))`` reads what it finds.

    Parameters
    ----------
    sql : str
        One SELECT: ``"SELECT user, item, stars AS rating FROM plays WHERE year > 2000"``.
    tables : mapping of names to paths or tables
        What the query may read, by the names that it uses: paths as `read_ratings` takes them, of
        CSV, JSON and Parquet, which DuckDB reads with the types that it finds in them; and tables
        of pandas, polars or Arrow.
    **reading
        Options of `read_ratings`: columns, skip_bad, dtype, threads, limits, device.

    Examples
    --------
    >>> import pandas
    >>> from momentous.lowrank import Ratings
    >>> plays = pandas.DataFrame({"who": ["ann", "bob", "ann"], "song": [1, 1, 2], "n": [3, 1, 9]})
    >>> Ratings.query("SELECT who AS user, song AS item, ln(n) AS rating FROM plays WHERE n > 1",
    ...               {"plays": plays})
    <Ratings 1 x 2, 2 entries (100.00%), float64>
    """
    named = {} if tables is None else tables
    texts = isinstance(named, Mapping) and all(isinstance(one, str) for one in (sql, *named))
    if not texts:
        raise TypeError(
            f"sql={sql!r:.60} must be a text and tables={tables!r:.60} a dict of names and what "
            'they stand for, as in Ratings.query("SELECT * FROM plays", {"plays": "plays.csv"})'
        )
    return read_ratings(Query(sql, named), **reading)


@corrects_names
def read_pairs(
    source: Table | Query | Paths, columns: Columns | None = None, limits: Limits | None = None
) -> AnyArray:
    """A user and an item of every line, as text, in an array of shape (N, 2).

    A first line with the names of columns is left out, and says which columns they are; without
    one they are the first two.

    Parameters
    ----------
    source : path or table
        As `read_ratings` takes them, but one file alone: text with a delimiter, JSON lines or
        Parquet; also a pipe, and ``-``, the standard input.
    columns : two names or numbers, optional
        Which columns are user and item, by the names in the header or counted from 0.
    limits : Limits, optional
        How much a file may ask for.
    """
    options = Options(columns=parse_columns(columns, (PAIR,)), limits=_checked(limits), count=PAIR)
    if not (is_one_piece(source) or is_stream(source)):
        source = find_sources(source)  # what is no path must not come near a database
    with _work(options) as work, contextlib.ExitStack() as stack:
        if is_one_piece(source):
            scan = stack.enter_context(open_table(work, source))
        else:
            file = _only_file(source, work.folder, options.limits)
            found = find_format(file)
            read = found.scans if found.pairs else None
            scan = read([file], work)[0] if read else delimited_scan(file, work)
        pairs = read_triples(scan, work)
    if not pairs.value.size:
        raise RatingsFileError(scan.name, "has no pairs, at most a header")
    sides = encode_ids([pairs.user]), encode_ids([pairs.item])
    return np.array([ids.astype(np.str_)[codes] for codes, ids in sides]).T


@contextlib.contextmanager
def _work(options: Options, threads: int | None = None) -> Iterator[Work]:
    with (
        TemporaryDirectory(prefix=FOLDERS) as folder,
        open_database(Path(folder), threads) as connection,
    ):
        yield Work(connection, Path(folder), options)


def _only_file(source: Paths, folder: Path, limits: Limits) -> File:
    sources = receive(source, folder, limits) if is_stream(source) else find_sources(source)
    if len(sources) != 1:
        problem = f"has {len(sources)} files; name the one with the pairs"
        raise RatingsFileError(str(source), problem)
    return sources[0].unpacked(folder, limits)


def is_one_piece(source: object) -> TypeIs[Table | Query]:
    """Is this a table or a query, and not files?"""
    return isinstance(source, Query) or is_table(source)


# --- files ----------------------------------------------------------------------------------------


def _read_cached(
    source: Paths,
    options: Options,
    cache: bool,
    progress: bool | None,
    how: tuple[int | None, str, Users | None],
) -> tuple[Ratings, list[str]]:
    sources = find_sources(source)
    kept = None
    if cache:
        given = source if isinstance(source, str | os.PathLike | Source) else source[0]
        place = given.path if isinstance(given, Source) else expand_home(given)
        kept = Cache(place, sources, {**vars(options), "limits": vars(options.limits)})
        found = kept.load()
        if found is not None:
            return found
    size = sum(one.path.stat().st_size for one in sources)
    if progress or (progress is None and size >= LARGE_FILE_BYTES):
        text = f"reading {sources[0].inner_name} ({size / 1e6:,.1f} MB)"
        notify(LOGGER, text, always=bool(progress))
    ratings, notes, worth_keeping = _read_files(sources, options, *how)
    refusal = kept.save(ratings, notes) if kept and worth_keeping else None
    return ratings, [*notes, refusal] if refusal else notes


def _read_files(
    sources: list[Source],
    options: Options,
    threads: int | None,
    device: str,
    users: Users | None,
) -> tuple[Ratings, list[str], bool]:
    """Ratings from files, in their order; their warnings; and whether a cache is any faster."""
    with _work(options, threads) as work:
        files = [one.unpacked(work.folder, options.limits) for one in sources]
        asked = FORMATS[options.format] if options.format else None
        formats = [asked or find_format(file) for file in files]
        slow = not any(one.is_fast for one in formats)
        for one in formats:
            if one.matrix is not None:
                if len(files) > 1:
                    problem = "a matrix must be the only file to read"
                    raise RatingsFileError(files[0].name, problem)
                ratings, notes = one.matrix(files[0], work)
                if users is not None:
                    ratings = ratings.of_users(users)
                return _convert(ratings, files[0].name, options.dtype), notes, slow
        scans: list[Scan] = []
        for _, group in groupby(zip(formats, files, strict=True), lambda pair: id(pair[0])):
            same, some = zip(*group, strict=True)
            scans += same[0].scans(list(some), work)
        if len(scans) > 1 and any(scan.movie for scan in scans):
            problem = "files of the Netflix prize and others cannot be read together"
            raise RatingsFileError(files[0].name, problem)
        return *_make(scans, work, device, users), slow


def _make(
    scans: list[Scan], work: Work, device: str, chosen: Users | None
) -> tuple[Ratings, list[str]]:
    """Ratings from all triples; of pairs that come more than once, the last, or where there are no
    ratings how often they come."""
    name, dtype, are_pairs = scans[0].name, work.options.dtype, scans[0].are_pairs
    for scan in scans:
        if scan.are_pairs is not are_pairs:
            problem = f"has {'' if are_pairs else 'no '}ratings, in contrast to {name}"
            raise RatingsFileError(scan.name, problem)
    parts = [read_triples(scan, work).of_users(chosen) for scan in scans]
    kinds = {part.user.ids.dtype.kind for part in parts if isinstance(part.user, Coded)}
    if chosen is not None and len(kinds) > 1:
        # Together they are texts: whether a user is chosen was asked of a number, and 7 is not "7".
        parts = [read_triples(scan, work) for scan in scans]
    skipped = sum(part.skipped for part in parts)
    users, items = [part.user for part in parts], [part.item for part in parts]
    value = parts[0].value
    if len(parts) > 1:
        value = np.concatenate([part.value for part in parts])
    del parts
    if not any(map(has_ids, items)):
        raise RatingsFileError(name, "has no ratings, at most a header")
    numbers = [[one for one in side if isinstance(one, np.ndarray)] for side in (users, items)]
    are_numbers = len(numbers[0]) == len(users) and len(numbers[1]) == len(items)
    if device == "cuda" and are_numbers and not are_pairs and has_room(value.size):
        user, item = (np.concatenate(side) for side in numbers)
        ratings, notes = sorted_ratings(user, item, value, dtype)
    else:
        (rows, row_ids), (cols, col_ids) = encode_ids(users), encode_ids(items)
        if are_pairs:
            rows, cols, value = sum_repeated(rows, cols, value)
        # In double precision where a dtype is asked for, so that none becomes infinite unseen.
        value = choose_precision(value, dtype and np.float64)
        if not value.size:  # none of the users is chosen
            empty = no_ratings(row_ids[:0], col_ids)
            return _convert(empty, name, dtype), skipped_note(name, skipped)
        ratings, notes = make_ratings(rows, cols, value, ids=(row_ids, col_ids))
    if chosen is not None:
        ratings = ratings.of_users(chosen)
    return _convert(ratings, name, dtype), skipped_note(name, skipped) + notes


def _convert(ratings: Ratings, name: str, dtype: str | None) -> Ratings:
    if dtype is None:
        return ratings
    largest = float(np.abs(ratings.values).max(initial=0.0))
    if dtype == "float32" and largest > float(np.finfo(np.float32).max):
        problem = f"a rating of size {largest:g} does not fit into float32; read float64"
        raise RatingsFileError(name, problem)
    return ratings.astype(dtype)
