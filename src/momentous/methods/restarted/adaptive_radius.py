"""Restarted momentum with an adaptive radius B0: Algorithms 2 and 4, and Remark 2."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

from momentous.core.machine import Machine
from momentous.core.method import DEFAULT_TOLERANCE
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
    Rule,
    Sums,
    Vectors,
)
from momentous.core.status import Ending, EventKind, Status
from momentous.core.step import RiseLimit, Step
from momentous.methods.checks import check, check_positive, root_of_product
from momentous.methods.endings import stuck
from momentous.methods.restarted.momentum import (
    Epoch,
    Momentum,
    check_given,
    completed,
    judge,
    judged_by,
    theory_parameters,
    whole_epoch,
)
from momentous.methods.restarted.schedule import Schedule
from momentous.methods.search.probe import Probe

# The paper's advice is theta in (0, 0.01]; 0.03 and 0.1 were often 2 to 10 times slower.
LARGEST_PRACTICAL_THETA = 0.01

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
class AdaptiveRadius(Rule[AdaptiveMemory]):
    """Momentum, restarted when k * sum |x^{t+1} - x^t|^2 > max(B, B0)^2, where B0 shrinks."""

    has_epochs = True
    scheme: ClassVar[Momentum]
    alternatives = (("gradient_lipschitz", "hessian_lipschitz"),)

    step_size: float | None = None
    hessian_lipschitz: float | None = None
    eps: float | None = None
    gradient_lipschitz: float | None = None
    momentum: float | None = None
    radius: float | None = None
    epoch_length: int | None = None
    initial_radius: float | None = None
    decrease: float = 1e-5
    radius_shrink: float | None = None
    failure_shrink: float = 10.0
    backoff: float | None = None
    step_size_min: float = 0.0
    hessian_lipschitz_max: float = math.inf
    growth: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_given(self)
        check_positive(self, "initial_radius", "decrease", "hessian_lipschitz_max")
        c0, c1, c2 = self.radius_shrink, self.failure_shrink, self._backoff
        most = self.scheme.decrease_factor
        guaranteed = f"(gamma) must be at most {most:g}, what the theorem guarantees"
        check(self, "decrease", self.decrease <= most, guaranteed)
        falls = "(c0) must be above 1, or B0 may never fall to B"
        check(self, "radius_shrink", c0 is None or c0 > 1, falls)
        slower = f"(c1) >= backoff={c2!r} (c2) >= 1 must hold, or B shrinks faster than B0"
        check(self, "failure_shrink", c1 >= c2 >= 1, slower)
        grows = self.growth is None or 1 <= self.growth < 2
        check(self, "growth", grows, "must be in [1, 2); 1 is none, 1.2 works well")

    @property
    def _by_theory(self) -> bool:
        """Are both Lipschitz constants declared, so that the theorem applies as it stands?"""
        return self.gradient_lipschitz is not None and self.hessian_lipschitz is not None

    @property
    def _scale_free(self) -> bool:
        """Is the step size ours to find?"""
        return self.step_size is None and self.gradient_lipschitz is None

    @property
    def _backoff(self) -> float:
        if self.backoff is not None:
            return self.backoff
        return 1.0 if self._by_theory else 2.0

    @property
    def _growth(self) -> float:
        if self.growth is not None:
            return self.growth
        return 1.2 if self._scale_free else 1.0

    @property
    def default_tolerance(self) -> float:
        return self.eps if self.eps is not None else DEFAULT_TOLERANCE

    def begin(self, m: Machine, here: Sample, goal: Goal) -> AdaptiveMemory:
        tol, norm = goal.tol, here.grad_norm
        if tol is None:
            tol = self.default_tolerance
        if self._by_theory:
            schedule = self._theory_schedule(m, norm, tol)
        else:
            eps = self.eps or m.where(tol > 0.0, tol, m.where(norm > 0.0, 1e-6 * norm, 1.0))
            schedule = self._practical_schedule(m, norm, eps, self.gradient_lipschitz or 1.0)
        memory = AdaptiveMemory(
            Epoch.at(here.point, again=True), Outcome(schedule.step_size, m.no_events), schedule,
            Sample(here.point, here.value), norm, tol, Probe.at(m, here),
        )  # fmt: skip
        if goal.tol is None and self.eps is not None:
            memory.tol = 0.0  # nothing was asked for but the theorem's own promise
        if self._scale_free:
            return self._probe(m, memory)
        return self._begin_with(m, memory, schedule)

    def _probe(self, m: Machine, memory: AdaptiveMemory) -> AdaptiveMemory:
        """The next trial, until the step size is known."""
        probe, start, norm = memory.probe, memory.start.point, memory.start_norm

        def ask() -> AdaptiveMemory:
            outcome = m.but(memory.outcome, shows=False, ended=False)
            epoch = Epoch.at(probe.point(m, start))
            return m.but(memory, epoch=epoch, outcome=outcome, phase=PROBE)

        def go() -> AdaptiveMemory:
            eps, L = memory.schedule.eps, probe.lipschitz
            return self._begin_with(m, memory, self._practical_schedule(m, norm, eps, L))

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

    def _theory_schedule(self, m: Machine, norm: Any, tol: float) -> Schedule:
        """The numbers of the theorem."""
        p, rho = theory_parameters(self, self.scheme, tol), self.hessian_lipschitz or 0.0
        eta, theta, B, K = p.step_size, p.theta, p.radius, p.epoch_length
        uncapped = theta
        if self.momentum is None:
            uncapped = self.scheme.theta(p.eps, rho, eta)
        wide = self.initial_radius or 100 * norm * eta / theta
        return Schedule(
            eta, rho, p.eps, theta, uncapped, epoch_length=K, radius=B, wide_radius=wide
        )

    def _practical_schedule(self, m: Machine, norm: Any, eps: Any, L: Any) -> Schedule:
        """The step comes from one probe of the curvature, so that it scales with f, and rho' is
        such that theta = (eps rho' eta^2)^(1/4)."""
        eta = self.step_size or 1 / (4 * L if self.gradient_lipschitz else L)
        uncapped = LARGEST_PRACTICAL_THETA
        if self.hessian_lipschitz is not None:
            rho = self.hessian_lipschitz
            uncapped = m.sqrt(eta * root_of_product(eps, rho, m))
        theta = m.minimum(uncapped, LARGEST_PRACTICAL_THETA)
        if self.momentum is not None:
            theta = uncapped = 1 - self.momentum
        if self.hessian_lipschitz is None:
            # rho' = theta^4/(eps eta^2), kept within what a float can hold.
            sqrt_rho = theta / eta * theta / m.sqrt(eps)
            rho = m.power(m.minimum(m.maximum(sqrt_rho, m.smallest), 1 / m.smallest), 2)
        B = self.radius or m.sqrt(eps / rho)
        K = self.epoch_length or whole_epoch(theta, m)
        wide = self.initial_radius or 100 * norm * eta / theta
        return Schedule(eta, rho, eps, theta, uncapped, epoch_length=K, radius=B, wide_radius=wide)

    def with_new_tolerance(
        self, step: Step[AdaptiveMemory], tol: float | None
    ) -> Step[AdaptiveMemory]:
        return super().with_new_tolerance(judged_by(step, tol), tol)

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

    def tell(
        self, m: Machine, memory: AdaptiveMemory, here: Sample, made: Vectors, sums: Sums
    ) -> AdaptiveMemory:
        return m.switch(memory, memory.phase, self._phases, here, made, sums)

    @cached_property
    def _phases(self) -> tuple[Callable[..., AdaptiveMemory], ...]:
        """What is made of an evaluation, by what it is for."""
        phases = (
            self._iterated, self._end_known, self._end_level, self._average_known,
            self._last_known, self._output_known, self._probed,
        )  # fmt: skip
        return phases if self._scale_free else phases[:PROBE]

    def _probed(self, m: Machine, memory: AdaptiveMemory, here: Sample, *_: Any) -> AdaptiveMemory:
        probe = memory.probe.answered(m, memory.start.point, here)
        return self._probe(m, m.but(memory, probe=probe))

    def _iterated(
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
            end = self.scheme.restart_point(m, x_next, epoch.x, now.theta)
            outcome = Outcome(now.step_size, m.no_events, ended=False)
            ended = Epoch(epoch.start, end, end, epoch.average, k, travelled)
            return m.but(memory, epoch=ended, outcome=outcome, start_norm=start_norm, phase=END)

        def complete() -> AdaptiveMemory:  # lines 15-17
            average = epoch.average.add(m, epoch.k, here.point, moved, K)
            # The last point waits in the place of the mean, which is not needed any more.
            average, middle = m.but(average, mean=x_next), average.snapshot
            ended = Epoch(epoch.start, middle, middle, average, k, travelled)
            outcome = Outcome(now.step_size, m.no_events, shows=False, ended=False)
            return m.but(memory, epoch=ended, outcome=outcome, start_norm=start_norm, phase=AVERAGE)

        def stand() -> AdaptiveMemory:
            zero = here.grad_norm == 0.0
            status = m.where(zero, int(Status.COMPLETED), int(Status.NO_PROGRESS))
            return m.but(memory, outcome=Outcome(now.step_size, m.no_events, status=status))

        return m.case(
            memory,
            (near & finite & moves & m.no(completes), advance),  # most iterations
            (m.no(finite), lambda: self._failed(m, memory, k, here.grad_norm, shows=True)),
            (m.no(moves), stand),
            (m.no(near), judge_end),
            otherwise=complete,
        )

    def _end_known(
        self, m: Machine, memory: AdaptiveMemory, here: Sample, *_: Any
    ) -> AdaptiveMemory:
        """Lines 7-9: keep the end of the epoch, if it is low enough."""
        k, value, before = memory.epoch.k, here.value, memory.start.value
        broken = (here.gradient is not None) & m.no(m.isfinite(here.grad_norm))
        required = memory.schedule.required_decrease(m, self.decrease)
        falls = m.isfinite(value) & (value - before <= -required)
        # Where the required decrease is within rounding the objective cannot tell, but the
        # gradient can.  If the epoch is accepted, the gradient there is the next one needed: it
        # costs nothing.
        noise = m.value_noise(before)
        level = (required <= noise) & (abs(value - before) <= noise)

        def look() -> AdaptiveMemory:
            outcome = Outcome(memory.schedule.step_size, m.no_events, shows=False, ended=False)
            epoch = m.but(memory.epoch, again=True)
            return m.but(memory, epoch=epoch, outcome=outcome, output_value=value, phase=LEVEL)

        return m.case(
            memory,
            (broken, lambda: self._failed(m, memory, k)),
            (falls, lambda: self._accepted(m, memory, value)),
            (level, look),
            otherwise=lambda: self._failed(m, memory, k),
        )

    def _end_level(
        self, m: Machine, memory: AdaptiveMemory, here: Sample, *_: Any
    ) -> AdaptiveMemory:
        return m.case(
            memory,
            (
                here.grad_norm < memory.start_norm,
                lambda: self._accepted(m, memory, memory.output_value),
            ),
            otherwise=lambda: self._failed(m, memory, memory.epoch.k),
        )

    def _accepted(self, m: Machine, memory: AdaptiveMemory, value: Any) -> AdaptiveMemory:
        schedule = memory.schedule.after_success(m, self._shrink(memory.schedule), self._growth)
        events = m.event(EventKind.RESTART, memory.epoch.k)
        start = Sample(memory.epoch.x, value)
        return self._new_epoch(m, memory, start, schedule, events, again=True)

    def _failed(
        self, m: Machine, memory: AdaptiveMemory, k: Any, norm: Any = 0.0, shows: Any = False
    ) -> AdaptiveMemory:
        """Line 11, in the form of Remark 2: discard the epoch; smaller B0, eta, larger rho'.

        ``norm`` is that of the gradient with which the epoch ended.
        """
        now, largest = memory.schedule, LARGEST_PRACTICAL_THETA
        if self._by_theory:
            largest = self.scheme.largest_theta
        schedule = now.after_failure(
            m,
            self._shrink(now) * self.failure_shrink,
            self._backoff,
            self.step_size_min,
            self.hessian_lipschitz_max,
            None if self.momentum is not None else largest,
            self.epoch_length,
        )
        lost = m.no(m.isfinite(norm))
        events = m.event(EventKind.NON_FINITE, norm, lost) + m.event(EventKind.ROLLBACK, k)
        status = m.where(schedule.repeats(m, now, k), int(Status.NO_PROGRESS), RUNNING)
        at_start = lost & (k == 1)  # the gradient at the start of the epoch is not finite
        status = m.where(at_start, int(Status.NON_FINITE), status)
        return self._new_epoch(
            m, memory, memory.start, schedule, events, status=status, shows=shows
        )

    def _new_epoch(
        self,
        m: Machine,
        memory: AdaptiveMemory,
        start: Sample,
        schedule: Schedule,
        events: Any,
        *,
        again: Any = False,
        status: Any = RUNNING,
        shows: Any = False,
    ) -> AdaptiveMemory:
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

    def _average_known(
        self, m: Machine, memory: AdaptiveMemory, here: Sample, *_: Any
    ) -> AdaptiveMemory:
        last = memory.epoch.average.mean
        return m.but(
            memory,
            epoch=m.but(memory.epoch, x=last, ahead=last),
            outcome=Outcome(memory.schedule.step_size, m.no_events, ended=False),
            output_norm=here.grad_norm,
            output_value=here.value,
            phase=LAST,
        )

    def _last_known(
        self, m: Machine, memory: AdaptiveMemory, here: Sample, *_: Any
    ) -> AdaptiveMemory:
        """Lines 15-17: the average or the last iterate, whichever has the smaller gradient."""
        epoch = memory.epoch
        better = here.grad_norm <= memory.output_norm
        output = m.choose(better, epoch.x, epoch.average.snapshot)
        outcome = Outcome(memory.schedule.step_size, m.no_events, shows=better, ended=False)
        memory = m.but(
            memory,
            epoch=m.but(epoch, x=output, ahead=output, again=better),
            outcome=outcome,
            output_norm=m.where(better, here.grad_norm, memory.output_norm),
            output_value=m.where(better, here.value, memory.output_value),
            phase=OUTPUT,
        )
        value = memory.output_value
        known = value == value
        if self._backoff == 1.0 and not self._tightens:
            known = True  # the value does not matter
        return m.case(memory, (known, lambda: self._concluded(m, memory, value)))

    @property
    def _tightens(self) -> bool:
        """Is eps ours to choose?"""
        return self._scale_free and self.eps is None

    def _output_known(
        self, m: Machine, memory: AdaptiveMemory, here: Sample, *_: Any
    ) -> AdaptiveMemory:
        return self._concluded(m, memory, here.value)

    def _concluded(self, m: Machine, memory: AdaptiveMemory, value: Any) -> AdaptiveMemory:
        epoch, now, before = memory.epoch, memory.schedule, memory.start
        norm, shows = memory.output_norm, memory.outcome.shows
        status = judge(m, norm, self._promise(now), memory.tol)
        risen = m.no(value <= before.value + m.value_noise(before.value))

        def tighten() -> AdaptiveMemory:
            """eps did not lead to the tolerance: take a tenth, keep theta."""
            tighter = now.tightened(m)
            events = m.event(EventKind.TIGHTENED, tighter.eps)
            output = Sample(epoch.x, value)
            start = m.case(before, (value <= before.value, lambda: output))
            return self._new_epoch(m, memory, start, tighter, events, shows=shows)

        def end() -> AdaptiveMemory:
            outcome = Outcome(now.step_size, m.no_events, shows=shows, status=status)
            return m.but(memory, outcome=outcome)

        branches = []
        if self._backoff > 1:
            branches.append((risen, lambda: self._failed(m, memory, epoch.k, norm, shows)))
        if self._tightens:
            branches.append((status == int(Status.ABOVE_TOLERANCE), tighten))
        return m.case(memory, *branches, otherwise=end)

    def _promise(self, now: Schedule) -> Any:
        if not (self._by_theory and self._backoff == 1.0):
            return math.nan
        rho = self.hessian_lipschitz or 0.0
        return self.scheme.promise(now.step_size, now.theta, now.radius, now.epoch_length, rho)

    def ending(self, memory: AdaptiveMemory, shown: Sample, status: Status) -> Ending:
        now, k, norm = memory.schedule, memory.epoch.k, shown.grad_norm
        if memory.phase == OUTPUT:
            return completed(norm, self._promise(now), memory.tol, k)
        if status is Status.NON_FINITE:
            return Ending(
                status,
                "the objective was lower at the last accepted point, but its gradient there is not "
                "finite; no smaller step helps: check jac at result.best_x and around it",
                {"grad_norm": norm, "step_size": memory.outcome.step_size},
            )
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

    def _shrink(self, now: Schedule) -> Any:
        """c0: as given, or 1 + 0.001 t in the t-th epoch (section 5.1 of the paper)."""
        if self.radius_shrink is not None:
            return self.radius_shrink
        return 1 + 0.001 * (now.restarts + 1)
