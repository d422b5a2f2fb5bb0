"""Which runs a figure of the paper needs, and running them: step sizes first, then to the end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from momentous.lab.paper import tuning
from momentous.lab.paper.folder import StudyFolder, is_study
from momentous.lab.paper.methods import AUTHORS_STEPS, PAPER_METHODS, PaperMethod, select_methods
from momentous.lab.paper.problems import DataSet, PaperProblem, Profile
from momentous.lab.paper.results import RunSet
from momentous.lab.paper.runs import PaperRun, Task, remove_checkpoint, run_task, with_tuning
from momentous.lab.progress import StudyProgress
from momentous.lowrank.backends.device import DeviceError, require_gpu

TRIALS = 6  # of step sizes, as a rule: for the estimate of the time left
LATEST_JUDGED = 500
REFERENCES = 2  # methods that go on beyond what is shown
MOST_UNSTABLE = 4  # runs to the end with smaller steps, where none is stable


@dataclass(frozen=True)
class Figure:
    """A figure of the paper: on which problems, of which methods, how long."""

    name: str
    problems: tuple[str, ...]
    iterations: int
    reference: int  # the lowest runs go on so far, to find f*
    methods: tuple[str, ...] = tuple(PAPER_METHODS)
    data: str = "ml-10m"


FIGURES = {
    each.name: each
    for each in (
        Figure("fig1", ("completion",), 1000, 2000),
        Figure("fig2", ("one-bit",), 1000, 2000),
        # On the larger sets that is a matter of hours per run.
        Figure(
            "fig3", ("completion", "one-bit"), 100_000, 100_000, ("ada-ragd", "ada-rhb"), "ml-1m"
        ),
    )
}


@dataclass(frozen=True)
class Settings:
    """What holds for every run."""

    profile: Profile = "paper"
    iterations: int | None = None  # in place of the figure's own
    reference: int | None = None  # None: as far beyond what is shown as in the paper
    methods: list[str] | None = None  # in place of all of the figure's
    trial_iterations: int = 100  # of a trial of a step size
    threads: int | None = None
    device: str = "cpu"
    step_sizes_from: Path | None = None  # another study, whose step sizes are taken over

    def __post_init__(self) -> None:
        """Refuse what is wrong before anything is run."""
        select_methods(self.methods)
        if self.device == "cuda":
            try:
                require_gpu()
            except DeviceError as error:
                raise ValueError(str(error)) from None
        if self.step_sizes_from is not None and not is_study(self.step_sizes_from):
            raise ValueError(
                f"there is no study in {self.step_sizes_from} that step sizes could be taken from"
            )

    def problem(self, data: DataSet, name: str) -> PaperProblem:
        """One of the paper's problems under these settings."""
        return PaperProblem(data, name, self.profile, self.threads, self.device)

    def chosen(self, figure: Figure) -> list[PaperMethod]:
        """Those of the figure that are wanted."""
        return [each for each in select_methods(self.methods) if each.name in figure.methods]

    def lengths(self, figure: Figure) -> tuple[int, int]:
        """Iterations that are shown, and that are run."""
        shown = self.iterations or figure.iterations
        reach = self.reference or shown * figure.reference // figure.iterations
        return shown, max(shown, reach)


