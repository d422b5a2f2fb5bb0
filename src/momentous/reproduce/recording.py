"""Running one method on one problem into one file, from where it was if it was killed before."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from momentous.api import minimize
from momentous.comparison.history import History
from momentous.comparison.runner import setup
from momentous.core.checkpoint import Checkpoint, CheckpointError
from momentous.core.checkpoint import load as load_checkpoint
from momentous.core.loop import IntermediateResult
from momentous.core.method import Method
from momentous.core.result import Result
from momentous.core.status import Status
from momentous.core.trace import Trace
from momentous.reproduce.contenders import Contender
from momentous.reproduce.problem import PaperProblem
from momentous.reproduce.recorded import UNREADABLE, About, Recorded

SAVE_EVERY = 15.0
"""Seconds between checkpoints: what a killed run loses, beside the time of one step."""

Watch = Callable[[int, float, float], None]
"""(iteration, objective, gradient norm), after every one."""


@dataclass(frozen=True)
class Task:
    """A run that is to be recorded."""

    problem: PaperProblem
    label: str
    method: Method
    iterations: int
    step_size: float
    step_from: str
    hopeless: float  # times the objective of the start: where the run ends
    trial: bool

    def limit(self, start: float) -> float:
        """The objective above which there is no hope, for that of the start."""
        return (self.hopeless + 1e-9) * start

    def path(self, folder: Path) -> Path:
        """Where the run is, or will be: another file for all that makes it another run."""
        problem = self.problem
        settings: list[Any] = [
            problem.data.fingerprint,
            problem.name,
            problem.profile,
            problem.threads,  # times with another number are other times
            self.method.described(),
            self.hopeless,
        ]
        if self.trial:  # others can be extended
            settings.append(self.iterations)
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
        told = f"{problem.data.name}--{problem.name}--{self.label}--{problem.profile}"
        return folder / f"{re.sub(r'[^A-Za-z0-9.+-]+', '_', told)}--{digest}.parquet"


def task_for(
    contender: Contender,
    problem: PaperProblem,
    step_size: float,
    iterations: int,
    *,
    trial: bool = False,
    step_from: str = "tuned",
) -> Task:
    """A contender with a step size, as a task."""
    method = contender.make(step_size, problem.name, problem.profile)
    return Task(
        problem,
        contender.label,
        method,
        iterations,
        step_size,
        step_from,
        contender.hopeless,
        trial,
    )


def recorded(task: Task, folder: Path, watch: Watch | None = None) -> Recorded:
    """The run of a task: from its file, or from its checkpoint to its end, or from its start.

    A run in the file may be longer than the task asks for; one that is shorter is extended.  Ctrl-C
    saves what there is and goes through.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = task.path(folder)
    run = _known(path)
    if run is None or (
        run.about.iterations < task.iterations and run.about.status == "max iterations"
    ):
        result, interrupted = _run(task, _checkpoint(path), watch)
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        run = _as_recorded(task, result).save(path)
        if interrupted:  # when the run was over anyway: but there are more to come
            raise KeyboardInterrupt
    if task.trial:
        forget_checkpoint(run)
    return run


def forget_checkpoint(run: Recorded) -> None:
    """Remove what a run would be extended from."""
    if run.path is not None:
        kept = _checkpoint(run.path)
        for name in (kept.name, kept.name + ".previous"):
            kept.with_name(name).unlink(missing_ok=True)


def _checkpoint(path: Path) -> Path:
    return path.with_suffix(".checkpoint")


def _known(path: Path) -> Recorded | None:
    """The run in a file; None if there is none, or none that can be read: it is then run again."""
    try:
        return Recorded.load(path)
    except UNREADABLE:
        return None


def _run(task: Task, kept: Path, watch: Watch | None) -> tuple[Result, bool]:
    """The run, and whether Ctrl-C was heard on the way."""
    problem, heard = task.problem, Heard()
    limit = task.limit(problem.value(problem.start()))

    def observe(step: IntermediateResult) -> bool:
        fun = step.peek()  # known: the trace has looked already
        if watch is not None:
            watch(step.nit, fun, step.grad_norm)
        return not fun <= limit

    def minimised(resume: Path | None) -> tuple[Result, bool]:
        # Too long a step overflows before it is noticed, which is what a trial is for.
        with np.errstate(all="ignore"):
            result = minimize(
                heard(problem.value),
                problem.start(),
                jac=heard(problem.gradient),
                method=task.method,
                tol=0.0,
                max_iterations=task.iterations,
                trace=Trace(values=True),
                checkpoint=Checkpoint(kept, every_seconds=SAVE_EVERY),
                callback=observe,
                resume=resume,
            )
        return result, heard.interrupted

    return minimised(_whole(kept))


def _whole(kept: Path) -> Path | None:
    """The checkpoint to go on from: the last, or the one before it where that is damaged."""
    for saved in (kept, kept.with_name(kept.name + ".previous")):
        if saved.exists():
            try:
                load_checkpoint(saved, lambda array: array)
                return saved
            except CheckpointError:
                saved.unlink()
    return None


class Heard:
    """Remembers that a Ctrl-C went through a function: a run at its end takes no notice of it."""

    def __init__(self) -> None:
        self.interrupted = False

    def __call__(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def called(x: Any) -> Any:
            try:
                return function(x)
            except KeyboardInterrupt:
                self.interrupted = True
                raise

        return called


def _as_recorded(task: Task, result: Result) -> Recorded:
    trace = result.trace
    assert trace is not None
    about = description(
        task.problem,
        task.label,
        _plain(task.method),
        status=result.status.name.lower().replace("_", " "),
        message=result.message,
        iterations=task.iterations,
        step_size=task.step_size,
        step_from=task.step_from,
    )
    history = History.of(trace)
    # A run that was killed between its hopeless end and its file has made a step more since.
    hopeless = np.flatnonzero(~(history.fun <= task.limit(float(history.fun[0]))))
    end = int(hopeless[0]) + 1 if hopeless.size else len(history)
    rows = {name: column[:end] for name, column in history.columns().items()}
    events = [event for event in history.events if event[0] < end]
    return Recorded(about, History.from_columns(rows, events), trace["step_size"][:end])


def description(
    problem: PaperProblem,
    label: str,
    parameters: dict[str, Any],
    *,
    status: str,
    message: str,
    iterations: int,
    step_size: float | None = None,
    step_from: str = "the method",
    profile: str | None = None,
) -> About:
    """What is to be said of a run on a problem."""
    return About(
        data=problem.data.name,
        twin=problem.data.twin,
        problem=problem.name,
        method=label,
        profile=profile or problem.profile,
        parameters=parameters,
        step_size=step_size,
        step_from=step_from,
        iterations=iterations,
        status=status,
        message=message,
        shape=problem.ratings.shape,
        entries=problem.ratings.nnz,
        rank=problem.objective.rank,
        fingerprint=problem.data.fingerprint,
        threads=problem.objective.threads,
        setup=setup(),
    )


def _plain(method: Method) -> dict[str, Any]:
    """Name and parameters that are set."""
    given = {name: value for name, value in method.parameters().items() if value is not None}
    return {"method": method.name, **given}
