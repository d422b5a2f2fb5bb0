"""Triples in DuckDB: from lines and tables of any size to ids, codes and values.

Every line of a file becomes one row of the table ``triples``, also a line that is blank or wrong,
with the number of its problem; so the position of a row is the position of its line.  Ids become
codes, in the order of the ids, by SQL.  DuckDB works in parallel, and what does not fit into memory
goes to a temporary folder.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from momentous.io.optional import require
from momentous.io.types import AnyArray, FloatClass, Integers
from momentous.lowrank.data.dialect import BYTE_ORDER_MARK, Columns, File, places
from momentous.lowrank.data.errors import Limits, RatingsFileError
from momentous.lowrank.data.numbers import SINGLE_FROM, Coded, Numbers, are_close

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection

Row = tuple[Any, ...]  # type: ignore[explicit-any]  # as DuckDB gives it
CHUNK = 1 << 23  # rows that are taken out of DuckDB at a time
FEW = 1 << 12  # rows
SMALL = 1 << 22  # bytes of files that share a database
NOT_UTF8 = "is not encoded as UTF-8; save it as UTF-8"

# Numbers in the column ``problem``; further ones are those of the checks, in their order.
GOOD, BLANK, MOVIE, NO_MOVIE, FIRST_CHECK = range(5)
HAS_ZERO = "coalesce(contains(user, chr(0)) OR contains(item, chr(0)), false)"
NO_ZERO = (HAS_ZERO, "expected ids without zero bytes")


@dataclass(frozen=True)
class Options:
    """All that the outcome depends on, as `read_ratings` explains it."""

    limits: Limits
    columns: Columns | None
    format: str | None = None
    delimiter: str | None = None
    missing: float | None = None
    skip_bad: bool = False
    dtype: str | None = None
    count: int = 3  # user, item and rating; or 2: user and item


@dataclass(frozen=True)
class Work:
    """What every reader is given beside the files."""

    connection: Connection
    folder: Path  # for copies, empty before and gone afterwards
    options: Options
    known: str = ""  # which formats there are, for messages


@dataclass(frozen=True)
class Scan:
    """How triples are read from some files or from a table."""

    name: str  # for messages
    select: str
    """A query with the columns ``user, item, rating`` and whatever conditions need, one row per
    line in their order.  Ids are texts; a rating is a text or a number."""
    fits: str
    """A condition that holds for nearly all lines; none of the checks holds where it does."""
    checks: tuple[tuple[str, str | int], ...]
    """For other lines: conditions, the first of which counts, and what is wrong where one holds;
    BLANK and MOVIE are not wrong."""
    files: tuple[tuple[Path, str], ...] = ()  # and their names; none for a table
    skip: int = 0  # lines of each file that are left out at its beginning
    text_sides: frozenset[str] = frozenset()
    """Of "user" and "item" those that stay text although they may look like numbers."""
    movies: bool = False
    """Items stand in lines of their own, which have no user, before those with their ratings."""
    numbers: Numbers | None = None  # a faster way, which may turn out not to be one


class _Side(NamedTuple):
    """The ids of users or items in order, and how a triple comes to its code.

    By a join in DuckDB; whole numbers that lie close together by a table in memory, which is
    several times as fast; a few of any kind by a dictionary, because every query takes a while.
    """

    ids: AnyArray
    column: str
    join: str = ""
    table: NDArray[np.int32] | dict[str, int] | None = None

    def codes(self, column: AnyArray) -> list[int] | Integers:
        if isinstance(self.table, dict):
            return [self.table[one] for one in column.tolist()]
        return column if self.table is None else self.table[column]


class Triples:
    """The triples read so far.

    With ``skip_bad``, lines that are wrong are left out and counted instead of raising an error.
    """

    def __init__(self, connection: Connection, limits: Limits, skip_bad: bool = False):
        self.connection, self.limits, self.skip_bad = connection, limits, skip_bad
        self.count = self.skipped = 0  # good triples and bad lines
        self._text_sides: set[str] = set()
        self._movies = False
        self._total = 0  # rows of the table
        connection.execute(
            "CREATE TEMP TABLE triples (user VARCHAR, item VARCHAR, value DOUBLE, problem UTINYINT)"
        )

    def _fetch(self, query: str) -> list[Row]:
        return self.connection.execute(query).fetchall()

    def add(self, scan: Scan) -> None:
        """Add the triples of a file or a table; the first bad line is an error, or is counted."""
        before, checks = self._total, self._checks(scan)
        with duckdb_errors(scan.name):
            self.connection.execute(
                f"INSERT INTO triples SELECT user, item, value, {self._judge(scan, checks)} "
                f"FROM (SELECT *, TRY_CAST(rating AS DOUBLE) AS value FROM ({scan.select}))"
            )
        self._text_sides |= scan.text_sides
        if scan.movies:
            self._movies = True
            self._judge_movies(before)
        rejected = self._count_rejected() if scan.files else 0
        total, good, bad, first = self._fetch(
            f"SELECT count(*), count(*) FILTER (problem = {GOOD}), "
            f"count(*) FILTER (problem > {MOVIE}), min(rowid) FILTER (problem > {MOVIE}) "
            f"FROM triples WHERE rowid >= {before}"
        )[0]
        if (bad or rejected) and not self.skip_bad:
            raise self._first_bad(scan, checks, before, first)
        self._total += total
        self.count += good
        self.skipped += bad + rejected

    def _checks(self, scan: Scan) -> list[tuple[str, str | int]]:
        """The checks of a scan, and those of all."""
        checks, most = list(scan.checks), self.limits.id_bytes
        for side in ("user", "item"):
            expected = f"expected the id of the {side}, "
            limit = f"of at most {most} bytes (the limit can be raised with limits=Limits("
            checks.append((f"{side} IS NULL OR {side} = ''", expected + "which is empty"))
            checks.append((f"strlen({side}) > {most}", f"{expected}{limit}id_bytes=...))"))
        return [*checks, ("true", "expected a finite number as the rating")]

    def _judge(self, scan: Scan, checks: list[tuple[str, str | int]]) -> str:
        """What is wrong with a triple, as SQL; first the one question that nearly all pass."""
        most = self.limits.id_bytes
        cases = " ".join(
            f"WHEN {condition} THEN {what if isinstance(what, int) else number}"
            for number, (condition, what) in enumerate(checks, FIRST_CHECK)
        )
        return (
            f"CASE WHEN ({scan.fits}) AND isfinite(value) AND strlen(user) BETWEEN 1 AND {most} "
            f"AND strlen(item) BETWEEN 1 AND {most} THEN {GOOD} {cases} END"
        )

    def _count_rejected(self) -> int:
        """How many lines DuckDB could not decode."""
        lines = "SELECT DISTINCT file_id, line FROM reject_errors"
        rejected = self._fetch(f"SELECT count(*) FROM ({lines})")[0][0]
        self.connection.execute("DROP TABLE reject_errors; DROP TABLE reject_scans")
        return int(rejected)

    def _first_bad(
        self, scan: Scan, checks: list[tuple[str, str | int]], before: int, row: int | None
    ) -> RatingsFileError:
        """The error for the first line that is wrong; without a row, it is one not in UTF-8."""
        problem = NOT_UTF8
        if row is not None:
            code, *shown = self._fetch(
                f"SELECT problem, user, item, value FROM triples WHERE rowid = {row}"
            )[0]
            problem = "expected a line 'movie:' before the first rating"
            if code != NO_MOVIE:
                problem = str(checks[code - FIRST_CHECK][1])
            if not scan.files:
                content = ", ".join(map(str, shown))
                return RatingsFileError(scan.name, problem, row - before + 1, content)
        lines = 0  # seen, all of which are rows
        for path, name in scan.files:
            with path.open("rb") as file:
                for number, raw in enumerate(file, 1):
                    if number <= scan.skip:
                        continue
                    line = raw.removeprefix(BYTE_ORDER_MARK) if number == 1 else raw
                    content = line.decode("utf-8", "replace").strip()
                    if "\ufffd" in content and not _is_utf8(line):
                        return RatingsFileError(name, NOT_UTF8, number, content)
                    if row is not None and lines == row - before:
                        return RatingsFileError(name, problem, number, content)
                    lines += 1
        return RatingsFileError(scan.name, problem)

    # --- movies: ids that stand in a line of their own --------------------------------------------

    def _judge_movies(self, before: int) -> None:
        """Ratings before the first movie, or after one that is wrong, cannot be used."""
        rows, problems, _ = self._movie_lines(before)
        begins, ends = [before, *rows.tolist()], [*rows.tolist(), 2**62]
        for begin, end, problem in zip(begins, ends, [NO_MOVIE, *problems.tolist()], strict=True):
            if problem != MOVIE and begin < end:
                self.connection.execute(
                    f"UPDATE triples SET problem = {NO_MOVIE} "
                    f"WHERE problem = {GOOD} AND rowid >= {begin} AND rowid < {end}"
                )

    def _movie_lines(self, before: int = 0) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Rows, problems and numbers of the lines that name a movie."""
        found = self.connection.execute(
            "SELECT rowid AS row, problem, coalesce(TRY_CAST(item AS BIGINT), -1) AS movie "
            f"FROM triples WHERE rowid >= {before} AND user IS NULL ORDER BY rowid"
        ).fetchnumpy()
        return found["row"], found["problem"], found["movie"]

    # --- codes ------------------------------------------------------------------------------------

    def coded(self, dtype: DTypeLike | None = None) -> Coded:
        """Rows, columns and values of the good triples in the order of the lines, and the two ids.

        Ids are numbered in their order: numbers by size, texts by letters.  Without a ``dtype``,
        values are float64, and float32 where they are more than `SINGLE_FROM` and exact in it.
        """
        total = self._total
        values = np.empty(total, self._dtype() if dtype is None else dtype)
        rows, cols = np.full(total, -1, np.int32), np.zeros(total, np.int32)
        user = self._number("user")
        item = _Side(np.empty(0), "0") if self._movies else self._number("item")
        for first in range(0, total, CHUNK):
            part = self.connection.sql(
                f"SELECT triples.rowid AS row, {user.column} AS user, {item.column} AS item, value "
                f"FROM triples {user.join} {item.join} WHERE problem = {GOOD} "
                f"AND triples.rowid >= {first} AND triples.rowid < {first + CHUNK}"
            ).fetchnumpy()
            row = part["row"]  # a join keeps no order
            rows[row], cols[row] = user.codes(part["user"]), item.codes(part["item"])
            values[row] = part["value"]
        col_ids = item.ids
        if self._movies:
            lines, _, movies = self._movie_lines()
            of_line = np.repeat(np.arange(lines.size), np.diff(lines, append=total))
            cols[lines[0] :] = of_line
            used = np.bincount(cols[rows >= 0], minlength=lines.size) > 0
            col_ids = np.unique(movies[used])
            cols = np.searchsorted(col_ids, movies)[cols].astype(np.int32)
        if self.count < total:
            good = rows >= 0
            rows, cols, values = rows[good], cols[good], values[good]
        return Coded(rows, cols, values, user.ids, col_ids)

    def _dtype(self) -> FloatClass:
        if self.count <= SINGLE_FROM:
            return np.float64
        exact = self._fetch(
            "SELECT bool_and(abs(value) < 1e38 AND CAST(CAST(value AS FLOAT) AS DOUBLE) = value) "
            f"FROM triples WHERE problem = {GOOD}"
        )[0][0]
        return np.float32 if exact else np.float64

    def _number(self, side: str) -> _Side:
        """Number the ids of a side in their order.

        They are whole numbers if every one is written as one, and texts otherwise: 7 is not 007.
        """
        distinct = f"SELECT DISTINCT {side} AS id FROM triples WHERE problem = {GOOD}"
        if self._total < FEW:
            texts = [one for (one,) in self._fetch(distinct)]
            whole = side not in self._text_sides and all(map(is_plain_number, texts))
            places = sorted((int(one) if whole else one, one) for one in texts)
            ids = np.array([key for key, _ in places], np.int64 if whole else np.str_)
            return _Side(ids, side, table={one: k for k, (_, one) in enumerate(places)})
        codes, is_number = f"{side}_codes", "coalesce(CAST(number AS VARCHAR) = id, false)"
        wanted = "false" if side in self._text_sides else f"bool_and({is_number}) OVER ()"
        self.connection.execute(
            f"CREATE TEMP TABLE {codes} AS SELECT *, CAST(row_number() OVER "
            "(ORDER BY CASE WHEN whole THEN number END, id) - 1 AS INTEGER) AS code "
            f"FROM (SELECT *, {wanted} AS whole FROM (SELECT id, TRY_CAST(id AS BIGINT) AS number "
            f"FROM ({distinct})))"
        )
        found = self.connection.sql(f"SELECT id, number, whole FROM {codes} ORDER BY code")
        columns = found.fetchnumpy()
        whole = bool(columns["whole"][0])
        key, kind = ("number", np.int64) if whole else ("id", np.str_)
        ids = np.array(columns[key].tolist(), kind)
        if whole and are_close(int(ids[0]), int(ids[-1]), self.count):
            table = np.zeros(int(ids[-1] - ids[0]) + 1, np.int32)
            table[ids - ids[0]] = np.arange(ids.size, dtype=np.int32)
            place = f"CAST(CAST({side} AS BIGINT) - ({ids[0]}) AS INTEGER)"
            return _Side(ids, place, table=table)
        return _Side(ids, f"{codes}.code", f"JOIN {codes} ON triples.{side} = {codes}.id")


