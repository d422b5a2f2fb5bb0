"""Pictures by matplotlib: figures 1 to 3 of the paper, and how gradients grow with 1/mu."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from momentous.core.status import RESTARTS, EventKind
from momentous.lab.paper.baselines import QUASI_NEWTON, SWEEPS
from momentous.lab.paper.methods import ADAPTIVE, SEVEN
from momentous.lab.paper.results import Growth, RunSet
from momentous.lab.paper.runs import PaperRun
from momentous.lab.style import FAINT, LINES, Look, line_styles, new_figure, quiet, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Looks = dict[str, Look]
"""By the name of the line or the mark."""
BLUE_GREEN, YELLOW = "#009E73", "#F0E442"  # Okabe and Ito's, as in the paper's figure 3
PURPLE = "#7B3294"
BASELINES = {QUASI_NEWTON: "black", SWEEPS: PURPLE}  # the seven have all the other colours
APART = 0.01  # of the diagonal of a panel, between two circles that do not overlap
RESTART = {"marker": "o", "ms": 4, "mfc": "white", "mec": FAINT, "mew": 1}
DISCARDED = {"marker": "o", "ms": 9, "mfc": BLUE_GREEN, "mec": "black", "mew": 0.8}
REACHED = {**DISCARDED, "mfc": YELLOW}
X_AXES = {"evaluations": "values + gradients", "time": "time in seconds", "iteration": "iterations"}
Y_AXES = {"error": "objective error f - f*", "norm": "gradient norm"}
MOST_ROWS = 1500  # of a curve, besides those of special events
STRETCHES = 300  # of such a curve; four rows are kept of each, so 1200 and as many as 300 restarts
HALF = STRETCHES // 2


def draw_comparison(run_sets: Sequence[RunSet], path: Path) -> None:
    """Figures 1 and 2: error and gradient norm against time, and against values + gradients.

    One column per data set and four rows, or two by two where there is only one data set.  Circles
    are restarts of the adaptive methods.  The suffix of the path says whether it is PNG or PDF.
    """
    looks = _looks(run_sets)
    alone = len(run_sets) == 1
    if alone:
        figure = new_figure(12.5, 8.6)
        panels = figure.subplots(2, 2, sharex="col", sharey="row").reshape(4, 1)
    else:
        figure = new_figure(0.6 + 5.2 * len(run_sets), 15.5)
        panels = figure.subplots(4, len(run_sets), squeeze=False)
    kinds = [(what, against) for what in Y_AXES for against in ("time", "evaluations")]
    for column, run_set in enumerate(run_sets):
        for row, (what, against) in enumerate(kinds):
            axes = panels[row][column]
            _panel(axes, run_set, what, against, looks)
            if not alone or row >= 2:
                axes.set_xlabel(X_AXES[against])
            if column == 0 and not (alone and against == "evaluations"):
                axes.set_ylabel(Y_AXES[what])
        if not alone:
            panels[0][column].set_title(f"{run_set.title}\n{_lowest(run_set)}", fontsize=10)
    if alone:
        figure.suptitle(f"{run_sets[0].title};  {_lowest(run_sets[0])}", fontsize=11)
    _legend(figure, looks, {"restart": RESTART})
    save(figure, path)


def draw_long_run(run_sets: Sequence[RunSet], path: Path) -> None:
    """Figure 3: error and gradient norm of the adaptive methods over very many iterations.

    Small hollow circles are restarts, blue-green ones where an epoch was discarded (line 11 of
    Algorithms 2 and 4), yellow ones where B0 fell to B.
    """
    looks = _looks(run_sets)
    figure = new_figure(13, 0.8 + 6.6 * len(run_sets))
    panels = figure.subplots(2 * len(run_sets), 1, squeeze=False)[:, 0]
    for i, run_set in enumerate(run_sets):
        upper, lower = panels[2 * i : 2 * i + 2]
        for axes, what in zip((upper, lower), Y_AXES, strict=True):
            _panel(axes, run_set, what, "iteration", looks)
            for run in _in_order(run_set):
                x, y = _curve(run_set, run, what, "iteration")
                inside = np.clip(y, *axes.get_ylim())  # a mark that nobody sees marks nothing
                for rows, look in (
                    (run_set.rows(run, EventKind.ROLLBACK), DISCARDED),
                    (run_set.rows(run, EventKind.RADIUS_REACHED)[:1], REACHED),
                ):
                    axes.plot(x[rows], inside[rows], ls="", zorder=5, **look)
            axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
            axes.set_ylabel(Y_AXES[what])
        upper.set_title(f"{run_set.title};  {_lowest(run_set)}", fontsize=10)
        lower.set_xlabel(X_AXES["iteration"])
    marks = {
        "restart (one where they would overlap)": RESTART,
        "epoch discarded (line 11)": DISCARDED,
        "B0 falls to B": REACHED,
    }
    _legend(figure, looks, marks)
    save(figure, path)


def styles(methods: Sequence[str]) -> Looks:
    """Colour and dashes of methods: those of the seven the same whoever else is there.

    The page takes them, too.  Others look the same wherever the same others are there.
    """
    extra = sorted(set(methods).difference(SEVEN, BASELINES))
    made = line_styles([*SEVEN, *BASELINES, *extra])
    for name, colour in BASELINES.items():
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


def _panel(axes: Axes, run_set: RunSet, what: str, against: str, looks: Looks) -> None:
    """The lines of all runs, then circles where the adaptive methods restart."""
    curves = [(run, *_curve(run_set, run, what, against)) for run in _in_order(run_set)]
    axes.set_yscale("log")
    # Before the lines: axes that look for limits themselves do not survive what diverges.
    axes.set_xlim(0, 1.02 * max(float(x[-1]) for _, x, _ in curves) or 1.0)
    _frame(axes, [y for _, _, y in curves])
    for run, x, y in curves:
        look = looks[run.info.method] | ({"lw": 1.2} if against == "iteration" else {})
        drawn = kept_rows([y])
        axes.plot(x[drawn], y[drawn], **look)
    quiet(axes)
    for run, x, y in curves:
        if run.info.method in ADAPTIVE:
            rows = run_set.rows(run, *RESTARTS)
            look = {**RESTART, "mec": looks[run.info.method]["color"], "markevery": APART}
            axes.plot(x[rows], y[rows], ls="", zorder=4, **look)


def _curve(
    run_set: RunSet, run: PaperRun, what: str, against: str
) -> tuple[np.ndarray, np.ndarray]:
    columns = run_set.columns(run)
    return columns[against], columns[what]


def _frame(axes: Axes, columns: Sequence[np.ndarray]) -> None:
    """Neither one that diverges nor the last digits above f* may flatten all the others."""
    known = [y[np.isfinite(y)] for y in columns]
    known = [y for y in known if len(y)]
    if known:
        start = max(float(y[0]) for y in known)
        highest = max(float(y.max()) for y in known)
        lowest = min(float(np.quantile(y, 0.005)) for y in known)
        axes.set_ylim(lowest / 2, min(2 * highest, 1e3 * start))


def _in_order(run_set: RunSet) -> list[PaperRun]:
    """The adaptive methods last, on top of the others."""
    return sorted(run_set.drawn, key=lambda run: run.info.method in ADAPTIVE)


def _lowest(run_set: RunSet) -> str:
    lowest, run = run_set.lowest
    return f"lowest value seen: f* = {lowest:.6g} ({run.info.method})"


def _looks(run_sets: Sequence[RunSet]) -> Looks:
    """Of all methods of a picture, in the order of its legend."""
    there = {run.info.method for run_set in run_sets for run in run_set.drawn}
    return styles([*(name for name in SEVEN if name in there), *sorted(there.difference(SEVEN))])


def _legend(figure: Figure, looks: Looks, marks: Looks) -> None:
    """One for all panels, above them."""
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], label=name, **look) for name, look in looks.items()]
    lines += [Line2D([], [], ls="", label=label, **look) for label, look in marks.items()]
    columns = 5 if len(lines) > 7 else len(lines)
    place = {"loc": "outside lower center", "ncols": columns, "handlelength": 3.4}
    figure.legend(handles=lines, frameon=False, **place)


def plot_growth(growths: Sequence[Growth], path: Path) -> None:
    """Gradients against 1/mu, both logarithmic, with the exponents in the legend."""
    figure = new_figure(8.6, 5.0)
    axes = figure.subplots()
    styles = line_styles([growth.method for growth in growths])
    for growth in growths:
        style: Look = {"marker": "o", "ms": 3.5} | styles[growth.method] | {"markevery": 1}
        label = f"{growth.method}: {growth.exponent:.2f}"
        axes.plot(growth.inverse_mu, growth.gradients, label=label, **style)
    _slopes(axes, growths)
    axes.set_xscale("log")
    axes.set_yscale("log")
    quiet(axes)
    axes.set_xlabel("1/mu")
    axes.set_ylabel("gradients until the gradient norm is mu/4")
    title = "gradients ~ (1/mu)^p, fitted p"
    figure.legend(loc="outside right center", frameon=False, handlelength=3.4, title=title)
    figure.suptitle("Nested chains: how the work grows with difficulty", fontsize=11)
    save(figure, path)


def _slopes(axes: Axes, growths: Sequence[Growth]) -> None:
    """Faint lines with the exponents of theory, from a little above and a little below the runs."""
    first, last = growths[0].inverse_mu[0], growths[0].inverse_mu[-1]
    ends = [growth.gradients[-1] for growth in growths]
    if not np.any(np.isfinite(ends)):
        return
    above, below = 2.5 * np.nanmax(ends), np.nanmin(ends) / 2
    for exponent, end in ((1.0, above), (0.5, below)):
        axes.plot([first, last], [end * (first / last) ** exponent, end], color=FAINT, lw=1, ls=":")
    # Above the upper line at its right, below the lower one at its left: off the lines.
    words: Look = {"textcoords": "offset points", "color": FAINT, "fontsize": 9}
    axes.annotate("slope 1", (last, above), xytext=(-4, 0), ha="right", va="bottom", **words)
    left = (first, below * math.sqrt(first / last))
    axes.annotate("slope 1/2", left, xytext=(4, -3), ha="left", va="top", **words)


# --- which rows of a long curve are needed for it to look the same --------------------------------


def kept_rows(
    columns: Sequence[np.ndarray],
    events: Iterable[tuple[int, EventKind]] = (),
    window: range = range(0),
) -> np.ndarray:
    """The rows that columns of one length need to look the same, in order.

    Of each stretch the least and the largest of each of the columns, and the first restart; every
    row with any other event; and every row of the window, where the true pattern of restarts can be
    seen.  What is not finite is passed over.  Curves of at most `MOST_ROWS` rows keep them all.
    """
    size = len(columns[0])
    if size <= MOST_ROWS:
        return np.arange(size)
    kept = {0, size - 1, *(row for row in window if row < size)}
    restarts = []
    for row, kind in events:
        restarts.append(row) if kind is EventKind.RESTART else kept.add(row)
    restart_rows = np.array(sorted(restarts), dtype=int)
    # Fine on a linear and on a logarithmic axis.
    even, growing = np.linspace(0, size, HALF + 1), np.geomspace(1, size, HALF)
    edges = np.unique(np.concatenate([even, growing]).astype(int)).tolist()
    for start, stop in pairwise(edges):
        for column in columns:
            kept |= _extremes(column, start, stop)
        kept.update(restart_rows[slice(*np.searchsorted(restart_rows, (start, stop)))][:1].tolist())
    return np.array(sorted(kept), dtype=int)


def _extremes(column: np.ndarray, start: int, stop: int) -> set[int]:
    """The rows of the least and of the largest number in a piece, if there are numbers."""
    piece = column[start:stop]
    known = np.flatnonzero(np.isfinite(piece))
    if not known.size:
        return set()
    found = piece[known]
    return {int(start + known[found.argmin()]), int(start + known[found.argmax()])}
