"""The plots of the page, as its scripts take them: curves, colours, marks and axes as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from momentous.comparison.look import LINES, ON_DARK, line_styles
from momentous.reproduce.figures import Looks, styles
from momentous.reproduce.recorded import Recorded
from momentous.reproduce.study import Group, Growth
from momentous.reproduce.thinning import kept_rows

LONG = 5000  # iterations from which a curve is first shown against a logarithm
SIGNS = {
    "RESTART": "restart",
    "ROLLBACK": "line 11 of Algorithms 2 and 4: rolled back",
    "RADIUS_REACHED": "B₀ ≤ B for the first time",
    "NEGATIVE_CURVATURE": "negative curvature exploited",
    "PERTURBED": "perturbed",
    "TIGHTENED": "ε lowered",
    "NON_FINITE": "not finite: rejected",
}


def group_plots(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """One plot a group; a method looks the same in all of them, and as in the pictures."""
    looks = styles([run.about.method for group in groups for run in group.runs])
    return [_group_plot(group, looks) for group in groups]


def _group_plot(group: Group, looks: Looks) -> dict[str, Any]:
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
        "series": [_curve(group, run, looks[run.about.method]) for run in group.runs],
    }


def _curve(group: Group, run: Recorded, look: dict[str, Any]) -> dict[str, Any]:
    name, shown = group.name(run), group.shown(run)
    error, gradient = group.error(run), run.history.grad_norm[shown]
    events = [(at, kind) for at, kind, _ in run.history.events if at < shown.stop and kind in SIGNS]
    kept = kept_rows((error, gradient), events)
    place = {int(row): i for i, row in enumerate(kept)}
    columns = {
        "iteration": np.arange(shown.stop),
        "evaluations": run.evaluations[shown],
        "time": run.history.time[shown],
        "error": error,
        "gradient": gradient,
        "step": run.step_sizes[shown],
    }
    return {
        **_drawn(name, name, _told_from_namesakes(look, group.variant(run))),
        "columns": {key: _short(column[kept]) for key, column in columns.items()},
        "events": [[place[row], kind] for row, kind in events if row in place],
    }


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
        "dark": ON_DARK[look["color"]],
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
