"""Restarted momentum with an adaptive radius B0: Algorithms 2 and 4, and Remark 2."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cached_property

from momentous.core.machine import Events, Machine
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.rule import (
    GRADIENT,
    RUNNING,
    STEP,
    VALUE,
    Ask,
    Goal,
    Outcome,
    Sums,
    Vectors,
)
from momentous.core.space import Array
from momentous.core.status import Ending, EventKind, Status
from momentous.core.step import RiseLimit
from momentous.methods.endings import start_not_finite, stuck
from momentous.methods.restarted.fixed_radius import Epoch, completed, judge
from momentous.methods.restarted.schedule import Schedule, Scheduled
from momentous.methods.search.probe import Probe

# What an evaluation is for.
ITERATE = 0  # the next iteration
END = 1  # the value where an epoch ended: is it low enough?
LEVEL = 2  # the gradient there, where values cannot tell
AVERAGE = 3  # the averaged point of an epoch that ran through ...
LAST = 4  # ... its last point ...
OUTPUT = 5  # ... and the value at the one with the smaller gradient, where it is not known
PROBE = 6  # a point near x0, to find the step size


@record
class AdaptiveMemory:
    """The epoch under way, its schedule, and what its decrease is measured against."""

    epoch: Epoch
    outcome: Outcome
    schedule: Schedule
    start: Sample  # x_cur^0, the last accepted point, and f there
    start_norm: float  # |grad f(x^0)|
    tol: float  # what an epoch that completes is judged by, 0 for nothing
    probe: Probe
    output_norm: float = math.nan  # of the two gradients at an epoch's end, the smaller one ...
    output_value: float = math.nan  # ... and f there
    phase: int = ITERATE


@dataclasses.dataclass(frozen=True)
class AdaptiveRadius(Scheduled[AdaptiveMemory]):
    """Momentum, restarted when k * sum |x^{t+1} - x^t|^2 > max(B, B0)^2, where B0 shrinks."""

    def begin(self, m: Machine, here: Sample, goal: Goal) -> AdaptiveMemory:
        tol, norm = goal.tol, here.grad_norm
        if tol is None:
            tol = self.default_tolerance
        schedule = self._first_schedule(m, norm, tol)
        memory = AdaptiveMemory(
            Epoch.at(here.point), Outcome(schedule.step_size, m.no_events), schedule,
            Sample(here.point, here.value), norm, tol, Probe.at(m, here),
        )  # fmt: skip
        if goal.tol is None and self.eps is not None:
            memory.tol = 0.0  # nothing was asked for but the theorem's own promise
        if self._scale_free:
            return self._probe(m, memory)
        return self._begin_with(m, memory, schedule)

    def _probe(self, m: Machine, memory: AdaptiveMemory) -> AdaptiveMemory:
        """The next trial, until the step size is known."""
        probe, eps = memory.probe, memory.schedule.eps

        def go() -> AdaptiveMemory:
            schedule = self._practical_schedule(m, memory.start_norm, eps, probe.lipschitz)
            return self._begin_with(m, memory, schedule)

        def ask() -> AdaptiveMemory:
            return self._look_at(m, memory, probe.point(m, memory.start.point), PROBE)

        return m.case(memory, (probe.found, go), otherwise=ask)

    def _begin_with(self, m: Machine, memory: AdaptiveMemory, schedule: Schedule) -> AdaptiveMemory:
        """Before the first iteration."""
        events = m.event(EventKind.RADIUS_REACHED, schedule.radius, schedule.at_radius)
        return m.but(
            memory,
            epoch=Epoch.at(memory.start.point, again=not self._scale_free),
            outcome=Outcome(schedule.step_size, events, shows=False),
            schedule=schedule,
            phase=ITERATE,
        )

    def accepted(self, memory: AdaptiveMemory) -> Sample:
        return memory.start

    def rise_limit(self, m: Machine, memory: AdaptiveMemory, shown: Sample) -> RiseLimit:
        """If the epoch has climbed, it would be discarded."""
        return RiseLimit(memory.start, allowance=m.value_noise(memory.start.value))

    def ask(self, m: Machine, memory: AdaptiveMemory) -> Ask:
        epoch, now, phase = memory.epoch, memory.schedule, memory.phase
        of_value = (phase == END) | (phase == OUTPUT)
        return Ask(
            self.scheme.gradient_point(epoch.x, epoch.ahead),
            m.where(phase == ITERATE, STEP, m.where(of_value, VALUE, GRADIENT)),
            epoch.again,
            memory.start,
            (epoch.ahead, epoch.x),
            (-now.step_size, 1 - now.theta),
        )

    def _look_at(
        self, m: Machine, memory: AdaptiveMemory, point: Array, phase: int, *,
        again: bool = False, shows: bool = False,
    ) -> AdaptiveMemory:  # fmt: skip
        """Ask for a point besides those of the iteration; it takes the place of x."""
        return m.but(
            memory,
            epoch=m.but(memory.epoch, x=point, ahead=point, again=again),
            outcome=Outcome(memory.schedule.step_size, m.no_events, shows=shows, ended=False),
            phase=phase,
        )

    def tell(
        self, m: Machine, memory: AdaptiveMemory, here: Sample, made: Vectors, sums: Sums
    ) -> AdaptiveMemory:
        return m.switch(memory, memory.phase, self._phases, here, made, sums)

    @cached_property
    def _phases(self) -> tuple[Callable[..., AdaptiveMemory], ...]:
        """What is made of an evaluation, by what it is for."""
        phases = (
            self._iterate, self._judge_end, self._judge_level_end, self._note_average,
            self._choose_output, self._conclude_at, self._answer_probe,
        )  # fmt: skip
        return phases if self._scale_free else phases[:PROBE]

    def _answer_probe(
        self, m: Machine, memory: AdaptiveMemory, here: Sample, *_: object
    ) -> AdaptiveMemory:
        probe = memory.probe.answered(m, memory.start.point, here)
        return self._probe(m, m.but(memory, probe=probe))

    def _iterate(
        self, m: Machine, memory: AdaptiveMemory, here: Sample, made: Vectors, sums: Sums
    ) -> AdaptiveMemory:
        epoch, now = memory.epoch, memory.schedule
        (x_next, ahead), (moved,) = made, sums  # lines 3-4
        k, travelled, K = epoch.k + 1, epoch.travelled + moved, now.epoch_length  # line 5
        start_norm = m.where(k == 1, here.grad_norm, memory.start_norm)
        radius = now.limit(m)
        near = (k * travelled <= radius * radius) & (k <= K)  # line 6
        finite = m.isfinite(here.grad_norm) & m.isfinite(travelled)
        moves = (moved > 0.0) | (k > 1)
        completes = (k >= K) & now.at_radius  # line 2

        def advance() -> AdaptiveMemory:
            average = m.case(
                epoch.average,
                (now.at_radius, lambda: epoch.average.add(m, epoch.k, here.point, moved, K)),
            )
            return AdaptiveMemory(
                Epoch(epoch.start, x_next, ahead, average, k, travelled),
                Outcome(now.step_size, m.no_events), now, memory.start, start_norm, memory.tol,
                memory.probe, memory.output_norm, memory.output_value, memory.phase,
            )  # fmt: skip

        def judge_end() -> AdaptiveMemory:  # lines 7-9
            reached = m.but(epoch, k=k, travelled=travelled)
            end = self.scheme.restart_point(m, x_next, epoch.x, now.theta)
            ended = m.but(memory, epoch=reached, start_norm=start_norm)
            return self._look_at(m, ended, end, END, shows=True)

        def complete() -> AdaptiveMemory:  # lines 15-17
            average = epoch.average.add(m, epoch.k, here.point, moved, K)
            # The last point waits in the place of the mean, which is not needed any more.
            waits = m.but(average, mean=x_next)
            reached = m.but(epoch, average=waits, k=k, travelled=travelled)
            ended = m.but(memory, epoch=reached, start_norm=start_norm)
            return self._look_at(m, ended, average.snapshot, AVERAGE)

        def stand() -> AdaptiveMemory:
            zero = here.grad_norm == 0.0
            status = m.where(zero, int(Status.COMPLETED), int(Status.NO_PROGRESS))
            return m.but(memory, outcome=Outcome(now.step_size, m.no_events, status=status))

        return m.case(
            memory,
            (near & finite & moves & m.no(completes), advance),  # most iterations
            (m.no(finite), lambda: self._discard(m, memory, k, here.grad_norm, shows=True)),
            (m.no(moves), stand),
            (m.no(near), judge_end),
            otherwise=complete,
        )

    def _judge_end(
        self, m: Machine, memory: AdaptiveMemory, here: Sample, *_: object
    ) -> AdaptiveMemory:
        """Lines 7-9: keep the end of the epoch, if it is low enough."""
        epoch, value, before = memory.epoch, here.value, memory.start.value
        broken = (here.gradient is not None) & m.no(m.isfinite(here.grad_norm))
        required = self._required_decrease(m, memory.schedule)
        falls = m.isfinite(value) & (value - before <= -required)
        # Where the required decrease is within rounding the objective cannot tell, but the
        # gradient can.  If the epoch is accepted, the gradient there is the next one needed: it
        # costs nothing.
        noise = m.value_noise(before)
        level = (required <= noise) & (abs(value - before) <= noise)

        def look() -> AdaptiveMemory:
            known = m.but(memory, output_value=value)
            return self._look_at(m, known, epoch.x, LEVEL, again=True)

        return m.case(
            memory,
            (broken, lambda: self._discard(m, memory, epoch.k)),
            (falls, lambda: self._accept(m, memory, value)),
            (level, look),
            otherwise=lambda: self._discard(m, memory, epoch.k),
        )

    def _judge_level_end(
        self, m: Machine, memory: AdaptiveMemory, here: Sample, *_: object
    ) -> AdaptiveMemory:
        falls = here.grad_norm < memory.start_norm
        return m.case(
            memory,
            (falls, lambda: self._accept(m, memory, memory.output_value)),
            otherwise=lambda: self._discard(m, memory, memory.epoch.k),
        )

    def _accept(self, m: Machine, memory: AdaptiveMemory, value: float) -> AdaptiveMemory:
        schedule, start = self._after_success(m, memory.schedule), Sample(memory.epoch.x, value)
        events = m.event(EventKind.RESTART, memory.epoch.k)
        return self._new_epoch(m, memory, start, schedule, events, again=True)

    def _discard(
        self, m: Machine, memory: AdaptiveMemory, k: int, norm: float = 0.0, shows: bool = False
    ) -> AdaptiveMemory:
        """Line 11, in the form of Remark 2: discard the epoch; smaller B0, eta, larger rho'.

        ``norm`` is that of the gradient with which the epoch ended.
        """
        now, lost = memory.schedule, m.no(m.isfinite(norm))
        schedule = self._after_failure(m, now)
        events = m.event(EventKind.NON_FINITE, norm, lost) + m.event(EventKind.ROLLBACK, k)
        status = m.where(schedule.repeats(m, now, k), int(Status.NO_PROGRESS), RUNNING)
        at_start = lost & (k == 1)  # the gradient at the start of the epoch is not finite
        status = m.where(at_start, int(Status.NON_FINITE), status)
        return self._new_epoch(
            m, memory, memory.start, schedule, events, status=status, shows=shows
        )

    def _new_epoch(
        self, m: Machine, memory: AdaptiveMemory, start: Sample, schedule: Schedule,
        events: Events, *, again: bool = False, status: int = RUNNING, shows: bool = False,
    ) -> AdaptiveMemory:  # fmt: skip
        """On from ``start``, whose value is known, without momentum."""
        reached = schedule.at_radius & m.no(memory.schedule.at_radius)
        events = events + m.event(EventKind.RADIUS_REACHED, schedule.radius, reached)
        return m.but(
            memory,
            epoch=Epoch.at(start.point, again),
            outcome=Outcome(memory.schedule.step_size, events, shows=shows, status=status),
            schedule=schedule,
            start=start,
            phase=ITERATE,
        )

    def _note_average(
        self, m: Machine, memory: AdaptiveMemory, here: Sample, *_: object
    ) -> AdaptiveMemory:
        known = m.but(memory, output_norm=here.grad_norm, output_value=here.value)
        return self._look_at(m, known, memory.epoch.average.mean, LAST, shows=True)

    def _choose_output(
        self, m: Machine, memory: AdaptiveMemory, here: Sample, *_: object
    ) -> AdaptiveMemory:
        """Lines 15-17: the average or the last iterate, whichever has the smaller gradient."""
        epoch, better = memory.epoch, here.grad_norm <= memory.output_norm
        output = m.choose(better, epoch.x, epoch.average.snapshot)
        value = m.where(better, here.value, memory.output_value)
        norm = m.where(better, here.grad_norm, memory.output_norm)
        known = m.but(memory, output_norm=norm, output_value=value)
        chosen = self._look_at(m, known, output, OUTPUT, again=better, shows=better)
        is_known = value == value
        if self._backoff == 1.0 and not self._tightens:
            is_known = True  # the value does not matter
        return m.case(chosen, (is_known, lambda: self._conclude(m, chosen, value)))

    def _conclude_at(
        self, m: Machine, memory: AdaptiveMemory, here: Sample, *_: object
    ) -> AdaptiveMemory:
        return self._conclude(m, memory, here.value)

    def _conclude(self, m: Machine, memory: AdaptiveMemory, value: float) -> AdaptiveMemory:
        epoch, now, before = memory.epoch, memory.schedule, memory.start
        norm, shows = memory.output_norm, memory.outcome.shows
        status = judge(m, norm, self._promise(now), memory.tol)
        risen = m.no(value <= before.value + m.value_noise(before.value))

        def tighten() -> AdaptiveMemory:
            """eps did not lead to the tolerance: take a tenth, keep theta."""
            tighter = now.tightened(m)
            events = m.event(EventKind.TIGHTENED, tighter.eps)
            start = m.case(before, (value <= before.value, lambda: Sample(epoch.x, value)))
            return self._new_epoch(m, memory, start, tighter, events, shows=shows)

        def end() -> AdaptiveMemory:
            outcome = Outcome(now.step_size, m.no_events, shows=shows, status=status)
            return m.but(memory, outcome=outcome)

        branches = []
        if self._backoff > 1:
            branches.append((risen, lambda: self._discard(m, memory, epoch.k, norm, shows)))
        if self._tightens:
            branches.append((status == int(Status.ABOVE_TOLERANCE), tighten))
        return m.case(memory, *branches, otherwise=end)

    def ending(self, memory: AdaptiveMemory, shown: Sample, status: Status) -> Ending:
        now, norm = memory.schedule, shown.grad_norm
        if memory.phase == OUTPUT:
            return completed(norm, self._promise(now), memory.tol, memory.epoch.k)
        if status is Status.NON_FINITE:
            return start_not_finite(norm, memory.outcome.step_size)
        rollbacks = [e for e in memory.outcome.events if e.kind is EventKind.ROLLBACK]
        if not rollbacks:
            return stuck(norm, now.step_size)
        return Ending(
            Status.NO_PROGRESS,
            f"{rollbacks[0].value:.0f} iterations from the last accepted point do not lower the "
            f"objective, and the step size {now.step_size:.3g} may not shrink, so that the next "
            "epoch would be the same; lower step_size_min, declare a larger gradient_lipschitz, or "
            "leave both out",
            {"grad_norm": norm, "step_size": now.step_size}
            | {"hessian_lipschitz": now.hessian_lipschitz},
        )
