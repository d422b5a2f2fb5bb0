"""What values and gradients say about a function between two points, and where rounding drowns it.

By the trapezoidal rule ``f(b) - f(a)`` is ``<grad f(a) + grad f(b), b - a>/2`` up to
``rho |b - a|^3/12``.  Read from left to right this gives a lower bound of rho; read from right to
left, a change of f that is too small to be seen in the values.
"""

from __future__ import annotations

import math

from momentous.core.arrays import Array, Space
from momentous.core.oracle import Oracle, Sample

# Rounding errors of values and gradients, in units of rounding and of what they are made of; with 8
# the nested chain, whose values cancel to zero, stalls at 1e-8 of its first gradient.
NOISE = 32.0


def evaluated(oracle: Oracle, x: Array) -> Sample:
    """Value and gradient at x; the gradient is not asked for where the value is not finite."""
    value = oracle.value(x)
    return oracle.gradient(x) if math.isfinite(value) else Sample(x, value)


def usable(sample: Sample) -> bool:
    """Are value and gradient known and finite?"""
    return sample.finite and math.isfinite(sample.value)


def value_noise(space: Space, a: Sample, b: Sample, scale: float = 0.0) -> float:
    """How large a difference of the values at a and b may be by rounding alone.

    ``scale`` is the size of what the values are made of, where that is larger than they are.
    """
    return NOISE * space.rounding * max(abs(a.value), abs(b.value), scale)


def gradient_noise(space: Space, lipschitz: float, size: float) -> float:
    """How far rounding may have moved a gradient: as far as rounding x, of the given norm, does."""
    return NOISE * space.rounding * lipschitz * size


def mean_slope(space: Space, a: Sample, b: Sample, direction: Array) -> float:
    """``<grad f(a) + grad f(b), direction>/2``: for b - a, the change of f by the rule."""
    return (space.inner(a.gradient, direction) + space.inner(b.gradient, direction)) / 2


def rise(space: Space, a: Sample, b: Sample, scale: float) -> float:
    """f(b) - f(a): by values, or by the trapezoidal rule where they drown in rounding."""
    by_values = b.value - a.value
    if not abs(by_values) <= value_noise(space, a, b, scale):
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
