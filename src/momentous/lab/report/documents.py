"""From the files of a study to its pictures, its page in HTML and its account in Markdown.

Both documents are templates over the same facts.  The page needs no network: Plotly's script is
embedded once, and scripts run only if their hashes stand in its content security policy.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

import numpy as np

from momentous.io.atomic import write_text
from momentous.io.optional import require
from momentous.lab.paper.baselines import baseline_notes
from momentous.lab.paper.claims import judge
from momentous.lab.paper.folder import StudyFolder
from momentous.lab.paper.results import EARLY, Bound, Claim, RunSet, Study, tally
from momentous.lab.record import Ended, Json
from momentous.lab.report import tables
from momentous.lab.report.figures import draw_comparison, draw_long_run, plot_growth
from momentous.lab.report.plots import growth_figure, mark_words, run_set_plots
from momentous.lab.text import and_list, count_of, render
from momentous.version import __version__

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
# The only script of our own: it hands the figures in the page to Plotly.
DRAW_SCRIPT = """\
"use strict";
const figures = JSON.parse(document.getElementById("figures").textContent);
for (const [id, figure] of Object.entries(figures)) {
  Plotly.newPlot(id, figure.data, figure.layout, {
    responsive: true, displaylogo: false,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
  });
}
"""


def write_report(folder: StudyFolder, *, title: str = TITLE, lead: str = LEAD) -> Study:
    """Pictures and the page, from the files of the folder alone."""
    run_sets = folder.run_sets()
    study = Study(run_sets, judge(run_sets), *folder.load_findings())
    pictures = draw_pictures(study, folder.figures)
    write_page(study, folder.page, title=title, lead=lead, pictures=pictures)
    return study


def draw_pictures(
    study: Study, folder: Path, suffixes: tuple[str, ...] = ("pdf", "png")
) -> dict[str, Path]:
    """Every figure in these formats; returns those of the last by figure."""
    pictures: dict[str, Path] = {}
    drawn: dict[str, list[RunSet]] = {}
    for run_set in study.run_sets:
        drawn.setdefault(_picture_of(run_set), []).append(run_set)
    for suffix in suffixes:
        for name, run_sets in drawn.items():
            draw = draw_long_run if name == "fig3" else draw_comparison
            pictures[name] = folder / f"{name}.{suffix}"
            draw(run_sets, pictures[name])
        if study.growths:
            pictures[EXPONENTS] = folder / f"{EXPONENTS}.{suffix}"
            plot_growth(study.growths, pictures[EXPONENTS])
    return pictures


def _picture_of(run_set: RunSet) -> str:
    """Of the demonstration a picture per problem, as figures 1 and 2 are."""
    return run_set.figure + (f"-{run_set.problem}" if run_set.figure == "demo" else "")


def write_page(
    study: Study, path: Path, *, title: str, lead: str, pictures: Mapping[str, Path] | None = None
) -> None:
    """Write the page of a study: all of it or nothing; empty parts of the study are left out.

    Title and lead are plain text.  Pictures are files to link to, by what to call them; the links
    are relative to the page.
    """
    facts = _facts(study)
    plots = run_set_plots([part["run_set"] for part in facts["parts"]])
    figures = {f"plot-{i}": figure for i, (figure, _) in enumerate(plots)}
    for part, (_, drawn) in zip(facts["parts"], plots, strict=True):
        part["notes"].insert(2, drawn)
    if study.growths:
        figures["growth"] = growth_figure(study.growths)
    markup = require("markupsafe", "app", "The report page").Markup
    scripts = [_plotly_script(), DRAW_SCRIPT] if figures else []
    page = render(
        "page.html",
        **facts,
        title=title,
        lead=lead,
        version=__version__,
        policy=_policy(scripts),
        style=markup((files("momentous.lab") / "templates" / "page.css").read_text("utf-8")),
        scripts=[markup(script) for script in scripts],
        figures=figures,
        # "./" keeps a colon in a file name from being read as a protocol.
        pictures=[
            (f"{name} ({picture.suffix[1:].upper()})", f"./{quote(_relative(picture, path))}")
            for name, picture in (pictures or {}).items()
        ],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page)


def write_account(
    study: Study, path: Path, command: str, pictures: dict[str, Path] | None = None
) -> None:
    """Write the account, all of whose numbers and sentences come from the study.

    Pictures are named as by `draw_pictures`; by default they are drawn, in the folder of the same
    name.  The command is what made the account.
    """
    if pictures is None:
        pictures = draw_pictures(study, path.with_suffix(""), ("png",))
    statements: dict[tuple[str, str], list[Claim]] = {}
    for claim in study.claims:
        statements.setdefault((claim.where, claim.statement), []).append(claim)
    infos = [run.info for run_set in study.run_sets for run in run_set.runs]
    account = render(
        "account.md",
        **_facts(study),
        command=command,
        subjects=SUBJECTS,
        links={name: _relative(picture, path) for name, picture in pictures.items()},
        statements=statements,
        how_timed=max((run_set.how_timed for run_set in study.run_sets), key=len, default=""),
        twins=dict.fromkeys(info.data for info in infos if info.twin),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, account.rstrip() + "\n")


def _relative(file: Path, page: Path) -> str:
    return Path(os.path.relpath(file, page.parent)).as_posix()


def _facts(study: Study) -> Json:
    """What both documents show."""
    run_sets = [run_set for run_set in study.run_sets if run_set.runs]
    return {
        "parts": [_run_set_part(i, run_set) for i, run_set in enumerate(run_sets)],
        "claims": study.claims,
        "tally": tally(study.claims),
        "bounds": _bounds_part(study.bounds),
        "growth": tables.growth_table(study.growths) if study.growths else None,
        "parameters": tables.parameters_table(run_sets) if run_sets else None,
        "tuning": tables.tuning_table(run_sets),
        "tuning_note": tables.TUNING_NOTE,
        "data": tables.data_table(run_sets) if run_sets else None,
        "machines": list(dict.fromkeys(m for run_set in run_sets for m in run_set.machines)),
    }


def _run_set_part(number: int, run_set: RunSet) -> Json:
    """What the templates show of a run set."""
    info = run_set.runs[0].info
    profiles = ", ".join(dict.fromkeys(run.info.profile for run in run_set.runs))
    lowest, baselines = _lowest(run_set), baseline_notes(run_set)
    notes = [
        f"{info.shape[0]:,} by {info.shape[1]:,} matrix with {info.entries:,} entries"
        + (", synthetic, of the same shape and count as the data it stands for" * info.twin)
        + f"; rank {info.rank}; parameters: {profiles}.",
        lowest,
        baselines,
        f'The table is about the iterations shown; restarts include those by line 11; "at '
        f'{EARLY:,}" is after as many values + gradients.',
        run_set.how_timed,
    ]
    # Our runs have a row per iteration, and one of the start; sweeps have none of that.
    short = [run for run in run_set.runs if len(run) <= run.info.iterations]
    return {
        "run_set": run_set,
        "plot": f"plot-{number}",
        "picture": _picture_of(run_set) if run_set.figure == "demo" else None,
        "figure": run_set.figure,
        "figure_name": run_set.figure_name,
        "title": run_set.title,
        "twin": info.twin,
        "headline": _headline(run_set),
        "marks": mark_words(run_set),
        "table": tables.results_table(run_set),
        "lowest": lowest,
        "baselines": baselines,
        "iterations": tables.shown_iterations(run_set),
        "notes": [note for note in notes if note],
        "early": [
            f"{run.info.method}: {run.message}"
            for run in short
            if run.status is not Ended.MAX_ITERATIONS
        ],
    }


def _headline(run_set: RunSet) -> str:
    """Which runs end lowest, in one sentence."""
    ends = {run.info.method: run_set.error(run) for run in run_set.runs if len(run)}
    last = sorted((float(error[-1]), name) for name, error in ends.items())
    known = [f"{name} ({error:.2e})" for error, name in last if math.isfinite(error)]
    if not known:
        return "No run has a finite objective value."
    highest = f"; highest: {known[-1]}" if len(known) > 3 else ""
    return (
        f"Lowest f - f* at the end of the {run_set.plotted:,} iterations shown: "
        f"{and_list(known[:3])}{highest}."
    )


def _lowest(run_set: RunSet) -> str:
    lowest, run = run_set.lowest
    if not math.isfinite(lowest):
        return "No run has a finite objective value."
    longest = max(len(run) for run in run_set.runs) - 1
    cut = f" Runs are up to {longest:,} iterations long; the first {run_set.plotted:,} are shown."
    return (
        f"f* = {lowest:.10g}, the least value in all of these runs: {run.info.method} attained "
        f"it in iteration {int(np.nanargmin(run.fun)):,}. {run_set.reference}"
        + (cut if longest > run_set.plotted else "")
    )


def _bounds_part(bounds: Sequence[Bound]) -> Json | None:
    if not bounds:
        return None
    held = sum(bound.holds for bound in bounds)
    return {
        "headline": f"{held} of {count_of(len(bounds), 'bound')} hold. Of each, the function on "
        "which least room is left.",
        "tightest": tables.tightest_bounds_table(bounds),
        "all": tables.bounds_table(bounds),
    }


@functools.cache
def _plotly_script() -> str:
    script: str = require("plotly.offline", "app", "The report page").get_plotlyjs()
    return script


def _policy(scripts: Sequence[str]) -> str:
    """Nothing is fetched, and no script runs but these; Plotly sets styles, so those are free."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    hashes = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes or chr(39) + 'none' + chr(39)}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
