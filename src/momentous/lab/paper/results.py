"""What was run and found, as pictures, tables and pages take it: run sets, claims, bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

import numpy as np

from momentous.core.status import EventKind
from momentous.lab.paper.methods import FIXED
from momentous.lab.paper.problems import CPU
from momentous.lab.paper.runs import PaperRun
from momentous.lab.text import and_list, count_of

FIGURE_NAMES = {"fig1": "Figure 1", "fig2": "Figure 2", "fig3": "Figure 3", "demo": "Demonstration"}
EARLY = 1000  # values + gradients at which tables look, besides the end
CHECKPOINTS = (250, 500, 1000)  # values + gradients at which curves are compared
HOW_TIMED = (
    "How time is taken: the pass that computes a gradient computes the value, too, as a function "
    "that gives both would, and the clock runs, for every method alike. A value that is asked for "
    "at the point of a gradient is counted, and costs no time of its own; one at any other point "
    "costs a pass. So times favour the methods that ask for such values, Jin's AGD and convex "
    "until guilty, over GD and the adaptive methods, which pay for values that they do not use."
)
HOW_TIMED_APART = (
    "With the parameters of the authors' code a gradient is not that of the values: there every "
    "value costs a pass."
)
HOW_TIMED_ON_GPU = (
    "On a GPU the points stay on the device, and a call ends when its numbers are back on the host."
)


def row_at(cost: np.ndarray, budget: float) -> int:
    """The last row that costs no more than the budget."""
    return max(int(np.searchsorted(cost, budget, side="right")) - 1, 0)


@dataclass(frozen=True)
class RunSet:
    """The runs on one problem with one data set: one set of axes.

    What the methods give of a run are the rows that are shown.
    """

    figure: str  # "fig1", "fig2", "fig3" or "demo"
    runs: list[PaperRun]
    plotted: int  # iterations to show; runs may be longer, to find f*
    whole: RunSet | None = None  # of which this is a part: f* is the lowest value there

    def only(self, runs: list[PaperRun]) -> RunSet:
        """Some of the runs, with the f* of all."""
        return replace(self, runs=runs, whole=self.whole or self)

    @property
    def drawn(self) -> list[PaperRun]:
        """Without those that the paper does not draw, their curves lying on that of GD; all of them
        where there are no others."""
        return [run for run in self.runs if run.info.method not in FIXED] or self.runs

    @property
    def problem(self) -> str:
        """The problem, as files call it."""
        return self.runs[0].info.problem

    @property
    def title(self) -> str:
        """Data and problem; whose parameters and which device unless the paper's and the CPU."""
        info = self.runs[0].info
        usual = {info.profile: "paper", info.device: CPU}
        others = [each for each, known in usual.items() if each != known]
        return ", ".join([info.data_name, info.problem_name, *others])

    @property
    def figure_name(self) -> str:
        """The figure in words."""
        return FIGURE_NAMES.get(self.figure, self.figure)

    @property
    def by_method(self) -> dict[str, PaperRun]:
        """The runs by the name of their method."""
        return {run.info.method: run for run in self.runs}

    @cached_property
    def lowest(self) -> tuple[float, PaperRun]:
        """f*: the least objective value in all of these runs, as in the paper, and whose it is."""
        if self.whole is not None:
            return self.whole.lowest
        lows = [float(np.nanmin(run.fun, initial=math.inf)) for run in self.runs]
        best = int(np.argmin(lows))
        return lows[best], self.runs[best]

    @property
    def reference(self) -> str:
        """Which runs went on beyond what is shown, to find f*, in words."""
        longer = [run for run in self.runs if len(run) - 1 > self.plotted]
        in_the_paper = "" if self.figure == "fig3" else "; in the paper all do"
        if not longer:
            return f"No run goes on beyond the iterations that are shown{in_the_paper}."
        reach = and_list([f"{n:,}" for n in sorted({len(run) - 1 for run in longer})])
        if len(longer) == len(self.runs):
            return f"To find it, all of them went on to iteration {reach}."
        names = [run.info.method for run in longer]
        lowest = {run.info.method for run in sorted(self.runs, key=self._end)[: len(longer)]}
        those = ", the lowest in what is shown," if lowest == set(names) else ""
        return f"To find it, {and_list(names)}{those} went on to iteration {reach}{in_the_paper}."

    def _end(self, run: PaperRun) -> float:
        """The last value that is shown."""
        fun = run.fun[self.shown(run)]
        return float(fun[-1]) if fun.size and not math.isnan(fun[-1]) else math.inf

    def shown(self, run: PaperRun) -> slice:
        """The rows of a run that are shown."""
        return slice(0, min(len(run), self.plotted + 1))

    def iterations(self, run: PaperRun) -> int:
        """How many are shown."""
        return int(self.shown(run).stop) - 1

    def evaluations(self, run: PaperRun) -> np.ndarray:
        """Values plus gradients so far."""
        return run.evaluations[self.shown(run)]

    def time(self, run: PaperRun) -> np.ndarray:
        """Seconds so far."""
        return run.time[self.shown(run)]

    def error(self, run: PaperRun) -> np.ndarray:
        """f - f*, infinite where f is not a number."""
        return _nan_to_inf(run.fun[self.shown(run)] - self.lowest[0])

    def norm(self, run: PaperRun) -> np.ndarray:
        """The gradient norm, infinite where it is not a number."""
        return _nan_to_inf(run.grad_norm[self.shown(run)])

    def columns(self, run: PaperRun) -> dict[str, np.ndarray]:
        """What is drawn of a run, NaN where a log axis has no place for it."""
        heights = (self.error(run), self.norm(run))
        error, norm = (np.where((y > 0) & np.isfinite(y), y, np.nan) for y in heights)
        return {
            "evaluations": self.evaluations(run),
            "time": self.time(run),
            "iteration": np.arange(len(error)),
            "error": error,
            "norm": norm,
        }

    def rows(self, run: PaperRun, *kinds: EventKind) -> list[int]:
        """The rows with an event of such a kind."""
        stop = self.shown(run).stop
        return [row for row in run.rows_with(*kinds) if row < stop]

    def early(self, run: PaperRun) -> int | None:
        """The row that is shown after `EARLY` evaluations; None where there are not so many."""
        cost = self.evaluations(run)
        return row_at(cost, EARLY) if cost.size and cost[-1] >= EARLY else None

    @property
    def lasting(self) -> list[PaperRun]:
        """The runs that did not end before their time; all of them where every one did."""

        def lasts(run: PaperRun) -> bool:
            return self.iterations(run) >= min(self.plotted, run.info.iterations)

        return list(filter(lasts, self.runs)) or list(self.runs)

    @property
    def length(self) -> int:
        """Iterations of the shortest of those: one that ended before its time does not count."""
        return min(self.iterations(run) for run in self.lasting)

    def end(self, cost: Callable[[PaperRun], np.ndarray]) -> float:
        """What the cheapest run costs; one that ended before its time stays at its last row."""
        return float(min(cost(run)[-1] for run in self.lasting))

    def checkpoints(self) -> list[int]:
        """Values + gradients at which to compare."""
        end = int(self.end(self.evaluations))
        return [n for n in CHECKPOINTS if n < 0.95 * end] + [end]

    @property
    def machines(self) -> list[str]:
        """Machines, devices and numbers of threads: times of several cannot be compared."""
        return list(dict.fromkeys(run.info.machine for run in self.runs))

    @property
    def how_timed(self) -> str:
        """What a reader of times has to know."""
        infos = [run.info for run in self.runs]
        notes = {
            HOW_TIMED: True,
            HOW_TIMED_APART: any(info.profile == "authors-code" for info in infos),
            HOW_TIMED_ON_GPU: any(info.device != CPU for info in infos),
        }
        return " ".join(note for note, applies in notes.items() if applies)


