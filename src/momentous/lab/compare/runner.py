"""`compare`: every solver on every problem, counted, timed, stopped and kept alike."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from momentous.lab.compare.problems import GivenProblem, as_entries
from momentous.lab.compare.solvers import (
    Limits,
    NotApplicableError,
    Solver,
    as_solvers,
    describe_error,
)
from momentous.lab.compare.table import Comparison, ComparisonInfo, Row
from momentous.lab.progress import Show, show_parts
from momentous.lab.record import Outcome, RecordError, RunInfo, RunRecord, setup
from momentous.testbed import Problem
from momentous.testbed.suite import Entry

SHORT_TIME = 0.1  # seconds


@dataclass(frozen=True)
class Rules:
    """What holds for every run of a comparison."""

    rtol: float | None
    tol: float | None
    max_evaluations: int
    max_time: float
    separate: bool
    seed: int
    repeats: int

    def limits(self, start: Start) -> Limits:
        tol = self.tol if self.tol is not None else (self.rtol or 0.0) * start.grad_norm
        return Limits(tol, self.max_evaluations, self.max_time, start.fun)


def compare(
    problems: Any,
    methods: Any = ("auto", "scipy:l-bfgs-b"),
    *,
    rtol: float = 1e-6,
    tol: float | None = None,
    max_evaluations: int = 20_000,
    max_time: float = 60.0,
    separate: bool = False,
    repeats: int = 1,
    rng: int = 0,
    traces: bool = True,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = True,
    progress: bool | None = None,
) -> Comparison:
    """Run methods on problems, all counted, timed and stopped by the same rule.

    A run is over at the first iterate (of an outside solver: the first evaluation) whose gradient
    norm is at most the tolerance and whose value has not risen above that of the start; what it had
    cost by then is what is compared.
    What goes wrong in a run is its outcome, not the end of the comparison.

    Parameters
    ----------
    problems : Problem, Entry, tuple or list of them
        From `momentous.testbed`, or ``(name, function, x0)`` with a function that returns
        ``(value, gradient)``.
    methods : list or dict
        Names, Method classes and instances, and outside solvers: "scipy:l-bfgs-b", "scipy:cg",
        "torch:lbfgs".  A dict gives them names of its own.  Methods that need constants get those
        of the problem where they hold everywhere, and are "not applicable" elsewhere.
    rtol, tol : float
        The tolerance: ``rtol`` times the gradient norm at the start, or ``tol`` if it is given.
    max_evaluations : int
        Values plus gradients that a run may spend.
    max_time : float
        Seconds that it may spend.
    separate : bool
        Give value and gradient as two functions: then methods that need few values show it.  By
        default all get them from one call, which counts as one of each.
    repeats : int
        Run that often where a run takes less than a tenth of a second, and keep the fastest: so
        short a time says otherwise more of the machine than of the method.
    rng : int
        Where randomised methods draw from.
    traces : bool
        Keep every row of every run in memory, not only its outcome.
    folder : path, optional
        Write a file there as soon as a run is finished.
    resume : bool
        Skip runs whose file is in the folder already.
    progress : bool, optional
        Show how far it is; by default on a terminal that `rich` can write to.

    Returns
    -------
    Comparison
        With what is finished, if Ctrl-C came before the end.

    Examples
    --------
    >>> from momentous import compare, testbed
    >>> found = compare(testbed.rosenbrock(2), ["auto", "scipy:l-bfgs-b"], progress=False)
    >>> [(row.method, row.status) for row in found.rows]
    [('auto', 'converged'), ('scipy:l-bfgs-b', 'converged')]
    """
    solvers, entries = as_solvers(methods), as_entries(problems)
    limits = {"max_evaluations": max_evaluations, "max_time": max_time}
    for name, value in {"rtol": rtol, "tol": tol, **limits}.items():
        if value is None and name == "tol":
            continue
        if value is None or not value >= 0:
            raise ValueError(f"{name}={value!r} must be a number >= 0")
    rules = Rules(
        rtol=None if tol is not None else float(rtol),
        tol=None if tol is None else float(tol),
        max_evaluations=int(min(max_evaluations, sys.maxsize)),
        max_time=float(max_time),
        separate=separate,
        seed=int(rng),
        repeats=repeats,
    )
    store = None if folder is None else Store(folder, resume)
    rows: list[Row] = []
    records: dict[tuple[str, str], RunRecord[ComparisonInfo]] = {}
    interrupted = False
    with show_parts(progress, len(entries) * len(solvers)) as show:
        try:
            for entry in entries:
                for record in _run_all(entry, solvers, rules, store, show):
                    rows.append(Row.of(record))
                    if traces:
                        records[entry.name, record.info.method] = record
        except KeyboardInterrupt:
            interrupted = True
    return Comparison(rows, records, interrupted)


class Store:
    """A folder of finished runs.

    A file is named after the problem, the solver with its parameters, and the rules, so that
    runs with another tolerance, or of another solver behind the same name, lie beside it instead
    of being mistaken for it.  (Code is not part of that: after changing it, begin a new folder.)
    """

    def __init__(self, folder: str | os.PathLike[str], resume: bool = True):
        self.folder, self.resume = Path(folder), resume
        self.folder.mkdir(parents=True, exist_ok=True)

    def path(self, entry: Entry, solver: Solver, rules: Rules) -> Path:
        """Where this run is, or will be."""
        given = entry.make.fingerprint if isinstance(entry.make, GivenProblem) else None
        key = json.dumps([entry.name, solver.name, solver.parameters, asdict(rules), given])
        digest = hashlib.sha256(key.encode()).hexdigest()[:12]
        readable = re.sub(r"[^A-Za-z0-9.+-]+", "_", f"{entry.name}--{solver.name}")[:120]
        return self.folder / f"{readable}--{digest}.parquet"

    def load(self, path: Path) -> RunRecord[ComparisonInfo] | None:
        """A finished run; None if there is none, or none that can be read: it is run again."""
        try:
            return RunRecord.load(path, ComparisonInfo) if self.resume else None
        except (OSError, RecordError):
            return None


def _run_all(
    entry: Entry, solvers: list[Solver], rules: Rules, store: Store | None, show: Show
) -> Iterator[RunRecord[ComparisonInfo]]:
    """The runs on one problem, which is made only if one of them is not finished yet."""
    start: Start | None = None
    for solver in solvers:
        show(f"{entry.name}: {solver.name}")
        path = None if store is None else store.path(entry, solver, rules)
        record = None if store is None or path is None else store.load(path)
        if record is None:
            start = start or _made(entry)
            record = _run(entry, start, solver, rules)
            if path is not None:
                record = record.save(path)
        yield record


@dataclass(frozen=True)
class Start:
    """A problem that was made, with what is known at its start; or why it could not be made."""

    problem: Problem | None
    fun: float
    grad_norm: float
    error: Exception | None = None


def _made(entry: Entry) -> Start:
    try:
        problem = entry.make()
        # Uncounted: it sets the tolerance, and warms up what the function keeps.
        fun, gradient = problem.value_and_gradient(problem.start)
        return Start(problem, float(fun), float(np.linalg.norm(gradient)))
    except Exception as error:
        return Start(None, math.nan, math.nan, error)


def _run(entry: Entry, start: Start, solver: Solver, rules: Rules) -> RunRecord[ComparisonInfo]:
    limits = rules.limits(start)
    problem = start.problem
    info = ComparisonInfo(
        problem=entry.name,
        method=solver.name,
        parameters=solver.parameters,
        setup=setup(),
        family=entry.family,
        dimension=entry.dimension,
        held_back=entry.held_back,
        guarantee=solver.guarantee,
        start_fun=start.fun,
        start_grad_norm=start.grad_norm,
        minimum=(
            None
            if problem is None or problem.minimum is None or not problem.minimum_is_exact
            else float(problem.minimum)
        ),
        tol=limits.tol,
        rtol=rules.rtol,
        max_evaluations=rules.max_evaluations,
        max_time=rules.max_time,
        separate=rules.separate,
    )
    try:
        ran = _repeated(start, solver, limits, rules)
        outcome, columns, events = ran.outcome, ran.columns, ran.events
    except NotApplicableError as error:
        outcome, columns, events = Outcome("not applicable", str(error)), None, []
    except Exception as error:  # whatever goes wrong is an outcome; only Ctrl-C goes through
        outcome, columns, events = Outcome("failed", describe_error(error)), None, []
    record = RunRecord.from_columns(info, outcome, columns, events)
    if outcome.status == "converged" and record.reached(limits.tol, start.fun) is None:
        message = (
            f"{outcome.message}, but where the objective is above {start.fun:.6g}, that of the "
            "start"
        )
        record = replace(record, outcome=replace(outcome, status="objective rose", message=message))
    return record


def _repeated(start: Start, solver: Solver, limits: Limits, rules: Rules) -> RunRecord[RunInfo]:
    """The fastest of so many runs, where they are short."""
    if start.error is not None:
        raise start.error
    assert start.problem is not None
    # Functions may overflow where a solver looks far away, and solvers warn of their failures.
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        ran = solver.run(start.problem, limits, rules.separate, rules.seed)
        for _ in range(rules.repeats - 1):
            if not len(ran) or ran.time[-1] > SHORT_TIME:
                break
            again = solver.run(start.problem, limits, rules.separate, rules.seed)
            ran = min(ran, again, key=lambda one: float(one.time[-1]))
    return ran
