"""From the files of a study to what people look at: pictures, the page, the account, a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from momentous.comparison.report import new_console
from momentous.comparison.words import seconds
from momentous.lab.report.account import write_account
from momentous.lab.paper.claims import judge
from momentous.lab.paper.exponents import plot_growth
from momentous.lab.report.figures import draw_comparison, draw_long_run
from momentous.lab.paper.folder import load_findings
from momentous.lab.paper.folder import StudyFolder
from momentous.lab.report.page import write_page
from momentous.lab.paper.results import RunSet, Study

TITLE = "Restarted nonconvex acceleration: the paper's experiments, run again"
LEAD = (
    "Li and Lin (JMLR 2023) compare their adaptive restarted methods with five others on matrix "
    "completion and one-bit matrix completion. These are the same experiments, from recorded runs."
)


def load_study(folder: StudyFolder) -> Study:
    """All that the files of a folder tell."""
    groups = folder.groups()
    bounds, growths = load_findings(folder.findings) if folder.findings.exists() else ([], [])
    return Study(groups, judge(groups), bounds, growths)


def draw_pictures(
    study: Study, folder: Path, suffixes: tuple[str, ...] = ("pdf", "png")
) -> dict[str, Path]:
    """Every figure in these formats; returns those of the last by figure."""
    pictures: dict[str, Path] = {}
    for figure in dict.fromkeys(group.figure for group in study.groups):
        groups = [group for group in study.groups if group.figure == figure]
        draw = draw_long_run if figure == "fig3" else draw_comparison
        for part, title in _parts(figure, groups):
            for suffix in suffixes:
                pictures[title] = folder / f"{title}.{suffix}"
                draw(part, pictures[title])
    if study.growths:
        for suffix in suffixes:
            pictures["exponents"] = folder / f"exponents.{suffix}"
            plot_growth(study.growths, pictures["exponents"])
    return pictures


def _parts(figure: str, groups: list[RunSet]) -> list[tuple[list[RunSet], str]]:
    """The pictures of a figure: the demonstration has one a problem, like figures 1 and 2."""
    if figure != "demo":
        return [(groups, figure)]
    problems = dict.fromkeys(group.runs[0].info.problem for group in groups)
    return [
        ([group for group in groups if group.runs[0].info.problem == problem], f"demo-{problem}")
        for problem in problems
    ]


def write_report(folder: StudyFolder, *, title: str = TITLE, lead: str = LEAD) -> Study:
    """Pictures and the page, from the files of the folder alone."""
    study = load_study(folder)
    pictures = draw_pictures(study, folder.figures)
    write_page(study, folder.page, title=title, lead=lead, pictures=pictures)
    return study


def write_documents(folder: StudyFolder, path: Path, command: str, opening: str = "") -> None:
    """The account in Markdown, with its pictures beside it."""
    study = load_study(folder)
    pictures = draw_pictures(study, path.with_suffix(""), ("png",))
    write_account(study, path, pictures=pictures, command=command, opening=opening)


def print_results(study: Study, *, verdicts: bool = True) -> None:
    """A table a group, and the verdicts."""
    from rich.table import Table

    console = new_console()
    for group in study.groups:
        table = Table(title=f"{group.figure}: {group.title}", box=None, title_justify="left")
        for heading in ("method", "step", "iterations", "values", "gradients", "time", "restarts",
                        "f - f*", "gradient norm"):  # fmt: skip
            table.add_column(heading, justify="left" if heading == "method" else "right")
        for row in sorted(_rows(group), key=lambda row: row[0]):
            table.add_row(*row[1:])
        console.print(table)
        console.print()
    if study.claims and verdicts:
        table = Table("", "the paper says", "on", box=None)
        for claim in study.claims:
            table.add_row(claim.verdict, claim.statement, claim.on)
        console.print(table)
    if study.bounds:
        kept = sum(bound.holds for bound in study.bounds)
        console.print(f"Theorems: {kept} of {len(study.bounds)} bounds hold.")


def _rows(group: RunSet) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for run in group.runs:
        last = group.shown(run).stop - 1
        history, error = run.history, run.fun[last] - group.lowest[0]
        restarts = sum(row <= last for row in history.restart_rows())
        step = run.info.step_size
        rows.append(
            (
                error,
                run.info.method,
                "" if step is None else f"{step:.4g}",
                f"{last:,}",
                f"{int(history.nfev[last]):,}",
                f"{int(history.njev[last]):,}",
                seconds(float(history.time[last])),
                f"{restarts:,}",
                f"{error:.2e}",
                f"{history.grad_norm[last]:.2e}",
            )
        )
    return rows
