"""Triples read by DuckDB: rows with their ids numbered, or the first row that is wrong.

DuckDB's own reader cuts lines into fields and keeps those that it cannot cut, with their place in
the file; one condition in SQL then judges all rows, and a row that is wrong has no value.  Why
it is wrong, and in which line, is asked only where there is such a row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from momentous.io.optional import require
from momentous.io.types import AnyArray, Integers
from momentous.lowrank.data.errors import Limits, RatingsFileError
from momentous.lowrank.data.files.database import (
    duckdb_errors,
    quoted_text,
    read_files,
)
from momentous.lowrank.data.files.dialect import (
    BYTE_ORDER_MARK,
    COLONS,
    PAIR,
    TRIPLE,
    Columns,
    has_quotes,
)
from momentous.lowrank.data.ratings import Users, choose_users

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection
    from duckdb import DuckDBPyRelation as Relation
    from pyarrow import Array as ArrowArray

BUFFER_BYTES = 1 << 25  # that DuckDB reads at a time
NUMBER_BYTES = 20  # of the longest whole number of 64 bits
SINGLE_FROM = 1 << 25  # values, from which on they are kept in float32 where that is exact
SINGLE_MOST = 1e38
NO_MOVIE_LINE, BAD_MOVIE = -2, -1  # in place of items

TOO_LONG = "LINE SIZE OVER MAXIMUM"  # in DuckDB's words
NOT_UTF8 = "is not encoded as UTF-8; save it as UTF-8"
QUOTES = "expected quotes that are closed, and a delimiter after them: close or remove them"
NO_MOVIE = "expected a line 'movie:' before the first rating"
NUMBER = "expected a finite number as the rating"
COMMA_NUMBER = "expected a number with a decimal comma as the rating, as decimal=',' says"
COMMA_HINT = "; for decimal commas take decimal=','"
NO_CELL = "\x01nothing\x01"  # DuckDB takes '' for null unless another text means null
NO_RATING = ("", "na", "nan", "null")  # in small letters, what stands for none in a text
MISSING_HINT = "; rows without a rating are left out by missing='drop'"
BLANKS = " \t"  # that do not belong to a field of text; other spaces may be an id


@dataclass(frozen=True)
class Options:
    """All that the outcome depends on, as `read_ratings` explains it."""

    limits: Limits
    columns: Columns | None
    format: str | None = None
    delimiter: str | None = None
    decimal: str = "."
    skip_bad: bool = False
    dtype: str | None = None
    count: int | None = None
    """How many columns: 3, user, item and rating; 2, user and item; None: 2 where there are no
    more, and else 3."""
    missing: str = "error"  # what to do with a row without a rating; or "drop"

    def count_of(self, fields: int) -> int:
        """How many of so many columns are read."""
        return self.count or (PAIR if fields == PAIR else TRIPLE)


@dataclass(frozen=True)
class Work:
    """What every reader is given beside the files."""

    connection: Connection
    folder: Path  # for copies, empty before and gone afterwards
    options: Options


@dataclass(frozen=True)
class Lines:
    """Files of text, as DuckDB cuts their lines into the columns ``c0``, ``c1``, ..."""

    paths: tuple[Path, ...]
    names: tuple[str, ...]  # of the files, for messages
    fields: int = 1
    delimiter: str = ""  # none: a line is one field
    skip: int = 0  # lines of each file that are left out at its beginning
    pads: bool = False  # may a line have fewer fields, which are NULL then?
    expected: str = ""  # what a line must be, for messages

    @property
    def has_quotes(self) -> bool:
        """May fields be quoted?"""
        return has_quotes(self.delimiter)

    def sql(self, limits: Limits) -> str:
        """The table of all lines that are not blank."""
        columns = ", ".join(f"'c{k}': 'VARCHAR'" for k in range(self.fields))
        quote = quoted_text('"' if self.has_quotes else "")
        longest = max(path.stat().st_size for path in self.paths)
        return read_files(
            "read_csv",
            list(self.paths),
            f"auto_detect = false, header = false, columns = {{{columns}}}, skip = {self.skip}, "
            f"delim = {quoted_text(self.delimiter)}, quote = {quote}, escape = {quote}, "
            f"compression = 'none', strict_mode = true, null_padding = {self.pads}, "
            f"nullstr = {quoted_text(NO_CELL)}, store_rejects = true, rejects_limit = 0, "
            f"max_line_size = {limits.line_bytes}, "
            f"buffer_size = {max(4 * limits.line_bytes, min(BUFFER_BYTES, longest))}",
        )


class IdColumn(NamedTuple):
    """The ids of users, or of items, as SQL."""

    text: str
    number: str | None = None
    """As a whole number of 64 bits, NULL where it is not written as one; tried first."""
    stays_text: bool = False  # even if all are written as whole numbers
    strips: bool = False  # are `BLANKS` around it left out?


class RatingColumn(NamedTuple):
    """The ratings, as SQL."""

    number: str  # NULL where there is none
    text: str = "NULL"  # as the file has it
    expected: str = NUMBER  # what it must be, for messages
    is_missing: str = "false"  # has the row none, a condition that is never NULL

    def problem(self, text: str | None, *, is_missing: bool) -> str:
        """What is wrong with one that is no number."""
        if is_missing:
            return self.expected + MISSING_HINT
        has_comma = re.fullmatch(r"[+-]?\d[\d.]*,\d+(e[+-]?\d+)?", (text or "").strip(), re.I)
        return self.expected + (COMMA_HINT if has_comma and self.expected == NUMBER else "")


ONE_EACH = RatingColumn("CAST(1 AS DOUBLE)")  # of pairs


@dataclass(frozen=True)
class Scan:
    """How triples are read from some files or from a table."""

    name: str  # for messages
    source: Lines | str  # a file of text, or a query
    user: IdColumn
    item: IdColumn
    rating: RatingColumn
    checks: tuple[tuple[str, str], ...] = ()
    """What may be wrong with a row: a condition, which is never NULL, and what to say."""
    where: str = "true"  # which rows of the source there are
    movie: bool = False
    """Items stand in rows of their own before those with their ratings; they are numbers."""
    are_pairs: bool = False
    """Are there no ratings?  Each row counts 1 then."""

    def rows(self, limits: Limits) -> str:
        """The query for all rows, with what conditions need."""
        source = self.source.sql(limits) if isinstance(self.source, Lines) else self.source
        columns = [
            f"{self.user.text} AS user, {self.item.text} AS item, {self.rating.number} AS rating"
        ]
        columns += [
            f"{column.number} AS {side}_number"
            for side, column in (("user", self.user), ("item", self.item))
            if column.number is not None
        ]
        right = [f"NOT ({when})" for when, _ in self.checks]
        columns += [f"{' AND '.join([self.rating.is_missing, *right])} AS missing"]
        columns += [f"{when} AS wrong{k}" for k, (when, _) in enumerate(self.checks)]
        if isinstance(self.source, Lines):
            columns += [f"c{k}" for k in range(self.source.fields)]
        return f"SELECT {', '.join(columns)} FROM {source} WHERE {self.where}"

    def triples(self, numbers: Set[str], options: Options) -> str:
        """The query for ids and values, and for rows to leave out; what is wrong has no value."""
        limits = options.limits
        conditions, chosen = [f"NOT wrong{k}" for k in range(len(self.checks))], []
        for side in ("user", "item"):
            is_number = side in numbers
            chosen.append(f"{side}_number AS {side}" if is_number else side)
            if is_number and limits.id_bytes < NUMBER_BYTES:
                conditions.append(f"strlen({side}) <= {limits.id_bytes}")
        value = f"CASE WHEN {' AND '.join(conditions)} THEN rating END" if conditions else "rating"
        if options.missing == "drop":
            chosen.append("missing")
        return f"SELECT {', '.join(chosen)}, {value} AS value FROM ({self.rows(limits)})"

    def strip(self, side: str, text: str) -> str:
        """The id of a user, or an item, as it is kept."""
        return text.strip(BLANKS) if getattr(self, side).strips else text

    def id_problem(self, side: str, text: str | None, limits: Limits) -> str | None:
        """What is wrong with an id."""
        if not text:
            return f"expected the id of the {side}, which is empty"
        if len(text.encode()) > limits.id_bytes:
            return (
                f"expected the id of the {side}, of at most {limits.id_bytes} bytes (the limit can "
                "be raised with limits=Limits(id_bytes=...))"
            )
        if "\0" in text:
            return "expected ids without zero bytes"
        runs_on = isinstance(self.source, Lines) and self.source.delimiter == "::"
        if runs_on and text[0] == ":" and getattr(self, side).text != "c0":
            return COLONS
        return None

    def problem(self, row: int, connection: Connection, limits: Limits) -> tuple[str, str]:
        """What is wrong with a row, and what it has."""
        # No field that `triples` has not read: in one of these a character that is not UTF-8 would
        # take its line out, and the next row would have this number.
        read = [
            "user",
            "item",
            "rating",
            "missing",
            *(f"wrong{k}" for k in range(len(self.checks))),
        ]
        read += ["item_number"] if self.movie else []
        rows = f"SELECT {', '.join(read)}, {self.rating.text} AS rated FROM ({self.rows(limits)})"
        found = connection.execute(f"{rows} LIMIT 1 OFFSET {row}")
        names = [one[0] for one in found.description]
        cells = dict(zip(names, found.fetchall()[0], strict=True))
        shown = ", ".join(str(cells[name]) for name in ("user", "item", "rating"))
        problems = [say for k, (_, say) in enumerate(self.checks) if cells[f"wrong{k}"]]
        if self.movie and cells["item_number"] == BAD_MOVIE:
            problems = ["expected the number of a movie before ':'"]
        problems += [
            told
            for side in ("user", "item")
            if (told := self.id_problem(side, self.strip(side, cells[side] or ""), limits))
        ]
        rating = self.rating.problem(cells["rated"], is_missing=cells["missing"])
        if cells["rating"] is not None and math.isfinite(cells["rating"]):
            problems.append(NO_MOVIE)
        return [*problems, rating][0], shown


class Coded(NamedTuple):
    """A column of ids: the place of each row's among the different ones, which are in order."""

    codes: NDArray[np.int32]
    ids: AnyArray


