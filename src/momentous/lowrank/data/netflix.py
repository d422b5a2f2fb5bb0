"""The Netflix prize format: a line ``movie:`` followed by lines ``user,rating,date``."""

from __future__ import annotations

from pathlib import Path

from momentous.lowrank.data.errors import Limits, RatingsFileError
from momentous.lowrank.data.tables import Problem, Scan
from momentous.lowrank.data.text import Text, lines, plain_name


def netflix_scan(texts: list[Text], folder: Path, limits: Limits) -> Scan:
    """Read the files ``combined_data_*.txt`` or ``mv_*.txt``; users are the rows.

    A line ``movie:`` becomes a row of its own; `Triples` gives the ratings after it their item.
    """
    paths = [plain_name(text.path, folder) for text in texts]
    common = set.intersection(*(set(text.unused) for text in texts))
    if not common:
        raise RatingsFileError(texts[0].name, "expected text without control characters")
    number = "regexp_full_match(movie, '0|[1-9][0-9]{0,17}')"
    return Scan(
        texts[0].name,
        "SELECT CASE WHEN names THEN '0' ELSE trim(cells[1]) END AS user, "
        "CASE WHEN names THEN movie ELSE '0' END AS item, trim(cells[2]) AS rating, "
        "line, names, movie, cells FROM (SELECT line, ends_with(line, ':') AS names, "
        "left(line, greatest(0, length(line) - 1)) AS movie, string_split(line, ',') AS cells "
        "FROM (SELECT trim(line, chr(9) || ' ') AS line FROM "
        f"({lines(paths, min(common), 0, limits)})))",
        "NOT names AND len(cells) = 3",
        f"CASE WHEN line = '' THEN {Problem.BLANK:d} "
        f"WHEN names AND {number} THEN {Problem.MOVIE:d} WHEN names THEN {Problem.BAD_MOVIE:d} "
        f"WHEN len(cells) <> 3 THEN {Problem.FIELDS:d} ELSE 0 END",
        tuple((text.path, text.name) for text in texts),
        words={Problem.FIELDS: "expected 'user,rating,date' or 'movie:'"},
        movies=True,
    )
