"""AdaRAGD and AdaRHB by the paper's rule as machines: Algorithms 2 and 4, and Remark 2."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from momentous.core import passes
from momentous.core.status import Status
from momentous.jax.fixed_radius import Average, asked, restart_point
from momentous.jax.machine import (
    ITERATE,
    AcceptingMachine,
    Evaluation,
    Progress,
    Reported,
    by_promise,
    zero_or_stuck,
)
from momentous.jax.probe import Probe
from momentous.jax.vectors import Limits, Scalar, Tree, combination, number, run, select
from momentous.methods.restarted.adaptive_radius import LARGEST_PRACTICAL_THETA, AdaptiveRadius
from momentous.methods.restarted.parameters import theory_parameters

FIRST = 1  # the evaluation is that of x0,
PROBE = 2  # ... or of a point near it, to find a step size
VALUE = 3  # it decides whether the epoch that ended is kept
SNAPSHOT = 4  # it is that of the averaged point of an epoch that ran through,
LAST = 5  # ... and that of its last one


class Numbers(NamedTuple):
    """`methods.restarted.schedule.Schedule`: what changes at restarts."""

    step_size: Scalar  # eta
    rho: Scalar  # rho', the current guess
    eps: Scalar
    theta: Scalar
    uncapped: Scalar  # theta before it was cut
    length: Scalar  # K
    radius: Scalar  # B
    wide: Scalar  # B0
    restarts: Scalar  # t

    @property
    def limit(self) -> Scalar:
        return jnp.maximum(self.radius, self.wide)

    @property
    def at_radius(self) -> Scalar:
        return self.wide <= self.radius


class AdaptiveMemory(NamedTuple):
    x: Tree  # x^k, or the end of the epoch while its value is asked for
    ahead: Tree  # x^k + (1 - theta)(x^k - x^{k-1})
    start: Tree  # x^0, the last accepted point
    value: Scalar  # f there
    start_norm: Scalar  # the norm of the gradient there
    k: Scalar
    travelled: Scalar  # S
    ended: Scalar  # the k with which the epoch ended that is being judged
    average: Average  # its mean is the gradient at x0 while the step size is looked for, and the
    # last point of an epoch that ran through while its snapshot is evaluated
    now: Numbers
    phase: Scalar
    probe: Probe
    reported: Reported
    progress: Progress


class AdaptiveRadiusMachine(AcceptingMachine):
    """`momentous.methods.restarted.adaptive_radius`, compiled."""

    def __init__(self, method: AdaptiveRadius, x0: Tree, tol: float, key: Any = None):
        self.method, self.scheme, self.tol = method, method.scheme, tol
        self.limits = Limits.of(x0)
        self.by_theory, self.probes = method._by_theory, method._scale_free
        self.backoff, self.growth = method._backoff, method._growth
        largest = self.scheme.largest_theta if self.by_theory else LARGEST_PRACTICAL_THETA
        self.largest_theta = None if method.momentum is not None else largest

    def begin(self, x0: Tree) -> AdaptiveMemory:
        zero, none, one = number(0.0), jnp.asarray(0), number(1.0)
        return AdaptiveMemory(
            x=x0,
            ahead=x0,
            start=x0,
            value=number(jnp.inf),
            start_norm=zero,
            k=none,
            travelled=zero,
            ended=none,
            average=Average.none(x0),
            now=Numbers(one, one, one, one, one, jnp.asarray(1), one, one, none),
            phase=jnp.asarray(FIRST),
            probe=Probe.none(),
            reported=Reported(zero, zero, zero),
            progress=Progress.none(),
        )

    def point(self, memory: AdaptiveMemory) -> Tree:
        return asked(self.scheme, memory.x, memory.ahead)

    def advance(
        self, memory: AdaptiveMemory, here: Evaluation, tol: Scalar
    ) -> tuple[AdaptiveMemory, Scalar]:
        phase = memory.phase
        # What may end without an iteration.
        memory = select(phase == FIRST, self._begun(memory, here, tol), memory)
        if self.probes:
            memory = select(phase == PROBE, self._probed(memory, here), memory)
        memory = select(phase == VALUE, self._judged(memory, here, tol), memory)
        output, better = self._output(memory, here, tol)
        memory = select(phase >= SNAPSHOT, output, memory)
        shown = (phase == SNAPSHOT) | ((phase == LAST) & better)
        # The evaluation may at once be that of an iteration: at x0, and at the start of an epoch.
        goes = (phase == ITERATE) | (phase == FIRST) | (phase == VALUE)
        goes &= (memory.phase == ITERATE) & memory.progress.runs
        goes &= (phase != VALUE) | (memory.ended == 0)
        after = self._iterated(memory, here, tol)
        return select(goes, after, memory), shown | goes & here.usable

    # --- the start --------------------------------------------------------------------------------

    def _begun(self, memory: AdaptiveMemory, here: Evaluation, tol: Scalar) -> AdaptiveMemory:
        """With value and gradient at x0."""
        progress = memory.progress.ending(~here.usable, Status.NON_FINITE)
        progress = progress.ending(here.size <= tol, Status.CONVERGED)
        memory = memory._replace(
            value=here.value, start_norm=here.norm, progress=progress, phase=jnp.asarray(ITERATE)
        )
        if not self.probes:
            return memory._replace(now=self._first(here.norm, number(0.0)))
        probe = Probe.first(self.limits, here)
        point = probe.point(here.point, here.gradient)
        return memory._replace(
            x=point,
            ahead=point,
            average=memory.average._replace(mean=here.gradient),
            probe=probe,
            phase=jnp.asarray(PROBE),
        )

    def _probed(self, memory: AdaptiveMemory, here: Evaluation) -> AdaptiveMemory:
        gradient = memory.average.mean
        found, lipschitz, probe = memory.probe.answered(
            memory.phase == PROBE, here, memory.start, gradient, self.limits
        )
        point = select(found, memory.start, probe.point(memory.start, gradient))
        return memory._replace(
            x=point,
            ahead=point,
            now=self._first(memory.probe.norm, lipschitz),
            probe=probe,
            phase=jnp.where(found, ITERATE, PROBE),
        )

    def _first(self, norm: Scalar, lipschitz: Scalar) -> Numbers:
        """`AdaptiveRadius._first_schedule`, given what a probe has found of L."""
        method, tol = self.method, self.tol
        if self.by_theory:
            p = theory_parameters(method, self.scheme, tol)
            eta, theta, radius, length = p.step_size, p.theta, p.radius, p.epoch_length
            rho, eps = number(method.hessian_lipschitz), p.eps
            uncapped = theta
            if method.momentum is None:
                uncapped = self.scheme.theta(eps, method.hessian_lipschitz or 0.0, eta)
        else:
            small = jnp.where(norm > 0.0, 1e-6 * norm, 1.0)
            eps = number(method.eps or tol or small)
            L = method.gradient_lipschitz
            eta = method.step_size or 1 / (4 * L if L else lipschitz)
            uncapped = number(LARGEST_PRACTICAL_THETA)
            if method.hessian_lipschitz is not None:
                uncapped = jnp.sqrt(eta * jnp.sqrt(eps) * math.sqrt(method.hessian_lipschitz))
            theta = jnp.minimum(uncapped, LARGEST_PRACTICAL_THETA)
            if method.momentum is not None:
                theta = uncapped = number(1 - method.momentum)
            least = self.limits.smallest
            root = jnp.clip(theta / eta * theta / jnp.sqrt(eps), least, 1 / least)
            rho = root**2 if method.hessian_lipschitz is None else number(method.hessian_lipschitz)
            radius = method.radius or jnp.sqrt(eps / rho)
            length = method.epoch_length or _whole(theta)
        wide = method.initial_radius or 100 * norm * eta / theta
        first = [number(a) for a in (eta, rho, eps, theta, uncapped)]
        length = jnp.asarray(length).astype(int)
        return Numbers._make((*first, length, number(radius), number(wide), jnp.asarray(0)))

    # --- an iteration ----------------------------------------------------------------------------

    def _iterated(self, memory: AdaptiveMemory, here: Evaluation, tol: Scalar) -> AdaptiveMemory:
        now, k = memory.now, memory.k + 1
        (z,), (moved,) = run(
            passes.STEPPED, (memory.ahead, here.gradient, memory.x), (-now.step_size,)
        )  # lines 3-4
        travelled = memory.travelled + moved  # line 5
        fails = ~(here.usable & jnp.isfinite(travelled))
        stands = ~fails & (moved == 0.0) & (k == 1)
        far = ~(k * travelled <= now.limit * now.limit) | (k > now.length)  # line 6
        far &= ~fails & ~stands
        goes = ~(fails | stands | far)
        completes = goes & (k >= now.length) & now.at_radius  # line 2
        average = jax.lax.cond(
            now.at_radius,
            lambda: memory.average.added(memory.k, here.point, moved, now.length),
            lambda: memory.average,
        )
        memory = memory._replace(
            start_norm=jnp.where(k == 1, here.norm, memory.start_norm), reported=Reported.of(here)
        )
        x = restart_point(self.scheme, z, memory.x, now.theta, far)
        momentum = jnp.where(far | completes, 0.0, 1 - now.theta)
        after = memory._replace(
            x=x,
            ahead=combination(x, momentum, x, memory.x),
            k=jnp.where(far | completes, 0, k),
            travelled=jnp.where(far, 0.0, travelled),
            ended=jnp.where(far | completes, k, 0),
            average=average,
            phase=jnp.where(far, VALUE, jnp.where(completes, SNAPSHOT, ITERATE)),
        )
        # The last point of an epoch that ran through waits while its average is evaluated.
        waiting = after._replace(
            x=average.snapshot, ahead=average.snapshot, average=average._replace(mean=after.x)
        )
        after = select(completes, waiting, after)
        closed = self._closed(after, goes & ~completes, tol)
        closed = closed.counted(stands).ending(stands & (here.size <= tol), Status.CONVERGED)
        closed = closed.ending(stands, zero_or_stuck(here.norm))
        after = after._replace(progress=closed)
        chosen: AdaptiveMemory = select(fails, self._failed(memory, k, tol), after)
        return chosen

    def _judged(self, memory: AdaptiveMemory, here: Evaluation, tol: Scalar) -> AdaptiveMemory:
        """Lines 7-9: keep the end of the epoch, if it is low enough."""
        now, before = memory.now, memory.value
        required = self.method.decrease * now.eps * jnp.sqrt(now.eps / now.rho)
        change, noise = here.value - before, self._noise(before)
        level = (required <= noise) & (jnp.abs(change) <= noise)
        level &= here.norm < memory.start_norm
        kept = here.usable & ((change <= -required) | level)
        after = memory._replace(
            start=here.point,
            value=here.value,
            ended=jnp.asarray(0),
            now=self._grown(now),
            phase=jnp.asarray(ITERATE),
        )
        yes = jnp.asarray(True)
        after = after._replace(progress=self._closed(after, yes, tol, ended=yes))
        chosen: AdaptiveMemory = select(kept, after, self._failed(memory, memory.ended, tol))
        return chosen

    def _grown(self, now: Numbers) -> Numbers:
        """B0/c0 and, with growth, a larger step with theta as it is."""
        growth, tiny = self.growth, float(jnp.finfo(now.rho.dtype).tiny)
        return now._replace(
            step_size=now.step_size * growth,
            rho=jnp.maximum(now.rho / (growth * growth), tiny),
            radius=now.radius * growth,
            wide=now.wide / self._shrink(now),
            restarts=now.restarts + 1,
        )

    def _failed(self, memory: AdaptiveMemory, k: Scalar, tol: Scalar) -> AdaptiveMemory:
        """Line 11 and Remark 2: back to x^0 with smaller B0 and eta, and a larger rho'."""
        now, reported = memory.now, memory.reported
        after = self._shrunk(now)
        same = (after.step_size == now.step_size) & (after.theta == now.theta)
        same &= (after.length == now.length) & ((k == 1) | (after.limit == now.limit))
        memory = memory._replace(
            x=memory.start,
            ahead=memory.start,
            k=jnp.asarray(0),
            travelled=number(0.0),
            ended=k,
            now=after,
            phase=jnp.asarray(ITERATE),
        )
        yes = jnp.asarray(True)
        progress = self._closed(memory, yes, tol, discarded=yes)
        known = jnp.isfinite(reported.norm) & jnp.isfinite(reported.value)
        progress = progress.ending(~known & (k == 1), Status.NON_FINITE)
        return memory._replace(progress=progress.ending(same, Status.NO_PROGRESS))

    def _shrunk(self, now: Numbers) -> Numbers:
        """`Schedule.after_failure`."""
        method, c2 = self.method, self.backoff
        eta = jnp.maximum(now.step_size / c2, jnp.minimum(method.step_size_min, now.step_size))
        rho = jnp.minimum(now.rho * c2 * c2, jnp.maximum(method.hessian_lipschitz_max, now.rho))
        theta, uncapped, length = now.theta, now.uncapped, now.length
        if self.largest_theta is not None:
            change = (rho / now.rho) * (eta / now.step_size) * (eta / now.step_size)
            apart = jnp.abs(change - 1) > 1e-9
            uncapped = jnp.where(apart, uncapped * change**0.25, uncapped)
            theta = jnp.where(apart, jnp.minimum(uncapped, self.largest_theta), theta)
            if method.epoch_length is None:
                length = jnp.where(apart, _whole(theta), length)
        return now._replace(
            step_size=eta,
            rho=rho,
            theta=theta,
            uncapped=uncapped,
            length=length,
            radius=now.radius * jnp.sqrt(now.rho / rho),
            wide=now.wide / (self._shrink(now) * method.failure_shrink),
            restarts=now.restarts + 1,
        )

    def _shrink(self, now: Numbers) -> Any:
        return self.method.radius_shrink or 1 + 0.001 * (now.restarts + 1)

    # --- the end of an epoch that ran through ----------------------------------------------------

    def _output(
        self, memory: AdaptiveMemory, here: Evaluation, tol: Scalar
    ) -> tuple[AdaptiveMemory, Scalar]:
        """Lines 15-17: the average or the last iterate, whichever has the smaller gradient."""
        first = memory.phase == SNAPSHOT
        better = here.norm <= memory.reported.norm
        reported = select(first | better, Reported.of(here), memory.reported)
        memory = memory._replace(reported=reported)
        last = memory.average.mean
        waiting = memory._replace(x=last, ahead=last, phase=jnp.asarray(LAST))
        limit = memory.value + self._noise(memory.value)
        risen = ~(reported.value <= limit) if self.backoff > 1 else jnp.asarray(False)
        promise = math.nan
        if self.by_theory and self.backoff == 1.0:
            p = theory_parameters(self.method, self.scheme, self.tol)
            rho = self.method.hessian_lipschitz or 0.0
            promise = self.scheme.promise(p.step_size, p.theta, p.radius, p.epoch_length, rho)
        yes = jnp.asarray(True)
        progress = self._closed(memory, yes, tol)
        status = by_promise(reported.norm, promise, tol)
        again = jnp.asarray(False)
        if self.probes and self.method.eps is None:
            again = progress.runs & (status == int(Status.ABOVE_TOLERANCE))
        progress = progress.ending(~again, status)
        # eps was ours to choose and did not lead to the tolerance: take a tenth, keep theta.
        lower = reported.value <= memory.value
        start = select(better, here.point, memory.average.snapshot)
        start = select(lower, start, memory.start)
        now = memory.now
        tighter = memory._replace(
            x=start,
            ahead=start,
            start=start,
            value=jnp.where(lower, reported.value, memory.value),
            k=jnp.asarray(0),
            travelled=number(0.0),
            now=now._replace(
                eps=now.eps / 10,
                rho=now.rho * 10,
                radius=now.radius / 10,
                restarts=now.restarts + 1,
            ),
            phase=jnp.asarray(ITERATE),
            progress=progress,
        )
        done = select(risen, self._failed(memory, memory.ended, tol), tighter)
        return select(first, waiting, done), better


def _whole(theta: Scalar) -> Scalar:
    """K = floor(1/theta), as `methods.restarted.parameters.whole_epoch` has it."""
    return jnp.maximum(1, jnp.floor(1 / theta + 1e-9)).astype(int)
