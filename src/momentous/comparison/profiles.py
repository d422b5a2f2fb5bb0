"""Curves from a comparison: performance profiles of many problems, convergence on one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from momentous.comparison.table import Comparison, Row

MEASURES: dict[str, Callable[[Row], float]] = {
    "time": lambda row: row.time,
    "gradients": lambda row: row.njev,
    "evaluations": lambda row: row.evaluations,
}
"""What a solution may cost: seconds, gradients, values plus gradients."""


def costs(rows: Iterable[Row], measure: str) -> dict[str, dict[str, float]]:
    """What each method needed on each problem: ``costs[problem][method]``, infinite if unsolved."""
    if measure not in MEASURES:
        raise ValueError(f"measure={measure!r} is not one of {', '.join(MEASURES)}")
    table: dict[str, dict[str, float]] = {}
    for row in rows:
        cost = float(MEASURES[measure](row)) if row.reached else math.inf
        table.setdefault(row.problem, {})[row.method] = cost
    return table


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
    counts as unsolved for all.

    Parameters
    ----------
    rows : iterable of Row
        Those of a comparison.
    measure : {"gradients", "time", "evaluations"}
        What is compared.
    methods : sequence of str, optional
        Only these, also as rivals of each other.

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
    return {name: _profile(found, len(table)) for name, found in ratios.items()}


def _profile(ratios: list[float], problems: int) -> Profile:
    steps, counts = np.unique([r for r in ratios if math.isfinite(r)], return_counts=True)
    return Profile(steps, np.cumsum(counts) / problems)


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
    that any method saw.

    Parameters
    ----------
    comparison : Comparison
        With its histories.
    problem : str
        Its name.
    against : {"evaluations", "gradients", "time"}
        What the curves are drawn against.
    """
    histories = {m: h for (p, m), h in comparison.histories.items() if p == problem and len(h)}
    if not histories:
        raise ValueError(f"no run on {problem!r} was kept; compare with traces=True")
    minimum = next(row.minimum for row in comparison.rows if row.problem == problem)
    seen = min(float(np.nanmin(h.fun, initial=math.inf)) for h in histories.values())
    lowest = seen if minimum is None else min(minimum, seen)
    curves = {}
    for method, h in histories.items():
        costs = {"evaluations": h.nfev + h.njev, "gradients": h.njev, "time": h.time}
        if against not in costs:
            raise ValueError(f"against={against!r} is not one of {', '.join(costs)}")
        curves[method] = Curve(
            costs[against],
            np.fmin.accumulate(h.grad_norm),
            np.fmin.accumulate(h.fun - lowest),
            h.restart_rows(),
        )
    return curves
