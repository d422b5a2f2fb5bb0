"""Restarted momentum with the theory's fixed radius B: Algorithms 1 and 3."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from momentous.core.machine import Machine
from momentous.core.method import DEFAULT_TOLERANCE
from momentous.core.oracle import NO_SAMPLE, Sample
from momentous.core.record import record
from momentous.core.rule import GRADIENT, STEP, Ask, Goal, Outcome, Rule, Sums, Vectors
from momentous.core.space import Array
from momentous.core.status import Ending, EventKind, Status
from momentous.core.step import Step
from momentous.methods.endings import left_the_domain
from momentous.methods.restarted.momentum import (
    Epoch,
    Momentum,
    Parameters,
    check_given,
    completed,
    judge,
    judged_by,
    theory_parameters,
)

# What an evaluation is for.
ITERATE = 0  # the next iteration
OUTPUT = 1  # the averaged point of an epoch that ran through, with which the run ends


@record
class FixedMemory:
    """The epoch under way, and what stays the same throughout the run."""

    epoch: Epoch
    outcome: Outcome
    parameters: Parameters
    tol: float  # what the user asked for, 0 if nothing
    seed: int
    origin: Sample  # x0 and f(x0): the only point whose value is looked at
    phase: int = ITERATE
    draws: int = 0  # perturbations drawn so far: the n-th comes from its own stream (seed, n)


@dataclasses.dataclass(frozen=True)
class FixedRadius(Rule[FixedMemory]):
    """Momentum, restarted as soon as k * sum |x^{t+1} - x^t|^2 > B^2, until K steps need none."""

    has_epochs = True
    scheme: ClassVar[Momentum]
    requires = ("gradient_lipschitz", "hessian_lipschitz")

    gradient_lipschitz: float | None = None
    hessian_lipschitz: float | None = None
    eps: float | None = None
    step_size: float | None = None
    momentum: float | None = None
    radius: float | None = None
    epoch_length: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_given(self)

    @property
    def default_tolerance(self) -> float:
        by_hand = self.momentum is not None and self.radius is not None
        return 0.0 if self.eps is not None or by_hand else DEFAULT_TOLERANCE

    def resolved(self, tol: float, dimension: int) -> Parameters:
        """The numbers that a run with this tolerance uses."""
        return theory_parameters(self, self.scheme, tol)

    def begin(self, m: Machine, here: Sample, goal: Goal) -> FixedMemory:
        p = self.resolved(self.default_tolerance if goal.tol is None else goal.tol, m.dimension)
        memory = FixedMemory(
            Epoch.at(here.point), Outcome(p.step_size, m.no_events), p, goal.tol or 0.0, goal.seed,
            Sample(here.point, here.value),
        )  # fmt: skip
        return self._new_epoch(m, memory, here, here.point, m.no_events, again=True)

    def with_new_tolerance(self, step: Step[FixedMemory], tol: float | None) -> Step[FixedMemory]:
        return super().with_new_tolerance(judged_by(step, tol), tol)

    def accepted(self, memory: FixedMemory) -> Sample:
        return memory.origin

    def ask(self, m: Machine, memory: FixedMemory) -> Ask:
        p, epoch = memory.parameters, memory.epoch
        return Ask(
            self.scheme.gradient_point(epoch.x, epoch.ahead),
            m.where(memory.phase == ITERATE, STEP, GRADIENT),
            epoch.again,
            NO_SAMPLE,
            (epoch.ahead, epoch.x),
            (-p.step_size, 1 - p.theta),
        )

    def tell(
        self, m: Machine, memory: FixedMemory, here: Sample, made: Vectors, sums: Sums
    ) -> FixedMemory:
        phases = (self._iterated, self._ended)
        return m.switch(memory, memory.phase, phases, here, made, sums)

    def _iterated(
        self, m: Machine, memory: FixedMemory, here: Sample, made: Vectors, sums: Sums
    ) -> FixedMemory:
        p, epoch = memory.parameters, memory.epoch
        (x_next, ahead), (moved,) = made, sums  # lines 3-4
        k, travelled = epoch.k + 1, epoch.travelled + moved  # line 5

        def advance() -> Epoch:
            average = epoch.average.add(m, epoch.k, here.point, moved, p.epoch_length)
            return Epoch(epoch.start, x_next, ahead, average, k, travelled)

        def restart() -> FixedMemory:  # line 7: x^{-1} = x^0 = x^k (the heavy ball: z^k), k = 0
            start = self.scheme.restart_point(m, x_next, epoch.x, p.theta)
            return self._new_epoch(m, memory, here, start, m.event(EventKind.RESTART, k))

        def complete() -> FixedMemory:  # lines 10-11
            average = advance().average
            last = Epoch(epoch.start, average.snapshot, average.snapshot, average, k, travelled)
            outcome = Outcome(p.step_size, m.no_events, shows=False, ended=False)
            return m.but(memory, epoch=last, phase=OUTPUT, outcome=outcome)

        finite = m.isfinite(here.grad_norm) & m.isfinite(moved)
        return m.case(
            memory,
            (m.no(finite), lambda: self._not_finite(m, memory, here)),
            (m.no(k * travelled <= p.radius * p.radius), restart),  # line 6
            (k >= p.epoch_length, complete),  # line 2
            otherwise=lambda: m.but(
                memory, epoch=advance(), outcome=Outcome(p.step_size, m.no_events)
            ),
        )

    def _ended(self, m: Machine, memory: FixedMemory, here: Sample, *_: Any) -> FixedMemory:
        p = memory.parameters
        status = judge(m, here.grad_norm, p.promise, memory.tol)
        return m.but(memory, outcome=Outcome(p.step_size, m.no_events, status=status))

    def _new_epoch(
        self, m: Machine, memory: FixedMemory, here: Sample, start: Array, events: Any,
        again: bool = False,
    ) -> FixedMemory:  # fmt: skip
        """On from ``start`` without momentum; the last gradient was taken ``here``."""
        outcome = Outcome(memory.parameters.step_size, events)
        return m.but(memory, epoch=Epoch.at(start, again), outcome=outcome)

    def _not_finite(self, m: Machine, memory: FixedMemory, here: Sample) -> FixedMemory:
        """Drop the momentum and go on from x^k; if x^k itself is bad, there is no way on."""
        epoch, lost = memory.epoch, m.event(EventKind.NON_FINITE, here.grad_norm)
        events = lost + m.event(EventKind.RESTART, epoch.k)
        ended = Outcome(memory.parameters.step_size, lost, status=int(Status.NON_FINITE))
        return m.case(
            memory,
            (epoch.k > 0, lambda: FixedRadius._new_epoch(self, m, memory, here, epoch.x, events)),
            otherwise=lambda: m.but(memory, outcome=ended),
        )

    def ending(self, memory: FixedMemory, shown: Sample, status: Status) -> Ending:
        p = memory.parameters
        if status is Status.NON_FINITE:
            remedy = "use AdaRAGD or AdaRHB, which shrink it"
            return left_the_domain(shown, p.step_size, remedy)
        return completed(shown.grad_norm, p.promise, memory.tol, memory.epoch.k)
