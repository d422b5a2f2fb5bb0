"""The page of a study: one HTML file with plots, tables, and nothing to fetch.

A template that escapes every value by default makes the HTML.  Plotly's script is embedded once;
scripts run only if their hashes stand in the content security policy of the page.
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
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np

from momentous.io.atomic import write_text
from momentous.io.optional import require
from momentous.lab.paper.baselines import baseline_notes
from momentous.lab.paper.results import EARLY, RunSet, Study, tally
from momentous.lab.record import Json
from momentous.lab.report import tables
from momentous.lab.report.plots import growth_figure, mark_words, run_set_plots
from momentous.lab.text import and_list, count_of
from momentous.version import __version__

if TYPE_CHECKING:
    from jinja2 import Template

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


def write_page(
    study: Study, path: Path, *, title: str, lead: str, pictures: Mapping[str, Path] | None = None
) -> None:
    """Write the page of a study: all of it or nothing; empty parts of the study are left out.

    Title and lead are plain text.  Pictures are files to link to, by what to call them; the links
    are relative to the page.
    """
    run_sets = [run_set for run_set in study.run_sets if run_set.runs]
    plots = run_set_plots(run_sets)
    figures = {f"plot-{i}": figure for i, (figure, _) in enumerate(plots)}
    if study.growths:
        figures["growth"] = growth_figure(study.growths)
    markup = require("markupsafe", "app", "The report page").Markup
    scripts = [_plotly_script(), DRAW_SCRIPT] if figures else []
    page = _template().render(
        title=title,
        lead=lead,
        version=__version__,
        policy=_policy(scripts),
        style=markup((files(__package__) / "templates" / "page.css").read_text("utf-8")),
        scripts=[markup(script) for script in scripts],
        figures=figures,
        pictures=[_link(name, picture, path) for name, picture in (pictures or {}).items()],
        parts=[_run_set_part(i, it, plots[i][1]) for i, it in enumerate(run_sets)],
        claims=study.claims,
        tally=tally(study.claims),
        bounds=_bounds_part(study),
        growth=tables.growth_table(study.growths) if study.growths else None,
        parameters=tables.parameters_table(run_sets) if run_sets else None,
        tuning=tables.tuning_table(run_sets),
        tuning_note=tables.TUNING_NOTE,
        data=tables.data_table(run_sets) if run_sets else None,
        machines=list(dict.fromkeys(m for run_set in run_sets for m in run_set.machines)),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page)


@functools.cache
def _template() -> Template:
    jinja2 = require("jinja2", "app", "The report page")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page: Template = environment.get_template("page.html")
    return page


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


def _link(name: str, picture: Path, page: Path) -> tuple[str, str]:
    # "./" keeps a colon in a file name from being read as a protocol.
    relative = Path(os.path.relpath(picture, page.parent)).as_posix()
    return f"{name} ({picture.suffix[1:].upper()})", f"./{quote(relative)}"


def _run_set_part(number: int, run_set: RunSet, drawn: str) -> Json:
    """What the template shows of a run set."""
    info = run_set.runs[0].info
    profiles = ", ".join(dict.fromkeys(run.info.profile for run in run_set.runs))
    notes = [
        f"{info.shape[0]:,} by {info.shape[1]:,} matrix with {info.entries:,} entries"
        + (", synthetic, of the same shape and count as the data it stands for" * info.twin)
        + f"; rank {info.rank}; parameters: {profiles}.",
        _lowest(run_set),
        drawn,
        baseline_notes(run_set),
        f'The table is about the iterations shown; restarts include those by line 11; "at '
        f'{EARLY:,}" is after as many values + gradients.',
        run_set.how_timed,
    ]
    return {
        "plot": f"plot-{number}",
        "figure_name": run_set.figure_name,
        "title": run_set.title,
        "twin": info.twin,
        "headline": _headline(run_set),
        "marks": mark_words(run_set),
        "table": tables.results_table(run_set),
        "notes": [note for note in notes if note],
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


def _bounds_part(study: Study) -> Json | None:
    if not study.bounds:
        return None
    held = sum(bound.holds for bound in study.bounds)
    return {
        "headline": f"{held} of {count_of(len(study.bounds), 'bound')} hold. Of each, the function "
        "on which least room is left:",
        "tightest": tables.tightest_bounds_table(study.bounds),
        "all": tables.bounds_table(study.bounds),
    }
