"""``momentous reproduce``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from momentous.cli.options import NEW_FILE, typed_options
from momentous.cli.study import data_sets, kept_runs, print_results, study_options
from momentous.cli.terminal import say, usage_errors

if TYPE_CHECKING:
    from momentous.lab.paper.plan import Settings

PARTS = ("fig1", "fig2", "fig3", "theorems")
WHAT = (*PARTS, "all", "report")


@click.command()
@click.argument("what", nargs=-1, required=True, metavar=f"{'|'.join(WHAT)}...")
@study_options
@click.option(
    "--iterations",
    type=click.IntRange(1),
    help="Iterations to show; in the paper 1,000 or 100,000.",
)
@click.option(
    "--reference",
    type=click.IntRange(1),
    help="Length of the runs of the two lowest methods, which find f*; by default twice what is "
    "shown (in the paper: of all methods).",
)
@click.option(
    "--step-sizes-from",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Take the step sizes of the study in this folder, for instance one from a GPU, and search "
    "none.",
)
@click.option(
    "--no-report",
    is_flag=True,
    help="Write no pictures and no page; 'momentous reproduce report' does it later.",
)
@click.option(
    "--account",
    type=NEW_FILE,
    help="Write an account in Markdown there, with pictures in the folder of the same name.",
)
def command(
    what: tuple[str, ...],
    data: tuple[str, ...],
    out: Path,
    no_report: bool,
    account: Path | None,
    **options: Any,
) -> None:
    """Run the paper's experiments and write a report.

    fig1 is matrix completion, fig2 one-bit matrix completion, fig3 the adaptive methods for
    100,000 iterations, theorems a table of measured quantities beside the theorems' bounds.
    report runs nothing and writes the page of the finished runs again.

    Finished runs are not repeated; interrupted and killed runs are continued.
    """
    from momentous.lab.paper.plan import Settings
    from momentous.lab.report.documents import write_account
    from momentous.lab.studies import reproduce

    if account is not None and not account.suffix:
        raise click.UsageError(f"--account {account} needs a suffix: {account}.md")
    if account is not None and no_report:
        raise click.UsageError("--account is a report: leave --no-report out")
    wanted, named = _wanted(what, data, out)
    with kept_runs(), usage_errors():
        settings = Settings(**options)
        folder, study = reproduce(wanted, out, data_sets(named), settings, report=not no_report)
    if study is None:
        say(f"The runs are in {folder.path}")
        return
    print_results(study)
    say(f"The report is {folder.page}")
    if account is not None:
        write_account(study, account, _same_command(wanted, named, settings))
        say(f"The account is {account}")


def _wanted(words: Sequence[str], data: Sequence[str], out: Path) -> tuple[list[str], list[str]]:
    """What to reproduce, and on which data sets."""
    from momentous.lab.paper.folder import is_study
    from momentous.lowrank.data.twins import MODELS

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
            f"nothing has been run in {out} that could be reported; run one of {', '.join(PARTS)} "
            "first, or name the folder with --out"
        )
    return [*PARTS] if "all" in wanted else wanted, named


def _same_command(wanted: Sequence[str], named: Sequence[str], settings: Settings) -> str:
    """The command that does the same again, wherever its files lie."""
    parts = ["momentous reproduce", *wanted]
    if named:
        parts += ["--data", *(text.partition("=")[0] + "=..." * ("=" in text) for text in named)]
    values = {each.name: (getattr(settings, each.name), each.default) for each in fields(settings)}
    chosen = {name: value for name, (value, default) in values.items() if value != default}
    if "step_sizes_from" in chosen:
        chosen["step_sizes_from"] = "..."
    return " ".join([*parts, *typed_options(chosen), "--account"])
