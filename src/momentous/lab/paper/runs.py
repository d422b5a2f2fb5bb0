"""One method on one problem into one file, going on from where it was if it was killed before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from momentous.api import minimize
from momentous.core.checkpoint import Checkpoint, CheckpointError
from momentous.core.checkpoint import load as load_checkpoint
from momentous.core.loop import IntermediateResult
from momentous.core.method import Method
from momentous.core.result import Result, Trace
from momentous.core.status import Status
from momentous.io.atomic import previous_path
from momentous.lab.paper.methods import PaperMethod
from momentous.lab.paper.problems import CPU, PROBLEMS, PaperProblem
from momentous.lab.record import (
    Ended,
    Json,
    Outcome,
    RunInfo,
    RunRecord,
    finished_run,
    path_of_run,
    setup,
)
from momentous.lab.text import count_of

SAVE_EVERY = 15.0
"""Seconds between checkpoints: what a killed run loses, beside the time of one step."""
OUR_PROFILE = "ours"  # the parameters of solvers that the paper does not compare

OnIteration = Callable[[int, float, float], None]
"""(iteration, objective, gradient norm), after every one."""


@dataclass(frozen=True)
class PaperRunInfo(RunInfo):
    """What was run in an experiment of the paper; ``problem`` is one of PROBLEMS."""

    data: str  # "ml-10m"
    twin: bool  # synthetic, of the same shape and count
    profile: str  # whose parameters: "paper", "authors-code" or "ours"
    step_size: float | None  # None where the method finds its own
    step_from: str  # who chose it: "tuned", "given", "the method"
    iterations: int  # asked for
    shape: tuple[int, int]
    entries: int
    rank: int
    fingerprint: str  # of the data
    device: str  # "CPU", or the name of a GPU
    threads: int  # on the CPU
    tuning: Json = field(default_factory=dict)  # see SearchResult.summary

    @property
    def data_name(self) -> str:
        """The data set, marked where it is a twin."""
        return f"{self.data} twin" if self.twin else self.data

    @property
    def problem_name(self) -> str:
        """The problem in words."""
        return PROBLEMS.get(self.problem, self.problem)

    @property
    def machine(self) -> str:
        """Versions, machine and what of it did the work: times of another cannot be compared."""
        used = count_of(self.threads, "thread") if self.device == CPU else self.device
        return f"{self.setup}; {used}"


PaperRun = RunRecord[PaperRunInfo]


def load_run(path: Path) -> PaperRun:
    """Read the file of a run."""
    return RunRecord.load(path, PaperRunInfo)


def run_info(
    problem: PaperProblem, label: str, parameters: Json, *, iterations: int,
    step_size: float | None = None, step_from: str = "the method", profile: str | None = None,
) -> PaperRunInfo:  # fmt: skip
    """What there is to say of a run on a problem."""
    versions = ", ".join(filter(None, (setup(), problem.software)))
    return PaperRunInfo(
        problem=problem.name, method=label, parameters=parameters, setup=versions,
        data=problem.data.name, twin=problem.data.twin, profile=profile or problem.profile,
        step_size=step_size, step_from=step_from, iterations=iterations,
        shape=problem.ratings.shape, entries=problem.ratings.nnz, rank=problem.objective.rank,
        fingerprint=problem.data.fingerprint, device=problem.device,
        threads=problem.objective.threads,
    )  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A run that is to be recorded: a method of the paper with a step size on a problem."""

    method: PaperMethod
    problem: PaperProblem
    step_size: float
    iterations: int
    step_from: str = "tuned"
    trial: bool = False  # of a step size: runs to the end can be extended, and are saved

    @cached_property
    def instance(self) -> Method:
        """The method with its parameters."""
        return self.method.make(self.step_size, self.problem.name, self.problem.profile)

    def limit(self, start: float) -> float:
        """The objective above which the run has diverged, for that of the start."""
        return (self.method.divergence_factor + 1e-9) * start

    def path(self, folder: Path) -> Path:
        """Where the run is, or will be: another file for all that makes it another run."""
        problem = self.problem
        # Times on another device, or with another number of threads, are other times.
        where = problem.objective.threads if problem.device == CPU else problem.device
        settings: list[object] = [
            problem.data.fingerprint, problem.name, problem.profile, where,
            self.instance.description(), self.method.divergence_factor,
        ]  # fmt: skip
        if self.trial:
            settings.append(self.iterations)
        name = f"{problem.data.name}--{problem.name}--{self.method.label}--{problem.profile}"
        return path_of_run(folder, name, settings)


