"""The Netflix prize format: a line ``movie:`` followed by lines ``user,rating,date``."""

from __future__ import annotations

from pathlib import Path

from momentous.lowrank.data.errors import Limits, RatingsFileError
from momentous.lowrank.data.tables import Problem, Scan
from momentous.lowrank.data.text import Text, lines, number, plain_name, trimmed


def netflix_scan(texts: list[Text], folder: Path, limits: Limits) -> Scan:
    """Read the files ``combined_data_*.txt`` or ``mv_*.txt``; users are the rows.

    A line ``movie:`` becomes a row of its own; `Triples` gives the ratings after it their item.
    """
    paths = [plain_name(text.path, folder) for text in texts]
    common = set.intersection(*(set(text.unused) for text in texts))
    if not common:
        raise RatingsFileError(texts[0].name, "expected text without control characters")
    found = set.union(*(text.found for text in texts))
    user, rating = (trimmed(f"cells[{k}]", found) for k in (1, 2))
    movie = "left(line, length(line) - 1)"
    return Scan(
        texts[0].name,
        f"SELECT CASE WHEN names THEN '0' ELSE {user} END AS user, "
        f"CASE WHEN names THEN {movie} ELSE '0' END AS item, "
        f"{number(rating, found)} AS rating, line, names, cells "
        "FROM (SELECT line, ends_with(line, ':') AS names, string_split(line, ',') AS cells "
        f"FROM (SELECT {trimmed('line', found)} AS line FROM "
        f"({lines(paths, min(common), 0, limits)})))",
        "NOT names AND len(cells) = 3",
        f"CASE WHEN line = '' THEN {Problem.BLANK:d} "
        f"WHEN names AND regexp_full_match({movie}, '0|[1-9][0-9]{{0,17}}') "
        f"THEN {Problem.MOVIE:d} WHEN names THEN {Problem.BAD_MOVIE:d} "
        f"WHEN len(cells) <> 3 THEN {Problem.FIELDS:d} ELSE 0 END",
        tuple((text.path, text.name) for text in texts),
        words={Problem.FIELDS: "expected 'user,rating,date' or 'movie:'"},
        movies=True,
    )
