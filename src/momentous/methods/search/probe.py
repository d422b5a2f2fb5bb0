"""A first guess of the gradient's Lipschitz constant from one extra gradient near x0."""

from __future__ import annotations

import math

from momentous.core.oracle import Oracle, Sample


def probed_lipschitz(oracle: Oracle, sample: Sample) -> float:
    """|grad f(x0 - t g/|g|) - g| / t with a small t.

    Where the function is flat (or not finite) at that distance, larger (smaller) ones are tried; as
    a last resort the answer makes the first step one of length 1.
    """
    space, norm = oracle.space, sample.grad_norm
    if norm == 0.0:
        return 1.0
    g = sample.gradient
    t = math.sqrt(space.rounding) * max(1.0, space.norm(sample.point))
    for _ in range(6):
        point = space.combination(sample.point, -t / norm, g)
        other = oracle.gradient(point)
        distance = math.sqrt(space.distance_squared(point, sample.point))
        if not other.finite:
            t *= 1e-2
            continue
        slope = math.sqrt(space.distance_squared(other.gradient, g)) / distance if distance else 0.0
        if slope > 0.0 and math.isfinite(slope):
            return slope
        t *= 1e2
    return norm
