"""What is wrong with a file of ratings, and where; how much a file may ask for."""

from __future__ import annotations

import os
from dataclasses import dataclass

from momentous.lowrank.checks import check_number


class RatingsFileError(ValueError):
    """A file or a table of ratings cannot be read.

    Attributes
    ----------
    path : str
        The file, with the member of an archive if there is one.
    problem : str
        What is wrong.
    line : int or None
        The line (of a table: the row) that is wrong, counted from 1, where it is one line.
    content : str or None
        That line, cut where it is long.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        problem: str,
        line: int | None = None,
        content: str | None = None,
    ):
        self.path, self.problem, self.line = os.fspath(path), problem, line
        self.content = None if content is None else shorten(content)
        where = self.path if line is None else f"{self.path}, line {line}"
        found = "" if content is None else f"; found {self.content!r}"
        super().__init__(f"{where}: {problem}{found}")


@dataclass(frozen=True)
class Limits:
    """How much a file may ask for, so that a small or damaged one cannot fill the machine."""

    line_bytes: int = 1 << 20  # length of a line of text
    id_bytes: int = 256  # length of the id of a user or item
    columns: int = 10_000  # fields per line
    unpacked_bytes: int = 16 << 30  # size of a compressed file, or a member of an archive, unpacked
    unpacked_ratio: int = 200  # that size by the size of the packed file, from 64 MiB on
    empty_sides: int = 10_000_000  # rows (or columns) of a matrix in excess of ten per entry

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_number(f"Limits: {name}", value, 1)

    def exceeded(
        self,
        name: str,
        path: str | os.PathLike[str],
        problem: str,
        line: int | None = None,
        content: str | None = None,
    ) -> RatingsFileError:
        """The error for a limit, which says how to raise it."""
        remedy = f"if that is right, raise it with limits=Limits({name}=...)"
        reason = f"{problem}, more than the limit of {getattr(self, name):,}; {remedy}"
        return RatingsFileError(path, reason, line, content)


def shorten(text: str, most: int = 80) -> str:
    """The text itself, or its beginning where it is long."""
    return text if len(text) <= most else text[: most - 3] + "..."
