"""What section 5 of the paper says, held against sets of runs: seen, not seen, cannot be told.

Every statement is a function of a run set that gives a verdict and the numbers behind it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from momentous.lab.paper.methods import ADAPTIVE, OTHERS, SEVEN
from momentous.lab.paper.results import Claim, RunSet, row_at
from momentous.lab.paper.runs import PaperRun
from momentous.lab.text import counted, listed, seconds

FEWEST = 100  # iterations: fewer tell nothing

Verdict = tuple[bool | None, str]
"""Seen in these runs, and the numbers in words."""
Check = Callable[[RunSet], Verdict]


@dataclass(frozen=True)
class Statement:
    """A statement of the paper."""

    figures: tuple[str, ...]  # the run sets that it is about
    where: str
    words: str
    check: Check
    methods: tuple[str, ...] = SEVEN  # those it is about
    needs: tuple[tuple[str, ...], ...] = ()  # beside others: of each of these at least one
    lasting: bool = True  # it says nothing of a run that ended after a few iterations

    def judge(self, run_set: RunSet) -> Claim:
        """Not seen as soon as one method contradicts it; seen if all were run and none does."""
        found = {
            run.info.method: run
            for run in run_set.runs
            if not self.lasting or run_set.shown(run).stop > FEWEST
        }
        runs = run_set.only([found[name] for name in self.methods if name in found])
        absent = [name for name in self.methods if name not in found]
        missing = f"not run, or for fewer than {FEWEST} iterations: {listed(absent)}"
        seen: bool | None = None
        if any(runs.by_method.keys().isdisjoint(each) for each in self.needs or (self.methods,)):
            numbers = missing
        elif runs.length < FEWEST:
            numbers = f"too short a run: {counted(runs.length, 'iteration')}"
        else:
            seen, numbers = self.check(runs)
            if absent:
                seen, numbers = (None if seen else seen), f"{numbers}; {missing}"
        return Claim(self.where, self.words, run_set.title, seen, numbers)


def judge(run_sets: Iterable[RunSet]) -> list[Claim]:
    """Every statement of section 5 on every run set that it is about, statement by statement."""
    run_sets = list(run_sets)
    return [
        statement.judge(run_set)
        for statement in STATEMENTS
        for run_set in run_sets
        if run_set.figure in statement.figures
    ]


def _on_one_machine(check: Check) -> Check:
    """Times tell something where they were taken on one machine with as many threads."""

    def checked(runs: RunSet) -> Verdict:
        if len(runs.machines) == 1:
            return check(runs)
        return None, f"times of different machines or threads: {listed(runs.machines)}"

    return checked


# --- sections 5.1 and 5.2: the seven methods ------------------------------------------------------

TIME_ALLOWED = 1.15  # a multiple of GD's: clocks are noisy
SELDOM = 0.01  # of the iterations: for negative curvature
WINDOW = 20  # iterations within which a rise of the gradient norm is measured
OFTEN_RISES = 0.1  # of the iterations
QUICK = ("GD", *ADAPTIVE)  # those that need next to no values

Rates = tuple[float, float]  # at least, at most
COUNTS: dict[str, tuple[Rates, Rates]] = {  # values and gradients in an iteration
    "GD": ((0, 0), (1, 1)),
    "Ada-RAGD-NC": ((0, 0), (1, 1)),  # beside one value per restart
    "Ada-RHB-NC": ((0, 0), (1, 1)),
    "heuristic RAGD": ((1, 1), (1, 1)),
    "Jin's AGD": ((2, math.inf), (1, 1)),
    "CG": ((1, math.inf), (1, 1)),
    "convex until guilty": ((0, math.inf), (2, math.inf)),  # its values: a statement apart
}
AT_REST = ("RESTART", "ROLLBACK", "NEGATIVE_CURVATURE")
"""Where a method begins again, maybe at a point where it knows what it would have to compute."""
SAVED_AT_REST = {  # values and gradients, at most
    "Jin's AGD": (2, 0),  # y = x, whose value is known; and no step was made whose end has one
    "convex until guilty": (0, 2),  # it goes back to a point where it has been
    "heuristic RAGD": (0, 1),  # the gradient at the best point so far
    "CG": (0, 1),  # a search that fails leads to no new point
}


def _ahead_by_evaluations(runs: RunSet) -> Verdict:
    return _ahead_of_gd(runs, runs.evaluations, runs.checkpoints(), "{:,}".format, "evaluations")


@_on_one_machine
def _ahead_by_time(runs: RunSet) -> Verdict:
    end = runs.end(runs.time)
    return _ahead_of_gd(runs, runs.time, [end / 4, end / 2, end], seconds)


def _ahead_of_gd(
    runs: RunSet,
    cost: Callable[[PaperRun], np.ndarray],
    budgets: Sequence[float],
    number: Callable[[float], str],
    unit: str = "",
) -> Verdict:
    errors = {
        name: [runs.error(run)[row_at(cost(run), budget)] for budget in budgets]
        for name, run in runs.by_method.items()
    }
    behind = []
    for name in (name for name in errors if name != "GD"):
        pairs = zip(budgets, errors[name], errors["GD"], strict=True)
        where = [number(budget) for budget, its, theirs in pairs if not its < theirs]
        if where:
            behind.append(f"{name} at {listed(where)}")
    last = ", ".join(f"{name} {found[-1]:.2e}" for name, found in errors.items())
    at = f"{listed([number(budget) for budget in budgets])} {unit}".rstrip()
    text = f"compared at {at}; not ahead of GD: {'; '.join(behind) or 'none'}"
    return not behind, f"{text}; f - f* at the last of these: {last}"


def _lowest_in(curve: Callable[[RunSet, PaperRun], np.ndarray]) -> Check:
    """Are the two adaptive methods the two lowest at every checkpoint?"""

    def holds(runs: RunSet) -> Verdict:
        lower, text = True, []
        for budget in runs.checkpoints():
            at = {
                name: float(curve(runs, run)[row_at(runs.evaluations(run), budget)])
                for name, run in runs.by_method.items()
            }
            other = min((name for name in at if name in OTHERS), key=lambda name: at[name])
            ours = {name: value for name, value in at.items() if name in ADAPTIVE}
            lower &= max(ours.values()) < at[other]
            mine = ", ".join(f"{name} {value:.2e}" for name, value in ours.items())
            text.append(f"at {budget:,} {mine}, the best other {other} {at[other]:.2e}")
        return lower, "; ".join(text)

    return holds


@_on_one_machine
def _quicker_than_the_others(runs: RunSet) -> Verdict:
    last, times, gone = _total_times(runs)
    ours = {name: time for name, time in times.items() if name in QUICK}
    others = {name: time for name, time in times.items() if name not in QUICK}
    pairs = itertools.product(ours.items(), others.items())
    slower = [f"{name} than {other}" for (name, time), (other, its) in pairs if not time < its]
    text = listed([f"{name} {seconds(time)}" for name, time in times.items()])
    text = f"time of {last:,} iterations: {text}; not quicker: {'; '.join(slower) or 'none'}{gone}"
    return (False if slower else None if gone else True), text


@_on_one_machine
def _no_slower_than_gd(runs: RunSet) -> Verdict:
    last, times, gone = _total_times(runs)
    if "GD" not in times or len(times) == 1:
        return None, gone.removeprefix("; ")
    ratios = {name: time / times["GD"] for name, time in times.items() if name != "GD"}
    slow = any(ratio > TIME_ALLOWED for ratio in ratios.values())
    text = listed([f"{name} {ratio:.2f}" for name, ratio in ratios.items()])
    text = f"time of {last:,} iterations over GD's: {text}{gone}"
    return (False if slow else None if gone else True), text


def _total_times(runs: RunSet) -> tuple[int, dict[str, float], str]:
    """Of how many iterations; the times of those who made them; who did not, in words."""
    last = runs.length
    there = {name: run for name, run in runs.by_method.items() if runs.iterations(run) >= last}
    gone = [name for name in runs.by_method if name not in there]
    text = f"; ended before iteration {last:,}: {listed(gone)}" if gone else ""
    return last, {name: float(runs.time(run)[last]) for name, run in there.items()}, text


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


def _cg_oscillates(runs: RunSet) -> Verdict:
    found = {name: rises(runs.norm(run)) for name, run in runs.by_method.items()}
    share, swing = found["CG"]
    calmer = all(other < swing for name, (_, other) in found.items() if name != "CG")
    text = listed([f"{name} in {100 * s:.0f} % by {w:.2f}" for name, (s, w) in found.items()])
    return share >= OFTEN_RISES and calmer, (
        "in how many of the iterations the norm rises, and by which factor within "
        f"{WINDOW} of them (median): {text}"
    )


def _curvature_seldom(runs: RunSet) -> Verdict:
    seldom, text = True, []
    for name, run in runs.by_method.items():
        times, length = len(runs.rows(run, "NEGATIVE_CURVATURE")), runs.iterations(run)
        seldom &= times < SELDOM * length
        text.append(f"{name} in {times:,} of {length:,} ({100 * times / length:.2g} %)")
    return seldom, f"iterations that exploit it: {listed(text)}"


def _evaluations_as_stated(runs: RunSet) -> Verdict:
    wrong, text = [], []
    for name, run in runs.by_method.items():
        length = runs.iterations(run)
        values, gradients = (int(c[length] - c[0]) for c in (run.nfev, run.njev))
        rests = len(runs.rows(run, *AT_REST))
        beside = rests if name in ADAPTIVE else 0
        saved = (rests * each for each in SAVED_AT_REST.get(name, (0, 0)))
        wanted = zip((values - beside, gradients), COUNTS[name], saved, strict=True)
        if not all(_within(count, *rates, length, less) for count, rates, less in wanted):
            wrong.append(name)
        after = f", {counted(rests, 'restart')}" if beside else ""
        text.append(f"{name} {values / length:.2f} + {gradients / length:.2f}{after}")
    return not wrong, f"values + gradients per iteration: {'; '.join(text)}" + (
        f"; otherwise than stated: {listed(wrong)}" if wrong else ""
    )


def _within(count: int, least: float, most: float, length: int, saved: int) -> bool:
    """Is a count what the rates say, but for the start, what is saved, and one in a hundred?"""
    slack = 3 + 0.01 * least * length
    return least * length - slack - saved <= count <= most * length + slack


def _three_values(runs: RunSet) -> Verdict:
    (run,) = runs.runs
    rate = (run.nfev[runs.iterations(run)] - run.nfev[0]) / runs.iterations(run)
    kept = "" if rate >= 2.9 else ": those of the iteration before are kept"
    return bool(rate >= 2.9), f"{rate:.2f} values per iteration{kept}"


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
        _lowest_in(RunSet.error), needs=(ADAPTIVE, OTHERS), lasting=False,
    ),
    Statement(
        _ON, _5_12, _QUICKLY.format("gradient norm", "at equal evaluations"),
        _lowest_in(RunSet.norm), needs=(ADAPTIVE, OTHERS), lasting=False,
    ),
    Statement(
        _ON, _5_12, _QUICKLY.format("gradient norm", "by the smallest so far"),
        _lowest_in(RunSet.least_norm), needs=(ADAPTIVE, OTHERS), lasting=False,
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
        "values, the adaptive methods one per restart, heuristic RAGD one, Jin's AGD at least two, "
        "CG at least one", _evaluations_as_stated,
    ),
    Statement(
        _ON, _5_1, "the convex until proven guilty method takes at least three values per "
        "iteration", _three_values, ("convex until guilty",),
    ),
)  # fmt: skip


# --- section 5.3: the adaptive methods in the long run ------------------------------------------

LONG = 100_000  # iterations of section 5.3
SELDOM_DISCARDED = 0.001  # of the iterations: for line 11
SUBSTANTIAL = 2.0  # a factor
PERIODS = {"completion": (16, 10), "one-bit": (4, 3)}  # in the order of ADAPTIVE
LEFT = ("completed", "above tolerance", "promise broken")  # how the while loop ends
WHOLE = "max iterations"  # how a run ends that could have gone on


def _unless_contradicted(runs: RunSet, contradicted: bool, text: str) -> Verdict:
    """What would have to be seen in the long run: one that is cut can only contradict it."""
    cut = _cut(runs)
    if cut:
        text += f"; but {listed(list(cut.values()))}, not {LONG:,} iterations"
        return (False if contradicted else None), text
    return not contradicted, text


def _cut(runs: RunSet) -> dict[str, str]:
    """The runs that are shorter than those of the paper, or that ended by themselves, in words."""
    return {
        name: f"{name} has {counted(runs.iterations(run), 'iteration')} ({run.status})"
        for name, run in runs.by_method.items()
        if runs.iterations(run) < LONG or run.status != WHOLE
    }


def _line_11_seldom(runs: RunSet) -> Verdict:
    often, text = False, []
    for name, run in runs.by_method.items():
        rows = runs.rows(run, "ROLLBACK")
        often |= len(rows) > max(1, SELDOM_DISCARDED * runs.iterations(run))
        later = ["later"] if len(rows) > 5 else []
        when = f" (iteration {listed([f'{row:,}' for row in rows[:5]] + later)})" if rows else ""
        times = ("never", "once", f"{len(rows):,} times")[min(len(rows), 2)]
        text.append(f"{name} {times}{when}")
    return _unless_contradicted(runs, often, listed(text))


def _rises_before_line_11(runs: RunSet) -> Verdict:
    """In the epoch that is discarded, against its first point."""
    risen, text = True, []
    for name, run in runs.by_method.items():
        for row, kind, length in run.events:
            if kind != "ROLLBACK" or row > runs.iterations(run):
                continue
            epoch = slice(max(row - round(length) + 1, 0), row + 1)
            error, norm = (_growth(c[epoch]) for c in (runs.error(run), runs.norm(run)))
            risen &= min(error, norm) >= SUBSTANTIAL
            text.append(f"{name} at {row:,}: error times {error:.3g}, norm times {norm:.3g}")
    more = f"; and {len(text) - 6:,} more" if len(text) > 6 else ""
    return (risen, "; ".join(text[:6]) + more) if text else (None, "line 11 is never invoked")


def _growth(column: np.ndarray) -> float:
    first, most = float(column[0]), float(column.max())
    return most / first if first > 0 else math.inf


def _restarts_often(runs: RunSet) -> Verdict:
    """Mean distance of restarts from where B0 <= B, within a factor of the paper's."""
    alike: bool | None = True
    text = []
    for name, run in runs.by_method.items():
        rows = np.array(runs.rows(run, "RESTART", "ROLLBACK"))
        reached = runs.rows(run, "RADIUS_REACHED")[:1]
        if not reached:
            alike = None if alike else alike
            text.append(f"{name}: B0 > B to the end, {_period(rows)}")
            continue
        before, after = rows[rows <= reached[0]], rows[rows >= reached[0]]
        text.append(
            f"{name}: B0 <= B from iteration {reached[0]:,} on; {_period(before)} before, "
            f"{_period(after)} after"
        )
        paper = PERIODS[run.info.problem][ADAPTIVE.index(name)]
        if len(after) < 10:
            alike = None if alike else alike
        elif not 1 / SUBSTANTIAL <= np.diff(after).mean() / paper <= SUBSTANTIAL:
            alike = False
    return alike, "; ".join(text)


