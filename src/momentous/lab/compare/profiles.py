"""Curves of a comparison, their pictures, and its files: profiles of many, convergence on one."""

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np

from momentous.lab.compare.table import Comparison, ComparisonInfo, Row
from momentous.lab.record import RunRecord, as_file_name
from momentous.lab.style import FAINT, Look, line_styles, new_figure, quiet, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AXES = {"evaluations": "values + gradients", "gradients": "gradients", "time": "seconds"}
MAP_AXES = AXES | {"evaluations": "maps + values", "gradients": "maps"}
MOST_CIRCLES = 60  # where there are more restarts than that they would hide the line
MOST_PICTURES = 20  # of single problems

MEASURES = {"time": "time", "gradients": "njev", "evaluations": "evaluations"}
"""What a solution may cost (seconds; gradients or maps; these plus values), and the attribute."""


def costs(rows: Iterable[Row], measure: str) -> dict[str, dict[str, float]]:
    """What each method needed on each problem: ``costs[problem][method]``, infinite if unsolved."""
    table: dict[str, dict[str, float]] = {}
    for row in rows:
        cost = float(_cost(row, measure)) if row.reached else math.inf
        table.setdefault(row.problem, {})[row.method] = cost
    return table


@overload
def _cost(spent: Row, measure: str) -> float: ...
@overload
def _cost(spent: RunRecord[ComparisonInfo], measure: str) -> np.ndarray: ...
def _cost(spent: Row | RunRecord[ComparisonInfo], measure: str) -> float | np.ndarray:
    """What a run has cost, as one number or after every row of its record."""
    if measure not in MEASURES:
        raise ValueError(f"measure={measure!r} is not one of {', '.join(MEASURES)}")
    cost: float | np.ndarray = getattr(spent, MEASURES[measure])
    return cost


@dataclass(frozen=True)
class Profile:
    """The share of problems that a method solves within a factor of the best.

    A step function: ``shares[i]`` from ``ratios[i]`` on.
    """

    ratios: np.ndarray
    shares: np.ndarray

    def __call__(self, factor: float) -> float:
        """The share of problems solved at a cost of at most ``factor`` times the best."""
        within = np.flatnonzero(self.ratios <= factor)
        return float(self.shares[within[-1]]) if len(within) else 0.0


def performance_profile(
    rows: Iterable[Row], measure: str = "gradients", methods: Sequence[str] | None = None
) -> dict[str, Profile]:
    """Performance profiles of Dolan and More [1]_.

    The ratio of a method on a problem is its cost over the smallest cost of any method there; a
    method that did not reach the tolerance has an infinite one, and a problem that nobody solved
    counts as unsolved for all.  What is compared is one of `MEASURES`; only ``methods``, where they
    are given, are compared with each other.

    References
    ----------
    .. [1] E. D. Dolan and J. J. More, "Benchmarking optimization software with performance
       profiles", Mathematical Programming 91 (2002), 201-213.
    """
    table = costs([row for row in rows if methods is None or row.method in methods], measure)
    names = list(dict.fromkeys(name for line in table.values() for name in line))
    ratios: dict[str, list[float]] = {name: [] for name in names}
    for line in table.values():
        best = min(line.values())
        for name, cost in line.items():
            if math.isfinite(cost):
                # Nothing is faster than a clock that stands still.
                ratios[name].append(cost / best if best > 0 else 1.0 if cost == 0 else math.inf)
    profiles = {}
    for name, found in ratios.items():
        steps, counts = np.unique([r for r in found if math.isfinite(r)], return_counts=True)
        profiles[name] = Profile(steps, np.cumsum(counts) / len(table))
    return profiles


@dataclass(frozen=True)
class Curve:
    """How one method came down on one problem: the smallest so far, against its cost."""

    cost: np.ndarray
    grad_norm: np.ndarray
    gap: np.ndarray  # f above the lowest value known
    restarts: list[int]  # rows


