"""The plots of the page as JSON for Plotly: every run a curve, every event a mark.

The legend hides and shows a method; menus switch the axes and their scales.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from momentous.core.status import RESTARTS, EventKind
from momentous.lab.paper.results import Growth, RunSet
from momentous.lab.paper.runs import PaperRun
from momentous.lab.record import Json
from momentous.lab.report.figures import (
    BLUE_GREEN,
    X_AXES,
    Y_AXES,
    YELLOW,
    Looks,
    kept_rows,
    styles,
)
from momentous.lab.style import GRID, line_styles

LONG = 5000  # iterations from which a curve is first shown against a logarithm
WINDOW = 200  # rows of a long curve that are all in the page, so that zooming in shows the truth
HEIGHT, GROWTH_HEIGHT = 560, 460  # pixels
MARKS: dict[EventKind, Json] = {
    EventKind.RESTART: {"words": "restart", "symbol": "circle-open", "size": 6},
    EventKind.ROLLBACK: {"words": "epoch discarded (line 11 of Algorithms 2 and 4)",
                         "symbol": "diamond", "size": 11, "color": BLUE_GREEN},
    EventKind.RADIUS_REACHED: {"words": "B₀ ≤ B for the first time",
                               "symbol": "star", "size": 13, "color": YELLOW},
    EventKind.NEGATIVE_CURVATURE: {"words": "negative curvature exploited",
                                   "symbol": "triangle-down"},
    EventKind.PERTURBED: {"words": "perturbed", "symbol": "triangle-up"},
    EventKind.TIGHTENED: {"words": "ε lowered", "symbol": "square-open"},
    EventKind.NON_FINITE: {"words": "not finite: rejected", "symbol": "x"},
}  # fmt: skip


def run_set_plots(run_sets: Sequence[RunSet]) -> list[tuple[Json, str]]:
    """One figure per run set, as JSON for Plotly, and how much of the runs is in it, in words.

    A method looks the same in all of them, and as in the pictures.
    """
    looks = styles([run.info.method for run_set in run_sets for run in run_set.runs])
    return [_run_set_plot(run_set, looks) for run_set in run_sets]


def _run_set_plot(run_set: RunSet, looks: Looks) -> tuple[Json, str]:
    traces: list[Json] = []
    columns: list[dict[str, list[float | None]]] = []  # of each trace
    window = _complete_window(run_set)
    counts = np.zeros(4, dtype=int)  # rows, of which drawn; restarts, of which drawn
    for run in run_set.drawn:
        of_run, events = run_set.columns(run), _events(run_set, run)
        kept = kept_rows((of_run["error"], of_run["norm"]), events, window)
        drawn, restarts = set(kept.tolist()), run_set.rows(run, *RESTARTS)
        counts += (len(of_run["error"]), len(kept), len(restarts), len(drawn & set(restarts)))
        name = escape(run.info.method)  # Plotly reads some tags in texts
        line = _line(looks[run.info.method])
        columns.append({key: _short(column[kept]) for key, column in of_run.items()})
        of_method = {"type": "scatter", "name": name, "legendgroup": name}
        traces.append({**of_method, **_first_view(columns[-1]), "mode": "lines", "line": line})
        events = [(row, kind) for row, kind in events if row in drawn]
        if events:
            rows = np.array([row for row, _ in events])
            columns.append({key: _short(column[rows]) for key, column in of_run.items()})
            marks = _first_view(columns[-1]) | _marks([k for _, k in events], line["color"])
            traces.append({**of_method, **marks, "showlegend": False})
    layout = _layout(HEIGHT, X_AXES["evaluations"], Y_AXES["error"], log_x=run_set.plotted >= LONG)
    layout["updatemenus"] = _menus(columns, log_x=run_set.plotted >= LONG)
    layout["margin"]["t"] = 96
    return {"data": traces, "layout": layout}, _what_is_drawn(counts.tolist(), window)


def _first_view(columns: Mapping[str, list[float | None]]) -> Json:
    return {
        "x": columns["evaluations"],
        "y": columns["error"],
        "hovertemplate": "%{x:,} / %{y:.4e}",
    }


def _menus(columns: list[dict[str, list[float | None]]], *, log_x: bool) -> list[Json]:
    """What is drawn against what, and on which scales."""

    def axis(letter: str, names: Mapping[str, str]) -> list[Json]:
        return [
            {
                "label": label,
                "method": "update",
                "args": [
                    {letter: [each[key] for each in columns]},
                    {f"{letter}axis.title.text": label, f"{letter}axis.autorange": True},
                ],
            }
            for key, label in names.items()
        ]

    scales = [
        {
            "label": label,
            "method": "relayout",
            "args": [
                {"xaxis.type": x, "xaxis.autorange": True, "yaxis.type": y, "yaxis.autorange": True}
            ],
        }
        for label, x, y in (
            ("log y", "linear", "log"),
            ("log x, log y", "log", "log"),
            ("linear", "linear", "linear"),
        )
    ]
    place = {"type": "dropdown", "y": 1.0, "yanchor": "bottom", "showactive": True}
    look = {"bgcolor": "white", "bordercolor": "#D8DCE2", "font": {"size": 13}}
    return [
        {**place, **look, "buttons": axis("y", Y_AXES), "x": 0, "xanchor": "left",
         "pad": {"b": 48}},
        {**place, **look, "buttons": scales, "x": 1, "xanchor": "right", "pad": {"b": 8},
         "active": 1 if log_x else 0},
        {**place, **look, "buttons": axis("x", X_AXES), "x": 0, "xanchor": "left",
         "pad": {"b": 8}},
    ]  # fmt: skip


def _marks(kinds: Sequence[EventKind], colour: str) -> Json:
    marks = [MARKS[kind] for kind in kinds]
    return {
        "mode": "markers",
        "marker": {
            "symbol": [mark["symbol"] for mark in marks],
            "size": [mark.get("size", 9) for mark in marks],
            "color": [mark.get("color", colour) for mark in marks],
            "line": {"width": 1.5, "color": colour},
        },
        "text": [mark["words"] for mark in marks],
        "hovertemplate": "%{text}: %{x:,} / %{y:.4e}",
    }


def _layout(height: int, x_title: str, y_title: str, *, log_x: bool) -> Json:
    axis = {"gridcolor": GRID, "zeroline": False, "exponentformat": "power", "automargin": True}
    return {
        "height": height,
        "margin": {"l": 60, "r": 12, "t": 24, "b": 50},
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "#1B1F24"},
        "plot_bgcolor": "white",
        "hovermode": "closest",
        "legend": {"orientation": "h", "y": -0.18, "yanchor": "top", "x": 0, "xanchor": "left"},
        "xaxis": {**axis, "title": {"text": x_title}, "type": "log" if log_x else "linear"},
        "yaxis": {**axis, "title": {"text": y_title}, "type": "log"},
    }


def _line(look: Json) -> Json:
    dashes = look["ls"]
    dash = "solid" if dashes == "-" else ",".join(f"{2 * length:g}px" for length in dashes[1])
    return {"color": look["color"], "width": 1.2 * look["lw"], "dash": dash}


def _short(column: np.ndarray) -> list[float | int | None]:
    """Six digits are more than a screen has; what is not finite is not there."""
    rounded = (float(f"{value:.6g}") for value in column.tolist())
    numbers = [number if math.isfinite(number) else None for number in rounded]
    return [int(n) if n is not None and n.is_integer() and abs(n) < 1e15 else n for n in numbers]


# --- which rows are drawn -------------------------------------------------------------------------


def _events(run_set: RunSet, run: PaperRun) -> list[tuple[int, EventKind]]:
    stop = run_set.shown(run).stop
    return [(at, kind) for at, kind, _ in run.events if at < stop and kind in MARKS]


def _complete_window(run_set: RunSet) -> range:
    """The rows of a long set that are all there: where B0 <= B in all runs that get so far.

    At the end where none does.
    """
    if run_set.plotted < LONG:
        return range(0)
    reached = [
        rows[0] for run in run_set.runs if (rows := run_set.rows(run, EventKind.RADIUS_REACHED))
    ]
    last = max(run_set.shown(run).stop for run in run_set.runs) - WINDOW
    start = max(0, min(max(reached, default=last), last))
    return range(start, start + WINDOW)


def _what_is_drawn(counts: list[int], window: range) -> str:
    """How many of the iterations and restarts are in the page, and where all of them are."""
    rows, kept, restarts, marked = counts
    if kept == rows:
        return f"All {rows:,} rows of these runs and all {restarts:,} restarts are in the page."
    text = (
        f"{kept:,} of {rows:,} iterations and {marked:,} of {restarts:,} restarts are drawn; "
        "all are in the Parquet files."
    )
    if window:
        text += (
            f" Iterations {window[0]:,} to {window[-1]:,} are complete, with every restart: zoom "
            "in there to see how they follow each other; elsewhere gaps between circles mean "
            "nothing."
        )
    return text


def mark_words(run_set: RunSet) -> list[tuple[str, str]]:
    """The marks of a plot: name of the symbol, and what it means."""
    kinds = {kind for run in run_set.runs for _, kind in _events(run_set, run)}
    return [
        (mark["symbol"].replace("-open", ""), mark["words"])
        for kind, mark in MARKS.items()
        if kind in kinds
    ]


# --- growth ---------------------------------------------------------------------------------------


def growth_figure(growths: Sequence[Growth]) -> Json:
    """Gradients against 1/mu, in the colours of the picture of the same."""
    looks = line_styles([growth.method for growth in growths])
    traces = [
        {
            "type": "scatter",
            "x": _short(np.asarray(growth.inverse_mu)),
            "y": _short(np.asarray(growth.gradients)),
            "name": f"{escape(growth.method)}: exponent {growth.exponent:.2f}",
            "mode": "lines+markers",
            "line": _line(looks[growth.method]),
            "marker": {"size": 6},
        }
        for growth in growths
    ]
    layout = _layout(GROWTH_HEIGHT, "1/μ", "gradients", log_x=True)
    layout["legend"]["y"] = -0.3  # the plot is lower than the others, the axis title as high
    return {"data": traces, "layout": layout}
