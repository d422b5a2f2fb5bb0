"""What section 5 of the paper says, each statement as a function of recorded runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from momentous.comparison.words import counted, listed
from momentous.reproduce.recorded import Recorded
from momentous.reproduce.study import Claim, Group

ADAPTIVE = ("Ada-RAGD-NC", "Ada-RHB-NC")
RIVALS = ("Jin's AGD", "convex until guilty", "heuristic RAGD", "CG", "GD")
SEVEN = (*ADAPTIVE, *RIVALS)
"""The methods that the paper compares; others in a group are not judged."""

CHECKPOINTS = (250, 500, 1000)  # values + gradients at which curves are compared
FEWEST = 100  # iterations: fewer tell nothing
LONG = 100_000  # iterations of section 5.3
TIME_ALLOWED = 1.15  # a multiple of GD's: clocks are noisy
SELDOM = 0.01  # of the iterations: for negative curvature
SELDOM_DISCARDED = 0.001  # of the iterations: for line 11
WINDOW = 20  # iterations within which a rise of the gradient norm is measured
OFTEN_RISES = 0.1  # of the iterations
SUBSTANTIAL = 2.0  # a factor
PERIODS = {"completion": (16, 10), "one-bit": (4, 3)}  # in the order of ADAPTIVE
LEFT = ("completed", "above tolerance", "promise broken")  # how the while loop ends

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
"""Where a method begins anew, at a point where it knows what it would have to compute."""


@dataclass(frozen=True)
class Field:
    """The runs that a statement is about."""

    group: Group
    runs: dict[str, Recorded]  # by method

    def iterations(self, run: Recorded) -> int:
        return int(self.group.shown(run).stop) - 1

    def error(self, run: Recorded) -> np.ndarray:
        """f - f*, infinite where f is not a number."""
        return _known(run.history.fun[self.group.shown(run)] - self.group.lowest[0])

    def norm(self, run: Recorded) -> np.ndarray:
        return _known(run.history.grad_norm[self.group.shown(run)])

    def least_norm(self, run: Recorded) -> np.ndarray:
        least: np.ndarray = np.minimum.accumulate(self.norm(run))
        return least

    def evaluations(self, run: Recorded) -> np.ndarray:
        return run.evaluations[self.group.shown(run)]

    def time(self, run: Recorded) -> np.ndarray:
        return run.history.time[self.group.shown(run)]

    def rows(self, run: Recorded, *kinds: str) -> list[int]:
        """The rows that are shown and have an event of such a kind."""
        stop = self.group.shown(run).stop
        return sorted({row for row, kind, _ in run.history.events if kind in kinds and row < stop})

    def whole(self) -> list[Recorded]:
        """The runs that did not end before their time; all of them where every one did."""
        runs = self.runs.values()
        asked = self.group.plotted
        whole = [r for r in runs if self.iterations(r) >= min(asked, r.about.iterations)]
        return whole or list(runs)

    @property
    def length(self) -> int:
        """Iterations of the shortest of those."""
        return min(self.iterations(run) for run in self.whole())

    def end(self, cost: Callable[[Recorded], np.ndarray]) -> float:
        """What the cheapest run costs; one that ended before its time stays at its last row."""
        return float(min(cost(run)[-1] for run in self.whole()))

    def checkpoints(self) -> list[int]:
        """Values + gradients at which to compare."""
        end = int(self.end(self.evaluations))
        return [n for n in CHECKPOINTS if n < 0.95 * end] + [end]


Told = tuple[bool | None, str]  # seen in these runs, and the numbers in words


@dataclass(frozen=True)
class Statement:
    """A statement of the paper."""

    figures: tuple[str, ...]  # the groups that it is about
    where: str
    words: str
    told: Callable[[Field], Told]
    about: tuple[str, ...] = SEVEN
    needs: tuple[tuple[str, ...], ...] = ()  # beside others: of each of these at least one
    lasting: bool = True  # it says nothing of a run that ended after a few iterations

    def judged(self, group: Group) -> Claim:
        """Not seen as soon as one method contradicts it; seen if all were run and none does."""
        runs = {
            run.about.method: run
            for run in group.runs
            if not self.lasting or group.shown(run).stop > FEWEST
        }
        field = Field(group, {name: runs[name] for name in self.about if name in runs})
        absent = [name for name in self.about if name not in runs]
        missing = f"not run, or for fewer than {FEWEST} iterations: {listed(absent)}"
        if any(field.runs.keys().isdisjoint(needed) for needed in self.needs or (self.about,)):
            return Claim(self.where, self.words, group.title, None, missing)
        if field.length < FEWEST:
            numbers = f"too short a run: {counted(field.length, 'iteration')}"
            return Claim(self.where, self.words, group.title, None, numbers)
        seen, numbers = self.told(field)
        if absent:
            seen, numbers = (None if seen else seen), f"{numbers}; {missing}"
        return Claim(self.where, self.words, group.title, seen, numbers)


def judge(groups: Iterable[Group]) -> list[Claim]:
    """Every statement of section 5 on every group that it is about, statement by statement."""
    groups = list(groups)
    return [
        statement.judged(group)
        for statement in STATEMENTS
        for group in groups
        if group.figure in statement.figures
    ]


def row_at(cost: np.ndarray, budget: float) -> int:
    """The last row that costs no more than the budget."""
    return max(int(np.searchsorted(cost, budget, side="right")) - 1, 0)


def _known(column: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(column), np.inf, column)


# --- sections 5.1 and 5.2 -------------------------------------------------------------------------


def _ahead_by_evaluations(field: Field) -> Told:
    return _ahead_of_gd(field, field.evaluations, field.checkpoints(), "{:,} evaluations")


def _ahead_by_time(field: Field) -> Told:
    end = field.end(field.time)
    return _ahead_of_gd(field, field.time, [end / 4, end / 2, end], "{:.3g} s")


def _ahead_of_gd(
    field: Field,
    cost: Callable[[Recorded], np.ndarray],
    budgets: Sequence[float],
    named: str,
) -> Told:
    number = named.split()[0]  # without the unit
    errors = {
        name: [field.error(run)[row_at(cost(run), budget)] for budget in budgets]
        for name, run in field.runs.items()
    }
    behind = []
    for name in (name for name in errors if name != "GD"):
        pairs = zip(budgets, errors[name], errors["GD"], strict=True)
        where = [number.format(budget) for budget, its, theirs in pairs if not its < theirs]
        if where:
            behind.append(f"{name} at {listed(where)}")
    last = ", ".join(f"{name} {found[-1]:.2e}" for name, found in errors.items())
    at = listed([*(number.format(b) for b in budgets[:-1]), named.format(budgets[-1])])
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


def _no_slower_than_gd(field: Field) -> Told:
    last = field.length
    times = {
        name: field.time(run)[last] for name, run in field.runs.items()
        if field.iterations(run) >= last
    }  # fmt: skip
    gone = [name for name in ("GD", *ADAPTIVE) if name in field.runs and name not in times]
    if gone:
        return None, f"ended before iteration {last:,}: {listed(gone)}"
    ratios = {name: float(time / times["GD"]) for name, time in times.items() if name != "GD"}
    told = listed([f"{name} {ratio:.2f}" for name, ratio in ratios.items()])
    quick = all(ratios[name] <= TIME_ALLOWED for name in ADAPTIVE if name in ratios)
    return quick, f"time of {last:,} iterations over GD's: {told}"


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
        wanted = zip((values - beside, gradients), COUNTS[name], strict=True)
        if not all(_within(count, *rates, length, rests - beside) for count, rates in wanted):
            wrong.append(name)
        after = f", {counted(rests, 'restart')}" if beside else ""
        told.append(f"{name} {values / length:.2f} + {gradients / length:.2f}{after}")
    return not wrong, f"values + gradients an iteration: {'; '.join(told)}" + (
        f"; otherwise than told: {listed(wrong)}" if wrong else ""
    )


def _within(count: int, least: float, most: float, length: int, rests: int) -> bool:
    """Is a count what the rates say, but for the start, two after a rest, and one in a hundred?"""
    slack = 3 + 0.01 * least * length
    return least * length - slack - 2 * rests <= count <= most * length + slack


def _three_values(field: Field) -> Told:
    (run,) = field.runs.values()
    rate = (run.history.nfev[field.iterations(run)] - run.history.nfev[0]) / field.iterations(run)
    kept = "" if rate >= 2.9 else ": those of the iteration before are kept"
    return bool(rate >= 2.9), f"{rate:.2f} values an iteration{kept}"


# --- section 5.3 ----------------------------------------------------------------------------------


def _unless_contradicted(field: Field, contradicted: bool, told: str) -> Told:
    """What would have to be seen in the long run: a short one can only contradict it."""
    if field.length < LONG:
        told += f"; but that is in {field.length:,} iterations, not {LONG:,}"
        return (False if contradicted else None), told
    return not contradicted, told


def _line_11_seldom(field: Field) -> Told:
    often, told = False, []
    for name, run in field.runs.items():
        rows = field.rows(run, "ROLLBACK")
        often |= len(rows) > SELDOM_DISCARDED * field.iterations(run)
        later = ["later"] if len(rows) > 5 else []
        when = f" (iteration {listed([f'{row:,}' for row in rows[:5]] + later)})" if rows else ""
        times = ("never", "once", f"{len(rows):,} times")[min(len(rows), 2)]
        told.append(f"{name} {times}{when}")
    return _unless_contradicted(field, often, listed(told))


def _rises_before_line_11(field: Field) -> Told:
    """In the epoch that is discarded, against its first point."""
    risen, told = True, []
    for name, run in field.runs.items():
        for row, kind, length in run.history.events:
            if kind != "ROLLBACK" or row > field.iterations(run):
                continue
            epoch = slice(max(row - round(length) + 1, 0), row + 1)
            error, norm = (_growth(c[epoch]) for c in (field.error(run), field.norm(run)))
            risen &= min(error, norm) >= SUBSTANTIAL
            told.append(f"{name} at {row:,}: error times {error:.3g}, norm times {norm:.3g}")
    more = f"; and {len(told) - 6:,} more" if len(told) > 6 else ""
    return (risen, "; ".join(told[:6]) + more) if told else (None, "line 11 is never invoked")


def _growth(column: np.ndarray) -> float:
    first, most = float(column[0]), float(column.max())
    return most / first if first > 0 else math.inf


def _restarts_often(field: Field) -> Told:
    """Mean distance of restarts from where B0 <= B, within a factor of the paper's."""
    alike: bool | None = True
    told = []
    for name, run in field.runs.items():
        rows = np.array(field.rows(run, "RESTART", "ROLLBACK"))
        reached = field.rows(run, "RADIUS_REACHED")[:1]
        if not reached:
            alike = None if alike else alike
            told.append(f"{name}: B0 > B to the end, {_period(rows)}")
            continue
        before, after = rows[rows <= reached[0]], rows[rows >= reached[0]]
        told.append(
            f"{name}: B0 <= B from iteration {reached[0]:,} on; {_period(before)} before, "
            f"{_period(after)} after"
        )
        paper = PERIODS[run.about.problem][ADAPTIVE.index(name)]
        if len(after) < 10:
            alike = None if alike else alike
        elif not 1 / SUBSTANTIAL <= np.diff(after).mean() / paper <= SUBSTANTIAL:
            alike = False
    return alike, "; ".join(told)


