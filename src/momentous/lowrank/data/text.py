"""Triples in lines of text: any CSV or TSV, MovieLens, JSON lines.

DuckDB reads whole lines, and SQL cuts them into fields.  Its own CSV parser loses what does not fit
(a field too many, what follows a closed quote, the lines after a quote that is never closed)
without a word, and is used only where what it gives can be proved, by `numbers`.
"""

from __future__ import annotations

import io
import json
import mmap
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from momentous.io.types import JsonObject
from momentous.lowrank.data.dialect import (
    BYTE_ORDER_MARK,
    WHITESPACE,
    Dialect,
    File,
    find_dialect,
    places,
    quoted_field,
    quoted_record,
    records,
)
from momentous.lowrank.data.errors import Limits, RatingsFileError
from momentous.lowrank.data.numbers import Census, Numbers, take_census
from momentous.lowrank.data.tables import (
    BLANK,
    HAS_ZERO,
    NO_ZERO,
    Scan,
    Work,
    quoted_text,
    read_files,
)

_LOOKED_FOR = ('"', " ", "_", "+")
BUFFER = 1 << 25  # bytes that DuckDB reads at a time
LONGEST_NUMBER = 20  # bytes of a whole number of 64 bits
MOST_FIELDS = 32  # for which the fast way is tried
JOINER = "\x1e\x1f\x1e"  # stands for a line end within a record
CUT_AT_SPACES = r"string_split(regexp_replace(trim(line, chr(9) || ' '), '[ \t]+', ' ', 'g'), ' ')"


@dataclass(frozen=True)
class Text:
    """A file of text that was looked through."""

    path: Path
    name: str
    found: set[str]
    """Which of `_LOOKED_FOR` are in it: what is nowhere need not be looked for in every line."""
    first: bytes  # line
    rest: Census | None
    """Of all other lines; None where there is anything but digits and marks."""

    def census(self, skip: int) -> Census | None:
        """Of all lines after so many."""
        if self.rest is None or skip == 1:
            return self.rest
        first = take_census(io.BytesIO(self.first)) if skip == 0 else None
        return None if first is None else first + self.rest

    @property
    def files(self) -> tuple[tuple[Path, str], ...]:
        """As a `Scan` has them."""
        return ((self.path, self.name),)


def check_text(file: File, limits: Limits) -> Text:
    """Look through a file once, for what no text has and for lines that are too long."""
    path, name = file.path, file.name
    if not path.stat().st_size:
        raise RatingsFileError(name, "is empty")
    with path.open("rb") as stream, mapped(stream) as content:
        if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise RatingsFileError(name, "is encoded as UTF-16; save it as UTF-8")
        first = stream.readline(limits.line_bytes + 1)
        rest = take_census(stream)
        # Where only digits and marks follow, there is nothing to be found after the first line.
        until = len(content) if rest is None else len(first)
        if content.find(b"\0", 0, until) >= 0 or content.find(JOINER.encode(), 0, until) >= 0:
            raise RatingsFileError(
                name, "expected text, but there are zero bytes or the like: a binary file?"
            )
        place = 0
        while len(content) - place > limits.line_bytes:
            end = content.rfind(b"\n", place, place + limits.line_bytes + 1)
            if end < 0:
                problem = f"has a line of more than {limits.line_bytes:,} bytes"
                begin = content[place : place + 80].decode("utf-8", "replace")
                number = _line_number(content, place)
                raise limits.exceeded("line_bytes", name, problem, number, begin)
            place = end + 1
        if content.find(b"\r") >= 0 and (alone := re.search(rb"\r(?!\r*(\n|\Z))", content)):
            problem = "has a carriage return within a line; end lines with line feeds"
            raise RatingsFileError(name, problem, _line_number(content, alone.start()))
        found = {one for one in _LOOKED_FOR if content.find(one.encode(), 0, until) >= 0}
        if "+" in found and content.find(b"+-") >= 0:  # one letter is found faster than two
            found.add("+-")
        if content.find(b"\t") >= 0:
            found.add("\t")
        if b":::" in first or (rest.colons if rest else content.find(b":::") >= 0):
            found.add(":::")  # perhaps
        return Text(path, name, found, first, rest)


def mapped(stream: BinaryIO) -> mmap.mmap:
    """A file as bytes that are read when they are looked at."""
    return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def _line_number(content: mmap.mmap, place: int) -> int:
    """Of a place in a file, without a copy of all before it."""
    step = 1 << 20
    parts = (content[begin : min(begin + step, place)] for begin in range(0, place, step))
    return 1 + sum(part.count(b"\n") for part in parts)