Ids = AnyArray | Coded  # whole numbers as they are read, or any ids


class Triples(NamedTuple):
    """What a scan has given, in its order, without what was wrong."""

    user: Ids
    item: Ids
    value: AnyArray
    skipped: int  # rows and lines that were wrong
    missing: int = 0  # rows without a rating that were left out

    def of_users(self, chosen: Users | None) -> Triples:
        """Those of some users, or of all; the ids of the others stay known."""
        if chosen is None:
            return self
        (rows, users), (cols, items) = encode_ids([self.user]), encode_ids([self.item])
        own = choose_users(chosen, users)[rows]
        sides = Coded(rows[own], users), Coded(cols[own], items)
        return Triples(*sides, self.value[own], self.skipped, self.missing)


class Reject(NamedTuple):
    """A line that DuckDB could not cut into fields."""

    file: int  # which of the scan
    place: int  # in the file, in bytes
    kinds: list[str]  # of errors, in DuckDB's words
    is_open: bool  # it goes on in the next lines, as one with a quote that is never closed does


# --- reading --------------------------------------------------------------------------------------


def read_triples(scan: Scan, work: Work) -> Triples:
    """The triples of a scan; the first line that is wrong is an error, or all of them are skipped.

    Ids are first tried as whole numbers where they look like that, which is fastest; where some
    are not, they are texts.
    """
    sides = {"user": scan.user, "item": scan.item}
    numbers = {side for side, one in sides.items() if one.number is not None}
    limits = work.options.limits
    while True:
        with duckdb_errors(scan.name):
            query = work.connection.sql(scan.triples(numbers, work.options))
            columns = _fetch(query, sides.keys() - numbers)
            rejects = _find_rejects(scan, work.connection)
        values = columns["value"].to_numpy(zero_copy_only=False)  # NaN where there is none
        is_good = np.isfinite(values)
        ids: dict[str, AnyArray] = {}
        texts: dict[str, list[str]] = {}
        for side in sides:
            if side in numbers:
                ids[side] = columns[side].fill_null(0).to_numpy(zero_copy_only=False)
            else:
                ids[side], texts[side], is_id = _texts(scan, side, columns[side], limits)
                is_good &= is_id
        is_bad = ~is_good
        if scan.movie:
            movies = columns["item"].to_numpy()
            each = ids["item"] = _movie_of_each(movies)
            is_good &= each != BAD_MOVIE
            is_bad = ~is_good & (movies < 0)
        if "missing" in columns:
            is_missing = columns["missing"].to_numpy(zero_copy_only=False)
            is_good, is_bad = is_good & ~is_missing, is_bad & ~is_missing
        holes = {side for side in numbers if _has_holes(columns[side], is_good)}
        if not holes:
            break
        numbers -= holes
    is_wrong = bool(rejects) or is_bad.any()
    if is_wrong and not work.options.skip_bad:
        raise _first_error(scan, is_bad, rejects, work)
    if any(one.is_open for one in rejects):  # it has swallowed good lines: they are not skipped
        raise _first_error(
            scan, np.zeros_like(is_bad), [one for one in rejects if one.is_open], work
        )
    skipped = len(rejects) + int(np.count_nonzero(is_bad))
    missing = int(np.count_nonzero(is_missing)) if "missing" in columns else 0
    if not is_good.all():
        ids, values = {side: one[is_good] for side, one in ids.items()}, values[is_good]
    user, item = (
        _coded(ids[side], texts[side], one.stays_text) if side in texts else ids[side]
        for side, one in sides.items()
    )
    return Triples(user, item, values, skipped, missing)


