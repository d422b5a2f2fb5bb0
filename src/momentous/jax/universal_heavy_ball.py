"""The universal heavy ball (Marumo & Takeda 2025) as a machine."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from momentous.core.status import Status
from momentous.jax.machine import Evaluation, Progress, zero_or_stuck
from momentous.jax.parameter_free import (
    ADVANCE,
    FIRST,
    MEASURE,
    NEXT,
    ParameterFreeMachine,
    Rounding,
    Sample,
    smaller,
)
from momentous.jax.probe import Probe
from momentous.jax.vectors import (
    Scalar,
    Tree,
    combination,
    distance_squared,
    inner,
    number,
    select,
)
from momentous.methods.parameter_free import UniversalHeavyBall
from momentous.methods.search.rounding import NOISE

MEAN = NEXT  # the evaluation is that of the mean of x_0, ..., x_k


class HeavyBallMemory(NamedTuple):
    x: Sample  # x_{k-1}, or x_k while the mean is evaluated
    new: Sample  # x_k, while it is judged
    v: Tree  # v_{k-1}
    mean: Tree  # of x_0, ..., x_{k-1}
    mean_norm: Scalar  # the norm of the gradient there, NaN where it was not evaluated
    best: Sample  # the lowest point of the epoch
    reported: Sample
    k: Scalar
    travelled: Scalar  # S
    variation: Scalar  # h
    successes: Scalar
    mark: Scalar
    lipschitz: Scalar  # L
    confirmed: Scalar
    clear: Scalar
    rounding: Rounding
    size: Scalar  # |x_0|
    average_due: Scalar
    phase: Scalar
    probe: Probe
    progress: Progress


class UniversalHeavyBallMachine(ParameterFreeMachine):
    """`momentous.methods.parameter_free.heavy_ball`, compiled."""

    method: UniversalHeavyBall

    def begin(self, x0: Tree) -> HeavyBallMemory:
        nothing, zero, none = self._sample_of(x0), number(0.0), jnp.asarray(0)
        return HeavyBallMemory(
            x=nothing,
            new=nothing,
            v=nothing.gradient,
            mean=x0,
            mean_norm=zero,
            best=nothing,
            reported=nothing,
            k=none,
            travelled=zero,
            variation=zero,
            successes=none,
            mark=zero,
            lipschitz=number(self.method.gradient_lipschitz or 1.0),
            confirmed=zero,
            clear=jnp.asarray(True),
            rounding=Rounding.at(self.limits, zero),
            size=zero,
            average_due=self._first_due,
            phase=jnp.asarray(FIRST),
            probe=Probe.none(),
            progress=Progress.none(),
        )

    def accepted(self, memory: HeavyBallMemory) -> tuple[Tree, Scalar]:
        return memory.best.point, memory.best.value

    def _velocity(self, memory: HeavyBallMemory) -> Tree:
        """v_k."""
        return combination(memory.v, -1 / memory.lipschitz, memory.x.gradient)

    def point(self, memory: HeavyBallMemory) -> Tree:
        def measured() -> Tree:
            v = self._velocity(memory)
            return combination(memory.x.point, self._part(memory, jnp.sqrt(inner(v, v))), v)

        return jax.lax.switch(
            memory.phase,
            [
                lambda: combination(memory.x.point, 1.0, self._velocity(memory)),
                lambda: memory.x.point,
                lambda: memory.probe.point(memory.x.point, memory.x.gradient),
                measured,
                lambda: memory.mean,
            ],
        )

    def advance(
        self, memory: HeavyBallMemory, here: Evaluation, tol: Scalar
    ) -> tuple[HeavyBallMemory, Scalar]:
        phase, before = memory.phase, memory.reported
        memory = self._started(
            memory,
            here,
            tol,
            best=(Sample.of(here), memory.best),
            mean_norm=(here.norm, memory.mean_norm),
            mark=(here.norm, memory.mark),
        )
        memory, rejects, stands, full = self._judged(memory, here, phase)
        memory, closes = self._with_mean(memory, here, phase)
        memory = self._closed_with(memory, rejects, stands, full, closes, tol)
        shown = (phase == FIRST) | (phase == ADVANCE) & here.usable
        shown |= (phase == MEAN) & here.usable & (here.norm < before.norm)
        return memory, shown

    def _judged(
        self, memory: HeavyBallMemory, here: Evaluation, phase: Scalar
    ) -> tuple[HeavyBallMemory, Scalar, Scalar, Scalar]:
        """Is x_k low enough?  Is it rejected, does it not even move, or does h end the epoch?"""
        asked = phase == ADVANCE
        k, L, x = memory.k + 1, memory.lipschitz, memory.x
        new = select(asked, Sample.of(here), memory.new)
        v = self._velocity(memory)
        moved, count = inner(v, v), number(k)
        travelled = memory.travelled + moved
        slope, reach = inner(x.gradient, v), L * moved / 2
        by_gradients = (slope + inner(new.gradient, v)) / 2
        by_values = new.value - x.value
        rounding, measured = self._looked(memory, here, slope, jnp.sqrt(moved), reach)
        bound = slope + reach
        falls, clear = self._decided(rounding, x.value, new.value, by_gradients, bound, reach)
        usable = new.usable & jnp.isfinite(travelled)
        doubtful = asked & usable & ~falls & (by_gradients <= bound) & rounding.doubts(reach)
        doubtful &= self.guards
        stands = asked & (k == 1) & (distance_squared(new.point, x.point) == 0.0)
        decides = (asked | measured) & ~doubtful & ~stands
        best = self._lower(decides & usable, rounding, memory.best, new)
        rejects = decides & ~(usable & falls)
        excess, gap = by_values - by_gradients, memory.mean_norm - L / count * jnp.sqrt(moved)
        if self.guards:
            excess -= rounding.between(self.limits, x.value, new.value)
            size = memory.size + jnp.sqrt(count * travelled)
            gap -= NOISE * self.limits.rounding * L * size
        h = memory.variation
        h = jnp.where((excess > 0.0) & (moved > 0.0), jnp.maximum(h, 3 * excess / moved), h)
        by_mean = jnp.sqrt(8 / (count * travelled)) * gap
        h = jnp.where((gap > 0.0) & (travelled > 0.0), jnp.maximum(h, by_mean), h)
        full = decides & ~rejects & ~(count * (count + 1) * h <= 3 / 8 * L)
        goes_on = decides & ~rejects & ~full
        mean = combination(memory.mean, 1 / (count + 1), new.point, memory.mean)
        after = jnp.where(goes_on, MEAN, jnp.where(doubtful, MEASURE, memory.phase))
        memory = memory._replace(
            x=select(goes_on, new, x),
            new=new,
            v=select(goes_on, v, memory.v),
            mean=select(goes_on, mean, memory.mean),
            mean_norm=jnp.where(goes_on, jnp.nan, memory.mean_norm),
            best=best,
            reported=select(asked, new, memory.reported),
            k=jnp.where(goes_on, k, memory.k),
            travelled=jnp.where(goes_on, travelled, memory.travelled),
            variation=jnp.where(goes_on, h, memory.variation),
            clear=jnp.where(decides, jnp.where(usable, clear, True), memory.clear),
            rounding=rounding,
            phase=after,
        )
        return memory, rejects, stands, full

    def _with_mean(
        self, memory: HeavyBallMemory, here: Evaluation, phase: Scalar
    ) -> tuple[HeavyBallMemory, Scalar]:
        """With the mean, if it was evaluated; is the iteration closed with that?"""
        looked, reached = phase == MEAN, memory.phase == MEAN
        waits = reached & ~looked & (memory.k >= memory.average_due)
        middle = Sample.of(here)
        closes = reached & ~waits
        memory = memory._replace(
            mean_norm=jnp.where(looked, here.norm, memory.mean_norm),
            best=self._lower(looked & here.usable, memory.rounding, memory.best, middle),
            reported=smaller(looked, memory.reported, middle),
            average_due=jnp.where(looked, self._next_due(memory.k), memory.average_due),
            phase=jnp.where(closes, ADVANCE, memory.phase),
        )
        return memory, closes

    def _closed_with(
        self, memory: HeavyBallMemory, rejects: Scalar, stands: Scalar, full: Scalar,
        closes: Scalar, tol: Scalar,
    ) -> HeavyBallMemory:  # fmt: skip
        """What follows: the next iteration, or another epoch with another L."""
        method, L, best = self.method, memory.lipschitz, memory.best
        contracts = closes & (best.norm <= method.contraction * memory.mark)
        succeeds, begins = full | contracts, full | contracts | rejects
        row, beta = memory.successes + 1, method.relaxation
        power = 2.0 ** jnp.minimum(number(row), 60.0) - 1
        factor = jnp.maximum(beta**power, min(beta, method.least_relaxation))
        factor = jnp.where(rejects, method.backoff, factor)
        confirmed = jnp.where(
            (closes | full) & memory.clear, jnp.maximum(memory.confirmed, L), memory.confirmed
        )
        L = jnp.where(begins, jnp.maximum(factor * L, self.limits.smallest), L)
        mark = jnp.minimum(memory.mark, best.norm)
        if method.contraction:  # an end by h has paid for one early end
            mark = jnp.where(full, jnp.minimum(memory.mark / method.contraction, best.norm), mark)
        ends = begins | stands | closes
        progress = self._closed(memory, ends, best, memory.reported, tol, succeeds, rejects)
        progress = progress.ending(stands, zero_or_stuck(memory.x.norm))
        gives_up = rejects & self._gives_up(L, confirmed, memory.clear)
        progress = progress.ending(gives_up, Status.NO_PROGRESS)
        zero = jax.tree.map(jnp.zeros_like, memory.v)
        return memory._replace(
            x=select(begins, best, memory.x),
            v=select(begins, zero, memory.v),
            mean=select(begins, best.point, memory.mean),
            mean_norm=jnp.where(begins, best.norm, memory.mean_norm),
            k=jnp.where(begins, 0, memory.k),
            travelled=jnp.where(begins, 0.0, memory.travelled),
            variation=jnp.where(begins, 0.0, memory.variation),
            successes=jnp.where(rejects, 0, jnp.where(succeeds, row, memory.successes)),
            mark=jnp.where(begins, mark, memory.mark),
            lipschitz=L,
            confirmed=confirmed,
            size=self._size(begins, best.point, memory.size),
            average_due=jnp.where(begins, self._first_due, memory.average_due),
            phase=jnp.where(begins, ADVANCE, memory.phase),
            progress=progress,
        )

    def _lower(self, condition: Scalar, rounding: Rounding, best: Sample, other: Sample) -> Sample:
        """The lower of the two points, the first one where they are level."""
        rise = other.value - best.value
        if self.guards:
            step = combination(other.point, -1.0, best.point)
            slope = (inner(best.gradient, step) + inner(other.gradient, step)) / 2
            level = rounding.between(self.limits, best.value, other.value)
            rise = jnp.where(jnp.abs(rise) <= level, slope, rise)
        lower: Sample = select(condition & (rise < 0.0), other, best)
        return lower
