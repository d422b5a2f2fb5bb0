"""Restarted momentum with nothing given: the paper's restart rule without eps, L and rho.

Put theta = 1/k and the eps that belongs to it into the rule k S > B^2 of Algorithms 1 and 3: it
becomes k^(5/2) rho S^(1/2) > c/eta, in which there is no eps.  What stands for L and rho is
learned on the way.  docs/adaptive.md says what is proven.
"""

from __future__ import annotations

import dataclasses
import math

from momentous.core.oracle import Oracle, Sample
from momentous.core.passes import GRADIENT_AND_POINT
from momentous.core.record import copied, record
from momentous.core.space import Array, Space
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.core.step import Report, RiseLimit, Step
from momentous.methods.endings import Events, no_progress, zero_gradient
from momentous.methods.restarted.momentum import Momentum
from momentous.methods.search.backtracking import SIGNAL, limited
from momentous.methods.search.probe import probed_lipschitz
from momentous.methods.search.rounding import NOISE, smallest_gradient

# Chosen on one half of the problems of testbed.suite; none of them is critical.
RESTART = 64.0  # c of the restart rule
DECREASE = 0.05  # an epoch must lower f by this times S/(eta k)
LONGEST = 1.0  # eta |g - g'|/|y - y'| above this: the step is too long ...
SHORTENED = 0.7  # ... and becomes this much of what would do
SHORTEST = 1 / 64  # an epoch ends where its step is this much shorter than it was in it
GROWTH = 1.2
CANCELLED = 1e-12  # a difference of squares this much smaller than they are says nothing
EASED = 3.0  # q after an epoch that has paid is divided by this
WIDENED = 2.0  # the largest step allowed is multiplied by this
AGAIN = 1.5  # an early end that was refused is asked for again so many times later
ALLOWANCE = 500  # iterations that epochs may take in all which end early and have not paid
SMALLEST = 1e-300  # q is above 0
STANDSTILL = 2.0**-10  # a first step of this many units of rounding of x is none
LOOKS = 4  # the mean is looked at in iterations 4, 16, 64, ... or after, ...
FLAT = 4.0  # ... where |v|^2 <= FLAT S/k


@record
class FreeEpoch:
    """Where an epoch stands after k of its iterations; v_k = x^k - x^{k-1}."""

    x: Array  # x^k
    x_prev: Array  # x^{k-1}
    points: Array  # sum of (t + 1) eta_t/eta_0 y^t, t < k
    gradient: Array = None  # g_{k-1}
    grad_norm: float = math.nan  # |g_{k-1}|
    k: int = 0
    moved: float = 0.0  # |v_k|^2
    slope: float = 0.0  # <g_{k-1}, v_k>
    travelled: float = 0.0  # S, the sum of the |v_t|^2
    first_step: float = 0.0  # eta_0
    weight: float = 0.0  # W = sum of (t + 1) eta_t/eta_0
    path: float = 0.0  # the length of the way y^0, y^1, .., y^{k-1}
    mean_path: float = 0.0  # the mean of that length up to y^t, with the weights of W
    spread: float = 0.0  # W times its variance, no less than that of the y^t
    mean_due: int = LOOKS  # the iteration from which on the mean is looked at again
    early_due: int = 1  # ... and from which on the epoch may end early
    curvature: float = math.nan  # |g - g'|/|y - y'| in the last iteration ...
    curvature_prev: float = math.nan  # ... and in the one before

    @staticmethod
    def at(x: Array) -> FreeEpoch:
        """A fresh epoch: x^{-1} = x^0 = x."""
        return FreeEpoch(x=x, x_prev=x, points=x)

    def share(self, eta: float) -> float:
        """The weight of the next point in the mean, k > 0; of the first one it is 1."""
        return (self.k + 1) * (eta / self.first_step)

    def advanced(
        self, sample: Sample, x_next: Array, moved: float, points: Array, eta: float, apart: float,
        curvature: float,
    ) -> FreeEpoch:  # fmt: skip
        """The same after one more iteration, at a sample that is ``apart`` from the one before."""
        k, norm = self.k + 1, sample.grad_norm
        first, weight, path, mean_path, spread = eta, 1.0, 0.0, 0.0, 0.0
        if k > 1:
            first, share = self.first_step, self.share(eta)
            weight = self.weight + share
            path = self.path + apart
            ahead = path - self.mean_path
            mean_path = self.mean_path + share / weight * ahead
            spread = self.spread + share * ahead * (path - mean_path)
        # beta v_k = v_{k+1} + eta g: the three squares give the product of the last two.
        beta, step = self.k / k, eta * norm
        slope = (beta * beta * self.moved - moved - step * step) / (2 * eta)
        return FreeEpoch(
            x_next, self.x, points, sample.gradient, norm, k, moved, slope,
            self.travelled + moved, first, weight, path, mean_path, spread,
            self.mean_due, self.early_due, curvature, self.curvature,
        )  # fmt: skip


