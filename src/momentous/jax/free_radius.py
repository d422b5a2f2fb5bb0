"""AdaRAGD and AdaRHB with nothing given as machines: the restart rule without eps, L and rho."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from momentous.core import passes
from momentous.core.status import Status
from momentous.jax.machine import (
    ITERATE,
    AcceptingMachine,
    Evaluation,
    Progress,
    Reported,
    zero_or_stuck,
)
from momentous.jax.probe import Probe
from momentous.jax.vectors import (
    Limits,
    Scalar,
    Tree,
    combination,
    distance_squared,
    norm,
    number,
    run,
    scaled,
    select,
)
from momentous.methods.restarted.free_radius import (
    AGAIN,
    ALLOWANCE,
    DECREASE,
    EASED,
    FLAT,
    LONGEST,
    LOOKS,
    RESTART,
    SHORTENED,
    SHORTEST,
    STANDSTILL,
    WIDENED,
    FreeRadius,
)
from momentous.methods.restarted.momentum import NEAR, HeavyBall
from momentous.methods.search.backtracking import SIGNAL
from momentous.methods.search.rounding import NOISE

# What the evaluation is for, besides the next iteration:
FIRST = 1  # it is that of x0,
PROBE = 2  # ... or of a point near it, to find a step size
MEAN = 3  # it is that of the mean of the epoch's points, which may prove rho' too small
END = 4  # the restart rule has ended the epoch at x
EARLY = 5  # the momentum leads uphill: the epoch may end early
LONG = 6  # the first step was too long: keep where it led?
FAR = 7  # the step has become far too short: keep where the epoch has led?
GOOD = 8  # the last good point before something was not finite


class Epoch(NamedTuple):
    """The numbers of `methods.restarted.free_radius.FreeEpoch`, after k iterations."""

    k: Scalar
    grad_norm: Scalar
    moved: Scalar
    slope: Scalar
    travelled: Scalar
    first_step: Scalar
    weight: Scalar
    path: Scalar
    mean_path: Scalar
    spread: Scalar
    mean_due: Scalar
    early_due: Scalar

    @staticmethod
    def fresh() -> Epoch:
        zero, one = number(0.0), jnp.asarray(1)
        nine = [zero] * 9
        return Epoch._make((jnp.asarray(0), *nine, LOOKS * one, one))

    def share(self, eta: Scalar) -> Scalar:
        return jnp.where(self.k > 0, (self.k + 1) * (eta / self.first_step), 0.0)

    def advanced(self, norm: Scalar, moved: Scalar, eta: Scalar, apart: Scalar) -> Epoch:
        begins, k, share = self.k == 0, self.k + 1, self.share(eta)
        weight = jnp.where(begins, 1.0, self.weight + share)
        path = jnp.where(begins, 0.0, self.path + apart)
        ahead = path - self.mean_path
        mean_path = jnp.where(begins, 0.0, self.mean_path + share / weight * ahead)
        spread = jnp.where(begins, 0.0, self.spread + share * ahead * (path - mean_path))
        beta, step = self.k / number(k), eta * norm
        slope = (beta * beta * self.moved - moved - step * step) / (2 * eta)
        return Epoch(
            k, norm, moved, slope, self.travelled + moved,
            jnp.where(begins, eta, self.first_step), weight, path, mean_path, spread,
            self.mean_due, self.early_due,
        )  # fmt: skip


class Learned(NamedTuple):
    """`methods.restarted.free_radius.Learned`: what outlives an epoch."""

    step_size: Scalar  # eta
    most: Scalar
    sharpness: Scalar  # q
    norm_at_last_halving: Scalar
    longest_since_paid: Scalar
    iterations_unpaid: Scalar
    walls: Scalar
    longest: Scalar

    def afresh(self) -> Learned:
        return self._replace(longest=self.step_size)

    def with_step(self, eta: Scalar, smallest: float) -> Learned:
        """`methods.restarted.free_radius._change_step`."""
        ratio = jnp.minimum(eta, self.longest_since_paid) / self.step_size
        return self._replace(
            step_size=eta,
            sharpness=jnp.maximum(self.sharpness * ratio * ratio, smallest),
            longest_since_paid=jnp.maximum(eta, self.longest_since_paid),
        )

    def halved(self, smallest: float) -> Learned:
        """Where something was not finite."""
        half = self.with_step(self.step_size / 2, smallest)
        return half._replace(most=half.step_size, walls=self.walls + 1)

    def discarded(self, epoch: Epoch, smallest: float) -> Learned:
        """With a q such that half as many iterations end an epoch, and half of the step if that has
        been shown to be too long."""
        k, eta = epoch.k, self.step_size
        too_long = (k == 1) | (self.longest > eta)
        now = self.with_step(jnp.where(too_long, eta / 2, eta), smallest)
        eta, q = now.step_size, 2 * now.sharpness
        shorter = RESTART * eta / ((number(k) / 2) ** 2.5 * jnp.sqrt(epoch.travelled))
        return now._replace(most=eta, sharpness=jnp.where(k > 2, jnp.maximum(q, shorter), q))

    def eased(self, smallest: float) -> Learned:
        """After an epoch that has paid."""
        q = jnp.maximum(self.sharpness / EASED, smallest)
        return self._replace(sharpness=q, longest_since_paid=self.step_size)

    def widened(self) -> Learned:
        """After an epoch that was kept."""
        return self._replace(most=self.most * WIDENED ** (1 / (1 + number(self.walls))))


class FreeMemory(NamedTuple):
    x: Tree  # x^k
    x_prev: Tree  # x^{k-1}
    points: Tree  # weighted sum of the epoch's points
    gradient: Tree  # the last one
    end: Tree  # where an epoch of the heavy ball may end early; None for Nesterov's
    start: Tree  # x^0, the last accepted point
    value: Scalar  # f there
    start_norm: Scalar  # the norm of the gradient there
    epoch: Epoch
    now: Learned
    judged_by: Scalar  # the step size with which an epoch is judged
    phase: Scalar
    probe: Probe
    reported: Reported
    progress: Progress


class FreeRadiusMachine(AcceptingMachine):
    """`momentous.methods.restarted.free_radius`, compiled."""

    def __init__(self, method: FreeRadius, x0: Tree, tol: float, key: Any = None):
        self.scheme, self.limits = method.scheme, Limits.of(x0)
        self.heavy = isinstance(method.scheme, HeavyBall)
        self.smallest = self.limits.smallest**2

    def begin(self, x0: Tree) -> FreeMemory:
        zero, one, none = number(0.0), number(1.0), jnp.asarray(0)
        now = Learned(one, number(jnp.inf), one, one, one, none, none, one)
        return FreeMemory(
            x0, x0, x0, x0, x0 if self.heavy else None, x0, number(jnp.inf), zero, Epoch.fresh(),
            now, one, jnp.asarray(FIRST), Probe.none(), Reported(zero, zero, zero),
            Progress.none(),
        )  # fmt: skip

    def point(self, memory: FreeMemory) -> Tree:
        phase, epoch = memory.phase, memory.epoch

        def usual() -> Tree:
            momentum = jnp.where(phase == ITERATE, 1 - 1 / number(epoch.k + 1), 0.0)
            ahead = combination(memory.x, momentum, memory.x, memory.x_prev)
            return self.scheme.gradient_point(memory.x, ahead)

        def special() -> Tree:
            mean = scaled(memory.points, 1 / epoch.weight)
            trial = memory.probe.point(memory.start, memory.gradient)
            point = select(phase == MEAN, mean, trial)
            return select(phase == EARLY, memory.end, point) if self.heavy else point

        waits = (phase == MEAN) | (phase == PROBE)
        if self.heavy:
            waits |= phase == EARLY
        return jax.lax.cond(waits, special, usual)

    def advance(
        self, memory: FreeMemory, here: Evaluation, tol: Scalar
    ) -> tuple[FreeMemory, Scalar]:
        phase = memory.phase
        memory, shown = self._started(memory, here, tol)
        memory, raised = self._with_mean(memory, here, phase == MEAN)
        memory, kept, back, after_back = self._judged(memory, here, phase)
        refused = (phase == EARLY) & ~kept
        closes = kept | back | refused | (phase == MEAN)
        progress = self._closed(memory, closes, tol, ended=kept, discarded=back)
        memory = memory._replace(progress=progress)
        goes = ((phase == ITERATE) | kept) & progress.runs
        memory, failed, after_failed = self._iterated(memory, here, goes, tol)
        memory = self._back(memory, back | failed, select(failed, after_failed, after_back))
        return memory, shown | raised | goes & here.usable

    # --- before the first iteration ---------------------------------------------------------------

    def _started(
        self, memory: FreeMemory, here: Evaluation, tol: Scalar
    ) -> tuple[FreeMemory, Scalar]:
        """With the evaluation at x0, and with those that show how long the first step is."""
        first, probes = memory.phase == FIRST, memory.phase == PROBE
        progress = memory.progress.ending(first & ~here.usable, Status.NON_FINITE)
        progress = progress.ending(first & (here.size <= tol), Status.CONVERGED)
        found, lipschitz, probe = memory.probe.answered(
            probes, here, memory.start, memory.gradient, self.limits
        )
        q = jnp.where(here.norm > 0.0, 1 / here.norm, 1.0)
        begun = memory.now._replace(sharpness=q, norm_at_last_halving=here.norm)
        eta = 1 / lipschitz
        ready = memory.now._replace(step_size=eta, longest_since_paid=eta).afresh()
        phase = jnp.where(first, PROBE, memory.phase)
        memory = memory._replace(
            gradient=select(first, here.gradient, memory.gradient),
            value=jnp.where(first, here.value, memory.value),
            now=select(first, begun, select(probes & found, ready, memory.now)),
            probe=select(
                first, Probe.first(self.limits, here), select(probes, probe, memory.probe)
            ),
            phase=jnp.where(probes & found, ITERATE, phase),
            progress=progress,
        )
        return memory, first

    # --- what more evaluations decide -------------------------------------------------------------

    def _with_mean(
        self, memory: FreeMemory, here: Evaluation, looked: Scalar
    ) -> tuple[FreeMemory, Scalar]:
        """rho' becomes at least what the gradient at the mean proves of rho."""
        epoch, now, k = memory.epoch, memory.now, memory.epoch.k
        eta, known = now.step_size, looked & here.usable & (epoch.spread > 0.0)
        size = jax.lax.cond(looked, lambda: norm(here.point), lambda: number(0.0))
        noise = NOISE * self.limits.rounding * size / eta
        of_gradients = k * jnp.sqrt(epoch.moved) / (epoch.first_step * epoch.weight)
        gap = here.norm - of_gradients - noise
        proven = 2 * gap * eta * (eta * epoch.weight / epoch.spread)
        raised = known & (proven > now.sharpness)
        smaller = known & (here.norm < memory.reported.norm)
        memory = memory._replace(
            epoch=epoch._replace(mean_due=jnp.where(looked, LOOKS * k, epoch.mean_due)),
            now=select(raised, now._replace(sharpness=proven), now),
            reported=select(smaller, Reported.of(here), memory.reported),
            phase=jnp.where(looked, ITERATE, memory.phase),
        )
        return memory, smaller

    def _judged(
        self, memory: FreeMemory, here: Evaluation, phase: Scalar
    ) -> tuple[FreeMemory, Scalar, Scalar, Learned]:
        """Is the epoch kept that ended, or is it discarded, and what is known then?"""
        epoch, now, k = memory.epoch, memory.now, memory.epoch.k
        end, early, long, far = (phase == kind for kind in (END, EARLY, LONG, FAR))
        low = (phase >= END) & self._low_enough(memory, here)
        grants, granted = self._granted(memory, here)
        kept = low & (grants | ~(early | far))
        lost = end & ~here.usable  # what was before it?
        back = ~kept & (phase >= END) & ~early & ~(lost & (k > 1))
        paid = now.eased(self.smallest)
        half = now.with_step(now.step_size / 2, self.smallest)
        halved = now.halved(self.smallest)
        learned = select(end, paid, select(early | far, granted, select(long, half, halved)))
        learned = select(end | early, learned.widened(), learned)
        # What is too long in an epoch that has led far says little of x^0.
        quarter = now.with_step(now.longest / 4, self.smallest).afresh()
        discarded = select(far, quarter, now).discarded(epoch, self.smallest)
        after = select(end & here.usable | far, discarded, select(long, half, halved))
        place = select(early, memory.end, memory.x) if self.heavy else memory.x
        due = jnp.ceil(AGAIN * k).astype(int)
        memory = memory._replace(
            x=select(lost & (k > 1), memory.x_prev, select(kept, place, memory.x)),
            start=select(kept, place, memory.start),
            value=jnp.where(kept, here.value, memory.value),
            start_norm=jnp.where(kept, here.norm, memory.start_norm),
            epoch=select(
                kept,
                Epoch.fresh(),
                epoch._replace(early_due=jnp.where(early, due, epoch.early_due)),
            ),
            now=select(kept, learned.afresh(), now),
            phase=jnp.where(lost, GOOD, jnp.where(phase >= END, ITERATE, memory.phase)),
        )
        return memory, kept, back, after

    def _low_enough(self, memory: FreeMemory, here: Evaluation) -> Scalar:
        """Is f <= f(x^0) - DECREASE S/(eta k)?  Within rounding the gradients decide."""
        epoch, before = memory.epoch, memory.value
        required = DECREASE * epoch.travelled / (memory.judged_by * epoch.k)
        change, noise = here.value - before, self._noise(before)
        level = (required <= SIGNAL * noise) & (jnp.abs(change) <= noise)
        level &= here.norm < memory.start_norm
        return here.usable & ((change <= -required) | level)

    def _granted(self, memory: FreeMemory, here: Evaluation) -> tuple[Scalar, Learned]:
        """Is an early end there paid for, and what is known then?"""
        now, k = memory.now, memory.epoch.k
        eta, q = now.step_size, now.sharpness
        min_decrease_rate = DECREASE * RESTART * eta * (RESTART / q) / q / number(k) ** 7
        pays = (memory.value - here.value) / k >= min_decrease_rate
        affords = ~pays & (now.iterations_unpaid + k <= ALLOWANCE)
        before = now.norm_at_last_halving
        halves = ~pays & ~affords & (here.norm <= before / 2)
        after = now._replace(
            iterations_unpaid=now.iterations_unpaid + jnp.where(affords, k, 0),
            norm_at_last_halving=jnp.where(halves, here.norm, before),
        )
        return pays | affords | halves, select(pays, now.eased(self.smallest), after)

    def _back(self, memory: FreeMemory, back: Scalar, now: Learned) -> FreeMemory:
        """A new epoch from the start of this one."""
        return memory._replace(
            x=select(back, memory.start, memory.x),
            epoch=select(back, Epoch.fresh(), memory.epoch),
            now=select(back, now.afresh(), memory.now),
            phase=jnp.where(back, ITERATE, memory.phase),
        )

    # --- an iteration -----------------------------------------------------------------------------

    def _iterated(
        self, memory: FreeMemory, here: Evaluation, goes: Scalar, tol: Scalar
    ) -> tuple[FreeMemory, Scalar, Learned]:
        """One iteration if it goes on with this evaluation.  Must it go back to x^0 at once, and
        with what?"""
        epoch, before = memory.epoch, memory.now
        k, later = epoch.k + 1, epoch.k > 0
        # The step, shorter or longer by what the gradient shows.
        eta, apart = before.step_size, self._apart(epoch, before.step_size)
        change = jnp.sqrt(distance_squared(here.gradient, memory.gradient))
        bend = jnp.where(later & (apart > 0.0), eta * change / apart, 0.0)
        roomy = jnp.where(k == 2, self.scheme.roomy(2), self.scheme.roomy(3))
        other = later & ((bend > LONGEST) | ((eta < before.most) & (bend < roomy)))
        now = select(other, self._with_other_step(before, here.norm, k, bend), before)
        eta = now.step_size
        # The step itself.
        z, moved, points = self._stepped(memory, here, eta, epoch.share(eta))
        reached = epoch.advanced(here.norm, moved, eta, jnp.where(later, apart, 0.0))
        # What comes of it: the first of these that holds.
        lost = ~here.usable
        long = ~lost & (bend > LONGEST) & (k == 2)
        far = ~lost & ~long & other & (eta < SHORTEST * now.longest)
        overflows = ~(lost | long | far) & ~jnp.isfinite(reached.travelled)
        steps = ~(lost | long | far | overflows)
        size = jax.lax.cond(later, lambda: number(0.0), lambda: norm(memory.x))
        least = STANDSTILL * self.limits.rounding * size
        stands = steps & (k == 1) & (jnp.sqrt(moved) <= least)
        steps &= ~stands
        power = number(k) ** 2.5
        full = ~(power * now.sharpness * jnp.sqrt(reached.travelled) <= RESTART * eta)
        full |= moved == 0.0
        early = ~full & (reached.slope > 0.0) & (k >= epoch.early_due)
        looks = ~(full | early) & (k >= epoch.mean_due) & (moved * k <= FLAT * reached.travelled)
        # The last good point, where something is not finite: x, or the one before if a heavy ball
        # has lost its gradient at x.  Where that is x^0 it goes back at once.
        behind = lost if self.heavy else jnp.asarray(False)
        unfit = lost | overflows
        first = epoch.k <= jnp.where(behind, 1, 0)
        fails = goes & unfit & first
        phase = jnp.where(full, END, jnp.where(early, EARLY, jnp.where(looks, MEAN, ITERATE)))
        phase = jnp.where(long, LONG, jnp.where(far, FAR, jnp.where(unfit, GOOD, phase)))
        phase = jnp.where(stands, ITERATE, phase)
        steps &= goes
        memory = memory._replace(
            x=select(steps, z, select(goes & unfit & behind, memory.x_prev, memory.x)),
            x_prev=select(steps, memory.x, memory.x_prev),
            points=select(steps, points, memory.points),
            gradient=select(steps, here.gradient, memory.gradient),
            end=self._turning_point(memory, reached, now, steps & early) if self.heavy else None,
            start_norm=jnp.where(goes & ~later, here.norm, memory.start_norm),
            epoch=select(steps, reached, epoch),
            now=select(steps | goes & far, now, before),
            judged_by=jnp.where(goes, jnp.where(steps, eta, before.step_size), memory.judged_by),
            phase=jnp.where(goes, phase, memory.phase),
            reported=select(goes, Reported.of(here), memory.reported),
        )
        closes = steps & (phase == ITERATE) | goes & stands | fails
        progress = self._closed(memory, closes, tol, discarded=fails)
        progress = progress.ending(goes & stands, zero_or_stuck(here.norm))
        progress = progress.ending(fails & lost & (k == 1), Status.NON_FINITE)
        return memory._replace(progress=progress), fails, before.halved(self.smallest)

    def _apart(self, epoch: Epoch, eta: Scalar) -> Scalar:
        """`Momentum.apart`: |y^k - y^{k-1}|."""
        if self.heavy:
            return jnp.sqrt(epoch.moved)
        beta, step = 1 - 1 / number(epoch.k + 1), eta * epoch.grad_norm
        square = beta * (beta * epoch.moved - 2 * eta * epoch.slope) + step * step
        return jnp.sqrt(jnp.maximum(square, 0.0))

    def _stepped(
        self, memory: FreeMemory, here: Evaluation, eta: Scalar, share: Scalar
    ) -> tuple[Tree, Scalar, Tree]:
        """x^k, |x^k - x^{k-1}|^2, and the sum of points with this one."""
        if self.heavy:
            momentum = 1 - 1 / number(memory.epoch.k + 1)
            (z, points), (moved,) = run(
                passes.HEAVY_BALL_WITH_SUM,
                (here.gradient, memory.x, memory.x_prev, memory.points),
                (-eta, momentum, share),
            )
        else:
            (z, _, points), (moved,) = run(
                passes.NESTEROV_WITH_SUM,
                (here.gradient, here.point, memory.x, memory.points),
                (-eta, 0.0, share),
            )
        return z, moved, select(memory.epoch.k == 0, here.point, points)

    def _turning_point(
        self, memory: FreeMemory, reached: Epoch, now: Learned, early: Scalar
    ) -> Tree:
        """`HeavyBall.turning_point`, where an epoch may end early."""
        last, square = memory.epoch, reached.grad_norm * reached.grad_norm
        climb = (reached.slope + now.step_size * square) * reached.k / jnp.maximum(last.k, 1)
        share = jnp.where(last.slope < 0.0, last.slope / (last.slope - climb), 0.0)
        near = combination(memory.x_prev, share, memory.x, memory.x_prev)
        return select(early, select(share >= NEAR, memory.x, near), memory.end)

    def _with_other_step(self, now: Learned, length: Scalar, k: Scalar, bend: Scalar) -> Learned:
        """A shorter step where it is too long, or a longer one."""
        eta, shortens = now.step_size, bend > LONGEST
        factor = SHORTENED * jnp.maximum(LONGEST / bend, 0.5)
        growth = jnp.where(k == 2, self.scheme.growth(2), self.scheme.growth(3))
        growth = jnp.where(growth * bend > SHORTENED, SHORTENED / bend, growth)
        most = jnp.minimum(now.most, math.sqrt(self.limits.largest) / jnp.maximum(length, 1.0))
        longer = jnp.maximum(eta, jnp.minimum(growth * eta, most))
        now = now.with_step(jnp.where(shortens, eta * factor, longer), self.smallest)
        return now._replace(longest=jnp.maximum(now.longest, now.step_size))