def convergence(
    comparison: Comparison, problem: str, against: str = "evaluations"
) -> dict[str, Curve]:
    """The curves of all methods on one problem.

    The gap is measured from the minimum, where it is known exactly, otherwise from the lowest value
    that any method saw; the cost is one of `MEASURES`.
    """
    records = {m: h for (p, m), h in comparison.records.items() if p == problem and len(h)}
    if not records:
        raise ValueError(f"no run on {problem!r} was kept; compare with traces=True")
    minimum = next(row.minimum for row in comparison.rows if row.problem == problem)
    seen = min(float(np.nanmin(h.fun, initial=math.inf)) for h in records.values())
    lowest = seen if minimum is None else min(minimum, seen)
    return {
        method: Curve(
            _cost(h, against),
            np.fmin.accumulate(h.grad_norm),
            np.fmin.accumulate(h.fun - lowest),
            h.restart_rows(),
        )
        for method, h in records.items()
    }


# --- pictures -------------------------------------------------------------------------------------


def write_report(found: Comparison, out: Path) -> int:
    """Write tables and pictures into a folder; returns how many problems were not drawn."""
    out.mkdir(parents=True, exist_ok=True)
    for suffix in ("csv", "parquet"):
        found.save(out / f"table.{suffix}")
    found.save_traces(out / "traces.parquet")
    kept = {problem for (problem, _), record in found.records.items() if len(record)}
    drawn = [problem for problem in found.problems if problem in kept]
    for problem in drawn[:MOST_PICTURES]:
        plot_convergence(found, problem, out / f"{as_file_name(problem)}.png")
    if len(found.problems) > 1:
        plot_profiles(found.rows, out / "profiles.png")
    return max(len(drawn) - MOST_PICTURES, 0)


def plot_convergence(comparison: Comparison, problem: str, path: str | os.PathLike[str]) -> None:
    """Gradient norm and objective gap against evaluations and time, for every method.

    Circles are restarts; the gap is above the minimum, or above the lowest value that was seen.
    """
    row = next(row for row in comparison.rows if row.problem == problem)
    figure = new_figure(13, 7.6)
    panels = figure.subplots(2, 2, sharex="col", sharey="row")
    styles = line_styles(comparison.methods)
    for column, against in enumerate(("evaluations", "time")):
        curves = convergence(comparison, problem, against)
        upper, lower = panels[0][column], panels[1][column]
        for method, curve in curves.items():
            cost = _positive(curve.cost)
            _draw(upper, cost, curve.grad_norm, curve, method, styles[method])
            _draw(lower, cost, np.maximum(curve.gap, 1e-300), curve, method, styles[method])
        upper.axhline(row.tol, color=FAINT, lw=1, ls=":")
        lower.set_xlabel((AXES if row.goal is None else MAP_AXES)[against])
        for axes in (upper, lower):
            axes.set_xscale("log")
            axes.set_yscale("log")
            quiet(axes)
        if column == 0:
            _frame(upper, row.tol / 30, (c.grad_norm for c in curves.values()))
            gaps = [c.gap for c in curves.values()]
            _frame(lower, 1e-14 * _largest(gaps), gaps)
            goal = ("axes fraction", "data")
            upper.annotate("goal", (0.01, row.tol), xycoords=goal, va="bottom", color=FAINT)
    panels[0][0].set_ylabel("smallest gradient norm so far")
    known = "the minimum" if row.minimum is not None else "the lowest seen"
    panels[1][0].set_ylabel(f"smallest objective so far, above {known}")
    lines = panels[0][0].get_legend_handles_labels()
    figure.legend(*lines, loc="outside right center", frameon=False, handlelength=3.4)
    figure.suptitle(f"{problem}, {row.dimension:,} variables (circles: restarts)", fontsize=11)
    save(figure, Path(path))


