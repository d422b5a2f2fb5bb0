"""Accelerations of descent maps under comparison: `accelerate`, and others as published.

They know a map through a `MapMeter` alone, which counts maps and values, and stops them from inside
at the goal.  The others are baselines, written here from their papers; what a guard asks of the
objective is counted as for everybody.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from momentous.api import accelerate
from momentous.lab.meter import MapMeter
from momentous.testbed.problem import Vector


def plain(meter: MapMeter, x: Vector) -> str:
    """The map alone."""
    while True:
        x = meter.image(x)


def momentum(meter: MapMeter, x: Vector) -> str:
    """`momentous.accelerate` with its defaults."""
    step, value = (meter.image, meter.value) if meter.separate else (meter.both, True)
    result = accelerate(step, x, value, tol=0.0, max_iterations=None, trace=False)
    return result.message


def anderson(window: int, meter: MapMeter, x: Vector) -> str:
    """Anderson acceleration (type II) with the objective as its guard.

    D. Anderson, J. ACM 12 (1965), in the form of H. Walker, P. Ni, SIAM J. Numer. Anal. 49 (2011):
    the affine combination of the last images whose residual is the least.  Where it does not lower
    the objective, the last image takes its place: Y. Peng et al., ACM Trans. Graph. 37 (2018),
    algorithm 1.
    """
    value = meter.value(x)
    images: list[Vector] = []
    residuals: list[Vector] = []
    while True:
        image = meter.image(x)
        residual = image - x
        images, residuals = [*images[-window:], image], [*residuals[-window:], residual]
        y = image
        if len(images) > 1:
            differences = np.diff(np.array(residuals), axis=0).T
            shares = np.linalg.lstsq(differences, residual, rcond=None)[0]
            y = image - np.diff(np.array(images), axis=0).T @ shares
        new = meter.value(y)
        if not new < value and y is not image:
            y = image
            new = meter.value(y)
        if not new < value:
            return "the map does not lower the objective any more"
        x, value = y, new


def squarem(meter: MapMeter, x: Vector) -> str:
    """Squared extrapolation with step length S3, after two maps, and a third map at its end.

    R. Varadhan, C. Roland, Scand. J. Stat. 35 (2008), section 6: steps alpha = -|r|/|v|, at most a
    limit that grows by 4 where it is met; where the objective is above that of the cycle before,
    the second map is taken instead.
    """
    limit, value = 1.0, meter.value(x)
    while True:
        first = meter.image(x)
        r = first - x
        second = meter.image(first)
        v = (second - first) - r
        size = float(np.linalg.norm(v))
        if size == 0.0:
            return "the map leaves x where it is"
        alpha = min(max(float(np.linalg.norm(r)) / size, 1.0), limit)
        y = x + 2 * alpha * r + alpha**2 * v
        if abs(alpha - 1.0) > 0.01:
            y = meter.image(y)
        new = meter.value(y) if bool(np.isfinite(y).all()) else math.inf
        if not new <= value:
            if alpha == limit:
                limit = max(1.0, limit / 4)
            y, alpha = second, 1.0
            new = meter.value(y)
        if alpha == limit:
            limit *= 4
        x, value = y, new


def daarem(meter: MapMeter, x: Vector) -> str:
    """Damped Anderson acceleration with restarts.

    N. Henderson, R. Varadhan, J. Comput. Graph. Stat. 28 (2019), with the defaults of its authors'
    package: windows of 5, emptied when full; gamma is damped to sqrt(delta) times its length by
    a ridge, delta = 1/(1 + 1.2^(25 - s)), where s counts the combinations taken.  There these
    may raise the objective a little; here they may not, which serves it better (1e-5 or 1e-3 of the
    decrease so far leave two and six of 34 maps unsolved).
    """
    order, kappa, base = min(5, x.size), 25, 1.2
    before = meter.value(x)
    new = meter.image(x)
    residual, value = new - x, meter.value(new)
    cycle, taken = value, 0
    points: list[Vector] = []
    residuals: list[Vector] = []
    while True:
        image = meter.image(new)
        next_residual = image - new
        points.append(new - x)
        residuals.append(next_residual - residual)
        target = math.exp(-0.5 * math.log1p(base ** (kappa - taken)))
        F = np.array(residuals).T
        gamma = damped_solution(F, next_residual, target)
        y = image - (np.array(points).T + F) @ gamma
        proposed = meter.value(y) if bool(np.isfinite(y).all()) else math.inf
        x, residual = new, next_residual
        full = len(points) == order
        if proposed <= value:
            new, value, taken = y, proposed, taken + 1
        else:
            new, value = image, meter.value(image)
            full = full or not math.isfinite(proposed)
        if full:
            points, residuals = [], []
            if value > cycle:
                taken = max(taken - order, -2 * kappa)
            cycle = value
        if value == before and not np.any(residual):
            return "the map leaves x where it is"
        before = value


def damped_solution(F: np.ndarray, f: Vector, target: float) -> Vector:
    """The ridge solution of F gamma = f with ``target`` times the length of the least one."""
    U, d, V = np.linalg.svd(F, full_matrices=False)
    keep = d > 1e-14 * d[0]
    if not keep.any():
        return np.zeros(F.shape[1])
    d, share = d[keep], (U.T @ f)[keep]
    goal = target * float(np.linalg.norm(share / d))
    low, high = 0.0, float(d[0]) ** 2

    def length(ridge: float) -> float:
        return float(np.linalg.norm(d * share / (d * d + ridge)))

    while length(high) > goal:
        low, high = high, 4 * high
    for _ in range(60):
        middle = math.sqrt(max(low, 1e-12 * high) * high)
        low, high = (middle, high) if length(middle) > goal else (low, middle)
        if high <= 1.01 * max(low, 1e-12 * high):
            break
    return np.asarray(V[keep].T @ (d * share / (d * d + high)))


def conjugate(meter: MapMeter, x: Vector) -> str:
    """Nonlinear conjugate gradients with x - T(x) in the place of the gradient.

    H. De Sterck, M. Winlaw, Numer. Linear Algebra Appl. 22 (2015), N-NCG with the formula of Polak
    and Ribiere; along a direction the values at 0, 1 and 2 steps, and at the bottom of the parabola
    through them, choose the step.
    """
    value, step = meter.value(x), 1.0
    residual = x - meter.image(x)
    direction = -residual
    while True:
        y, new, step = _along(meter, x, value, direction, step)
        if y is None:
            y, direction, step = meter.image(x), np.zeros_like(x), 1.0
            new = meter.value(y)
            if not new < value:
                return "the map does not lower the objective any more"
        next_residual = y - meter.image(y)
        weight = float(next_residual @ (next_residual - residual)) / float(residual @ residual)
        direction = max(weight, 0.0) * direction - next_residual
        x, value, residual = y, new, next_residual


def _along(
    meter: MapMeter, x: Vector, value: float, direction: Vector, step: float
) -> tuple[Vector | None, float, float]:
    """(point, value, step) of the lowest of a few points on the line; None where none is lower."""
    best: tuple[Vector | None, float, float] = (None, value, step)
    seen: dict[float, float] = {0.0: value}

    def look(t: float) -> None:
        nonlocal best
        y = x + t * direction
        seen[t] = meter.value(y)
        if seen[t] < best[1]:
            best = (y, seen[t], t)

    look(step)
    look(2 * step if best[0] is not None else 0.5 * step)
    (a, fa), (b, fb), (c, fc) = sorted(seen.items())
    lower, upper = (fb - fa) / (b - a), (fc - fb) / (c - b)
    bend = (upper - lower) / (c - a)
    if math.isfinite(bend) and bend > 0:
        bottom = 0.5 * (a + b) - 0.5 * lower / bend
        if 0.05 * step < bottom < 10 * step and bottom not in seen:
            look(bottom)
    return best


ACCELERATIONS: dict[str, Callable[[MapMeter, Vector], str]] = {
    "accelerate": momentum,
    "plain": plain,
    "anderson-3": partial(anderson, 3),
    "anderson-5": partial(anderson, 5),
    "anderson-10": partial(anderson, 10),
    "anderson-20": partial(anderson, 20),
    "squarem": squarem,
    "daarem": daarem,
    "conjugate": conjugate,
}
"""The solvers of maps by name; each returns why it ended by itself."""
