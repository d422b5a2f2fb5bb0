"""A line search for the weak Wolfe conditions: far enough to lower f, and to flatten its slope.

A bracket [low, high]: at low f has fallen enough but is still as steep, at high it has not fallen
enough.  Trials are interpolated between the two, and as long as there is no high, extrapolated.
The interpolation takes f to grow by a power of the way, which need not be 2: before a wall of
fourth or higher powers a parabola is far too careful.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from momentous.core.machine import Host
from momentous.core.oracle import Oracle, Sample
from momentous.core.passes import GRADIENT_ALONG
from momentous.core.space import Array
from momentous.methods.search.backtracking import limited
from momentous.methods.search.rounding import Rounding

# A search that goes on for longer asks how noisy the values are.
PATIENCE = 3
DOUBTFUL = 1e-3  # of what values are made of: a smaller change may be noise
# The next trial: how near to the ends of the bracket, and how many times as far as the last.  After
# PATIENCE trials in a row that are too long the next may be nearer to the lower end, by the same
# factor each time: then it is not noise that makes them fail, and the scale is wrong.
NEAREST = 0.2
LEAST_GROWTH, MOST_GROWTH = 2.0, 10.0
# The same after a guess, of which the scale may be wrong by orders of magnitude.
FIRST_NEAREST = 0.01
# The range of the power by which f grows along a bracket.
LEAST_POWER, MOST_POWER = 2.0, 10.0
# After so many trials that all were too short f may have no lower bound: the growth, from then on
# this one, is squared each time, and the search soon ends at the longest step of the dtype.
ORDINARY, ENDLESS_GROWTH = 10, 4.0


Look = Callable[[], tuple[Sample, float]]


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
    the next may be much nearer.
    """
    space, (c1, c2) = oracle.space, conditions
    square = space.inner(direction, direction) if ahead is None else ahead.square
    longest = limited(space, math.inf, math.sqrt(square))
    t = min(first, longest)
    low, high = None, None
    too_long = 0  # trials in a row
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
            expected, size = -t * slope, rounding.size(Host.of(space), here.value)
            if expected <= DOUBTFUL * size and rounding.doubts(expected):
                rounding = rounding.measured(oracle, here, direction, slope, expected, t)
        level = falls or abs(value - here.value) <= rounding.between(
            Host.of(space), here.value, value
        )
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
                too_long = 0
                if high is None:
                    t = min(_beyond(before, low, trials), longest)
                else:
                    t = _between(low, high, NEAREST)
                continue
        finite |= math.isfinite(value)
        low, high = low or Trial(0.0, here.value, slope), Trial(t, value)
        if oracle.fused and math.isfinite(value):  # the gradient has come with the value
            high.slope = space.inner(oracle.gradient(point).gradient, direction)
        too_long += 1
        nearest = NEAREST ** max(too_long - PATIENCE, 1)
        t = _between(low, high, FIRST_NEAREST if guess and low.t == 0.0 else nearest)
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
        return look()
    if oracle.space.fuses:
        sample, _, (slope,) = oracle.gradient_with(point, GRADIENT_ALONG, (direction,))
        return sample, slope
    sample = oracle.gradient(point)
    return sample, oracle.space.inner(
        sample.gradient, direction
    ) if sample.has_finite_gradient else math.nan


def _between(low: Trial, high: Trial, nearest: float) -> float:
    """Where a + b u + c u^p is least, u the way from low, not too near to either end; the middle
    where it has no least value.

    Value and slope at low and value at high give a, b and c.  The slope at high gives p; where that
    is not known, p = 2, a parabola.
    """
    width, share = high.t - low.t, math.nan
    bend = high.value - low.value - low.slope * width  # c width^p
    if bend > 0.0:
        power = (high.slope - low.slope) * width / bend
        power = min(max(power, LEAST_POWER), MOST_POWER) if math.isfinite(power) else 2.0
        share = (-low.slope * width / (power * bend)) ** (1.0 / (power - 1.0))
    if not math.isfinite(share):
        share = 0.5
    return low.t + width * min(max(share, nearest), 1.0 - NEAREST)


def _beyond(before: Trial, low: Trial, trials: int) -> float:
    """Where the slope would vanish if it went on changing as it did, within bounds."""
    if trials > ORDINARY:
        return low.t * math.pow(ENDLESS_GROWTH, 2.0 ** min(trials - ORDINARY, 8))
    change = low.slope - before.slope
    further = low.t - low.slope * (low.t - before.t) / change if change > 0.0 else math.inf
    return min(max(further, LEAST_GROWTH * low.t), MOST_GROWTH * low.t)
