"""What people see while work is under way: a console for tables, a bar, a line per step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, TypeVar

from momentous.io.optional import require
from momentous.io.progress import Lines, progress_bar
from momentous.lab.text import seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from momentous.lab.record import Info, RunRecord

T = TypeVar("T")


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


class StudyProgress:
    """Shows a plan under way: a bar where there is one, elsewhere a line per finished run.

    Work is counted in iterations, weighted by what they cost; the time left is estimated from the
    pace so far.
    """

    def __init__(self) -> None:
        self._bar = progress_bar()
        self._lines = self._bar.end if isinstance(self._bar, Lines) else None
        self._begun = monotonic()
        self._work: dict[str, float] = {}
        self._title, self._cost = "", 1.0
        self._done = self._spent = 0.0
        self._count = 0

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._bar.__exit__(*reason)

    def plan(self, work: dict[str, float]) -> None:
        """What there is to do: work by title."""
        self._work = {title: amount for title, amount in work.items() if amount}

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

    def each(self, parts: Sequence[tuple[str, T]]) -> Iterator[T]:
        """Further parts of equal work; each is shown by its title before it is handed out."""
        for done, (title, part) in enumerate(parts):
            self._show(f"{title} ({done} of {len(parts)} done)", done / len(parts))
            yield part

    def end(self, run: RunRecord[Info]) -> None:
        """The part is finished."""
        self._done += self._work[self._title]
        self._spent = 0.0
        if self._lines:
            self._lines(
                f"{self._title}: objective {run.fun[-1]:.6g}, gradient norm "
                f"{run.grad_norm[-1]:.2e}, {seconds(float(run.time[-1]))}"
            )

    def _update(self, text: str) -> None:
        if not self._lines:
            share = self._done + min(self._spent, self._work[self._title])
            share /= sum(self._work.values()) or 1.0
            took = monotonic() - self._begun
            left = f", {seconds(took / share - took)} left" if 0 < share < 1 else ""
            self._show(f"{self._count} of {len(self._work)}{left}: {text}", share)

    def _show(self, text: str, share: float) -> None:
        if self._lines:
            self._lines(text)
        else:
            self._bar(text, share)
