"""`compare`: every solver on every problem, counted, timed, stopped and kept alike."""

import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from momentous.core.admission import seed_of
from momentous.io.progress import progress_bar
from momentous.lab.compare.problems import (
    PLAIN_MAPS,
    AnyEntry,
    AnyProblem,
    Given,
    OneProblem,
    as_entries,
)
from momentous.lab.compare.solvers import Methods, Solver, as_solvers
from momentous.lab.compare.table import Comparison, ComparisonInfo, Row
from momentous.lab.meter import NEVER, Limits, NotApplicableError, TimedInfo
from momentous.lab.record import Ended, Outcome, RunRecord, finished_run, path_of_run, setup
from momentous.testbed.problem import MapProblem

SHORT_TIME = 0.1  # seconds
VALUE_SHARE = 1e-10  # of the decrease: the goal on a map is met within it, since values are rounded


@dataclass(frozen=True)
class Rules:
    """What holds for every run of a comparison; exactly one tolerance is given."""

    rtol: float | None
    tol: float | None
    max_evaluations: int
    max_time: float
    separate: bool
    seed: int
    repeats: int

    def tolerance(self, grad_norm: float) -> float:
        """From the gradient norm at the start."""
        return (self.rtol or 0.0) * grad_norm if self.tol is None else self.tol


