"""Triples in DuckDB: from lines and tables of any size to ids, codes and values.

Every line of a file becomes one row of the table ``triples``, also a line that is blank or wrong,
with the number of its problem; so the position of a row is the position of its line.  Ids become
codes, in the order of the ids, by SQL.  DuckDB works in parallel, and what does not fit into memory
goes to a temporary folder.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentous.io.optional import require
from momentous.lowrank.data.errors import Limits, RatingsFileError
from momentous.lowrank.data.formats import BYTE_ORDER_MARK, Columns, places

CHUNK = 1 << 23  # rows that are taken out of DuckDB at a time
SINGLE_FROM = 1 << 25  # values, from which on they are kept in float32 where that is exact
HAS_ZERO = "coalesce(contains(user, chr(0)) OR contains(item, chr(0)), false)"
NOT_UTF8 = "is not encoded as UTF-8; save it as UTF-8"


class Problem(enum.IntEnum):
    """What may be wrong with a line; the first two are not wrong."""

    BLANK = 1
    MOVIE = 2  # a line that says which movie the next ones are about
    FIELDS = 3
    QUOTES = 4
    JSON = 5
    RATING = 6
    NO_USER = 7
    LONG_USER = 8
    NO_ITEM = 9
    LONG_ITEM = 10
    ZERO = 11
    BAD_MOVIE = 12
    NO_MOVIE = 13
    ROW = 14
    COLUMN = 15


_WORDS = {
    Problem.QUOTES: "expected quotes that are closed, and a delimiter after them",
    Problem.JSON: "expected one JSON object per line",
    Problem.RATING: "expected a finite number as the rating",
    Problem.NO_USER: "expected the id of the user, which is empty",
    Problem.LONG_USER: "expected the id of the user, of at most {id_bytes} bytes (the limit can be "
    "raised with limits=Limits(id_bytes=...))",
    Problem.NO_ITEM: "expected the id of the item, which is empty",
    Problem.LONG_ITEM: "expected the id of the item, of at most {id_bytes} bytes (the limit can be "
    "raised with limits=Limits(id_bytes=...))",
    Problem.ZERO: "expected ids without zero bytes",
    Problem.BAD_MOVIE: "expected the number of a movie before ':'",
    Problem.NO_MOVIE: "expected a line 'movie:' before the first rating",
}


@dataclass(frozen=True)
class Scan:
    """How triples are read from some files or from a table.

    Attributes
    ----------
    name : str
        For messages.
    select : str
        A query with the columns ``user, item, rating`` and whatever ``fits`` and ``problem`` need,
        one row per line in their order; ids are texts, a rating is a text or a number.
    fits : str
        A condition for lines that are cut as they must be.
    problem : str
        For other lines, the number of the `Problem`; 0 where none is seen.
    files : tuple of (Path, str)
        The files and their names; empty for a table.
    skip : int
        Lines of each file that are left out at its beginning.
    words : dict
        What to say about problems of this scan, beside the general words.
    text_sides : frozenset of {"user", "item"}
        Ids that stay text although they may look like numbers, as the table says so.
    movies : bool
        Whether items stand in lines of their own, before those with their ratings.
    """

    name: str
    select: str
    fits: str = "true"
    problem: str = "0"
    files: tuple[tuple[Path, str], ...] = ()
    skip: int = 0
    words: dict[Problem, str] = field(default_factory=dict)
    text_sides: frozenset[str] = frozenset()
    movies: bool = False


@dataclass(frozen=True)
class Coded:
    """Triples with indices in place of ids, in the order of the lines."""

    rows: NDArray[np.int32]
    cols: NDArray[np.int32]
    values: NDArray[np.floating[Any]]
    row_ids: NDArray[Any]
    col_ids: NDArray[Any]


class Triples:
    """The triples read so far.

    Parameters
    ----------
    connection : DuckDB connection
    limits : Limits
    skip_bad : bool
        Leave out lines that are wrong, and count them in `skipped`, instead of raising an error.

    Attributes
    ----------
    count, skipped : int
        Good triples and bad lines so far.
    """

    def __init__(self, connection: Any, limits: Limits, skip_bad: bool = False):
        self.connection, self.limits, self.skip_bad = connection, limits, skip_bad
        self.count = self.skipped = 0
        self._text_sides: set[str] = set()
        self._movies = False
        self._total = 0  # rows of the table
        connection.execute(
            "CREATE TABLE triples (user VARCHAR, item VARCHAR, value DOUBLE, problem UTINYINT)"
        )

    def fetch(self, query: str) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        rows: list[tuple[Any, ...]] = self.connection.execute(query).fetchall()
        return rows

    def add(self, scan: Scan) -> None:
        """Add the triples of a file or a table; the first bad line is an error, or is counted."""
        before = self._total
        with duckdb_errors(scan.name):
            self.connection.execute(
                f"INSERT INTO triples SELECT user, item, value, {self._judge(scan)} "
                f"FROM (SELECT *, TRY_CAST(rating AS DOUBLE) AS value FROM ({scan.select}))"
            )
        self._text_sides |= scan.text_sides
        if scan.movies:
            self._movies = True
            self._judge_movies(before)
        rejected = self._rejected() if scan.files else 0
        total, good, bad, first = self.fetch(
            "SELECT count(*), count(*) FILTER (problem = 0), count(*) FILTER (problem > 2), "
            f"min(rowid) FILTER (problem > 2) FROM triples WHERE rowid >= {before}"
        )[0]
        if (bad or rejected) and not self.skip_bad:
            raise self._first_bad(scan, before, first)
        self._total += total
        self.count += good
        self.skipped += bad + rejected

    def _judge(self, scan: Scan) -> str:
        """What is wrong with a triple, as SQL; first the one question that nearly all pass."""
        most = self.limits.id_bytes
        sides = " ".join(
            f"WHEN {side} IS NULL OR {side} = '' THEN {Problem[f'NO_{side.upper()}']:d} "
            f"WHEN strlen({side}) > {most} THEN {Problem[f'LONG_{side.upper()}']:d}"
            for side in ("user", "item")
        )
        return (
            f"CASE WHEN ({scan.fits}) AND isfinite(value) AND strlen(user) BETWEEN 1 AND {most} "
            f"AND strlen(item) BETWEEN 1 AND {most} THEN 0 "
            f"WHEN ({scan.problem}) <> 0 THEN ({scan.problem}) {sides} ELSE {Problem.RATING:d} END"
        )

    def _rejected(self) -> int:
        """How many lines DuckDB could not decode."""
        rejected = self.fetch(
            "SELECT count(*) FROM (SELECT DISTINCT file_id, line FROM reject_errors)"
        )[0][0]
        self.connection.execute("DROP TABLE reject_errors; DROP TABLE reject_scans")
        return int(rejected)

    def _first_bad(self, scan: Scan, before: int, row: int | None) -> RatingsFileError:
        """The error for the first line that is wrong; without a row, it is one not in UTF-8."""
        problem = ""
        if row is not None:
            code, *shown = self.fetch(
                f"SELECT problem, user, item, value FROM triples WHERE rowid = {row}"
            )[0]
            words = {**_WORDS, **scan.words}[Problem(code)]
            problem = words.replace("{id_bytes}", str(self.limits.id_bytes))
        if not scan.files:
            assert row is not None
            content = ", ".join(map(str, shown))
            return RatingsFileError(scan.name, problem, row - before + 1, content)
        left = None if row is None else row - before
        for path, name in scan.files:
            with path.open("rb") as file:
                for number, raw in enumerate(file, 1):
                    if number <= scan.skip:
                        continue
                    line = raw.removeprefix(BYTE_ORDER_MARK) if number == 1 else raw
                    content = line.decode("utf-8", "replace").strip()
                    if not _is_utf8(line):
                        return RatingsFileError(name, NOT_UTF8, number, content)
                    if left == 0:
                        return RatingsFileError(name, problem, number, content)
                    left = None if left is None else left - 1
        return RatingsFileError(scan.name, problem or NOT_UTF8)

    # --- movies: ids that stand in a line of their own --------------------------------------------

    def _judge_movies(self, before: int) -> None:
        """Ratings before the first movie, or after one that is wrong, cannot be used."""
        rows, problems, _ = self._movie_lines(before)
        ends = [*rows[1:].tolist(), None]
        spans = [(before, int(rows[0]) if rows.size else None)]
        spans += [(int(rows[k]), ends[k]) for k in np.flatnonzero(problems == Problem.BAD_MOVIE)]
        for first, last in spans:
            self.connection.execute(
                f"UPDATE triples SET problem = {Problem.NO_MOVIE:d} "
                f"WHERE problem = 0 AND rowid >= {first}"
                + ("" if last is None else f" AND rowid < {last}")
            )

    def _movie_lines(self, before: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Rows, problems and numbers of the lines that name a movie."""
        found = self.connection.execute(
            "SELECT rowid AS row, problem, coalesce(TRY_CAST(item AS BIGINT), -1) AS movie "
            f"FROM triples WHERE rowid >= {before} "
            f"AND problem IN ({Problem.MOVIE:d}, {Problem.BAD_MOVIE:d}) ORDER BY rowid"
        ).fetchnumpy()
        return found["row"], found["problem"], found["movie"]

    # --- codes ------------------------------------------------------------------------------------

    def coded(self, dtype: Any = None) -> Coded:
        """All good triples, with ids numbered in their order: numbers by size, texts by letters.

        Parameters
        ----------
        dtype : float32 or float64, optional
            By default float64, and float32 for more than 2^25 (33 million) values that it holds
            exactly.
        """
        count = self.count
        if dtype is None:
            dtype = self._dtype(count)
        movies = self._movie_lines() if self._movies else None
        user = self._number("user")
        item = _Side(np.empty(0), "0") if movies else self._number("item")
        rows, cols = np.empty(count, np.int32), np.empty(count, np.int32)
        values, done = np.empty(count, dtype), 0
        for first in range(0, self._total, CHUNK):
            part = self.connection.execute(
                f"SELECT CAST(triples.rowid - {first} AS INTEGER) AS place, {user.column} AS user, "
                f"{item.column} AS item, value FROM triples {user.join} {item.join} "
                "WHERE problem = 0 "
                f"AND triples.rowid >= {first} AND triples.rowid < {first + CHUNK}"
            ).fetchnumpy()
            place, size = part["place"], part["place"].size
            at: Any = slice(done, done + size)
            if np.any(place[1:] < place[:-1]):
                # A join keeps no order: every triple goes back to the place of its line.
                there = np.zeros(min(CHUNK, self._total - first), bool)
                there[place] = True
                at = np.cumsum(there, dtype=np.int64)[place] - 1 + done
            rows[at], values[at] = user.codes(part["user"]), part["value"]
            cols[at] = (
                item.codes(part["item"])
                if movies is None
                else _latest(movies[0] - first, min(CHUNK, self._total - first), place)
            )
            done += size
        col_ids = item.ids
        if movies is not None:
            used = np.zeros(movies[0].size, bool)
            used[cols] = True
            col_ids = np.unique(movies[2][used])
            cols = np.searchsorted(col_ids, movies[2])[cols].astype(np.int32)
        return Coded(rows, cols, values, user.ids, col_ids)

    def _dtype(self, count: int) -> Any:
        if count <= SINGLE_FROM:
            return np.float64
        exact = self.fetch(
            "SELECT bool_and(abs(value) < 1e38 AND CAST(CAST(value AS FLOAT) AS DOUBLE) = value) "
            "FROM triples WHERE problem = 0"
        )[0][0]
        return np.float32 if exact else np.float64

    def _number(self, side: str) -> _Side:
        """Number the ids of a side in their order.

        They are whole numbers if every one is written as one, and texts otherwise: 7 is not 007.
        """
        execute = self.connection.execute
        execute(
            f"CREATE TABLE {side}_ids AS SELECT DISTINCT {side} AS id FROM triples "
            "WHERE problem = 0"
        )
        whole = (
            side not in self._text_sides
            and self.fetch(
                "SELECT bool_and(coalesce(CAST(TRY_CAST(id AS BIGINT) AS VARCHAR) = id, false)) "
                f"FROM {side}_ids"
            )[0][0]
        )
        key = "CAST(id AS BIGINT)" if whole else "id"
        found = execute(f"SELECT {key} AS id FROM {side}_ids ORDER BY {key}").fetchnumpy()["id"]
        ids = np.asarray(found, np.int64) if whole else np.array(found.tolist(), np.str_)
        if whole and int(ids[-1]) - int(ids[0]) < min(max(4 * self.count, 1 << 24), 2**31):
            place = f"CAST(CAST({side} AS BIGINT) - ({ids[0]}) AS INTEGER)"
            return _Side(ids, place, table=True)
        execute(
            f"CREATE TABLE {side}_codes AS SELECT id, "
            f"CAST(row_number() OVER (ORDER BY {key}) - 1 AS INTEGER) AS code FROM {side}_ids"
        )
        codes = f"{side}_codes"
        return _Side(ids, f"{codes}.code", f"JOIN {codes} ON triples.{side} = {codes}.id")


