"""The search for the best step size: a grid in factors of two, bisection, and proof at length.

The paper tunes "the best stepsize for each compared method on each dataset" and does not say how.
Here short trials look for the largest stable step size.  What is stable for a hundred iterations
may not be for a thousand, because the curvature grows on the way; so the best of the trials is run
for longer, and smaller ones too, as long as they end lower.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from momentous.reproduce.contenders import AUTHORS_STEPS, Contender
from momentous.reproduce.folder import Folder
from momentous.reproduce.problem import PaperProblem
from momentous.reproduce.recorded import Recorded
from momentous.reproduce.recording import Watch, forget_checkpoint, recorded, task_for

FACTOR = 2.0
BISECTIONS = 2  # to within 2^(1/4), 19 per cent
MOST_DOUBLINGS = 12
SMALLER = math.sqrt(2.0)  # what a step size is divided by at length
ABANDONED = ("max iterations", "stopped", "non finite")  # other runs have ended by themselves


@dataclass(frozen=True)
class Trial:
    """A step size, and how it did."""

    step_size: float
    stable: bool
    fun: float  # the objective in the end, infinite where that was not reached

    @classmethod
    def of(cls, run: Recorded, iterations: int) -> Trial:
        """How a run did up to that iteration; it may be longer, or have found its end before.

        Stable: finite, never above the start, without discarded epochs (line 11).
        """
        assert run.about.step_size is not None
        funs = run.history.fun[: iterations + 1]
        over = len(funs) > iterations or run.about.status not in ABANDONED
        whole = over and bool(np.isfinite(funs).all())
        kinds = {kind for row, kind, _ in run.history.events if row <= iterations}
        steady = whole and bool(funs.max() <= funs[0] * (1 + 1e-9))
        stable = steady and not kinds & {"ROLLBACK", "NON_FINITE"}
        return cls(run.about.step_size, stable, float(funs[-1]) if whole else math.inf)


@dataclass(frozen=True)
class Tuned:
    """What a search has found, and what it has cost."""

    trials: list[Trial]
    full: list[Trial]
    step_size: float
    discarded: list[tuple[Recorded, int]]  # all runs but the best, and how much of them was needed

    def showing(self, run: Recorded, given_up: list[tuple[Recorded, int]]) -> Tuned:
        """The same, where this run is shown in the end, and others did not last until then."""
        others = {each.path: (each, needed) for each, needed in (*self.discarded, *given_up)}
        others.pop(run.path, None)
        return replace(self, discarded=list(others.values()))

    @property
    def cost(self) -> dict[str, float]:
        """Of the search; the best run, which is shown, is not part of it."""
        ends = [(run.history, run.history.nfev[: n + 1].size - 1) for run, n in self.discarded]
        return {
            "trials": len(self.trials),
            "longer runs": len(self.full) - 1,
            "values": sum(int(history.nfev[end]) for history, end in ends),
            "gradients": sum(int(history.njev[end]) for history, end in ends),
            "seconds": round(sum(float(history.time[end]) for history, end in ends), 2),
        }


def search(tried: Callable[[float], Trial], first: float) -> list[Trial]:
    """Bracket the largest stable step size by factors of two, then halve the bracket in logs.

    Where the best objective so far belongs to the smallest step that was tried, the next smaller
    one is tried as well: the largest stable step is not always the best.
    """
    trials = [tried(first)]
    low = high = first
    if trials[0].stable:
        while trials[-1].stable and len(trials) <= MOST_DOUBLINGS:
            low, high = high, high * FACTOR
            trials.append(tried(high))
        if trials[-1].stable:
            return trials  # no end in sight
    else:
        while not trials[-1].stable and len(trials) <= MOST_DOUBLINGS:
            low, high = low / FACTOR, low
            trials.append(tried(low))
        if not trials[-1].stable:
            return trials
    for _ in range(BISECTIONS):
        middle = math.sqrt(low * high)
        trials.append(tried(middle))
        low, high = (middle, high) if trials[-1].stable else (low, middle)
    while len(trials) <= 2 * MOST_DOUBLINGS:
        best, least = min(trials, key=lambda t: t.fun), min(trials, key=lambda t: t.step_size)
        if best is not least:
            break
        trials.append(tried(least.step_size / FACTOR))
    return trials


def descend(run: Callable[[float], Trial], first: float) -> list[Trial]:
    """Smaller and smaller step sizes, until one does not end lower than the one before."""
    runs = [run(first)]
    while len(runs) <= MOST_DOUBLINGS:
        runs.append(run(runs[-1].step_size / SMALLER))
        if runs[-1].fun >= runs[-2].fun < math.inf:
            break
    return runs


def tune(
    contender: Contender,
    problem: PaperProblem,
    folder: Folder,
    *,
    iterations: int,
    trial_iterations: int,
    watch: Watch | None = None,
) -> tuple[Tuned, Recorded]:
    """Find the step size of a contender on a problem; returns the search and the best run.

    Every trial is a recorded run in the folder; so a search that was killed goes on where it was,
    and one that is finished costs nothing.

    Parameters
    ----------
    contender : Contender
    problem : PaperProblem
    folder : Folder
    iterations, trial_iterations : int
        At length, and of a trial.
    watch : callable, optional
        Told of every iteration.

    Raises
    ------
    ValueError
        Where no step size leads downwards.
    """
    short: dict[float, Recorded] = {}
    full: dict[float, Recorded] = {}
    refusal: ValueError | None = None

    def run(step_size: float, length: int, place: Path, kept: dict[float, Recorded]) -> Trial:
        nonlocal refusal
        step_size = readable(step_size)
        try:
            task = task_for(contender, problem, step_size, length, trial=kept is short)
            kept[step_size] = recorded(task, place, watch)
        except ValueError as error:  # a step outside the range of the method's theory
            refusal = error
            return Trial(step_size, False, math.inf)
        return Trial.of(kept[step_size], length)

    trials = search(
        lambda step: run(step, trial_iterations, folder.tuning, short),
        first_guess(contender, problem),
    )
    best = min(trials, key=lambda trial: trial.fun)
    at_length: list[Trial] = []
    if math.isfinite(best.fun):
        at_length = descend(lambda step: run(step, iterations, folder.runs, full), best.step_size)
        best = min(at_length, key=lambda trial: trial.fun)
    if not math.isfinite(best.fun):
        steps = [trial.step_size for trial in trials + at_length]
        raise ValueError(
            f"no step size from {min(steps):.3g} to {max(steps):.3g} lets {contender.label} lower "
            f"the objective of {problem.name} on {problem.data.name}"
            + (f"; the last one was refused: {refusal}" if refusal else "")
        ) from refusal
    chosen = full.pop(best.step_size)
    for discarded in full.values():
        forget_checkpoint(discarded)
    needed = [(each, trial_iterations) for each in short.values()]
    needed += [(each, iterations) for each in full.values()]
    return Tuned(trials, at_length, best.step_size, needed), chosen


def readable(step_size: float) -> float:
    """Four digits: the same in every search, whatever led to it."""
    return float(f"{step_size:.4g}")


def first_guess(contender: Contender, problem: PaperProblem) -> float:
    """The authors' step size for this data set; elsewhere 1/L.

    At the SVD start the balance term sets the largest curvature, and it is 8 s/N there with s the
    largest singular value: both factors changed along their first singular vectors, in opposite
    directions.
    """
    known = AUTHORS_STEPS.get((problem.name, problem.data.name))
    if known is not None:
        return known[contender.name]
    U, _ = problem.objective.split(problem.start())
    largest = float(np.linalg.norm(U, 2)) ** 2
    return problem.ratings.nnz / (8 * largest)
