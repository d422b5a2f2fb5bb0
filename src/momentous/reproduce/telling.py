"""How far a study is, told to whoever asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Progress = Callable[[int, int, str], None]
"""Called with how many parts are done, of how many, and what comes next."""

T = TypeVar("T")


def told(progress: Progress | None, parts: Sequence[tuple[str, T]]) -> Iterator[T]:
    """The parts one after the other; each is announced before it is handed out."""
    for done, (what, part) in enumerate(parts):
        if progress is not None:
            progress(done, len(parts), what)
        yield part
    if progress is not None:
        progress(len(parts), len(parts), "done")
