"""What section 5 of the paper says, held against sets of runs: seen, not seen, cannot be told.

Every statement is a function of a run set that gives a verdict and the numbers behind it.  Runs
that are no test of a statement, because they are shorter than the paper's, were disturbed, or lack
a method, cannot tell, and the claim has the reason.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from momentous.core.status import EventKind
from momentous.lab.paper.methods import ADAPTIVE, FIXED, OTHERS, SEVEN
from momentous.lab.paper.problems import PROBLEMS
from momentous.lab.paper.results import Claim, RunSet, Verdict, row_at
from momentous.lab.paper.runs import PaperRun
from momentous.lab.record import Ended
from momentous.lab.text import and_list, count_of, seconds

FEWEST = 100  # iterations: fewer tell nothing
SHOWN = 1000  # iterations that sections 5.1 and 5.2 show
DISTURBED = 1.3  # mean time of an iteration over the lower quartile: 1.0 to 1.1 on a quiet machine


@dataclass(frozen=True)
class Finding:
    """A verdict on one set of runs, and the numbers in words."""

    verdict: Verdict
    numbers: str
    reason: str = ""  # why it cannot be told

    @classmethod
    def of(cls, seen: bool, numbers: str) -> Finding:
        """Seen or not."""
        return cls(Verdict.SEEN if seen else Verdict.NOT_SEEN, numbers)

    def left_open(self, reason: str) -> Finding:
        """The same numbers, which for this reason tell nothing."""
        return replace(self, verdict=Verdict.CANNOT_TELL, reason=reason)


Check = Callable[[RunSet], Finding]


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
    iterations: int = FEWEST  # that tell something: those of the paper, unless any part would do
    problems: tuple[str, ...] = tuple(PROBLEMS)

    def is_about(self, run_set: RunSet) -> bool:
        """Does the paper say it of such runs?"""
        return run_set.figure in self.figures and run_set.problem in self.problems

    def judge(self, run_set: RunSet) -> Claim:
        """Not seen as soon as one method contradicts it; seen if all were run and none does."""
        found = {
            run.info.method: run
            for run in run_set.runs
            if not self.lasting or run_set.shown(run).stop > FEWEST
        }
        runs = run_set.only([found[name] for name in self.methods if name in found])
        absent = [name for name in self.methods if name not in found]
        missing = f"not run, or for fewer than {FEWEST} iterations: {and_list(absent)}"
        if any(runs.by_method.keys().isdisjoint(each) for each in self.needs or (self.methods,)):
            finding = Finding(Verdict.CANNOT_TELL, "", missing)
        elif runs.length < FEWEST:
            short = f"too short a run: {count_of(runs.length, 'iteration')}"
            finding = Finding(Verdict.CANNOT_TELL, "", short)
        else:
            finding = self.check(runs)
            if runs.length < self.iterations:
                finding = finding.left_open(
                    f"{runs.length:,} iterations, not the paper's {self.iterations:,}"
                )
            elif absent and finding.verdict is Verdict.SEEN:
                finding = finding.left_open(missing)
            elif absent and finding.verdict is Verdict.NOT_SEEN:
                finding = replace(finding, numbers=f"{finding.numbers}; {missing}")
        return Claim(
            self.where, self.words, run_set.title, finding.verdict, finding.numbers, finding.reason
        )


def judge(run_sets: Iterable[RunSet]) -> list[Claim]:
    """Every statement of section 5 on every run set that it is about, statement by statement."""
    run_sets = list(run_sets)
    return [
        statement.judge(run_set)
        for statement in STATEMENTS
        for run_set in run_sets
        if statement.is_about(run_set)
    ]


def _by_time(check: Check) -> Check:
    """Times tell something where one quiet machine took them, with as many threads."""

    def checked(runs: RunSet) -> Finding:
        finding = check(runs)
        if len(runs.machines) > 1:
            return finding.left_open(
                f"times of different machines or threads: {and_list(runs.machines)}"
            )
        disturbed = {name: disturbance(runs.time(run)) for name, run in runs.by_method.items()
                     if name in QUICK}  # fmt: skip
        most = max(disturbed, key=lambda name: disturbed[name], default=None)
        if most is not None and disturbed[most] > DISTURBED:
            return finding.left_open(
                "something else kept the machine busy: an iteration of "
                f"{most} took {disturbed[most]:.1f} times its usual time on average"
            )
        return finding

    return checked


def disturbance(time: np.ndarray) -> float:
    """Mean time of the iterations over their lower quartile, for iterations of equal work."""
    took = np.diff(time)
    usual = float(np.quantile(took, 0.25)) if took.size else 0.0
    return float(took.mean()) / usual if usual > 0 else 1.0


# --- sections 5.1 and 5.2: the seven methods ------------------------------------------------------

SELDOM = 0.01  # of the iterations: for negative curvature
WINDOW = 20  # iterations within which a rise of the gradient norm is measured
OFTEN_RISES = 0.1  # of the iterations
QUICK = ("GD", *ADAPTIVE)  # those that need next to no values: an iteration is one pass
ALWAYS = 0.9  # of the iterations: what happens in almost every one
ALMOST = 0.1  # by which curves that almost coincide may differ: nothing on a logarithmic axis

Rates = tuple[float, float]  # at least, at most
COUNTS: dict[str, tuple[Rates, Rates]] = {  # values and gradients in an iteration
    "GD": ((0, 0), (1, 1)),
    "Ada-RAGD-NC": ((0, 0), (1, 1)),  # beside one value per restart
    "Ada-RHB-NC": ((0, 0), (1, 1)),
    "heuristic RAGD": ((1, 1), (1, 1)),
    "Jin's AGD": ((2, math.inf), (1, 1)),
    "CG": ((1, math.inf), (1, 1)),
}
AT_REST = (EventKind.RESTART, EventKind.ROLLBACK, EventKind.NEGATIVE_CURVATURE)
"""Where a method begins again, maybe at a point where it knows what it would have to compute."""
SAVED_AT_REST = {  # values and gradients, at most
    "Jin's AGD": (2, 0),  # y = x, whose value is known; and no step was made whose end has one
    "heuristic RAGD": (0, 1),  # the gradient at the best point so far
    "CG": (0, 1),  # a search that fails leads to no new point
}


def _ahead_by_evaluations(runs: RunSet) -> Finding:
    return _ahead_of_gd(runs, runs.evaluations, runs.checkpoints(), "{:,}".format, "evaluations")


@_by_time
def _ahead_by_time(runs: RunSet) -> Finding:
    end = runs.end(runs.time)
    return _ahead_of_gd(runs, runs.time, [end / 4, end / 2, end], seconds)


def _ahead_of_gd(
    runs: RunSet,
    cost: Callable[[PaperRun], np.ndarray],
    budgets: Sequence[float],
    number: Callable[[float], str],
    unit: str = "",
) -> Finding:
    errors = {
        name: [runs.error(run)[row_at(cost(run), budget)] for budget in budgets]
        for name, run in runs.by_method.items()
    }
    behind = []
    for name in (name for name in errors if name != "GD"):
        pairs = zip(budgets, errors[name], errors["GD"], strict=True)
        where = [number(budget) for budget, its, theirs in pairs if not its < theirs]
        if where:
            behind.append(f"{name} at {and_list(where)}")
    last = ", ".join(f"{name} {found[-1]:.2e}" for name, found in errors.items())
    at = f"{and_list([number(budget) for budget in budgets])} {unit}".rstrip()
    text = f"compared at {at}; not ahead of GD: {'; '.join(behind) or 'none'}"
    return Finding.of(not behind, f"{text}; f - f* at the last of these: {last}")


def _lowest_in(curve: Callable[[RunSet, PaperRun], np.ndarray]) -> Check:
    """Are the two adaptive methods the two lowest at every checkpoint?"""

    def holds(runs: RunSet) -> Finding:
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
        return Finding.of(lower, "; ".join(text))

    return holds


@_by_time
def _quicker_than_the_others(runs: RunSet) -> Finding:
    last = runs.length
    there = {name: run for name, run in runs.by_method.items() if runs.iterations(run) >= last}
    times = {name: float(runs.time(run)[last]) for name, run in there.items()}
    gone = [name for name in runs.by_method if name not in there]
    ours = {name: time for name, time in times.items() if name in QUICK}
    others = {name: time for name, time in times.items() if name not in QUICK}
    pairs = itertools.product(ours.items(), others.items())
    slower = [f"{name} than {other}" for (name, time), (other, its) in pairs if not time < its]
    text = and_list([f"{name} {seconds(time)}" for name, time in times.items()])
    text = f"time of {last:,} iterations: {text}; not quicker: {'; '.join(slower) or 'none'}"
    finding = Finding.of(not slower, text)
    if gone and not slower:
        return finding.left_open(f"ended before iteration {last:,}: {and_list(gone)}")
    return finding


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


def _cg_oscillates(runs: RunSet) -> Finding:
    found = {name: rises(runs.norm(run)) for name, run in runs.by_method.items()}
    share, swing = found["CG"]
    calmer = all(other < swing for name, (_, other) in found.items() if name != "CG")
    text = and_list([f"{name} in {100 * s:.0f} % by {w:.2f}" for name, (s, w) in found.items()])
    return Finding.of(
        share >= OFTEN_RISES and calmer,
        "in how many of the iterations the norm rises, and by which factor within "
        f"{WINDOW} of them (median): {text}",
    )


def _curvature_seldom(runs: RunSet) -> Finding:
    seldom, text = True, []
    for name, run in runs.by_method.items():
        times, length = len(runs.rows(run, EventKind.NEGATIVE_CURVATURE)), runs.iterations(run)
        seldom &= times < SELDOM * length
        text.append(f"{name} in {times:,} of {length:,} ({100 * times / length:.2g} %)")
    return Finding.of(seldom, f"iterations that exploit it: {and_list(text)}")


def _evaluations_as_stated(runs: RunSet) -> Finding:
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
        after = f", {count_of(rests, 'restart')}" if beside else ""
        text.append(f"{name} {values / length:.2f} + {gradients / length:.2f}{after}")
    otherwise = f"; otherwise than stated: {and_list(wrong)}" if wrong else ""
    return Finding.of(not wrong, f"values + gradients per iteration: {'; '.join(text)}{otherwise}")


def _within(count: int, least: float, most: float, length: int, saved: int) -> bool:
    """Is a count what the rates say, but for the start, what is saved, and one in a hundred?"""
    slack = 3 + 0.01 * least * length
    return least * length - slack - saved <= count <= most * length + slack


def _guilty_counts(runs: RunSet) -> Finding:
    """Of our form of the method, which needs fewer: that says nothing of the paper's."""
    (run,) = runs.runs
    length = runs.iterations(run)
    values, gradients = ((count[length] - count[0]) / length for count in (run.nfev, run.njev))
    finding = Finding.of(True, f"{values:.2f} values and {gradients:.2f} gradients per iteration")
    if values >= 2.9 and gradients >= 1.98:
        return finding
    return finding.left_open(
        "our form of the method keeps the values of the iteration before, and an iteration of its "
        "search for negative curvature takes one of each"
    )


