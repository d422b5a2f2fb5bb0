"""Restarted momentum with nothing given: the paper's restart rule without eps, L and rho.

Put theta = 1/k and the eps that belongs to it into the rule k S > B^2 of Algorithms 1 and 3: it
becomes k^(5/2) rho S^(1/2) > c/eta, in which there is no eps.  What stands for L and rho is
learned on the way.  docs/adaptive.md says what is proven.

A branch of compiled code costs what it computes: about 12 ms for every number, vector or condition
on one CPU, while copies and constants cost next to nothing.  So what a branch leaves behind is what
was there before wherever possible, and `_begin_epoch` stands behind all of them, once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cached_property

from momentous.core.machine import Machine
from momentous.core.oracle import Sample
from momentous.core.passes import GRADIENT_ALONG, weighted_sum
from momentous.core.record import record
from momentous.core.rule import (
    BOTH,
    GRADIENT,
    RUNNING,
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
from momentous.methods.endings import no_progress, start_not_finite, zero_gradient
from momentous.methods.restarted.free_momentum import FreeEpoch, FreeNesterov, Learned
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
# Nothing: a new epoch begins, and the next iteration is its first.
BEGIN = 8


@dataclasses.dataclass(frozen=True)
class Constants:
    """Chosen on one half of the problems of `testbed.suite`; none of them is critical.

    ``python benchmarks/scaling.py`` measures the order that the rule has with them.
    """

    restart: float = 64.0  # c of the restart rule
    decrease: float = 0.05  # an epoch must lower f by this times S/(eta k)
    shortest: float = 1 / 64  # an epoch ends where eta is this much shorter than it was in it
    eased: float = 3.0  # q after an epoch that has paid is divided by this
    widened: float = 2.0  # the largest step allowed is multiplied by this
    again: float = 1.5  # an early end that was refused is asked for again so many times later
    allowance: int = 500  # iterations of all epochs that ended early and have not paid
    standstill: float = 2.0**-10  # a first step of this many units of rounding of x is none
    looks: int = 4  # the mean is looked at in iterations 4, 16, 64, ... or after, ...
    flat: float = 4.0  # ... where |v|^2 <= this times S/k


@record
class FreeMemory:
    """The epoch under way, what was learned, and what its decrease is measured against."""

    epoch: FreeEpoch
    learned: Learned
    outcome: Outcome
    start: Sample  # x^0, the last accepted point
    point: Array  # where the next evaluation is
    again: bool = False  # was the last one there, too?
    phase: int = ITERATE
    probe_distance: float = 0.0  # of the probe under way
    probe_trials: int = 0


@dataclasses.dataclass(frozen=True)
class FreeRadius(Rule[FreeMemory]):
    """The rule, around one of the two momentum iterations, with 1 - theta = k/(k + 1)."""

    repeats = True

    scheme: FreeNesterov
    constants: Constants = Constants()

    def begin(self, m: Machine, here: Sample, goal: Goal) -> FreeMemory:
        """The first step: its size comes from one extra gradient, and q = 1/|grad f(x0)|."""
        norm = here.grad_norm
        q = m.where(norm > 0.0, 1 / m.where(norm > 0.0, norm, 1.0), 1.0)
        learned = Learned(1.0, math.inf, q, norm, 1.0, longest=1.0)
        epoch = FreeEpoch.at(here.point, here.gradient, 1.0, self.constants.looks)
        memory = FreeMemory(epoch, learned, Outcome(1.0, m.no_events), here, here.point)
        probe = Probe.at(m, here)
        memory = self._probe(m, memory, probe)
        return m.but(memory, phase=m.where(probe.found, ITERATE, PROBE))  # it has begun

    def _probe(self, m: Machine, memory: FreeMemory, probe: Probe) -> FreeMemory:
        """The next trial, until the step size is known."""
        found, x0 = probe.found, memory.start.point
        eta = m.where(found, 1 / probe.lipschitz, 1.0)
        return m.but(
            memory,
            learned=m.but(memory.learned, step_size=eta, longest_since_paid=eta),
            outcome=Outcome(eta, m.no_events, shows=False, ended=found),
            point=m.case(x0, (m.no(found), lambda: probe.point(m, x0))),
            phase=m.where(found, BEGIN, PROBE),
            probe_distance=probe.distance,
            probe_trials=probe.trials,
        )

    def move(self, m: Machine, memory: FreeMemory, here: Sample, goal: Goal) -> FreeMemory:
        outcome = Outcome(memory.learned.step_size, m.no_events, shows=False)
        return self._begin_epoch(m, m.but(memory, outcome=outcome, start=here, again=True))

    def accepted(self, memory: FreeMemory) -> Sample:
        return memory.start

    def rise_limit(self, m: Machine, memory: FreeMemory, shown: Sample) -> RiseLimit:
        """If the epoch has climbed, it is discarded."""
        return RiseLimit(memory.start, allowance=m.value_noise(memory.start.value))

    def ask(self, m: Machine, memory: FreeMemory) -> Ask:
        """One gradient per iteration, and now and then one of the mean or a value."""
        phase = memory.phase
        of_value = m.where(memory.again, BOTH, VALUE)
        need = m.where(phase >= END, of_value, GRADIENT)
        ask = Ask(memory.point, need, memory.again, memory.start)
        if not m.fuses:
            return ask
        with_product = ask._replace(work=GRADIENT_ALONG, vectors=(memory.epoch.gradient,))
        return m.case(ask, (phase == ITERATE, lambda: with_product))

    def tell(
        self, m: Machine, memory: FreeMemory, here: Sample, made: Vectors, sums: Sums
    ) -> FreeMemory:
        phase = m.minimum(memory.phase, END)
        after = m.switch(memory, phase, self._phases, here, made, sums)
        return m.case(after, (after.phase == BEGIN, lambda: self._begin_epoch(m, after)))

    @cached_property
    def _phases(self) -> tuple[Callable[..., FreeMemory], ...]:
        """What is made of an evaluation, by what it is for."""
        return self._iterate, self._judge_mean, self._answer_probe, self._judge_end

    def _begin_epoch(self, m: Machine, memory: FreeMemory) -> FreeMemory:
        """On from the start, whose value is known, without momentum."""
        x, eta, due = memory.start.point, memory.learned.step_size, self.constants.looks
        return m.but(
            memory,
            epoch=FreeEpoch.at(x, memory.epoch.gradient, eta, due),
            learned=m.but(memory.learned, longest=eta),
            point=x,
            phase=ITERATE,
        )

    def _answer_probe(self, m: Machine, memory: FreeMemory, here: Sample, *_: object) -> FreeMemory:
        start = memory.start
        probe = Probe(start.gradient, start.grad_norm, memory.probe_distance, memory.probe_trials)
        return self._probe(m, memory, probe.answered(m, start.point, here))

    def _iterate(
        self, m: Machine, memory: FreeMemory, here: Sample, made: Vectors, sums: Sums
    ) -> FreeMemory:
        reached, now, point, too_long = self.scheme.advance(
            m, memory.epoch, memory.learned, here, memory.point, sums
        )
        k, eta = reached.k, now.step_size
        start = memory.start
        if start.gradient is None:
            start = here  # it is known now
        after = FreeMemory(
            reached, now, Outcome(eta, m.no_events), start, point, False, ITERATE,
            memory.probe_distance, memory.probe_trials,
        )  # fmt: skip
        first_too_long = too_long & (k == 2)
        finite, *reasons = self._reasons(m, after)
        unusual = m.no(finite) | (k == 1) | first_too_long
        for reason in reasons:
            unusual = unusual | reason
        return m.case(after, (unusual, lambda: self._decide(m, memory, after, first_too_long)))

    def _reasons(self, m: Machine, after: FreeMemory) -> tuple[bool, bool, bool, bool, bool]:
        """Is the iteration finite; has the step become far too short, is the epoch at its end,
        may it end early, is the mean looked at?"""
        c, epoch, now = self.constants, after.epoch, after.learned
        k, moved, travelled, eta = epoch.k, epoch.moved, epoch.travelled, now.step_size
        full = m.power(k, 2.5) * now.sharpness * m.sqrt(travelled) > c.restart * eta
        return (
            m.isfinite(epoch.grad_norm) & m.isfinite(travelled),
            eta < c.shortest * now.longest,
            full | (moved == 0.0),  # x does not move any more: there is nothing to wait for
            (epoch.slope > 0.0) & (k >= epoch.early_due),
            (k >= epoch.mean_due) & (moved * k <= c.flat * travelled),
        )

    def _decide(
        self, m: Machine, memory: FreeMemory, after: FreeMemory, first_too_long: bool
    ) -> FreeMemory:
        """What comes of an iteration that is the first of its epoch, or may be the last."""
        epoch, before, reached, now = memory.epoch, memory.learned, after.epoch, after.learned
        k, eta, norm, at_x = (
            reached.k,
            now.step_size,
            reached.grad_norm,
            self.scheme.takes_gradient_at_x,
        )
        finite, far, full, early, looks = self._reasons(m, after)  # once more: cheaper than carried
        is_known, first = m.isfinite(norm), epoch.k == 0
        behind = m.no(is_known) & at_x  # x itself is bad

        def end(phase: int, point: Array, again: bool = False) -> FreeMemory:
            """With this step, if the value there allows it."""
            outcome = Outcome(eta, m.no_events, ended=False)
            return m.but(after, outcome=outcome, point=point, again=again, phase=phase)

        def end_before(
            phase: int, learned: Learned, point: Array = epoch.x, again: bool = at_x
        ) -> FreeMemory:
            """Before this step, which is not taken, with the numbers before it."""
            outcome = Outcome(before.step_size, m.no_events, ended=False)
            ended = m.but(reached, k=epoch.k, travelled=epoch.travelled)
            return m.but(
                after, epoch=ended, learned=learned, outcome=outcome, point=point, again=again,
                phase=phase,
            )  # fmt: skip

        def find_good() -> FreeMemory:
            """Half of the step, from the last good point if it is low enough: the wall is near
            it."""
            return end_before(
                GOOD, before, m.choose(behind, epoch.x_prev, epoch.x), is_known & at_x
            )

        def go_back() -> FreeMemory:
            events = m.event(EventKind.NON_FINITE, norm, m.no(is_known))
            events = events + m.event(EventKind.ROLLBACK, epoch.k)
            hopeless = first & m.no(is_known)  # the gradient at the start is not finite
            status = m.where(hopeless, int(Status.NON_FINITE), RUNNING)
            outcome = Outcome(before.step_size, events, status=status)
            learned = before.with_step(m, before.step_size / 2)
            learned = m.but(learned, most=learned.step_size, walls=before.walls + 1)
            return m.but(after, learned=learned, outcome=outcome, start=memory.start, phase=BEGIN)

        def is_none() -> bool:
            shortest = self.constants.standstill * m.rounding * m.norm(epoch.x)
            return m.sqrt(reached.moved) <= shortest

        def stand() -> FreeMemory:
            status = m.where(norm == 0.0, int(Status.COMPLETED), int(Status.NO_PROGRESS))
            return m.but(after, outcome=Outcome(eta, m.no_events, status=status))

        def end_early() -> FreeMemory:
            # <g_{k-1}, v_{k-1}>, from <g_{k-1}, v_k>
            climb = (reached.slope + eta * norm * norm) * k / m.maximum(epoch.k, 1)
            return end(EARLY, *self.scheme.turning_point(m, epoch, reached.x, climb))

        def look() -> FreeMemory:
            (mean,), _ = m.run(weighted_sum(1), (reached.points,), (1 / reached.weight,))
            return end(MEAN, mean)

        return m.case(
            after,
            (first_too_long, lambda: end_before(LONG, before)),
            (far, lambda: end_before(FAR, now)),
            (m.no(finite) & (epoch.k <= m.where(behind, 1, 0)), go_back),
            (m.no(finite), find_good),
            (m.case(False, (first, is_none)), stand),
            (full, lambda: end(END, reached.x)),
            (early, end_early),
            (looks, look),
        )

    def _judge_mean(self, m: Machine, memory: FreeMemory, here: Sample, *_: object) -> FreeMemory:
        """rho' becomes at least what the gradient at ybar proves of rho.

        The mean of the gradients is k |v|/(eta_0 W) long, and that at ybar differs from it by no
        more than rho/2 times the mean square of the distances.
        """
        epoch, now, norm = memory.epoch, memory.learned, here.grad_norm
        k, eta, usable = epoch.k, now.step_size, m.isfinite(norm) & (epoch.spread > 0.0)
        noise = NOISE * m.rounding * m.norm(here.point) / eta
        of_gradients = k * m.sqrt(epoch.moved) / (epoch.first_step * epoch.weight)
        gap = norm - of_gradients - noise
        proven = 2 * gap * eta * (eta * epoch.weight / m.where(usable, epoch.spread, 1.0))
        raises = usable & (proven > now.sharpness)
        smaller = usable & m.isfinite(here.value) & (norm < epoch.grad_norm)
        events = m.event(EventKind.NON_FINITE, norm, m.no(m.isfinite(norm)))
        return m.but(
            memory,
            learned=m.but(now, sharpness=m.where(raises, proven, now.sharpness)),
            epoch=m.but(epoch, mean_due=self.constants.looks * k),
            outcome=Outcome(eta, events, shows=smaller),
            point=self.scheme.next_point(m, epoch),
            phase=ITERATE,
        )

    def _judge_end(self, m: Machine, memory: FreeMemory, here: Sample, *_: object) -> FreeMemory:
        """Is the epoch kept that may end here, and what is known then?"""
        c, epoch, now, start, k = (
            self.constants, memory.epoch, memory.learned, memory.start, memory.epoch.k,
        )  # fmt: skip
        phase, q, eta, norm = memory.phase, now.sharpness, now.step_size, here.grad_norm
        end, early, far, good = phase == END, phase == EARLY, phase == FAR, phase == GOOD
        finite = m.isfinite(here.value)
        if here.gradient is not None:
            finite = finite & m.isfinite(norm)
        # Is f <= f(x^0) - DECREASE S/(eta k)?  Within rounding the gradients decide.
        required = c.decrease * epoch.travelled / (memory.outcome.step_size * k)
        change, noise = here.value - start.value, m.value_noise(start.value)
        falls = finite & (change <= -required)
        level = finite & (required <= SIGNAL * noise) & (abs(change) <= noise)
        # Is an early end paid for?  By what a full epoch of k iterations with the present q brings.
        min_decrease_rate = c.decrease * c.restart * eta * (c.restart / q) / q / m.power(1.0 * k, 7)
        pays = -change / k >= min_decrease_rate
        affords = now.iterations_unpaid + k <= c.allowance
        paid_for = pays | affords | m.no(early | far)
        low = falls | (level & (norm < start.grad_norm))
        kept = low & (paid_for | (norm <= now.norm_at_last_halving / 2))
        waits = m.but(memory.outcome, shows=False)

        def ask_gradient() -> FreeMemory:
            return m.but(memory, outcome=waits, again=True)

        def refuse() -> FreeMemory:
            return m.but(
                memory,
                epoch=m.but(epoch, early_due=-m.floor(-c.again * k)),
                outcome=Outcome(eta, m.no_events, shows=False),
                point=self.scheme.next_point(m, epoch),
                again=False,
                phase=ITERATE,
            )

        def try_before() -> FreeMemory:
            return m.but(memory, outcome=waits, point=epoch.x_prev, again=False, phase=GOOD)

        def begin() -> FreeMemory:
            lost = good & (kept | m.no(m.isfinite(epoch.grad_norm)))
            events = m.event(EventKind.NON_FINITE, epoch.grad_norm, lost)
            events = events + m.event(EventKind.RESTART, k, kept)
            events = events + m.event(EventKind.ROLLBACK, k, m.no(kept))
            used = m.where(far & m.no(kept), now.longest / 4, memory.outcome.step_size)
            walled = good | (end & m.no(finite))
            return m.but(
                memory,
                learned=self._learn(m, memory, kept, pays, affords, walled, norm),
                outcome=Outcome(used, events, shows=False),
                start=m.choose(kept, here, start),
                again=kept,
                phase=BEGIN,
            )

        branches = [(m.no(kept) & early, refuse), (m.no(finite) & end & (k > 1), try_before)]
        if here.gradient is None:
            decides = (level & m.no(falls)) | (falls & m.no(paid_for))
            branches.insert(0, (decides, ask_gradient))
        return m.case(memory, *branches, otherwise=begin)

    def _learn(
        self, m: Machine, memory: FreeMemory, kept: bool, pays: bool, affords: bool, walled: bool,
        norm: float,
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
            before.longest,
        )

    def ending(self, memory: FreeMemory, shown: Sample, status: Status) -> Ending:
        norm, eta = shown.grad_norm, memory.learned.step_size
        if status is Status.NON_FINITE:
            return start_not_finite(norm, eta)
        if status is Status.COMPLETED:
            return zero_gradient(eta)
        return no_progress(
            f"the step shrank to {eta:.3g}, too small to change x: rounding is reached, at "
            f"gradient norm {norm:.3g}",
            grad_norm=norm,
            step_size=eta,
        )
