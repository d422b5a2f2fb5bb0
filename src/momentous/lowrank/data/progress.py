"""How far the reading of a large file is, shown to those who look and to nobody else."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator

from momentous.io.optional import require

LARGE = 1 << 25
"""Bytes; what is smaller is read before a bar could be drawn."""


@contextlib.contextmanager
def shown_progress(progress: bool | None, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar of the bytes read.

    Parameters
    ----------
    progress : bool, optional
        By default shown for large files where errors go to a terminal and rich is installed.
    what : str
        What is read.
    total : int
        Bytes there are.
    """
    if progress is None:
        seen = sys.stderr.isatty() and importlib.util.find_spec("rich") is not None
        progress = seen and total >= LARGE
    if not progress:
        yield lambda size: None
        return
    console_module, bars = (
        require(name, "app", "The progress bar") for name in ("rich.console", "rich.progress")
    )
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), bars.DownloadColumn())
    console = console_module.Console(stderr=True)
    with bars.Progress(*columns, console=console, transient=console.is_terminal) as display:
        task = display.add_task(f"reading {what}", total=total)
        yield lambda size: display.advance(task, size)
