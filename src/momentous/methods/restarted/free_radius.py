"""Restarted momentum with nothing given: the paper's restart rule without eps, L and rho.

Put theta = 1/k and the eps that belongs to it into the rule k S > B^2 of Algorithms 1 and 3: it
becomes k^(5/2) rho S^(1/2) > c/eta, in which there is no eps.  What stands for L and rho is
learned on the way.  docs/adaptive.md says what is proven.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

from momentous.core.machine import Machine
from momentous.core.oracle import Sample
from momentous.core.passes import Pass, weighted_sum
from momentous.core.record import record
from momentous.core.rule import (
    BOTH,
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
from momentous.core.space import Array
from momentous.core.status import Ending, EventKind, Status
from momentous.core.step import RiseLimit
from momentous.methods.endings import no_progress, zero_gradient
from momentous.methods.restarted.momentum import Momentum
from momentous.methods.search.backtracking import SIGNAL
from momentous.methods.search.probe import Probe
from momentous.methods.search.rounding import NOISE

# What an evaluation is for.
ITERATE = 0  # the next iteration
MEAN = 1  # the gradient at the mean of the epoch's points, which may prove rho' too small
PROBE = 2  # a point near x0, to find the step size
# The value where an epoch may end, and the gradient there if it has to decide:
END = 3  # the restart rule has ended it at x
EARLY = 4  # the momentum leads uphill
LONG = 5  # the first step was too long: keep where it led?
FAR = 6  # the step has become far too short: keep where the epoch has led?
GOOD = 7  # the last good point before something was not finite


@dataclasses.dataclass(frozen=True)
class Constants:
    """Chosen on one half of the problems of `testbed.suite`; none of them is critical."""

    restart: float = 64.0  # c of the restart rule
    decrease: float = 0.05  # an epoch must lower f by this times S/(eta k)
    longest: float = 1.0  # b = eta |g - g'|/|y - y'| above this: the step is too long ...
    shortened: float = 0.7  # ... and becomes this much of what would do
    shortest: float = 1 / 64  # an epoch ends where eta is this much shorter than it was in it
    cancelled: float = 1e-12  # a difference of squares this much smaller than they are says nothing
    eased: float = 3.0  # q after an epoch that has paid is divided by this
    widened: float = 2.0  # the largest step allowed is multiplied by this
    again: float = 1.5  # an early end that was refused is asked for again so many times later
    allowance: int = 500  # iterations of all epochs that ended early and have not paid
    standstill: float = 2.0**-10  # a first step of this many units of rounding of x is none
    looks: int = 4  # the mean is looked at in iterations 4, 16, 64, ... or after, ...
    flat: float = 4.0  # ... where |v|^2 <= this times S/k


@record
class FreeEpoch:
    """Where an epoch stands after k of its iterations; v_k = x^k - x^{k-1}."""

    x: Array  # x^k
    x_prev: Array  # x^{k-1}
    points: Array  # sum of (t + 1) eta_t/eta_0 y^t, t < k; x^0 for k = 0
    gradient: Array  # g_{k-1}; any vector for k = 0
    first_step: float  # eta_0
    expected_step: float  # what the next eta is expected to be, where a pass is made with it
    mean_due: int  # the iteration from which on the mean is looked at again
    early_due: int = 1  # ... and from which on the epoch may end early
    grad_norm: float = 0.0  # |g_{k-1}|
    k: int = 0
    moved: float = 0.0  # |v_k|^2
    slope: float = 0.0  # <g_{k-1}, v_k>
    travelled: float = 0.0  # S, the sum of the |v_t|^2
    weight: float = 1.0  # W = sum of (t + 1) eta_t/eta_0, t < k, that of y^0 included
    path: float = 0.0  # the length of the way y^0, y^1, .., y^{k-1}
    mean_path: float = 0.0  # the mean of that length up to y^t, with the weights of W
    spread: float = 0.0  # W times its variance, no less than that of the y^t
    curvature: float = math.nan  # |g - g'|/|y - y'| in the last iteration

    @staticmethod
    def at(x: Array, gradient: Array, eta: Any, mean_due: int) -> FreeEpoch:
        """A fresh epoch: x^{-1} = x^0 = x."""
        return FreeEpoch(x, x, x, gradient, eta, eta, mean_due)

    def share(self, m: Machine, eta: Any) -> Any:
        """The weight of the next point in the mean, besides that of y^0."""
        return m.where(self.k > 0, (self.k + 1) * (eta / self.first_step), 0.0)


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

    def with_step(self, m: Machine, eta: Any) -> Learned:
        """rho' = q/eta^2 stays; q stays while eta is longer than since an epoch last paid.

        If growth kept q and shrinking kept rho', a step that went up and down would let q fall
        without end, and epochs would become ever longer.
        """
        ratio = m.minimum(eta, self.longest_since_paid) / self.step_size
        return Learned(
            eta, self.most, m.maximum(self.sharpness * ratio * ratio, m.smallest**2),
            self.norm_at_last_halving, m.maximum(eta, self.longest_since_paid),
            self.iterations_unpaid, self.walls, m.maximum(self.longest, eta),
        )  # fmt: skip

    def halved(self, m: Machine) -> Learned:
        """Where something was not finite."""
        half = self.with_step(m, self.step_size / 2)
        return m.but(half, most=half.step_size, walls=half.walls + 1)


@record
class FreeMemory:
    """The epoch under way, what was learned, and what its decrease is measured against."""

    epoch: FreeEpoch
    learned: Learned
    outcome: Outcome
    limit: RiseLimit  # x^0, the last accepted point: if an epoch has climbed, it is discarded
    point: Array  # where the next evaluation is
    again: bool = False  # was the last one there, too?
    phase: int = ITERATE
    need: int = GRADIENT  # what it is to bring: a pass comes with it only where that is best
    required: float = 0.0  # the decrease of f that an end of the epoch must have brought
    probe_distance: float = 0.0  # of the probe under way
    probe_trials: int = 0

    @property
    def start(self) -> Sample:
        return self.limit.reference


@dataclasses.dataclass(frozen=True)
class FreeRadius(Rule[FreeMemory]):
    """The rule, around one of the two momentum iterations, with 1 - theta = k/(k + 1)."""

    scheme: Momentum
    constants: Constants = Constants()

    @property
    def work(self) -> Pass:  # type: ignore[override]
        return self.scheme.free_work

    def begin(self, m: Machine, here: Sample, goal: Goal) -> FreeMemory:
        """The first step: its size comes from one extra gradient, and q = 1/|grad f(x0)|."""
        norm = here.grad_norm
        q = m.where(norm > 0.0, 1 / m.where(norm > 0.0, norm, 1.0), 1.0)
        learned = Learned(1.0, math.inf, q, norm, 1.0)
        memory = FreeMemory(
            FreeEpoch.at(here.point, here.gradient, 1.0, self.constants.looks), learned,
            Outcome(1.0, m.no_events), RiseLimit(here), here.point,
        )  # fmt: skip
        return self._probe(m, memory, Probe.at(m, here))

    def _probe(self, m: Machine, memory: FreeMemory, probe: Probe) -> FreeMemory:
        """The next trial, until the step size is known."""

        def ask() -> FreeMemory:
            return m.but(
                memory,
                point=probe.point(m, memory.start.point),
                outcome=Outcome(1.0, m.no_events, shows=False, ended=False),
                phase=PROBE,
                probe_distance=probe.distance,
                probe_trials=probe.trials,
            )

        def go() -> FreeMemory:
            eta = 1 / probe.lipschitz
            learned = m.but(memory.learned, step_size=eta, longest_since_paid=eta)
            return self._new_epoch(m, memory, memory.start, learned, eta, m.no_events)

        return m.case(memory, (probe.found, go), otherwise=ask)

    def move(self, m: Machine, memory: FreeMemory, here: Sample, goal: Goal) -> FreeMemory:
        now = memory.learned
        return self._new_epoch(m, memory, here, now, now.step_size, m.no_events, again=True)

    def accepted(self, memory: FreeMemory) -> Sample:
        return memory.limit.reference

    def rise_limit(self, m: Machine, memory: FreeMemory, shown: Sample) -> RiseLimit:
        return memory.limit

    def ask(self, m: Machine, memory: FreeMemory) -> Ask:
        """One gradient per iteration, and now and then one of the mean or a value."""
        epoch, need, iterates = memory.epoch, memory.need, memory.phase == ITERATE
        vectors: Vectors = ()
        numbers: tuple[Any, ...] = ()
        if m.fuses:
            eta, need = epoch.expected_step, m.where(iterates, STEP, need)
            vectors, numbers = self.scheme.free_given(
                epoch, memory.point, epoch.k + 1, eta, epoch.share(m, eta)
            )
        return Ask(memory.point, need, memory.again, memory.limit.reference, vectors, numbers)

    def tell(
        self, m: Machine, memory: FreeMemory, here: Sample, made: Vectors, sums: Sums
    ) -> FreeMemory:
        return m.switch(memory, m.minimum(memory.phase, END), self._phases, here, made, sums)

    @cached_property
    def _phases(self) -> tuple[Callable[..., FreeMemory], ...]:
        """What is made of an evaluation, by what it is for."""
        return self._iterated, self._mean_known, self._probed, self._end_known

    def _probed(self, m: Machine, memory: FreeMemory, here: Sample, *_: Any) -> FreeMemory:
        start = memory.start
        probe = Probe(start.gradient, start.grad_norm, memory.probe_distance, memory.probe_trials)
        return self._probe(m, memory, probe.answered(m, start.point, here))

    def _iterated(
        self, m: Machine, memory: FreeMemory, here: Sample, made: Vectors, sums: Sums
    ) -> FreeMemory:
        c, scheme, epoch, before = self.constants, self.scheme, memory.epoch, memory.learned
        k, norm, eta = epoch.k + 1, here.grad_norm, before.step_size
        # The step size, by what the gradients show.
        step = eta * epoch.grad_norm
        apart = scheme.distance_apart(m, epoch.k, epoch.moved, eta * epoch.slope, step)
        change = self._change(m, epoch, here, sums, apart > 0.0)
        bend = eta * change / m.maximum(apart, m.tiny)
        is_known = m.isfinite(norm)
        too_long = (bend > c.longest) & is_known
        grows = (eta < before.most) & (bend < scheme.growth_threshold(m, k)) & (epoch.k > 0)
        now = m.case(
            before,
            (grows, lambda: self._longer(m, before, norm, k, bend)),
            (too_long, lambda: self._shorter(m, before, bend)),
        )
        eta = now.step_size
        share = epoch.share(m, eta)
        # The step.
        if not made or eta != epoch.expected_step:
            vectors, numbers = scheme.free_given(epoch, memory.point, k, eta, share)
            made, sums = m.run(scheme.free_work, (here.gradient, *vectors), numbers, 2)
        x_next, y_next, points = scheme.free_made(*made)
        moved = sums[-1]
        # Where the epoch stands then.
        weight, path = epoch.weight + share, epoch.path + apart
        ahead = path - epoch.mean_path
        mean_path = epoch.mean_path + share / weight * ahead
        travelled = epoch.travelled + moved
        # beta v_k = v_{k+1} + eta g: the three squares give the product of the last two.
        beta, step = epoch.k / k, eta * norm
        slope = (beta * beta * epoch.moved - moved - step * step) / (2 * eta)
        expected, curvature = eta, math.nan
        if m.fuses:
            curvature = m.where(epoch.k > 0, bend / before.step_size, math.nan)
            expected = self._expected_step(m, now, k + 1, curvature, epoch.curvature)
        reached = FreeEpoch(
            x_next, epoch.x, points, here.gradient, epoch.first_step, expected,
            epoch.mean_due, epoch.early_due, norm, k, moved, slope, travelled, weight, path,
            mean_path, epoch.spread + share * ahead * (path - mean_path), curvature,
        )  # fmt: skip
        limit = memory.limit
        if limit.reference.gradient is None:  # it is known now
            limit = RiseLimit(here, limit.allowance)
        after = FreeMemory(reached, now, Outcome(eta, m.no_events), limit, y_next)
        # What comes of it.
        finite = is_known & m.isfinite(travelled)
        long, far = too_long & (k == 2), eta < c.shortest * now.longest
        full = m.power(k, 2.5) * now.sharpness * m.sqrt(travelled) > c.restart * eta
        full = full | (moved == 0.0)  # x does not move any more: there is nothing to wait for
        early = (slope > 0.0) & (k >= epoch.early_due)
        looks = (k >= epoch.mean_due) & (moved * k <= c.flat * travelled)
        unusual = m.no(finite) | (epoch.k == 0) | full | early | looks | long | far
        reasons = finite, long, far, full, early, looks
        return m.case(after, (unusual, lambda: self._decide(m, memory, after, norm, reasons)))

    def _decide(
        self, m: Machine, memory: FreeMemory, after: FreeMemory, norm: Any,
        reasons: tuple[Any, ...],
    ) -> FreeMemory:  # fmt: skip
        """What comes of an iteration that is the first of its epoch, or may be the last."""
        c, scheme, epoch, before = self.constants, self.scheme, memory.epoch, memory.learned
        reached, now, (finite, long, far, full, early, looks) = after.epoch, after.learned, reasons
        k, eta, slope = reached.k, now.step_size, reached.slope
        at_x = scheme.takes_gradient_at_x
        lost = m.no(m.isfinite(norm))
        behind = lost & at_x  # x itself is bad

        def end(phase: int, point: Array, again: Any = False) -> FreeMemory:
            return self._judge(m, after, eta, phase, point, again)

        def end_before(phase: int, learned: Learned) -> FreeMemory:
            """Before this step, which is not taken."""
            kept = m.but(memory, learned=learned)
            return self._judge(m, kept, before.step_size, phase, epoch.x, at_x)

        def end_early() -> FreeMemory:
            # <g_{k-1}, v_{k-1}>, from <g_{k-1}, v_k>
            climb = (slope + eta * norm * norm) * k / m.maximum(epoch.k, 1)
            point, again = scheme.turning_point(
                m, reached.x, epoch.x, epoch.x_prev, climb, epoch.slope
            )
            return end(EARLY, point, again)

        def look() -> FreeMemory:
            (mean,), _ = m.run(weighted_sum(1), (reached.points,), (1 / reached.weight,))
            outcome = Outcome(eta, m.no_events, ended=False)
            return FreeMemory(reached, now, outcome, after.limit, mean, phase=MEAN)

        def is_none() -> Any:
            return m.sqrt(reached.moved) <= c.standstill * m.rounding * m.norm(epoch.x)

        def stand() -> FreeMemory:
            status = m.where(norm == 0.0, int(Status.COMPLETED), int(Status.NO_PROGRESS))
            return m.but(memory, outcome=Outcome(eta, m.no_events, status=status))

        def go_back() -> FreeMemory:
            events = m.event(EventKind.NON_FINITE, norm, lost)
            events = events + m.event(EventKind.ROLLBACK, epoch.k)
            hopeless = lost & (epoch.k == 0)  # the gradient at the start is not finite
            status = m.where(hopeless, int(Status.NON_FINITE), RUNNING)
            return self._new_epoch(
                m, memory, memory.start, before.halved(m), before.step_size, events,
                status=status, shows=True,
            )  # fmt: skip

        def find_good() -> FreeMemory:
            """Half of the step, from the last good point if it is low enough: the wall is near
            it."""
            good = m.choose(behind, epoch.x_prev, epoch.x)
            kept = m.but(memory, epoch=m.but(epoch, grad_norm=norm))
            return self._judge(m, kept, before.step_size, GOOD, good, m.no(lost) & at_x)

        return m.case(
            after,
            (long, lambda: end_before(LONG, before)),
            (far, lambda: end_before(FAR, now)),
            (m.no(finite) & (epoch.k <= m.where(behind, 1, 0)), go_back),
            (m.no(finite), find_good),
            (m.case(False, (epoch.k == 0, is_none)), stand),
            (full, lambda: end(END, reached.x)),
            (early, end_early),
            (looks, look),
        )

    def _change(self, m: Machine, epoch: FreeEpoch, here: Sample, sums: Sums, later: Any) -> Any:
        """|g_k - g_{k-1}|, from the norms and one product where these tell; 0 for k = 0."""
        along = sums[0] if sums else m.inner(here.gradient, epoch.gradient)
        squares = here.grad_norm * here.grad_norm + epoch.grad_norm * epoch.grad_norm
        square = squares - 2 * along
        told = (self.constants.cancelled * squares < square) & (square < math.inf)
        return m.case(
            m.sqrt(m.where(told & later, square, 0.0)),
            (later & m.no(told), lambda: m.distance(here.gradient, epoch.gradient)),
        )

    def _expected_step(
        self, m: Machine, now: Learned, k: Any, curvature: Any, curvature_before: Any
    ) -> Any:
        """The step size that iteration k will most likely have."""
        eta, scheme = now.step_size, self.scheme
        curvature = scheme.predicted_curvature(m, curvature, curvature_before)
        longer = m.maximum(eta, m.minimum(scheme.growth(m, k) * eta, now.most))
        return m.where(eta * curvature < scheme.growth_threshold(m, k), longer, eta)

    def _shorter(self, m: Machine, now: Learned, bend: Any) -> Learned:
        c = self.constants
        share = c.shortened * m.maximum(c.longest / bend, 0.5)
        return now.with_step(m, now.step_size * share)

    def _longer(self, m: Machine, now: Learned, norm: Any, k: Any, bend: Any) -> Learned:
        c, eta, growth = self.constants, now.step_size, self.scheme.growth(m, k)
        cut = growth * bend > c.shortened
        growth = m.where(cut, c.shortened / m.where(cut, bend, 1.0), growth)
        # Where f has no lower bound, a step must stay within what the dtype can hold.
        most = m.minimum(now.most, math.sqrt(m.largest) / m.maximum(norm, 1.0))
        return now.with_step(m, m.maximum(eta, m.minimum(growth * eta, most)))

    def _judge(
        self, m: Machine, memory: FreeMemory, eta: Any, phase: int, point: Array, again: Any
    ) -> FreeMemory:
        """Ask for the value at a point where the epoch, whose last step had size eta, may end."""
        epoch = memory.epoch
        return m.but(
            memory,
            outcome=Outcome(eta, m.no_events, ended=False),
            point=point,
            again=again,
            phase=phase,
            need=m.where(again, BOTH, VALUE),
            required=self.constants.decrease * epoch.travelled / (eta * epoch.k),
        )

    def _mean_known(self, m: Machine, memory: FreeMemory, here: Sample, *_: Any) -> FreeMemory:
        """rho' becomes at least what the gradient at ybar proves of rho.

        The mean of the gradients is k |v|/(eta_0 W) long, and that at ybar differs from it by no
        more than rho/2 times the mean square of the distances.
        """
        epoch, now, norm = memory.epoch, memory.learned, here.grad_norm
        k, eta, finite, spreads = epoch.k, now.step_size, m.isfinite(norm), epoch.spread > 0.0
        noise = NOISE * m.rounding * m.norm(here.point) / eta
        of_gradients = k * m.sqrt(epoch.moved) / (epoch.first_step * epoch.weight)
        gap = norm - of_gradients - noise
        proven = 2 * gap * eta * (eta * epoch.weight / m.where(spreads, epoch.spread, 1.0))
        raises = finite & spreads & (proven > now.sharpness)
        smaller = finite & spreads & m.isfinite(here.value) & (norm < epoch.grad_norm)
        events = m.event(EventKind.NON_FINITE, norm, m.no(finite))
        return self._go_on(
            m,
            m.but(memory, learned=m.but(now, sharpness=m.where(raises, proven, now.sharpness))),
            m.but(epoch, mean_due=self.constants.looks * k),
            Outcome(eta, events, shows=smaller),
        )

    def _go_on(
        self, m: Machine, memory: FreeMemory, epoch: FreeEpoch, outcome: Outcome
    ) -> FreeMemory:
        """With the next iteration."""
        point = self.scheme.next_point(m, epoch.x, epoch.x_prev, epoch.k)
        return m.but(
            memory,
            epoch=epoch,
            outcome=outcome,
            point=point,
            again=False,
            phase=ITERATE,
            need=GRADIENT,
        )

    def _end_known(self, m: Machine, memory: FreeMemory, here: Sample, *_: Any) -> FreeMemory:
        """Is the epoch kept that may end here, and what is known then?"""
        c, epoch, now, start, k = (
            self.constants, memory.epoch, memory.learned, memory.start, memory.epoch.k,
        )  # fmt: skip
        phase = memory.phase
        end, early, far, good = phase == END, phase == EARLY, phase == FAR, phase == GOOD
        value, norm = here.value, here.grad_norm
        finite = m.isfinite(value)
        if here.gradient is not None:
            finite = finite & m.isfinite(norm)
        # Is f <= f(x^0) - DECREASE S/(eta k)?  Within rounding the gradients decide.
        change, noise = value - start.value, memory.limit.allowance
        falls = finite & (change <= -memory.required)
        level = finite & (memory.required <= SIGNAL * noise) & (abs(change) <= noise)
        # Is an early end paid for?  By what a full epoch of k iterations with the present q brings.
        q, eta = now.sharpness, now.step_size
        min_decrease_rate = c.decrease * c.restart * eta * (c.restart / q) / q / m.power(1.0 * k, 7)
        pays = -change / k >= min_decrease_rate
        affords = now.iterations_unpaid + k <= c.allowance
        paid_for = pays | affords | m.no(early | far)
        low = falls | (level & (norm < start.grad_norm))
        kept = low & (paid_for | (norm <= now.norm_at_last_halving / 2))

        def ask_gradient() -> FreeMemory:
            return m.but(memory, outcome=m.but(memory.outcome, shows=False), again=True, need=BOTH)

        def begin() -> FreeMemory:
            lost = good & (kept | m.no(m.isfinite(epoch.grad_norm)))
            events = m.event(EventKind.NON_FINITE, epoch.grad_norm, lost)
            events = events + m.event(EventKind.RESTART, k, kept)
            events = events + m.event(EventKind.ROLLBACK, k, m.no(kept))
            walled = good | (end & m.no(finite))
            learned = self._learned(m, memory, kept, pays, affords, walled, norm)
            used = m.where(far & m.no(kept), now.longest / 4, memory.outcome.step_size)
            found = m.choose(kept, here, start)
            return self._new_epoch(m, memory, found, learned, used, events, again=kept)

        def try_before() -> FreeMemory:
            outcome = m.but(memory.outcome, shows=False)
            return m.but(
                memory, outcome=outcome, point=epoch.x_prev, again=False, phase=GOOD, need=VALUE
            )

        def refuse() -> FreeMemory:
            later = m.but(epoch, early_due=-m.floor(-c.again * k))
            return self._go_on(m, memory, later, Outcome(eta, m.no_events, shows=False))

        branches = [
            (m.no(kept) & early, refuse),
            (m.no(finite) & end & (k > 1), try_before),
        ]
        if here.gradient is None:
            decides = (level & m.no(falls)) | (falls & m.no(paid_for))
            branches.insert(0, (decides, ask_gradient))
        return m.case(memory, *branches, otherwise=begin)

    def _learned(
        self, m: Machine, memory: FreeMemory, kept: Any, pays: Any, affords: Any, walled: Any,
        norm: Any,
    ) -> Learned:  # fmt: skip
        """What is known after an epoch that is kept or discarded."""
        c, epoch, before, k = self.constants, memory.epoch, memory.learned, memory.epoch.k
        phase = memory.phase
        end, early, long, far = phase == END, phase == EARLY, phase == LONG, phase == FAR
        granted = kept & (early | far)  # to end early
        paid = (kept & end) | (granted & pays)
        discarded = (end | far) & m.no(kept | walled)
        # The step of an epoch that is discarded is halved only if the epoch has shown that it was
        # too long: by |g - g'|, or because a mere gradient step has not lowered f enough.  What is
        # too long far away says little of x^0.
        eta = before.step_size
        halves = long | walled | (end & discarded & ((k == 1) | (before.longest > eta)))
        eta = m.where(far & discarded, before.longest / 4, m.where(halves, eta / 2, eta))
        now = before.with_step(m, eta)
        # After an epoch that has paid q may have been larger than it must be; after one that is
        # discarded it is such that half as many iterations end the next one.
        q = m.where(discarded, 2 * now.sharpness, now.sharpness)
        root = m.sqrt(m.maximum(epoch.travelled, m.tiny))
        shorter = c.restart * eta / (m.power(k / 2, 2.5) * root)
        q = m.where(discarded & (k > 2), m.maximum(q, shorter), q)
        q = m.where(paid, m.maximum(q / c.eased, m.smallest**2), q)
        # Where walls are met again and again, the step may not come back each time.
        most = m.where(discarded | walled, eta, before.most)
        wider = most * m.power(c.widened, 1 / (1 + before.walls))
        return Learned(
            eta,
            m.where(kept & (end | early), wider, most),
            q,
            m.where(granted & m.no(pays | affords), norm, before.norm_at_last_halving),
            m.where(paid, eta, now.longest_since_paid),
            before.iterations_unpaid + m.where(granted & affords & m.no(pays), k, 0),
            before.walls + m.where(walled, 1, 0),
            eta,
        )

    def _new_epoch(
        self, m: Machine, memory: FreeMemory, start: Sample, learned: Learned, step_size: Any,
        events: Any, *, again: Any = False, status: Any = RUNNING, shows: Any = False,
    ) -> FreeMemory:  # fmt: skip
        """On from ``start``, whose value is known, without momentum."""
        eta = learned.step_size
        return m.but(
            memory,
            epoch=FreeEpoch.at(start.point, memory.epoch.gradient, eta, self.constants.looks),
            learned=m.but(learned, longest=eta),
            outcome=Outcome(step_size, events, shows=shows, status=status),
            limit=m.but(memory.limit, reference=start, allowance=m.value_noise(start.value)),
            point=start.point,
            again=again,
            phase=ITERATE,
            need=GRADIENT,
        )

    def ending(self, memory: FreeMemory, shown: Sample, status: Status) -> Ending:
        norm, eta = shown.grad_norm, memory.learned.step_size
        if status is Status.NON_FINITE:
            return Ending(
                status,
                "the objective was lower at the last accepted point, but its gradient there is not "
                "finite; no smaller step helps: check jac at result.best_x and around it",
                {"grad_norm": norm, "step_size": eta},
            )
        if status is Status.COMPLETED:
            return zero_gradient(eta)
        return no_progress(
            f"rounding is reached: a step of size {eta:.3g} does not move x, and no longer one was "
            f"accepted, at gradient norm {norm:.3g}",
            grad_norm=norm,
            step_size=eta,
        )