def _coincide_with_gd(runs: RunSet) -> Finding:
    """Error and norm after equal numbers of iterations: each takes one gradient and no values."""
    gd, alike, text = runs.by_method["GD"], True, []
    at = [runs.length // 4, runs.length // 2, runs.length]
    for name, run in runs.by_method.items():
        if name == "GD":
            continue
        rows = np.minimum(at, min(runs.iterations(run), runs.iterations(gd)))
        with np.errstate(all="ignore"):  # what diverged is not alike
            ratios = [curve(run)[rows] / curve(gd)[rows] for curve in (runs.error, runs.norm)]
        alike &= bool(np.all(np.abs(np.subtract(ratios, 1)) <= ALMOST))
        error, norm = (", ".join(f"{each:.3g}" for each in ratio) for ratio in ratios)
        restarts = len(runs.rows(run, EventKind.RESTART))
        text.append(f"{name} error {error}, norm {norm}, {count_of(restarts, 'restart')}")
    iterations = and_list([f"{row:,}" for row in at])
    return Finding.of(alike, f"over GD's after {iterations} iterations: {'; '.join(text)}")


def _restart_always(runs: RunSet) -> Finding:
    """How many of the iterations end an epoch, against `ALWAYS`."""
    always, text = True, []
    for name, run in runs.by_method.items():
        count, length = len(runs.rows(run, EventKind.RESTART)), runs.iterations(run)
        always &= count >= ALWAYS * length
        text.append(f"{name} {count_of(count, 'restart')} in {count_of(length, 'iteration')}")
    return Finding.of(always, and_list(text))


_ON = ("fig1", "fig2", "demo")
_5_1, _5_12 = "section 5.1", "sections 5.1 and 5.2"
_SLOWER = tuple(name for name in SEVEN if name not in QUICK)
_GD_AND_ANOTHER = (("GD",), tuple(name for name in SEVEN if name != "GD"))
_QUICKLY = (
    "Ada-RAGD-NC and Ada-RHB-NC decrease the {} to a low level quickly (here: lower than that of "
    "the other five at equal evaluations)"
)

COMPARISON_STATEMENTS = (
    Statement(
        _ON, _5_12, "all the accelerated methods perform better than GD, at equal evaluations",
        _ahead_by_evaluations, needs=_GD_AND_ANOTHER, lasting=False, iterations=SHOWN,
    ),
    Statement(
        _ON, _5_12, "all the accelerated methods perform better than GD, at equal time",
        _ahead_by_time, needs=_GD_AND_ANOTHER, lasting=False, iterations=SHOWN,
    ),
    Statement(
        _ON, _5_12, _QUICKLY.format("objective error"), _lowest_in(RunSet.error),
        needs=(ADAPTIVE, OTHERS), lasting=False, iterations=SHOWN,
    ),
    Statement(
        _ON, _5_12, _QUICKLY.format("gradient norm"), _lowest_in(RunSet.norm),
        needs=(ADAPTIVE, OTHERS), lasting=False, iterations=SHOWN,
    ),
    Statement(
        _ON, _5_1, "the plots of RAGD-NC and RHB-NC almost coincide with that of GD (here: "
        f"objective error and gradient norm within {100 * ALMOST:.0f} % of GD's)",
        _coincide_with_gd, ("GD", *FIXED), needs=(("GD",), FIXED), iterations=SHOWN,
    ),
    Statement(
        _ON, _5_1, "RAGD-NC and RHB-NC restart at almost every iteration (here: at "
        f"{100 * ALWAYS:.0f} % of them)", _restart_always, FIXED, iterations=SHOWN,
    ),
    Statement(
        _ON, _5_1, "GD, Ada-RAGD-NC and Ada-RHB-NC need less total time for the iterations shown "
        "than the others (here: each of the three less than each of the other four)",
        _quicker_than_the_others, needs=(QUICK, _SLOWER),
    ),
    Statement(
        _ON, _5_1, "the gradient norms of CG oscillate (here: more than those of GD and of the "
        "adaptive methods)", _cg_oscillates, ("CG", *QUICK), needs=(("CG",), QUICK),
        problems=("completion",),
    ),
    Statement(
        _ON, _5_1, "Jin's AGD and the convex until proven guilty method seldom exploit negative "
        "curvature (here: in less than 1 % of the iterations)",
        _curvature_seldom, ("Jin's AGD", "convex until guilty"), iterations=SHOWN,
        problems=("completion",),
    ),
    Statement(
        _ON, _5_1, "an iteration takes one gradient; GD takes no values, the adaptive methods one "
        "per restart, heuristic RAGD one, Jin's AGD at least two, CG at least one",
        _evaluations_as_stated, tuple(name for name in SEVEN if name in COUNTS),
    ),
    Statement(
        _ON, _5_1, "an iteration of the convex until proven guilty method takes at least two "
        "gradients and three values", _guilty_counts, ("convex until guilty",),
    ),
)  # fmt: skip


# --- section 5.3: the adaptive methods in the long run ------------------------------------------

LONG = 100_000  # iterations of section 5.3
SUBSTANTIAL = 2.0  # a factor
PERIODS = {"completion": (16, 10), "one-bit": (4, 3)}  # in the order of ADAPTIVE
# How the while loop ends.
LEFT = (Ended.COMPLETED, Ended.ABOVE_TOLERANCE, Ended.PROMISE_BROKEN)
WHOLE = Ended.MAX_ITERATIONS  # how a run ends that could have gone on


def _each(
    check: Callable[[RunSet, PaperRun], Finding | None], from_a_part: Container[Verdict] = ()
) -> Check:
    """Not seen where one method contradicts it; ``None`` says nothing either way.

    A run that is shorter than the paper's, or ended by itself, tells only what ``from_a_part``
    names: that something happened can be seen in a part, that it never does cannot.
    """

    def checked(runs: RunSet) -> Finding:
        findings, text = [], []
        for name, run in runs.by_method.items():
            finding = check(runs, run)
            if finding is None:
                text.append(f"{name}: never")
                continue
            length = runs.iterations(run)
            is_part = length < LONG or run.status is not WHOLE
            if is_part and finding.verdict not in from_a_part:
                finding = finding.left_open(
                    f"{name} has {count_of(length, 'iteration')} ({run.status}), not the paper's "
                    f"{LONG:,}"
                )
            findings.append(finding)
            text.append(f"{name}: {finding.numbers}")
        numbers = "; ".join(text)
        if any(finding.verdict is Verdict.NOT_SEEN for finding in findings):
            return Finding(Verdict.NOT_SEEN, numbers)
        reasons = [finding.reason for finding in findings if finding.reason]
        if reasons or not findings:
            reason = "; ".join(reasons) or "line 11 is never invoked"
            return Finding(Verdict.CANNOT_TELL, numbers, reason)
        return Finding(Verdict.SEEN, numbers)

    return checked


def _line_11_once(runs: RunSet, run: PaperRun) -> Finding:
    rows = runs.rows(run, EventKind.ROLLBACK)
    times = ("never", "once", f"{len(rows):,} times")[min(len(rows), 2)]
    return Finding.of(len(rows) <= 1, f"{times}{_when(rows)}")


def _line_11_never_again(runs: RunSet, run: PaperRun) -> Finding | None:
    rows = runs.rows(run, EventKind.ROLLBACK)
    if not rows:
        return None
    again = (
        f"{count_of(len(rows) - 1, 'time')} more{_when(rows[1:])}" if rows[1:] else "never again"
    )
    return Finding.of(len(rows) == 1, f"first in iteration {rows[0]:,}, {again}")


def _when(rows: Sequence[int]) -> str:
    later = ["later"] if len(rows) > 5 else []
    return f" (iteration {and_list([f'{row:,}' for row in rows[:5]] + later)})" if rows else ""


def _rises_before_line_11(runs: RunSet, run: PaperRun) -> Finding | None:
    """In the epoch that is discarded, against its first point."""
    risen, text = True, []
    for row, kind, length in run.events:
        if kind is not EventKind.ROLLBACK or row > runs.iterations(run):
            continue
        epoch = slice(max(row - round(length) + 1, 0), row + 1)
        error, norm = (_growth(c[epoch]) for c in (runs.error(run), runs.norm(run)))
        risen &= min(error, norm) >= SUBSTANTIAL
        text.append(f"at {row:,} error times {error:.3g}, norm times {norm:.3g}")
    more = f", and {len(text) - 3:,} more" if len(text) > 3 else ""
    return Finding.of(risen, ", ".join(text[:3]) + more) if text else None


def _growth(column: np.ndarray) -> float:
    first, most = float(column[0]), float(column.max())
    return most / first if first > 0 else math.inf


def _restarts_often(runs: RunSet, run: PaperRun) -> Finding:
    """Mean distance of restarts from where B0 <= B, within a factor of the paper's."""
    name = run.info.method
    rows = np.array(runs.rows(run, EventKind.RESTART, EventKind.ROLLBACK))
    reached = runs.rows(run, EventKind.RADIUS_REACHED)[:1]
    if not reached:
        return Finding.of(True, _period(rows)).left_open(f"{name} has B0 > B to the end")
    before, after = rows[rows <= reached[0]], rows[rows >= reached[0]]
    text = (
        f"B0 <= B from iteration {reached[0]:,} on, {_period(before)} before, {_period(after)} "
        "after"
    )
    if len(after) < 10:
        few = f"{name} restarts {count_of(len(after), 'time')} where B0 <= B"
        return Finding.of(True, text).left_open(few)
    paper = PERIODS[run.info.problem][ADAPTIVE.index(name)]
    return Finding.of(1 / SUBSTANTIAL <= np.diff(after).mean() / paper <= SUBSTANTIAL, text)


def _period(rows: np.ndarray) -> str:
    if len(rows) < 2:
        return count_of(len(rows), "restart")
    period = np.diff(rows).mean()
    return f"{len(rows):,} restarts, every {period:{',.0f' if period >= 100 else '.3g'}}"


def _radius_reached(runs: RunSet, run: PaperRun) -> Finding:
    rows = runs.rows(run, EventKind.RADIUS_REACHED)
    return Finding.of(bool(rows), f"in iteration {rows[0]:,}" if rows else "never")


def _loop_goes_on(runs: RunSet, run: PaperRun) -> Finding:
    text = f"{run.status} after {count_of(runs.iterations(run), 'iteration')}"
    return Finding.of(run.status not in LEFT, text)


_FIG3 = ("fig3",)
_5_3 = "section 5.3"

LONG_RUN_STATEMENTS = (
    Statement(
        _FIG3, _5_3, f"line 11 is invoked only once by each method in {LONG:,} iterations (here: "
        "not more than once)", _each(_line_11_once, {Verdict.NOT_SEEN}), ADAPTIVE,
    ),
    Statement(
        _FIG3, _5_3, "where line 11 is invoked, objective error and gradient norm have increased "
        "substantially (here: doubled)", _each(_rises_before_line_11, tuple(Verdict)), ADAPTIVE,
    ),
    Statement(
        _FIG3, _5_3, "after the adaptive update line 11 is never invoked",
        _each(_line_11_never_again, {Verdict.NOT_SEEN}), ADAPTIVE,
    ),
    Statement(
        _FIG3, _5_3, "B0 decreases to B", _each(_radius_reached, {Verdict.SEEN}), ADAPTIVE
    ),
    Statement(
        _FIG3, _5_3, "once B0 <= B, both restart frequently: every 16 (Ada-RAGD-NC) and 10 "
        "(Ada-RHB-NC) iterations in matrix completion, every 4 and 3 in one-bit matrix completion "
        "(here: within a factor of two of that)", _each(_restarts_often), ADAPTIVE,
    ),
    Statement(
        _FIG3, _5_3, "it takes extremely long to leave the while loop (here: no run leaves it)",
        _each(_loop_goes_on, {Verdict.NOT_SEEN}), ADAPTIVE,
    ),
)  # fmt: skip


STATEMENTS = (*COMPARISON_STATEMENTS, *LONG_RUN_STATEMENTS)
"""In the order of the paper."""
