"""What people see while work is under way: a console for tables, a bar, a line per step."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from momentous.io.optional import require

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table

Show = Callable[[str], None]
"""Called with the title of the part that begins."""

PER_SECOND = 2  # the display shares the machine with what is timed


def new_console(*, stderr: bool = False) -> Console:
    """Where tables are printed.

    Text is printed as it is: square brackets in names and paths are no markup.  What goes into a
    file or a pipe is not cut to the width of a screen.
    """
    console = require("rich.console", "app", "a table on the terminal").Console
    options = {"stderr": stderr, "markup": False, "highlight": False, "emoji": False}
    terminal = console(**options)
    found: Console = terminal if terminal.is_terminal else console(**options, width=120)
    return found


def new_table(*headings: str, **options: object) -> Table:
    """A table of `rich` with these columns."""
    rich = require("rich.table", "app", "a table on the terminal")
    table: Table = rich.Table(*headings, **options)
    return table


def new_bar(*columns: ProgressColumn, **options: object) -> Progress:
    """A progress bar of `rich` on the standard error stream, with these columns behind the bar."""
    progress = require("rich.progress", "app", "a progress bar")
    bar: Progress = progress.Progress(
        progress.BarColumn(),
        *columns,
        progress.TextColumn("{task.description}", markup=False),
        console=new_console(stderr=True),
        refresh_per_second=PER_SECOND,
        **options,
    )
    return bar


def is_watched(progress: bool | None = None) -> bool:
    """Is progress shown: as asked for, by default on a terminal that `rich` can write to."""
    if progress is not None:
        return progress
    from importlib.util import find_spec

    return sys.stderr.isatty() and find_spec("rich") is not None


@contextlib.contextmanager
def show_parts(progress: bool | None, total: int) -> Iterator[Show]:
    """A bar that says which of so many parts is under way; silent where nobody would see it."""
    if not is_watched(progress):
        yield lambda title: None
        return
    from rich.progress import MofNCompleteColumn, TimeElapsedColumn

    with new_bar(MofNCompleteColumn(), TimeElapsedColumn()) as bar:
        task, done = bar.add_task("", total=total), itertools.count()
        yield lambda title: bar.update(task, completed=next(done), description=title)
        bar.update(task, completed=next(done), description="")
