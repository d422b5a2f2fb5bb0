"""Triples in lines of text: MovieLens .dat, .csv and u.data, any CSV or TSV, JSON lines.

DuckDB reads whole lines, and SQL cuts them into fields.  Its own CSV parser is a little faster, but
loses what does not fit (a field too many, what follows a closed quote, the lines after a quote that
is never closed) without a word; a line is always a line.
"""

from __future__ import annotations

import json
import mmap
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from momentous.lowrank.data.errors import Limits, RatingsFileError
from momentous.lowrank.data.formats import (
    BYTE_ORDER_MARK,
    WHITESPACE,
    Columns,
    Dialect,
    Sample,
    places,
    quoted_field,
    quoted_record,
    records,
)
from momentous.lowrank.data.tables import HAS_ZERO, Problem, Scan, quoted_text

_LOOKED_FOR = ('"', " ", "\t", "_", "+", ":::")
_UNUSED = [chr(code) for code in (31, 30, 29, 28, 1, 2, 3, 4, 5, 6)]


@dataclass(frozen=True)
class Text:
    """A file of text that was looked through.

    Attributes
    ----------
    path : Path
    name : str
    unused : list of str
        Control characters that are nowhere in it, at least two.
    found : set of str
        Which of `_LOOKED_FOR` are in it: what is nowhere need not be looked for in every line.
    """

    path: Path
    name: str
    unused: list[str]
    found: set[str]

    @property
    def separator(self) -> str:
        """What DuckDB is told to cut lines at: nothing."""
        return self.unused[0]

    @property
    def joiner(self) -> str:
        """What stands for a line end within a record."""
        return self.unused[1]


