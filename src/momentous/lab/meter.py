"""A problem as a solver under comparison sees it: counted, timed, kept, and stopped.

A solver that knows nothing of our limits gets a function, or a descent map, through a meter.  The
meter keeps one row per evaluation and stops the solver from inside at the goal or at a limit; the
solver's own tolerances and limits are set so that they never act.  Clocks stand still while the
meter does its own work.
"""

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import TypeVar

import numpy as np

from momentous.core.acceptance import has_risen
from momentous.lab.record import COLUMNS, Ended, Outcome, RunInfo, RunRecord, setup
from momentous.testbed import Problem
from momentous.testbed.problem import MapProblem, Vector

NEVER = 10**9  # iterations or evaluations: a limit that is never met
REMEMBERED = 4  # points of which image and value are kept


@dataclass(frozen=True)
class Limits:
    """When a run is over: a gradient norm (of a map: |x - T(x)|), and what may be spent."""

    tol: float
    max_evaluations: int = NEVER  # values plus gradients, or values plus maps
    max_time: float = math.inf  # seconds
    start_fun: float = math.inf  # a small gradient where f is above this is no success
    goal: float | None = None  # of a map: the value that its plain iteration comes to
    max_maps: int = NEVER


@dataclass(frozen=True)
class TimedInfo(RunInfo):
    """What was run, and what it took outside the function."""

    overhead: float | None = None  # CPU seconds per gradient


class NotApplicableError(Exception):
    """A solver cannot be run on this problem, or not in this installation."""


class StopError(Exception):
    """The meter's way out of a solver."""

    def __init__(self, status: Ended, message: str):
        super().__init__(message)
        self.status = status


X = TypeVar("X")
Y = TypeVar("Y")


class CpuClock:
    """CPU time, divided into that inside the user's function and the rest."""

    def __init__(self) -> None:
        self.inside = 0.0
        self.restart()

    def restart(self) -> None:
        """Time counts from here."""
        self._started = process_time()

    def around(self, function: Callable[[X], Y]) -> Callable[[X], Y]:
        """The same function, whose time is inside."""

        def timed(x: X) -> Y:
            begun = process_time()
            try:
                return function(x)
            finally:
                self.inside += process_time() - begun

        return timed

    def outside_per(self, calls: int) -> float | None:
        """Seconds outside the function, over so many calls."""
        outside = process_time() - self._started - self.inside
        return outside / calls if calls else None


class Meter:
    """Counts, clocks, rows, and the end of a run."""

    clock = staticmethod(perf_counter)
    noun, norm = "gradient", "gradient norm"  # what an evaluation brings, and what has to be small
    small = Ended.CONVERGED  # how a run ends where that is small

    def __init__(self, limits: Limits, separate: bool):
        self.limits, self.separate = limits, separate  # separate: do values come on their own?
        self.nfev = self.njev = 0
        self.cpu = CpuClock()
        self._columns = {name: array("d") for name in COLUMNS if name != "step_size"}
        self.start_clock()

    def start_clock(self) -> None:
        """Time counts from here."""
        self._started = self.clock()
        self.cpu.restart()

    def columns(self) -> dict[str, Vector]:
        """One row per evaluation."""
        return {name: np.array(column) for name, column in self._columns.items()}

    def _note(self, values: int, gradients: int, look: Callable[[], tuple[float, float]]) -> None:
        """Count an evaluation, keep its row (``look`` gives f and the norm), end the run there."""
        paused, own = self.clock(), process_time()
        elapsed = paused - self._started
        self.nfev += values
        self.njev += gradients
        row = (self.nfev, self.njev, elapsed, *look())
        for column, entry in zip(self._columns.values(), row, strict=True):
            column.append(entry)
        self._stop_if_over(*row[2:])
        self.cpu.inside += process_time() - own
        self._started += self.clock() - paused

    def _stop_if_over(self, elapsed: float, fun: float, norm: float) -> None:
        limits = self.limits
        if limits.goal is not None and fun <= limits.goal:
            raise StopError(Ended.REACHED, f"the objective {fun:.6g} is at most {limits.goal:.6g}")
        if norm <= limits.tol and not has_risen(fun, self._columns["fun"][0]):
            words = f"the {self.norm} {norm:.3g} is within the tolerance {limits.tol:.3g}"
            raise StopError(self.small, words)
        for status, spent, allowed in (
            (Ended.MAX_MAPS, self.njev, limits.max_maps),
            (Ended.MAX_EVALUATIONS, self.nfev + self.njev, limits.max_evaluations),
        ):
            if spent >= allowed:
                words = f"{self.nfev} values and {self.njev} {self.noun}s, {allowed} allowed"
                raise StopError(status, words)
        if elapsed >= limits.max_time:
            raise StopError(Ended.MAX_TIME, f"{elapsed:.3g} s, {limits.max_time:.3g} s allowed")


