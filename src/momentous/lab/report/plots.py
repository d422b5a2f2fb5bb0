"""The plots of the page, as its scripts take them: curves, colours, marks and axes as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from momentous.comparison.history import RESTARTS
from momentous.comparison.look import LINES, ON_DARK, line_styles
from momentous.lab.report.figures import PURPLE, Looks, styles
from momentous.lab.paper.runs import PaperRun
from momentous.lab.paper.results import RunSet, Growth
from momentous.lab.report.thinning import kept_rows

LONG = 5000  # iterations from which a curve is first shown against a logarithm
WINDOW = 200  # rows of a long curve that are all in the page, so that zooming in shows the truth
DARK = ON_DARK | {PURPLE: "#C08AE0"}
HINT = (
    "Drag a rectangle, turn the wheel or pinch to zoom; shift-drag or move two fingers to pan. "
    "Click a method to hide it, double-click to see it alone. With the keyboard: in the plot + and "
    "- zoom, the arrows pan, Escape shows all again; on a method Enter hides it, Alt+Enter shows "
    "it alone. Restarts whose circles would overlap are not marked until you zoom in."
)
SIGNS = {
    "RESTART": "restart",
    "ROLLBACK": "line 11 of Algorithms 2 and 4: rolled back",
    "RADIUS_REACHED": "B₀ ≤ B for the first time",
    "NEGATIVE_CURVATURE": "negative curvature exploited",
    "PERTURBED": "perturbed",
    "TIGHTENED": "ε lowered",
    "NON_FINITE": "not finite: rejected",
}


def plot_figure(key: str) -> str:
    """Where the scripts draw the plot of that key, and below it how to go about it."""
    return f'<figure class="plot" id="{key}"></figure>\n<p class="hint" id="{key}-hint">{HINT}</p>'


def group_plots(groups: Sequence[RunSet]) -> list[dict[str, Any]]:
    """One plot a group; a method looks the same in all of them, and as in the pictures."""
    looks = styles([run.info.method for group in groups for run in group.runs])
    return [_group_plot(group, looks) for group in groups]


def _group_plot(group: RunSet, looks: Looks) -> dict[str, Any]:
    return {
        "title": f"{group.title} ({group.profiles})",
        "x": [
            ["evaluations", "values + gradients", "values + gradients"],
            ["time", "time in seconds", "time"],
            ["iteration", "iterations", "iterations"],
        ],
        "y": [
            ["error", "objective error f - f*", "f - f*"],
            ["gradient", "gradient norm ‖∇f‖", "gradient norm"],
        ],
        "logs": [group.plotted >= LONG, True],
        "facts": [
            ["iteration", "iteration"],
            ["evaluations", "values + gradients"],
            ["time", "seconds"],
            ["error", "f - f*"],
            ["gradient", "gradient norm"],
            ["step", "step size"],
        ],
        "legend": "methods",
        "signs": SIGNS,
        "series": [_curve(group, run, looks[run.info.method]) for run in group.runs],
    }


def _curve(group: RunSet, run: PaperRun, look: dict[str, Any]) -> dict[str, Any]:
    name, shown = group.name(run), group.shown(run)
    kept, events = _kept(group, run), _events(group, run)
    place = {int(row): i for i, row in enumerate(kept)}
    columns = {
        "iteration": np.arange(shown.stop),
        "evaluations": run.evaluations[shown],
        "time": run.time[shown],
        "error": group.error(run),
        "gradient": run.grad_norm[shown],
        "step": run.step_size[shown],
    }
    return {
        **_drawn(name, name, _told_from_namesakes(look, group.variant(run))),
        "columns": {key: _short(column[kept]) for key, column in columns.items()},
        "events": [[place[row], kind] for row, kind in events if row in place],
    }


def _events(group: RunSet, run: PaperRun) -> list[tuple[int, str]]:
    stop = group.shown(run).stop
    return [(at, kind) for at, kind, _ in run.events if at < stop and kind in SIGNS]


def _kept(group: RunSet, run: PaperRun) -> np.ndarray:
    columns = (group.error(run), run.grad_norm[group.shown(run)])
    return kept_rows(columns, _events(group, run), window(group))


def window(group: RunSet) -> range:
    """The rows of a long group that are all there: where B0 <= B in all runs that get so far.

    At the end where none does.
    """
    if group.plotted < LONG:
        return range(0)
    reached = [
        min(rows)
        for run in group.runs
        if (rows := [at for at, kind in _events(group, run) if kind == "RADIUS_REACHED"])
    ]
    last = max(group.shown(run).stop for run in group.runs) - WINDOW
    start = max(0, min(max(reached, default=last), last))
    return range(start, start + WINDOW)


def what_is_drawn(group: RunSet) -> str:
    """How many of the iterations and restarts are in the page, and where all of them are."""
    rows = kept_count = restarts = marked = 0
    for run in group.runs:
        kept = set(_kept(group, run).tolist())
        at = {row for row, kind in _events(group, run) if kind in RESTARTS}
        rows, kept_count = rows + group.shown(run).stop, kept_count + len(kept)
        restarts, marked = restarts + len(at), marked + len(at & kept)
    if kept_count == rows:
        return f"All {rows:,} rows of these runs and all {restarts:,} restarts are in the page."
    told = (
        f"{kept_count:,} of {rows:,} iterations and {marked:,} of {restarts:,} restarts are drawn; "
        "all are in the Parquet files."
    )
    where = window(group)
    if where:
        told += (
            f" Iterations {where[0]:,} to {where[-1]:,} are complete, with every restart: zoom in "
            "there to see how they follow each other; elsewhere gaps between circles mean nothing."
        )
    return told


def _told_from_namesakes(look: dict[str, Any], variant: int) -> dict[str, Any]:
    """Runs of one method have one colour, and dashes of their own."""
    dashes = [look["ls"], *(line for line in LINES if line != look["ls"])]
    return look | {"ls": dashes[variant % len(dashes)]}


def _drawn(name: str, label: str, look: Mapping[str, Any]) -> dict[str, Any]:
    dashes = look["ls"]
    return {
        "name": name,
        "label": label,
        "light": look["color"],
        "dark": DARK[look["color"]],
        "dash": [] if dashes == "-" else [2 * length for length in dashes[1]],
        "width": 1.2 * look["lw"],
        "points": False,
    }


def _short(column: np.ndarray) -> list[float | int | None]:
    """Six digits are more than a screen has; what is not finite is not there."""
    rounded = (float(f"{value:.6g}") for value in column.tolist())
    numbers = [number if math.isfinite(number) else None for number in rounded]
    return [int(n) if n is not None and n.is_integer() and abs(n) < 1e15 else n for n in numbers]


def growth_plot(growths: Sequence[Growth]) -> dict[str, Any]:
    """Gradients against 1/mu, in the colours of the picture of the same."""
    looks = line_styles([growth.method for growth in growths])
    return {
        "title": "Gradients against 1/μ on the nested chain",
        "x": [["inverse", "1/μ", "1/μ"]],
        "y": [["gradients", "gradients", "gradients"]],
        "logs": [True, True],
        "facts": [["inverse", "1/μ"], ["gradients", "gradients"]],
        "legend": "methods",
        "signs": {},
        "series": [
            {
                **_drawn(it.method, f"{it.method}: exponent {it.exponent:.2f}", looks[it.method]),
                "points": True,
                "columns": {
                    "inverse": _short(np.asarray(it.inverse_mu)),
                    "gradients": _short(np.asarray(it.gradients)),
                },
                "events": [],
            }
            for it in growths
        ],
    }
