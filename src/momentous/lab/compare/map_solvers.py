"""Accelerations of descent maps under comparison: `accelerate`, and others as published.

They know a map through a `MapMeter` alone, which counts maps and values, keeps one row per map, and
stops them from inside at the goal.  The others are baselines, written here from their papers.
"""

import math
from array import array
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentous.api import accelerate
from momentous.core.status import Status
from momentous.testbed.maps import MapProblem

Vector = NDArray[np.float64]
COLUMNS = ("maps", "values", "time", "fun")
REMEMBERED = 4  # points of which image and value are kept


class MapStop(Exception):  # noqa: N818  not an error
    """The meter's way out of a solver: the goal is reached, or a limit."""

    def __init__(self, status: str):
        super().__init__(status)
        self.status = status


class MapMeter:
    """A map and its objective as a solver sees them: counted, timed, kept, and stopped.

    The run is over at the first map whose image has an objective of at most ``goal``.  That value
    is for the record only: neither it nor the time that it takes is counted.  What is known of the
    last points is not asked for again; where the map brings the value along, both are.
    """

    def __init__(self, problem: MapProblem, goal: float, max_maps: int, max_time: float):
        self.maps = self.values = 0
        self._problem, self._goal = problem, goal
        self._max_maps, self._max_time = max_maps, max_time
        self._known: list[tuple[Vector, dict[str, Any]]] = []
        self._columns = {name: array("d") for name in COLUMNS}
        self._started = perf_counter()

    def start_clock(self) -> None:
        """Time counts from here."""
        self._started = perf_counter()

    def image(self, x: Vector) -> Vector:
        """T(x)."""
        known = self._at(x)
        if "image" not in known:
            self._ask(x, known)
        image: Vector = known["image"]
        return image

    def value(self, x: Vector) -> float:
        """f(x); infinite where it is not a number."""
        known = self._at(x)
        if "value" not in known:
            if self._problem.step_and_value is not None:
                self._ask(x, known)
            else:
                self.values += 1
                known["value"] = float(self._problem.value(x))
        value: float = known["value"]
        return value if math.isfinite(value) else math.inf

    def both(self, x: Vector) -> tuple[Vector, float]:
        """(T(x), f(x)), where one call has both."""
        return self.image(x), self.value(x)

    def columns(self) -> dict[str, NDArray]:
        """One row per map: maps, values and seconds so far, and f at the image."""
        return {name: np.array(column) for name, column in self._columns.items()}

    def _at(self, x: Vector) -> dict[str, Any]:
        for point, known in self._known:
            if point is x:
                return known
        self._known = [*self._known[1 - REMEMBERED :], (x, {})]
        return self._known[-1][1]

    def _ask(self, x: Vector, known: dict[str, Any]) -> None:
        both = self._problem.step_and_value
        self.maps += 1
        if both is not None:
            self.values += 1
            known["image"], known["value"] = both(x)
        else:
            known["image"] = self._problem.step(x)
        paused = perf_counter()
        elapsed = paused - self._started
        fun = float(self._problem.value(known["image"]))
        for name, entry in zip(COLUMNS, (self.maps, self.values, elapsed, fun), strict=True):
            self._columns[name].append(entry)
        if fun <= self._goal:
            raise MapStop("reached")
        if self.maps >= self._max_maps:
            raise MapStop("max maps")
        if elapsed >= self._max_time:
            raise MapStop("max time")
        self._started += perf_counter() - paused


Solve = Callable[[MapMeter, Vector, bool], str]
"""(meter, start, are values free?) -> why the solver ended by itself."""


def plain(meter: MapMeter, x: Vector, free: bool) -> str:
    """The map alone."""
    while True:
        x = meter.image(x)


def momentum(meter: MapMeter, x: Vector, free: bool) -> str:
    """`momentous.accelerate` with its defaults."""
    step, value = (meter.both, True) if free else (meter.image, meter.value)
    result = accelerate(step, x, value, tol=0.0, max_iterations=None, trace=False)
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return result.message


def anderson(window: int, meter: MapMeter, x: Vector, free: bool) -> str:
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


def squarem(meter: MapMeter, x: Vector, free: bool) -> str:
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
        if abs(alpha - 1.0) > 0.01 and math.isfinite(meter.value(y) if free else 0.0):
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


def daarem(meter: MapMeter, x: Vector, free: bool) -> str:
    """Damped Anderson acceleration with restarts and almost monotone values.

    N. Henderson, R. Varadhan, J. Comput. Graph. Stat. 28 (2019), with the defaults of its authors'
    package: windows of 5, begun anew when full; gamma is damped to sqrt(delta) times its length by
    a ridge, delta = 1/(1 + 1.2^(25 - s)), where s counts the combinations taken; these may raise
    the objective by 0.01 of a log likelihood (here: of the decrease so far over 1000).
    """
    order, kappa, base = min(5, x.size), 25, 1.2
    start = before = meter.value(x)
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
        gamma = damped(F, next_residual, target)
        y = image - (np.array(points).T + F) @ gamma
        proposed = meter.value(y) if bool(np.isfinite(y).all()) else math.inf
        x, residual = new, next_residual
        full = len(points) == order
        if proposed <= value + 1e-3 * max(start - value, 0.0) * 1e-2:
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


def damped(F: NDArray, f: Vector, target: float) -> Vector:
    """The ridge solution of F gamma = f with ``target`` times the length of the least one."""
    U, d, V = np.linalg.svd(F, full_matrices=False)
    keep = d > 1e-14 * d[0]
    if not keep.any():
        return np.zeros(F.shape[1])
    d, share = d[keep], (U.T @ f)[keep]
    goal = target * float(np.linalg.norm(share / d))
    low, high = 0.0, float(d[0]) ** 2
    length = lambda ridge: float(np.linalg.norm(d * share / (d * d + ridge)))  # noqa: E731
    while length(high) > goal:
        low, high = high, 4 * high
    for _ in range(60):
        middle = math.sqrt(max(low, 1e-12 * high) * high)
        low, high = (middle, high) if length(middle) > goal else (low, middle)
        if high <= 1.01 * max(low, 1e-12 * high):
            break
    return np.asarray(V[keep].T @ (d * share / (d * d + high)))


def conjugate(meter: MapMeter, x: Vector, free: bool) -> str:
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
    for _ in range(2):
        (a, fa), (b, fb), (c, fc) = sorted(seen.items())[:3]
        lower, upper = (fb - fa) / (b - a), (fc - fb) / (c - b)
        bend = (upper - lower) / (c - a)
        if not (math.isfinite(bend) and bend > 0):
            break
        bottom = 0.5 * (a + b) - 0.5 * lower / bend
        if not 0.05 * step < bottom < 10 * step or bottom in seen:
            break
        look(bottom)
        break
    return best


MAP_SOLVERS: dict[str, Solve] = {
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
"""The solvers by name."""
