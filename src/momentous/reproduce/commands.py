"""The commands ``momentous reproduce`` and ``momentous tune``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from momentous.lowrank.data.twins import MODELS
from momentous.reproduce.contenders import CONTENDERS, chosen_contenders
from momentous.reproduce.dataset import DataSet
from momentous.reproduce.plan import FIGURES, Settings
from momentous.reproduce.problem import PROFILES
from momentous.reproduce.recorded import PROBLEMS

WHAT = (*FIGURES, "theorems", "all", "report")


def add_commands(group: click.Group) -> None:
    """Add the two to the group."""
    group.add_command(reproduce)
    group.add_command(tune)


def _shared(command: Any) -> Any:
    """Options of both."""
    for option in (
        click.option(
            "--threads", type=click.IntRange(1), help="Of the compiled pass; by default all."
        ),
        click.option(
            "--trial-iterations",
            type=click.IntRange(1),
            default=100,
            show_default=True,
            help="Length of a trial of a step size.",
        ),
        click.option(
            "--profile",
            type=click.Choice(PROFILES),
            default="paper",
            show_default=True,
            help="Whose details, where the paper and the authors' published code differ: the "
            "code has half of the gradient of the balance term, and its conjugate gradients "
            "accept a step after ten halvings whether it lowers the objective or not.",
        ),
        click.option("--methods", help=f"Names, separated by commas: {', '.join(CONTENDERS)}."),
        click.option(
            "--data",
            "data",
            multiple=True,
            help="NAME=PATH, or NAME for the synthetic twin; more may follow, separated by spaces.",
        ),
        click.option(
            "--out",
            type=click.Path(file_okay=False, path_type=Path),
            default=Path("momentous-reproduction"),
            show_default=True,
            help="Folder of the recorded runs, the pictures and the page.",
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("what", nargs=-1, required=True, metavar="fig1|fig2|fig3|theorems|all|report...")
@_shared
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
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write an account in Markdown there, with pictures in the folder of the same name.",
)
@click.option(
    "--opening",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Paragraphs that the account begins with.",
)
def reproduce(
    what: tuple[str, ...],
    data: tuple[str, ...],
    methods: str | None,
    out: Path,
    account: Path | None,
    opening: Path | None,
    iterations: int | None,
    reference: int | None,
    **options: Any,
) -> None:
    """Run the paper's experiments and write a report.

    fig1 is matrix completion, fig2 one-bit matrix completion, fig3 the adaptive methods for
    100,000 iterations, theorems a table of what the theorems bound; report only writes the page
    anew from what has been run.

    What is finished is not run again, and what was interrupted, or killed, goes on where it was.
    """
    from momentous.reproduce.display import Display
    from momentous.reproduce.folder import Folder, is_study
    from momentous.reproduce.plan import run_figures
    from momentous.reproduce.report import print_results, write_documents, write_report

    _refuse_unknown(what)
    if account is not None and not account.suffix:
        raise click.UsageError(f"--account {account} needs a suffix: {account}.md")
    wanted = [name for name in what if name in WHAT]
    # "--data a=1 b=2": all but the first are positional for the parser.
    named = [*data, *(name for name in what if name not in WHAT)]
    if not wanted:
        raise click.UsageError(f"say what to reproduce: {', '.join(WHAT)}")
    if "all" in wanted:
        wanted = [*FIGURES, "theorems"]
    if set(wanted) == {"report"} and not is_study(out):
        raise click.UsageError(
            f"nothing has been run in {out} that could be reported; run {', '.join(FIGURES)} or "
            "theorems first, or name the folder with --out"
        )
    with _told():
        sets = _data_sets(named)
        settings = Settings(
            iterations=iterations,
            reference=reference,
            methods=methods.split(",") if methods else None,
            **options,
        )
        chosen_contenders(settings.methods)  # before anything is run
        folder = Folder(out)
        with folder.locked(), Display() as display:
            figures = [FIGURES[name] for name in FIGURES if name in wanted]
            run_figures(figures, sets, settings, folder, display)
            if "theorems" in wanted:
                _find(folder, display)
        study = write_report(folder)
    print_results(study)
    click.echo(f"The report is {folder.page}")
    if account is not None:
        said = "" if opening is None else opening.read_text(encoding="utf-8")
        write_documents(folder, account, _command(wanted, named, settings), said)
        click.echo(f"The account is {account}")


def _refuse_unknown(words: Sequence[str]) -> None:
    """Words that are neither something to reproduce nor a data set."""
    for word in words:
        if word not in WHAT and "=" not in word and word not in MODELS:
            raise click.UsageError(
                f"{word!r} is nothing to reproduce ({', '.join(WHAT)}), and no data set either: "
                f"NAME=PATH, or a twin, {', '.join(MODELS)}"
            )


def _command(wanted: Sequence[str], named: Sequence[str], settings: Settings) -> str:
    """The command that does the same again, wherever its files lie."""
    parts = ["momentous reproduce", *wanted]
    if named:
        parts += ["--data", *(text.partition("=")[0] + "=..." * ("=" in text) for text in named)]
    for option in fields(Settings):
        value = getattr(settings, option.name)
        if value != option.default:
            told = ",".join(value) if isinstance(value, list) else value
            parts.append(f"--{option.name.replace('_', '-')} {told}")
    return " ".join([*parts, "--account"])


@contextmanager
def _told() -> Iterator[None]:
    """What went wrong without a traceback, and after Ctrl-C how to go on."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{error}; what was run is kept") from None
    except KeyboardInterrupt:
        click.echo("what was run is kept: the same command goes on from there", err=True)
        raise


