"""Triples in lines of text: any CSV or TSV, MovieLens, the Netflix prize, JSON lines."""

from __future__ import annotations

import json
import uuid
from functools import partial
from pathlib import Path

from momentous.lowrank.data.files.database import quoted_text
from momentous.lowrank.data.files.dialect import (
    PAIR,
    WHITESPACE,
    File,
    find_columns,
    find_dialect,
)
from momentous.lowrank.data.files.scans import (
    BAD_MOVIE,
    COMMA_NUMBER,
    NO_MOVIE_LINE,
    NO_RATING,
    NUMBER,
    ONE_EACH,
    IdColumn,
    Lines,
    Options,
    RatingColumn,
    Scan,
    Work,
    is_plain_number,
)

_CHUNK_BYTES = 1 << 18  # that stay in the processor's cache


def plain_text(file: File, work: Work, one_space: bool = False) -> Path:
    """The file, or a copy whose lines end in line feeds alone: DuckDB takes no mixed ends.

    With ``one_space`` it is a copy with one space in place of each run of spaces and tabs.
    """
    with file.path.open("rb") as stream:
        chunks = iter(partial(stream.read, _CHUNK_BYTES), b"")
        if not one_space and not any(b"\r" in chunk for chunk in chunks):
            return file.path
    copy = work.folder / uuid.uuid4().hex
    # Python takes all ends; in this encoding any byte is a letter.
    with file.path.open(encoding="latin-1") as stream, copy.open("wb") as clean:
        size = work.options.limits.line_bytes if one_space else _CHUNK_BYTES
        for text in iter(lambda: stream.readline(size) if one_space else stream.read(size), ""):
            part = text.encode("latin-1")
            clean.write(b" ".join(part.split()) + b"\n" if one_space else part)
    return copy


def trimmed(cell: str) -> str:
    """A field without `BLANKS`, as SQL, which takes as long as to read it."""
    return f"trim({cell}, chr(9) || ' ')"


def rating_column(cell: str, options: Options) -> RatingColumn:
    """A rating in a field; DuckDB would take 1_0 and +-1 for numbers."""
    wrong, number, expected = f"contains({cell}, '_') OR contains({cell}, '+-')", cell, NUMBER
    if options.decimal != ".":
        wrong += f" OR contains({cell}, '.')"
        number, expected = f"replace({cell}, {quoted_text(options.decimal)}, '.')", COMMA_NUMBER
    number = f"CASE WHEN NOT ({wrong}) THEN TRY_CAST({number} AS DOUBLE) END"
    none = ", ".join(map(quoted_text, NO_RATING))
    is_missing = f"coalesce(lower({trimmed(cell)}) IN ({none}), true)"
    return RatingColumn(number, cell, expected, is_missing)


def text_id(cell: str, samples: list[str]) -> IdColumn:
    """Ids in a text: numbers first where all samples are."""
    # Short ones in 32 bits: that is read faster.
    size = "INTEGER" if max(map(len, samples), default=0) < len(str(2**31)) else "BIGINT"
    number = f"TRY_CAST({cell} AS {size})"
    plain = f"CASE WHEN CAST({number} AS VARCHAR) = {cell} THEN {number} END"
    return IdColumn(cell, plain if all(map(is_plain_number, samples)) else None, strips=True)


# --- lines with a delimiter -----------------------------------------------------------------------


def delimited_scan(file: File, work: Work, delimiter: str | None = None) -> Scan:
    """Triples, or pairs, in lines with a delimiter, which is found out if not given."""
    options = work.options
    dialect = find_dialect(
        file.head,
        options.delimiter or delimiter,
        options.columns,
        options.limits,
        options.count,
        options.decimal,
    )
    path = plain_text(file, work, dialect.delimiter == WHITESPACE)
    lines = Lines(
        (path,), (file.name,), dialect.fields, dialect.delimiter, dialect.skip,
        expected=dialect.expected,
    )  # fmt: skip
    cells = [f"c{k}" for k in dialect.columns]
    user, item = (
        text_id(cell, [one[k] for one in dialect.samples])
        for cell, k in zip(cells[:PAIR], dialect.columns[:PAIR], strict=True)
    )
    are_pairs = len(cells) == PAIR
    rating = ONE_EACH if are_pairs else rating_column(cells[-1], options)
    return Scan(file.name, lines, user, item, rating, are_pairs=are_pairs)


# --- other lines ----------------------------------------------------------------------------------


def netflix_scans(files: list[File], work: Work) -> list[Scan]:
    """Read a line ``movie:`` followed by lines ``user,rating,date``; users are the rows."""
    expected = "expected 'user,rating,date' or 'movie:'"
    paths = tuple(plain_text(file, work) for file in files)
    names = tuple(file.name for file in files)
    first = trimmed("c0")
    samples = [line.split(",")[0].strip() for line in files[0].head.lines if "," in line]
    movie = (
        f"CASE WHEN c1 IS NOT NULL OR NOT ends_with({first}, ':') THEN {NO_MOVIE_LINE} "
        f"WHEN regexp_full_match({first}, '(0|[1-9][0-9]{{0,17}}):') "
        f"THEN CAST(left({first}, -1) AS BIGINT) ELSE {BAD_MOVIE} END"
    )
    scan = Scan(
        names[0],
        Lines(paths, names, 3, ",", pads=True, expected=expected),
        text_id("c0", samples),
        IdColumn("'0'", movie),
        rating_column("c1", work.options),
        (("c2 IS NULL", expected),),
        where=f"c1 IS NOT NULL OR {first} <> ''",  # DuckDB pads lines of spaces, too
        movie=True,
    )
    return [scan]


def json_scan(file: File, work: Work) -> Scan:
    """Triples, or pairs, in lines that are JSON objects; the first one names the keys."""
    options = work.options
    expected = "expected one JSON object per line"
    try:
        first = json.loads(file.head.lines[0])
    except (ValueError, RecursionError):
        first = None
    if not isinstance(first, dict):
        raise file.head.error(expected)
    keys = list(first)
    count = options.count_of(len(keys))
    chosen = find_columns(file.name, options.columns, len(keys), keys, count)
    line = "CASE WHEN json_valid(c0) THEN c0 END"
    pointers = [quoted_text(f"/{keys[k].replace('~', '~0').replace('/', '~1')}") for k in chosen]
    user, item, *rating = (f"json_extract_string({line}, {one})" for one in pointers)
    is_object = f"coalesce(json_type({line}) = 'OBJECT', false)"
    nested = " OR ".join(f"json_type({line}, {one}) IN ('ARRAY', 'OBJECT')" for one in pointers[:2])
    return Scan(
        file.name,
        Lines((plain_text(file, work),), (file.name,), expected=expected),
        IdColumn(user),
        IdColumn(item),
        rating_column(rating[0], options) if rating else ONE_EACH,
        (
            (f"NOT {is_object}", expected),
            (
                f"coalesce({nested}, false)",
                "expected ids that are numbers or text, not lists or objects",
            ),
        ),
        where="trim(c0) <> ''",
        are_pairs=not rating,
    )