class _Side:
    """The ids of users or items in order, and how a triple comes to its code.

    By a join in DuckDB; whole numbers that lie close together by a table in memory, which is
    several times as fast.
    """

    def __init__(self, ids: NDArray[Any], column: str, join: str = "", table: bool = False):
        self.ids, self.column, self.join = ids, column, join
        self._codes: NDArray[np.int32] | None = None
        if table:
            self._codes = np.zeros(int(ids[-1] - ids[0]) + 1, np.int32)
            self._codes[ids - ids[0]] = np.arange(ids.size, dtype=np.int32)

    def codes(self, column: NDArray[Any]) -> NDArray[Any]:
        """The codes of some triples, from what DuckDB gave for them."""
        return column if self._codes is None else self._codes[column]


def _latest(movies: NDArray[Any], count: int, places: NDArray[Any]) -> NDArray[Any]:
    """Which of the movies, given by their places among so many lines, comes last before each."""
    bounds = np.clip(np.append(movies, count), 0, count)
    of_line = np.repeat(np.arange(movies.size, dtype=np.int32), np.diff(bounds))
    found: NDArray[Any] = of_line[places - bounds[0]]
    return found


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


@contextlib.contextmanager
def open_database(threads: int | None = None) -> Iterator[tuple[Any, Path]]:
    """A DuckDB connection and an empty folder, both gone in the end."""
    duckdb = require("duckdb", "app", "Reading a file or a table of ratings")
    with TemporaryDirectory(prefix="momentous-") as folder:
        spill = Path(folder) / "spill"
        settings: dict[str, Any] = {"temp_directory": str(spill)}
        if threads is not None:
            settings["threads"] = threads
        connection = duckdb.connect(":memory:", config=settings)
        try:
            (Path(folder) / "files").mkdir()
            yield connection, Path(folder) / "files"
        finally:
            connection.close()


