"""A method as a rule: it asks for one evaluation, is told the answer, and calls nothing.

Whoever can evaluate can run a rule: the loop on the host (as a `Method`, below), one compiled loop
of JAX (`momentous.jax`).  A rule is pure: `ask` and `tell` map memories to memories, and all that
differs between the homes (branches, roots, vectors) goes through the machine that they are given.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

from momentous.core.machine import Host, Machine
from momentous.core.method import Method
from momentous.core.oracle import NO_SAMPLE, Oracle, Sample
from momentous.core.passes import MOMENTUM, Pass
from momentous.core.record import record
from momentous.core.space import Array
from momentous.core.status import Ending, Status
from momentous.core.step import M, Report, RiseLimit, Step

Vectors = tuple[Array, ...]
Sums = tuple[float, ...]

RUNNING = -1  # in place of a `Status`
UNKNOWN = math.nan  # in place of a value
# What an evaluation is to bring.  A driver may bring more, and a compiled one always does.
VALUE, GRADIENT = 0, 1
STEP = 2  # the gradient, and the rule's pass over it
BOTH = 3  # the value and, where that is finite, the gradient


class Ask(NamedTuple):
    """One evaluation that a rule wants."""

    point: Array
    need: int  # VALUE, GRADIENT, STEP or BOTH
    again: bool = False  # is it the point that was evaluated last?
    value: float = UNKNOWN  # f there
    vectors: tuple[Array, ...] = ()  # what the pass reads after the gradient
    numbers: tuple[float, ...] = ()  # and its numbers


class Goal(NamedTuple):
    """What a run is asked for."""

    tol: float | None  # the gradient norm to reach; None: nothing was asked for
    seed: int = 0


@record
class Outcome:
    """What an evaluation has led to."""

    step_size: float  # eta, for the trace
    events: Any  # made by `Machine.event`
    shows: bool = True  # is this evaluation the one that its iteration reports?
    ended: bool = True  # does the iteration end with it?
    status: int = RUNNING  # or a `Status`: the rule has ended


@dataclasses.dataclass(frozen=True)
class Rule(Method[M]):
    """A method that asks and is told.  Its memory is a record with a field ``outcome``."""

    work: ClassVar[Pass] = MOMENTUM  # what STEP computes

    @abc.abstractmethod
    def begin(self, m: Machine, here: Sample, goal: Goal) -> M:
        """The memory after the evaluation at x0.  Its outcome has not ended where more is to be
        evaluated before the first iteration."""

    @abc.abstractmethod
    def ask(self, m: Machine, memory: M) -> Ask:
        """Where to evaluate next."""

    @abc.abstractmethod
    def tell(self, m: Machine, memory: M, here: Sample, made: Vectors, sums: Sums) -> M:
        """The memory after that evaluation.

        The norm of the gradient ``here`` is NaN where value or gradient is not finite.  ``made``
        and ``sums`` are the new vectors of the pass and its sums after the first, which is the
        square of the gradient; both are empty where it was not asked for.
        """

    def write(self, m: Machine, memory: M) -> M:
        """The memory with what an evaluation adds to its long stores: one row of each at most.

        It follows every `tell`, and stands outside of all branches: within one, a compiled loop
        would copy the stores.
        """
        return memory

    def move(self, m: Machine, memory: M, here: Sample, goal: Goal) -> M:
        """The memory of a run that goes on at another point: with what was learned, if anything
        was."""
        return self.begin(m, here, goal)

    @abc.abstractmethod
    def accepted(self, memory: M) -> Sample:
        """The last point that was accepted by its value; x0 where values are not looked at."""

    def noise(self, memory: M) -> Any:
        """How far a difference of values may be off, where that was measured."""
        return 0.0

    def rise_limit(self, m: Machine, memory: M, shown: Sample) -> RiseLimit | None:
        """How far f may have risen where a run ends; None: any small gradient will do."""
        return None

    @abc.abstractmethod
    def ending(self, memory: M, shown: Sample, status: Status) -> Ending:
        """The status of an outcome in words and numbers: on the host only."""

    # A rule is a method of the host's loop.

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> Step[M]:
        here, m = oracle.gradient(x0), Host.of(oracle.space)
        return self._begun(oracle, self.begin(m, here, Goal(tol, seed)), here)

    def moved_to(
        self, oracle: Oracle, memory: M, sample: Sample, tol: float | None, seed: int
    ) -> Step[M]:
        oracle.recall(sample)
        memory = self.move(Host.of(oracle.space), memory, sample, Goal(tol, seed))
        return self._begun(oracle, memory, sample)

    def _begun(self, oracle: Oracle, memory: Any, here: Sample) -> Step[M]:
        """Before the first iteration at a sample."""
        m = Host.of(oracle.space)
        if memory.outcome.ended:
            return self._as_step(m, memory, here)
        step = self._iterate(oracle, m, memory, here)
        oracle.recall(here)  # the first iteration begins there
        return step

    def step(self, oracle: Oracle, memory: M) -> Step[M]:
        return self._iterate(oracle, Host.of(oracle.space), memory, NO_SAMPLE)

    def _iterate(self, oracle: Oracle, m: Host, memory: Any, shown: Sample) -> Step[M]:
        """Evaluate until an iteration ends."""
        while True:
            point, need, _, value, vectors, numbers = self.ask(m, memory)
            last = oracle.last
            if value == value and (last is None or last.point is not point):
                known = self.accepted(memory)  # maybe with its gradient
                oracle.recall(known if known.point is point else Sample(point, value))
            made: Vectors = ()
            sums: Sums = ()
            if need == STEP:
                here, made, sums = oracle.gradient_with(point, self.work, vectors, numbers)
            elif need == GRADIENT:
                here = oracle.gradient(point)
            else:
                here = Sample(point, oracle.value(point))
                here = oracle.last or here  # with the gradient, where it came along
                if need == BOTH and math.isfinite(here.value):
                    here = oracle.gradient(point)
            memory = self.write(m, self.tell(m, memory, here, made, sums))
            outcome = memory.outcome
            if outcome.shows:
                shown = here
            elif here.point is shown.point:
                shown.value = here.value
            if outcome.ended:
                break
        return self._as_step(m, memory, shown)

    def _as_step(self, m: Host, memory: Any, shown: Sample) -> Step[M]:
        outcome = memory.outcome
        ending = None
        if outcome.status != RUNNING:
            ending = self.ending(memory, shown, Status(outcome.status))
        report = Report(
            shown, outcome.step_size, outcome.events, ending, self.accepted(memory),
            self.noise(memory), self.rise_limit(m, memory, shown),
        )  # fmt: skip
        return Step(memory, report)
