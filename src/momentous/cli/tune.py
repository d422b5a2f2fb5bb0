"""``momentous tune``."""

from pathlib import Path
from typing import Any

import click

from momentous.cli.study import data_sets, kept_runs, print_table, study_options
from momentous.cli.terminal import usage_errors


@click.command()
@click.argument("more", nargs=-1, metavar="[DATA]...")
@study_options
@click.option(
    "--problem",
    "problems",
    type=click.Choice(["completion", "one-bit"]),
    multiple=True,
    help="Only this problem; by default both.",
)
@click.option(
    "--iterations",
    type=click.IntRange(1),
    default=500,
    help="Length of the last runs that judge step sizes.",
)
def command(
    more: tuple[str, ...],
    data: tuple[str, ...],
    out: Path,
    problems: tuple[str, ...],
    iterations: int,
    **options: Any,
) -> None:
    """Search the best step size of each of the paper's methods.

    Short trials in factors of two bracket the largest stable step size, bisection narrows it down,
    and the best is run for longer, smaller ones too as long as they end lower.  Trials are
    kept: a search that was interrupted goes on, and `reproduce` uses what is found here.
    """
    from momentous.lab.paper.plan import Settings
    from momentous.lab.studies import tune

    with kept_runs(), usage_errors():
        sets = data_sets((*data, *more))
        table = tune(out, sets, problems, Settings(**options), iterations=iterations)
    print_table(table)
