"""A run of a restarted method, seen from outside: what each of its epochs did.

The only file of the laboratory that looks into the memory of a method.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from momentous.api import iterate
from momentous.core.method import Method
from momentous.core.result import Result
from momentous.core.status import EventKind, Status
from momentous.methods.restarted.adaptive_radius import AdaptiveMemory
from momentous.methods.restarted.fixed_radius import FixedMemory
from momentous.testbed import Problem

MOST_ITERATIONS = 300_000
"""A run that is not over by then counts as endless."""


@dataclass(frozen=True)
class EpochNumbers:
    """What an epoch runs with."""

    step_size: float  # eta
    theta: float
    radius: float  # B
    epoch_length: int  # K
    wide_radius: float  # B0; 0 where there is none
    hessian_lipschitz: float  # rho'; NaN where it does not change

    @property
    def at_radius(self) -> bool:
        """B0 <= B: the epoch is one of the method with the fixed radius."""
        return self.wide_radius <= self.radius


@dataclass(frozen=True)
class EndedEpoch:
    """An epoch that ended in a restart."""

    numbers: EpochNumbers
    decrease: float  # of f, from the start of this epoch to the start of the next
    discarded: bool


@dataclass(frozen=True)
class EpochRun:
    """A run and its epochs.

    Values of f that only this record needs are not counted.
    """

    result: Result
    start_value: float  # where the first epoch starts, which may be displaced from x0
    first: EpochNumbers
    last: EpochNumbers
    ended: list[EndedEpoch]

    @property
    def by_its_own_rule(self) -> bool:
        """Did an epoch run through?  Otherwise the run was cut, or could not go on."""
        return self.result.status in (Status.COMPLETED, Status.PROMISE_BROKEN)

    @property
    def gradients(self) -> float:
        """One per iteration, without those that only look at the output."""
        return float(self.result.nit) if self.by_its_own_rule else math.inf

    @property
    def grad_norm(self) -> float:
        """At the output."""
        return float(self.result.grad_norm) if self.by_its_own_rule else math.inf

    @property
    def accepted(self) -> list[EndedEpoch]:
        return [epoch for epoch in self.ended if not epoch.discarded]

    @property
    def discarded(self) -> list[EndedEpoch]:
        return [epoch for epoch in self.ended if epoch.discarded]


def run_epochs(
    problem: Problem, method: Method, *, seed: int = 0, max_iterations: int = MOST_ITERATIONS
) -> EpochRun:
    """Run a method with fixed or adaptive radius until its own rule ends it."""
    run = iterate(
        problem.value,
        problem.start,
        jac=problem.gradient,
        method=method,
        tol=0.0,
        max_iterations=max_iterations,
        rng=seed,
        trace=False,
    )
    first = now = _numbers(run.memory)
    start_value = value = _value_at_start(problem, run.memory)
    ended = []
    for step in run:
        kinds = {event.kind for event in step.events}
        if EventKind.ROLLBACK in kinds:
            ended.append(EndedEpoch(now, 0.0, discarded=True))
        elif EventKind.RESTART in kinds:
            after = _value_at_start(problem, step.memory)
            ended.append(EndedEpoch(now, value - after, discarded=False))
            value = after
        now = _numbers(step.memory)
    return EpochRun(run.result, start_value, first, now, ended)


def _numbers(memory: AdaptiveMemory | FixedMemory) -> EpochNumbers:
    if isinstance(memory, AdaptiveMemory):
        s = memory.schedule
        return EpochNumbers(
            s.step_size, s.theta, s.radius, s.epoch_length, s.wide_radius, s.hessian_lipschitz
        )
    p = memory.parameters
    return EpochNumbers(p.step_size, p.theta, p.radius, p.epoch_length, 0.0, math.nan)


def _value_at_start(problem: Problem, memory: AdaptiveMemory | FixedMemory) -> float:
    return float(problem.value(memory.epoch.start))
