"""A study: what was run and found, as the pictures, tables and pages take it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from momentous.reproduce.recorded import Recorded


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and whether these runs show it."""

    where: str  # "section 5.1"
    statement: str
    on: str  # "ml-10m twin, matrix completion"
    seen: bool | None  # None: these runs cannot tell
    numbers: str  # behind the verdict, in words


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
        return f"{self.data_name}, {self.problem_name}"

    @cached_property
    def lowest(self) -> tuple[float, Recorded]:
        """f*: the least objective value in all of these runs, as in the paper, and whose it is."""
        lows = [float(np.nanmin(run.history.fun, initial=math.inf)) for run in self.runs]
        best = int(np.argmin(lows))
        return lows[best], self.runs[best]

    def shown(self, run: Recorded) -> slice:
        """The rows of a run that are shown."""
        return slice(0, min(len(run.history), self.plotted + 1))

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