def _period(rows: np.ndarray) -> str:
    if len(rows) < 2:
        return counted(len(rows), "restart")
    period = np.diff(rows).mean()
    return f"{len(rows):,} restarts, every {period:{',.0f' if period >= 100 else '.3g'}}"


def _radius_reached(runs: RunSet) -> Verdict:
    first = {name: runs.rows(run, "RADIUS_REACHED")[:1] for name, run in runs.by_method.items()}
    text = listed([f"{n} at {rows[0]:,}" if rows else f"{n} never" for n, rows in first.items()])
    never = [name for name, rows in first.items() if not rows]
    if not never:
        return True, text
    cut = _cut(runs)
    if all(name in cut for name in never):
        text += f"; but {listed([cut[name] for name in never])}, not {LONG:,} iterations"
        return None, text
    return False, f"{text} in {LONG:,} iterations"


def _loop_goes_on(runs: RunSet) -> Verdict:
    left, text = False, []
    for name, run in runs.by_method.items():
        left |= run.status in LEFT
        text.append(f"{name} {run.status} after {runs.iterations(run):,}")
    return _unless_contradicted(runs, left, f"how they ended: {listed(text)}")


_FIG3 = ("fig3",)
_5_3 = "section 5.3"

LONG_RUN_STATEMENTS = (
    Statement(
        _FIG3, _5_3, "line 11 is seldom invoked (in the paper: once by each method; here: at most "
        f"once in {1 / SELDOM_DISCARDED:,.0f} iterations)", _line_11_seldom, ADAPTIVE,
    ),
    Statement(
        _FIG3, _5_3, "where line 11 is invoked, objective error and gradient norm have increased "
        "substantially (here: doubled)", _rises_before_line_11, ADAPTIVE,
    ),
    Statement(_FIG3, _5_3, "B0 decreases to B", _radius_reached, ADAPTIVE),
    Statement(
        _FIG3, _5_3, "once B0 <= B, both restart frequently: every 16 (Ada-RAGD-NC) and 10 "
        "(Ada-RHB-NC) iterations in matrix completion, every 4 and 3 in one-bit matrix completion "
        "(here: within a factor of two of that)", _restarts_often, ADAPTIVE,
    ),
    Statement(
        _FIG3, _5_3, "it takes extremely long to leave the while loop: nobody does",
        _loop_goes_on, ADAPTIVE,
    ),
)  # fmt: skip


STATEMENTS = (*COMPARISON_STATEMENTS, *LONG_RUN_STATEMENTS)
"""In the order of the paper."""
