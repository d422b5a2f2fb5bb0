"""How far the reading of a large file is, shown to those who look and to nobody else."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator

LARGE = 1 << 25
"""Bytes; what is smaller is read before a bar could be drawn."""


@contextlib.contextmanager
def shown_progress(
    progress: bool | None, what: str, total: int | None
) -> Iterator[Callable[[int], None]]:
    """A bar of the bytes read.

    Parameters
    ----------
    progress : bool, optional
        By default shown for large files where errors go to a terminal and rich is installed.
    what : str
        What is read.
    total : int or None
        Bytes there are, where that is known.
    """
    if progress is None:
        seen = sys.stderr.isatty() and importlib.util.find_spec("rich") is not None
        progress = seen and (total is None or total >= LARGE)
    if not progress:
        yield lambda size: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
    except ImportError as error:
        raise ImportError(
            "the progress bar is drawn by rich: pip install 'momentous[app]', or progress=False"
        ) from error
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=console.is_terminal) as display:
        task = display.add_task(f"reading {what}", total=total)
        yield lambda size: display.advance(task, size)
