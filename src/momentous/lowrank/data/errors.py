"""What is wrong with a file of ratings, and where."""

from __future__ import annotations

import os


class RatingsFileError(ValueError):
    """A file of ratings cannot be read.

    Attributes
    ----------
    path : str
        The file, with the member of an archive if there is one.
    line : int or None
        The line that is wrong, counted from 1, where it is one line.
    content : str or None
        That line, shortened.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        problem: str,
        line: int | None = None,
        content: str | None = None,
    ):
        self.path, self.line = os.fspath(path), line
        self.content = None if content is None else shortened(content)
        where = self.path if line is None else f"{self.path}, line {line}"
        super().__init__(
            f"{where}: {problem}" + ("" if content is None else f"; found {self.content!r}")
        )


def shortened(text: str, most: int = 80) -> str:
    """The text itself, or its beginning where it is long."""
    return text if len(text) <= most else text[: most - 3] + "..."
