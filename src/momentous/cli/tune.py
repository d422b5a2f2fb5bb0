"""``momentous tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from momentous.cli.errors import usage_errors
from momentous.cli.reproduce import data_sets, kept_runs, study_options
from momentous.reproduce.contenders import CONTENDERS, chosen_contenders
from momentous.reproduce.dataset import DataSet
from momentous.reproduce.recorded import PROBLEMS


@click.command()
@click.argument("more", nargs=-1, metavar="[DATA]...")
@study_options
@click.option(
    "--problem",
    "problems",
    type=click.Choice(list(PROBLEMS)),
    multiple=True,
    help="By default both.",
)
@click.option(
    "--iterations",
    type=click.IntRange(1),
    default=500,
    show_default=True,
    help="Length at which step sizes are judged in the end.",
)
def command(
    more: tuple[str, ...],
    data: tuple[str, ...],
    methods: list[str] | None,
    out: Path,
    problems: tuple[str, ...],
    iterations: int,
    trial_iterations: int,
    profile: Any,
    threads: int | None,
) -> None:
    """Search the best step size of each of the paper's methods.

    Short trials in factors of two bracket the largest stable step size, bisection narrows it down,
    and the best is run for longer, smaller ones too as long as they end lower.  Trials are
    kept: a search that was interrupted goes on, and `reproduce` uses what is found here.
    """
    from momentous.lab.progress import new_console, new_table
    from momentous.reproduce import tuning
    from momentous.reproduce.display import Display
    from momentous.reproduce.folder import Folder
    from momentous.reproduce.problem import PaperProblem

    table = new_table("data", "problem", "method", "step size", "objective", box=None)
    for heading in ("trials", "longer runs", "values", "gradients", "seconds"):
        table.add_column(heading, justify="right")
    with kept_runs(), usage_errors(), Display() as display:
        searched = _searched(methods)
        sets = data_sets((*data, *more)) or [DataSet("ml-10m")]
        places = [(each, name) for each in sets for name in problems or PROBLEMS]
        title = "{0.name}, {1}, {2.label}".format
        display.plan([(title(*where, who), 1.0) for where in places for who in searched])
        for where in places:
            problem = PaperProblem(*where, profile, threads)
            for solver in searched:
                display.begin(title(*where, solver))
                found, run = tuning.tune(
                    solver,
                    problem,
                    Folder(out),
                    iterations=iterations,
                    trial_iterations=trial_iterations,
                    watch=display.watch,
                )
                display.end(run)
                table.add_row(
                    run.about.data_name,
                    run.about.problem,
                    solver.label,
                    f"{found.step_size:.4g}",
                    f"{run.history.fun[min(iterations, len(run.history) - 1)]:.6g}",
                    *(f"{number:,}" for number in found.cost.values()),
                )
    new_console().print(table)


def _searched(methods: list[str] | None) -> list[Any]:
    """The methods whose step size is searched; the others take that of another."""
    chosen = chosen_contenders(methods)
    searched = [contender for contender in chosen if not contender.step_of]
    if not searched:
        taken = CONTENDERS[chosen[0].step_of].name
        raise ValueError(f"{chosen[0].name} takes the step size of {taken}: tune that one")
    return searched
