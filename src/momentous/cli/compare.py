"""``momentous compare``."""

from pathlib import Path
from typing import Any

import click

from momentous.cli.errors import end_interrupted, usage_errors
from momentous.cli.options import limits, names_option, out_folder
from momentous.cli.output import say
from momentous.io.optional import require


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
    say(str(found))
    for row in found.rows:
        if not row.reached and row.status not in ("max evaluations", "max time"):
            say(f"{row.problem}, {row.method}: {row.message}")
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
