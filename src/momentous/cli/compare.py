"""``momentous compare``."""

from pathlib import Path
from typing import Any

import click

from momentous.cli.options import complete_methods, limits, names_option, out_folder
from momentous.cli.terminal import end_interrupted, say, usage_errors
from momentous.io.optional import require


@click.command()
@click.argument("names", metavar="PROBLEM...", nargs=-1)
@click.option("--list", "listing", is_flag=True, help="Show the names of the problems.")
@names_option(
    "--methods",
    "Names, separated by commas; scipy:l-bfgs-b, scipy:cg and torch:lbfgs are outside solvers.",
    default="auto,ada-ragd,lbfgs,scipy:l-bfgs-b",
    complete=complete_methods,
)
@limits
@click.option("--separate", is_flag=True, help="Call value and gradient apart.")
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
    from momentous.testbed.suite import suite

    entries = suite(cutest=cutest)
    if listing or not names:
        for each in entries:
            held_back = "held back" if each.held_back else ""
            say(f"{each.family:<20}{each.name:<42}{each.dimension:>9,}  {held_back}".rstrip())
        return
    require("matplotlib", "app", "momentous compare")
    from momentous.lab.compare.problems import select
    from momentous.lab.compare.profiles import MOST_PICTURES, write_report
    from momentous.lab.compare.runner import compare
    from momentous.lab.record import Ended

    with usage_errors():  # what goes wrong in a run is its outcome
        found = compare(select(names, entries), methods, folder=out / "runs", **options)
    say(str(found))
    for row in found.rows:
        if not row.reached and row.status not in (Ended.MAX_EVALUATIONS, Ended.MAX_TIME):
            say(f"{row.problem}, {row.method}: {row.message}")
    if found.rows:
        undrawn = write_report(found, out)
        say(f"Runs, tables and pictures are in {out}.")
        if undrawn:
            say(f"The first {MOST_PICTURES} problems were drawn, {undrawn} were not.")
    if found.interrupted:
        end_interrupted("interrupted; the same command with --resume goes on")
