"""A line search for the weak Wolfe conditions: far enough to lower f, and to flatten its slope.

A bracket [low, high]: at low f has fallen enough but is still as steep, at high it has not fallen
enough.  Trials are interpolated between the two, and as long as there is no high, extrapolated.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from momentous.core.oracle import Oracle, Sample
from momentous.core.passes import GRADIENT_ALONG
from momentous.core.space import Array
from momentous.methods.search.backtracking import limited
from momentous.methods.search.rounding import Rounding

# A search that goes on for longer asks how noisy the values are.
PATIENCE = 3
DOUBTFUL = 1e-3  # of what values are made of: a smaller change may be noise
# The next trial: how near to the ends of the bracket, and how many times as far as the last.
NEAREST = 0.2
LEAST_GROWTH, MOST_GROWTH = 2.0, 4.0
# The same after a guess, of which the scale may be wrong by orders of magnitude.
FIRST_NEAREST, FIRST_GROWTH = 0.01, 10.0
# After so many trials that all were too short f may have no lower bound: the growth is squared each
# time, and the search soon ends at the longest step that the dtype allows.
ORDINARY = 10


Look = Callable[[Oracle], tuple[Sample, float]]


@dataclasses.dataclass(slots=True)
class Ahead:
    """What is known of a line before the search: the square of the direction, the point at t = 1,
    and what gives the sample and the slope there."""

    square: float
    end: Array
    look: Look


@dataclasses.dataclass(slots=True)
class Trial:
    """A step length, and what is known there."""

    t: float
    value: float
    slope: float = math.nan


@dataclasses.dataclass(slots=True)
class Found:
    """The end of a search."""

    step_size: float
    sample: Sample | None  # None: no trial has lowered f
    rounding: Rounding
    seen: str  # what the trials were like, if there is none to take


def search(
    oracle: Oracle,
    here: Sample,
    direction: Array,
    slope: float,
    first: float,
    rounding: Rounding,
    *,
    conditions: tuple[float, float],
    most: int,
    guess: bool = False,
    ahead: Ahead | None = None,
) -> Found:
    """Seek t with f(x + t d) <= f(x) + c1 t <g, d> and <grad f(x + t d), d> >= c2 <g, d>.

    ``slope`` is <g, d> < 0, ``conditions`` are c1 and c2.  Where values are level within their
    noise the first condition is <grad f(x + t d), d> <= (2 c1 - 1) <g, d>.  The noise is measured
    where the fourth trial fails and the change sought is small.  After ``most`` trials the last
    whose value satisfies the first condition is taken.  Where the first trial is a mere ``guess``
    the next may be much nearer, or much farther.
    """
    space, (c1, c2) = oracle.space, conditions
    square = space.inner(direction, direction) if ahead is None else ahead.square
    longest = limited(space, math.inf, math.sqrt(square))
    t = min(first, longest)
    low, high = None, None
    taken, finite = None, False  # the last trial whose value has fallen; was anything finite?
    for trials in range(1, most + 1):
        there = look = None
        if ahead is not None and t == 1.0:
            point, look = ahead.end, ahead.look
        else:
            point = space.combination(here.point, t, direction)
        if oracle.fused and space.fuses:
            there, slope_there = _slope_at(oracle, point, direction, look)
            value = there.value
        else:
            value = oracle.gradient(point).value if oracle.fused else oracle.value(point)
        falls = value <= here.value + c1 * t * slope
        if not falls and trials > PATIENCE:
            expected, size = -t * slope, rounding.size(space, here.value)
            if expected <= DOUBTFUL * size and rounding.doubts(expected):
                rounding = rounding.measured(oracle, here, direction, slope, expected, t)
        level = falls or abs(value - here.value) <= rounding.between(space, here.value, value)
        if level and math.isfinite(value):
            if there is None:
                there, slope_there = _slope_at(oracle, point, direction, look)
            usable = math.isfinite(there.grad_norm)
            if usable:
                finite = True
            else:
                value = math.nan  # there is nothing to interpolate
            if usable and (falls or slope_there <= (2 * c1 - 1) * slope):
                if slope_there >= c2 * slope:
                    return Found(t, there, rounding, "")
                before, low = low or Trial(0.0, here.value, slope), Trial(t, value, slope_there)
                if falls:
                    taken = Found(t, there, rounding, "")
                if high is None and t >= longest:
                    break
                if high is None:
                    most_growth = FIRST_GROWTH if guess else MOST_GROWTH
                    t = min(_beyond(before, low, trials, most_growth), longest)
                else:
                    t = _between(low, high, NEAREST)
                continue
        finite |= math.isfinite(value)
        low, high = low or Trial(0.0, here.value, slope), Trial(t, value)
        t = _between(low, high, FIRST_NEAREST if guess and low.t == 0.0 else NEAREST)
    if taken is not None:
        return dataclasses.replace(taken, rounding=rounding)
    seen = (
        f"{most} trials do not lower the objective: rounding is reached, or jac is not the "
        "gradient of fun"
        if finite
        else f"value or gradient is not finite in {most} trials, down to a step of {t:.3g}"
    )
    return Found(0.0, None, rounding, seen)


def _slope_at(
    oracle: Oracle, point: Array, direction: Array, look: Look | None
) -> tuple[Sample, float]:
    """The sample at a point and the slope along the direction there, in one pass if possible."""
    if look is not None:
        return look(oracle)
    if oracle.space.fuses:
        sample, _, (slope,) = oracle.gradient_with(point, GRADIENT_ALONG, (direction,))
        return sample, slope
    sample = oracle.gradient(point)
    return sample, oracle.space.inner(
        sample.gradient, direction
    ) if sample.has_finite_gradient else math.nan


def _between(low: Trial, high: Trial, nearest: float) -> float:
    """Where the parabola through value and slope at low and value at high is least, not too near
    to either end; the middle where there is no such parabola."""
    width = high.t - low.t
    bend = high.value - low.value - low.slope * width
    share = -low.slope * width / (2 * bend) if bend > 0.0 else math.nan
    if not math.isfinite(share):
        share = 0.5
    return low.t + width * min(max(share, nearest), 1.0 - NEAREST)


def _beyond(before: Trial, low: Trial, trials: int, most_growth: float) -> float:
    """Where the slope would vanish if it went on changing as it did, within bounds."""
    if trials > ORDINARY:
        return low.t * math.pow(MOST_GROWTH, 2.0 ** min(trials - ORDINARY, 8))
    change = low.slope - before.slope
    further = low.t - low.slope * (low.t - before.t) / change if change > 0.0 else math.inf
    return min(max(further, LEAST_GROWTH * low.t), most_growth * low.t)