@record
class Learned:
    """What outlives an epoch."""

    step_size: float  # eta
    most: float  # the step may not grow beyond this
    sharpness: float  # q = eta^2 rho'
    norm_at_last_halving: float  # the gradient norm when its halving last allowed an early end
    longest_since_paid: float  # eta at its longest since an epoch has paid
    iterations_unpaid: int = 0  # of epochs that ended early and have not paid
    walls: int = 0  # how often something was not finite
    longest: float = 0.0  # eta at its longest in this epoch


@record
class FreeMemory:
    """The epoch under way, what was learned, and what its decrease is measured against."""

    epoch: FreeEpoch
    learned: Learned
    start: Sample  # x^0, the last accepted point; its gradient is known from the first step on
    limit: RiseLimit  # for an end within the epoch: if it has climbed, it would be discarded

    def as_step(
        self, sample: Sample, step_size: float, events: Events = (), ending: Ending | None = None
    ) -> Step[FreeMemory]:
        """The step that led here."""
        report = Report(sample, step_size, events, ending, self.start, 0.0, self.limit)
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
            eta, most=math.inf, sharpness=1 / norm if norm else 1.0, norm_at_last_halving=norm,
            longest_since_paid=eta,
        )  # fmt: skip
        return self._at_start(oracle, sample.point, learned).as_step(sample, eta)

    def moved_to(self, oracle: Oracle, memory: FreeMemory, sample: Sample) -> Step[FreeMemory]:
        """On at another point with what was learned."""
        oracle.recall(sample)
        after = self._at_start(oracle, sample.point, memory.learned)
        return after.as_step(sample, memory.learned.step_size)

    def _at_start(self, oracle: Oracle, x: Array, learned: Learned) -> FreeMemory:
        """The memory at the start of an epoch, whose value is asked for if it is not known."""
        value, start = oracle.value(x), oracle.last
        assert start is not None
        limit = RiseLimit(start, allowance=oracle.space.value_noise(value))
        return FreeMemory(FreeEpoch.at(x), _afresh(learned), start, limit)

    def step(self, oracle: Oracle, memory: FreeMemory) -> Step[FreeMemory]:
        """One iteration: one gradient, and now and then one of the mean or a value."""
        epoch, now, space, start = memory.epoch, memory.learned, oracle.space, memory.start
        k, theta = epoch.k + 1, 1 / (epoch.k + 1)
        y = self.scheme.asked(space, epoch.x, epoch.x_prev, theta)
        eta, apart, curvature = now.step_size, 0.0, math.nan
        trusted, along, made, moved = math.nan, None, (), math.nan
        if space.fuses and k > 1:
            # One pass with the step size that is expected; with another one, one more.
            trusted = self._expected(epoch, now, k)
            sample, along, made, moved = self.scheme.looked(
                oracle, y, epoch.gradient, epoch.x, epoch.x_prev, trusted, k, epoch.points,
                epoch.share(trusted),
            )  # fmt: skip
        else:
            sample = oracle.gradient(y)
        if not sample.has_finite_gradient:
            return self._not_finite(oracle, memory, sample, sample.point)
        if k > 1:
            step = eta * epoch.grad_norm
            apart = self.scheme.apart(theta, epoch.moved, eta * epoch.slope, step)
            bend = eta * _change(space, sample, epoch, along) / apart if apart else 0.0
            curvature = bend / eta
            if bend > LONGEST and k == 2:
                return self._too_long(oracle, memory, sample)
            if bend > LONGEST or (eta < now.most and bend < self.scheme.roomy(k)):
                now = self._with_other_step(space, now, sample, k, bend)
                eta = now.step_size
                if eta < SHORTEST * now.longest:
                    return self._far_too_long(oracle, memory, sample, now)
        points = epoch.points
        if k == 1:
            x_next, moved, size = self.scheme.first(space, epoch.x, sample.gradient, eta)
        elif eta == trusted:
            x_next, moved, points = self.scheme.taken(space, epoch.x, k, made, moved)
        else:
            del made  # make room
            x_next, moved, points = self.scheme.stepped(
                space, epoch.x, epoch.x_prev, sample, eta, k, points, epoch.share(eta)
            )
        if not math.isfinite(epoch.travelled + moved):
            return self._not_finite(oracle, memory, sample, x_next)
        if k == 1:
            if math.sqrt(moved) <= STANDSTILL * space.rounding * size:
                return memory.as_step(sample, eta, ending=_at_rounding(sample.grad_norm, eta))
            sample.value, start = start.value, sample
        reached = epoch.advanced(sample, x_next, moved, points, eta, apart, curvature)
        after = FreeMemory(reached, now, start, memory.limit)
        full = not k**2.5 * now.sharpness * math.sqrt(reached.travelled) <= RESTART * eta
        if full or moved == 0.0:  # x does not move any more: there is nothing to wait for
            return self._ended(oracle, after, sample)
        if reached.slope > 0.0 and k >= epoch.early_due:
            return self._ended_early(oracle, memory, after, sample)
        if k >= epoch.mean_due and moved * k <= FLAT * reached.travelled:
            return self._looked_at_mean(oracle, after, sample)
        return after.as_step(sample, eta)

    def _expected(self, epoch: FreeEpoch, now: Learned, k: int) -> float:
        """The step size that iteration k will most likely have."""
        eta, curvature = now.step_size, self.scheme.outlook(epoch.curvature, epoch.curvature_prev)
        if eta * curvature < self.scheme.roomy(k):
            return max(eta, min(self.scheme.growth(k) * eta, now.most))
        return eta

    def _with_other_step(
        self, space: Space, now: Learned, sample: Sample, k: int, bend: float
    ) -> Learned:
        """A shorter step where it is too long, or a longer one."""
        now, eta = copied(now), now.step_size
        if bend > LONGEST:
            _change_step(now, eta * (SHORTENED * max(LONGEST / bend, 0.5)))
            return now
        growth = self.scheme.growth(k)
        if growth * bend > SHORTENED:
            growth = SHORTENED / bend
        longest = min(now.most, limited(space, math.inf, sample.grad_norm))
        _change_step(now, max(eta, min(growth * eta, longest)))
        now.longest = max(now.longest, now.step_size)
        return now

    def _looked_at_mean(
        self, oracle: Oracle, memory: FreeMemory, sample: Sample
    ) -> Step[FreeMemory]:
        """rho' becomes at least what the gradient at ybar proves of rho.

        The mean of the gradients is k |v|/(eta_0 W) long, and that at ybar differs from it by no
        more than rho/2 times the mean square of the distances.
        """
        epoch, now, space = memory.epoch, memory.learned, oracle.space
        k, eta = epoch.k, now.step_size
        epoch.mean_due = LOOKS * k
        mean = space.weighted_sum((1 / epoch.weight,), (epoch.points,))
        middle, size = self._with_size(oracle, mean)
        events: Events = ()
        if not middle.has_finite_gradient:
            events = (Event(EventKind.NON_FINITE, middle.grad_norm),)
        elif epoch.spread > 0.0:
            noise = NOISE * space.rounding * size / eta
            of_gradients = k * math.sqrt(epoch.moved) / (epoch.first_step * epoch.weight)
            gap = middle.grad_norm - of_gradients - noise
            proven = 2 * gap * eta * (eta * epoch.weight / epoch.spread)
            if proven > now.sharpness:
                memory.learned = dataclasses.replace(now, sharpness=proven)
            sample = smallest_gradient(sample, middle)
        return memory.as_step(sample, eta, events)

    def _with_size(self, oracle: Oracle, x: Array) -> tuple[Sample, float]:
        """The sample at x, and |x|."""
        space = oracle.space
        if not space.fuses:
            return oracle.gradient(x), space.norm(x)
        sample, _, (square,) = oracle.gradient_with(x, GRADIENT_AND_POINT, (x,))
        return sample, space.norm_from(square, x)

    def _ended(self, oracle: Oracle, memory: FreeMemory, sample: Sample) -> Step[FreeMemory]:
        """The restart rule: keep the end of the epoch if it is low enough."""
        epoch = memory.epoch
        value = self._value(oracle, epoch.x)
        if not math.isfinite(value):
            return self._not_finite(oracle, memory, sample, epoch.x)
        if not self._low_enough(oracle, memory, epoch.x, value):
            return self._discarded(oracle, memory, sample)
        return self._accepted(oracle, memory, sample, _ease(memory.learned))

    def _ended_early(
        self, oracle: Oracle, before: FreeMemory, memory: FreeMemory, sample: Sample
    ) -> Step[FreeMemory]:
        """The momentum leads uphill: end the epoch here, if that is paid for."""
        epoch, last, now, k = memory.epoch, before.epoch, memory.learned, memory.epoch.k
        eta = now.step_size
        # <g_{k-1}, v_{k-1}>, from <g_{k-1}, v_k>
        climb = (epoch.slope + eta * epoch.grad_norm * epoch.grad_norm) * k / last.k
        end = self.scheme.turning_point(
            oracle.space, epoch.x, last.x, last.x_prev, climb, last.slope
        )
        granted = self._granted(oracle, memory, now, end)
        if granted is not None:
            return self._accepted(oracle, memory, sample, granted)
        epoch.early_due = math.ceil(AGAIN * k)
        return memory.as_step(sample, eta)

    def _granted(
        self, oracle: Oracle, memory: FreeMemory, now: Learned, end: Array
    ) -> Learned | None:
        """What is known after an epoch that ends early at a point; None if it may not."""
        k, eta, q = memory.epoch.k, now.step_size, now.sharpness
        value = self._value(oracle, end)
        if not self._low_enough(oracle, memory, end, value):
            return None
        # That of a full epoch of k iterations with the present q.
        min_decrease_rate = DECREASE * RESTART * eta * (RESTART / q) / q / k**7
        if (memory.start.value - value) / k >= min_decrease_rate:
            return _ease(now)
        if (unpaid := now.iterations_unpaid + k) <= ALLOWANCE:
            return dataclasses.replace(now, iterations_unpaid=unpaid)
        if (norm := oracle.gradient(end).grad_norm) <= now.norm_at_last_halving / 2:
            return dataclasses.replace(now, norm_at_last_halving=norm)
        return None

    def _too_long(self, oracle: Oracle, memory: FreeMemory, sample: Sample) -> Step[FreeMemory]:
        """The gradient after the first step says that the step was too long."""
        x, half = memory.epoch.x, copied(memory.learned)
        _change_step(half, half.step_size / 2)
        if self._low_enough(oracle, memory, x, self._value(oracle, x)):
            return self._accepted(oracle, memory, sample, half, widened=False)
        return self._back(oracle, memory, sample, half)

    def _far_too_long(
        self, oracle: Oracle, memory: FreeMemory, sample: Sample, now: Learned
    ) -> Step[FreeMemory]:
        """The step ``now`` is so short that momentum must have led to quite another place."""
        granted = self._granted(oracle, memory, now, memory.epoch.x)
        if granted is not None:
            return self._accepted(oracle, memory, sample, granted, widened=False)
        # What is too long here says little of x^0.
        _change_step(now, now.longest / 4)
        now.longest = now.step_size
        return self._discarded(oracle, dataclasses.replace(memory, learned=now), sample)

    def _discarded(self, oracle: Oracle, memory: FreeMemory, sample: Sample) -> Step[FreeMemory]:
        """Back to x^0, with a q such that half as many iterations end it.

        The step is halved only if the epoch has shown that it was too long: by |g - g'|, or
        because a mere gradient step has not lowered f enough.
        """
        epoch, now, k = memory.epoch, copied(memory.learned), memory.epoch.k
        if k == 1 or now.longest > now.step_size:
            _change_step(now, now.step_size / 2)
        eta = now.most = now.step_size
        now.sharpness *= 2
        if k > 2:
            shorter = RESTART * eta / ((k / 2) ** 2.5 * math.sqrt(epoch.travelled))
            now.sharpness = max(now.sharpness, shorter)
        return self._back(oracle, memory, sample, now)

    def _not_finite(
        self, oracle: Oracle, memory: FreeMemory, sample: Sample, bad: Array
    ) -> Step[FreeMemory]:
        """Half of the step, from the last good point if it is low enough: the wall is near it."""
        epoch, now = memory.epoch, copied(memory.learned)
        _change_step(now, now.step_size / 2)
        now.most, now.walls = now.step_size, now.walls + 1
        good = epoch.x_prev if bad is epoch.x else epoch.x
        if good is memory.start.point:
            return self._back(oracle, memory, sample, now)
        if not self._low_enough(oracle, memory, good, self._value(oracle, good)):
            return self._back(oracle, memory, sample, now)
        event = Event(EventKind.NON_FINITE, sample.grad_norm)
        return self._accepted(oracle, memory, sample, now, event, widened=False)

    def _back(
        self, oracle: Oracle, memory: FreeMemory, sample: Sample, now: Learned
    ) -> Step[FreeMemory]:
        """A new epoch from the start of this one."""
        epoch, start = memory.epoch, memory.start
        oracle.recall(start)
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
        after = FreeMemory(FreeEpoch.at(start.point), _afresh(now), start, memory.limit)
        return after.as_step(sample, memory.learned.step_size, events, ending)

    def _accepted(
        self,
        oracle: Oracle,
        memory: FreeMemory,
        sample: Sample,
        now: Learned,
        *events: Event,
        widened: bool = True,
    ) -> Step[FreeMemory]:
        """A new epoch from the point whose value was asked for last."""
        if widened:
            # Where walls are met again and again, the step may not come back each time.
            now = copied(now)
            now.most *= WIDENED ** (1 / (1 + now.walls))
        known = oracle.last
        assert known is not None
        after = self._at_start(oracle, known.point, now)
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
        return level and oracle.gradient(x).grad_norm < memory.start.grad_norm


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


