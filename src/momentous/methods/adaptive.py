"""Restarted momentum with an adaptive radius: AdaRAGD and AdaRHB (Algorithms 2, 4; Remark 2)."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

from momentous.core.arrays import Array
from momentous.core.method import DEFAULT_TOLERANCE, Method, State
from momentous.core.oracle import NO_SAMPLE, Oracle, Sample
from momentous.core.record import record
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.methods.epoch import (
    Epoch,
    check_common,
    check_positive,
    completed,
    judged_anew,
    theory_parameters,
    whole_epoch,
)
from momentous.methods.momentum import HEAVY_BALL, NESTEROV, Momentum
from momentous.methods.probe import probed_lipschitz
from momentous.methods.schedule import Schedule

# The paper's advice is theta in (0, 0.01]; 0.03 and 0.1 were often 2 to 10 times slower.
LARGEST_PRACTICAL_THETA = 0.01
# So that its square, and the inverse of that, are numbers.
SMALLEST = 1e-150


@record
class AdaptiveState(State):
    """The epoch under way, its schedule, and what its decrease is measured against."""

    epoch: Epoch  # epoch.start is x_cur^0: the last accepted point
    schedule: Schedule
    start_value: float  # f(x^0)
    start_norm: float  # |grad f(x^0)|
    tol: float  # what an epoch that completes is judged by, 0 for nothing

    @property
    def accepted(self) -> Sample:
        return Sample(self.epoch.start, self.start_value)


@dataclasses.dataclass(frozen=True)
class AdaptiveRadius(Method):
    """Momentum, restarted when k * sum |x^{t+1} - x^t|^2 > max(B, B0)^2, where B0 shrinks."""

    scheme: ClassVar[Momentum]

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
        owner = type(self).__name__
        check_positive(
            owner,
            step_size=self.step_size,
            hessian_lipschitz=self.hessian_lipschitz,
            eps=self.eps,
            gradient_lipschitz=self.gradient_lipschitz,
            radius=self.radius,
            initial_radius=self.initial_radius,
            decrease=self.decrease,
            hessian_lipschitz_max=self.hessian_lipschitz_max,
        )
        check_common(owner, self.momentum, self.epoch_length)
        if self.decrease > self.scheme.decrease_factor:
            raise ValueError(
                f"{owner}: decrease={self.decrease!r} (gamma) must be at most "
                f"{self.scheme.decrease_factor:g}, what the theorem guarantees"
            )
        if self.radius_shrink is not None and not self.radius_shrink > 1:
            raise ValueError(
                f"{owner}: radius_shrink={self.radius_shrink!r} (c0) must be above 1, "
                "or B0 may never fall to B"
            )
        if not self.failure_shrink >= max(self._backoff, 1.0) or not self._backoff >= 1:
            raise ValueError(
                f"{owner}: failure_shrink={self.failure_shrink!r} (c1) >= "
                f"backoff={self._backoff!r} (c2) >= 1 must hold, or B shrinks faster than B0"
            )
        if self.growth is not None and not 1 <= self.growth < 2:
            raise ValueError(
                f"{owner}: growth={self.growth!r} must be in [1, 2); 1 is none, 1.2 works well"
            )

    @property
    def _by_theory(self) -> bool:
        """Are both Lipschitz constants declared, so that the theorem applies as it stands?"""
        return self.gradient_lipschitz is not None and self.hessian_lipschitz is not None

    @property
    def _largest_theta(self) -> float:
        return self.scheme.largest_theta if self._by_theory else LARGEST_PRACTICAL_THETA

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

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> AdaptiveState:
        sample = oracle.gradient(x0)
        goal = tol if tol is not None else self.default_tolerance
        schedule = self._first_schedule(oracle, sample, goal)
        if tol is None and self.eps is not None:
            goal = 0.0  # nothing was asked for but the theorem's own promise
        oracle.recall(sample)
        events: tuple[Event, ...] = ()
        if schedule.at_radius:
            events = (Event(EventKind.RADIUS_REACHED, schedule.radius),)
        return AdaptiveState(
            sample,
            schedule.step_size,
            events,
            None,
            Epoch.at(x0, averaged=schedule.at_radius),
            schedule,
            sample.value,
            sample.grad_norm,
            goal,
        )

    def _first_schedule(self, oracle: Oracle, sample: Sample, tol: float) -> Schedule:
        if self._by_theory:
            p = theory_parameters(
                self.scheme,
                owner=type(self).__name__,
                tol=tol,
                gradient_lipschitz=self.gradient_lipschitz,
                hessian_lipschitz=self.hessian_lipschitz,
                eps=self.eps,
                step_size=self.step_size,
                momentum=self.momentum,
                radius=self.radius,
                epoch_length=self.epoch_length,
            )
            eta, theta, B, K = p.step_size, p.theta, p.radius, p.epoch_length
            rho = self.hessian_lipschitz
            assert rho is not None
            eps = p.eps
        else:
            # A start that scales with f and x: the step from one probe of the curvature, and rho'
            # such that theta = (eps rho' eta^2)^(1/4).
            eps = self.eps or tol or 1e-6 * sample.grad_norm or 1.0
            eta = self.step_size or 1 / (
                4 * self.gradient_lipschitz
                if self.gradient_lipschitz is not None
                else probed_lipschitz(oracle, sample)
            )
            if self.hessian_lipschitz is not None:
                rho = self.hessian_lipschitz
                theta = min(LARGEST_PRACTICAL_THETA, math.sqrt(eta * math.sqrt(eps * rho)))
                theta = 1 - self.momentum if self.momentum is not None else theta
            else:
                theta = 1 - self.momentum if self.momentum is not None else LARGEST_PRACTICAL_THETA
                # rho' = theta^4/(eps eta^2), kept within what a float can hold.
                sqrt_rho = theta / eta * theta / math.sqrt(eps)
                rho = min(max(sqrt_rho, SMALLEST), 1 / SMALLEST) ** 2
            B = self.radius or math.sqrt(eps / rho)
            K = self.epoch_length or whole_epoch(theta)
        wide = self.initial_radius or 100 * sample.grad_norm * eta / theta
        return Schedule(eta, rho, eps, theta, K, B, wide, 0)

    def stands_by(self, oracle: Oracle, state: State) -> bool:
        """Not in the middle of an epoch that has climbed: it would be discarded in the end."""
        assert isinstance(state, AdaptiveState)
        sample = state.sample
        oracle.learn_value(sample)
        noise = oracle.space.value_noise(state.start_value)
        return sample.value <= state.start_value + noise

    def with_tolerance(self, state: State, tol: float | None) -> State:
        return judged_anew(state, tol)

    def step(self, oracle: Oracle, state: State) -> AdaptiveState:
        assert isinstance(state, AdaptiveState)
        epoch, now, space = state.epoch, state.schedule, oracle.space
        state.release()
        sample, x_next, moved = self.scheme.advance(
            oracle, epoch.x, epoch.x_prev, now.step_size, now.theta
        )  # lines 3-4
        k, travelled = epoch.k + 1, epoch.travelled + moved  # line 5
        if not (sample.finite and math.isfinite(travelled)):
            return self._failed(oracle, state, sample, k)
        if moved == 0.0 and k == 1:
            return self._stuck(state, sample)
        if not k * travelled <= now.limit * now.limit or k > now.epoch_length:  # line 6
            return self._restarted(oracle, state, sample, x_next, k)
        if epoch.average is not None:
            epoch.average.add(epoch.k, sample.point, moved, now.epoch_length, space)
        epoch = Epoch(epoch.start, x_next, epoch.x, k, travelled, epoch.average)
        norm = sample.grad_norm if k == 1 else state.start_norm
        after = AdaptiveState(
            sample, now.step_size, (), None, epoch, now, state.start_value, norm, state.tol
        )
        if k >= now.epoch_length and now.at_radius:  # line 2
            del sample  # make room for the gradients to come
            return self._completed(oracle, after)
        return after

    def _restarted(
        self, oracle: Oracle, state: AdaptiveState, sample: Sample, x_next: Array, k: int
    ) -> AdaptiveState:
        """Lines 7-9: keep the end of the epoch, if it is low enough."""
        now, old, old_value = state.schedule, state.epoch, state.start_value
        start = self.scheme.restart_point(oracle.space, x_next, old.x, now.theta)
        value, known = oracle.value(start), oracle.last
        if known is not None and known.gradient is not None and not known.finite:
            return self._failed(oracle, state, sample, k)
        required = now.required_decrease(self.decrease)
        falls = math.isfinite(value) and value - old_value <= -required
        if not falls:  # line 8
            # Within rounding the objective cannot tell, but the gradient can.  If the epoch is
            # accepted, the gradient there is the next one needed: it costs nothing.
            noise = oracle.space.value_noise(old_value)
            start_norm = sample.grad_norm if k == 1 else state.start_norm
            if not (
                abs(value - old_value) <= noise and oracle.gradient(start).grad_norm < start_norm
            ):
                return self._failed(oracle, state, sample, k)
        schedule = now.after_success(self._shrink(now), self._growth)
        event = Event(EventKind.RESTART, float(k))
        return self._new_epoch(state, sample, start, value, schedule, event)

    def _failed(
        self, oracle: Oracle, state: AdaptiveState, sample: Sample, k: int
    ) -> AdaptiveState:
        """Line 11, in the form of Remark 2: discard the epoch; smaller B0, eta, larger rho'."""
        now = state.schedule
        schedule = now.after_failure(
            self._shrink(now),
            self.failure_shrink,
            self._backoff,
            self.step_size_min,
            self.hessian_lipschitz_max,
            None if self.momentum is not None else self._largest_theta,
            self.epoch_length,
        )
        event = Event(EventKind.ROLLBACK, float(k))
        start, value = state.epoch.start, state.start_value
        oracle.recall(Sample(start, value))
        after = self._new_epoch(state, sample, start, value, schedule, event)
        if not sample.finite:
            after.events = (Event(EventKind.NON_FINITE, sample.grad_norm), *after.events)
        if not sample.finite and sample.point is start:
            after.ending = self._lost(sample, now)
        elif schedule.repeats(now, k):
            after.ending = self._capped(sample, now, k)
        return after

    def _new_epoch(
        self,
        state: AdaptiveState,
        sample: Sample,
        start: Array,
        value: float,
        schedule: Schedule,
        event: Event,
    ) -> AdaptiveState:
        events: tuple[Event, ...] = (event,)
        if schedule.at_radius and not state.schedule.at_radius:
            events += (Event(EventKind.RADIUS_REACHED, schedule.radius),)
        return AdaptiveState(
            sample,
            state.schedule.step_size,
            events,
            None,
            Epoch.at(start, averaged=schedule.at_radius),
            schedule,
            value,
            state.start_norm,
            state.tol,
        )

    def _completed(self, oracle: Oracle, state: AdaptiveState) -> AdaptiveState:
        """Lines 15-17: the average or the last iterate, whichever has the smaller gradient."""
        epoch, now = state.epoch, state.schedule
        assert epoch.average is not None
        epoch.average.mean, state.sample = None, NO_SAMPLE  # no longer needed: make room
        oracle.space.release()
        averaged = oracle.gradient(epoch.average.snapshot)
        last = oracle.gradient(epoch.x)
        sample = last if last.grad_norm <= averaged.grad_norm else averaged
        state.sample = sample
        if self._backoff > 1 and not self.stands_by(oracle, state):
            return self._failed(oracle, state, sample, epoch.k)
        promise = math.nan
        if self._by_theory and self._backoff == 1.0:
            assert self.hessian_lipschitz is not None
            promise = self.scheme.promise(
                now.step_size, now.theta, now.radius, now.epoch_length, self.hessian_lipschitz
            )
        ending = completed(sample, promise, state.tol, epoch.k)
        if ending.status is Status.ABOVE_TOLERANCE and self._scale_free and self.eps is None:
            return self._tightened(oracle, state)
        state.ending = ending
        return state

    def _tightened(self, oracle: Oracle, state: AdaptiveState) -> AdaptiveState:
        """eps was ours to choose and did not lead to the tolerance: take a tenth, keep theta."""
        sample, now = state.sample, state.schedule
        oracle.recall(sample)
        start, value = sample.point, oracle.value(sample.point)
        if not value <= state.start_value:
            start, value = state.epoch.start, state.start_value
            oracle.recall(Sample(start, value))
        tighter = now.tightened()
        event = Event(EventKind.TIGHTENED, tighter.eps)
        return self._new_epoch(state, sample, start, value, tighter, event)

    def _stuck(self, state: AdaptiveState, sample: Sample) -> AdaptiveState:
        numbers = {"grad_norm": sample.grad_norm, "step_size": state.schedule.step_size}
        if sample.grad_norm == 0.0:
            ending = Ending(Status.COMPLETED, "the gradient is exactly zero", numbers)
        else:
            ending = Ending(
                Status.NO_PROGRESS,
                f"the step size fell to {state.schedule.step_size:.3g}, too small to move x: the "
                f"objective cannot be lowered further at gradient norm {sample.grad_norm:.3g} "
                "within rounding; a larger tol, a higher precision or subtracting a constant from "
                "the objective helps, and so does checking the gradient",
                numbers,
            )
        return dataclasses.replace(state, sample=sample, events=(), ending=ending)

    def _lost(self, sample: Sample, now: Schedule) -> Ending:
        return Ending(
            Status.NON_FINITE,
            "the objective was lower at the last accepted point, but its gradient there is not "
            "finite; no smaller step helps: check jac at result.best_x and around it",
            {"grad_norm": sample.grad_norm, "step_size": now.step_size},
        )

    def _capped(self, sample: Sample, now: Schedule, k: int) -> Ending:
        return Ending(
            Status.NO_PROGRESS,
            f"{k} iterations from the last accepted point do not lower the objective, and the step "
            f"size {now.step_size:.3g} may not shrink, so that the next epoch would be the same; "
            "lower step_size_min, declare a larger gradient_lipschitz, or leave both out",
            {
                "grad_norm": sample.grad_norm,
                "step_size": now.step_size,
                "hessian_lipschitz": now.hessian_lipschitz,
            },
        )

    def _shrink(self, now: Schedule) -> float:
        """c0: as given, or 1 + 0.001 t in the t-th epoch (section 5.1 of the paper)."""
        if self.radius_shrink is not None:
            return self.radius_shrink
        return 1 + 0.001 * (now.restarts + 1)


