"""How far a comparison is, shown to those who look and to nobody else."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator

Show = Callable[[str, str], None]
"""(problem, method) whose run begins."""


@contextlib.contextmanager
def shown_progress(progress: bool | None, total: int) -> Iterator[Show]:
    """A line that says which run is under way; silent where nobody would see it."""
    if progress is None:
        progress = sys.stderr.isatty() and importlib.util.find_spec("rich") is not None
    if not progress:
        yield lambda problem, method: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    # Twice a second: the display shares the machine with what is timed.
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=2) as display:
        task = display.add_task("", total=total)
        begun = 0

        def show(problem: str, method: str) -> None:
            nonlocal begun
            display.update(task, completed=begun, description=f"{problem}: {method}")
            begun += 1

        yield show
        display.update(task, completed=begun, description="")