def compare(
    problems: OneProblem | Iterable[OneProblem],
    methods: Methods = ("auto", "scipy:l-bfgs-b"),
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
    """Run solvers on problems, with the same counts, clocks and limits for all.

    A run is over at the first iterate (of an outside solver: the first evaluation) whose gradient
    norm is at most the tolerance and whose value has not risen above that of the start; what it had
    cost by then is compared.  What goes wrong in a run is its outcome.

    A problem may be a descent map T, whose solvers are accelerations.  There |x - T(x)| stands for
    the gradient norm and a map counts as a gradient; a run is over as well at the first image whose
    objective is that of the plain map after so many steps, to ten digits of the decrease (there may
    be several local minima).  What this takes is neither counted nor timed, and a run may take
    twice as many maps as the plain map, and 50.

    Parameters
    ----------
    problems : Problem, MapProblem, entry of a suite, tuple or list of them
        From `momentous.testbed`, or ``(name, function, x0)`` with a function that returns
        ``(value, gradient)``.
    methods : list or dict
        Names, Method classes and instances, and outside solvers: "scipy:l-bfgs-b", "scipy:cg",
        "torch:lbfgs"; of maps "accelerate", "squarem" and others.  A dict gives them names of its
        own.  Methods that need constants get those of the problem where they hold everywhere, and
        are "not applicable" elsewhere.
    rtol, tol : float
        The tolerance: ``rtol`` times the gradient norm at the start, or ``tol`` if it is given.
    max_evaluations, max_time : int, float
        Values plus gradients, and seconds, that a run may spend.
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
    folder, resume : path, bool
        Write a file there as soon as a run is finished, and skip runs whose file is there already
        (after changing code, begin a new folder).
    progress : bool, optional
        Show how far it is; by default on a terminal.

    Returns
    -------
    Comparison
        With what is finished, if Ctrl-C came before the end.

    Examples
    --------
    >>> from momentous import compare, testbed
    >>> found = compare(testbed.rosenbrock(2), ["auto", "scipy:l-bfgs-b"], progress=False)
    >>> [f"{row.method}: {row.status}" for row in found.rows]
    ['auto: converged', 'scipy:l-bfgs-b: converged']
    """
    solvers, entries = as_solvers(methods), as_entries(problems)
    limits = {"rtol": rtol, "max_evaluations": max_evaluations, "max_time": max_time}
    for name, value in (limits if tol is None else {**limits, "tol": tol}).items():
        if value is None or not value >= 0:
            raise ValueError(f"{name}={value!r} must be a number >= 0")
    rules = Rules(
        rtol=float(rtol) if tol is None else None,
        tol=None if tol is None else float(tol),
        max_evaluations=int(min(max_evaluations, sys.maxsize)),
        max_time=float(max_time),
        separate=separate,
        seed=seed_of(rng),
        repeats=repeats,
    )
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    records: dict[tuple[str, str], RunRecord[ComparisonInfo]] = {}
    interrupted = False
    runs = len(entries) * len(solvers)
    with progress_bar(sys.stderr.isatty() if progress is None else progress) as bar:
        try:
            for entry in entries:

                def show(title: str) -> None:
                    bar(f"{title} ({len(rows)} of {runs} done)", len(rows) / runs)

                for record in _run_all(entry, solvers, rules, folder, resume, show):
                    rows.append(Row.of(record))
                    if traces:
                        records[entry.name, record.info.method] = record
        except KeyboardInterrupt:
            interrupted = True
    return Comparison(rows, records, interrupted)


def _run_all(
    entry: AnyEntry,
    solvers: list[Solver],
    rules: Rules,
    folder: str | os.PathLike[str] | None,
    resume: bool,
    show: Callable[[str], None],
) -> Iterator[RunRecord[ComparisonInfo]]:
    """The runs on one problem, which is made only if one of them is not finished yet."""
    start: Start | None = None
    for solver in solvers:
        show(f"{entry.name}: {solver.name}")
        path = None if folder is None else _path(Path(folder), entry, solver, rules)
        record = finished_run(path, ComparisonInfo) if path is not None and resume else None
        if record is None:
            start = start or _make_start(entry, rules)
            record = _run(entry, start, solver, rules)
            if path is not None:
                record = record.save(path)
        yield record


def _path(folder: Path, entry: AnyEntry, solver: Solver, rules: Rules) -> Path:
    """That of a finished run: another one for another tolerance, or another solver of the name."""
    given = entry.make.fingerprint if isinstance(entry.make, Given) else []
    settings = [entry.name, solver.name, solver.parameters, asdict(rules), given, entry.maps]
    return path_of_run(folder, f"{entry.name}--{solver.name}", settings)


@dataclass(frozen=True)
class Start:
    """A problem that was made, with what is known before any run; or why it could not be made."""

    problem: AnyProblem | Exception
    fun: float = math.nan
    grad_norm: float = math.nan  # of a map: |x - T(x)|
    minimum: float | None = None  # where it is known exactly
    goal: float | None = None  # of a map: the value that is to be reached
    plain_maps: int | None = None  # ... and how many plain maps led there

    def limits(self, rules: Rules) -> Limits:
        """When a run is over."""
        tol = rules.tolerance(self.grad_norm)
        max_maps = NEVER if self.plain_maps is None else 2 * self.plain_maps + 50
        return Limits(tol, rules.max_evaluations, rules.max_time, self.fun, self.goal, max_maps)


def _make_start(entry: AnyEntry, rules: Rules) -> Start:
    """Uncounted: it sets the goal, and warms up what the function compiles or keeps."""
    try:
        with np.errstate(all="ignore"):
            problem = entry.make()
            if isinstance(problem, MapProblem):
                return plain_start(problem, entry.maps or PLAIN_MAPS, rules)
            fun, gradient = problem.value_and_gradient(problem.start)
            minimum = problem.minimum if problem.minimum_is_exact else None
            return Start(problem, float(fun), float(np.linalg.norm(gradient)), minimum)
    except Exception as error:
        return Start(error)


def plain_start(problem: MapProblem, maps: int, rules: Rules) -> Start:
    """Where the map alone comes to in so many steps, or until its residual is the tolerance."""
    x, residuals = problem.start, list[float]()
    while len(residuals) < maps:
        image = problem.step(x)
        residuals.append(float(np.linalg.norm(x - image)))
        x = image
        if residuals[-1] <= rules.tolerance(residuals[0]):
            break
    start, value = float(problem.value(problem.start)), float(problem.value(x))
    goal = value + VALUE_SHARE * (start - value)
    return Start(problem, start, residuals[0], goal=goal, plain_maps=len(residuals))


def _run(entry: AnyEntry, start: Start, solver: Solver, rules: Rules) -> RunRecord[ComparisonInfo]:
    limits = start.limits(rules)
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
        minimum=start.minimum,
        tol=limits.tol,
        rtol=rules.rtol,
        max_evaluations=rules.max_evaluations,
        max_time=rules.max_time,
        separate=rules.separate,
        goal=start.goal,
        plain_maps=start.plain_maps,
    )
    if isinstance(start.problem, MapProblem):
        info = replace(info, separate=start.problem.step_and_value is None)
    try:
        ran = _fastest_run(start.problem, solver, limits, rules)
        info = replace(info, overhead=ran.info.overhead)
        record = RunRecord.from_columns(info, ran.outcome, ran.columns, ran.events)
    except NotApplicableError as error:
        record = RunRecord.from_columns(info, Outcome(Ended.NOT_APPLICABLE, str(error)))
    except Exception as error:  # whatever goes wrong is an outcome; only Ctrl-C goes through
        record = RunRecord.from_columns(info, Outcome.from_error(error))
    outcome = record.outcome
    if outcome.status is Ended.CONVERGED and record.reached(limits.tol, start.fun) is None:
        where = f"where the objective is above {start.fun:.6g}, that of the start"
        words = f"{outcome.message}, but {where}"
        outcome = replace(outcome, status=Ended.OBJECTIVE_ROSE, message=words)
    return replace(record, outcome=outcome)


def _fastest_run(
    problem: AnyProblem | Exception, solver: Solver, limits: Limits, rules: Rules
) -> RunRecord[TimedInfo]:
    """The fastest of so many runs, where they are short."""
    if isinstance(problem, Exception):
        raise problem
    # Functions may overflow where a solver looks far away, and solvers warn of their failures.
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        ran = solver.run(problem, limits, rules.separate, rules.seed)
        for _ in range(rules.repeats - 1):
            if not len(ran) or ran.time[-1] > SHORT_TIME:
                break
            again = solver.run(problem, limits, rules.separate, rules.seed)
            ran = min(ran, again, key=lambda one: float(one.time[-1]))
    return ran