def _fetch(relation: Relation, texts: Set[str]) -> dict[str, ArrowArray]:
    """The columns of a query as arrays of Arrow; of texts every different one comes once."""
    arrow = require("pyarrow", "app", "Reading ratings")
    parts: dict[str, list[ArrowArray]] = {name: [] for name in relation.columns}
    reader = arrow.RecordBatchReader.from_stream(relation)
    for batch in reader:
        for name, column in zip(parts, batch.columns, strict=True):
            parts[name].append(column.dictionary_encode() if name in texts else column)
    found = {}
    for name, chunks in parts.items():
        kind = reader.schema.field(name).type
        kind = arrow.dictionary(arrow.int32(), kind) if name in texts else kind
        found[name] = arrow.chunked_array(chunks, kind).unify_dictionaries().combine_chunks()
    return found


def _texts(
    scan: Scan, side: str, column: ArrowArray, limits: Limits
) -> tuple[Integers, list[str], NDArray[np.bool_]]:
    """A column of ids that are texts: where each row's is among the different ones, these, and
    which rows have one that is right."""
    texts = [scan.strip(side, one) for one in column.dictionary.to_pylist()]
    is_id = np.array([scan.id_problem(side, one, limits) is None for one in texts] + [False])
    codes = column.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
    return codes, texts, is_id[codes]


