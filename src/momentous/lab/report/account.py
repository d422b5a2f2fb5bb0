"""The account of a reproduction in Markdown: every number and sentence comes from the study."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from momentous.io.atomic import write_text
from momentous.lab.paper.baselines import baseline_notes
from momentous.lab.paper.results import FIGURE_NAMES, Bound, Claim, Growth, RunSet, Study, tally
from momentous.lab.paper.runs import PaperRun
from momentous.lab.paper.tuning import RISE_ALLOWED
from momentous.lab.report.tables import (
    Table,
    data_table,
    growth_table,
    results_table,
    shown_iterations,
    tightest_bounds_table,
    tuning_table,
)
from momentous.lab.text import counted, listed, markdown_table, prose

SUBJECTS = {
    "fig1": "matrix completion",
    "fig2": "one-bit matrix completion",
    "fig3": "the adaptive methods in the long run",
}
EXPONENTS = "exponents"  # the picture of how gradients grow
TUNING_NOTE = (
    "A run is unstable if it ends before its time, climbs above its start (but in an epoch that "
    "the method itself discards), or ends above its lowest value by more than "
    f"{100 * RISE_ALLOWED:g} % of the decrease that it has made; then the next smaller step is "
    "run, and that is shown."
)


def write_account(
    study: Study, path: Path, *, pictures: dict[str, Path], command: str, opening: str = ""
) -> None:
    """Write the account.

    Parameters
    ----------
    study : Study
    path : Path
        The file; links to the pictures are relative to its folder.
    pictures : dict of str to Path
        By figure ("fig1" to "fig3", "demo") or by figure and problem ("demo-one-bit");
        "exponents" stands beside the table of growth.
    command : str
        What made the account.
    opening : str
        Paragraphs to begin with.
    """
    folder = Path(path).parent
    links = {
        figure: Path(os.path.relpath(there, folder)).as_posix()
        for figure, there in pictures.items()
    }
    parts = [
        "# The experiments of the paper, run again",
        *(prose(paragraph) for paragraph in opening.split("\n\n") if paragraph.strip()),
        prose(
            f"`{command}` made this page; every number on it is computed from the recorded runs."
        ),
        *_what_was_run(study.run_sets),
        *_figures(study.run_sets, links),
        *_tuning(study.run_sets),
        *_claims(study.claims),
        *_theorems(study.bounds),
        *_growths(study.growths, links.get(EXPONENTS)),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, "\n\n".join(parts) + "\n")


def _markdown(table: Table) -> str:
    return markdown_table(table.headings, table.lines)


def _what_was_run(run_sets: Sequence[RunSet]) -> Iterator[str]:
    infos = [run.info for run_set in run_sets for run in run_set.runs]
    if not infos:
        return
    yield "## What was run, and where"
    threads = sorted({info.threads for info in infos})
    setups = listed(list(dict.fromkeys(info.setup for info in infos)))
    yield prose(
        f"{setups}; {listed([counted(n, 'thread') for n in threads])}. The methods start from the "
        "truncated SVD of the observed matrix; a value counts as one evaluation and a gradient as "
        "another, and what only the pictures need is not counted."
    )
    yield prose(max((run_set.how_timed for run_set in run_sets), key=len))
    if any(info.twin for info in infos):
        names = listed(list(dict.fromkeys(info.data for info in infos if info.twin)))
        yield prose(
            f"**{names}: synthetic twins.** A twin has the numbers of users, items and ratings of "
            "the data set whose name it bears, and none of its data: where the paper's figures "
            "depend on real viewers, these cannot show it."
        )
    yield _markdown(data_table(run_sets))


def _figures(run_sets: Sequence[RunSet], links: dict[str, str]) -> Iterator[str]:
    parts = {f"{run_set.figure}-{run_set.problem}" for run_set in run_sets}
    alone = [name for name in links if name not in parts and name != EXPONENTS]
    for figure in dict.fromkeys([*(run_set.figure for run_set in run_sets), *alone]):
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
                f"{shown_iterations(run_set):,} iterations. {baseline_notes(run_set)}"
            )
            yield _markdown(results_table(run_set))
            early = [f"{run.info.method}: {run.message}" for run in _ended_early(run_set)]
            if early:
                yield "Those that ended before their time say why:"
                yield "\n".join(prose(message, bullet="- ") for message in early)


def _picture(title: str, link: str | None) -> Iterator[str]:
    if link is not None:
        # A browser shows a PDF behind a link, not within a page.
        yield f"{'' if link.endswith('.pdf') else '!'}[{title}]({link})"


def _ended_early(run_set: RunSet) -> list[PaperRun]:
    """Our runs have a row per iteration, and one of the start; sweeps have none of that."""
    short = [run for run in run_set.runs if len(run) <= run.info.iterations]
    return [run for run in short if run.status != "max iterations"]


def _tuning(run_sets: Sequence[RunSet]) -> Iterator[str]:
    table = tuning_table(run_sets)
    if table is not None:
        yield "## What the search for the step sizes cost"
        yield prose(TUNING_NOTE)
        yield _markdown(table)


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
            prose(f"*{claim.verdict}* on {claim.on}: {claim.numbers}.", bullet="- ")
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
    yield _markdown(tightest_bounds_table(bounds))


def _growths(growths: Sequence[Growth], picture: str | None) -> Iterator[str]:
    if growths:
        yield "## How gradients grow with the accuracy"
        yield from _picture("Gradients against 1/mu", picture)
        yield prose(
            "Gradients to a gradient norm of the order mu on the nested chain, and the exponent of "
            "the power of 1/mu that fits them."
        )
        yield _markdown(growth_table(growths))
