"""What values and gradients say about a function between two points, and where rounding drowns it.

By the trapezoidal rule ``f(b) - f(a)`` is ``<grad f(a) + grad f(b), b - a>/2`` up to
``rho |b - a|^3/12``.  Read from left to right this gives a lower bound of rho; read from right to
left, a change of f that is too small to be seen in the values; `Rounding` knows what that is.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from momentous.core.acceptance import mean_slope
from momentous.core.machine import Machine
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.space import Array

# Rounding errors of values and gradients, in units of rounding and of what they are made of.
NOISE = 32.0


@dataclasses.dataclass(frozen=True)
class LookConstants:
    """How noise is measured; no benchmark of these numbers is known."""

    # Over one long and three short parts of a step: where noise moves f, the short ones move it as
    # much; where f bends, or the slope is wrong, by an eighth at the most.
    parts: tuple[float, ...] = (1 / 8, 1 / 64, 1 / 96, 1 / 128)
    least_likeness: float = 1 / 4  # of the short ones to the long one
    # A step this many units of rounding of x long, at least: the errors of values nearer to each
    # other are alike.
    least_units: float = 2.0**13
    # It is measured again only for changes of f that are this much smaller: a few times in a run.
    repeat_share: float = 1 / 64
    # Noise above this many units of rounding of f is rare, and over a long step a smooth function
    # may look like it.  It is believed only if it stays on a shorter one, where a smooth function
    # shows less.
    rare_units: float = 1e6
    # How much shorter: a 64th where the noise is as large as the change of f that was sought, as f
    # may bend more than was thought; a half where it is 1024 times as large: no bend is.
    shorter_share: float = 1 / 64
    hidden_share: float = 1 / 1024


CONSTANTS = LookConstants()


@record
class Rounding:
    """How far rounding may move a difference of values: by their size, or as it was measured.

    Values that cancel (1 - cos x near 0, a chain of large terms near its minimum) are noisier than
    their size tells, and nothing but looking at them can tell by how much.
    """

    level: float = 0.0  # an absolute lower bound
    trusted: float = 0.0  # a change of f is in doubt where it is less than a 64th of this
    seen: float = 0.0  # the largest that was measured
    largest: float = 0.0  # |f| where the values began: later ones may be made of such terms

    # Rounding() is for a method whose line search has to show first that values can be trusted; one
    # that compares values from the first step on begins with Rounding.at.

    @classmethod
    def at(cls, m: Machine, value: float) -> Rounding:
        """What the value at a start tells: later ones may be made of terms of that size."""
        return cls(NOISE * m.rounding * abs(value), math.inf, largest=abs(value))

    def between(self, m: Machine, value: float, other: float = 0.0) -> float:
        """The noise of the difference of such values."""
        size = m.maximum(abs(value), abs(other))
        return m.maximum(self.level, NOISE * m.rounding * size)

    def size(self, m: Machine, value: float) -> float:
        """How large the terms are, to judge by the noise, of which such a value is made."""
        return self.between(m, value) / (NOISE * m.rounding)

    def may_be_noise(self, change: float) -> bool:
        """Is this a change of f so small that, for all that is known, noise may hide it?"""
        return change < CONSTANTS.repeat_share * self.trusted

    def trusting(self, m: Machine, change: float, value: float) -> Rounding:
        """The same, after values have shown such a change from this one on, if it is the first."""

        def trust() -> Rounding:
            return Rounding(self.level, change, self.seen, abs(value))

        return m.case(self, (self.trusted == 0.0, trust))


@record
class Look:
    """A look at how values scatter near a sample, which is under way: the value after one part of a
    step after the other; and of a shorter step, where noise is seen that is rare."""

    slope: float  # <grad f, direction>
    change: float  # what values ought to show after the whole step
    length: float  # of the step, in units of the direction
    unit: float  # of rounding of x, the same way
    before: float = math.inf  # the noise that a longer step has shown
    part: int = 0
    far: float = 0.0  # what f differs by, after the long part, from what the slope says
    near: float = 0.0  # the same after the short ones, the most
    flat: bool = True  # has f not changed at all?
    done: bool = False

    @staticmethod
    def along(
        m: Machine, here: Sample, direction: Array, slope: float, change: float, length: float = 1.0
    ) -> Look:
        """Before the first value."""
        size = m.norm(direction)
        unit = m.rounding * m.norm(here.point) / m.where(size > 0.0, size, 1.0)
        return Look(slope, change, length, unit)

    def _step(self, m: Machine) -> Any:
        size = m.maximum(abs(self.length), CONSTANTS.least_units * self.unit)
        return m.where(self.length < 0.0, -size, size)

    def end(self, m: Machine) -> Any:
        """Of the part under way."""
        *others, share = CONSTANTS.parts
        for i, each in reversed(list(enumerate(others))):
            share = m.where(self.part == i, each, share)
        return share * self._step(m)

    def point(self, m: Machine, here: Sample, direction: Array) -> Array:
        """Where the next value is needed."""
        return m.combination(here.point, self.end(m), direction)

    def answered(
        self, m: Machine, rounding: Rounding, here: Sample, value: float
    ) -> tuple[Rounding, Look]:
        """What is known after that value; and this look, which may go on."""
        change, first = value - here.value, self.part == 0
        missed = abs(change - self.end(m) * self.slope)
        missed = m.where(m.isfinite(missed), missed, math.inf)
        look = m.but(
            self,
            part=self.part + 1,
            far=m.where(first, missed, self.far),
            near=m.where(first, 0.0, m.maximum(self.near, missed)),
            flat=self.flat & (change == 0.0),
        )
        last = self.part == len(CONSTANTS.parts) - 1
        return m.case((rounding, look), (last, lambda: look._concluded(m, rounding, here.value)))

    def _concluded(self, m: Machine, known: Rounding, value: float) -> tuple[Rounding, Look]:
        most = m.maximum(self.far, self.near)
        alike = (most < math.inf) & (CONSTANTS.least_likeness * self.far <= self.near)
        noise = m.where(alike, 2 * most, 0.0)
        # Where not even the slope shows, values come in steps, longer than this one.
        told = abs(CONSTANTS.parts[0] * self._step(m) * self.slope) > NOISE * m.rounding * abs(
            value
        )
        noise = m.where((self.before < math.inf) & self.flat & told, self.before, noise)
        largest = m.maximum(known.largest, abs(value))
        rare = noise > m.maximum(known.level, CONSTANTS.rare_units * m.rounding * largest)
        again = rare & (noise < CONSTANTS.least_likeness * self.before)
        noise = m.where(rare & m.no(again), m.maximum(noise, self.before), noise)  # it stays

        def shorten() -> tuple[Rounding, Look]:
            share = CONSTANTS.shorter_share * m.sqrt(
                noise / m.maximum(self.change, CONSTANTS.hidden_share * noise)
            )
            return known, Look(
                self.slope, self.change, self.length * share, self.unit, before=noise
            )

        def end() -> tuple[Rounding, Look]:
            after = Rounding(
                m.maximum(known.level, noise), self.change, m.maximum(known.seen, noise),
                known.largest,
            )  # fmt: skip
            return after, m.but(self, done=True)

        return m.case((known, self), (again, shorten), otherwise=end)


NO_LOOK = Look(0.0, 0.0, 0.0, 0.0)


def gradient_noise(m: Machine, lipschitz: Any, size: Any) -> Any:
    """How far rounding may have moved a gradient: as far as rounding x, of the given norm, does."""
    return NOISE * m.rounding * lipschitz * size


def rise(m: Machine, a: Sample, b: Sample, rounding: Rounding) -> Any:
    """f(b) - f(a): by values, or by the trapezoidal rule where they drown in rounding."""
    by_values = b.value - a.value
    level = abs(by_values) <= rounding.between(m, a.value, b.value)

    def by_gradients() -> Any:
        return mean_slope(m, a, b, m.combination(b.point, -1.0, a.point))

    return m.case(by_values, (level, by_gradients))


def jensen_gap(m: Machine, x: Sample, y: Sample, z: Sample, weight: Any) -> Any:
    """``|grad f(y) + w grad f(z) - (1 + w) grad f(x)|`` for x = (y + w z)/(1 + w).

    At most ``rho w |y - z|^2/(2 (1 + w))``: gradients of a mean and mean of gradients differ by no
    more than half of rho times the weighted mean square of the distances.
    """
    pulled = m.combination(y.gradient, weight, z.gradient, x.gradient)
    return m.distance(pulled, x.gradient)
