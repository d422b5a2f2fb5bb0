"""What the commands ``compare`` and ``scoreboard`` do: run, print the table, write the files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from momentous.comparison.plots import plot_convergence, plot_profiles
from momentous.comparison.runner import compare
from momentous.comparison.scoreboard import run_scoreboard, write_scoreboard
from momentous.comparison.selection import select
from momentous.comparison.table import Comparison
from momentous.comparison.words import table_of
from momentous.testbed.suite import suite

MOST_PICTURES = 20  # of single problems


def list_problems(*, cutest: bool = False) -> None:
    """Print the names of the suite by family."""
    from rich.table import Table

    table = Table("family", "problem", "variables", "held back", box=None)
    table.columns[2].justify = "right"
    family = ""
    for entry in suite(cutest=cutest):
        shown = "" if entry.family == family else entry.family
        table.add_row(shown, entry.name, f"{entry.dimension:,}", "yes" if entry.held_back else "")
        family = entry.family
    new_console().print(table)


def report(
    names: Sequence[str],
    methods: Sequence[str],
    out: Path,
    *,
    rtol: float,
    budget: int,
    max_time: float,
    separate: bool,
    cutest: bool,
) -> Comparison:
    """Compare, print the table, and write tables and pictures into ``out``."""
    console = new_console()
    found = compare(
        select(names, suite(cutest=cutest)),
        methods,
        rtol=rtol,
        max_evaluations=budget,
        max_time=max_time,
        separate=separate,
    )
    print_tables(console, found)
    if not found.rows:
        return found
    out.mkdir(parents=True, exist_ok=True)
    for suffix in ("csv", "parquet"):
        found.save(out / f"table.{suffix}")
    found.save_traces(out / "traces.parquet")
    drawn = [problem for problem in found.problems if any(p == problem for p, _ in _kept(found))]
    for problem in drawn[:MOST_PICTURES]:
        plot_convergence(found, problem, out / f"{re.sub(r'[^A-Za-z0-9.+-]+', '_', problem)}.png")
    if len(found.problems) > 1:
        plot_profiles(found.rows, out / "profiles.png")
    console.print(f"Tables and pictures are in [bold]{out}[/bold].")
    if len(drawn) > MOST_PICTURES:
        console.print(f"Only the first {MOST_PICTURES} of {len(drawn)} problems were drawn.")
    return found


def make_scoreboard(
    out: Path,
    table: Path | None,
    methods: Sequence[str] | None,
    *,
    max_dimension: int | None,
    cutest: bool,
    rtol: float,
    budget: int,
    max_time: float,
    fused_only: bool,
    work: Path,
) -> None:
    """Run the scoreboard, or only write its page from a table."""
    console = new_console()
    if table is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_scoreboard(table, out)
    else:
        found = run_scoreboard(
            suite(max_dimension, cutest=cutest),
            out,
            methods=methods,
            rtol=rtol,
            max_evaluations=budget,
            max_time=max_time,
            separate=not fused_only,
            work=work,
        )
        if found.interrupted:
            console.print(
                f"Interrupted after {len(found.rows)} runs; the same command goes on from "
                f"[bold]{work}[/bold]."
            )
            return
    console.print(f"The page is [bold]{out / 'scoreboard.md'}[/bold].")


def _kept(found: Comparison) -> list[tuple[str, str]]:
    return [pair for pair, history in found.histories.items() if len(history)]


def print_tables(console: Any, found: Comparison) -> None:
    """Print a table a problem, and why methods did not get there."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    for problem in found.problems:
        rows = [row for row in found.rows if row.problem == problem]
        title = f"{problem}, {rows[0].dimension:,} variables, to |grad f| <= {rows[0].tol:.2g}"
        table = Table(
            title=title, title_justify="left", box=SIMPLE_HEAD, padding=0, collapse_padding=True
        )
        headings, *lines = table_of(rows)
        for i, heading in enumerate(headings[1:]):
            table.add_column(heading, justify="left" if i < 2 else "right", no_wrap=i != 1)
        for line in lines:
            table.add_row(*line[1:])
        console.print(table)
    if found.interrupted:
        console.print("Interrupted: these runs were finished.")
    for row in found.rows:
        if not row.reached and row.status not in ("max evaluations", "max time"):
            console.print(f"{row.problem}, {row.method}: {row.message}", highlight=False)


def new_console() -> Any:
    """Where commands print to."""
    from rich.console import Console

    console = Console()
    # What goes into a file or a pipe is not cut to the width of a screen.
    return console if console.is_terminal else Console(width=120)