def _period(rows: np.ndarray) -> str:
    if len(rows) < 2:
        return counted(len(rows), "restart")
    period = np.diff(rows).mean()
    return f"{len(rows):,} restarts, every {period:{',.0f' if period >= 100 else '.3g'}}"


def _radius_reached(field: Field) -> Told:
    first = {name: field.rows(run, "RADIUS_REACHED")[:1] for name, run in field.runs.items()}
    told = listed([f"{n} at {rows[0]:,}" if rows else f"{n} never" for n, rows in first.items()])
    if all(first.values()):
        return True, told
    return (None if field.length < LONG else False), f"{told} in {field.length:,} iterations"


def _loop_goes_on(field: Field) -> Told:
    left, told = False, []
    for name, run in field.runs.items():
        left |= run.about.status in LEFT
        told.append(f"{name} {run.about.status} after {field.iterations(run):,}")
    return _unless_contradicted(field, left, f"how they ended: {listed(told)}")


# --------------------------------------------------------------------------------------------------

_SHORT, _LONG = ("fig1", "fig2", "demo"), ("fig3",)
_5_1, _5_12, _5_3 = "section 5.1", "sections 5.1 and 5.2", "section 5.3"
_GD_AND_ANOTHER = (("GD",), tuple(name for name in SEVEN if name != "GD"))
_QUICKLY = (
    "Ada-RAGD-NC and Ada-RHB-NC decrease the {} to a low level quickly (here: lower than that of "
    "the other five {})"
)