def run_task(task: Task, folder: Path, on_iteration: OnIteration | None = None) -> PaperRun:
    """The run of a task: from its file, or from its checkpoint to its end, or from its start.

    A run in the file may be longer than the task asks for; one that is shorter is extended.  Ctrl-C
    saves what there is and goes through.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = task.path(folder)
    run = finished_run(path, PaperRunInfo)
    if run is None or (
        run.info.iterations < task.iterations and run.status is Ended.MAX_ITERATIONS
    ):
        interrupt: KeyboardInterrupt | None = None
        try:
            result = _minimize(task, _checkpoint_path(path), on_iteration)
        except KeyboardInterrupt as stop:
            found = getattr(stop, "result", None)
            if found is None or found.status is Status.INTERRUPTED:
                raise
            result, interrupt = found, stop  # the run was over anyway: but there are more to come
        run = _as_record(task, result).save(path)
        if interrupt is not None:
            raise interrupt
    return run


def with_tuning(run: PaperRun, tuning: Json) -> PaperRun:
    """The same with what the search for its step size has found; its file is written again."""
    if tuning == run.info.tuning or run.path is None:
        return run
    return replace(run, info=replace(run.info, tuning=tuning)).save(run.path)


def remove_checkpoint(run: PaperRun) -> None:
    """Remove what a run would be extended from."""
    if run.path is not None:
        checkpoint = _checkpoint_path(run.path)
        for each in (checkpoint, previous_path(checkpoint)):
            each.unlink(missing_ok=True)


def _checkpoint_path(path: Path) -> Path:
    return path.with_suffix(".checkpoint")


def _minimize(task: Task, checkpoint: Path, on_iteration: OnIteration | None) -> Result:
    problem = task.problem
    resume = _readable_checkpoint(checkpoint)  # removes what cannot be read
    # A trial is short, and on a GPU writing a checkpoint takes longer.
    saved = None if task.trial else Checkpoint(checkpoint, SAVE_EVERY)
    limit = task.limit(problem.value(problem.start()))

    def observe(intermediate_result: IntermediateResult) -> bool:
        step = intermediate_result
        fun = step.peek()  # known: the trace has looked already
        if on_iteration is not None:
            on_iteration(step.nit, fun, step.grad_norm)
        return not fun <= limit

    # Too long a step overflows before it is noticed, which is what a trial is for.
    with np.errstate(all="ignore"):
        return minimize(
            problem.value, problem.start(), jac=problem.gradient, method=task.instance, tol=0.0,
            max_iterations=task.iterations, trace=Trace(values=True), checkpoint=saved,
            callback=observe, resume=resume,
        )  # fmt: skip


def _readable_checkpoint(checkpoint: Path) -> Path | None:
    """The checkpoint to go on from: the last, or the one before it where that is damaged."""
    for saved in (checkpoint, previous_path(checkpoint)):
        if saved.exists():
            try:
                load_checkpoint(saved)
                return saved
            except CheckpointError:
                saved.unlink()
    return None


def _as_record(task: Task, result: Result) -> PaperRun:
    assert result.trace is not None
    given = {name: value for name, value in task.instance.parameters().items() if value is not None}
    info = run_info(
        task.problem, task.method.label, {"method": task.instance.name, **given},
        iterations=task.iterations, step_size=task.step_size, step_from=task.step_from,
    )  # fmt: skip
    run = RunRecord.from_trace(info, Outcome.from_result(result), result.trace)
    # A run that was killed between its divergence and its file has made a step more since.
    diverged = np.flatnonzero(~(run.fun <= task.limit(float(run.fun[0]))))
    return run.first_rows(int(diverged[0]) + 1) if diverged.size else run
