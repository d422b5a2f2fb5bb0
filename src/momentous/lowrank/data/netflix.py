"""Triples in the format of the Netflix prize: a line per movie, followed by its ratings."""

from __future__ import annotations

import re
from pathlib import Path

from momentous.lowrank.data.dialect import File
from momentous.lowrank.data.errors import Limits
from momentous.lowrank.data.numbers import Census, Numbers
from momentous.lowrank.data.tables import BLANK, MOVIE, Scan, Work
from momentous.lowrank.data.text import (
    LONGEST_NUMBER,
    Text,
    check_text,
    lines,
    mapped,
    native_csv,
    number,
    trim_cell,
)

_MOVIE = re.compile(rb"(0|[1-9][0-9]{0,17}):(\r?\n|\Z)")
MOST_MOVIES = 1_000_000  # in one file; each is looked at


def netflix_scans(files: list[File], work: Work) -> list[Scan]:
    """Read a line ``movie:`` followed by lines ``user,rating,date``; users are the rows.

    A line ``movie:`` becomes a row of its own; `Triples` gives the ratings after it their item.
    """
    limits = work.options.limits
    texts = [check_text(file, limits) for file in files]
    found = set.union(*(text.found for text in texts))
    user, rating = (trim_cell(f"cells[{k}]", found) for k in (1, 2))
    movie = "left(line, length(line) - 1)"
    scan = Scan(
        texts[0].name,
        f"SELECT CASE WHEN NOT names THEN {user} END AS user, "
        f"CASE WHEN names THEN {movie} ELSE '0' END AS item, "
        f"{number(rating, found)} AS rating, line, names, cells "
        "FROM (SELECT line, ends_with(line, ':') AS names, string_split(line, ',') AS cells "
        f"FROM (SELECT {trim_cell('line', found)} AS line FROM "
        f"{lines([text.path for text in texts], 0, limits)}))",
        "NOT names AND len(cells) = 3",
        (
            ("line = ''", BLANK),
            (f"names AND regexp_full_match({movie}, '0|[1-9][0-9]{{0,17}}')", MOVIE),
            ("names", "expected the number of a movie before ':'"),
            ("len(cells) <> 3", "expected 'user,rating,date' or 'movie:'"),
        ),
        tuple((text.path, text.name) for text in texts),
        movies=True,
        numbers=_numbers(texts, limits),
    )
    return [scan]


def _numbers(texts: list[Text], limits: Limits) -> Numbers | None:
    """The fast way, if all fields look like numbers."""
    total, movies = Census(), []
    for text in texts:
        census = text.census(0)
        names = None if census is None else _movies(text.path)
        if census is None or not names or limits.id_bytes < LONGEST_NUMBER:
            return None
        total += census
        movies += names
    types = {"user": "BIGINT", "rating": "VARCHAR", "date": "VARCHAR"}
    query = (
        "SELECT user, TRY_CAST(rating AS DOUBLE) AS value, strlen(rating) + strlen(date) AS rest "
        f"FROM {native_csv([text.path for text in texts], types, ',', ignore_errors=True)}"
    )
    return Numbers(query, total, 2, tuple(movies))


def _movies(path: Path) -> list[tuple[int, int]] | None:
    """Movies and the number of lines that follow each; None if this is not all that there is."""
    found: list[tuple[int, int]] = []
    with path.open("rb") as stream, mapped(stream) as content:
        begin = 0  # of the line of a movie
        while begin < len(content):
            line = content[begin : begin + LONGEST_NUMBER + 2]
            named = _MOVIE.match(line)
            if not named or len(found) == MOST_MOVIES:
                return None
            colon = content.find(b":", begin + named.end())
            end = len(content) if colon < 0 else content.rfind(b"\n", begin, colon) + 1
            body = content[begin + named.end() : end]
            lines = body.count(b"\n") + (bool(body) and not body.endswith(b"\n"))
            found.append((int(named[1]), lines))
            begin = end
    return found
