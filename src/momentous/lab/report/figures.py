"""Figures 1 to 3 of the paper: objective error and gradient norm of recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from momentous.comparison.look import FAINT, LINES, line_styles, new_figure, quiet, save
from momentous.comparison.plots import AXES
from momentous.lab.paper.baselines import QUASI_NEWTON, SWEEPS
from momentous.lab.paper.methods import ADAPTIVE, SEVEN
from momentous.lab.paper.runs import PaperRun
from momentous.lab.paper.results import RunSet
from momentous.lab.report.thinning import outline, told_apart

Looks = dict[str, dict[str, Any]]  # matplotlib's words for a line or a mark, by its name
BLUE_GREEN, YELLOW = "#009E73", "#F0E442"  # Okabe and Ito's, as in the paper's figure 3
PURPLE = "#7B3294"
BESIDE = {QUASI_NEWTON: "black", SWEEPS: PURPLE}  # the seven have all the other colours
APART = 5.0  # points between the middles of two circles that do not overlap
ITERATIONS = "iterations"
RESTART = {"marker": "o", "ms": 4, "mfc": "white", "mec": FAINT, "mew": 1}
DISCARDED = {"marker": "o", "ms": 9, "mfc": BLUE_GREEN, "mec": "black", "mew": 0.8}
REACHED = {**DISCARDED, "mfc": YELLOW}
LABELS = {"error": "objective error  f - f*", "norm": "gradient norm"}


def draw_comparison(groups: Sequence[RunSet], path: Path) -> None:
    """Figures 1 and 2: error and gradient norm against time, and against values + gradients.

    One column a data set and four rows, or two by two where there is only one data set.  Circles
    are restarts of the adaptive methods.  The suffix of the path says whether it is PNG or PDF.
    """
    _check(groups)
    looks = _looks(groups)
    alone = len(groups) == 1
    if alone:
        figure = new_figure(12.5, 8.6)
        panels = figure.subplots(2, 2, sharex="col", sharey="row").reshape(4, 1)
    else:
        figure = new_figure(0.6 + 5.2 * len(groups), 15.5)
        panels = figure.subplots(4, len(groups), squeeze=False)
    kinds = [(what, against) for what in LABELS for against in ("time", "evaluations")]
    for column, group in enumerate(groups):
        for row, (what, against) in enumerate(kinds):
            axes = panels[row][column]
            _panel(axes, group, what, against, looks)
            if not alone or row >= 2:
                axes.set_xlabel(AXES[against])
            if column == 0 and not (alone and against == "evaluations"):
                axes.set_ylabel(LABELS[what])
        if not alone:
            panels[0][column].set_title(f"{group.title}\n{_lowest(group)}", fontsize=10)
    if alone:
        figure.suptitle(f"{groups[0].title};  {_lowest(groups[0])}", fontsize=11)
    _legend(figure, looks, {"restart": RESTART})
    save(figure, Path(path))


def draw_long_run(groups: Sequence[RunSet], path: Path) -> None:
    """Figure 3: error and gradient norm of the adaptive methods over very many iterations.

    Small hollow circles are restarts, blue-green ones where an epoch was discarded (line 11 of
    Algorithms 2 and 4), yellow ones where B0 fell to B.
    """
    _check(groups)
    looks = _looks(groups)
    figure = new_figure(13, 0.8 + 6.6 * len(groups))
    panels = figure.subplots(2 * len(groups), 1, squeeze=False)[:, 0]
    for i, group in enumerate(groups):
        upper, lower = panels[2 * i : 2 * i + 2]
        for axes, what in ((upper, "error"), (lower, "norm")):
            _panel(axes, group, what, ITERATIONS, looks)
            for run in _in_order(group):
                x, y = _curve(group, run, what, ITERATIONS)
                inside = np.clip(y, *axes.get_ylim())  # a mark that nobody sees marks nothing
                for rows, look in (
                    (_rows(group, run, "ROLLBACK"), DISCARDED),
                    (_rows(group, run, "RADIUS_REACHED")[:1], REACHED),
                ):
                    axes.plot(x[rows], inside[rows], ls="", zorder=5, **look)
            axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
            axes.set_ylabel(LABELS[what])
        upper.set_title(f"{group.title};  {_lowest(group)}", fontsize=10)
        lower.set_xlabel(ITERATIONS)
    _legend(
        figure,
        looks,
        {
            "restart (one where they would overlap)": RESTART,
            "epoch discarded (line 11)": DISCARDED,
            "B0 falls to B": REACHED,
        },
    )
    save(figure, Path(path))


def styles(methods: Sequence[str]) -> Looks:
    """Colour and dashes of methods: those of the seven the same whoever else is there.

    The page takes them, too.  Others look the same wherever the same others are there.
    """
    extra = sorted(set(methods).difference(SEVEN, BESIDE))
    made = line_styles([*SEVEN, *BESIDE, *extra])
    for name, colour in BESIDE.items():
        made[name] |= {"color": colour}
    for name in ADAPTIVE:
        made[name] |= {"lw": 1.9, "zorder": 3}
    # Dashes, too, for paper without colours; not for CG, whose ups and downs leave no room for any.
    for name, dashes in zip(
        ("convex until guilty", "heuristic RAGD", "Jin's AGD"), LINES[1:], strict=True
    ):
        made[name] |= {"ls": dashes, "lw": 1.7}
    made["CG"] |= {"lw": 1.0}
    return {name: made[name] for name in dict.fromkeys(methods)}


def _panel(axes: Any, group: RunSet, what: str, against: str, looks: Looks) -> None:
    """The lines of all runs, then circles where the adaptive methods restart."""
    curves = [(run, *_curve(group, run, what, against)) for run in _in_order(group)]
    axes.set_yscale("log")
    # Before the lines: axes that look for limits themselves do not survive what diverges.
    axes.set_xlim(0, 1.02 * max(float(x[-1]) for _, x, _ in curves) or 1.0)
    _frame(axes, [y for _, _, y in curves])
    for run, x, y in curves:
        look = looks[run.info.method] | ({"lw": 1.2} if against == ITERATIONS else {})
        drawn = outline(y)
        axes.plot(x[drawn], y[drawn], **look)
    quiet(axes)
    for run, x, y in curves:
        if run.info.method in ADAPTIVE:
            rows = _rows(group, run, "RESTART", "ROLLBACK")
            # How far apart they are on paper is known now that the axes have their limits.
            places = axes.transData.transform(np.column_stack([x[rows], y[rows]]))
            kept = [rows[i] for i in told_apart(72 / axes.figure.dpi * places, APART)]
            look = {**RESTART, "mec": looks[run.info.method]["color"]}
            axes.plot(x[kept], y[kept], ls="", zorder=4, **look)


def _curve(group: RunSet, run: PaperRun, what: str, against: str) -> tuple[np.ndarray, np.ndarray]:
    """What is drawn, NaN where a log axis has no place for it."""
    shown = group.shown(run)
    norm = run.grad_norm[shown]
    y = group.error(run) if what == "error" else np.where(norm > 0, norm, np.nan)
    if against == ITERATIONS:
        return np.arange(shown.stop), y
    return (run.time if against == "time" else run.evaluations)[shown], y


def _frame(axes: Any, columns: Sequence[np.ndarray]) -> None:
    """Neither one that diverges nor the last digits above f* may flatten all the others."""
    known = [y[np.isfinite(y)] for y in columns]
    known = [y for y in known if len(y)]
    if known:
        start = max(float(y[0]) for y in known)
        highest = max(float(y.max()) for y in known)
        lowest = min(float(np.quantile(y, 0.005)) for y in known)
        axes.set_ylim(lowest / 2, min(2 * highest, 1e3 * start))


def _rows(group: RunSet, run: PaperRun, *kinds: str) -> list[int]:
    stop = group.shown(run).stop
    return [row for row, kind, _ in run.events if kind in kinds and row < stop]


def _in_order(group: RunSet) -> list[PaperRun]:
    """The adaptive methods last, on top of the others."""
    return sorted(group.runs, key=lambda run: run.info.method in ADAPTIVE)


def _lowest(group: RunSet) -> str:
    lowest, run = group.lowest
    return f"lowest value seen: f* = {lowest:.6g} ({run.info.method})"


def _looks(groups: Sequence[RunSet]) -> Looks:
    """Of all methods of a picture, in the order of its legend."""
    there = {run.info.method for group in groups for run in group.runs}
    return styles([*(name for name in SEVEN if name in there), *sorted(there.difference(SEVEN))])


def _legend(figure: Any, looks: Looks, marks: Looks) -> None:
    """One for all panels, above them."""
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], label=name, **look) for name, look in looks.items()]
    lines += [Line2D([], [], ls="", label=label, **look) for label, look in marks.items()]
    columns = 5 if len(lines) > 7 else len(lines)
    place = {"loc": "outside lower center", "ncols": columns, "handlelength": 3.4}
    figure.legend(handles=lines, frameon=False, **place)


def _check(groups: Sequence[RunSet]) -> None:
    if not groups:
        raise ValueError("there are no groups of runs to draw; run the methods first")
    for group in groups:
        if not group.runs or not all(len(run) for run in group.runs):
            raise ValueError(
                f"a group of {group.figure} has no runs, or one without rows; run its methods first"
            )
