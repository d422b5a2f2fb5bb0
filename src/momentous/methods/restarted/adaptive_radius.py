"""Restarted momentum with an adaptive radius B0: Algorithms 2 and 4, and Remark 2."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

from momentous.core.acceptance import within_limit
from momentous.core.method import DEFAULT_TOLERANCE, Method
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.space import Array, Space
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.core.step import Report, RiseLimit, Step
from momentous.methods.checks import check, check_positive, root_of_product
from momentous.methods.endings import Events, stuck
from momentous.methods.restarted.epoch import Epoch, completed, judged_by
from momentous.methods.restarted.momentum import Momentum
from momentous.methods.restarted.parameters import check_given, theory_parameters, whole_epoch
from momentous.methods.restarted.schedule import Schedule
from momentous.methods.search.backtracking import probed_lipschitz

# The paper's advice is theta in (0, 0.01]; 0.03 and 0.1 were often 2 to 10 times slower.
LARGEST_PRACTICAL_THETA = 0.01
# So that its square, and the inverse of that, are numbers.
SMALLEST = 1e-150


@record
class AdaptiveMemory:
    """The epoch under way, its schedule, and what its decrease is measured against."""

    epoch: Epoch
    schedule: Schedule
    start: Sample  # x_cur^0 and f(x_cur^0): the last accepted point
    start_norm: float  # |grad f(x^0)|
    tol: float  # what an epoch that completes is judged by, 0 for nothing
    limit: RiseLimit  # for an end within the epoch: if it has climbed, it would be discarded

    def as_step(
        self, sample: Sample, step_size: float, events: Events = (), ending: Ending | None = None
    ) -> Step[AdaptiveMemory]:
        """The step that led here."""
        report = Report(sample, step_size, events, ending, accepted=self.start, limit=self.limit)
        return Step(self, report)


@dataclasses.dataclass(frozen=True)
class AdaptiveRadius(Method[AdaptiveMemory]):
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

    def start(
        self, oracle: Oracle, x0: Array, tol: float | None, seed: int
    ) -> Step[AdaptiveMemory]:
        sample = oracle.gradient(x0)
        goal = tol if tol is not None else self.default_tolerance
        schedule = self._first_schedule(oracle, sample, goal)
        if tol is None and self.eps is not None:
            goal = 0.0  # nothing was asked for but the theorem's own promise
        oracle.recall(sample)
        reached = Event(EventKind.RADIUS_REACHED, schedule.radius)
        events = (reached,) if schedule.at_radius else ()
        memory = _at_start(oracle.space, Sample(x0, sample.value), schedule, sample.grad_norm, goal)
        return memory.as_step(sample, schedule.step_size, events)

    def _first_schedule(self, oracle: Oracle, sample: Sample, tol: float) -> Schedule:
        if self._by_theory:
            p = theory_parameters(self, self.scheme, tol)
            eta, theta, B, K = p.step_size, p.theta, p.radius, p.epoch_length
            rho, eps = self.hessian_lipschitz or 0.0, p.eps
            uncapped = theta
            if self.momentum is None:
                uncapped = self.scheme.theta(eps, rho, eta)
        else:
            # The step comes from one probe of the curvature, so that it scales with f, and rho' is
            # such that theta = (eps rho' eta^2)^(1/4).
            eps = self.eps or tol or 1e-6 * sample.grad_norm or 1.0
            L = self.gradient_lipschitz
            eta = self.step_size or 1 / (4 * L if L else probed_lipschitz(oracle, sample))
            uncapped = LARGEST_PRACTICAL_THETA
            if self.hessian_lipschitz is not None:
                rho = self.hessian_lipschitz
                uncapped = math.sqrt(eta * root_of_product(eps, rho))
            theta = min(uncapped, LARGEST_PRACTICAL_THETA)
            if self.momentum is not None:
                theta = uncapped = 1 - self.momentum
            if self.hessian_lipschitz is None:
                # rho' = theta^4/(eps eta^2), kept within what a float can hold.
                sqrt_rho = theta / eta * theta / math.sqrt(eps)
                rho = min(max(sqrt_rho, SMALLEST), 1 / SMALLEST) ** 2
            B = self.radius or math.sqrt(eps / rho)
            K = self.epoch_length or whole_epoch(theta)
        wide = self.initial_radius or 100 * sample.grad_norm * eta / theta
        return Schedule(eta, rho, eps, theta, uncapped, epoch_length=K, radius=B, wide_radius=wide)

    def with_new_tolerance(
        self, step: Step[AdaptiveMemory], tol: float | None
    ) -> Step[AdaptiveMemory]:
        return super().with_new_tolerance(judged_by(step, tol), tol)

    def step(self, oracle: Oracle, memory: AdaptiveMemory) -> Step[AdaptiveMemory]:
        epoch, now, space = memory.epoch, memory.schedule, oracle.space
        sample, x_next, moved = self.scheme.advance(
            oracle, epoch.x, epoch.x_prev, now.step_size, now.theta
        )  # lines 3-4
        k, travelled = epoch.k + 1, epoch.travelled + moved  # line 5
        if not (sample.has_finite_gradient and math.isfinite(travelled)):
            return self._failed(oracle, memory, sample, k)
        if moved == 0.0 and k == 1:
            ending = stuck(sample.grad_norm, now.step_size)
            return memory.as_step(sample, now.step_size, ending=ending)
        if not k * travelled <= now.limit * now.limit or k > now.epoch_length:  # line 6
            return self._restarted(oracle, memory, sample, x_next, k)
        if epoch.average is not None:
            epoch.average.add(epoch.k, sample.point, moved, now.epoch_length, space)
        after = AdaptiveMemory(  # in every iteration: `replace` takes four times as long
            epoch=epoch.advanced(x_next, moved),
            schedule=now,
            start=memory.start,
            start_norm=sample.grad_norm if k == 1 else memory.start_norm,
            tol=memory.tol,
            limit=memory.limit,
        )
        if k >= now.epoch_length and now.at_radius:  # line 2
            del sample  # make room for the gradients to come
            return self._completed(oracle, after)
        return after.as_step(sample, now.step_size)

    def _restarted(
        self, oracle: Oracle, memory: AdaptiveMemory, sample: Sample, x_next: Array, k: int
    ) -> Step[AdaptiveMemory]:
        """Lines 7-9: keep the end of the epoch, if it is low enough."""
        now, old_value = memory.schedule, memory.start.value
        start = self.scheme.restart_point(oracle.space, x_next, memory.epoch.x, now.theta)
        value, known = oracle.value(start), oracle.last
        if known is not None and known.gradient is not None and not known.has_finite_gradient:
            return self._failed(oracle, memory, sample, k)
        required = now.required_decrease(self.decrease)
        falls = math.isfinite(value) and value - old_value <= -required
        if not falls:  # line 8
            # Where the required decrease is within rounding the objective cannot tell, but the
            # gradient can.  If the epoch is accepted, the gradient there is the next one needed:
            # it costs nothing.
            noise = oracle.space.value_noise(old_value)
            start_norm = sample.grad_norm if k == 1 else memory.start_norm
            level = required <= noise and abs(value - old_value) <= noise
            if not (level and oracle.gradient(start).grad_norm < start_norm):
                return self._failed(oracle, memory, sample, k)
        schedule = now.after_success(self._shrink(now), self._growth)
        events, accepted = (Event(EventKind.RESTART, float(k)),), Sample(start, value)
        return self._new_epoch(oracle.space, memory, sample, accepted, schedule, events)

    def _failed(
        self, oracle: Oracle, memory: AdaptiveMemory, sample: Sample, k: int
    ) -> Step[AdaptiveMemory]:
        """Line 11, in the form of Remark 2: discard the epoch; smaller B0, eta, larger rho'."""
        now, largest = memory.schedule, LARGEST_PRACTICAL_THETA
        if self._by_theory:
            largest = self.scheme.largest_theta
        schedule = now.after_failure(
            self._shrink(now) * self.failure_shrink,
            self._backoff,
            self.step_size_min,
            self.hessian_lipschitz_max,
            None if self.momentum is not None else largest,
            self.epoch_length,
        )
        start = Sample(memory.start.point, memory.start.value)
        oracle.recall(start)
        events: Events = (Event(EventKind.ROLLBACK, float(k)),)
        if not sample.has_finite_gradient:
            events = (Event(EventKind.NON_FINITE, sample.grad_norm), *events)
        ending = None
        if not sample.has_finite_gradient and sample.point is start.point:
            ending = Ending(
                Status.NON_FINITE,
                "the objective was lower at the last accepted point, but its gradient there is not "
                "finite; no smaller step helps: check jac at result.best_x and around it",
                {"grad_norm": sample.grad_norm, "step_size": now.step_size},
            )
        elif schedule.repeats(now, k):
            ending = self._capped(sample, now, k)
        return self._new_epoch(oracle.space, memory, sample, start, schedule, events, ending)

    def _new_epoch(
        self,
        space: Space,
        memory: AdaptiveMemory,
        sample: Sample,
        start: Sample,
        schedule: Schedule,
        events: Events,
        ending: Ending | None = None,
    ) -> Step[AdaptiveMemory]:
        """On from ``start``, whose value is known, without momentum."""
        if schedule.at_radius and not memory.schedule.at_radius:
            events += (Event(EventKind.RADIUS_REACHED, schedule.radius),)
        after = _at_start(space, start, schedule, memory.start_norm, memory.tol)
        return after.as_step(sample, memory.schedule.step_size, events, ending)

    def _completed(self, oracle: Oracle, memory: AdaptiveMemory) -> Step[AdaptiveMemory]:
        """Lines 15-17: the average or the last iterate, whichever has the smaller gradient."""
        epoch, now = memory.epoch, memory.schedule
        assert epoch.average is not None
        epoch.average.mean = None  # make room: the step, if repeated, needs the snapshot only
        oracle.space.release()
        averaged = oracle.gradient(epoch.average.snapshot)
        last = oracle.gradient(epoch.x)
        sample = last if last.grad_norm <= averaged.grad_norm else averaged
        if self._backoff > 1 and not within_limit(oracle, sample, memory.limit):
            return self._failed(oracle, memory, sample, epoch.k)
        promise = math.nan
        if self._by_theory and self._backoff == 1.0:
            rho, K = self.hessian_lipschitz or 0.0, now.epoch_length
            promise = self.scheme.promise(now.step_size, now.theta, now.radius, K, rho)
        ending = completed(sample, promise, memory.tol, epoch.k)
        if ending.status is Status.ABOVE_TOLERANCE and self._scale_free and self.eps is None:
            return self._tightened(oracle, memory, sample)
        return memory.as_step(sample, now.step_size, ending=ending)

    def _tightened(
        self, oracle: Oracle, memory: AdaptiveMemory, sample: Sample
    ) -> Step[AdaptiveMemory]:
        """eps was ours to choose and did not lead to the tolerance: take a tenth, keep theta."""
        oracle.recall(sample)
        start = Sample(sample.point, oracle.value(sample.point))
        if not start.value <= memory.start.value:
            start = Sample(memory.start.point, memory.start.value)
            oracle.recall(start)
        tighter = memory.schedule.tightened()
        event = Event(EventKind.TIGHTENED, tighter.eps)
        return self._new_epoch(oracle.space, memory, sample, start, tighter, (event,))

    def _capped(self, sample: Sample, now: Schedule, k: int) -> Ending:
        return Ending(
            Status.NO_PROGRESS,
            f"{k} iterations from the last accepted point do not lower the objective, and the step "
            f"size {now.step_size:.3g} may not shrink, so that the next epoch would be the same; "
            "lower step_size_min, declare a larger gradient_lipschitz, or leave both out",
            {"grad_norm": sample.grad_norm, "step_size": now.step_size}
            | {"hessian_lipschitz": now.hessian_lipschitz},
        )

    def _shrink(self, now: Schedule) -> float:
        """c0: as given, or 1 + 0.001 t in the t-th epoch (section 5.1 of the paper)."""
        if self.radius_shrink is not None:
            return self.radius_shrink
        return 1 + 0.001 * (now.restarts + 1)


def _at_start(
    space: Space, start: Sample, schedule: Schedule, start_norm: float, tol: float
) -> AdaptiveMemory:
    """The memory at the start of an epoch, whose value is known."""
    epoch = Epoch.at(start.point, averaged=schedule.at_radius)
    limit = RiseLimit(start, allowance=space.value_noise(start.value))
    return AdaptiveMemory(epoch, schedule, start, start_norm, tol, limit)
