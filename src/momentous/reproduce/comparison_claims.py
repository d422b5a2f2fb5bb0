"""What sections 5.1 and 5.2 of the paper say of the seven methods, each as a function of runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from momentous.comparison.words import counted, listed, seconds
from momentous.reproduce.contenders import ADAPTIVE, RIVALS, SEVEN
from momentous.reproduce.judging import Field, Statement, Told, in_one_place
from momentous.reproduce.recorded import Recorded
from momentous.reproduce.study import row_at

TIME_ALLOWED = 1.15  # a multiple of GD's: clocks are noisy
SELDOM = 0.01  # of the iterations: for negative curvature
WINDOW = 20  # iterations within which a rise of the gradient norm is measured
OFTEN_RISES = 0.1  # of the iterations
QUICK = ("GD", *ADAPTIVE)  # those that need next to no values

Rates = tuple[float, float]  # at least, at most
COUNTS: dict[str, tuple[Rates, Rates]] = {  # values and gradients in an iteration
    "GD": ((0, 0), (1, 1)),
    "Ada-RAGD-NC": ((0, 0), (1, 1)),  # beside one value a restart
    "Ada-RHB-NC": ((0, 0), (1, 1)),
    "heuristic RAGD": ((1, 1), (1, 1)),
    "Jin's AGD": ((2, math.inf), (1, 1)),
    "CG": ((1, math.inf), (1, 1)),
    "convex until guilty": ((0, math.inf), (2, math.inf)),  # its values: a statement apart
}
AT_REST = ("RESTART", "ROLLBACK", "NEGATIVE_CURVATURE")
"""Where a method begins anew, maybe at a point where it knows what it would have to compute."""
SAVED_AT_REST = {  # values and gradients, at most
    "Jin's AGD": (2, 0),  # y = x, whose value is known; and no step was made whose end has one
    "convex until guilty": (0, 2),  # it goes back to a point where it has been
    "heuristic RAGD": (0, 1),  # the gradient at the best point so far
    "CG": (0, 1),  # a search that fails leads to no new point
}


def _ahead_by_evaluations(field: Field) -> Told:
    return _ahead_of_gd(field, field.evaluations, field.checkpoints(), "{:,}".format, "evaluations")


@in_one_place
def _ahead_by_time(field: Field) -> Told:
    end = field.end(field.time)
    return _ahead_of_gd(field, field.time, [end / 4, end / 2, end], seconds)


def _ahead_of_gd(
    field: Field,
    cost: Callable[[Recorded], np.ndarray],
    budgets: Sequence[float],
    number: Callable[[float], str],
    unit: str = "",
) -> Told:
    errors = {
        name: [field.error(run)[row_at(cost(run), budget)] for budget in budgets]
        for name, run in field.runs.items()
    }
    behind = []
    for name in (name for name in errors if name != "GD"):
        pairs = zip(budgets, errors[name], errors["GD"], strict=True)
        where = [number(budget) for budget, its, theirs in pairs if not its < theirs]
        if where:
            behind.append(f"{name} at {listed(where)}")
    last = ", ".join(f"{name} {found[-1]:.2e}" for name, found in errors.items())
    at = f"{listed([number(budget) for budget in budgets])} {unit}".rstrip()
    told = f"compared at {at}; not ahead of GD: {'; '.join(behind) or 'nobody'}"
    return not behind, f"{told}; f - f* at the last of these: {last}"


def _lowest_in(curve: Callable[[Field, Recorded], np.ndarray]) -> Callable[[Field], Told]:
    """Are the two adaptive methods the two lowest at every checkpoint?"""

    def holds(field: Field) -> Told:
        lower, told = True, []
        for budget in field.checkpoints():
            at = {
                name: float(curve(field, run)[row_at(field.evaluations(run), budget)])
                for name, run in field.runs.items()
            }
            rival = min((name for name in at if name in RIVALS), key=lambda name: at[name])
            ours = {name: value for name, value in at.items() if name in ADAPTIVE}
            lower &= max(ours.values()) < at[rival]
            mine = ", ".join(f"{name} {value:.2e}" for name, value in ours.items())
            told.append(f"at {budget:,} {mine}, the best other {rival} {at[rival]:.2e}")
        return lower, "; ".join(told)

    return holds


@in_one_place
def _quicker_than_the_others(field: Field) -> Told:
    last, times, gone = _total_times(field)
    ours = {name: time for name, time in times.items() if name in QUICK}
    others = {name: time for name, time in times.items() if name not in QUICK}
    slower = [
        f"{name} than {other}"
        for name, time in ours.items()
        for other, its in others.items()
        if not time < its
    ]
    told = f"time of {last:,} iterations: " + listed(
        [f"{n} {seconds(t)}" for n, t in times.items()]
    )
    told += f"; not quicker: {'; '.join(slower) or 'nobody'}{gone}"
    return (False if slower else None if gone else True), told


@in_one_place
def _no_slower_than_gd(field: Field) -> Told:
    last, times, gone = _total_times(field)
    if "GD" not in times or len(times) == 1:
        return None, gone.removeprefix("; ")
    ratios = {name: time / times["GD"] for name, time in times.items() if name != "GD"}
    slow = any(ratio > TIME_ALLOWED for ratio in ratios.values())
    told = listed([f"{name} {ratio:.2f}" for name, ratio in ratios.items()])
    told = f"time of {last:,} iterations over GD's: {told}{gone}"
    return (False if slow else None if gone else True), told


def _total_times(field: Field) -> tuple[int, dict[str, float], str]:
    """Of how many iterations; the times of those who made them; who did not, in words."""
    last = field.length
    there = {name: run for name, run in field.runs.items() if field.iterations(run) >= last}
    gone = [name for name in field.runs if name not in there]
    told = f"; ended before iteration {last:,}: {listed(gone)}" if gone else ""
    return last, {name: float(field.time(run)[last]) for name, run in there.items()}, told


def rises(norm: np.ndarray) -> tuple[float, float]:
    """Share of the iterations in which a norm rises, and by how much it does in a short while.

    The second is the median, over all windows of 20 iterations, of the largest ratio of a norm to
    an earlier one in the window; it is 1 where the norm never rises.
    """
    norm = norm[np.isfinite(norm) & (norm > 0)]
    if len(norm) < 2:
        return 0.0, 1.0
    share = float(np.mean(norm[1:] > norm[:-1]))
    windows = np.lib.stride_tricks.sliding_window_view(norm, min(WINDOW, len(norm)))
    swings = windows / np.minimum.accumulate(windows, axis=1)
    return share, float(np.median(swings.max(axis=1)))


def _cg_oscillates(field: Field) -> Told:
    found = {name: rises(field.norm(run)) for name, run in field.runs.items()}
    share, swing = found["CG"]
    calmer = all(other < swing for name, (_, other) in found.items() if name != "CG")
    told = listed([f"{name} in {100 * s:.0f} % by {w:.2f}" for name, (s, w) in found.items()])
    return share >= OFTEN_RISES and calmer, (
        "in how many of the iterations the norm rises, and by which factor within "
        f"{WINDOW} of them (median): {told}"
    )


def _curvature_seldom(field: Field) -> Told:
    seldom, told = True, []
    for name, run in field.runs.items():
        times, length = len(field.rows(run, "NEGATIVE_CURVATURE")), field.iterations(run)
        seldom &= times < SELDOM * length
        told.append(f"{name} in {times:,} of {length:,} ({100 * times / length:.2g} %)")
    return seldom, f"iterations that exploit it: {listed(told)}"


def _evaluations_as_told(field: Field) -> Told:
    wrong, told = [], []
    for name, run in field.runs.items():
        length, history = field.iterations(run), run.history
        values, gradients = (int(c[length] - c[0]) for c in (history.nfev, history.njev))
        rests = len(field.rows(run, *AT_REST))
        beside = rests if name in ADAPTIVE else 0
        saved = (rests * each for each in SAVED_AT_REST.get(name, (0, 0)))
        wanted = zip((values - beside, gradients), COUNTS[name], saved, strict=True)
        if not all(_within(count, *rates, length, less) for count, rates, less in wanted):
            wrong.append(name)
        after = f", {counted(rests, 'restart')}" if beside else ""
        told.append(f"{name} {values / length:.2f} + {gradients / length:.2f}{after}")
    return not wrong, f"values + gradients an iteration: {'; '.join(told)}" + (
        f"; otherwise than told: {listed(wrong)}" if wrong else ""
    )


def _within(count: int, least: float, most: float, length: int, saved: int) -> bool:
    """Is a count what the rates say, but for the start, what is saved, and one in a hundred?"""
    slack = 3 + 0.01 * least * length
    return least * length - slack - saved <= count <= most * length + slack


def _three_values(field: Field) -> Told:
    (run,) = field.runs.values()
    rate = (run.history.nfev[field.iterations(run)] - run.history.nfev[0]) / field.iterations(run)
    kept = "" if rate >= 2.9 else ": those of the iteration before are kept"
    return bool(rate >= 2.9), f"{rate:.2f} values an iteration{kept}"


_ON = ("fig1", "fig2", "demo")
_5_1, _5_12 = "section 5.1", "sections 5.1 and 5.2"
_SLOWER = tuple(name for name in SEVEN if name not in QUICK)
_GD_AND_ANOTHER = (("GD",), tuple(name for name in SEVEN if name != "GD"))
_QUICKLY = (
    "Ada-RAGD-NC and Ada-RHB-NC decrease the {} to a low level quickly (here: lower than that of "
    "the other five {})"
)

COMPARISON_STATEMENTS = (
    Statement(
        _ON, _5_12, "all the accelerated methods perform better than GD, at equal evaluations",
        _ahead_by_evaluations, needs=_GD_AND_ANOTHER, lasting=False,
    ),
    Statement(
        _ON, _5_12, "all the accelerated methods perform better than GD, at equal time",
        _ahead_by_time, needs=_GD_AND_ANOTHER, lasting=False,
    ),
    Statement(
        _ON, _5_12, _QUICKLY.format("objective error", "at equal evaluations"),
        _lowest_in(Field.error), needs=(ADAPTIVE, RIVALS), lasting=False,
    ),
    Statement(
        _ON, _5_12, _QUICKLY.format("gradient norm", "at equal evaluations"),
        _lowest_in(Field.norm), needs=(ADAPTIVE, RIVALS), lasting=False,
    ),
    Statement(
        _ON, _5_12, _QUICKLY.format("gradient norm", "by the smallest so far"),
        _lowest_in(Field.least_norm), needs=(ADAPTIVE, RIVALS), lasting=False,
    ),
    Statement(
        _ON, _5_1, "GD, Ada-RAGD-NC and Ada-RHB-NC need less total time for the iterations shown "
        "than the others (here: each of the three less than each of the other four)",
        _quicker_than_the_others, needs=(QUICK, _SLOWER),
    ),
    Statement(
        _ON, _5_1, "Ada-RAGD-NC and Ada-RHB-NC are as quick as GD, needing a value only where "
        f"they restart (here: in total time at most {TIME_ALLOWED} times GD's)",
        _no_slower_than_gd, QUICK, needs=(("GD",), ADAPTIVE),
    ),
    Statement(
        _ON, _5_1, "the gradient norms of CG oscillate (here: more than those of GD and of the "
        "adaptive methods)", _cg_oscillates, ("CG", *QUICK), needs=(("CG",), QUICK),
    ),
    Statement(
        _ON, _5_1, "Jin's AGD and the convex until proven guilty method seldom exploit negative "
        "curvature (here: in less than 1 % of the iterations)",
        _curvature_seldom, ("Jin's AGD", "convex until guilty"),
    ),
    Statement(
        _ON, _5_1, "an iteration takes one gradient, of the guilty method at least two; GD no "
        "values, the adaptive methods one a restart, heuristic RAGD one, Jin's AGD at least two, "
        "CG at least one", _evaluations_as_told,
    ),
    Statement(
        _ON, _5_1, "the convex until proven guilty method takes at least three values an "
        "iteration", _three_values, ("convex until guilty",),
    ),
)  # fmt: skip
"""In the order of the paper."""