def plot_profiles(
    rows: Sequence[Row],
    path: str | os.PathLike[str],
    *,
    measures: Sequence[str] = tuple(MEASURES),
    ours: str = "auto",
    evaluations_from: Sequence[Row] | None = None,
) -> None:
    """Performance profiles in several measures, one below the other, so that a telephone shows
    them legibly; ``ours`` is the heavy line.

    Values plus gradients say nothing new where all get both from one call; ``evaluations_from`` has
    the rows of runs in which they are apart.
    """
    figure = new_figure(6.4, 1.6 + 3.4 * len(measures))
    labels = AXES if rows[0].goal is None else MAP_AXES
    panels = figure.subplots(len(measures), 1, squeeze=False)[:, 0]
    methods = list(dict.fromkeys(row.method for row in rows))
    styles = line_styles(methods, ours)
    ranking = performance_profile(rows, "gradients")
    edge = _right_edge(ranking.values())
    methods.sort(key=lambda method: -_area(ranking[method], edge))
    for axes, measure in zip(panels, measures, strict=True):
        source = evaluations_from if measure == "evaluations" and evaluations_from else rows
        profiles = performance_profile(source, measure)
        right = _right_edge(profiles.values())
        for method in (m for m in methods if m in profiles):
            profile = profiles[method]
            xs = np.concatenate([[1.0], profile.ratios, [right]])
            ys = np.concatenate([[0.0], profile.shares, [profile(right)]])
            axes.step(xs, ys, where="post", label=method, **styles[method])
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axes.set_xlim(1, right)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel(f"{labels[measure]}, as a multiple of the best")
        axes.set_ylabel("share solved within that")
        quiet(axes)
    lines = panels[0].get_legend_handles_labels()
    place = {"loc": "outside lower center", "ncols": 3, "handlelength": 2.6}
    figure.legend(*lines, frameon=False, **place)
    problems = len({row.problem for row in rows})
    figure.suptitle(
        f"{problems} problems: higher is better; left edge: how often the best;\n"
        f"not applicable: not solved; in the order of {labels['gradients']}",
        fontsize=11,
    )
    save(figure, Path(path))


def _draw(
    axes: "Axes", cost: np.ndarray, best: np.ndarray, curve: Curve, label: str, style: Look
) -> None:
    axes.plot(cost, best, label=label, **style)
    rows = curve.restarts
    if 0 < len(rows) <= MOST_CIRCLES:
        circles = {"marker": "o", "ms": 4, "mfc": "white", "mec": style["color"], "mew": 1}
        axes.plot(cost[rows], best[rows], ls="", **circles)


def _positive(cost: np.ndarray) -> np.ndarray:
    """A log axis has no zero: what happened before the first tick of the clock is at that tick."""
    known = cost[cost > 0]
    return np.asarray(np.maximum(cost, known.min() if len(known) else 1.0))


def _largest(columns: Iterable[np.ndarray]) -> float:
    return max((float(c[np.isfinite(c)].max(initial=0.0)) for c in columns), default=1.0) or 1.0


def _frame(axes: "Axes", lowest: float, columns: Iterable[np.ndarray]) -> None:
    """The last digits of one method that goes further than the others would flatten all of them."""
    kept = [c[np.isfinite(c) & (c > 0)] for c in columns]
    bottom = min((float(c.min()) for c in kept if len(c)), default=lowest)
    axes.set_ylim(max(bottom / 2, lowest), 3 * _largest(kept))


def _right_edge(profiles: Iterable[Profile]) -> float:
    """The largest ratio, rounded up to a power of two: from there on the lines are flat."""
    largest = max((float(p.ratios[-1]) for p in profiles if len(p.ratios)), default=2.0)
    return float(2.0 ** min(max(math.ceil(math.log2(max(largest, 1.0)) + 0.2), 1), 12))


def _area(profile: Profile, right: float) -> float:
    """Under the profile on the log axis: good at the left and good at the right."""
    factors = np.geomspace(1.0, right, 200)
    return float(np.mean([profile(factor) for factor in factors]))
