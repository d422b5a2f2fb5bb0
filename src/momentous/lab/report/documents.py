"""From the files of a study to pictures, page and account, and to tables on a terminal."""

from __future__ import annotations

from pathlib import Path

from momentous.lab.paper.claims import judge
from momentous.lab.paper.folder import StudyFolder
from momentous.lab.paper.results import RunSet, Study
from momentous.lab.progress import new_console, new_table
from momentous.lab.report.account import EXPONENTS, write_account
from momentous.lab.report.figures import draw_comparison, draw_long_run, plot_growth
from momentous.lab.report.page import write_page
from momentous.lab.report.tables import Table, results_table

TITLE = "Restarted nonconvex acceleration: the paper's experiments, run again"
LEAD = (
    "Li and Lin (JMLR 2023) compare their adaptive restarted methods with five others on matrix "
    "completion and one-bit matrix completion. These are the same experiments, from recorded runs."
)
PRINTED = ("method", "step size", "iterations", "values", "gradients", "time", "restarts",
           "f - f* at the end", "norm at the end")  # fmt: skip


def load_study(folder: StudyFolder) -> Study:
    """All that the files of a folder hold, and the verdicts that follow."""
    run_sets = folder.run_sets()
    bounds, growths = folder.load_findings()
    return Study(run_sets, judge(run_sets), bounds, growths)


def draw_pictures(
    study: Study, folder: Path, suffixes: tuple[str, ...] = ("pdf", "png")
) -> dict[str, Path]:
    """Every figure in these formats; returns those of the last by figure."""
    pictures: dict[str, Path] = {}
    for figure in dict.fromkeys(run_set.figure for run_set in study.run_sets):
        run_sets = [run_set for run_set in study.run_sets if run_set.figure == figure]
        draw = draw_long_run if figure == "fig3" else draw_comparison
        for part, title in _parts(figure, run_sets):
            for suffix in suffixes:
                pictures[title] = folder / f"{title}.{suffix}"
                draw(part, pictures[title])
    if study.growths:
        for suffix in suffixes:
            pictures[EXPONENTS] = folder / f"{EXPONENTS}.{suffix}"
            plot_growth(study.growths, pictures[EXPONENTS])
    return pictures


def _parts(figure: str, run_sets: list[RunSet]) -> list[tuple[list[RunSet], str]]:
    """The pictures of a figure: the demonstration has one per problem, like figures 1 and 2."""
    if figure != "demo":
        return [(run_sets, figure)]
    problems = dict.fromkeys(run_set.problem for run_set in run_sets)
    return [
        ([run_set for run_set in run_sets if run_set.problem == problem], f"demo-{problem}")
        for problem in problems
    ]


def write_report(folder: StudyFolder, *, title: str = TITLE, lead: str = LEAD) -> Study:
    """Pictures and the page, from the files of the folder alone."""
    study = load_study(folder)
    pictures = draw_pictures(study, folder.figures)
    write_page(study, folder.page, title=title, lead=lead, pictures=pictures)
    return study


def write_account_files(folder: StudyFolder, path: Path, command: str, opening: str = "") -> None:
    """The account in Markdown, with its pictures in the folder of the same name."""
    study = load_study(folder)
    pictures = draw_pictures(study, path.with_suffix(""), ("png",))
    write_account(study, path, pictures=pictures, command=command, opening=opening)


def print_results(study: Study, *, verdicts: bool = True) -> None:
    """A table per run set, and the verdicts."""
    for run_set in study.run_sets:
        table = results_table(run_set).only(*PRINTED)
        print_table(table, title=f"{run_set.figure}: {run_set.title}")
    console = new_console()
    if study.claims and verdicts:
        lines = [[claim.verdict, claim.statement, claim.on] for claim in study.claims]
        headings = ["", "the paper says", "on"]
        print_table(Table("verdicts", headings, lines, tuple(headings)))
    if study.bounds:
        kept = sum(bound.holds for bound in study.bounds)
        console.print(f"Theorems: {kept} of {len(study.bounds)} bounds hold.")


def print_table(table: Table, *, title: str | None = None) -> None:
    """A table on the terminal."""
    console = new_console()
    shown = new_table(title=title, box=None, title_justify="left")
    for heading in table.headings:
        shown.add_column(heading, justify="left" if heading in table.words else "right")
    for line in table.lines:
        shown.add_row(*line)
    console.print(shown)
    console.print()