def _has_holes(column: ArrowArray, rows: NDArray[np.bool_]) -> bool:
    """Has one of these rows no number?"""
    return bool(column.null_count) and bool(
        np.any(column.is_null().to_numpy(zero_copy_only=False) & rows)
    )


def _movie_of_each(movies: Integers) -> Integers:
    """The movie of each row: the last one that was named."""
    lines = np.flatnonzero(movies != NO_MOVIE_LINE)
    each = np.full(movies.size, BAD_MOVIE, np.int64)
    if lines.size:
        each[lines[0] :] = np.repeat(movies[lines], np.diff(lines, append=movies.size))
    return each


def _coded(codes: Integers, texts: list[str], stays_text: bool) -> Coded:
    """Ids that are texts, of which rows may use some: whole numbers if all of these are written
    so, and are not to stay texts."""
    used = np.flatnonzero(np.bincount(codes, minlength=len(texts)))
    texts = [texts[k] for k in used]
    whole = not stays_text and all(map(is_plain_number, texts))
    ids = np.array(list(map(int, texts)) if whole else texts)
    ids = ids.astype(np.int64 if whole else np.str_, copy=False)
    ids, places = np.unique(ids, return_inverse=True)  # some may differ by blanks alone
    place_of = np.zeros(int(used.max(initial=0)) + 1, np.int32)
    place_of[used] = places
    return Coded(place_of[codes], ids)


