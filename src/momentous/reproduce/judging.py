"""A statement of the paper, and how the runs of a group are held against it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from momentous.comparison.words import counted, listed
from momentous.reproduce.contenders import SEVEN
from momentous.reproduce.recorded import Recorded
from momentous.reproduce.study import Claim, Group

CHECKPOINTS = (250, 500, 1000)  # values + gradients at which curves are compared
FEWEST = 100  # iterations: fewer tell nothing


@dataclass(frozen=True)
class Field:
    """The runs that a statement is about."""

    group: Group
    runs: dict[str, Recorded]  # by method

    def iterations(self, run: Recorded) -> int:
        return int(self.group.shown(run).stop) - 1

    def error(self, run: Recorded) -> np.ndarray:
        """f - f*, infinite where f is not a number."""
        return _known(run.history.fun[self.group.shown(run)] - self.group.lowest[0])

    def norm(self, run: Recorded) -> np.ndarray:
        return _known(run.history.grad_norm[self.group.shown(run)])

    def least_norm(self, run: Recorded) -> np.ndarray:
        least: np.ndarray = np.minimum.accumulate(self.norm(run))
        return least

    def evaluations(self, run: Recorded) -> np.ndarray:
        return run.evaluations[self.group.shown(run)]

    def time(self, run: Recorded) -> np.ndarray:
        return run.history.time[self.group.shown(run)]

    def rows(self, run: Recorded, *kinds: str) -> list[int]:
        """The rows that are shown and have an event of such a kind."""
        stop = self.group.shown(run).stop
        return sorted({row for row, kind, _ in run.history.events if kind in kinds and row < stop})

    def whole(self) -> list[Recorded]:
        """The runs that did not end before their time; all of them where every one did."""
        runs = self.runs.values()
        asked = self.group.plotted
        whole = [r for r in runs if self.iterations(r) >= min(asked, r.about.iterations)]
        return whole or list(runs)

    @property
    def length(self) -> int:
        """Iterations of the shortest of those: one that ended before its time does not count."""
        return min(self.iterations(run) for run in self.whole())

    def end(self, cost: Callable[[Recorded], np.ndarray]) -> float:
        """What the cheapest run costs; one that ended before its time stays at its last row."""
        return float(min(cost(run)[-1] for run in self.whole()))

    def places(self) -> list[str]:
        """Machines and numbers of threads, in words: times of several cannot be compared."""
        abouts = [run.about for run in self.runs.values()]
        return list(dict.fromkeys(f"{a.setup}; {counted(a.threads, 'thread')}" for a in abouts))

    def checkpoints(self) -> list[int]:
        """Values + gradients at which to compare."""
        end = int(self.end(self.evaluations))
        return [n for n in CHECKPOINTS if n < 0.95 * end] + [end]


Told = tuple[bool | None, str]  # seen in these runs, and the numbers in words


def in_one_place(told: Callable[[Field], Told]) -> Callable[[Field], Told]:
    """Times tell something where they were taken on one machine with as many threads."""

    def judged(field: Field) -> Told:
        places = field.places()
        if len(places) == 1:
            return told(field)
        return None, f"times of different machines or threads: {listed(places)}"

    return judged


@dataclass(frozen=True)
class Statement:
    """A statement of the paper."""

    figures: tuple[str, ...]  # the groups that it is about
    where: str
    words: str
    told: Callable[[Field], Told]
    about: tuple[str, ...] = SEVEN
    needs: tuple[tuple[str, ...], ...] = ()  # beside others: of each of these at least one
    lasting: bool = True  # it says nothing of a run that ended after a few iterations

    def judged(self, group: Group) -> Claim:
        """Not seen as soon as one method contradicts it; seen if all were run and none does."""
        runs = {
            run.about.method: run
            for run in group.runs
            if not self.lasting or group.shown(run).stop > FEWEST
        }
        field = Field(group, {name: runs[name] for name in self.about if name in runs})
        absent = [name for name in self.about if name not in runs]
        missing = f"not run, or for fewer than {FEWEST} iterations: {listed(absent)}"
        if any(field.runs.keys().isdisjoint(needed) for needed in self.needs or (self.about,)):
            return Claim(self.where, self.words, group.title, None, missing)
        if field.length < FEWEST:
            numbers = f"too short a run: {counted(field.length, 'iteration')}"
            return Claim(self.where, self.words, group.title, None, numbers)
        seen, numbers = self.told(field)
        if absent:
            seen, numbers = (None if seen else seen), f"{numbers}; {missing}"
        return Claim(self.where, self.words, group.title, seen, numbers)


def _known(column: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(column), np.inf, column)
