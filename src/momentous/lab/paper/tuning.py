"""The search for the best step size: a grid in factors of two, bisection, and longer runs.

The paper tunes "the best stepsize for each compared method on each dataset" and does not say how.
Here short trials look for the largest stable step size.  What is stable for a hundred iterations
may not be for a thousand, because the curvature grows on the way; so the best of the trials is run
for longer, and smaller ones too, as long as they end lower.

What is best half way may still go wrong later.  A run to the end is **unstable** (see
`instability`) if it ends before its time, climbs above its start, or ends above its lowest value by
more than `RISE_ALLOWED` of the decrease that it has made; then the next smaller step is run to the
end (`momentous.lab.paper.plan`), and both are reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from momentous.core.status import EventKind
from momentous.lab.paper.folder import StudyFolder
from momentous.lab.paper.methods import AUTHORS_STEPS, PaperMethod
from momentous.lab.paper.problems import PaperProblem
from momentous.lab.paper.runs import OnIteration, PaperRun, Task, remove_checkpoint, run_task
from momentous.lab.record import Ended, Json

FACTOR = 2.0
BISECTIONS = 2  # to within 2^(1/4), 19 per cent
MOST_DOUBLINGS = 12
SMALLER = math.sqrt(2.0)  # what a step size is divided by at length
RISE_ALLOWED = 0.05  # of the decrease that a run has made
# Other runs have ended by themselves.
CUT = (Ended.MAX_ITERATIONS, Ended.STOPPED, Ended.NON_FINITE)


def instability(run: PaperRun, iterations: int) -> str:
    """Why a run is unstable up to that iteration, in words; empty where it is not.

    The rise is (f_end - f_lowest)/(f_start - f_lowest).  A climb in an epoch that the method itself
    discards (line 11 of Algorithms 2 and 4) is taken back, and is none of the run's.
    """
    fun = run.fun[: iterations + 1]
    lost = np.flatnonzero(~np.isfinite(fun))
    if lost.size:
        return f"not finite at iteration {lost[0]:,}"
    kept = np.ones(len(fun), dtype=bool)
    for row, kind, length in run.events:
        if kind is EventKind.ROLLBACK and row < len(fun):
            kept[max(row - round(length) + 1, 1) : row + 1] = False
    above = np.flatnonzero(kept & ~(fun <= _ceiling(fun)))
    if above.size:
        return f"climbs above its start at iteration {above[0]:,}"
    if not _is_whole(run, iterations):
        return f"{run.status} after {len(fun) - 1:,} of {iterations:,} iterations"
    lowest = int(fun.argmin())
    decrease = float(fun[0] - fun[lowest])
    rise = float(fun[-1] - fun[lowest]) / decrease if decrease > 0 else 0.0
    if rise > RISE_ALLOWED:
        return (
            f"ends above its lowest value, that of iteration {lowest:,}, by {100 * rise:.3g} % "
            "of its decrease"
        )
    return ""


def _ceiling(fun: np.ndarray) -> float:
    """f at the start, and what rounding may add."""
    return float(fun[0]) * (1 + 1e-9)


def _is_whole(run: PaperRun, iterations: int) -> bool:
    """Did the run get so far, or find its own end, with finite values only?"""
    fun = run.fun[: iterations + 1]
    return (len(fun) > iterations or run.status not in CUT) and bool(np.isfinite(fun).all())


@dataclass(frozen=True)
class Trial:
    """A step size, and how it did."""

    step_size: float
    stable: bool  # in a trial
    fun: float  # the objective in the end, infinite where that was not reached
    instability: str = ""  # why a run to the end would be called unstable

    @classmethod
    def of(cls, run: PaperRun, iterations: int) -> Trial:
        """How a run did up to that iteration; it may be longer, or have found its end before.

        Stable in a trial: finite, never above the start, without discarded epochs (line 11).
        """
        assert run.info.step_size is not None
        fun = run.fun[: iterations + 1]
        whole = _is_whole(run, iterations)
        kinds = {kind for row, kind, _ in run.events if row <= iterations}
        steady = whole and bool(fun.max() <= _ceiling(fun))
        stable = steady and not kinds & {EventKind.ROLLBACK, EventKind.NON_FINITE}
        end = float(fun[-1]) if whole else math.inf
        return cls(run.info.step_size, stable, end, instability(run, iterations))


@dataclass(frozen=True)
class SearchResult:
    """What a search has found, and what it has cost."""

    trials: list[Trial]
    full: list[Trial]
    step_size: float
    discarded: list[tuple[PaperRun, int]]  # all runs but the best, and how much of them was needed
    unstable: list[Trial]  # at length, with larger steps than that of the run that is shown

    def with_shown(self, run: PaperRun, unstable: list[PaperRun], length: int) -> SearchResult:
        """The same, where this run is shown in the end, and those were unstable until then."""
        later = [(each, length) for each in unstable]
        others = {each.path: (each, needed) for each, needed in (*self.discarded, *later)}
        others.pop(run.path, None)
        trials = [*self.unstable, *(Trial.of(*each) for each in later)]
        return replace(self, discarded=list(others.values()), unstable=trials)

    @property
    def summary(self) -> Json:
        """What the search cost, without the run that is shown, and which steps were unstable."""
        ends = [(run, run.nfev[: n + 1].size - 1) for run, n in self.discarded]
        return {
            "trials": len(self.trials),
            "longer runs": len(self.full) - 1,
            "values": sum(int(run.nfev[end]) for run, end in ends),
            "gradients": sum(int(run.njev[end]) for run, end in ends),
            "seconds": round(sum(float(run.time[end]) for run, end in ends), 2),
            "unstable": unstable_steps(self.unstable),
        }


def unstable_steps(trials: list[Trial]) -> list[Json]:
    """Unstable step sizes with the reasons, as a record keeps them; the largest first."""
    reasons = {trial.step_size: trial.instability for trial in trials}  # the last counts
    steps = sorted(reasons, reverse=True)
    return [{"step_size": step, "reason": reasons[step]} for step in steps]


def search(tried: Callable[[float], Trial], first: float) -> list[Trial]:
    """Bracket the largest stable step size by factors of two, then halve the bracket in logs.

    Where the best objective so far belongs to the smallest step that was tried, the next smaller
    one is tried as well: the largest stable step is not always the best.
    """
    trials, step = [tried(first)], first
    factor = FACTOR if trials[0].stable else 1 / FACTOR
    while trials[-1].stable is trials[0].stable:
        if len(trials) > MOST_DOUBLINGS:
            return trials  # no end in sight
        before, step = step, step * factor
        trials.append(tried(step))
    low, high = sorted((before, step))
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
    method: PaperMethod,
    problem: PaperProblem,
    folder: StudyFolder,
    *,
    iterations: int,
    trial_iterations: int,
    on_iteration: OnIteration | None = None,
) -> tuple[SearchResult, PaperRun]:
    """Find the step size of a method on a problem; returns the search and the best run.

    Step sizes are judged by short trials, and then by runs of so many iterations.  Every one is a
    recorded run in the folder; so a search that was killed goes on where it was, and one that is
    finished costs nothing.  Where no step size leads downwards that is a ValueError.
    """
    short: dict[float, PaperRun] = {}
    full: dict[float, PaperRun] = {}
    refusal: ValueError | None = None

    def run(step_size: float, length: int, place: Path, kept: dict[float, PaperRun]) -> Trial:
        nonlocal refusal
        step_size = four_digits(step_size)
        try:
            task = Task(method, problem, step_size, length, trial=kept is short)
            kept[step_size] = run_task(task, place, on_iteration)
        except ValueError as error:  # a step outside the range of the method's theory
            refusal = error
            return Trial(step_size, False, math.inf, "refused by the method")
        return Trial.of(kept[step_size], length)

    trials = search(
        lambda step: run(step, trial_iterations, folder.tuning, short), first_guess(method, problem)
    )
    best = min(trials, key=lambda trial: trial.fun)
    at_length: list[Trial] = []
    if math.isfinite(best.fun):
        at_length = descend(lambda step: run(step, iterations, folder.runs, full), best.step_size)
        best = min(at_length, key=lambda trial: trial.fun)
    if not math.isfinite(best.fun):
        steps = [trial.step_size for trial in trials + at_length]
        raise ValueError(
            f"no step size from {min(steps):.3g} to {max(steps):.3g} lets {method.label} lower "
            f"the objective of {problem.name} on {problem.data.name}"
            + (f"; the last one was refused: {refusal}" if refusal else "")
        ) from refusal
    chosen = full.pop(best.step_size)
    for step_size, discarded in full.items():
        # A run with a smaller step may be shown in the end, and then goes on from there.
        if step_size > best.step_size:
            remove_checkpoint(discarded)
    needed = [(each, trial_iterations) for each in short.values()]
    needed += [(each, iterations) for each in full.values()]
    unstable = [each for each in at_length if each.instability and each.step_size > best.step_size]
    return SearchResult(trials, at_length, best.step_size, needed, unstable), chosen


def four_digits(step_size: float) -> float:
    """The same step size in every search, whatever led to it."""
    return float(f"{step_size:.4g}")


def first_guess(method: PaperMethod, problem: PaperProblem) -> float:
    """The authors' step size for this data set; elsewhere 1/L.

    At the SVD start the balance term sets the largest curvature, and it is 8 s/N there with s the
    largest singular value: both factors changed along their first singular vectors, in opposite
    directions.
    """
    known = AUTHORS_STEPS.get((problem.name, problem.data.name))
    if known is not None:
        return known[method.name]
    objective = problem.objective
    U = objective.backend.to_host(objective.split(problem.start())[0])
    largest = float(np.linalg.norm(U, 2)) ** 2
    return problem.ratings.nnz / (8 * largest)
