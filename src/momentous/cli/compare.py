"""``momentous compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from momentous.cli.errors import end_interrupted, usage_errors
from momentous.cli.options import limits, names_option, out_folder
from momentous.cli.output import printable, say
from momentous.io.optional import require

if TYPE_CHECKING:
    from momentous.lab.compare import Comparison, Row


@click.command()
@click.argument("names", metavar="PROBLEM...", nargs=-1)
@click.option("--list", "listing", is_flag=True, help="Show the names of the problems.")
@names_option(
    "--methods",
    "Names, separated by commas; scipy:l-bfgs-b, scipy:cg and torch:lbfgs are outside solvers.",
    default="auto,ada-ragd,lbfgs,scipy:l-bfgs-b",
)
@limits
@click.option("--separate", is_flag=True, help="Give value and gradient apart, not from one call.")
@out_folder("momentous-compare", "Folder for the runs, the tables and the pictures.")
@click.option("--resume", is_flag=True, help="Take over the finished runs in --out.")
def command(
    names: tuple[str, ...],
    listing: bool,
    methods: list[str],
    cutest: bool,
    out: Path,
    **options: Any,
) -> None:
    """Run methods on problems: names, families, or patterns such as 'rosenbrock-*'.

    Each finished run is written at once; after an interruption --resume goes on from there.
    """
    if listing or not names:
        print_problems(cutest=cutest)
        return
    require("matplotlib", "app", "momentous compare")
    from momentous.lab.compare.problems import select
    from momentous.lab.compare.profiles import MOST_PICTURES, write_report
    from momentous.lab.compare.runner import compare
    from momentous.lab.compare.solvers import as_solvers
    from momentous.testbed.suite import suite

    with usage_errors():
        problems = select(names, suite(cutest=cutest))
        as_solvers(methods)
    found = compare(problems, methods, folder=out / "runs", **options)
    print_tables(found)
    if found.rows:
        undrawn = write_report(found, out)
        say(f"Runs, tables and pictures are in {out}.")
        if undrawn:
            say(f"The first {MOST_PICTURES} problems were drawn, {undrawn} were not.")
    if found.interrupted:
        end_interrupted("interrupted; the same command with --resume goes on")


def print_problems(*, cutest: bool) -> None:
    """The names of the suite by family."""
    from momentous.lab.progress import new_console, new_table
    from momentous.testbed.suite import suite

    table = new_table("family", "problem", "variables", "held back", box=None)
    table.columns[2].justify = "right"
    family = ""
    for entry in suite(cutest=cutest):
        shown = "" if entry.family == family else entry.family
        table.add_row(shown, entry.name, f"{entry.dimension:,}", "yes" if entry.held_back else "")
        family = entry.family
    new_console().print(table)


def print_tables(found: Comparison) -> None:
    """One table per problem, and why methods did not reach the goal."""
    from momentous.lab.progress import new_console

    console = new_console()
    for problem in found.problems:
        console.print(_table([row for row in found.rows if row.problem == problem]))
    for row in found.rows:
        if not row.reached and row.status not in ("max evaluations", "max time"):
            console.print(printable(f"{row.problem}, {row.method}: {row.message}"))


def _table(rows: list[Row]) -> Any:
    from rich.box import SIMPLE_HEAD

    from momentous.lab.compare.table import table_of
    from momentous.lab.progress import new_table

    first = rows[0]
    title = f"{first.problem}, {first.dimension:,} variables, to |grad f| <= {first.tol:.2g}"
    looks = {"title_justify": "left", "box": SIMPLE_HEAD, "padding": 0, "collapse_padding": True}
    table = new_table(title=title, **looks)
    headings, *lines = table_of(rows)
    for i, heading in enumerate(headings[1:]):
        table.add_column(heading, justify="left" if i < 2 else "right", no_wrap=i != 1)
    for line in lines:
        table.add_row(*line[1:])
    return table
