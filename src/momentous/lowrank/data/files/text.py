"""Triples in lines of text: any CSV or TSV, MovieLens, the Netflix prize, JSON lines."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from momentous.lowrank.data.errors import RatingsFileError
from momentous.lowrank.data.files.database import quoted_text
from momentous.lowrank.data.files.dialect import (
    WHITESPACE,
    Dialect,
    File,
    find_columns,
    find_dialect,
    has_quotes,
)
from momentous.lowrank.data.files.scans import (
    BAD_MOVIE,
    HAS_ZERO,
    NO_MOVIE_LINE,
    NO_ZERO,
    IdColumn,
    Lines,
    Options,
    Scan,
    Work,
    is_plain_number,
)

_MARKS = {b'"', b" ", b"\t", b"_", b"+", b"\r", b"\0"}  # what only some files have
_COLONS = b":::"
DECIMAL_COMMA = (
    "expected a finite number as the rating, with a decimal point; for decimal commas take "
    "decimal=',' or --decimal ,"
)
DECIMAL_POINT = "expected a number with a decimal comma as the rating, as decimal=',' says"
_CHUNK_BYTES = 1 << 18  # that are looked at several times stay in the processor's cache


@dataclass(frozen=True)
class Text:
    """A file of text that was looked through."""

    path: Path
    name: str
    marks: frozenset[bytes]
    """Which of `_MARKS` and `_COLONS` are in it: what is nowhere is not looked for in lines."""

    def trim(self, cell: str) -> str:
        """A field without spaces and tabs around it, as SQL.

        Without a second argument DuckDB would take away other spaces, too, which may be an id.
        """
        blank = b" " in self.marks or b"\t" in self.marks
        return f"trim({cell}, chr(9) || ' ')" if blank else cell

    def rating(self, cell: str, options: Options) -> str:
        """A rating as SQL, without what DuckDB takes for a number and nobody else: 1_0 and +-5."""
        if options.count == 2:
            return "CAST(0 AS DOUBLE)"
        odd = [text for mark, text in ((b"_", "_"), (b"+", "+-")) if mark in self.marks]
        number = cell
        if options.decimal != ".":
            odd.append(".")
            number = f"replace({cell}, {quoted_text(options.decimal)}, '.')"
        tests = " OR ".join(f"contains({cell}, '{one}')" for one in odd)
        return (
            f"TRY_CAST({f'CASE WHEN NOT ({tests}) THEN {number} END' if odd else cell} AS DOUBLE)"
        )


def open_text(file: File, work: Work, one_space: bool = False) -> Text:
    """Look through a file once, for what no text has.

    Where there are carriage returns the text is a copy with line feeds alone: DuckDB does not take
    lines that end in different ways.  With ``one_space`` it is a copy with one space in place of
    each run of spaces and tabs.
    """
    if not file.path.stat().st_size:
        raise RatingsFileError(file.name, "is empty")
    marks = _find_marks(file.path)
    if b"\0" in marks:
        problem = "expected text, but there are zero bytes: a binary file?"
        raise RatingsFileError(file.name, problem)
    if not one_space and b"\r" not in marks:
        return Text(file.path, file.name, marks)
    copy, before = work.folder / uuid.uuid4().hex, 0
    with file.path.open("rb") as stream, copy.open("wb") as clean:
        while chunk := stream.read(_CHUNK_BYTES):
            chunk += stream.readline(work.options.limits.line_bytes)
            chunk = chunk.replace(b"\r\n", b"\n")
            if one_space or b"\r" in chunk:
                lines = [line.rstrip(b"\r") for line in chunk.split(b"\n")]
                for number, line in enumerate(lines, before + 1):
                    if b"\r" in line:
                        problem = "has a carriage return within a line; end lines with line feeds"
                        raise RatingsFileError(file.name, problem, number)
                if one_space:
                    lines = [b" ".join(line.split()) for line in lines]
                chunk = b"\n".join(lines)
            before += chunk.count(b"\n")
            clean.write(chunk)
    return Text(copy, file.name, marks)


def _find_marks(path: Path) -> frozenset[bytes]:
    """Which marks a file has, by searches for one byte, which are many times as fast as others."""
    marks: set[bytes] = set()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            marks |= {one for one in _MARKS - marks if one in chunk}
            if b":" in chunk and _COLONS not in marks:
                is_colon = np.frombuffer(chunk, np.uint8) == ord(":")
                if np.any(is_colon[:-2] & is_colon[1:-1] & is_colon[2:]):
                    marks.add(_COLONS)
            if len(chunk) == _CHUNK_BYTES:  # marks of three bytes may lie across its end
                stream.seek(-2, 1)
    return frozenset(marks)


def text_id(cell: str, samples: list[str]) -> IdColumn:
    """Ids in a text: numbers first where all samples are."""
    # Short ones in 32 bits: that is read faster.
    size = "INTEGER" if max(map(len, samples), default=0) < len(str(2**31)) else "BIGINT"
    number = f"TRY_CAST({cell} AS {size})"
    plain = f"CASE WHEN CAST({number} AS VARCHAR) = {cell} THEN {number} END"
    return IdColumn(cell, plain if all(map(is_plain_number, samples)) else None)


# --- lines with a delimiter -----------------------------------------------------------------------


def delimited_scans(files: list[File], work: Work, delimiter: str | None = None) -> list[Scan]:
    """Read triples, or pairs, from lines with a delimiter, which is found out if not given."""
    options, scans = work.options, []
    for file in files:
        dialect = find_dialect(
            file.head,
            options.delimiter or delimiter,
            options.columns,
            options.limits,
            options.count,
            work.known,
            options.decimal,
        )
        text = open_text(file, work, dialect.delimiter == WHITESPACE)
        scans.append(delimited_scan(text, dialect, work))
    return scans


def delimited_scan(text: Text, dialect: Dialect, work: Work) -> Scan:
    """Triples, or pairs, in lines that are cut as the dialect says."""
    text = replace(text, marks=text.marks - {dialect.delimiter.encode()})  # not within fields
    lines = Lines(
        (text.path,),
        (text.name,),
        dialect.fields,
        dialect.delimiter,
        dialect.skip,
        has_quotes=has_quotes(dialect.delimiter) and b'"' in text.marks,
        expected=dialect.expected,
    )
    cells = [text.trim(f"c{k}") for k in dialect.columns]
    user, item = (
        IdColumn(cell)
        if work.options.count == 2
        else text_id(cell, [one[k] for one in dialect.samples])
        for cell, k in zip(cells[:2], dialect.columns[:2], strict=True)
    )
    number = f"regexp_full_match({cells[-1]}, '[-+]?[0-9]+,[0-9]+([eE].*)?')"  # with a comma
    checks = [(number, DECIMAL_COMMA)]
    if work.options.decimal != ".":
        checks = [(f"contains({cells[-1]}, '.')", DECIMAL_POINT)]
    together = "false"
    if dialect.delimiter == "::" and _COLONS in text.marks:
        together = " OR ".join(f"starts_with(c{k}, ':')" for k in range(1, dialect.fields))
        checks.insert(0, (together, dialect.expected))
    return Scan(
        text.name,
        lines,
        user,
        item,
        text.rating(cells[-1], work.options),
        "true" if together == "false" else f"NOT ({together})",
        tuple(checks),
    )


# --- other lines ----------------------------------------------------------------------------------


def netflix_scans(files: list[File], work: Work) -> list[Scan]:
    """Read a line ``movie:`` followed by lines ``user,rating,date``; users are the rows."""
    texts = [open_text(file, work) for file in files]
    whole = Text(texts[0].path, texts[0].name, frozenset().union(*(one.marks for one in texts)))
    expected = "expected 'user,rating,date' or 'movie:'"
    lines = Lines(
        tuple(one.path for one in texts),
        tuple(one.name for one in texts),
        3,
        ",",
        pads=True,
        expected=expected,
    )
    first, rating = whole.trim("c0"), whole.trim("c1")
    samples = [line.split(",")[0].strip() for line in files[0].head.lines if "," in line]
    number = f"left({first}, -1)"
    movie = (
        f"CASE WHEN c1 IS NOT NULL OR NOT ends_with({first}, ':') THEN {NO_MOVIE_LINE} "
        f"WHEN regexp_full_match({number}, '0|[1-9][0-9]{{0,17}}') THEN CAST({number} AS BIGINT) "
        f"ELSE {BAD_MOVIE} END"
    )
    scan = Scan(
        whole.name,
        lines,
        text_id(first, samples),
        IdColumn("'0'", "0"),
        whole.rating(rating, work.options),
        "c2 IS NOT NULL",
        (
            (f"movie = {BAD_MOVIE}", "expected the number of a movie before ':'"),
            ("c2 IS NULL", expected),
        ),
        # DuckDB pads lines of spaces, too.
        where="true" if first == "c0" else f"c1 IS NOT NULL OR {first} <> ''",
        movie=movie,
    )
    return [scan]


def json_scans(files: list[File], work: Work) -> list[Scan]:
    """Read triples, or pairs, from lines that are JSON objects; the first one names the keys."""
    return [_json_scan(file, work) for file in files]


def _json_scan(file: File, work: Work) -> Scan:
    options, text = work.options, open_text(file, work)
    expected = "expected one JSON object per line"
    try:
        first = json.loads(file.head.lines[0])
    except (ValueError, RecursionError):
        first = None
    if not isinstance(first, dict):
        raise file.head.error(expected)
    keys = list(first)
    chosen = find_columns(text.name, options.columns, len(keys), keys, options.count)
    line = "CASE WHEN json_valid(c0) THEN c0 END"
    pointers = [quoted_text(f"/{keys[k].replace('~', '~0').replace('/', '~1')}") for k in chosen]
    user, item, *rating = (f"json_extract_string({line}, {one})" for one in pointers)
    is_object = f"coalesce(json_type({line}) = 'OBJECT', false)"
    nested = " OR ".join(f"json_type({line}, {one}) IN ('ARRAY', 'OBJECT')" for one in pointers[:2])
    return Scan(
        text.name,
        Lines((text.path,), (text.name,), expected=expected),
        IdColumn(user),
        IdColumn(item),
        text.rating(rating[0] if rating else "", options),
        f"is_object AND NOT nested AND NOT {HAS_ZERO}",
        (
            ("NOT is_object", expected),
            ("nested", "expected ids that are numbers or text, not lists or objects"),
            NO_ZERO,
        ),
        f", {is_object} AS is_object, coalesce({nested}, false) AS nested",
        "trim(c0) <> ''",
    )
