"""What values and gradients say about a function between two points, and where rounding drowns it.

By the trapezoidal rule ``f(b) - f(a)`` is ``<grad f(a) + grad f(b), b - a>/2`` up to
``rho |b - a|^3/12``.  Read from left to right this gives a lower bound of rho; read from right to
left, a change of f that is too small to be seen in the values; `Rounding` knows what that is.
"""

from __future__ import annotations

import math

from momentous.core.acceptance import mean_slope
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.space import Array, Space

# Rounding errors of values and gradients, in units of rounding and of what they are made of.
NOISE = 32.0
# Noise is measured over one long and three short parts of a step: where noise moves f, the short
# ones move it as much; where f bends, or the slope is wrong, by an eighth at the most.
LONG, *SHORT = 1 / 8, 1 / 64, 1 / 96, 1 / 128
ALIKE = 1 / 4
# A step this many units of rounding of x long, at least: the errors of values nearer to each other
# are alike.
FAR_ENOUGH = 2.0**13
# It is measured again only for changes of f that are this much smaller: a few times in a run.
SELDOM = 1 / 64
# Noise above this many units of rounding of f is rare, and over a long step a smooth function may
# look like it.  It is believed only if it stays on a shorter one, where a smooth function shows
# less.
RARE = 1e6
# How much shorter: a 64th where the noise is as large as the change of f that was sought, as f may
# bend more than was thought; a half where it is 1024 times as large, which no bend explains.
SHORTER, HIDDEN = 1 / 64, 1 / 1024


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
    def at(cls, space: Space, value: float) -> Rounding:
        """What the value at a start tells: later ones may be made of terms of that size."""
        return cls(NOISE * space.rounding * abs(value), math.inf, largest=abs(value))

    def between(self, space: Space, value: float, other: float = 0.0) -> float:
        """The noise of the difference of such values."""
        size, other = abs(value), abs(other)  # `max` takes three times as long
        noise = NOISE * space.rounding * (other if other > size else size)
        return self.level if self.level > noise else noise

    def size(self, space: Space, value: float) -> float:
        """How large the terms are, to judge by the noise, of which such a value is made."""
        return self.between(space, value) / (NOISE * space.rounding)

    def doubts(self, change: float) -> bool:
        """Is this a change of f so small that, for all that is known, noise may hide it?"""
        return change < SELDOM * self.trusted

    def trusting(self, change: float, value: float) -> Rounding:
        """The same, after values have shown such a change from this one on, if it is the first."""
        return self if self.trusted else Rounding(self.level, change, self.seen, abs(value))

    def measured(
        self,
        oracle: Oracle,
        here: Sample,
        direction: Array,
        slope: float,
        change: float,
        length: float = 1.0,
        before: float = math.inf,
    ) -> Rounding:
        """The same, after a look at how values scatter near a sample; costs four of them, and four
        more each time that noise so rare is seen that it is to be seen again on a shorter step.

        ``slope`` is <grad f, direction> there, ``length`` that of a step along it and ``change``
        what values ought to show after that step; ``before`` is what a longer one has shown.
        """
        space, known = oracle.space, oracle.last
        unit = space.rounding * space.norm(here.point) / (space.norm(direction) or 1.0)
        step = math.copysign(max(abs(length), FAR_ENOUGH * unit), length)

        def change_at(t: float) -> float:
            return oracle.value(space.combination(here.point, t, direction)) - here.value

        lengths = [part * step for part in (LONG, *SHORT)]
        changes = [change_at(t) for t in lengths]
        if known is not None:
            oracle.recall(known)
        far, *short = (abs(c - t * slope) for c, t in zip(changes, lengths, strict=True))
        alike = math.isfinite(far + sum(short)) and ALIKE * far <= max(short)
        noise = 2 * max(far, *short) if alike else 0.0
        largest = max(self.largest, abs(here.value))
        resolution = NOISE * space.rounding * abs(here.value)
        if before < math.inf and not any(changes) and abs(lengths[0] * slope) > resolution:
            noise = before  # not even the slope shows: values come in steps, longer than this one
        if noise > max(self.level, RARE * space.rounding * largest):
            if noise < ALIKE * before:
                shorter = length * SHORTER * math.sqrt(noise / max(change, HIDDEN * noise))
                return self.measured(oracle, here, direction, slope, change, shorter, noise)
            noise = max(noise, before)  # it stays
        return Rounding(max(self.level, noise), change, max(self.seen, noise), self.largest)


def evaluated(oracle: Oracle, x: Array) -> Sample:
    """Value and gradient at x; the gradient is not asked for where the value is not finite."""
    value = oracle.value(x)
    return oracle.gradient(x) if math.isfinite(value) else Sample(x, value)


def usable(sample: Sample) -> bool:
    """Are value and gradient known and finite?"""
    return sample.has_finite_gradient and math.isfinite(sample.value)


def gradient_noise(space: Space, lipschitz: float, size: float) -> float:
    """How far rounding may have moved a gradient: as far as rounding x, of the given norm, does."""
    return NOISE * space.rounding * lipschitz * size


def rise(space: Space, a: Sample, b: Sample, rounding: Rounding) -> float:
    """f(b) - f(a): by values, or by the trapezoidal rule where they drown in rounding."""
    by_values = b.value - a.value
    if not abs(by_values) <= rounding.between(space, a.value, b.value):
        return by_values
    return mean_slope(space, a, b, space.combination(b.point, -1.0, a.point))


def jensen_gap(space: Space, x: Sample, y: Sample, z: Sample, weight: float) -> float:
    """``|grad f(y) + w grad f(z) - (1 + w) grad f(x)|`` for x = (y + w z)/(1 + w).

    At most ``rho w |y - z|^2/(2 (1 + w))``: gradients of a mean and mean of gradients differ by no
    more than half of rho times the weighted mean square of the distances.
    """
    pulled = space.combination(y.gradient, weight, z.gradient, x.gradient)
    return math.sqrt(space.distance_squared(pulled, x.gradient))


def smallest_gradient(first: Sample, *others: Sample) -> Sample:
    """The sample with the smallest gradient, the first one if there are several."""
    for sample in others:
        if usable(sample) and sample.grad_norm < first.grad_norm:
            first = sample
    return first