# --- what is wrong --------------------------------------------------------------------------------


def _find_rejects(scan: Scan, connection: Connection) -> list[Reject]:
    """The lines that DuckDB could not cut in its last scan, but for blank ones."""
    any_of_them = "SELECT 1 FROM reject_errors LIMIT 1"  # nearly always there are none
    if isinstance(scan.source, str) or not connection.execute(any_of_them).fetchall():
        return []
    found = connection.execute(
        "SELECT file_path, line_byte_position - 1, list(DISTINCT error_type), shown FROM "
        "(SELECT *, trim(csv_line, chr(9) || chr(10) || chr(13) || ' ') AS shown "
        "FROM reject_errors JOIN reject_scans USING (scan_id, file_id) "
        "WHERE scan_id = (SELECT max(scan_id) FROM reject_scans)) WHERE shown <> '' GROUP BY ALL"
    ).fetchall()
    files = {str(path): k for k, path in enumerate(scan.source.paths)}
    has_quotes = scan.source.has_quotes
    return [
        Reject(
            files[path],
            place,
            kinds,
            "\n" in line or (TOO_LONG in kinds and has_quotes and '"' in line),
        )
        for path, place, kinds, line in found
    ]


def _first_error(
    scan: Scan, is_bad: NDArray[np.bool_], rejects: list[Reject], work: Work
) -> RatingsFileError:
    """The error for the first line, or row, that is wrong."""
    row, limits = int(np.argmax(is_bad)) if is_bad.any() else None, work.options.limits
    if isinstance(scan.source, str):
        assert row is not None
        problem, shown = scan.problem(row, work.connection, limits)
        return RatingsFileError(scan.name, problem, row + 1, shown)
    rows = 0
    for k, (path, name) in enumerate(zip(scan.source.paths, scan.source.names, strict=True)):
        first = min((one for one in rejects if one.file == k), default=None, key=lambda r: r.place)
        with path.open("rb") as file:
            for number, end, line in _records(file, scan.source):
                is_rejected = first is not None and first.place < end
                if not is_rejected and rows != row:
                    rows += 1
                    continue
                content = line.decode("utf-8", "replace").strip()
                if first is not None and is_rejected:
                    return _reject_error(first, name, number, content, scan.source, limits)
                problem, _ = scan.problem(rows, work.connection, limits)
                if scan.source.delimiter == "::" and ":::" in content:
                    problem = COLONS
                return RatingsFileError(name, problem, number, content)
    return RatingsFileError(scan.name, scan.source.expected)


def _reject_error(
    reject: Reject, name: str, line: int, content: str, source: Lines, limits: Limits
) -> RatingsFileError:
    problem = source.expected
    if "INVALID ENCODING" in reject.kinds:
        problem = NOT_UTF8
    elif "UNQUOTED VALUE" in reject.kinds or reject.is_open:
        problem = QUOTES
    elif source.delimiter == "::" and ":::" in content:
        problem = COLONS
    elif TOO_LONG in reject.kinds:
        problem = f"has a line of more than {limits.line_bytes:,} bytes"
        return limits.exceeded("line_bytes", name, problem, line, content)
    return RatingsFileError(name, problem, line, content)