@dataclass(frozen=True)
class PlannedRun:
    """One method on one problem: the part of a plan that the display counts."""

    figure: Figure
    problem: PaperProblem
    method: PaperMethod
    shown: int  # iterations that are shown
    reach: int  # iterations that the lowest go on to
    settings: Settings

    @property
    def where(self) -> str:
        name = f"{self.problem.data.name}{' twin' if self.problem.data.twin else ''}"
        return f"{self.figure.name}: {name}, {self.problem.name}"

    @property
    def title(self) -> str:
        return f"{self.where}, {self.method.label}"

    @property
    def cost(self) -> float:
        """Of an iteration."""
        return self.method.evaluations * (1.5 if self.problem.name == "one-bit" else 1.0)

    @property
    def judged_at(self) -> int:
        """Iterations at which step sizes are judged: half way, and early in the long runs."""
        return max(1, min(self.shown // 2, LATEST_JUDGED))

    @property
    def work(self) -> float:
        """Iterations, times what one costs."""
        known = self.method.step_of or self.settings.step_sizes_from
        searched = 0 if known else TRIALS * self.settings.trial_iterations
        full = self.shown + (0 if known else 2 * self.judged_at)
        return (searched + full) * self.cost


def run_figures(
    figures: list[Figure],
    data: list[DataSet] | None,
    settings: Settings,
    folder: StudyFolder,
    progress: StudyProgress,
) -> None:
    """Run what is not there yet, and note in the folder which runs belong to which figure."""
    for figure in figures:
        if not settings.chosen(figure):
            raise ValueError(
                f"none of the methods {', '.join(settings.methods or ())} is part of {figure.name}"
            )
    sets = list(_planned_runs(figures, data, settings))
    if settings.step_sizes_from is not None:  # a missing one is refused before anything is run
        for each in (run for planned in sets for run in planned):
            _step_size_in(StudyFolder(settings.step_sizes_from), each)
    work = {run.title: run.work for planned in sets for run in planned}
    for first, *_ in sets:
        work[_extension_title(first)] = REFERENCES * (first.reach - first.shown) * first.cost
    progress.plan(work)
    for planned in sets:
        first, runs = planned[0], {}
        for each in planned:
            progress.begin(each.title, each.cost)
            runs[each.method.name] = _run(each, folder, progress)
            progress.end(runs[each.method.name])
        if first.reach > first.shown:
            progress.begin(_extension_title(first), first.cost)
            progress.end(_extend_lowest(planned, runs, folder, progress))
        folder.add(RunSet(first.figure.name, list(runs.values()), first.shown))
        for run in runs.values():
            remove_checkpoint(run)


def _extension_title(planned: PlannedRun) -> str:
    """The title of what `_extend_lowest` does."""
    return f"{planned.where}, the lowest go on"


def _planned_runs(
    figures: list[Figure], data: list[DataSet] | None, settings: Settings
) -> Iterator[list[PlannedRun]]:
    """The runs of every problem on every data set."""
    made: dict[tuple[DataSet, str], PaperProblem] = {}
    for figure in figures:
        chosen, lengths = settings.chosen(figure), settings.lengths(figure)
        for each in data or [DataSet(figure.data)]:
            for name in figure.problems:
                problem = made.setdefault((each, name), settings.problem(each, name))
                yield [PlannedRun(figure, problem, method, *lengths, settings) for method in chosen]


def _run(planned: PlannedRun, folder: StudyFolder, progress: StudyProgress) -> PaperRun:
    """With the step size that is best half way; or with that of another method."""
    other_study = planned.settings.step_sizes_from
    if other_study is not None:
        found_there = _step_size_in(StudyFolder(other_study), planned)
        return _stable_run(planned, *found_there, folder, progress)[0]
    where = (planned.problem.name, planned.problem.data.name)
    if planned.method.step_of:
        by_authors = AUTHORS_STEPS.get(where, {}).get(planned.method.name)
        if planned.problem.profile == "authors-code" and by_authors is not None:
            first, source = by_authors, "the authors' script"
        else:
            other = replace(planned, method=PAPER_METHODS[planned.method.step_of])
            info = _run(other, folder, progress).info
            assert info.step_size is not None
            factor = planned.method.step_factor
            first, source = factor * info.step_size, f"tuned for {info.method}"
            if factor != 1:
                source = f"{factor:g} times that {source}"
        run, unstable = _stable_run(planned, first, source, folder, progress)
        trials = [tuning.Trial.of(each, planned.shown) for each in unstable]
        return with_tuning(run, {"unstable": tuning.unstable_steps(trials)} if trials else {})
    found, _ = tuning.tune(
        planned.method, planned.problem, folder, iterations=planned.judged_at,
        trial_iterations=planned.settings.trial_iterations, on_iteration=progress.on_iteration,
    )  # fmt: skip
    run, unstable = _stable_run(planned, found.step_size, "tuned", folder, progress)
    for discarded, _ in found.discarded:
        if discarded.path != run.path:
            remove_checkpoint(discarded)
    return with_tuning(run, found.with_shown(run, unstable, planned.shown).summary)


def _step_size_in(study: StudyFolder, planned: PlannedRun) -> tuple[float, str]:
    """The step size of the same method on the same problem in another study, and where from.

    That of the same figure comes first; figures differ in length alone.
    """
    problem = planned.problem
    wanted = (problem.name, problem.profile, problem.data.fingerprint, planned.method.label)
    for run_set in sorted(study.run_sets(), key=lambda each: each.figure != planned.figure.name):
        for run in run_set.runs:
            info = run.info
            same = (info.problem, info.profile, info.fingerprint, info.method) == wanted
            if same and info.step_size is not None:
                return info.step_size, f"{info.step_from}, on {info.device}"
    raise ValueError(f"{study.path} has no run of {planned.title} whose step size could be taken")


def _stable_run(
    planned: PlannedRun,
    step_size: float,
    step_from: str,
    folder: StudyFolder,
    progress: StudyProgress,
) -> tuple[PaperRun, list[PaperRun]]:
    """The run with this step size, or with the next smaller one that is stable to the end.

    Returns the unstable ones, too.  Where all are unstable that get to the end, the lowest of those
    is taken.
    """
    unstable: list[PaperRun] = []
    complete: list[tuple[tuning.Trial, PaperRun]] = []
    while len(unstable) < tuning.MOST_DOUBLINGS and len(complete) <= MOST_UNSTABLE:
        source = f"{step_from}, then made smaller" if unstable else step_from
        task = Task(planned.method, planned.problem, step_size, planned.shown, source)
        run = run_task(task, folder.runs, progress.on_iteration)
        trial = tuning.Trial.of(run, planned.shown)
        if math.isfinite(trial.fun):
            complete.append((trial, run))
        if not trial.instability:
            break
        unstable.append(run)
        step_size = tuning.four_digits(step_size / tuning.SMALLER)
    if not complete:
        raise ValueError(
            f"{planned.title}: no step size down to {step_size:.3g} lasts for {planned.shown} "
            "iterations"
        )
    chosen = min(complete, key=lambda pair: (bool(pair[0].instability), pair[0].fun))[1]
    for run in unstable:
        if run is not chosen:
            remove_checkpoint(run)
    return chosen, unstable


def _extend_lowest(
    planned: list[PlannedRun],
    runs: dict[str, PaperRun],
    folder: StudyFolder,
    progress: StudyProgress,
) -> PaperRun:
    """Let the lowest go on, to find f*; returns the last of them.

    The paper lets all methods go on to twice what it shows, which takes twice the time; the least
    value is likely to be that of one of those which are lowest half way.
    """

    def end(each: PlannedRun) -> float:
        last = float(runs[each.method.name].fun[-1])
        return last if math.isfinite(last) else math.inf

    for each in sorted(planned, key=end)[:REFERENCES]:
        info = runs[each.method.name].info
        assert info.step_size is not None
        task = Task(each.method, each.problem, info.step_size, each.reach, info.step_from)
        longer = run_task(task, folder.runs, progress.on_iteration)
        runs[each.method.name] = with_tuning(longer, info.tuning)
    return runs[each.method.name]
