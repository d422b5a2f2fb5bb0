"""A study: what was run and found, as the pictures, tables and pages take it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from momentous.comparison.words import counted, listed
from momentous.reproduce.recorded import Recorded

FIGURE_NAMES = {
    "fig1": "Figure 1",
    "fig2": "Figure 2",
    "fig3": "Figure 3",
    "demo": "Demonstration",
}
EARLY = 1000  # values + gradients at which tables look, besides the end
VERDICTS = {True: "seen", False: "not seen", None: "cannot be told"}
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


def row_at(cost: np.ndarray, budget: float) -> int:
    """The last row that costs no more than the budget."""
    return max(int(np.searchsorted(cost, budget, side="right")) - 1, 0)


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and whether these runs show it."""

    where: str  # "section 5.1"
    statement: str
    on: str  # "ml-10m twin, matrix completion"
    seen: bool | None  # None: these runs cannot tell
    numbers: str  # behind the verdict, in words

    @property
    def verdict(self) -> str:
        """Whether it is seen, in words."""
        return VERDICTS[self.seen]


def tally(claims: Sequence[Claim]) -> str:
    """How many statements there are, and how many verdicts of each kind."""
    statements = {(claim.where, claim.statement) for claim in claims}
    counts = [
        f"{sum(claim.seen is seen for claim in claims)} {word}" for seen, word in VERDICTS.items()
    ]
    return (
        f"{counted(len(statements), 'statement')}, each on every set of runs that it is about: "
        f"{listed(counts)}."
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
class Group:
    """The runs on one problem with one data set: one set of axes."""

    figure: str  # "fig1", "fig2", "fig3" or "demo"
    runs: list[Recorded]
    plotted: int  # iterations to show; runs may be longer, for the sake of the lowest value

    @property
    def data_name(self) -> str:
        return self.runs[0].about.data_name

    @property
    def problem_name(self) -> str:
        return self.runs[0].about.problem_name

    @property
    def title(self) -> str:
        profile = self.runs[0].about.profile
        told = "" if profile == "paper" else f", {profile}"
        return f"{self.data_name}, {self.problem_name}{told}"

    @property
    def profiles(self) -> str:
        """Whose parameters, in words."""
        return "parameters: " + ", ".join(dict.fromkeys(run.about.profile for run in self.runs))

    @property
    def figure_name(self) -> str:
        """The figure in words."""
        return FIGURE_NAMES.get(self.figure, self.figure)

    @property
    def how_timed(self) -> str:
        """What a reader of times has to know."""
        apart = any(run.about.profile == "authors-code" for run in self.runs)
        return f"{HOW_TIMED} {HOW_TIMED_APART}" if apart else HOW_TIMED

    def name(self, run: Recorded) -> str:
        """What to call a run: its method; where that is not enough, whose parameters, and which."""

        def plain(it: Recorded) -> str:
            method = it.about.method
            profiles = {each.about.profile for each in self.runs if each.about.method == method}
            return f"{method} ({it.about.profile})" if len(profiles) > 1 else method

        which = self._place(run, [it for it in self.runs if plain(it) == plain(run)])
        return f"{plain(run)}, run {which + 1}" if which else plain(run)

    def variant(self, run: Recorded) -> int:
        """How many runs of the same method come before this one."""
        return self._place(run, [it for it in self.runs if it.about.method == run.about.method])

    @staticmethod
    def _place(run: Recorded, runs: list[Recorded]) -> int:
        return next(i for i, it in enumerate(runs) if it is run)  # they cannot be compared by ==

    @cached_property
    def lowest(self) -> tuple[float, Recorded]:
        """f*: the least objective value in all of these runs, as in the paper, and whose it is."""
        lows = [float(np.nanmin(run.history.fun, initial=math.inf)) for run in self.runs]
        best = int(np.argmin(lows))
        return lows[best], self.runs[best]

    @property
    def reference(self) -> str:
        """Who went on beyond what is shown for the sake of f*, in words."""
        longer = [run for run in self.runs if len(run.history) - 1 > self.plotted]
        in_the_paper = "" if self.figure == "fig3" else "; in the paper all do"
        if not longer:
            return f"Nobody went on beyond the iterations that are shown{in_the_paper}."
        reach = listed([f"{n:,}" for n in sorted({len(run.history) - 1 for run in longer})])
        if len(longer) == len(self.runs):
            return f"For its sake all of them went on to iteration {reach}."
        who = [self.name(run) for run in longer]
        ends = sorted(self.runs, key=self._end)
        lowest = {self.name(run) for run in ends[: len(longer)]} == set(who)
        those = ", the lowest in what is shown," if lowest else ""
        return f"For its sake {listed(who)}{those} went on to iteration {reach}{in_the_paper}."

    def _end(self, run: Recorded) -> float:
        """The last value that is shown."""
        fun = run.history.fun[self.shown(run)]
        return float(fun[-1]) if fun.size and not math.isnan(fun[-1]) else math.inf

    def shown(self, run: Recorded) -> slice:
        """The rows of a run that are shown."""
        return slice(0, min(len(run.history), self.plotted + 1))

    def early(self, run: Recorded) -> int | None:
        """The row that is shown after `EARLY` evaluations; None where there are not so many."""
        cost = run.evaluations[self.shown(run)]
        return row_at(cost, EARLY) if cost.size and cost[-1] >= EARLY else None

    def error(self, run: Recorded) -> np.ndarray:
        """f - f* in the rows that are shown; NaN where f* itself is attained."""
        error = run.history.fun[self.shown(run)] - self.lowest[0]
        return np.where(error > 0, error, np.nan)


@dataclass(frozen=True)
class Study:
    """All that a report shows."""

    groups: list[Group] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)
    growths: list[Growth] = field(default_factory=list)
