"""`compare`: every method on every problem, counted, timed and stopped alike."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import platform
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any

import numpy as np

from momentous.comparison.contestants import Contestant, Given, contestants, entries
from momentous.comparison.display import Show, shown_progress
from momentous.comparison.history import (
    NOTHING,
    History,
    Limits,
    NotApplicableError,
    Ran,
    describe_error,
)
from momentous.comparison.store import Store
from momentous.comparison.table import Comparison, Row
from momentous.testbed import Problem
from momentous.testbed.suite import Entry
from momentous.version import __version__

BRIEF = 0.1  # seconds


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
        short a time is else the machine's more than the method's.
    rng : int
        Where randomised methods draw from.
    traces : bool
        Keep every row of every run, not only its outcome.
    folder : path, optional
        Write a file as soon as a run is done, and skip runs that are there already.
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
    chosen, field = contestants(methods), entries(problems)
    limits = {"max_evaluations": max_evaluations, "max_time": max_time}
    for name, value in {"rtol": rtol, "tol": tol, **limits}.items():
        if value is None and name == "tol":
            continue
        if value is None or not value >= 0:
            raise ValueError(f"{name}={value!r} must be a number >= 0")
    relative = None if tol is not None else rtol
    rules = Rules(relative, tol, max_evaluations, max_time, separate, int(rng), repeats)
    store = None if folder is None else Store(folder)
    rows: list[Row] = []
    histories: dict[tuple[str, str], History] = {}
    interrupted = False
    with shown_progress(progress, len(field) * len(chosen)) as show:
        try:
            for entry in field:
                for row, history in _on(entry, chosen, rules, store, traces, show):
                    rows.append(row)
                    if traces and history is not None:
                        histories[row.problem, row.method] = history
        except KeyboardInterrupt:
            interrupted = True
    return Comparison(rows, histories, interrupted)


def _on(
    entry: Entry,
    chosen: list[Contestant],
    rules: Rules,
    store: Store | None,
    traces: bool,
    show: Show,
) -> Iterator[tuple[Row, History | None]]:
    """The runs on one problem, which is made only if one of them is not finished yet."""
    made: Start | None = None
    for contestant in chosen:
        show(entry.name, contestant.label)
        settings = {**vars(rules), "signature": contestant.signature, "traces": traces}
        if store is not None and isinstance(entry.make, Given):  # its name says nothing
            settings["start"] = entry.make.start
        path = None if store is None else store.path(entry.name, contestant.label, settings)
        kept = None if store is None or path is None else store.load(path)
        if kept is None:
            made = made or _made(entry)
            kept = _outcome(entry, made, contestant, rules)
            if store is not None and path is not None:
                store.save(path, kept[0], kept[1] if traces else None)
        yield kept


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


def _outcome(
    entry: Entry, start: Start, contestant: Contestant, rules: Rules
) -> tuple[Row, History]:
    limits = rules.limits(start)
    ran = _guarded(start, contestant, limits, rules)
    history = ran.history
    at = history.reached(limits.tol, start.fun)
    if at is None and ran.status == "converged":
        told = f"{ran.message}, but where the objective is above {start.fun:.6g}, that of the start"
        ran = replace(ran, status="objective rose", message=told)
    best, last = (history.best(), len(history) - 1) if len(history) else (None, None)
    spent = at if at is not None else last  # None: nothing was evaluated
    shown = at if at is not None else best
    problem = start.problem
    row = Row(
        problem=entry.name,
        family=entry.family,
        dimension=entry.dimension,
        held_back=entry.held_back,
        method=contestant.label,
        guarantee=contestant.guarantee,
        status=ran.status,
        message=ran.message,
        reached=at is not None,
        nfev=0 if spent is None else int(history.nfev[spent]),
        njev=0 if spent is None else int(history.njev[spent]),
        nit=ran.nit,
        time=0.0 if spent is None else float(history.time[spent]),
        restarts=ran.restarts,
        guaranteed_turns=ran.guaranteed_turns,
        fun=math.nan if shown is None else float(history.fun[shown]),
        grad_norm=math.nan if shown is None else float(history.grad_norm[shown]),
        start_fun=start.fun,
        start_grad_norm=start.grad_norm,
        minimum=problem.minimum if problem is not None and problem.minimum_is_exact else None,
        tol=limits.tol,
        rtol=rules.rtol,
        max_evaluations=rules.max_evaluations,
        max_time=rules.max_time,
        separate=rules.separate,
        setup=setup(),
    )
    return row, history


def _guarded(start: Start, contestant: Contestant, limits: Limits, rules: Rules) -> Ran:
    """Whatever goes wrong is an outcome; only Ctrl-C goes through."""
    try:
        if start.error is not None:
            raise start.error
        assert start.problem is not None
        # Functions may overflow where a solver looks far away, and solvers warn of their failures.
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            ran = contestant.run(start.problem, limits, rules.separate, rules.seed)
            for _ in range(rules.repeats - 1):
                if not len(ran.history) or ran.history.time[-1] > BRIEF:
                    break
                again = contestant.run(start.problem, limits, rules.separate, rules.seed)
                ran = min(ran, again, key=lambda one: float(one.history.time[-1]))
            return ran
    except NotApplicableError as error:
        return Ran(NOTHING, "not applicable", str(error))
    except Exception as error:
        return Ran(NOTHING, "failed", describe_error(error))


@functools.cache
def setup() -> str:
    """Versions and machine, as far as they bear on the numbers."""
    told = [f"momentous {__version__}", f"Python {platform.python_version()}"]
    for package in ("numpy", "scipy", "torch"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            told.append(f"{package} {metadata.version(package)}")
    threads = os.environ.get("OPENBLAS_NUM_THREADS")
    limited = f", OPENBLAS_NUM_THREADS={threads}" if threads else ""
    return f"{', '.join(told)}; {platform.machine()}, {os.cpu_count()} cores{limited}"