def is_plain_number(text: str) -> bool:
    """Is this a whole number of 64 bits, as DuckDB would write it?"""
    plain = re.fullmatch("0|-?[1-9][0-9]{0,18}", text)
    return plain is not None and -(2**63) <= int(text) < 2**63


def skipped_note(name: str, count: int) -> list[str]:
    """What to say of bad lines that were left out."""
    lines = "line" if count == 1 else "lines"
    return [f"{name}: skipped {count} malformed {lines}"] if count else []


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- DuckDB itself --------------------------------------------------------------------------------


# Nothing is downloaded or loaded because of what a file is called, and no variable of Python is a
# table because of its name.
_CLOSED = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}


@contextlib.contextmanager
def open_database(
    folder: Path, size: int | None = None, threads: int | None = None
) -> Iterator[Connection]:
    """A connection to DuckDB for files of so many bytes, with no tables before and after.

    To start DuckDB takes longer than to read a small file: such files share a database, which
    works in one thread.  Large ones, and queries of unknown size, have a database of their own,
    which puts what does not fit into memory into the folder.
    """
    if size is not None and size < SMALL:
        with _shared_database(os.getpid()).cursor() as connection:
            yield connection
    else:
        settings = {**_CLOSED, "temp_directory": str(folder / "spill")}
        if threads is not None:
            settings["threads"] = str(threads)
        with _duckdb().connect(":memory:", config=settings) as connection:
            yield connection


