"""Which runs a figure of the paper needs, and running them: step sizes first, then to the end."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from momentous.reproduce.contenders import (
    AUTHORS_CG_STEPS,
    CONTENDERS,
    Contender,
    chosen_contenders,
)
from momentous.reproduce.dataset import DataSet
from momentous.reproduce.display import Display
from momentous.reproduce.folder import Folder
from momentous.reproduce.problem import PaperProblem, Profile
from momentous.reproduce.recorded import Recorded
from momentous.reproduce.recording import forget_checkpoint, recorded, task_for
from momentous.reproduce.study import Group
from momentous.reproduce.tuning import MOST_DOUBLINGS, SMALLER, Trial, readable, tune

TRIALS = 6  # of step sizes, as a rule: for the estimate of the time left
LATEST_JUDGED = 500
REFERENCES = 2  # methods that go on beyond what is shown


@dataclass(frozen=True)
class Figure:
    """A figure of the paper: on which problems, of which methods, how long."""

    name: str
    problems: tuple[str, ...]
    iterations: int
    reference: int  # runs go on so far, for the sake of f*
    methods: tuple[str, ...] | None = None
    data: tuple[str, ...] = ("ml-10m",)


FIGURES = {
    each.name: each
    for each in (
        Figure("fig1", ("completion",), 1000, 2000),
        Figure("fig2", ("one-bit",), 1000, 2000),
        # On the larger sets that is a matter of hours a run.
        Figure(
            "fig3",
            ("completion", "one-bit"),
            100_000,
            100_000,
            methods=("ada-ragd", "ada-rhb"),
            data=("ml-1m",),
        ),
    )
}


@dataclass(frozen=True)
class Settings:
    """What holds for every run.

    Attributes
    ----------
    profile : {"paper", "authors-code"}
    iterations, reference : int, optional
        In place of the figure's own; without ``reference`` runs go as far beyond what is shown as
        in the paper.
    methods : list of str, optional
        In place of all of the figure's.
    trial_iterations : int
        Of a trial of a step size.
    threads : int, optional
    """

    profile: Profile = "paper"
    iterations: int | None = None
    reference: int | None = None
    methods: list[str] | None = None
    trial_iterations: int = 100
    threads: int | None = None

    def contenders(self, figure: Figure) -> list[Contender]:
        """Those of the figure that are wanted."""
        own = list(figure.methods) if figure.methods is not None else list(CONTENDERS)
        wanted = chosen_contenders(self.methods)
        return [each for each in wanted if each.name in own]

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
    contender: Contender
    shown: int
    reach: int
    settings: Settings

    @property
    def where(self) -> str:
        name = f"{self.problem.data.name}{' twin' if self.problem.data.twin else ''}"
        return f"{self.figure.name}: {name}, {self.problem.name}"

    @property
    def title(self) -> str:
        return f"{self.where}, {self.contender.label}"

    @property
    def cost(self) -> float:
        """Of an iteration."""
        return self.contender.evaluations * (1.5 if self.problem.name == "one-bit" else 1.0)

    @property
    def judged_at(self) -> int:
        """Iterations at which step sizes are judged: half way, and early in the long runs."""
        return max(1, min(self.shown // 2, LATEST_JUDGED))

    @property
    def work(self) -> float:
        """Iterations, times what one costs."""
        searched = 0 if self.contender.step_of else TRIALS * self.settings.trial_iterations
        full = self.shown + (0 if self.contender.step_of else 2 * self.judged_at)
        return (searched + full) * self.cost


def run_figures(
    figures: list[Figure],
    data: list[DataSet] | None,
    settings: Settings,
    folder: Folder,
    display: Display,
) -> None:
    """Run what is not there yet, and note in the folder which runs belong to which figure."""
    for figure in figures:
        if not settings.contenders(figure):
            raise ValueError(
                f"none of the methods {', '.join(settings.methods or ())} is part of {figure.name}"
            )
    sets = list(_sets(figures, data, settings))
    display.plan([part for units in sets for part in (*map(_part, units), _reference(units))])
    for units in sets:
        runs: dict[str, Recorded] = {}
        for unit in units:
            display.begin(unit.title, unit.cost)
            runs[unit.contender.name] = _run(unit, folder, display)
            display.end(runs[unit.contender.name])
        if units[0].reach > units[0].shown:
            display.begin(_reference(units)[0], units[0].cost)
            display.end(_refer(units, runs, folder, display))
        folder.note(Group(units[0].figure.name, list(runs.values()), units[0].shown))
        for run in runs.values():
            forget_checkpoint(run)


def _part(unit: Unit) -> tuple[str, float]:
    return unit.title, unit.work


def _reference(units: list[Unit]) -> tuple[str, float]:
    """Title and work of what `_refer` does."""
    first = units[0]
    return f"{first.where}, the lowest go on", REFERENCES * (first.reach - first.shown) * first.cost


def _sets(
    figures: list[Figure], data: list[DataSet] | None, settings: Settings
) -> Iterator[list[Unit]]:
    """The units of every problem on every data set."""
    made: dict[tuple[DataSet, str], PaperProblem] = {}
    for figure in figures:
        chosen = settings.contenders(figure)
        shown, reach = settings.lengths(figure)
        for each in data or [DataSet(name) for name in figure.data]:
            for name in figure.problems:
                problem = made.setdefault(
                    (each, name), PaperProblem(each, name, settings.profile, settings.threads)
                )
                yield [
                    Unit(figure, problem, contender, shown, reach, settings) for contender in chosen
                ]


def _run(unit: Unit, folder: Folder, display: Display) -> Recorded:
    """With the step size that is best half way; or with that of another contender."""
    where = (unit.problem.name, unit.problem.data.name)
    by_script = unit.problem.profile == "authors-code" and where in AUTHORS_CG_STEPS
    if unit.contender.step_of and by_script:
        first, source = AUTHORS_CG_STEPS[where], "the authors' script"
        return _lasting(unit, first, source, folder, display)[0]
    if unit.contender.step_of:
        other = _run(replace(unit, contender=CONTENDERS[unit.contender.step_of]), folder, display)
        assert other.about.step_size is not None
        source = f"tuned for {other.about.method}"
        return _lasting(unit, other.about.step_size, source, folder, display)[0]
    found, _ = tune(
        unit.contender,
        unit.problem,
        folder,
        iterations=unit.judged_at,
        trial_iterations=unit.settings.trial_iterations,
        watch=display.watch,
    )
    run, given_up = _lasting(unit, found.step_size, "tuned", folder, display)
    return run.with_tuning(found.showing(run, given_up).cost)


def _lasting(
    unit: Unit, step_size: float, step_from: str, folder: Folder, display: Display
) -> tuple[Recorded, list[tuple[Recorded, int]]]:
    """The run with this step size, or with the next smaller one that lasts to the end.

    Returns those that did not last, too, and how long they are.
    """
    given_up: list[tuple[Recorded, int]] = []
    for _ in range(MOST_DOUBLINGS):
        source = f"{step_from}, then made smaller" if given_up else step_from
        task = task_for(unit.contender, unit.problem, step_size, unit.shown, step_from=source)
        run = recorded(task, folder.runs, display.watch)
        if math.isfinite(Trial.of(run, unit.shown).fun):
            return run, given_up
        forget_checkpoint(run)
        given_up.append((run, unit.shown))
        step_size = readable(step_size / SMALLER)
    raise ValueError(
        f"{unit.title}: no step size down to {step_size:.3g} lasts for {unit.shown} iterations"
    )


def _refer(
    units: list[Unit], runs: dict[str, Recorded], folder: Folder, display: Display
) -> Recorded:
    """Let the lowest go on, for the sake of f*; returns the last of them.

    The paper lets all methods go on to twice what it shows, which takes twice the time; the least
    value is likely to be that of one of those which are lowest half way.
    """

    def end(unit: Unit) -> float:
        last = float(runs[unit.contender.name].history.fun[-1])
        return last if math.isfinite(last) else math.inf

    for unit in sorted(units, key=end)[:REFERENCES]:
        short = runs[unit.contender.name]
        assert short.about.step_size is not None
        task = task_for(
            unit.contender,
            unit.problem,
            short.about.step_size,
            unit.reach,
            step_from=short.about.step_from,
        )
        longer = recorded(task, folder.runs, display.watch).with_tuning(short.about.tuning)
        runs[unit.contender.name] = longer
    return longer