def _data_sets(named: Sequence[str]) -> list[DataSet] | None:
    """Those that are named, once each; None where none is."""
    sets = [DataSet.parse(text) for text in named]
    for name, count in Counter(each.name for each in sets).items():
        if count > 1:  # figures go by the name
            raise ValueError(f"{name} is given {count} times; give each data set its own name")
    return sets or None


def _find(folder: Any, display: Any) -> None:
    """The theorem table and the exponents, as far as they are not there."""
    from momentous.reproduce.exponents import growth_with_difficulty
    from momentous.reproduce.findings import load_findings, save_findings
    from momentous.reproduce.theorems import theorem_table

    bounds, growths = load_findings(folder.findings) if folder.findings.exists() else ([], [])
    if not bounds:
        bounds = theorem_table(progress=display.parts)
        save_findings(folder.findings, bounds, growths)
    if not growths:
        save_findings(folder.findings, bounds, growth_with_difficulty(progress=display.parts))


@click.command()
@click.argument("more", nargs=-1, metavar="[DATA]...")
@_shared
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
def tune(
    more: tuple[str, ...],
    data: tuple[str, ...],
    methods: str | None,
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
    from rich.table import Table

    from momentous.comparison.report import new_console
    from momentous.reproduce import tuning
    from momentous.reproduce.display import Display
    from momentous.reproduce.folder import Folder
    from momentous.reproduce.problem import PaperProblem

    table = Table("data", "problem", "method", "step size", "objective", box=None)
    for heading in ("trials", "longer runs", "values", "gradients", "seconds"):
        table.add_column(heading, justify="right")
    with _told(), Display() as display:
        chosen = chosen_contenders(methods.split(",") if methods else None)
        searched = [contender for contender in chosen if not contender.step_of]
        if not searched:
            taken = CONTENDERS[chosen[0].step_of].name
            raise ValueError(f"{chosen[0].name} takes the step size of {taken}: tune that one")
        sets = _data_sets((*data, *more)) or [DataSet("ml-10m")]
        places = [(each, name) for each in sets for name in problems or PROBLEMS]
        title = "{0.name}, {1}, {2.label}".format
        display.plan([(title(*where, who), 1.0) for where in places for who in searched])
        for where in places:
            problem = PaperProblem(*where, profile, threads)
            for contender in searched:
                display.begin(title(*where, contender))
                found, run = tuning.tune(
                    contender,
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
                    contender.label,
                    f"{found.step_size:.4g}",
                    f"{run.history.fun[min(iterations, len(run.history) - 1)]:.6g}",
                    *(f"{number:,}" for number in found.cost.values()),
                )
    new_console().print(table)
