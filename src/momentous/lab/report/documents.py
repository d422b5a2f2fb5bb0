"""From the files of a study to pictures, page and account."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from momentous.io.atomic import write_text
from momentous.lab.paper.baselines import baseline_notes
from momentous.lab.paper.claims import judge
from momentous.lab.paper.folder import StudyFolder
from momentous.lab.paper.results import FIGURE_NAMES, Bound, Claim, Growth, RunSet, Study, tally
from momentous.lab.record import Ended
from momentous.lab.report import tables
from momentous.lab.report.figures import draw_comparison, draw_long_run, plot_growth
from momentous.lab.report.page import write_page
from momentous.lab.text import and_list, details, markdown_table, prose

TITLE = "Restarted nonconvex acceleration: the paper's experiments, run again"
LEAD = (
    "Li and Lin (JMLR 2023) compare their adaptive restarted methods with five others on matrix "
    "completion and one-bit matrix completion. These are the same experiments, from recorded runs."
)
SUBJECTS = {
    "fig1": "matrix completion",
    "fig2": "one-bit matrix completion",
    "fig3": "the adaptive methods in the long run",
}
EXPONENTS = "exponents"  # the picture of how gradients grow


def draw_pictures(
    study: Study, folder: Path, suffixes: tuple[str, ...] = ("pdf", "png")
) -> dict[str, Path]:
    """Every figure in these formats; returns those of the last by figure."""
    pictures: dict[str, Path] = {}
    drawn: dict[str, list[RunSet]] = {}
    for run_set in study.run_sets:  # of the demonstration a picture per problem, as figures 1 and 2
        name = run_set.figure + (f"-{run_set.problem}" if run_set.figure == "demo" else "")
        drawn.setdefault(name, []).append(run_set)
    for name, run_sets in drawn.items():
        draw = draw_long_run if name == "fig3" else draw_comparison
        for suffix in suffixes:
            pictures[name] = folder / f"{name}.{suffix}"
            draw(run_sets, pictures[name])
    if study.growths:
        for suffix in suffixes:
            pictures[EXPONENTS] = folder / f"{EXPONENTS}.{suffix}"
            plot_growth(study.growths, pictures[EXPONENTS])
    return pictures


def write_report(folder: StudyFolder, *, title: str = TITLE, lead: str = LEAD) -> Study:
    """Pictures and the page, from the files of the folder alone."""
    run_sets = folder.run_sets()
    study = Study(run_sets, judge(run_sets), *folder.load_findings())
    pictures = draw_pictures(study, folder.figures)
    write_page(study, folder.page, title=title, lead=lead, pictures=pictures)
    return study


# --- the account in Markdown ----------------------------------------------------------------------


def write_account(
    study: Study, path: Path, command: str, opening: str = "",
    pictures: dict[str, Path] | None = None,
) -> None:  # fmt: skip
    """Write the account, all of whose numbers and sentences come from the study.

    Pictures are named as by `draw_pictures`; by default they are drawn, in the folder of the same
    name.  The command is what made the account; the opening holds paragraphs to begin with.
    """
    folder = Path(path).parent
    if pictures is None:
        pictures = draw_pictures(study, path.with_suffix(""), ("png",))
    links = {name: Path(os.path.relpath(it, folder)).as_posix() for name, it in pictures.items()}
    parts = [
        "# The experiments of the paper, run again",
        *(prose(paragraph) for paragraph in opening.split("\n\n") if paragraph.strip()),
        prose(
            f"`{command}` made this page; every number below is computed from the recorded runs."
        ),
        *_figures(study.run_sets, links),
        *_claims(study.claims),
        *_theorems(study.bounds),
        *_growths(study.growths, links.get(EXPONENTS)),
        *_what_was_run(study.run_sets),
        *_tuning(study.run_sets),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, "\n\n".join(parts) + "\n")


def _markdown(table: tables.Table) -> str:
    return markdown_table(table.headings, table.lines)


def _what_was_run(run_sets: Sequence[RunSet]) -> Iterator[str]:
    infos = [run.info for run_set in run_sets for run in run_set.runs]
    if not infos:
        return
    yield "## What was run, and where"
    machines = and_list(list(dict.fromkeys(info.machine for info in infos)))
    yield prose(
        f"{machines}. The methods start from the "
        "truncated SVD of the observed matrix; a value counts as one evaluation and a gradient as "
        "another, and what only the pictures need is not counted."
    )
    yield prose(max((run_set.how_timed for run_set in run_sets), key=len))
    if any(info.twin for info in infos):
        names = and_list(list(dict.fromkeys(info.data for info in infos if info.twin)))
        yield prose(
            f"**{names}: synthetic twins.** A twin has the numbers of users, items and ratings of "
            "the data set whose name it bears, and none of its data: where the paper's figures "
            "depend on real viewers, these cannot show it."
        )
    yield _markdown(tables.data_table(run_sets))


def _figures(run_sets: Sequence[RunSet], links: dict[str, str]) -> Iterator[str]:
    for figure in dict.fromkeys(run_set.figure for run_set in run_sets):
        title = FIGURE_NAMES.get(figure, figure)
        if figure in SUBJECTS:
            title += f": {SUBJECTS[figure]}"
        yield f"## {title}"
        yield from _picture(title, links.get(figure))
        for run_set in (each for each in run_sets if each.figure == figure):
            lowest, run = run_set.lowest
            yield f"### {run_set.title}"
            yield from _picture(run_set.title, links.get(f"{figure}-{run_set.problem}"))
            yield prose(
                f"f* = {lowest:.9g}, the lowest value in all of these runs ({run.info.method}). "
                f"{run_set.reference} Counts, times and the end are those of the first "
                f"{tables.shown_iterations(run_set):,} iterations. {baseline_notes(run_set)}"
            )
            yield _markdown(tables.results_table(run_set))
            # Our runs have a row per iteration, and one of the start; sweeps have none of that.
            short = [run for run in run_set.runs if len(run) <= run.info.iterations]
            short = [run for run in short if run.status is not Ended.MAX_ITERATIONS]
            early = [f"{run.info.method}: {run.message}" for run in short]
            if early:
                yield "Those that ended before their time say why:"
                yield "\n".join(prose(message, bullet="- ") for message in early)


def _picture(title: str, link: str | None) -> Iterator[str]:
    if link is not None:
        yield f"![{title}]({link})"


def _tuning(run_sets: Sequence[RunSet]) -> Iterator[str]:
    table = tables.tuning_table(run_sets)
    if table is not None:
        yield "## What the search for the step sizes cost"
        yield prose(tables.TUNING_NOTE)
        yield from details("step by step", _markdown(table))


def _claims(claims: Sequence[Claim]) -> Iterator[str]:
    if not claims:
        return
    yield "## What the paper says, and what these runs show"
    statements: dict[tuple[str, str], list[Claim]] = {}
    for claim in claims:
        statements.setdefault((claim.where, claim.statement), []).append(claim)
    yield prose(tally(claims))
    for (where, statement), found in statements.items():
        yield prose(f"**{statement[0].upper()}{statement[1:]}** ({where}).")
        yield "\n".join(
            prose(f"*{claim.verdict}* on {claim.on}: {claim.behind_it}.", bullet="- ")
            for claim in found
        )


def _theorems(bounds: Sequence[Bound]) -> Iterator[str]:
    if not bounds:
        return
    yield "## What the theorems bound"
    held = sum(bound.holds for bound in bounds)
    yield prose(
        f"Bounds that hold: {held} of {len(bounds)}. Of each, the function on which least room is "
        "left; all of them are on the report page."
    )
    yield from details("bound by bound", _markdown(tables.tightest_bounds_table(bounds)))


def _growths(growths: Sequence[Growth], picture: str | None) -> Iterator[str]:
    if growths:
        yield "## How gradients grow with the accuracy"
        yield from _picture("Gradients against 1/mu", picture)
        yield prose(
            "Gradients to a gradient norm of the order mu on the nested chain, and the exponent of "
            "the power of 1/mu that fits them."
        )
        yield _markdown(tables.growth_table(growths))
