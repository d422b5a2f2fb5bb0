"""A batch of few problems: each has a machine of its own, and only evaluations are made together.

A turn of the lanes of `momentous.lanes.machine` costs as much as some 16 turns of single runs,
however few lanes there are.  Here every run is its single run, bit for bit:
so ``exact=True`` runs many problems as well, and so do problems with a simple term, and those of
which some have bounds and some have none.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from momentous.core.array_machine import ArrayMachine
from momentous.core.machine import Host
from momentous.core.oracle import Sample
from momentous.core.rule import Ask
from momentous.core.space import Array
from momentous.core.status import RESTARTS, Ending, Event
from momentous.lanes.driver import GOES_ON, Asked, Driver
from momentous.lanes.run import ManyRun

FEW = 16


class Alone(Host):
    """The machine of one problem, whose driver brings value and gradient together."""

    __slots__ = ()
    worked, run_pass = ArrayMachine.worked, ArrayMachine.run_pass

    @staticmethod
    def full(value: Any) -> Any:
        return value

    @staticmethod
    def restarts(events: tuple[Event, ...]) -> int:
        return sum(event.kind in RESTARTS for event in events)

    def inside(self, x: Array) -> Array:
        """A point inside is itself: it may be one that is known (`same`)."""
        if self.box is None or x is self.box.latest:
            return x
        kept = self.box.clip(self, x)
        return x if np.array_equal(x, kept) else kept

    @staticmethod
    def passed_on(ask: Ask, rule: Any) -> Ask:
        return Ask(ask.point, ask.need, ask.again, ask.known)


class FewRun(ManyRun):
    """Few runs of one rule."""

    batch: Any  # of every problem

    def _prepare(self) -> None:
        machines: dict[int, Driver] = {}
        self._drivers: list[Driver] = []
        for lane in range(self.total):
            driver, m = self.driver.of(lane), self.m
            space = m.host(lane).space if driver is self.driver else m.space
            if id(space) not in machines:
                machines[id(space)] = copy.copy(driver)
                alone = space.machine = Alone(space)
                alone.fused, machines[id(space)].m = True, alone  # type: ignore[assignment]
            self._drivers.append(machines[id(space)])
        self._asks: dict[int, Asked] = {}  # of those that run

    def _begin(self) -> None:
        found = self._sample(range(self.total), _apart(self.starts))
        pairs = zip(self._drivers, found, strict=True)
        self.batch = [driver.begin(here) for driver, here in pairs]
        self._look()

    def _go_on(self) -> None:
        self._look()

    def _sample(self, lanes: Any, points: Any) -> list[Sample]:
        """What one evaluation finds at points of these lanes."""
        if not len(points):
            return []
        numbers = None if len(lanes) == self.total else np.array(lanes)
        values, gradients = self._evaluate(np.stack(list(points)), numbers)
        rows = zip(lanes, points, values.tolist(), _apart(gradients), strict=True)
        return [self._drivers[i].sample(point, value, g) for i, point, value, g in rows]

    def _turn(self) -> None:
        asks = self._asks
        wanted = [i for i, asked in asks.items() if not asked.free]
        points = [asks[i].point for i in wanted]
        found = dict(zip(wanted, self._sample(wanted, points), strict=True))
        with np.errstate(all="ignore"):
            for i, asked in asks.items():
                here = asked.known if asked.free else found[i]
                self.batch[i] = self._drivers[i].turn(self.batch[i], here, asked)
        self._look()

    def _look(self) -> None:
        """Who has ended, and what the others ask."""
        with np.errstate(all="ignore"):
            lanes = np.flatnonzero(self.running)
            self._finish(np.array([i for i in lanes if self.batch[i].code != GOES_ON], int))
            lanes = np.flatnonzero(self.running)
            self._asks = {i: self._drivers[i].ask(self.batch[i]) for i in lanes.tolist()}
            asks = self._asks.items()
            spent = [i for i, asked in asks if self._drivers[i].at_limit(self.batch[i], asked)]
            self._finish(np.array(spent, int))
            self._asks = {i: asked for i, asked in asks if self.running[i]}

    def _finish(self, lanes: np.ndarray, why: Callable[[float, str], Ending] | None = None) -> None:
        for i in lanes.tolist():
            driver = self._drivers[i]
            if self._finish_one(i, self.batch[i], driver, driver.m, why):
                self.batch[i] = None


def _apart(rows: np.ndarray) -> list[np.ndarray]:
    """Rows in memory of their own: one that begins at an odd place of a batch changes the last
    digit of a sum on old CPUs."""
    return [row.copy() for row in rows]