def _afresh(now: Learned) -> Learned:
    """The same at the start of an epoch."""
    now = copied(now)
    now.longest = now.step_size
    return now


def _ease(now: Learned) -> Learned:
    """The same after an epoch that has paid: q may have been larger than it must be."""
    q = max(now.sharpness / EASED, SMALLEST)
    return dataclasses.replace(now, sharpness=q, longest_since_paid=now.step_size)


def _change_step(now: Learned, eta: float) -> None:
    """Set eta.  rho' = q/eta^2 stays; q stays while eta is longer than since an epoch last paid.

    If growth kept q and shrinking kept rho', a step that went up and down would let q fall
    without end, and epochs would become ever longer.
    """
    ratio = min(eta, now.longest_since_paid) / now.step_size
    now.sharpness = max(now.sharpness * ratio * ratio, SMALLEST)
    now.step_size, now.longest_since_paid = eta, max(eta, now.longest_since_paid)


def _change(space: Space, sample: Sample, epoch: FreeEpoch, along: float | None) -> float:
    """|g_k - g_{k-1}|, from the norms and one product (``along``, if known) where these tell."""
    norm, before = sample.grad_norm, epoch.grad_norm
    squares = norm * norm + before * before
    if along is None:
        along = space.inner(sample.gradient, epoch.gradient)
    square = squares - 2 * along
    if CANCELLED * squares < square < math.inf:
        return math.sqrt(square)
    return space.distance(sample.gradient, epoch.gradient)