def _records(file: BinaryIO, source: Lines) -> Iterator[tuple[int, int, bytes]]:
    """Number, end in bytes and text of the first line of each row of a file."""
    mark = re.escape(source.delimiter.encode())
    closed = re.compile(rb'(^|%s) *"(?:[^"]|"")*"' % mark)
    opened = re.compile(rb'(^|%s) *"' % mark)
    end, record = 0, b""
    for number, line in enumerate(file, 1):
        end += len(line)
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        if number <= source.skip or (not record and not line.strip()):
            continue
        if not record:
            yield number, end, line
        if source.has_quotes and (record or b'"' in line):  # does the row go on in the next line?
            record += line
            if not opened.search(closed.sub(b"", record)):
                record = b""


# --- codes ----------------------------------------------------------------------------------------


def encode_ids(columns: list[Ids]) -> tuple[NDArray[np.int32], AnyArray]:
    """The place of each id among all different ones, and those in order.

    They are whole numbers if every one is written as one, and texts otherwise: 7 is not 007.
    """
    parts = [_encode(one) for one in columns]
    if len(parts) == 1:
        return parts[0]
    kind = np.str_ if any(ids.dtype.kind == "U" for _, ids in parts) else np.int64
    own = [ids.astype(kind) for _, ids in parts]
    every = np.unique(np.concatenate(own))
    places = [np.searchsorted(every, ids).astype(np.int32) for ids in own]
    codes = [place[codes] for place, (codes, _) in zip(places, parts, strict=True)]
    return np.concatenate(codes), every


def _encode(column: Ids) -> tuple[NDArray[np.int32], AnyArray]:
    return column if isinstance(column, Coded) else number_ids(column)


def has_ids(column: Ids) -> bool:
    """Has a column rows, or had it some before users were chosen?"""
    return (column.ids if isinstance(column, Coded) else column).size > 0


def number_ids(numbers: Integers, xp: ModuleType = np) -> tuple[NDArray[np.int32], Integers]:
    """The place of each whole number among all different ones, and those in order; by CuPy, too."""
    if not numbers.size:
        return numbers.astype(np.int32), numbers.astype(np.int64)
    low, high = int(numbers.min()), int(numbers.max())
    # Is a table from all numbers between the two small beside so many triples?
    if high - low >= min(4 * numbers.size + (1 << 16), 2**31):
        ids, codes = xp.unique(numbers, return_inverse=True)
        return codes.astype(np.int32), ids.astype(np.int64)
    offsets = numbers - numbers.dtype.type(low)
    there = xp.zeros(high - low + 1, np.int32)
    there[offsets] = 1
    places = xp.cumsum(there, dtype=np.int32) - np.int32(1)
    return places[offsets], xp.flatnonzero(there).astype(np.int64) + low


def is_plain_number(text: str) -> bool:
    """Is this a whole number of 64 bits, as DuckDB would write it?"""
    plain = re.fullmatch("0|-?[1-9][0-9]{0,18}", text)
    return plain is not None and -(2**63) <= int(text) < 2**63


def choose_precision(
    values: AnyArray, dtype: DTypeLike | None = None, single_from: int | None = None
) -> AnyArray:
    """In float64; without a ``dtype``, more than so many (by default `SINGLE_FROM`) are float32
    where that is exact."""
    is_large = dtype is None and values.size > (SINGLE_FROM if single_from is None else single_from)
    is_asked = dtype is not None and np.dtype(dtype) == np.float32
    if values.dtype == np.float32 and (is_large or is_asked):
        return values
    if is_large and np.abs(values).max() < SINGLE_MOST:
        single = values.astype(np.float32)
        if np.array_equal(single, values):
            return single
    return values.astype(np.float64, copy=False)


def skipped_note(name: str, count: int) -> list[str]:
    """What to say of bad lines that were left out."""
    lines = "line" if count == 1 else "lines"
    return [f"{name}: skipped {count} malformed {lines}"] if count else []