@contextlib.contextmanager
def duckdb_errors(name: str, what: str = "cannot be read") -> Iterator[None]:
    """Errors of DuckDB become ours, in one line."""
    duckdb = require("duckdb", "app", "Reading a file or a table of ratings")
    try:
        yield
    except duckdb.Error as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise RatingsFileError(name, f"{what}: {reason[0]}") from error


def quoted_text(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def table_scan(
    connection: Any, query: str, name: str, columns: Columns | None = None, count: int = 3
) -> Scan:
    """Triples (with a count of 2, pairs) from the columns of any query, with their types.

    Whole numbers stay numbers and texts stay texts, whatever they look like; ids of other types
    (dates, UUIDs) become the text that DuckDB writes for them.
    """
    with duckdb_errors(name):
        described = connection.execute(f"DESCRIBE {query}").fetchall()
    names, types = [one[0] for one in described], [one[1] for one in described]
    chosen = places(name, columns, len(names), names, count)
    text_sides = set()
    exprs = []
    for side, k in zip(("user", "item"), chosen, strict=False):
        exprs.append(_id(names[k], types[k], name) + f" AS {side}")
        if types[k] == "VARCHAR" or types[k].startswith("ENUM"):
            text_sides.add(side)
    if count == 3:
        kind, rating = types[chosen[2]], _column(names[chosen[2]])
        if kind.split("(")[0] not in _NUMBERS:
            raise RatingsFileError(name, f"the ratings are of type {kind}; expected numbers")
        exprs.append(f"CAST({rating} AS DOUBLE) AS rating")
    else:
        exprs.append("0 AS rating")
    return Scan(
        name,
        f"SELECT {', '.join(exprs)} FROM ({query})",
        f"NOT {HAS_ZERO}",
        f"CASE WHEN {HAS_ZERO} THEN {Problem.ZERO:d} ELSE 0 END",
        text_sides=frozenset(text_sides),
    )


_WHOLE = {
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT",
    "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT",
}  # fmt: skip
_NUMBERS = _WHOLE | {"FLOAT", "DOUBLE", "DECIMAL"}
_NO_IDS = ("STRUCT", "MAP", "UNION", "BLOB", "BIT")


def _id(column: str, kind: str, name: str) -> str:
    """An id of any type as text."""
    if kind.startswith(_NO_IDS) or kind.endswith("]"):
        raise RatingsFileError(name, f"ids are of type {kind}; expected numbers or text")
    quoted = _column(column)
    if kind in ("FLOAT", "DOUBLE"):  # whole numbers in a column that has had holes
        return (
            f"CASE WHEN {quoted} = trunc({quoted}) AND abs({quoted}) < 9e18 "
            f"THEN CAST(CAST({quoted} AS BIGINT) AS VARCHAR) "
            f"WHEN isfinite({quoted}) THEN CAST({quoted} AS VARCHAR) END"
        )
    return f"CAST({quoted} AS VARCHAR)"


def _column(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
