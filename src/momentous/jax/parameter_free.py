"""What the machines of the parameter-free methods share: tests by values that know rounding."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from momentous.core.status import Status
from momentous.jax.machine import Evaluation, Machine, Progress
from momentous.jax.probe import Probe
from momentous.jax.vectors import (
    Limits,
    Scalar,
    Tree,
    combination,
    distance_squared,
    inner,
    norm,
    number,
    select,
)
from momentous.methods.parameter_free.base import HEADROOM, SIGNAL, ParameterFree
from momentous.methods.search.rounding import (
    ALIKE,
    FAR_ENOUGH,
    HIDDEN,
    LONG,
    NOISE,
    RARE,
    SELDOM,
    SHORT,
    SHORTER,
)

# What the evaluation is for:
ADVANCE = 0  # it is that of x_k,
FIRST = 1  # of x0,
PROBE = 2  # of a point near x0, to find L,
MEASURE = 3  # of a point between x_{k-1} and x_k, to see how noisy values are;
NEXT = 4  # and what comes after x_k is for the two methods

PARTS = (LONG, *SHORT)


class Rounding(NamedTuple):
    """`methods.search.rounding.Rounding`, and the measurement under way."""

    level: Scalar
    trusted: Scalar
    seen: Scalar
    largest: Scalar
    missed: Scalar  # one number per part of the step
    count: Scalar  # how many of them are known
    length: Scalar  # of the step that is measured, as a share of x_k - x_{k-1}
    before: Scalar  # what a longer one has shown
    flat: Scalar  # is f the same in all parts, against the slope?

    @staticmethod
    def at(limits: Limits, value: Scalar) -> Rounding:
        zero = number(0.0)
        missed, none, size = jnp.zeros(len(PARTS), zero.dtype), number(jnp.inf), jnp.abs(value)
        level = NOISE * limits.rounding * size
        count, yes = jnp.asarray(0), jnp.asarray(True)
        return Rounding(level, none, zero, size, missed, count, number(1.0), none, yes)

    def between(self, limits: Limits, value: Scalar, other: Scalar) -> Scalar:
        size = jnp.maximum(jnp.abs(value), jnp.abs(other))
        return jnp.maximum(self.level, NOISE * limits.rounding * size)

    def doubts(self, change: Scalar) -> Scalar:
        return change < SELDOM * self.trusted

    def measured(self, limits: Limits, value: Scalar, change: Scalar) -> tuple[Rounding, Scalar]:
        """After a look at all parts of a step: what is known now, or a shorter step to look at; and
        is it done?"""
        far, worst = self.missed[0], jnp.max(self.missed)
        alike = jnp.isfinite(jnp.sum(self.missed)) & (ALIKE * far <= jnp.max(self.missed[1:]))
        noise = jnp.where(alike, 2 * worst, 0.0)
        noise = jnp.where(self.flat & (self.before < jnp.inf), self.before, noise)
        largest = jnp.maximum(self.largest, jnp.abs(value))
        common = jnp.maximum(self.level, RARE * limits.rounding * largest)
        stays = noise >= ALIKE * self.before
        done = (noise <= common) | stays
        believed = jnp.where(done, noise, 0.0)
        believed = jnp.where((noise > common) & stays, jnp.maximum(noise, self.before), believed)
        hidden = jnp.maximum(change, HIDDEN * noise)
        shorter = SHORTER * jnp.sqrt(noise / jnp.where(hidden > 0.0, hidden, 1.0))
        after = self._replace(
            level=jnp.maximum(self.level, believed),
            trusted=jnp.where(done, change, self.trusted),
            seen=jnp.maximum(self.seen, believed),
            count=jnp.asarray(0),
            length=jnp.where(done, 1.0, shorter * self.length),
            before=jnp.where(done, jnp.inf, noise),
            flat=jnp.asarray(True),
        )
        return after, done


class Sample(NamedTuple):
    """A point with its value and gradient."""

    point: Tree
    gradient: Tree
    value: Scalar
    norm: Scalar
    size: Scalar

    @staticmethod
    def of(here: Evaluation) -> Sample:
        return Sample(here.point, here.gradient, here.value, here.norm, here.size)

    @property
    def usable(self) -> Scalar:
        return jnp.isfinite(self.value) & jnp.isfinite(self.norm)


class ParameterFreeMachine(Machine):
    """Its memory has x, a `Sample`; lipschitz, confirmed, rounding, size, k, travelled,
    average_due; and progress, phase and probe."""

    def __init__(self, method: ParameterFree[Any], x0: Tree, tol: float, key: Any = None):
        self.method, self.limits = method, Limits.of(x0)
        self.guards = method.guards
        self.never = method.average_growth == jnp.inf

    @property
    def _first_due(self) -> Scalar:
        return number(jnp.inf if self.never else 1.0)

    def _next_due(self, k: Scalar) -> Scalar:
        return jnp.maximum(k + 1.0, self.method.average_growth * number(k))

    def _started(self, memory: Any, here: Evaluation, tol: Scalar, **at_x0: tuple[Any, Any]) -> Any:
        """With the evaluation at x0, and with those that L is found by.

        ``at_x0`` are more fields of the memory: what they are after the evaluation at x0, and what
        they are otherwise.
        """
        first, probes = memory.phase == FIRST, memory.phase == PROBE
        x = memory.x
        progress = memory.progress.ending(first & ~here.usable, Status.NON_FINITE)
        progress = progress.ending(first & (here.size <= tol), Status.CONVERGED)
        found, lipschitz, probe = memory.probe.answered(
            probes, here, x.point, x.gradient, self.limits
        )
        lipschitz = jnp.maximum(lipschitz, self.limits.smallest)
        begun = Probe.first(self.limits, here)
        given = self.method.gradient_lipschitz is not None
        phase = jnp.where(first, ADVANCE if given else PROBE, memory.phase)
        return memory._replace(
            x=select(first, Sample.of(here), x),
            lipschitz=jnp.where(probes & found, lipschitz, memory.lipschitz),
            rounding=select(first, Rounding.at(self.limits, here.value), memory.rounding),
            size=self._size(first, here.point, memory.size),
            probe=select(first, begun, select(probes, probe, memory.probe)),
            phase=jnp.where(probes & found, ADVANCE, phase),
            progress=progress,
            **{name: select(first, new, old) for name, (new, old) in at_x0.items()},
        )

    def _looked(
        self, memory: Any, here: Evaluation, slope: Scalar, v_norm: Scalar, change: Scalar
    ) -> tuple[Rounding, Scalar]:
        """The noise, with one more part of a measurement if one is under way, and is it done?  It
        takes four turns, and four more for every shorter step."""
        rounding, measures = memory.rounding, memory.phase == MEASURE
        count, before = rounding.count, memory.x.value
        expected = self._part(memory, v_norm) * slope
        missed = jnp.abs(here.value - before - expected)
        resolution = NOISE * self.limits.rounding * jnp.abs(before)
        seen = (here.value != before) | (count == 0) & (jnp.abs(expected) <= resolution)
        rounding = rounding._replace(
            flat=rounding.flat & ~(measures & seen),
            missed=jnp.where(measures, rounding.missed.at[count].set(missed), rounding.missed),
            count=count + measures,
        )
        complete = measures & (count == len(PARTS) - 1)
        after, done = rounding.measured(self.limits, memory.x.value, change)
        return select(complete, after, rounding), complete & done

    def _part(self, memory: Any, v_norm: Scalar) -> Scalar:
        """t of the point x_{k-1} + t v of the measurement under way."""
        unit = self.limits.rounding * norm(memory.x.point) / jnp.where(v_norm > 0.0, v_norm, 1.0)
        length = jnp.maximum(memory.rounding.length, FAR_ENOUGH * unit)
        return jnp.asarray(PARTS, length.dtype)[memory.rounding.count] * length

    def _decided(
        self,
        rounding: Rounding,
        before: Scalar,
        after: Scalar,
        by_gradients: Scalar,
        bound: Scalar,
        signal: Scalar,
    ) -> tuple[Scalar, Scalar]:
        """`ParameterFree._decided`: does f change by no more than the bound, and is it clear?"""
        noise = rounding.between(self.limits, before, after)
        change, clear = after - before, signal > SIGNAL * noise
        by_values = change <= bound
        if not self.guards:
            return by_values, clear
        level = (by_gradients <= bound) & (change <= bound + noise)
        return jnp.where(clear, by_values, level), clear

    def _is_acceptable(self, rounding: Rounding, lowest: Sample, reported: Sample) -> Scalar:
        """May a run end there?  `core.acceptance` with the limit of these methods."""
        rise = reported.value - lowest.value
        step = combination(reported.point, -1.0, lowest.point)
        slope = (inner(lowest.gradient, step) + inner(reported.gradient, step)) / 2
        level = rounding.between(self.limits, lowest.value, reported.value)
        rise = jnp.where(jnp.abs(rise) <= level, slope, rise)
        # A convex function cannot have risen by more than that.
        convex = reported.norm * jnp.sqrt(distance_squared(reported.point, lowest.point))
        return reported.usable & ((rise <= 0.0) | (rise <= convex))

    def _closed(
        self, memory: Any, closes: Scalar, lowest: Sample, reported: Sample, tol: Scalar,
        ended: Scalar, discarded: Scalar,
    ) -> Progress:  # fmt: skip
        """The progress after an iteration that reports this sample."""
        small = closes & (reported.size <= tol)
        ends = jax.lax.cond(
            small,
            lambda: self._is_acceptable(memory.rounding, lowest, reported),
            lambda: jnp.asarray(False),
        )
        progress: Progress = memory.progress.counted(closes, closes & ended, closes & discarded)
        return progress.ending(ends, Status.CONVERGED)

    def _gives_up(self, lipschitz: Scalar, confirmed: Scalar, clear: Scalar) -> Scalar:
        """After a rejection: has rounding decided for too long?"""
        if not self.guards:
            return jnp.asarray(False)
        return ~clear & (lipschitz > HEADROOM * confirmed) & (confirmed > 0.0)

    def _size(self, begins: Scalar, x: Tree, before: Scalar) -> Scalar:
        """|x_0|, made anew where an epoch begins."""
        return jax.lax.cond(begins, lambda: norm(x), lambda: before)

    def _sample_of(self, x0: Tree) -> Sample:
        nothing, zero = number(jnp.inf), jax.tree.map(jnp.zeros_like, x0)
        return Sample(x0, zero, nothing, nothing, nothing)


def smaller(condition: Scalar, first: Sample, other: Sample) -> Sample:
    """The sample with the smaller gradient, if the condition holds."""
    better = condition & other.usable & (other.norm < first.norm)
    chosen: Sample = select(better, other, first)
    return chosen
