"""A method that calls its oracle, as a rule: its step is played again with every answer.

A step does not change the memory it is given, so it may be begun anew whenever one more evaluation
is known.  For methods that nobody compiles, where a rule is asked for, on the host.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

from momentous.core.machine import Host, Records
from momentous.core.method import Method
from momentous.core.oracle import NO_SAMPLE, Oracle, Sample
from momentous.core.record import record
from momentous.core.rule import GRADIENT, RUNNING, VALUE, Ask, Goal, Outcome, Rule
from momentous.core.sources import Answer, Source
from momentous.core.space import Array, Space
from momentous.core.status import Ending, Status
from momentous.core.step import RiseLimit, Step


@record
class Played:
    """Where a method stands, and what is known of its step under way."""

    step: Step | None  # the last that is complete; None: it has not begun
    begun_at: Sample  # where it begins, or is moved to
    moves: bool  # does it begin there, or move there, rather than take a step?
    last: Sample | None  # what its oracle remembers
    answers: tuple[Sample, ...]  # of the step under way
    next: Step | None  # what it led to, where it needs nothing more
    point: Array  # where it asks for more
    need: int
    tol: float | None
    seed: int
    outcome: Outcome


class _Needed(BaseException):
    def __init__(self, point: Array, need: int):
        self.point, self.need = point, need


class _Answers(Source):
    """Gives the answers that are there, in their order, and then says what is needed."""

    answers: Iterator[Sample]

    def __init__(self, m: Host):
        self.space, self.fused, self.advice, self.words = m.space, m.fused, "", None

    def _answer(self, x: Array, need: int) -> Sample:
        for known in self.answers:
            # Not every answer is asked for again: a value may have been noted in a sample.  (No
            # distance is above 0 where a point is not finite.)
            elsewhere = self.space.distance_squared(known.point, x) > 0.0
            if not elsewhere and (need == VALUE or known.evaluated):
                return known
        raise _Needed(x, need)

    def value(self, x: Array) -> float:
        return self._answer(x, VALUE).value

    def gradient(self, x: Array, known: float) -> Answer:
        self.found = found = self._answer(x, GRADIENT)
        return found.value, found.gradient, 0


class _Player(Oracle):
    """The oracle of what is known of a step."""

    source: _Answers

    def __init__(self, m: Host, last: Sample | None, answers: tuple[Sample, ...]):
        super().__init__(_Answers(m))
        self.last, self.source.answers = last, iter(answers)

    def _sample(self, x: Array, value: float, answer: Array) -> Sample:
        return Sample(x, value, answer, self.source.found.grad_norm, self.source.found.image)


@dataclasses.dataclass(frozen=True)
class Replayed(Rule[Played]):
    """A method as a rule."""

    name = "replayed"
    compiles = shows_here = False

    method: Method

    def begin(self, m: Any, here: Sample, goal: Goal) -> Played:
        return self._at(m, None, here, goal)

    def move(self, m: Any, memory: Played, here: Sample, goal: Goal) -> Played:
        return self._at(m, memory.step, here, goal)

    def _at(self, m: Host, step: Step | None, here: Sample, goal: Goal) -> Played:
        outcome = Outcome(math.nan, (), shows=False, ended=False)
        memory = Played(
            step, here, True, here, (), None, here.point, GRADIENT, goal.tol, goal.seed, outcome
        )
        memory = self._played(m, memory)
        return memory if memory.next is None else self._taken(m, memory)

    def ask(self, m: Any, memory: Played) -> Ask:
        known = NO_SAMPLE if memory.next is None else memory.last or NO_SAMPLE
        return Ask(memory.point, memory.need, known=known)

    def tell(self, m: Any, memory: Played, here: Sample, made: Any, sums: Any) -> Played:
        if memory.next is None:
            memory = m.but(memory, answers=(*memory.answers, here))
            memory = self._played(m, memory)
        if memory.next is not None:
            return self._taken(m, memory)
        after: Played = m.but(memory, outcome=Outcome(math.nan, (), shows=False, ended=False))
        return after

    def _played(self, m: Host, memory: Played) -> Played:
        """The step under way, as far as the answers go."""
        oracle = _Player(m, memory.last, memory.answers)
        try:
            step = self._call(memory)(oracle)
        except _Needed as needed:
            return m.but(memory, point=needed.point, need=needed.need)
        return m.but(memory, next=step, last=oracle.last)

    def _call(self, memory: Played) -> Callable[[_Player], Step]:
        method, step, here = self.method, memory.step, memory.begun_at
        if not memory.moves:
            assert step is not None
            return lambda oracle: method.step(oracle, step.memory)
        goal = memory.tol, memory.seed
        if step is None:
            return lambda oracle: method.start(oracle, here.point, *goal)
        return lambda oracle: method.moved_to(oracle, step.memory, here, *goal)

    def _taken(self, m: Host, memory: Played) -> Played:
        """On to the next step, which may need no evaluation: then it is asked for a known one."""
        step = memory.next
        assert step is not None
        report, last = step.report, memory.last
        status = RUNNING if report.ending is None else int(report.ending.status)
        outcome = Outcome(report.step_size, report.events, shows=not memory.moves, status=status)
        after = m.but(
            memory, step=step, moves=False, answers=(), next=None, outcome=outcome,
            last=report.sample if last is None else last,
        )  # fmt: skip
        if status != RUNNING:
            return after
        after = self._played(m, after)
        if after.next is None:
            return after
        known = after.last
        assert known is not None
        return m.but(after, point=known.point, need=GRADIENT if known.evaluated else VALUE)

    def shown(self, memory: Played, here: Sample) -> Sample:
        return here if memory.step is None else memory.step.report.sample

    def accepted(self, memory: Played) -> Sample:
        accepted = memory.step and memory.step.report.accepted
        return accepted or memory.begun_at

    def noise(self, memory: Played) -> float:
        return 0.0 if memory.step is None else memory.step.report.noise

    def rise_limit(self, m: Any, memory: Played, shown: Sample) -> RiseLimit | None:
        return None if memory.step is None else memory.step.report.limit

    def with_tolerance(self, m: Records, memory: Played, tol: Any) -> Played:
        step = memory.step and self.method.with_new_tolerance(memory.step, tol)
        return m.but(memory, step=step, tol=tol)

    def inverse_hessian(self, space: Space, memory: Played) -> Callable[[], Any] | None:
        step = memory.step
        return None if step is None else self.method.inverse_hessian(space, step.memory)

    def ending(self, memory: Played, shown: Sample, status: Status) -> Ending:
        assert memory.step is not None
        ending = memory.step.report.ending
        assert ending is not None
        return ending
