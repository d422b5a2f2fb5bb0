"""``momentous reproduce``, and what ``momentous tune`` shares with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from momentous.cli.options import NEW_FILE, names_option, out_folder, threads, together
from momentous.cli.terminal import printable, say, usage_errors
from momentous.lab.paper.folder import is_study
from momentous.lab.paper.methods import PAPER_METHODS
from momentous.lab.paper.plan import FIGURES, Settings
from momentous.lab.paper.problems import PROFILES, DataSet
from momentous.lab.progress import new_console, new_table
from momentous.lowrank.data.twins import MODELS

if TYPE_CHECKING:
    from momentous.lab.paper.results import Study
    from momentous.lab.report.tables import Table

PRINTED = ("method", "step size", "iterations", "values", "gradients", "time", "restarts",
           "f - f* at the end", "norm at the end")  # fmt: skip
WHAT = (*FIGURES, "theorems", "all", "report")

study_options = together(
    out_folder("momentous-reproduction", "Folder of the recorded runs, the pictures and the page."),
    click.option(
        "--data",
        multiple=True,
        help="NAME=PATH, or NAME for the synthetic twin; more may follow, separated by spaces.",
    ),
    names_option("--methods", f"Names, separated by commas: {', '.join(PAPER_METHODS)}."),
    click.option(
        "--profile",
        type=click.Choice(PROFILES),
        default="paper",
        help="Whose details, where the paper and the authors' published code differ: the "
        "code has half of the gradient of the balance term, and its conjugate gradients "
        "accept a step after ten halvings whether it lowers the objective or not.",
    ),
    click.option(
        "--trial-iterations",
        type=click.IntRange(1),
        default=100,
        help="Length of a trial of a step size.",
    ),
    threads,
)


@click.command()
@click.argument("what", nargs=-1, required=True, metavar="fig1|fig2|fig3|theorems|all|report...")
@study_options
@click.option(
    "--iterations", type=click.IntRange(1), help="Shown, in place of the paper's 1000 or 100,000."
)
@click.option(
    "--reference",
    type=click.IntRange(1),
    help="Iterations that the two lowest methods go on to, for the sake of f*; by default twice "
    "as many as are shown (in the paper, all methods do).",
)
@click.option(
    "--account",
    type=NEW_FILE,
    help="Write an account in Markdown there, with pictures in the folder of the same name.",
)
@click.option(
    "--opening",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Paragraphs that the account begins with.",
)
def command(
    what: tuple[str, ...],
    data: tuple[str, ...],
    out: Path,
    account: Path | None,
    opening: Path | None,
    **options: Any,
) -> None:
    """Run the paper's experiments and write a report.

    fig1 is matrix completion, fig2 one-bit matrix completion, fig3 the adaptive methods for
    100,000 iterations, theorems a table of what the theorems bound; report only writes the page
    anew from what has been run.

    What is finished is not run again, and what was interrupted, or killed, goes on where it was.
    """
    from momentous.lab.report.documents import write_account_files
    from momentous.lab.studies import reproduce

    if account is not None and not account.suffix:
        raise click.UsageError(f"--account {account} needs a suffix: {account}.md")
    wanted, named = _wanted(what, data, out)
    with kept_runs(), usage_errors():
        settings = Settings(**options)
        folder, study = reproduce(wanted, out, data_sets(named), settings)
    print_results(study)
    say(f"The report is {folder.page}")
    if account is not None:
        text = "" if opening is None else opening.read_text(encoding="utf-8")
        write_account_files(folder, account, _same_command(wanted, named, settings), text)
        say(f"The account is {account}")


def _wanted(words: Sequence[str], data: Sequence[str], out: Path) -> tuple[list[str], list[str]]:
    """What to reproduce, and on which data sets."""
    for word in words:
        if word not in WHAT and "=" not in word and word not in MODELS:
            raise click.UsageError(
                f"{word!r} is nothing to reproduce ({', '.join(WHAT)}), and no data set either: "
                f"NAME=PATH, or a twin, {', '.join(MODELS)}"
            )
    wanted = [word for word in words if word in WHAT]
    # "--data a=1 b=2": all but the first are positional for the parser.
    named = [*data, *(word for word in words if word not in WHAT)]
    if not wanted:
        raise click.UsageError(f"say what to reproduce: {', '.join(WHAT)}")
    if set(wanted) == {"report"} and not is_study(out):
        raise click.UsageError(
            f"nothing has been run in {out} that could be reported; run {', '.join(FIGURES)} or "
            "theorems first, or name the folder with --out"
        )
    return [*FIGURES, "theorems"] if "all" in wanted else wanted, named


def data_sets(named: Sequence[str]) -> list[DataSet] | None:
    """Those that are named, once each; None where none is."""
    sets = [DataSet.parse(text) for text in named]
    for name, count in Counter(each.name for each in sets).items():
        if count > 1:  # figures go by the name
            raise ValueError(f"{name} is given {count} times; give each data set its own name")
    return sets or None


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
    from momentous.lab.report.tables import Table, results_table

    for run_set in study.run_sets:
        table = results_table(run_set).only(*PRINTED)
        print_table(table, title=f"{run_set.figure}: {run_set.title}")
    if study.claims and verdicts:
        lines = [[claim.verdict, claim.statement, claim.on] for claim in study.claims]
        headings = ["", "the paper says", "on"]
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


def _same_command(wanted: Sequence[str], named: Sequence[str], settings: Settings) -> str:
    """The command that does the same again, wherever its files lie."""
    parts = ["momentous reproduce", *wanted]
    if named:
        parts += ["--data", *(text.partition("=")[0] + "=..." * ("=" in text) for text in named)]
    for option in fields(Settings):
        value = getattr(settings, option.name)
        if value != option.default:
            shown = ",".join(value) if isinstance(value, list) else value
            parts.append(f"--{option.name.replace('_', '-')} {shown}")
    return " ".join([*parts, "--account"])
