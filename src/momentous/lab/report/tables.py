"""The sections of the page about the runs: results, parameters, tuning, data and machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from momentous.comparison.words import counted, seconds
from momentous.lab.paper.baselines import baseline_notes
from momentous.reproduce.html_table import html_table
from momentous.lab.report.plots import plot_figure, what_is_drawn
from momentous.lab.paper.runs import PaperRun
from momentous.lab.paper.results import EARLY, RunSet


def group_section(key: str, group: RunSet) -> str:
    """A figure with its results; the key is the id of the plot."""
    about = group.runs[0].info
    badge = ' <span class="badge">synthetic twin</span>' if about.twin else ""
    rows, columns = about.shape
    twin = (
        ", synthetic, of the same shape and count as the data it stands for" if about.twin else ""
    )
    lowest, whose = group.lowest
    attained = int(np.nanargmin(whose.fun)) if math.isfinite(lowest) else None
    star = (
        "No run has a finite objective value."
        if attained is None
        else f"f* = {lowest:.10g}, the least value in all of these runs: {group.name(whose)} "
        f"attained it in iteration {attained:,}. {group.reference}"
    )
    beside = baseline_notes(group)
    longest = max(len(run) for run in group.runs) - 1
    cut = f" Runs are up to {longest:,} iterations long; the first {group.plotted:,} are shown."
    return f"""<h2><span class="figure-name">{escape(group.figure_name)}:</span> \
{escape(group.title)}{badge}</h2>
<p class="note">{rows:,} by {columns:,} matrix with {about.entries:,} entries{twin}; rank
{about.rank}; {escape(group.profiles)}.</p>
{plot_figure(key)}
<p class="note">{escape(what_is_drawn(group))}</p>
<p>{escape(star)}{cut if longest > group.plotted else ""}</p>
{f'<p class="note">{escape(beside)}</p>' if beside else ""}
<h3>Results</h3>
<p class="note">In the iterations shown. Restarts include those by line 11; "at {EARLY:,}" is after
as many values + gradients. {escape(group.how_timed)}</p>
{_results(group)}"""


def _results(group: RunSet) -> str:
    headings = ["method", "step size", "iterations", "values", "gradients", "time", "restarts",
                "line 11", "f - f* at the end", "‖∇f‖ at the end", f"f - f* at {EARLY:,}",
                f"‖∇f‖ at {EARLY:,}", "status"]  # fmt: skip
    lines = [_result_cells(group, run) for run in group.runs]
    # Columns that would hold nothing but dashes say nothing.
    told = [i for i in range(len(headings)) if any(line[i] != "-" for line in lines)]
    return html_table(
        f"results, {group.figure_name}: {group.title}",
        [headings[i] for i in told],
        [[line[i] for i in told] for line in lines],
        text=["status"],
    )


def _result_cells(group: RunSet, run: PaperRun) -> list[str]:
    about, history = run.info, run.history
    name = group.name(run)
    status = about.status.replace("_", " ").lower()
    step = (
        about.step_from if about.step_size is None else f"{about.step_size:.4g} ({about.step_from})"
    )
    size = group.shown(run).stop
    if not size:
        return [name, step, *["-"] * 10, status]
    restarts = sum(row < size for row in history.restart_rows())
    rollbacks = sum(row < size and kind == "ROLLBACK" for row, kind, _ in history.events)
    return [
        name,
        step,
        f"{size - 1:,}",
        f"{int(history.nfev[size - 1]):,}",
        f"{int(history.njev[size - 1]):,}",
        seconds(float(history.time[size - 1])),
        f"{restarts:,}" if restarts else "-",
        f"{rollbacks:,}" if rollbacks else "-",
        *_error_and_gradient(group, run, size - 1),
        *_error_and_gradient(group, run, group.early(run)),
        status,
    ]


def _error_and_gradient(group: RunSet, run: PaperRun, row: int | None) -> tuple[str, str]:
    if row is None:
        return "-", "-"
    error = float(run.fun[row]) - group.lowest[0]
    norm = float(run.grad_norm[row])
    return (
        "0" if error == 0 else f"{error:.2e}" if math.isfinite(error) else "-",
        f"{norm:.2e}" if math.isfinite(norm) else "-",
    )


def parameters_section(groups: Sequence[RunSet]) -> str:
    """Runs that differ in their step size and data alone share a line."""
    where: dict[tuple[str, str, str], list[str]] = {}
    for group, run in _runs(groups):
        given = {
            name: value
            for name, value in run.info.parameters.items()
            if value is not None and name != "step_size"
        }
        line = (group.name(run), run.info.profile, _value(given) or "none")
        where.setdefault(line, []).append(group.title)
    headings = ["method", "whose", "parameters", "on"]
    lines = [
        (*line, "all" if len(set(on)) == len(groups) > 1 else "; ".join(dict.fromkeys(on)))
        for line, on in where.items()
    ]
    return (
        "<h2>Parameters</h2>\n<p>Step sizes are in the tables of results; what is not listed was "
        f"left to the method.</p>\n{html_table('parameters', headings, lines, text=headings[1:])}"
    )


def tuning_section(groups: Sequence[RunSet]) -> str:
    """What the search for step sizes cost; nothing where nobody searched."""
    tuned = [(group, run) for group, run in _runs(groups) if run.info.tuning]
    if not tuned:
        return ""
    keys = list(dict.fromkeys(key for _, run in tuned for key in run.info.tuning))
    lines = [
        (
            group.name(run),
            group.title,
            *(_value(run.info.tuning[key]) if key in run.info.tuning else "-" for key in keys),
        )
        for group, run in tuned
    ]
    table = html_table("cost of tuning", ["method", "on", *keys], lines, text=["on"])
    return (
        "<h2>Cost of tuning</h2>\n<p>What the search for the step size took, besides the runs "
        f"above.</p>\n{table}"
    )


def provenance_section(groups: Sequence[RunSet]) -> str:
    """Which data, and where they were worked on."""
    abouts = [run.info for _, run in _runs(groups)]
    data = dict.fromkeys(
        (
            about.data_name,
            about.problem_name,
            f"{about.shape[0]:,} by {about.shape[1]:,}",
            f"{about.entries:,}",
            str(about.rank),
            about.fingerprint,
        )
        for about in abouts
    )
    headings = ["data", "problem", "shape", "entries", "rank", "fingerprint"]
    machines = dict.fromkeys(
        f"{about.setup}; {counted(about.threads, 'thread')}" for about in abouts
    )
    told = "".join(f"<p>{escape(machine)}</p>" for machine in machines)
    table = html_table("data", headings, data, text=["problem", "fingerprint"])
    return f"<h2>Data and machine</h2>\n{table}\n{told}"


def _runs(groups: Sequence[RunSet]) -> list[tuple[RunSet, PaperRun]]:
    return [(group, run) for group in groups for run in group.runs]


def _value(value: Any) -> str:
    """A parameter in words."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {_value(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return "(" + ", ".join(_value(inner) for inner in value) + ")"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
