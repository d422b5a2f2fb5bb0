"""Restarted momentum with the theory's fixed radius B: Algorithms 1 and 3."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

from momentous.core.method import DEFAULT_TOLERANCE, Method
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.space import Array
from momentous.core.status import Ending, Event, EventKind
from momentous.core.step import Report, Step
from momentous.methods.endings import Events, left_the_domain
from momentous.methods.restarted.epoch import Epoch, completed, judged_by
from momentous.methods.restarted.momentum import Momentum
from momentous.methods.restarted.parameters import Parameters, check_given, theory_parameters


@record
class FixedMemory:
    """The epoch under way, and what stays the same throughout the run."""

    epoch: Epoch
    parameters: Parameters
    tol: float  # what the user asked for, 0 if nothing
    seed: int
    origin: Sample  # x0 and f(x0): the only point whose value is looked at
    draws: int = 0  # perturbations drawn so far: the n-th comes from its own stream (seed, n)

    def as_step(
        self, sample: Sample, events: Events = (), ending: Ending | None = None
    ) -> Step[FixedMemory]:
        """The step that led here."""
        eta = self.parameters.step_size
        return Step(self, Report(sample, eta, events, ending, accepted=self.origin))


@dataclasses.dataclass(frozen=True)
class FixedRadius(Method[FixedMemory]):
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

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> Step[FixedMemory]:
        p = self.resolved(self.default_tolerance if tol is None else tol, oracle.space.dimension)
        sample = oracle.gradient(x0)
        epoch, origin = Epoch.at(x0, averaged=True), Sample(x0, sample.value)
        memory = FixedMemory(epoch, p, tol=tol or 0.0, seed=seed, origin=origin)
        return self._new_epoch(oracle, memory, sample, x0)

    def with_new_tolerance(self, step: Step[FixedMemory], tol: float | None) -> Step[FixedMemory]:
        return super().with_new_tolerance(judged_by(step, tol), tol)

    def step(self, oracle: Oracle, memory: FixedMemory) -> Step[FixedMemory]:
        p, epoch, space = memory.parameters, memory.epoch, oracle.space
        sample, x_next, moved = self.scheme.advance(
            oracle, epoch.x, epoch.x_prev, p.step_size, p.theta
        )  # lines 3-4
        if not (sample.has_finite_gradient and math.isfinite(moved)):
            return self._non_finite(oracle, memory, sample)
        k, travelled = epoch.k + 1, epoch.travelled + moved  # line 5
        if not k * travelled <= p.radius * p.radius:  # line 6
            # Line 7: x^{-1} = x^0 = x^k (the heavy ball: z^k), k = 0.
            start = self.scheme.restart_point(space, x_next, epoch.x, p.theta)
            return self._new_epoch(
                oracle, memory, sample, start, Event(EventKind.RESTART, float(k))
            )
        average = epoch.average
        assert average is not None
        average.add(epoch.k, sample.point, moved, p.epoch_length, space)
        epoch = epoch.advanced(x_next, moved)
        after = FixedMemory(epoch, p, memory.tol, memory.seed, memory.origin, memory.draws)
        if k < p.epoch_length:  # line 2
            return after.as_step(sample)
        sample = oracle.gradient(average.snapshot)  # lines 10-11
        return after.as_step(sample, ending=completed(sample, p.promise, memory.tol, k))

    def _new_epoch(
        self, oracle: Oracle, memory: FixedMemory, sample: Sample, start: Array, *events: Event
    ) -> Step[FixedMemory]:
        """On from ``start`` without momentum; the last gradient was that of the sample."""
        epoch = Epoch.at(start, averaged=True)
        return dataclasses.replace(memory, epoch=epoch).as_step(sample, events)

    def _non_finite(self, oracle: Oracle, memory: FixedMemory, sample: Sample) -> Step[FixedMemory]:
        """Drop the momentum and go on from x^k; if x^k itself is bad, there is no way on."""
        epoch, eta = memory.epoch, memory.parameters.step_size
        events: Events = (Event(EventKind.NON_FINITE, sample.grad_norm),)
        if epoch.k > 0:
            events += (Event(EventKind.RESTART, float(epoch.k)),)
            return FixedRadius._new_epoch(self, oracle, memory, sample, epoch.x, *events)
        remedy = "use AdaRAGD or AdaRHB, which shrink it"
        return memory.as_step(sample, events, left_the_domain(sample, eta, remedy))