def lines(paths: list[Path], skip: int, limits: Limits) -> str:
    """A query for the lines of files: the column ``line``, one row per line, also where blank."""
    longest = limits.line_bytes + 16
    table = read_files(
        "read_csv",
        paths,
        "auto_detect = false, header = false, columns = {'line': 'VARCHAR'}, delim = '', "
        f"quote = '', escape = '', skip = {skip}, compression = 'none', strict_mode = false, "
        f"store_rejects = true, rejects_limit = 0, max_line_size = {longest}, "
        f"buffer_size = {max(BUFFER, 4 * longest)}",
    )
    return f"(SELECT coalesce(line, '') AS line FROM {table})"


def native_csv(
    paths: list[Path],
    types: dict[str, str],
    delimiter: str,
    skip: int = 0,
    ignore_errors: bool = False,
) -> str:
    """DuckDB's own way to read a table, for a text without quotes."""
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in types.items())
    return read_files(
        "read_csv",
        paths,
        f"auto_detect = false, header = false, columns = {{{columns}}}, "
        f"delim = {quoted_text(delimiter)}, quote = '', escape = '', skip = {skip}, "
        f"compression = 'none', ignore_errors = {ignore_errors}, buffer_size = {BUFFER}",
    )


def trim_cell(cell: str, found: set[str]) -> str:
    """A field without spaces and tabs around it, as SQL; as cheap as what is in the file allows.

    Without a second argument DuckDB would take away other spaces, too, which may be an id.
    """
    if "\t" in found:
        return f"trim({cell}, chr(9) || ' ')"
    return f"trim({cell}, ' ')" if " " in found else cell


def number(cell: str, found: set[str]) -> str:
    """A rating as SQL, without what DuckDB takes for a number and nobody else: 1_0 and +-5."""
    tests = " OR ".join(f"contains({cell}, '{one}')" for one in ("_", "+-") if one in found)
    return f"CASE WHEN NOT ({tests}) THEN {cell} END" if tests else cell


# --- lines with a delimiter -----------------------------------------------------------------------


def delimited_scans(files: list[File], work: Work, delimiter: str | None = None) -> list[Scan]:
    """Read triples, or pairs, from lines with a delimiter, which is found out if not given."""
    options = work.options
    return [
        _delimited_scan(
            check_text(file, options.limits),
            find_dialect(
                file.head,
                options.delimiter or delimiter,
                options.columns,
                options.limits,
                options.count,
                work.known,
            ),
            work,
        )
        for file in files
    ]


def _delimited_scan(text: Text, dialect: Dialect, work: Work) -> Scan:
    delimiter, path, limits = dialect.delimiter, text.path, work.options.limits
    quoted = '"' in text.found and len(delimiter) == 1 and delimiter != WHITESPACE
    mark = quoted_text(delimiter)
    cut = CUT_AT_SPACES if delimiter == WHITESPACE else f"string_split(line, {mark})"
    if quoted:
        path = _one_line_per_record(path, dialect, work)
        whole, one = (quoted_text(make(delimiter)) for make in (quoted_record, quoted_field))
        cut = (
            f"CASE WHEN NOT contains(line, '\"') THEN {cut} "
            f"WHEN regexp_full_match(line || {mark}, {whole}) "
            f"THEN regexp_extract_all(line || {mark}, {one}, 1) END"
        )
    fits = f"len(cells) = {dialect.fields}"
    if delimiter == "::" and ":::" in text.found:
        fits += " AND NOT contains(line, ':::')"
    user, item, *rating = (_cell(k, text.found, quoted) for k in dialect.columns)
    return Scan(
        text.name,
        f"SELECT {user} AS user, {item} AS item, "
        f"{number(rating[0], text.found) if rating else '0'} AS rating, line, cells "
        f"FROM (SELECT line, {cut} AS cells FROM {lines([path], dialect.skip, limits)})",
        fits,
        (
            ("trim(line) = ''", BLANK),
            ("cells IS NULL", "expected quotes that are closed, and a delimiter after them"),
            (f"NOT ({fits})", dialect.expected),
        ),
        text.files,
        dialect.skip,
        numbers=_delimited_numbers(text, dialect, limits),
    )


