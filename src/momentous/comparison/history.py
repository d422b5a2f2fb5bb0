"""What a run did, the same for our methods and for outside solvers: rows, events, why it ended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from momentous.core.trace import Trace

COLUMNS = ("nfev", "njev", "time", "fun", "grad_norm")
RESTARTS = ("RESTART", "ROLLBACK")


@dataclass(frozen=True)
class Limits:
    """When a run is over: a gradient norm, values plus gradients, seconds."""

    tol: float
    max_evaluations: int
    max_time: float
    start_fun: float = math.inf  # a small gradient where f is above this is no success


@dataclass(frozen=True)
class History:
    """One row an iteration (an outside solver: one an evaluation), and what happened in which row.

    Attributes
    ----------
    nfev, njev, time : ndarray
        Values, gradients and seconds so far.
    fun, grad_norm : ndarray
        At the point that was evaluated; NaN where it was not.
    events : list of (int, str, float)
        Row, name of the kind of event, and its number.
    """

    nfev: np.ndarray
    njev: np.ndarray
    time: np.ndarray
    fun: np.ndarray
    grad_norm: np.ndarray
    events: list[tuple[int, str, float]] = field(default_factory=list)

    @classmethod
    def of(cls, trace: Trace) -> History:
        """That of one of our methods."""
        events = [(nit, event.kind.name, event.value) for nit, event in trace.events]
        return cls.from_columns(trace.columns(), events)

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, np.ndarray], events: list[tuple[int, str, float]]
    ) -> History:
        """That of columns by name."""
        nfev, njev, time, fun, grad_norm = (np.asarray(columns[name]) for name in COLUMNS)
        return cls(nfev, njev, time, fun, grad_norm, events)

    def __len__(self) -> int:
        return len(self.nfev)

    def columns(self) -> dict[str, np.ndarray]:
        """The columns by name."""
        return {name: getattr(self, name) for name in COLUMNS}

    def reached(self, tol: float, start_fun: float) -> int | None:
        """The first row with a gradient norm of at most ``tol``.

        Where the objective has risen above that of the start, a small gradient is a plateau that
        somebody was thrown onto, and does not count: for nobody.
        """
        rows = np.flatnonzero(self.grad_norm <= tol)
        return next((int(row) for row in rows if not risen(self.fun[row], start_fun)), None)

    def best(self) -> int | None:
        """The row with the smallest gradient norm; None where no gradient was ever finite."""
        known = np.where(np.isfinite(self.grad_norm), self.grad_norm, math.inf)
        return int(known.argmin()) if len(known) and math.isfinite(known.min()) else None

    def restart_rows(self) -> list[int]:
        """The rows in which the momentum was dropped."""
        return [row for row, kind, _ in self.events if kind in RESTARTS]


def risen(fun: float, start_fun: float) -> bool:
    """Is f above f(x0) by more than rounding explains, or not finite?"""
    return not fun <= start_fun + 1e-8 * max(abs(fun), abs(start_fun)) < math.inf


NOTHING = History.from_columns(dict.fromkeys(COLUMNS, np.zeros(0)), [])


@dataclass(frozen=True)
class Ran:
    """How one run went."""

    history: History
    status: str
    message: str
    nit: int | None = None  # None: the solver does not say
    restarts: int | None = None

    @property
    def guaranteed_turns(self) -> int | None:
        """How often a safeguarded method gave its guaranteed part a turn."""
        if self.restarts is None:
            return None
        return sum(kind == "TURN" and value == 1 for _, kind, value in self.history.events)


class NotApplicableError(Exception):
    """A method cannot be run on this problem, or not in this installation."""


def describe_error(error: Exception) -> str:
    """An exception as the message of an outcome, on one line."""
    return f"failed: {type(error).__name__}: {' '.join(str(error).split())}"