def check_text(path: Path, name: str, limits: Limits) -> Text:
    """Look through a file once, for what no text has and for lines that are too long."""
    if not path.stat().st_size:
        raise RatingsFileError(name, "is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise RatingsFileError(name, "is encoded as UTF-16; save it as UTF-8")
        if content.find(b"\0") >= 0:
            raise RatingsFileError(name, "expected text, but there are zero bytes: a binary file?")
        place = 0
        while len(content) - place > limits.line_bytes:
            end = content.rfind(b"\n", place, place + limits.line_bytes + 1)
            if end < 0:
                raise limits.exceeded(
                    "line_bytes",
                    name,
                    f"has a line of more than {limits.line_bytes:,} bytes",
                    _line_number(content, place),
                    content[place : place + 80].decode("utf-8", "replace"),
                )
            place = end + 1
        if content.find(b"\r") >= 0 and (alone := re.search(rb"\r(?!\r*(\n|\Z))", content)):
            raise RatingsFileError(
                name,
                "has a carriage return within a line; end lines with line feeds",
                _line_number(content, alone.start()),
            )
        unused = [one for one in _UNUSED if content.find(one.encode()) < 0]
        if len(unused) < 2:
            raise RatingsFileError(name, "expected text, but it is full of control characters")
        found = {one for one in _LOOKED_FOR if content.find(one.encode()) >= 0}
        if "+" in found:  # one letter is found much faster than two
            found |= {"+-"} if content.find(b"+-") >= 0 else set()
        return Text(path, name, unused, found)


def _line_number(content: mmap.mmap, place: int) -> int:
    """Of a place in a file, without a copy of all before it."""
    number, begin = 1, 0
    while begin < place:
        number += content[begin : min(begin + (1 << 20), place)].count(b"\n")
        begin += 1 << 20
    return number


def lines(paths: list[Path], separator: str, skip: int, limits: Limits) -> str:
    """A query for the lines of files: the column ``line``, one row per line, also where blank."""
    longest = limits.line_bytes + 16
    names = ", ".join(quoted_text(str(path)) for path in paths)
    return (
        f"SELECT coalesce(line, '') AS line FROM read_csv([{names}], auto_detect = false, "
        f"header = false, columns = {{'line': 'VARCHAR'}}, delim = {quoted_text(separator)}, "
        f"quote = '', escape = '', skip = {skip}, compression = 'none', strict_mode = false, "
        f"store_rejects = true, rejects_limit = 0, max_line_size = {longest}, "
        f"buffer_size = {max(1 << 25, 4 * longest)})"
    )


def plain_name(path: Path, folder: Path) -> Path:
    """The path, or a link to it where DuckDB would take it for a pattern."""
    if not set("*?[]{}") & set(str(path)) and not path.is_symlink():
        return path
    link = folder / f"link-{sum(1 for _ in folder.iterdir())}"
    link.symlink_to(path.resolve())
    return link


def delimited_scan(
    connection: Any, text: Text, dialect: Dialect, folder: Path, limits: Limits
) -> Scan:
    """Read triples, or pairs, from lines with a delimiter."""
    delimiter = dialect.delimiter
    quoted = '"' in text.found and len(delimiter) == 1 and delimiter != WHITESPACE
    path = plain_name(text.path, folder)
    if quoted:
        path = _one_line_per_record(connection, text, path, delimiter, dialect.skip, folder, limits)
    mark = quoted_text(delimiter)
    cut = f"string_split(line, {mark})"
    if delimiter == WHITESPACE:
        cut = r"string_split(regexp_replace(trim(line, chr(9) || ' '), '[ \t]+', ' ', 'g'), ' ')"
    elif quoted:
        whole, one = (quoted_text(make(delimiter)) for make in (quoted_record, quoted_field))
        cut = (
            f"CASE WHEN NOT contains(line, '\"') THEN {cut} "
            f"WHEN regexp_full_match(line || {mark}, {whole}) "
            f"THEN regexp_extract_all(line || {mark}, {one}, 1) END"
        )
    fits = f"len(cells) = {dialect.fields}"
    if delimiter == "::" and ":::" in text.found:
        fits += " AND NOT contains(line, ':::')"
    user, item, *rating = (_cell(k, text, quoted) for k in dialect.columns)
    return Scan(
        text.name,
        f"SELECT {user} AS user, {item} AS item, "
        f"{number(rating[0], text.found) if rating else '0'} AS rating, line, cells "
        f"FROM (SELECT line, {cut} AS cells FROM "
        f"({lines([path], text.separator, dialect.skip, limits)}))",
        fits,
        f"CASE WHEN trim(line) = '' THEN {Problem.BLANK:d} "
        f"WHEN cells IS NULL THEN {Problem.QUOTES:d} "
        f"WHEN NOT ({fits}) THEN {Problem.FIELDS:d} ELSE 0 END",
        ((text.path, text.name),),
        dialect.skip,
        {Problem.FIELDS: f"expected {dialect.fields} fields separated by {dialect.words}"},
    )


def _cell(k: int, text: Text, quoted: bool) -> str:
    """A field without what stands around it, as SQL."""
    cell = trimmed(f"cells[{k + 1}]", text.found)
    if not quoted:
        return cell
    joiner = quoted_text(text.joiner)
    inner = f"replace(replace({cell}[2:-2], '\"\"', '\"'), {joiner}, chr(10))"
    return f"CASE WHEN starts_with({cell}, '\"') THEN trim({inner}) ELSE {cell} END"


def trimmed(cell: str, found: set[str]) -> str:
    """A field without spaces and tabs around it, as SQL; as cheap as what is in the file allows."""
    if "\t" in found:
        return f"trim({cell}, chr(9) || ' ')"
    return f"trim({cell})" if " " in found else cell


def number(cell: str, found: set[str]) -> str:
    """A rating as SQL, without what DuckDB takes for a number and nobody else: 1_0 and +-5."""
    odd = [one for one in ("_", "+-") if one in found]
    if not odd:
        return cell
    tests = " OR ".join(f"contains({cell}, '{one}')" for one in odd)
    return f"CASE WHEN NOT ({tests}) THEN {cell} END"


def _one_line_per_record(
    connection: Any,
    text: Text,
    path: Path,
    delimiter: str,
    skip: int,
    folder: Path,
    limits: Limits,
) -> Path:
    """The file itself, or a copy where records with line ends in quotes stand in one line each.

    In the copy the `joiner` stands for a line end within a record, and blank lines follow the
    record, so that every line keeps its number.
    """
    odd = "(strlen(line) - strlen(replace(line, '\"', ''))) % 2 = 1"
    found = connection.execute(
        f"SELECT count(*) FROM ({lines([path], text.separator, skip, limits)}) WHERE {odd}"
    ).fetchall()[0][0]
    connection.execute("DROP TABLE IF EXISTS reject_errors; DROP TABLE IF EXISTS reject_scans")
    if not found:
        return path
    copy = folder / f"records-{sum(1 for _ in folder.iterdir())}"
    # What is no UTF-8 goes through as it is; DuckDB finds it.
    as_is: dict[str, Any] = {"encoding": "utf-8", "errors": "surrogateescape", "newline": "\n"}
    with path.open(**as_is) as source, copy.open("w", **as_is) as file:
        source.seek(len(BYTE_ORDER_MARK) if source.read(1) == "\ufeff" else 0)
        for _ in range(skip):
            file.write(source.readline())
        whole = (line.rstrip("\r\n") for line in source)
        for record in records(whole, delimiter, limits.line_bytes // 4):
            file.write(text.joiner.join(record) + "\n" * len(record))
    return copy


def json_scan(
    text: Text,
    sample: Sample,
    columns: Columns | None,
    folder: Path,
    limits: Limits,
    count: int = 3,
) -> Scan:
    """Read triples, or pairs, from lines that are JSON objects; the first one names the keys."""
    try:
        first = json.loads(sample.lines[0])
    except (ValueError, RecursionError):
        first = None
    if not isinstance(first, dict):
        raise RatingsFileError(
            text.name, "expected one JSON object per line", sample.numbers[0], sample.lines[0]
        )
    keys = list(first)
    chosen = places(text.name, columns, len(keys), keys, count)
    user, item, *rating = (
        f"json_extract_string(object, {quoted_text(_pointer(keys[k]))})" for k in chosen
    )
    path = plain_name(text.path, folder)
    return Scan(
        text.name,
        f"SELECT {user} AS user, {item} AS item, "
        f"{number(rating[0], text.found) if rating else '0'} AS rating, object, blank FROM "
        "(SELECT trim(line) = '' AS blank, CASE WHEN json_valid(line) THEN line END AS object "
        f"FROM ({lines([path], text.separator, 0, limits)}))",
        f"object IS NOT NULL AND json_type(object) = 'OBJECT' AND NOT {HAS_ZERO}",
        f"CASE WHEN blank THEN {Problem.BLANK:d} "
        f"WHEN object IS NULL OR json_type(object) <> 'OBJECT' THEN {Problem.JSON:d} "
        f"WHEN {HAS_ZERO} THEN {Problem.ZERO:d} ELSE 0 END",
        ((text.path, text.name),),
    )


def _pointer(key: str) -> str:
    """A key as a JSON pointer."""
    return "/" + key.replace("~", "~0").replace("/", "~1")