class FunctionMeter(Meter):
    """A function and its gradient."""

    def __init__(self, problem: Problem, limits: Limits, separate: bool = False):
        super().__init__(limits, separate)
        self.problem = problem
        self._both = self.cpu.around(problem.value_and_gradient)
        self._value = self.cpu.around(problem.value)

    def both(self, x: Vector) -> tuple[float, Vector]:
        """Value and gradient: one of each."""
        return self._ask(x, 1)

    def gradient(self, x: Vector) -> Vector:
        """A gradient; the value that comes along is for the record only."""
        return self._ask(x, 0)[1]

    def value(self, x: Vector) -> float:
        """A value."""
        fun = float(self._value(x.reshape(self.problem.start.shape)))
        self._note(1, 0, lambda: (fun, math.nan))
        return fun

    def _ask(self, x: Vector, values: int) -> tuple[float, Vector]:
        value, gradient = self._both(x.reshape(self.problem.start.shape))
        fun, flat = float(value), np.ravel(gradient)
        self._note(values, 1, lambda: (fun, float(np.linalg.norm(flat))))
        return fun, flat


class MapMeter(Meter):
    """A descent map and its objective: a row per map, with f at the image and |x - T(x)|.

    What only tells whether the goal is reached, the objective at images, is neither counted nor
    timed; time is that of the CPU.  What is known of the last points is not asked for again; where
    the map brings the value along, one call is one of each.
    """

    clock = staticmethod(process_time)
    noun, norm = "map", "residual"
    small = Ended.ELSEWHERE  # a fixed point above the goal

    def __init__(self, problem: MapProblem, limits: Limits):
        both = problem.step_and_value
        super().__init__(limits, separate=both is None)
        self.problem = problem
        self._both = None if both is None else self.cpu.around(both)
        self._step, self._value = self.cpu.around(problem.step), self.cpu.around(problem.value)
        self._seen: list[Seen] = []

    def image(self, x: Vector) -> Vector:
        """T(x)."""
        seen = self._at(x)
        return self._ask(seen) if seen.image is None else seen.image

    def value(self, x: Vector) -> float:
        """f(x), or infinity where it is not a number."""
        seen = self._at(x)
        if seen.value is None:
            if self.separate:
                self.nfev += 1
                seen.value = float(self._value(x))
            else:
                self._ask(seen)
        return math.inf if seen.value is None or not math.isfinite(seen.value) else seen.value

    def both(self, x: Vector) -> tuple[Vector, float]:
        """(T(x), f(x)), where one call has both."""
        return self.image(x), self.value(x)

    def _at(self, x: Vector) -> "Seen":
        for seen in self._seen:
            if seen.point is x:
                return seen
        self._seen = [*self._seen[1 - REMEMBERED :], Seen(x)]
        return self._seen[-1]

    def _ask(self, seen: "Seen") -> Vector:
        x = seen.point
        if self._both is None:
            image = self._step(x)
        else:
            image, seen.value = self._both(x)
        seen.image = image
        self._note(
            int(not self.separate),
            1,
            lambda: (float(self.problem.value(image)), float(np.linalg.norm(x - image))),
        )
        return image


@dataclass(eq=False)
class Seen:
    """What is known of a point."""

    point: Vector
    image: Vector | None = None
    value: float | None = None


M = TypeVar("M", FunctionMeter, MapMeter)


def run_metered(name: str, solve: Callable[[M, Vector], str], meter: M) -> RunRecord[TimedInfo]:
    """Run a solver from the start of the meter's problem; ``solve`` returns why it ended by itself.

    The status is the meter's where the meter stopped it; "gave up" where it ended by itself (the
    message is its own, such as SciPy's "ABNORMAL: "); "failed" where it raised.
    """
    start = np.array(meter.problem.start, dtype=np.float64).ravel()
    try:
        outcome = Outcome(Ended.GAVE_UP, solve(meter, start))
    except StopError as stop:
        outcome = Outcome(stop.status, str(stop))
    except NotApplicableError:
        raise
    except Exception as error:  # an outcome; only Ctrl-C goes through
        outcome = Outcome.from_error(error)
    overhead = meter.cpu.outside_per(meter.njev)
    info = TimedInfo(meter.problem.name, name, {"solver": name}, setup(), overhead)
    return RunRecord.from_columns(info, outcome, meter.columns())
