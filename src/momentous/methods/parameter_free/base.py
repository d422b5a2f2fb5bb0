"""What the parameter-free methods share: epochs that end in two ways, and tests that know rounding.

An epoch ends *unsuccessfully* when the values say that L is too small, and L grows; it ends
*successfully* when the Hessian varies too much for more momentum, and L may shrink.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable
from functools import cached_property
from typing import ClassVar, NamedTuple, TypeVar, cast

from momentous.core import passes
from momentous.core.machine import Events, Machine
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.rule import (
    BOTH,
    GRADIENT,
    RUNNING,
    VALUE,
    Ask,
    Goal,
    Outcome,
    Rule,
    Sums,
    Vectors,
)
from momentous.core.space import Array
from momentous.core.status import Ending, EventKind, Status
from momentous.core.step import RiseLimit
from momentous.methods.checks import check, check_positive
from momentous.methods.endings import contradiction, no_progress, stuck
from momentous.methods.search.probe import Probe
from momentous.methods.search.rounding import Look, Rounding

# A change of f so many times above the noise of its values is judged by the values alone.
SIGNAL = 10.0
# While rounding rejects, L may exceed the largest L that values have confirmed by this factor.
HEADROOM = 2.0**20

# What an evaluation is for.
NEW = 0  # x_k
LOOK = 1  # a value between x_{k-1} and x_k: how noisy are values?
STAND = 2  # x_{k-1} again, where no step can be taken
MEAN = 3  # the mean of the epoch's points
PROBE = 4  # a point near x0, to find L


class Claim(NamedTuple):
    """That f changes by no more than the bound, and what values and gradients say about it."""

    before: float  # the two values
    after: float
    by_gradients: float  # the change by the trapezoidal rule
    bound: float
    signal: float  # what the values have to show


@record
class ParameterFreeMemory:
    """Where the epoch stands after k of its iterations, and what outlives it."""

    x: Sample  # x_k
    new: Sample  # x_{k+1}, while something else is evaluated
    v: Array  # the step from x_k to x_{k+1}
    point: Array  # where to evaluate next
    outcome: Outcome
    probe: Probe
    look: Look
    rounding: Rounding  # how noisy values are
    tol: float
    lipschitz: float = 1.0  # L
    confirmed: float = 0.0  # the largest L that has passed its test by values above the noise
    size: float = 0.0  # |x_0|
    average_due: float = 1.0  # the iteration from which on the mean is evaluated again
    moved: float = 0.0  # |v|^2
    k: int = 0
    travelled: float = 0.0  # S = sum of |x_i - x_{i-1}|^2, i <= k
    phase: int = NEW
    hidden: bool = False  # where it cannot go on: is that rounding?


P = TypeVar("P", bound=ParameterFreeMemory)


@dataclasses.dataclass(frozen=True)
class ParameterFree(Rule[P]):
    """Momentum under estimates of both Lipschitz constants; see the two methods."""

    has_epochs = True
    work = passes.GRADIENT
    memory: ClassVar[type[ParameterFreeMemory]]

    gradient_lipschitz: float | None = None
    backoff: float = 2.0
    relaxation: float = 0.5
    average_growth: float = 1.25
    guards: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "gradient_lipschitz")
        check(self, "backoff", 1 < self.backoff < math.inf, "(alpha) must be finite, above 1")
        check(self, "relaxation", 0 < self.relaxation <= 1, "(beta) must be in (0, 1]")
        often = "must be at least 1 (1: evaluate the average in every iteration; infinity: never)"
        check(self, "average_growth", self.average_growth >= 1, often)

    def begin(self, m: Machine, here: Sample, goal: Goal) -> P:
        memory = self.memory(
            here, here, here.point, here.point, Outcome(1.0, m.no_events), Probe.at(m, here),
            Look(0.0, 0.0, 1.0, 0.0), Rounding.at(m, here.value),
            self.tolerance_for(goal.tol),
        )  # fmt: skip
        memory = self._begin_epoch(m, cast(P, memory))
        if self.gradient_lipschitz is None:
            memory = self._probe(m, memory)
        else:
            memory = self._begin_with(m, memory, self.gradient_lipschitz)
        return m.case(memory, (memory.outcome.ended, lambda: self._plan_step(m, memory)))

    def _probe(self, m: Machine, memory: P) -> P:
        """The next trial, until L is known."""
        probe, x = memory.probe, memory.x.point

        def ask() -> P:
            outcome = m.but(memory.outcome, shows=False, ended=False)
            return m.but(memory, point=probe.point(m, x), outcome=outcome, phase=PROBE)

        return m.case(
            memory,
            (probe.found, lambda: self._begin_with(m, memory, probe.lipschitz)),
            otherwise=ask,
        )

    def _begin_with(self, m: Machine, memory: P, lipschitz: float) -> P:
        """Before the first iteration."""
        L = m.maximum(lipschitz, m.smallest)
        outcome = Outcome(1 / L, m.no_events, shows=False)
        return m.but(memory, lipschitz=L, outcome=outcome)

    def move(self, m: Machine, memory: P, here: Sample, goal: Goal) -> P:
        """With L as it stands; where rounding has driven it up to its end, with the largest that
        values have confirmed: another point may have another say."""
        blind = (memory.outcome.status == int(Status.NO_PROGRESS)) & (memory.confirmed > 0.0)
        L = m.where(blind, memory.confirmed, memory.lipschitz)
        outcome = Outcome(1 / L, m.no_events)
        return self._prepare_step(m, m.but(memory, x=here, lipschitz=L, k=0, outcome=outcome))

    def _prepare_step(self, m: Machine, memory: P) -> P:
        """Before the next iteration."""
        memory = m.case(memory, (memory.k == 0, lambda: self._begin_epoch(m, memory)))
        return self._plan_step(m, memory)

    def _begin_epoch(self, m: Machine, memory: P, **own: object) -> P:
        """At the start of an epoch, x_0 = x, with what a method has of its own."""
        size, due = m.norm(memory.x.point), self._first_average
        return m.but(memory, size=size, average_due=due, travelled=0.0, **own)

    @abc.abstractmethod
    def _plan_step(self, m: Machine, memory: P) -> P:
        """With the step to the next x_k."""

    def _go_to(self, m: Machine, memory: P, point: Array, v: Array, moved: float, moves: bool) -> P:
        """With that step, unless it does not move x or leads beyond all numbers."""
        goes = moves & m.isfinite(memory.travelled + moved)
        point, phase = m.choose(goes, point, memory.x.point), m.where(goes, NEW, STAND)
        return m.but(memory, point=point, v=v, moved=moved, phase=phase)

    def accepted(self, memory: P) -> Sample:
        return memory.x

    def noise(self, memory: P) -> float:
        return memory.rounding.seen

    def rise_limit(self, m: Machine, memory: P, shown: Sample) -> RiseLimit:
        """Not to stay above the point that the next epoch would start from, unless convexity
        allows it."""
        lowest = self.accepted(memory)
        level = memory.rounding.between(m, lowest.value, shown.value)
        return RiseLimit(lowest, level=level, convex=True)

    def ask(self, m: Machine, memory: P) -> Ask:
        phase = memory.phase
        need = m.where(phase == LOOK, VALUE, m.where(phase == PROBE, GRADIENT, BOTH))
        return Ask(memory.point, need, False, m.choose(phase == STAND, memory.x, memory.new))

    def tell(self, m: Machine, memory: P, here: Sample, made: Vectors, sums: Sums) -> P:
        memory = m.switch(memory, memory.phase, self._phases, here, sums)
        return m.case(memory, (memory.outcome.ended, lambda: self._prepare_step(m, memory)))

    @cached_property
    def _phases(self) -> tuple[Callable[..., P], ...]:
        """What is made of an evaluation, by what it is for."""
        return (
            self._judge_new, self._look_on, self._end_or_reject, self._judge_mean,
            self._answer_probe,
        )  # fmt: skip

    def _answer_probe(self, m: Machine, memory: P, here: Sample, *_: object) -> P:
        probe = memory.probe.answered(m, memory.x.point, here)
        return self._probe(m, m.but(memory, probe=probe))

    def _end_or_reject(self, m: Machine, memory: P, here: Sample, *_: object) -> P:
        """The step overflows; or, the first of an epoch, it does not move x, and nor would a
        shorter one."""

        def end() -> P:
            zero = memory.x.grad_norm == 0.0
            status = m.where(zero, int(Status.COMPLETED), int(Status.NO_PROGRESS))
            eta, hidden = 1 / memory.lipschitz, self._is_hidden(m, memory)
            outcome = Outcome(eta, m.no_events, status=status)
            return m.but(memory, outcome=outcome, hidden=hidden)

        return m.case(
            memory,
            (m.isfinite(memory.travelled + memory.moved), end),
            otherwise=lambda: self._reject(m, memory, self.accepted(memory), math.nan),
        )

    def _judge_new(self, m: Machine, memory: P, here: Sample, sums: Sums) -> P:
        return m.case(
            memory,
            (m.isfinite(here.grad_norm), lambda: self._judge(m, memory, here, sums)),
            otherwise=lambda: self._reject(m, memory, self.accepted(memory), here.grad_norm),
        )

    def _judge(self, m: Machine, memory: P, here: Sample, sums: Sums) -> P:
        """Is x_k low enough?

        By values; within their noise by the trapezoidal rule, if they do not contradict.  Where
        values alone are against it, their noise is measured before they are believed.
        """
        L, rounding = memory.lipschitz, memory.rounding
        claim = self._claim(m, memory, here, sums)
        before, after, by_gradients, bound, signal = claim
        noise, change = rounding.between(m, before, after), after - before
        clear, holds = signal > SIGNAL * noise, change <= bound
        if self.guards:
            level = (by_gradients <= bound) & (change <= bound + noise)
            holds = m.where(clear, holds, level)

        def accept() -> P:
            confirmed = m.where(clear, m.maximum(memory.confirmed, L), memory.confirmed)
            return self._accept(m, memory, here, claim, confirmed)

        def look() -> P:
            slope = m.inner(memory.x.gradient, memory.v)
            first = Look.along(m, memory.x, memory.v, slope, signal)
            outcome = Outcome(1 / L, m.no_events, True, False)
            point = first.point(m, memory.x, memory.v)
            return m.but(memory, new=here, look=first, point=point, outcome=outcome, phase=LOOK)

        def reject() -> P:
            lowest = self._lowest(m, memory, here)
            return self._reject(m, memory, lowest, here.grad_norm, clear)

        doubtful = self.guards & (by_gradients <= bound) & rounding.may_be_noise(signal)
        return m.case(memory, (holds, accept), (doubtful, look), otherwise=reject)

    @abc.abstractmethod
    def _claim(self, m: Machine, memory: P, here: Sample, sums: Sums) -> Claim:
        """What must hold for L not to be too small; with the sums of the pass that came with the
        gradient, if one was asked for."""

    def _look_on(self, m: Machine, memory: P, here: Sample, *_: object) -> P:
        x, new = memory.x, memory.new.point
        rounding, look = memory.look.answered(m, memory.rounding, x, here.value)
        return m.but(
            memory,
            look=look,
            rounding=rounding,
            point=m.choose(look.done, new, look.point(m, x, memory.v)),
            outcome=m.but(memory.outcome, shows=False),
            phase=m.where(look.done, NEW, LOOK),  # x_k is judged again
        )

    def _lowest(self, m: Machine, memory: P, here: Sample) -> Sample:
        """Where the next epoch begins if x_k, which is evaluated, is rejected."""
        return memory.x

    @abc.abstractmethod
    def _accept(self, m: Machine, memory: P, here: Sample, claim: Claim, confirmed: float) -> P:
        """x_k is low enough: on with it."""

    @abc.abstractmethod
    def _judge_mean(self, m: Machine, memory: P, here: Sample, *_: object) -> P:
        """The end of an iteration that has evaluated the mean."""

    @property
    def _first_average(self) -> float:
        return 1.0 if math.isfinite(self.average_growth) else math.inf

    def _next_average(self, m: Machine, k: int) -> float:
        return m.maximum(k + 1.0, self.average_growth * k)

    def _restart(
        self, m: Machine, memory: P, start: Sample, factor: float, events: Events, shows: bool,
        status: int = RUNNING, **own: object,
    ) -> P:  # fmt: skip
        """A new epoch from ``start``, with L changed by the factor."""
        L = memory.lipschitz
        outcome, L = Outcome(1 / L, events, shows, status=status), m.maximum(factor * L, m.smallest)
        return m.but(memory, x=start, lipschitz=L, k=0, outcome=outcome, **own)

    def _reject(self, m: Machine, memory: P, start: Sample, norm: float, clear: bool = True) -> P:
        """The unsuccessful end of an epoch, with a gradient of that norm; ``clear``: not by
        rounding."""
        lost = m.event(EventKind.NON_FINITE, norm, m.no(m.isfinite(norm)))
        events = lost + m.event(EventKind.ROLLBACK, memory.k + 1)
        L, most = self.backoff * memory.lipschitz, HEADROOM * memory.confirmed
        if not self.guards:
            return self._restart(m, memory, start, self.backoff, events, True)
        blind = m.no(clear) & (most < L) & (most > 0.0)
        status = m.where(blind, int(Status.NO_PROGRESS), RUNNING)
        hidden = m.case(False, (blind, lambda: self._is_hidden(m, memory)))
        return self._restart(m, memory, start, self.backoff, events, True, status, hidden=hidden)

    def _is_hidden(self, m: Machine, memory: P) -> bool:
        """Is the change of f that a step seeks below the noise of values?  With the largest L that
        they have confirmed, as no smaller step is asked for by anything but rounding."""
        first = (
            memory.probe.lipschitz if self.gradient_lipschitz is None else self.gradient_lipschitz
        )
        L = m.where(memory.confirmed > 0.0, memory.confirmed, m.maximum(first, m.smallest))
        x = memory.x
        return x.grad_norm * x.grad_norm / (2 * L) <= memory.rounding.between(m, x.value)

    def ending(self, memory: P, shown: Sample, status: Status) -> Ending:
        L, norm = memory.lipschitz, memory.x.grad_norm
        if not memory.outcome.events:
            return stuck(norm, memory.outcome.step_size, bool(memory.hidden))
        why = (
            f"at gradient norm {norm:.3g} rounding decides"
            if memory.hidden
            else contradiction(norm)
        )
        return no_progress(
            f"no step is accepted although L has grown to {L:.3g}, 2^20 times the largest that "
            f"values could confirm: {why}",
            grad_norm=norm,
            gradient_lipschitz=L,
        )
