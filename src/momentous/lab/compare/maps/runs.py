"""Every acceleration on every descent map, to the same goal: the runs and their table."""

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from momentous.lab.compare.maps.meter import MapMeter, MapStop, Vector
from momentous.lab.compare.maps.problems import compared_maps
from momentous.lab.compare.maps.solvers import MAP_SOLVERS, Solve
from momentous.lab.compare.runner import SHORT_TIME
from momentous.lab.compare.table import load_rows, merged, save_rows
from momentous.lab.progress import show_parts
from momentous.lab.record import setup
from momentous.testbed.maps import MapEntry, MapProblem

TABLE = "map-scoreboard.parquet"
# Plain maps set the goal: so many as the entry says, or until the residual is this small against
# the first one.  The goal is met within this share of the decrease, since values are rounded.
SMALL_RESIDUAL, VALUE_SHARE = 1e-6, 1e-10
REPEATS = 3  # of runs that take less than a tenth of a second: the fastest counts


@dataclass(frozen=True)
class MapRow:
    """One solver on one map, up to the goal or the end."""

    problem: str
    family: str
    dimension: int
    held_back: bool
    method: str
    status: str  # "reached", "elsewhere", "max maps", "max time", "gave up", "failed"
    message: str
    reached: bool  # the goal, or a fixed point elsewhere
    maps: int
    values: int
    time: float
    fun: float  # at the last image
    start_fun: float
    goal: float
    plain_maps: int  # that set the goal
    free_value: bool  # does a map bring the value along?
    setup: str  # versions and machine

    @property
    def calls(self) -> int:
        """Maps plus the values that were asked for apart."""
        return self.maps if self.free_value else self.maps + self.values


@dataclass(frozen=True)
class Goal:
    """What a run has to come to."""

    value: float
    residual: float
    plain_maps: int
    start_value: float

    @property
    def max_maps(self) -> int:
        """Twice what the plain map takes, and some."""
        return 2 * self.plain_maps + 50


def goal_of(problem: MapProblem, maps: int) -> Goal:
    """Where the map alone comes to; this also warms up what it compiles or keeps."""
    x: Vector = problem.start
    start, count, first = float(problem.value(x)), 0, 0.0
    while count < maps:
        count += 1
        image = problem.step(x)
        residual = float(np.linalg.norm(x - image))
        first, x = first or residual, image
        if residual <= SMALL_RESIDUAL * first:
            break
    value = float(problem.value(x))
    return Goal(value + VALUE_SHARE * (start - value), SMALL_RESIDUAL * first, count, start)


def run_map(
    problem: MapProblem, solve: Solve, goal: Goal, max_time: float = 60.0
) -> tuple[MapMeter, str, str]:
    """One run: its meter, how it ended, and in what words."""
    meter = MapMeter(problem, goal.value, goal.residual, goal.max_maps, max_time)
    # Maps may overflow where an extrapolation leads far away.
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            return meter, "gave up", solve(meter, problem.start.copy())
        except MapStop as stop:
            return meter, stop.status, ""
        except Exception as error:  # an outcome; only Ctrl-C goes through
            return meter, "failed", f"{type(error).__name__}: {' '.join(str(error).split())}"


def run_maps(
    entries: Sequence[MapEntry] | None = None,
    methods: Iterable[str] | None = None,
    *,
    max_time: float = 60.0,
    progress: bool | None = None,
) -> list[MapRow]:
    """Run solvers, by default all, on maps, by default all.

    A map is solved at the first image whose objective is at most that of the plain map after so
    many steps, to ten digits of the decrease; or, since there may be several local minima, at the
    first residual below 1e-6 of the first one ("elsewhere").  This is looked at after every map and
    is the same for all; what it takes is neither counted nor timed.
    """
    entries = compared_maps() if entries is None else entries
    chosen = {name: MAP_SOLVERS[name] for name in known_solvers(methods)}
    rows = []
    with show_parts(progress, len(entries) * len(chosen)) as show:
        for entry in entries:
            problem = entry.make()
            with np.errstate(all="ignore"):
                goal = goal_of(problem, entry.maps)
            for name, solve in chosen.items():
                show(f"{problem.name}: {name}")
                rows.append(_row(entry, problem, name, solve, goal, max_time))
    return rows


def known_solvers(names: Iterable[str] | None) -> list[str]:
    """All, or these; a ValueError names what there is."""
    names = list(MAP_SOLVERS if names is None else names)
    for name in names:
        if name not in MAP_SOLVERS:
            raise ValueError(f"no solver of maps is called {name!r}: {', '.join(MAP_SOLVERS)}")
    return names


def _row(
    entry: MapEntry, problem: MapProblem, name: str, solve: Solve, goal: Goal, max_time: float
) -> MapRow:
    runs = [run_map(problem, solve, goal, max_time)]
    while len(runs) < REPEATS and runs[0][0].columns()["time"][-1] < SHORT_TIME:
        runs.append(run_map(problem, solve, goal, max_time))
    meter, status, message = min(runs, key=lambda run: float(run[0].columns()["time"][-1]))
    columns = meter.columns()
    return MapRow(
        problem=problem.name,
        family=entry.family,
        dimension=problem.dimension,
        held_back=entry.held_back,
        method=name,
        status=status,
        message=message,
        reached=status in ("reached", "elsewhere"),
        maps=meter.maps,
        values=meter.values,
        time=float(columns["time"][-1]),
        fun=float(columns["fun"][-1]),
        start_fun=goal.start_value,
        goal=goal.value,
        plain_maps=goal.plain_maps,
        free_value=meter.free,
        setup=setup(),
    )


def save_map_rows(
    rows: Sequence[MapRow], out: str | os.PathLike[str], *, update: bool = False
) -> Path:
    """Write the table into a folder; with ``update`` the rows that were not run again are kept."""
    path = Path(out) / TABLE
    path.parent.mkdir(parents=True, exist_ok=True)
    if update:
        rows = merged(load_rows(path, MapRow), rows, ("problem", "method"))
    save_rows(path, rows, MapRow)
    return path
