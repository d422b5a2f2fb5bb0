"""What people see while work is under way: a console for tables, a bar, a line per step."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from momentous.io.optional import require
from momentous.lab.text import seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table

    from momentous.lab.record import Info, RunRecord

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


# --- studies of many parts ------------------------------------------------------------------------

OnPart = Callable[[int, int, str], None]
"""Called with how many parts are done, of how many, and what comes next."""

T = TypeVar("T")


def ignore_part(done: int, total: int, title: str) -> None:
    """Where nobody wants to know."""


def announce_each(on_part: OnPart, parts: Sequence[tuple[str, T]]) -> Iterator[T]:
    """The parts one after the other; each is announced before it is handed out."""
    for done, (title, part) in enumerate(parts):
        on_part(done, len(parts), title)
        yield part
    on_part(len(parts), len(parts), "done")


class StudyProgress:
    """Shows a plan under way: a bar on a terminal, a line per finished run elsewhere.

    Work is counted in iterations, weighted by what they cost; the time left is estimated from the
    pace so far.
    """

    def __init__(self, shown: bool | None = None):
        self._watched = is_watched(shown)
        columns = require("rich.progress", "app", "a progress bar")
        self._bar = new_bar(
            columns.TextColumn("{task.fields[count]}"), columns.TimeElapsedColumn(),
            columns.TextColumn("left:"), columns.TimeRemainingColumn(),
            speed_estimate_period=600.0, disable=not self._watched,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=None, count="")
        self._work: dict[str, float] = {}
        self._title, self._cost = "", 1.0
        self._done = self._spent = 0.0
        self._count = 0

    def __enter__(self) -> StudyProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def plan(self, work: dict[str, float]) -> None:
        """What there is to do: work by title."""
        self._work = {title: amount for title, amount in work.items() if amount}
        self._bar.update(self._task, total=sum(self._work.values()))

    def begin(self, title: str, cost: float = 1.0) -> None:
        """The part that begins, and the work of one of its iterations."""
        self._title, self._cost, self._spent = title, cost, 0.0
        self._work.setdefault(title, 0.0)  # beyond the plan
        self._count += 1
        self._update(title)

    def on_iteration(self, nit: int, fun: float, grad_norm: float) -> None:
        """An iteration of the run under way."""
        self._spent += self._cost
        if nit % 10 == 0:
            state = f"iteration {nit:,}, objective {fun:.6g}, gradient norm {grad_norm:.2e}"
            self._update(f"{self._title}: {state}")

    def on_part(self, done: int, total: int, title: str) -> None:
        """A part of a study that begins."""
        if done == 0:
            self._bar.reset(self._task, total=total)
        self._bar.update(self._task, completed=done, count=f"{done} of {total}", description=title)
        self._say(f"{title} ({done} of {total} done)")

    def end(self, run: RunRecord[Info]) -> None:
        """The part is finished."""
        self._done += self._work[self._title]
        self._spent = 0.0
        self._update(self._title)
        self._say(
            f"{self._title}: objective {run.fun[-1]:.6g}, gradient norm {run.grad_norm[-1]:.2e}, "
            f"{seconds(float(run.time[-1]))}"
        )

    def _update(self, text: str) -> None:
        done = self._done + min(self._spent, self._work[self._title])
        count = f"{self._count} of {len(self._work)}"
        self._bar.update(self._task, completed=done, count=count, description=text)

    def _say(self, line: str) -> None:
        """For those who see no bar."""
        if not self._watched:
            print(line, file=sys.stderr, flush=True)