@dataclasses.dataclass(frozen=True)
class AdaRAGD(AdaptiveRadius):
    """Adaptively restarted accelerated gradient descent, Ada-RAGD-NC: Algorithm 2 of Li & Lin [1]_.

    :class:`RAGD` with a wide radius: an epoch ends when
    ``k * sum_{t<k} |x^{t+1} - x^t|^2 > max(B, B0)^2`` or k > K.  B0 starts large and shrinks by c0
    at every restart.  If the epoch did not lower f by gamma eps^(3/2)/sqrt(rho'), it is discarded:
    back to its start, B0 shrinks by c1 more, and (Remark 2) eta by c2 while rho' grows by c2^2,
    which leaves theta and K as they are.  Once B0 <= B the method is RAGD; the first epoch of K
    iterations without restart ends it, with the average or the last iterate as output.  One
    gradient an iteration, one value a restart.

    *Nothing given*: the step size comes from one extra gradient, eta = 1/L with
    L = |grad f(x0 - t g/|g|) - g|/t; theta = 0.01; eps = tol; rho' = theta^4/(eps eta^2);
    B0 = 100 |g| eta/theta; accepted restarts multiply eta by ``growth``; an epoch that completes
    above tol lowers eps to a tenth.  Scaling f, or x where |x0| > 1, leaves this start as it is.
    With theta fixed, the provable number of gradients is of order eps^(-2), as for gradient
    descent; the order eps^(-7/4) takes a theta that shrinks like eps^(1/4), as in the two settings
    below.  How far ahead of gradient descent it is nevertheless, the scaling benchmark shows.

    *L and rho given*: Theorem 2 as it stands, O(eps^(-7/4)) gradients, no growth, no backoff.

    *step_size, hessian_lipschitz (rho') and eps given*: Remark 2, with
    theta = min(0.01, (eps rho' eta^2)^(1/4)).  (The paper's experiments have ``initial_radius=100``
    and ``momentum=1 - 0.005 (eps rho' eta^2)^(1/4)``.)

    The decrease test knows rounding: a change of f within a few units of rounding counts as a
    decrease if the gradient fell.

    Parameters
    ----------
    step_size : float, optional
        eta to begin with.
    hessian_lipschitz : float, optional
        rho (with ``gradient_lipschitz``) or the initial guess rho'.
    eps : float, optional
        The eps of the theorem; by default tol (divided by 82 where L and rho are given).
    gradient_lipschitz : float, optional
        L; eta = 1/(4L).
    momentum, radius, epoch_length : optional
        1 - theta, B and K by hand.
    initial_radius : float, optional
        B0.
    decrease : float
        gamma.
    radius_shrink : float, optional
        c0 > 1; by default 1 + 0.001 t in epoch t, as in the paper's section 5.1.
    failure_shrink : float
        c1 >= c2.
    backoff : float, optional
        c2 of Remark 2; by default 2, and 1 (off) where L and rho are given.
    step_size_min, hessian_lipschitz_max : float
        Caps on eta and rho' in Remark 2.
    growth : float, optional
        Factor on eta at accepted restarts (1/growth^2 on rho'); by default 1.2 where the step size
        is found by the probe, otherwise 1.  Not in the paper.

    References
    ----------
    .. [1] H. Li, Z. Lin, JMLR 24 (2023); see :class:`momentous.RAGD`.
    """

    name = "ada-ragd"
    summary = "restarted accelerated gradient descent, adaptive radius"
    needs = "nothing; or L, rho"
    guarantee = (
        "with L, rho: gradient of O(eps) in O(eps^-7/4) gradients [Thm 2]; with nothing: descent"
    )
    cost = "1 gradient; 1 value a restart"
    scheme = NESTEROV


@dataclasses.dataclass(frozen=True)
class AdaRHB(AdaptiveRadius):
    """Adaptively restarted heavy ball, Ada-RHB-NC: Algorithm 4 of Li & Lin [1]_.

    The heavy ball of :class:`momentous.RHB` under the rules of :class:`AdaRAGD`, whose parameters
    it shares; the decrease is tested at z^k, where the next epoch starts (Theorem 5).  One gradient
    an iteration, one value a restart.

    References
    ----------
    .. [1] H. Li, Z. Lin, JMLR 24 (2023); see :class:`momentous.RAGD`.
    """

    name = "ada-rhb"
    summary = "restarted heavy ball, adaptive radius"
    needs = "nothing; or L, rho"
    guarantee = (
        "with L, rho: gradient of O(eps) in O(eps^-7/4) gradients [Thm 5]; with nothing: descent"
    )
    cost = "1 gradient; 1 value a restart"
    scheme = HEAVY_BALL
