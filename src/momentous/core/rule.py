"""A method as a rule: it asks for one evaluation, is told the answer, and calls nothing.

Whoever can evaluate can run a rule: the loop on the host (as a `Method`, below), one compiled loop
of JAX (`momentous.jax`).  A rule is pure: `ask` and `tell` map memories to memories, and all that
differs between the homes (branches, roots, vectors) goes through the machine that they are given.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import ClassVar, NamedTuple

from momentous.core.machine import STEP as STEP
from momentous.core.machine import Host, Machine, Numbers, Records
from momentous.core.machine import Sums as Sums
from momentous.core.machine import Vectors as Vectors
from momentous.core.method import Method
from momentous.core.oracle import NO_SAMPLE, Oracle, Sample
from momentous.core.passes import MOMENTUM, Pass
from momentous.core.record import record
from momentous.core.space import Array
from momentous.core.status import Ending, Status
from momentous.core.step import M, Report, RiseLimit, Step, UnderWay
from momentous.io.types import Unchecked

RUNNING = -1  # in place of a `Status`
UNKNOWN = math.nan  # in place of a value
# What an evaluation is to bring.  A driver may bring more, and a compiled one always does.
VALUE, GRADIENT = 0, 1
BOTH = 3  # the value and, where that is finite, the gradient


class Ask(NamedTuple):
    """One evaluation that a rule wants."""

    point: Array
    need: int = BOTH  # or VALUE, GRADIENT, STEP
    again: bool = False  # is it the point that was evaluated last?
    known: Sample = NO_SAMPLE  # if it is of this point, it need not be evaluated again
    vectors: tuple[Array, ...] = ()  # what the pass reads after the gradient
    numbers: tuple[float, ...] = ()  # and its numbers
    work: Pass | None = None  # a pass in place of the rule's, to be done with any gradient
    below: float = UNKNOWN  # with VALUE: where that is at most this, the gradient too


class Goal(NamedTuple):
    """The tolerance and the seed of a run."""

    tol: float | None  # the gradient norm to reach; None: nothing was asked for
    seed: int = 0


@record
class Outcome:
    """The result of an evaluation for the run."""

    step_size: float  # eta, for the trace
    events: Unchecked  # made by `Machine.event`
    shows: bool = True  # is this evaluation the one that its iteration reports?
    ended: bool = True  # does the iteration end with it?
    status: int = RUNNING  # or a `Status`: the rule has ended


@dataclasses.dataclass(frozen=True)
class Rule(Method[M]):
    """A method that asks for evaluations and is told the answers.

    Its memory is a record with a field ``outcome``."""

    work: ClassVar[Pass] = MOMENTUM  # what STEP computes
    counts_as_published = False
    # Does it often ask for the point that was evaluated last, as at a restart?  If not, compiled
    # code evaluates such a point once more, without counting it: cheaper than to keep every answer.
    repeats = False

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

    def opening(self) -> Rule[M] | None:
        """A rule that takes the same steps with the same memories up to where it `hands_over`: the
        part that most runs end in, which is compiled first."""
        return None

    def hands_over(self, memory: M) -> bool:
        """Of an opening: is it over?  Its last iteration has not ended."""
        return False

    def take_over(self, m: Machine, memory: M) -> M:
        """What the opening has left to be done in that iteration."""
        return memory

    @abc.abstractmethod
    def accepted(self, memory: M) -> Sample:
        """The last point that was accepted by its value; x0 where values are not looked at."""

    def noise(self, memory: M) -> float:
        """How far a difference of values may be off, where that was measured."""
        return 0.0

    def rise_limit(self, m: Machine, memory: M, shown: Sample) -> RiseLimit | None:
        """How far f may have risen where a run ends; None: any small gradient will do."""
        return None

    @abc.abstractmethod
    def ending(self, memory: M, shown: Sample, status: Status) -> Ending:
        """The status of an outcome in words and numbers: on the host only."""

    def with_tolerance(self, m: Records, memory: M, tol: float) -> M:
        """The memory in a run that is asked for another tolerance."""
        return m.but(memory, tol=tol) if hasattr(memory, "tol") else memory

    # On the host, where a rule is a method.

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> Step[M]:
        return Step(*self.take_step(oracle, self.set_out(oracle, x0, tol, seed)))

    def set_out(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> UnderWay[M]:
        here = oracle.gradient(x0)
        memory: Unchecked = self.begin(self.machine(oracle), here, Goal(tol, seed))
        return UnderWay(memory, True, here, memory.outcome.ended, sets_out=True)

    def with_new_tolerance(self, step: Step[M], tol: float | None) -> Step[M]:
        if tol is None:
            return step
        return Step(self.with_tolerance(Numbers(), step.memory, tol), step.report)

    def step(self, oracle: Oracle, memory: M) -> Step[M]:
        return Step(*self.take_step(oracle, UnderWay(memory)))

    def machine(self, oracle: Oracle) -> Host:
        m: Host = oracle.space.machine or Host.of(oracle.space)
        m.fused, m.spent = oracle.fused, oracle.nfev + oracle.njev
        return m

    def take_step(self, oracle: Oracle, way: UnderWay[Unchecked]) -> tuple[M, Report]:
        way.begun, first = True, way.shown
        if not way.ended:
            self.evaluate(oracle, way)
            way.ended = True
            if way.sets_out:
                oracle.recall(first)  # the first iteration begins there
        m, memory = oracle.space.machine or Host.of(oracle.space), way.memory
        shown, outcome, ending = way.shown, memory.outcome, None
        if shown.point is None:  # nothing new: where the method stands
            shown = self.accepted(memory)
        if outcome.status != RUNNING:
            ending = self.ending(memory, shown, Status(outcome.status))
        return memory, Report(
            shown, outcome.step_size, outcome.events, ending, self.accepted(memory),
            self.noise(memory), self.rise_limit(m, memory, shown),
        )  # fmt: skip

    def evaluate(self, oracle: Oracle, way: UnderWay[Unchecked]) -> None:
        """Ask, evaluate and tell until the iteration ends.

        After every evaluation ``way`` says where it stands: from there it goes on, should user
        code raise an exception in the next one.
        """
        m, shown, ended = self.machine(oracle), way.shown, False
        memory: Unchecked = way.memory
        while not ended:
            point, need, _, known, vectors, numbers, work, below = self.ask(m, memory)
            last, asked = oracle.last, way.asked
            is_known = known.point is point
            if asked is not None and last is not None and last.point is asked:
                point = asked  # the same evaluation again, of which a part is known
            elif is_known and (last is None or last.point is not point):
                oracle.recall(known)
            way.asked = point
            made: Vectors = ()
            sums: Sums = ()
            if need == STEP or (work is not None and (need == GRADIENT or oracle.fused)):
                work = work or self.work
                here, made, sums = oracle.gradient_with(point, work, vectors, numbers)
            elif need == GRADIENT or (oracle.fused and not is_known):
                here = oracle.gradient(point)
            else:
                value = oracle.value(point)
                here = oracle.last or Sample(point, value)  # the gradient may have come along
                if (need == BOTH or value <= below) and math.isfinite(value):
                    here = oracle.gradient(point)
            m.spent = oracle.nfev + oracle.njev
            memory = self.write(m, self.tell(m, memory, here, made, sums))
            way.memory, way.asked, outcome = memory, None, memory.outcome
            if outcome.shows:
                way.shown = shown = here
            elif here.point is shown.point:
                shown.value = here.value
            ended = outcome.ended