def _delimited_numbers(text: Text, dialect: Dialect, limits: Limits) -> Numbers | None:
    """The fast way, if all fields look like numbers."""
    delimiter, census = dialect.delimiter, text.census(dialect.skip)
    between = len(delimiter.encode()) * (dialect.fields - 1)
    if census is None or limits.id_bytes < LONGEST_NUMBER or dialect.fields > MOST_FIELDS:
        return None
    if len(dialect.columns) < 3 or delimiter == WHITESPACE:
        return None
    if delimiter == "::" and census.colons != between * census.lines:
        return None
    user, item, rating = (f"c{k}" for k in dialect.columns)
    types = {f"c{k}": "VARCHAR" for k in range(dialect.fields)}
    types |= {user: "BIGINT", item: "BIGINT"}
    query = (
        f"SELECT {user} AS user, {item} AS item, TRY_CAST({rating} AS DOUBLE) AS value, "
        f"{' + '.join(f'strlen({one})' for one in types if one not in (user, item))} AS rest "
        f"FROM {native_csv([text.path], types, delimiter, dialect.skip)}"
    )
    return Numbers(query, census, between)


def _cell(k: int, found: set[str], quoted: bool) -> str:
    """A field without what stands around it, as SQL."""
    cell = trim_cell(f"cells[{k + 1}]", found)
    if not quoted:
        return cell
    inner = f"replace(replace({cell}[2:-2], '\"\"', '\"'), '{JOINER}', chr(10))"
    return f"CASE WHEN starts_with({cell}, '\"') THEN trim({inner}, ' ') ELSE {cell} END"


def _one_line_per_record(path: Path, dialect: Dialect, work: Work) -> Path:
    """The file itself, or a copy where records with line ends in quotes stand in one line each.

    In the copy the `JOINER` stands for a line end within a record, and blank lines follow the
    record, so that every line keeps its number.
    """
    connection, limits = work.connection, work.options.limits
    odd = "(strlen(line) - strlen(replace(line, '\"', ''))) % 2 = 1"
    query = f"SELECT count(*) FROM {lines([path], dialect.skip, limits)} WHERE {odd}"
    found = connection.execute(query).fetchall()[0][0]
    connection.execute("DROP TABLE IF EXISTS reject_errors; DROP TABLE IF EXISTS reject_scans")
    if not found:
        return path
    copy = work.folder / uuid.uuid4().hex
    # What is no UTF-8 goes through as it is; DuckDB finds it.
    as_is: JsonObject = {"encoding": "utf-8", "errors": "surrogateescape", "newline": "\n"}
    with path.open(**as_is) as source, copy.open("w", **as_is) as file:
        source.seek(len(BYTE_ORDER_MARK) if source.read(1) == "\ufeff" else 0)
        for _ in range(dialect.skip):
            file.write(source.readline())
        whole = (line.rstrip("\r\n") for line in source)
        for record in records(whole, dialect.delimiter, limits.line_bytes // 4):
            file.write(JOINER.join(record) + "\n" * len(record))
    return copy


# --- other lines ----------------------------------------------------------------------------------


def json_scans(files: list[File], work: Work) -> list[Scan]:
    """Read triples, or pairs, from lines that are JSON objects; the first one names the keys."""
    return [_json_scan(file, work) for file in files]


def _json_scan(file: File, work: Work) -> Scan:
    options, text = work.options, check_text(file, work.options.limits)
    expected = "expected one JSON object per line"
    try:
        first = json.loads(file.head.lines[0])
    except (ValueError, RecursionError):
        first = None
    if not isinstance(first, dict):
        raise file.head.error(expected)
    keys = list(first)
    chosen = places(text.name, options.columns, len(keys), keys, options.count)
    pointers = ["/" + keys[k].replace("~", "~0").replace("/", "~1") for k in chosen]
    user, item, *rating = (f"json_extract_string(object, {quoted_text(one)})" for one in pointers)
    nested = " OR ".join(
        f"json_type(object, {quoted_text(one)}) IN ('ARRAY', 'OBJECT')" for one in pointers[:2]
    )
    return Scan(
        text.name,
        f"SELECT {user} AS user, {item} AS item, "
        f"{number(rating[0], text.found) if rating else '0'} AS rating, object, blank, "
        f"coalesce({nested}, false) AS nested FROM "
        "(SELECT trim(line) = '' AS blank, CASE WHEN json_valid(line) THEN line END AS object "
        f"FROM {lines([text.path], 0, options.limits)})",
        f"object IS NOT NULL AND json_type(object) = 'OBJECT' AND NOT nested AND NOT {HAS_ZERO}",
        (
            ("blank", BLANK),
            ("object IS NULL OR json_type(object) <> 'OBJECT'", expected),
            ("nested", "expected ids that are numbers or text, not lists or objects"),
            NO_ZERO,
        ),
        text.files,
    )
