"""Which runs a figure of the paper needs, and running them: step sizes first, then to the end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from momentous.lab.paper import tuning
from momentous.lab.paper.folder import StudyFolder
from momentous.lab.paper.methods import AUTHORS_STEPS, PAPER_METHODS, PaperMethod, select_methods
from momentous.lab.paper.problems import DataSet, PaperProblem, Profile
from momentous.lab.paper.progress import StudyProgress
from momentous.lab.paper.results import RunSet
from momentous.lab.paper.runs import PaperRun, Task, remove_checkpoint, run_task, with_tuning

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
    reference: int  # runs go on so far, for the sake of f*
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

    def chosen(self, figure: Figure) -> list[PaperMethod]:
        """Those of the figure that are wanted."""
        return [each for each in select_methods(self.methods) if each.name in figure.methods]

    def lengths(self, figure: Figure) -> tuple[int, int]:
        """Iterations that are shown, and that are run."""
        shown = self.iterations or figure.iterations
        reach = self.reference or shown * figure.reference // figure.iterations
        return shown, max(shown, reach)


@dataclass(frozen=True)
class Unit:
    """One method on one problem: the part of a plan that the display counts."""

    figure: Figure
    problem: PaperProblem
    method: PaperMethod
    shown: int
    reach: int
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
        searched = 0 if self.method.step_of else TRIALS * self.settings.trial_iterations
        full = self.shown + (0 if self.method.step_of else 2 * self.judged_at)
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
    sets = list(_sets(figures, data, settings))
    work = {unit.title: unit.work for units in sets for unit in units}
    for first, *_ in sets:
        work[_reference(first)] = REFERENCES * (first.reach - first.shown) * first.cost
    progress.plan(work)
    for units in sets:
        first, runs = units[0], {}
        for unit in units:
            progress.begin(unit.title, unit.cost)
            runs[unit.method.name] = _run(unit, folder, progress)
            progress.end(runs[unit.method.name])
        if first.reach > first.shown:
            progress.begin(_reference(first), first.cost)
            progress.end(_refer(units, runs, folder, progress))
        folder.add(RunSet(first.figure.name, list(runs.values()), first.shown))
        for run in runs.values():
            remove_checkpoint(run)


def _reference(unit: Unit) -> str:
    """The title of what `_refer` does."""
    return f"{unit.where}, the lowest go on"


def _sets(
    figures: list[Figure], data: list[DataSet] | None, settings: Settings
) -> Iterator[list[Unit]]:
    """The units of every problem on every data set."""
    made: dict[tuple[DataSet, str], PaperProblem] = {}
    for figure in figures:
        chosen, lengths = settings.chosen(figure), settings.lengths(figure)
        for each in data or [DataSet(figure.data)]:
            for name in figure.problems:
                problem = made.setdefault(
                    (each, name), PaperProblem(each, name, settings.profile, settings.threads)
                )
                yield [Unit(figure, problem, method, *lengths, settings) for method in chosen]


def _run(unit: Unit, folder: StudyFolder, progress: StudyProgress) -> PaperRun:
    """With the step size that is best half way; or with that of another method."""
    where = (unit.problem.name, unit.problem.data.name)
    if unit.method.step_of:
        if unit.problem.profile == "authors-code" and where in AUTHORS_STEPS:
            first, source = AUTHORS_STEPS[where][unit.method.name], "the authors' script"
        else:
            other = replace(unit, method=PAPER_METHODS[unit.method.step_of])
            info = _run(other, folder, progress).info
            assert info.step_size is not None
            first, source = info.step_size, f"tuned for {info.method}"
        run, given_up = _stable_run(unit, first, source, folder, progress)
        unstable = tuning.unstable_steps([tuning.Trial.of(each, unit.shown) for each in given_up])
        return with_tuning(run, {"unstable": unstable} if unstable else {})
    found, _ = tuning.tune(
        unit.method, unit.problem, folder, iterations=unit.judged_at,
        trial_iterations=unit.settings.trial_iterations, on_iteration=progress.on_iteration,
    )  # fmt: skip
    run, given_up = _stable_run(unit, found.step_size, "tuned", folder, progress)
    for discarded, _ in found.discarded:
        if discarded.path != run.path:
            remove_checkpoint(discarded)
    return with_tuning(run, found.showing(run, given_up, unit.shown).summary)


def _stable_run(
    unit: Unit, step_size: float, step_from: str, folder: StudyFolder, progress: StudyProgress
) -> tuple[PaperRun, list[PaperRun]]:
    """The run with this step size, or with the next smaller one that is stable to the end.

    Returns the unstable ones, too.  Where all are unstable that get to the end, the lowest of those
    is taken.
    """
    given_up: list[PaperRun] = []
    whole: list[tuple[tuning.Trial, PaperRun]] = []
    while len(given_up) < tuning.MOST_DOUBLINGS and len(whole) <= MOST_UNSTABLE:
        source = f"{step_from}, then made smaller" if given_up else step_from
        task = Task(unit.method, unit.problem, step_size, unit.shown, source)
        run = run_task(task, folder.runs, progress.on_iteration)
        trial = tuning.Trial.of(run, unit.shown)
        if math.isfinite(trial.fun):
            whole.append((trial, run))
        if not trial.instability:
            break
        given_up.append(run)
        step_size = tuning.readable(step_size / tuning.SMALLER)
    if not whole:
        raise ValueError(
            f"{unit.title}: no step size down to {step_size:.3g} lasts for {unit.shown} iterations"
        )
    chosen = min(whole, key=lambda pair: (bool(pair[0].instability), pair[0].fun))[1]
    for run in given_up:
        if run is not chosen:
            remove_checkpoint(run)
    return chosen, given_up


def _refer(
    units: list[Unit], runs: dict[str, PaperRun], folder: StudyFolder, progress: StudyProgress
) -> PaperRun:
    """Let the lowest go on, for the sake of f*; returns the last of them.

    The paper lets all methods go on to twice what it shows, which takes twice the time; the least
    value is likely to be that of one of those which are lowest half way.
    """

    def end(unit: Unit) -> float:
        last = float(runs[unit.method.name].fun[-1])
        return last if math.isfinite(last) else math.inf

    for unit in sorted(units, key=end)[:REFERENCES]:
        info = runs[unit.method.name].info
        assert info.step_size is not None
        task = Task(unit.method, unit.problem, info.step_size, unit.reach, info.step_from)
        longer = run_task(task, folder.runs, progress.on_iteration)
        runs[unit.method.name] = with_tuning(longer, info.tuning)
    return runs[unit.method.name]
