"""What the commands about studies share: their options, their data sets, their tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from momentous.cli.options import device, names_option, out_folder, threads, together
from momentous.cli.terminal import printable, say
from momentous.lab.progress import new_console, new_table

if TYPE_CHECKING:
    from momentous.lab.paper.problems import DataSet
    from momentous.lab.paper.results import Study
    from momentous.lab.text import Table

PRINTED = ("method", "step size", "iterations", "values", "gradients", "time", "restarts",
           "f - f* at the end", "norm at the end")  # fmt: skip

study_options = together(
    out_folder("momentous-reproduction", "Folder of the recorded runs, the pictures and the page."),
    click.option(
        "--data",
        multiple=True,
        help="NAME=PATH, or NAME for the synthetic twin; more may follow, separated by spaces.",
    ),
    names_option(
        "--methods",
        "Names, separated by commas: ada-ragd, ada-rhb, jin-agd, guilty, heuristic-agd, gd, cg, "
        "ragd, rhb.",
    ),
    click.option(
        "--profile",
        type=click.Choice(["paper", "authors-code"]),
        default="paper",
        help="Follow the paper, or its authors' published code where they differ: the code has "
        "half of the gradient of the balance term, and its conjugate gradients accept a step "
        "after ten halvings even if it raises the objective.",
    ),
    click.option(
        "--trial-iterations",
        type=click.IntRange(1),
        default=100,
        help="Length of a trial of a step size.",
    ),
    threads,
    device(),
)


def data_sets(named: Sequence[str]) -> list[DataSet] | None:
    """Those that are named, once each; None where none is."""
    sets = [_data_set(text) for text in named]
    for name, count in Counter(each.name for each in sets).items():
        if count > 1:  # figures go by the name
            raise ValueError(f"{name} is given {count} times; give each data set its own name")
    return sets or None


def _data_set(text: str) -> DataSet:
    """``NAME`` for the twin, ``NAME=PATH`` for a file."""
    from momentous.lab.paper.problems import DataSet
    from momentous.lowrank.data.files.sources import expand_home

    name, equals, path = text.partition("=")
    if equals and not path:  # an unset variable, perhaps: not a wish for the twin
        raise ValueError(f"{text!r} names no file; write {name}=PATH, or {name} for the twin")
    return DataSet(name, expand_home(path) if path else None)


@contextmanager
def kept_runs() -> Iterator[None]:
    """Say, after Ctrl-C or a failing disk, that nothing is lost."""
    try:
        yield
    except OSError as error:
        raise click.ClickException(f"{error}; what was run is kept") from None
    except KeyboardInterrupt:
        click.echo("what was run is kept: the same command goes on from there", err=True)
        raise


def print_results(study: Study, *, verdicts: bool = True) -> None:
    """A table per run set, and the verdicts."""
    from momentous.lab.report.tables import results_table
    from momentous.lab.text import Table

    for run_set in study.run_sets:
        table = results_table(run_set).only(*PRINTED)
        print_table(table, title=f"{run_set.figure}: {run_set.title}")
    if study.claims and verdicts:
        lines = [[str(c.verdict), c.statement, c.on, c.reason] for c in study.claims]
        headings = ["", "the paper says", "on", "why it cannot be told"]
        print_table(Table("verdicts", headings, lines, tuple(headings)))
    if study.bounds:
        kept = sum(bound.holds for bound in study.bounds)
        say(f"Theorems: {kept} of {len(study.bounds)} bounds hold.")


def print_table(table: Table, *, title: str | None = None) -> None:
    """A table on the terminal, where names from files are text and cannot act."""
    shown = new_table(title=title and printable(title), box=None, title_justify="left")
    for heading in table.headings:
        shown.add_column(heading, justify="left" if heading in table.words else "right")
    for line in table.lines:
        shown.add_row(*map(printable, line))
    console = new_console()
    console.print(shown)
    console.print()
