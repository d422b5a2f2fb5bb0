"""Restarted momentum with nothing given: the paper's restart rule without eps, L and rho.

Put theta = 1/k and the eps that belongs to it into the rule k S > B^2 of Algorithms 1 and 3: it
becomes k^(5/2) rho S^(1/2) > c/eta, in which there is no eps.  What stands for L and rho is
learned on the way.  docs/adaptive.md says what is proven.
"""

from __future__ import annotations

import dataclasses
import math

from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.space import Array, Space
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.core.step import Report, RiseLimit, Step
from momentous.methods.endings import Events, no_progress, zero_gradient
from momentous.methods.restarted.momentum import Momentum
from momentous.methods.search.backtracking import SIGNAL, limited, probed_lipschitz
from momentous.methods.search.rounding import NOISE, smallest_gradient

# Chosen on one half of the problems of testbed.suite; none of them is critical.
RESTART = 64.0  # c of the restart rule
DECREASE = 0.05  # an epoch must lower f by this times S/(eta k)
LONGEST = 1.0  # eta |g - g'|/|y - y'| above this: the step is too long ...
SHORTENED = 0.7  # ... and becomes this much of what would do
GROWTH = 1.2
EASED = 1.5  # q after an accepted epoch is divided by this
WIDENED = 2.0  # the largest step allowed is multiplied by this
AGAIN = 1.5  # an early end that was refused is asked for again so many times later
ALLOWANCE = 500  # iterations that may be lost beyond as many as have paid
SMALLEST = 1e-300  # q is above 0
STANDSTILL = 2.0**-10  # a first step of this many units of rounding of x is none
FLAT = 4.0  # the mean is looked at where |v|^2 <= FLAT S/k


@record
class FreeEpoch:
    """Where an epoch stands after k of its iterations."""

    x: Array  # x^k
    x_prev: Array  # x^{k-1}
    mean: Array  # ybar, the mean of y^0..y^{k-1} with the weights (t + 1) eta_t
    last: Sample | None = None  # y^{k-1} with its gradient
    k: int = 0
    travelled: float = 0.0  # S = sum of |x^{t+1} - x^t|^2
    weight: float = 0.0  # W = sum of (t + 1) eta_t
    spread: float = 0.0  # sum of (t + 1) eta_t |y^t - ybar|^2
    mean_due: float = 2.0  # the iteration from which on the mean is looked at again
    early_due: float = 1.0  # ... and from which on the epoch may end early

    @staticmethod
    def at(x: Array) -> FreeEpoch:
        """A fresh epoch: x^{-1} = x^0 = x."""
        return FreeEpoch(x=x, x_prev=x, mean=x)

    def advanced(
        self, space: Space, sample: Sample, x_next: Array, moved: float, eta: float
    ) -> FreeEpoch:
        """The same after one more iteration, of squared length ``moved``."""
        k, asked = self.k + 1, sample.point
        share = k * eta
        weight = self.weight + share
        mean, spread = asked, 0.0
        if self.k:
            distance = space.distance_squared(asked, self.mean)
            spread = self.spread + share * (self.weight / weight) * distance
            mean = space.combination(self.mean, share / weight, asked, self.mean)
        return FreeEpoch(
            x=x_next,
            x_prev=self.x,
            last=sample,
            mean=mean,
            k=k,
            travelled=self.travelled + moved,
            weight=weight,
            spread=spread,
            mean_due=self.mean_due,
            early_due=self.early_due,
        )


@record
class Learned:
    """What outlives an epoch."""

    step_size: float  # eta
    most: float  # the step may not grow beyond this
    sharpness: float  # q = eta^2 rho'
    price: float  # the least decrease per iteration that a full epoch has brought
    mark: float  # the gradient norm when its halving last paid for an early end
    paid: int = 0  # iterations of epochs that have paid
    lost: int = 0  # iterations of those that ended early and have not, or were discarded
    walls: int = 0  # how often something was not finite


@record
class FreeMemory:
    """The epoch under way, what was learned, and what its decrease is measured against."""

    epoch: FreeEpoch
    learned: Learned
    start: Sample  # x^0 and f(x^0): the last accepted point
    start_norm: float  # |grad f(x^0)|
    limit: RiseLimit  # for an end within the epoch: if it has climbed, it would be discarded

    def as_step(
        self, sample: Sample, step_size: float, events: Events = (), ending: Ending | None = None
    ) -> Step[FreeMemory]:
        """The step that led here."""
        report = Report(sample, step_size, events, ending, accepted=self.start, limit=self.limit)
        return Step(self, report)


