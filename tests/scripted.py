"""A rule that does what a function says: for tests of what runs within others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.rule import BOTH, RUNNING, Ask, Outcome, Rule
from momentous.core.space import Array
from momentous.core.status import Ending, EventKind, Status
from momentous.methods.search.rounding import Look


class Move(NamedTuple):
    """One evaluation, and what is made of it."""

    point: Array
    status: int = RUNNING
    accepted: Sample | None = None  # None: nothing by its value
    accepts: bool = False  # is it this evaluation?
    restarts: bool = False
    noise: float = 0.0
    need: int = BOTH


@record
class ScriptMemory:
    origin: Sample
    begun: Sample  # where it was last told to go on
    here: Sample
    accepted: Sample
    outcome: Outcome
    count: int = 0
    noise: float = 0.0


@dataclasses.dataclass(frozen=True)
class Scripted(Rule[ScriptMemory]):
    """``act(origin, here, count)`` is the next `Move`, given where it began, where it is and how
    many steps it has taken; one to the very array of ``here`` evaluates nothing."""

    name = "scripted"
    act: Callable[[Sample, Sample, int], Move] = None
    stays: bool = False  # does it ignore where it is told to go on?

    def begin(self, m, here, goal):
        return ScriptMemory(here, here, here, here, Outcome(0.0, m.no_events))

    def move(self, m, memory, here, goal):
        if not self.stays:
            return self.begin(m, here, goal)
        return m.but(memory, begun=here, accepted=here, outcome=Outcome(0.0, m.no_events))

    def _move(self, memory):
        with np.errstate(all="ignore"):
            return self.act(memory.origin, memory.here, memory.count)

    def ask(self, m, memory):
        move = self._move(memory)
        return Ask(move.point, move.need, known=memory.here)

    def status(self, move, there):
        return move.status

    def tell(self, m, memory, here, made, sums):
        move = self._move(memory)
        events = m.event(EventKind.RESTART, 1.0, move.restarts)
        accepted = here if move.accepts else move.accepted or memory.begun
        outcome = Outcome(0.0, events, status=int(self.status(move, here)))
        return m.but(
            memory, here=here, accepted=accepted, outcome=outcome, count=memory.count + 1,
            noise=move.noise,
        )  # fmt: skip

    def description(self):
        return {"name": self.name, "parameters": {}}  # a function cannot be saved

    def accepted(self, memory):
        return memory.accepted

    def noise(self, memory):
        return memory.noise

    def ending(self, memory, shown, status):
        norm = memory.here.grad_norm
        return Ending(status, f"as the script says, at {norm:.6g}", {"grad_norm": norm})


def stay(origin, here, count):
    """At a copy of where it is, which is evaluated."""
    return Move(here.point.copy())


def stop(origin, here, count):
    """The same, as the last step."""
    return Move(here.point.copy(), Status.NO_PROGRESS)


def look_at_noise(m, fun, rounding, here, direction, slope, change):
    """What is known of the noise of values after a `Look`, and how many values that took."""
    look, values = Look.along(m, here, direction, slope, change), 0
    while not look.done:
        value = fun(look.point(m, here, direction))
        rounding, look = look.answered(m, rounding, here, value)
        values += 1
    return rounding, values