STATEMENTS = (
    Statement(
        _SHORT, _5_12, "all the accelerated methods perform better than GD, at equal evaluations",
        _ahead_by_evaluations, needs=_GD_AND_ANOTHER, lasting=False,
    ),
    Statement(
        _SHORT, _5_12, "all the accelerated methods perform better than GD, at equal time",
        _ahead_by_time, needs=_GD_AND_ANOTHER, lasting=False,
    ),
    Statement(
        _SHORT, _5_12, _QUICKLY.format("objective error", "at equal evaluations"),
        _lowest_in(Field.error), needs=(ADAPTIVE, RIVALS), lasting=False,
    ),
    Statement(
        _SHORT, _5_12, _QUICKLY.format("gradient norm", "at equal evaluations"),
        _lowest_in(Field.norm), needs=(ADAPTIVE, RIVALS), lasting=False,
    ),
    Statement(
        _SHORT, _5_12, _QUICKLY.format("gradient norm", "by the smallest so far"),
        _lowest_in(Field.least_norm), needs=(ADAPTIVE, RIVALS), lasting=False,
    ),
    Statement(
        _SHORT, _5_1, "GD, Ada-RAGD-NC and Ada-RHB-NC need less total time for their iterations "
        f"than the others (here: the two at most {TIME_ALLOWED} times GD's)",
        _no_slower_than_gd, needs=(("GD",), ADAPTIVE),
    ),
    Statement(
        _SHORT, _5_1, "the gradient norms of CG oscillate (here: more than those of GD and of the "
        "adaptive methods)", _cg_oscillates, ("CG", "GD", *ADAPTIVE),
        needs=(("CG",), ("GD", *ADAPTIVE)),
    ),
    Statement(
        _SHORT, _5_1, "Jin's AGD and the convex until proven guilty method seldom exploit negative "
        "curvature (here: in less than 1 % of the iterations)",
        _curvature_seldom, ("Jin's AGD", "convex until guilty"),
    ),
    Statement(
        _SHORT, _5_1, "an iteration takes one gradient, of the guilty method at least two; GD no "
        "values, the adaptive methods one a restart, heuristic RAGD one, Jin's AGD at least two, "
        "CG at least one", _evaluations_as_told,
    ),
    Statement(
        _SHORT, _5_1, "the convex until proven guilty method takes at least three values an "
        "iteration", _three_values, ("convex until guilty",),
    ),
    Statement(
        _LONG, _5_3, "line 11 is seldom invoked (in the paper: once by each method)",
        _line_11_seldom, ADAPTIVE,
    ),
    Statement(
        _LONG, _5_3, "where line 11 is invoked, objective error and gradient norm have increased "
        "substantially (here: doubled)", _rises_before_line_11, ADAPTIVE,
    ),
    Statement(_LONG, _5_3, "B0 decreases to B", _radius_reached, ADAPTIVE),
    Statement(
        _LONG, _5_3, "once B0 <= B, both restart frequently: every 16 (Ada-RAGD-NC) and 10 "
        "(Ada-RHB-NC) iterations in matrix completion, every 4 and 3 in one-bit matrix completion "
        "(here: within a factor of two of that)", _restarts_often, ADAPTIVE,
    ),
    Statement(
        _LONG, _5_3, "it takes extremely long to leave the while loop: nobody does",
        _loop_goes_on, ADAPTIVE,
    ),
)  # fmt: skip
"""In the order of the paper."""
