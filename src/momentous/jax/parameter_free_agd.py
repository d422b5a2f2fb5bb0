"""Parameter-free restarted AGD (Marumo & Takeda 2024) as a machine."""

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
from momentous.methods.parameter_free import ParameterFreeAGD
from momentous.methods.search.rounding import NOISE

EXTRAPOLATED = NEXT  # the evaluation is that of y_k,
AVERAGED = NEXT + 1  # ... or of the mean of y_0, ..., y_{k-1}


class AGDMemory(NamedTuple):
    x: Sample  # x_{k-1}, the last accepted point
    new: Sample  # x_k, while it is judged and y_k is evaluated
    y: Sample  # y_{k-1}
    average: Tree  # the weighted mean of y_0, ..., y_{k-1}
    reported: Sample
    origin: Scalar  # f(x_0)
    k: Scalar
    travelled: Scalar  # S
    change: Scalar  # f(x_{k-1}) - f(x_0) by the trapezoidal rule
    hessian: Scalar  # M
    lipschitz: Scalar  # L
    confirmed: Scalar
    clear: Scalar
    rounding: Rounding
    size: Scalar  # |x_0|
    average_due: Scalar
    phase: Scalar
    probe: Probe
    progress: Progress


class ParameterFreeAGDMachine(ParameterFreeMachine):
    """`momentous.methods.parameter_free.agd`, compiled."""

    method: ParameterFreeAGD

    def begin(self, x0: Tree) -> AGDMemory:
        nothing, zero, none = self._sample_of(x0), number(0.0), jnp.asarray(0)
        return AGDMemory(
            x=nothing,
            new=nothing,
            y=nothing,
            average=x0,
            reported=nothing,
            origin=zero,
            k=none,
            travelled=zero,
            change=zero,
            hessian=number(self.method.hessian_lipschitz),
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

    def accepted(self, memory: AGDMemory) -> tuple[Tree, Scalar]:
        return memory.x.point, memory.x.value

    def point(self, memory: AGDMemory) -> Tree:
        x, new, k = memory.x, memory.new, number(memory.k + 1)

        def measured() -> Tree:
            v_norm = jnp.sqrt(distance_squared(new.point, x.point))
            t = self._part(memory, v_norm)
            return combination(x.point, t, new.point, x.point)

        return jax.lax.switch(
            memory.phase,
            [
                lambda: combination(memory.y.point, -1 / memory.lipschitz, memory.y.gradient),
                lambda: x.point,
                lambda: memory.probe.point(x.point, x.gradient),
                measured,
                lambda: combination(new.point, k / (k + 1), new.point, x.point),
                lambda: memory.average,
            ],
        )

    def advance(self, memory: AGDMemory, here: Evaluation, tol: Scalar) -> tuple[AGDMemory, Scalar]:
        phase = memory.phase
        before = memory.reported
        memory = self._started(
            memory, here, tol, y=(Sample.of(here), memory.y), origin=(here.value, memory.origin)
        )
        memory, rejects, stands = self._judged(memory, here, phase)
        memory, restarts, advances, y = self._extended(memory, here, phase, tol)
        memory = self._closed_with(memory, rejects, stands, restarts, advances, y, tol)
        shown = (phase == FIRST) | (phase == ADVANCE) & here.usable
        shown |= (phase >= EXTRAPOLATED) & here.usable & (here.norm < before.norm)
        return memory, shown

    def _judged(
        self, memory: AGDMemory, here: Evaluation, phase: Scalar
    ) -> tuple[AGDMemory, Scalar, Scalar]:
        """Is x_k low enough?  Is it rejected, or does it not even move?"""
        asked = phase == ADVANCE
        k, L, x = memory.k + 1, memory.lipschitz, memory.x
        new = select(asked, Sample.of(here), memory.new)
        moved = distance_squared(new.point, x.point)
        v = combination(new.point, -1.0, x.point)
        travelled = memory.travelled + moved
        slope, slope_new = inner(x.gradient, v), inner(new.gradient, v)
        required = L * travelled / (2 * number(k + 1))
        change = memory.change + (slope + slope_new) / 2
        rounding, measured = self._looked(memory, here, slope, jnp.sqrt(moved), required)
        claim = (memory.origin, new.value, change, -required, required)
        falls, clear = self._decided(rounding, *claim)
        usable = new.usable & jnp.isfinite(travelled)
        doubtful = asked & usable & ~falls & (change <= -required) & rounding.doubts(required)
        doubtful &= self.guards
        stands = asked & (k == 1) & (moved == 0.0)
        decides = (asked | measured) & ~doubtful & ~stands
        rejects = decides & ~(usable & falls)
        goes_on = decides & usable & falls
        after = jnp.where(goes_on, EXTRAPOLATED, jnp.where(doubtful, MEASURE, memory.phase))
        memory = memory._replace(
            new=new,
            reported=select(asked, new, memory.reported),
            travelled=jnp.where(goes_on, travelled, memory.travelled),
            change=jnp.where(goes_on, change, memory.change),
            clear=jnp.where(decides, jnp.where(usable, clear, True), memory.clear),
            rounding=rounding,
            phase=jnp.where(rejects, ADVANCE, after),
        )
        return memory, rejects, stands

    def _extended(
        self, memory: AGDMemory, here: Evaluation, phase: Scalar, tol: Scalar
    ) -> tuple[AGDMemory, Scalar, Scalar, Sample]:
        """With y_k: does the epoch end, or does the iteration, and with which y?"""
        asked, averaged = phase == EXTRAPOLATED, phase == AVERAGED
        k, L, x, new = memory.k + 1, memory.lipschitz, memory.x, memory.new
        y = select(asked, Sample.of(here), memory.y)
        moved = distance_squared(new.point, x.point)
        lost = asked & ~here.usable
        M = jnp.maximum(memory.hessian, self._hessian(memory, y, moved))
        M = jnp.where(asked & ~lost, M, memory.hessian)
        mean_norm = 2 * L * jnp.sqrt(moved) / number(k + 1)
        due = (k >= jnp.maximum(2.0, memory.average_due)) & (mean_norm <= tol)
        due &= asked & ~lost
        memory = memory._replace(
            hessian=M,
            y=y,
            average_due=jnp.where(due, self._next_due(k), memory.average_due),
            reported=smaller(asked | averaged, memory.reported, Sample.of(here)),
            phase=jnp.where(due, AVERAGED, memory.phase),
        )
        ends = (asked & ~due) | averaged
        full = ends & ~(number(k + 1) ** 2.5 * M * jnp.sqrt(memory.travelled) <= L)
        return memory, full | lost, ends & ~full & ~lost, y

    def _hessian(self, memory: AGDMemory, y: Sample, moved: Scalar) -> Scalar:
        """A lower bound of rho from x_{k-1}, x_k = x_{k-1} + v and y_k = x_k + theta v."""
        x, new, k = memory.x, memory.new, number(memory.k + 1)
        theta = k / (k + 1)
        pulled = combination(y.gradient, theta, x.gradient, new.gradient)
        gap = jnp.sqrt(distance_squared(pulled, new.gradient))
        v = combination(new.point, -1.0, x.point)
        slope = (inner(new.gradient, v) + inner(y.gradient, v)) / 2
        excess = y.value - new.value - theta * slope
        if self.guards:
            size = memory.size + jnp.sqrt(k * memory.travelled)
            gap -= NOISE * self.limits.rounding * memory.lipschitz * size
            excess -= memory.rounding.between(self.limits, new.value, y.value)
        cube = theta * theta * theta * moved * jnp.sqrt(moved)
        return jnp.maximum(_ratio(gap, theta * moved), _ratio(12 * excess, cube))

    def _closed_with(
        self, memory: AGDMemory, rejects: Scalar, stands: Scalar, restarts: Scalar,
        advances: Scalar, y: Sample, tol: Scalar,
    ) -> AGDMemory:  # fmt: skip
        """What follows: the next iteration, or another epoch with another L."""
        method, L, k = self.method, memory.lipschitz, memory.k + 1
        lost = restarts & ~y.usable
        factor = jnp.where(rejects | lost, method.backoff, method.relaxation)
        begins = rejects | restarts
        confirmed = jnp.where(
            (restarts | advances) & memory.clear,
            jnp.maximum(memory.confirmed, L),
            memory.confirmed,
        )
        L = jnp.where(begins, jnp.maximum(factor * L, self.limits.smallest), L)
        start = select(restarts | advances, memory.new, memory.x)
        mean = combination(memory.average, number(2) / (k + 2), memory.y.point, memory.average)
        closes = begins | stands | advances
        progress = self._closed(memory, closes, start, memory.reported, tol, restarts, rejects)
        progress = progress.ending(stands, zero_or_stuck(memory.x.norm))
        gives_up = rejects & self._gives_up(L, confirmed, memory.clear)
        progress = progress.ending(gives_up, Status.NO_PROGRESS)
        return memory._replace(
            x=start,
            y=select(begins, start, memory.y),
            average=select(begins, start.point, select(advances, mean, memory.average)),
            origin=jnp.where(begins, start.value, memory.origin),
            k=jnp.where(begins, 0, jnp.where(advances, k, memory.k)),
            travelled=jnp.where(begins, 0.0, memory.travelled),
            change=jnp.where(begins, 0.0, memory.change),
            hessian=jnp.where(begins, method.hessian_lipschitz, memory.hessian),
            lipschitz=L,
            confirmed=confirmed,
            size=self._size(begins, start.point, memory.size),
            average_due=jnp.where(begins, self._first_due, memory.average_due),
            phase=jnp.where(begins | advances, ADVANCE, memory.phase),
            progress=progress,
        )


def _ratio(a: Scalar, b: Scalar) -> Scalar:
    """a/b where both are positive, otherwise 0."""
    return jnp.where((a > 0.0) & (b > 0.0), a / b, 0.0)