def _nan_to_inf(column: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(column), np.inf, column)


class Verdict(StrEnum):
    """What runs say of a statement of the paper."""

    SEEN = "seen"
    NOT_SEEN = "not seen"  # runs like the paper's show the contrary
    CANNOT_TELL = "cannot be told"  # these runs are no test of it


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and whether these runs show it."""

    where: str  # "section 5.1"
    statement: str
    on: str  # "ml-10m twin, matrix completion"
    verdict: Verdict
    numbers: str  # behind the verdict, in words
    reason: str = ""  # why it cannot be told

    @property
    def behind_it(self) -> str:
        """The reason and the numbers, as far as there are any."""
        return "; ".join(part for part in (self.reason, self.numbers) if part)


def tally(claims: Sequence[Claim]) -> str:
    """How many statements there are, and how many verdicts of each kind."""
    statements = {(claim.where, claim.statement) for claim in claims}
    counts = [f"{sum(claim.verdict is each for claim in claims)} {each}" for each in Verdict]
    return (
        f"{count_of(len(statements), 'statement')}, each on every set of runs that it is about: "
        f"{and_list(counts)}."
    )


@dataclass(frozen=True)
class Bound:
    """What a theorem bounds, measured on one function."""

    theorem: str  # "Theorem 1"
    quantity: str  # "gradients to the end of the run"
    function: str
    formula: str  # of the bound, as it is evaluated
    bound: float
    measured: float

    @property
    def holds(self) -> bool:
        """Is the measured quantity within the bound?"""
        return self.measured <= self.bound

    @property
    def slack(self) -> float:
        """How many times the bound is larger."""
        return self.bound / self.measured if self.measured else math.inf


@dataclass(frozen=True)
class Growth:
    """Gradients to a gradient norm of the order mu on the nested chain, against 1/mu."""

    method: str
    inverse_mu: list[float]
    gradients: list[float]
    exponent: float  # of the power of 1/mu fitted to them


@dataclass(frozen=True)
class Study:
    """All that a report shows."""

    run_sets: list[RunSet] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)
    growths: list[Growth] = field(default_factory=list)