@dataclasses.dataclass(frozen=True)
class FreeRadius:
    """The rule, around one of the two momentum iterations, with 1 - theta = k/(k + 1)."""

    scheme: Momentum

    def start(self, oracle: Oracle, x0: Array) -> Step[FreeMemory]:
        """The first step: its size comes from one extra gradient, and q = 1/|grad f(x0)|."""
        sample = oracle.gradient(x0)
        eta = 1 / probed_lipschitz(oracle, sample)
        oracle.recall(sample)
        norm = sample.grad_norm
        learned = Learned(
            eta, most=math.inf, sharpness=1 / norm if norm else 1.0, price=math.inf, mark=norm
        )
        return self._at_start(oracle, sample, learned).as_step(sample, eta)

    def moved_to(self, oracle: Oracle, memory: FreeMemory, sample: Sample) -> Step[FreeMemory]:
        """On at another point with what was learned."""
        oracle.recall(sample)
        after = self._at_start(oracle, sample, memory.learned)
        return after.as_step(sample, memory.learned.step_size)

    def _at_start(self, oracle: Oracle, sample: Sample, learned: Learned) -> FreeMemory:
        """The memory at the start of an epoch, whose value is asked for if it is not known."""
        value = oracle.value(sample.point)
        start = Sample(sample.point, value)
        limit = RiseLimit(start, allowance=oracle.space.value_noise(value))
        epoch = FreeEpoch.at(sample.point)
        return FreeMemory(epoch, learned, start, sample.grad_norm, limit)

    def step(self, oracle: Oracle, memory: FreeMemory) -> Step[FreeMemory]:
        """One iteration: one gradient, and now and then one of the mean or a value."""
        epoch, now, space = memory.epoch, memory.learned, oracle.space
        k, theta = epoch.k + 1, 1 / (epoch.k + 1)
        sample = oracle.gradient(self.scheme.asked(space, epoch.x, epoch.x_prev, theta))
        if not sample.has_finite_gradient:
            return self._not_finite(oracle, memory, sample, sample.point)
        eta = now.step_size
        if epoch.last is not None:
            bend = eta * _bend(space, sample, epoch.last)
            if bend > LONGEST and k == 2:
                return self._too_long(oracle, memory, sample)
            if bend > LONGEST:
                # The step shrinks where it is, and rho' stays as it is.
                factor = SHORTENED * max(LONGEST / bend, 0.5)
                eta *= factor
                q = max(now.sharpness * factor * factor, SMALLEST)
                now = dataclasses.replace(now, sharpness=q)
            elif bend < self.scheme.roomy:
                longest = min(now.most, limited(space, math.inf, sample.grad_norm))
                eta = max(eta, min(GROWTH * eta, longest))
        e = self.scheme.base(space, epoch.x, epoch.x_prev, theta, sample.point)
        x_next, moved = space.stepped(e, -eta, sample.gradient, epoch.x)
        if not math.isfinite(epoch.travelled + moved):
            return self._not_finite(oracle, memory, sample, x_next)
        if k == 1 and math.sqrt(moved) <= STANDSTILL * space.rounding * space.norm(epoch.x):
            return memory.as_step(sample, eta, ending=_at_rounding(sample.grad_norm, eta))
        after = FreeMemory(
            epoch=epoch.advanced(space, sample, x_next, moved, eta),
            learned=now if eta == now.step_size else dataclasses.replace(now, step_size=eta),
            start=memory.start,
            start_norm=sample.grad_norm if k == 1 else memory.start_norm,
            limit=memory.limit,
        )
        full = not k**2.5 * now.sharpness * math.sqrt(after.epoch.travelled) <= RESTART * eta
        if full or moved == 0.0:  # x does not move any more: there is nothing to wait for
            return self._ended(oracle, after, sample)
        if k >= epoch.early_due and _climbs(space, sample, x_next, epoch.x):
            return self._ended_early(oracle, after, sample)
        if k >= epoch.mean_due and moved * k <= FLAT * after.epoch.travelled:
            return self._looked_at_mean(oracle, after, sample, moved)
        return after.as_step(sample, eta)

    def _looked_at_mean(
        self, oracle: Oracle, memory: FreeMemory, sample: Sample, moved: float
    ) -> Step[FreeMemory]:
        """rho' becomes at least what the gradient at ybar proves of rho.

        The mean of the gradients is k |v|/W long, and that at ybar differs from it by no more than
        rho/2 times the mean square of the distances.
        """
        epoch, now, space = memory.epoch, memory.learned, oracle.space
        k, eta = epoch.k, now.step_size
        epoch.mean_due = 2.0 * k
        middle = oracle.gradient(epoch.mean)
        events: Events = ()
        if not middle.has_finite_gradient:
            events = (Event(EventKind.NON_FINITE, middle.grad_norm),)
        elif epoch.spread > 0.0:
            noise = NOISE * space.rounding * space.norm(epoch.mean) / eta
            gap = middle.grad_norm - k * math.sqrt(moved) / epoch.weight - noise
            proven = 2 * gap * eta * (eta * epoch.weight / epoch.spread)
            if proven > now.sharpness:
                memory.learned = dataclasses.replace(now, sharpness=proven)
            sample = smallest_gradient(sample, middle)
        return memory.as_step(sample, eta, events)

    def _ended(self, oracle: Oracle, memory: FreeMemory, sample: Sample) -> Step[FreeMemory]:
        """The restart rule: keep the end of the epoch if it is low enough."""
        epoch, now, k = memory.epoch, memory.learned, memory.epoch.k
        value = self._value(oracle, epoch.x)
        if not math.isfinite(value):
            return self._not_finite(oracle, memory, sample, epoch.x)
        if not self._low_enough(oracle, memory, epoch.x, value):
            return self._discarded(oracle, memory, sample)
        price = (memory.start.value - value) / k
        if 0.0 < price < now.price:
            now = dataclasses.replace(now, price=price)
        now = dataclasses.replace(now, paid=now.paid + k)
        return self._accepted(oracle, memory, sample, now)

    def _ended_early(self, oracle: Oracle, memory: FreeMemory, sample: Sample) -> Step[FreeMemory]:
        """The momentum leads uphill: end the epoch here, if that is paid for."""
        epoch, now, k = memory.epoch, memory.learned, memory.epoch.k
        eta, q = now.step_size, now.sharpness
        value = self._value(oracle, epoch.x)
        if self._low_enough(oracle, memory, memory.epoch.x, value):
            # That of a full epoch of k iterations, or of the poorest so far.
            price = min(now.price, DECREASE * RESTART * eta * (RESTART / q) / q / k**7)
            most = now.paid + ALLOWANCE
            if now.lost <= most and (memory.start.value - value) / k >= price:
                now = dataclasses.replace(now, paid=now.paid + k)
            elif now.lost + k <= most:
                now = dataclasses.replace(now, lost=now.lost + k)
            elif (norm := oracle.gradient(epoch.x).grad_norm) <= now.mark / 2:
                now = dataclasses.replace(now, paid=now.paid + k, mark=norm)
            if now is not memory.learned:
                return self._accepted(oracle, memory, sample, now)
        epoch.early_due = math.ceil(AGAIN * k)
        return memory.as_step(sample, eta)

    def _too_long(self, oracle: Oracle, memory: FreeMemory, sample: Sample) -> Step[FreeMemory]:
        """The gradient after the first step says that the step was too long."""
        half = dataclasses.replace(memory.learned, step_size=memory.learned.step_size / 2)
        value = self._value(oracle, memory.epoch.x)
        if self._low_enough(oracle, memory, memory.epoch.x, value):
            return self._accepted(oracle, memory, sample, half, eased=False)
        return self._back(oracle, memory, sample, half)

    def _discarded(self, oracle: Oracle, memory: FreeMemory, sample: Sample) -> Step[FreeMemory]:
        """Back to x^0 with half of the step, and q such that half as many iterations end it."""
        epoch, now = memory.epoch, memory.learned
        eta, k = now.step_size / 2, epoch.k
        q = 2 * now.sharpness
        if k > 2:
            q = max(q, RESTART * eta / ((k / 2) ** 2.5 * math.sqrt(epoch.travelled)))
        now = dataclasses.replace(now, step_size=eta, most=eta, sharpness=q, lost=now.lost + k)
        return self._back(oracle, memory, sample, now)

    def _not_finite(
        self, oracle: Oracle, memory: FreeMemory, sample: Sample, bad: Array
    ) -> Step[FreeMemory]:
        """Half of the step, from the last good point if it is low enough: the wall is near it."""
        epoch, half = memory.epoch, memory.learned.step_size / 2
        walls = memory.learned.walls + 1
        now = dataclasses.replace(memory.learned, step_size=half, most=half, walls=walls)
        good = epoch.x_prev if bad is epoch.x else epoch.x
        if good is memory.start.point:
            return self._back(oracle, memory, sample, now)
        if not self._low_enough(oracle, memory, good, self._value(oracle, good)):
            return self._back(oracle, memory, sample, now)
        event = Event(EventKind.NON_FINITE, sample.grad_norm)
        return self._accepted(oracle, memory, sample, now, event, eased=False)

    def _back(
        self, oracle: Oracle, memory: FreeMemory, sample: Sample, now: Learned
    ) -> Step[FreeMemory]:
        """A new epoch from the start of this one."""
        epoch, start = memory.epoch, memory.start
        # After a first step the gradient at x^0 is still there.
        last = epoch.last
        oracle.recall(start if last is None or last.point is not start.point else last)
        events: Events = (Event(EventKind.ROLLBACK, float(epoch.k)),)
        ending = None
        if not sample.has_finite_gradient:
            events = (Event(EventKind.NON_FINITE, sample.grad_norm), *events)
            if sample.point is start.point:
                ending = Ending(
                    Status.NON_FINITE,
                    "the objective was lower at the last accepted point, but its gradient there is "
                    "not finite; no smaller step helps: check jac at result.best_x and around it",
                    {"grad_norm": sample.grad_norm, "step_size": now.step_size},
                )
        fresh = FreeEpoch.at(start.point)
        after = FreeMemory(fresh, now, start, memory.start_norm, memory.limit)
        return after.as_step(sample, memory.learned.step_size, events, ending)

    def _accepted(
        self,
        oracle: Oracle,
        memory: FreeMemory,
        sample: Sample,
        now: Learned,
        *events: Event,
        eased: bool = True,
    ) -> Step[FreeMemory]:
        """A new epoch from the point whose value was asked for last."""
        if eased:
            # Where walls are met again and again, the step may not come back each time.
            most = now.most * WIDENED ** (1 / (1 + now.walls))
            q = max(now.sharpness / EASED, SMALLEST)
            now = dataclasses.replace(now, most=most, sharpness=q)
        known = oracle.last
        assert known is not None
        after = self._at_start(oracle, known, now)
        after.start_norm = memory.start_norm
        events += (Event(EventKind.RESTART, float(memory.epoch.k)),)
        return after.as_step(sample, memory.learned.step_size, events)

    def _value(self, oracle: Oracle, x: Array) -> float:
        """f(x), NaN where a gradient that came along is not finite."""
        value, known = oracle.value(x), oracle.last
        if known is not None and known.gradient is not None and not known.has_finite_gradient:
            return math.nan
        return value

    def _low_enough(self, oracle: Oracle, memory: FreeMemory, x: Array, value: float) -> bool:
        """Is f(x) <= f(x^0) - DECREASE S/(eta k)?  Within rounding the gradients decide."""
        epoch, before = memory.epoch, memory.start.value
        required = DECREASE * epoch.travelled / (memory.learned.step_size * epoch.k)
        if not math.isfinite(value):
            return False
        if value - before <= -required:
            return True
        noise = oracle.space.value_noise(before)
        level = required <= SIGNAL * noise and abs(value - before) <= noise
        return level and oracle.gradient(x).grad_norm < memory.start_norm


def _at_rounding(norm: float, step_size: float) -> Ending:
    """A first step does not move x, and nor would a shorter one."""
    if norm == 0.0:
        return zero_gradient(step_size)
    return no_progress(
        f"rounding is reached: a step of size {step_size:.3g} does not move x, and no longer one "
        f"was accepted, at gradient norm {norm:.3g}",
        grad_norm=norm,
        step_size=step_size,
    )


def _bend(space: Space, sample: Sample, last: Sample) -> float:
    """|grad f(y) - grad f(y')|/|y - y'|, a lower bound of L."""
    distance = space.distance(sample.point, last.point)
    return space.distance(sample.gradient, last.gradient) / distance if distance else 0.0


def _climbs(space: Space, sample: Sample, x_next: Array, x: Array) -> bool:
    """Does the step lead uphill, to judge by the gradient?"""
    return space.inner(sample.gradient, space.combination(x_next, -1.0, x)) > 0.0