@functools.cache
def _shared_database(process: int) -> Connection:
    """One per process: a child must not go on with that of its parent."""
    settings = {**_CLOSED, "threads": "1", "temp_directory": ""}
    connection: Connection = _duckdb().connect(":memory:", config=settings)
    return connection


def _duckdb() -> ModuleType:
    return require("duckdb", "app", "Reading a file or a table of ratings")


@contextlib.contextmanager
def duckdb_errors(name: str, what: str = "cannot be read") -> Iterator[None]:
    """Errors of DuckDB become ours, in one line."""
    try:
        yield
    except _duckdb().Error as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise RatingsFileError(name, f"{what}: {reason[0]}") from error


def quoted_text(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def quoted_name(name: str) -> str:
    """The name of a table or a column as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def read_files(function: str, paths: list[Path], *options: str) -> str:
    """A function of DuckDB that reads files, as SQL.

    DuckDB would take the name of a folder, ``rating=99``, for a column of all files below it.
    """
    names = ", ".join(quoted_text(str(path)) for path in paths)
    return f"{function}({', '.join([f'[{names}]', *options, 'hive_partitioning = false'])})"


# --- tables with typed columns --------------------------------------------------------------------

_INTEGERS = {
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER",
    "UBIGINT", "UHUGEINT",
}  # fmt: skip
_SMALL_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"}
_SINGLE = {"TINYINT", "SMALLINT", "UTINYINT", "USMALLINT", "FLOAT"}  # float32 has them all
_NUMBERS = {*_INTEGERS, "FLOAT", "DOUBLE", "DECIMAL"}
_ROUNDS = {"FLOAT": "16777216", "DOUBLE": "9007199254740992"}  # whole numbers from here on
_NO_IDS, _TEXTS = ("STRUCT", "MAP", "UNION", "BLOB", "BIT"), ("VARCHAR", "ENUM")


def parquet_scans(files: list[File], work: Work) -> list[Scan]:
    """Triples, or pairs, from Parquet files."""
    scans = []
    for file in files:
        query = f"SELECT * FROM {read_files('read_parquet', [file.path])}"
        if file.rows is not None:
            numbered = read_files("read_parquet", [file.path], "file_row_number = true")
            query = (
                f"SELECT * EXCLUDE (file_row_number) FROM {numbered} "
                f"WHERE file_row_number >= {file.rows[0]} AND file_row_number < {file.rows[1]}"
            )
        with duckdb_errors(file.name, "cannot be read as Parquet"):
            work.connection.execute(f"DESCRIBE {query}")
        scans.append(table_scan(query, file.name, work))
    return scans


def table_scan(query: str, name: str, work: Work) -> Scan:
    """Triples (with a count of 2, pairs) from the columns of any query, with their types.

    Whole numbers stay numbers and texts stay texts, whatever they look like; ids of other types
    (dates, UUIDs) become the text that DuckDB writes for them.
    """
    count = work.options.count
    table = f"({query}\n)"  # it may end in a comment
    with duckdb_errors(name):
        described = work.connection.execute(f"DESCRIBE {query}").fetchall()
    names, types = [one[0] for one in described], [one[1] for one in described]
    chosen = places(name, work.options.columns, len(names), names, count)
    quoted = [quoted_name(names[k]) for k in chosen]
    kinds = [types[k] for k in chosen]
    rating = "0"
    if count == 3:
        if kinds[2].split("(")[0] not in _NUMBERS:
            raise RatingsFileError(name, f"the ratings are of type {kinds[2]}; expected numbers")
        rating = f"CAST({quoted[2]} AS DOUBLE)"
    user, item = (_id(quoted[k], kinds[k], name) for k in (0, 1))
    rounded = [f"abs({quoted[k]}) >= {_ROUNDS[kinds[k]]}" for k in (0, 1) if kinds[k] in _ROUNDS]
    text = {s for s, k in zip(("user", "item"), kinds, strict=False) if k.startswith(_TEXTS)}
    plan = None
    if count == 3 and set(kinds[:2]) <= _INTEGERS:
        # In few bytes where these hold all numbers of the type: that is read several times faster.
        users, items = (
            f"CAST({one} AS {'INTEGER' if kind in _SMALL_INTEGERS else 'BIGINT'})"
            for one, kind in zip(quoted[:2], kinds[:2], strict=True)
        )
        value = f"CAST({quoted[2]} AS FLOAT)" if kinds[2] in _SINGLE else rating
        plan = Numbers(f"SELECT {users} AS user, {items} AS item, {value} AS value FROM {table}")
    return Scan(
        name,
        f"SELECT {user} AS user, {item} AS item, {rating} AS rating, "
        f"coalesce({' OR '.join(rounded) or 'false'}, false) AS rounded FROM {table}",
        f"NOT rounded AND NOT {HAS_ZERO}",
        (
            ("rounded", "expected ids as integers or text: floats of this size merge neighbours"),
            NO_ZERO,
        ),
        text_sides=frozenset(text),
        numbers=plan,
    )


def _id(column: str, kind: str, name: str) -> str:
    """An id of any type as text."""
    if kind.startswith(_NO_IDS) or kind.endswith("]"):
        raise RatingsFileError(name, f"ids are of type {kind}; expected numbers or text")
    if kind not in ("FLOAT", "DOUBLE"):
        return f"CAST({column} AS VARCHAR)"
    return (  # whole numbers in a column that has had holes
        f"CASE WHEN {column} = trunc({column}) AND abs({column}) < {_ROUNDS[kind]} "
        f"THEN CAST(CAST({column} AS BIGINT) AS VARCHAR) "
        f"WHEN isfinite({column}) THEN CAST({column} AS VARCHAR) END"
    )
