"""A line search for the weak Wolfe conditions: far enough to lower f, and to flatten its slope.

A bracket [low, high]: at low f has fallen enough but is still as steep, at high it has not fallen
enough.  Trials are interpolated between the two, and as long as there is no high, extrapolated.
The interpolation takes f to grow by a power of the way, which need not be 2: before a wall of
fourth or higher powers a parabola is far too careful.  The extrapolation goes by a cubic, and low
is never left for a higher point: so the search stays in the valley in which it begins.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from momentous.core.machine import Machine
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.rule import GRADIENT, UNKNOWN, VALUE, Ask, Sums, Vectors
from momentous.core.space import Array
from momentous.methods.search.rounding import NO_LOOK, NOISE, Look, Rounding


@dataclasses.dataclass(frozen=True)
class WolfeConstants:
    """What the search goes by and a user does not choose; where no source stands none is known."""

    # Trials after which a search asks how noisy the values are.
    trials_before_look: int = 3
    # Share of what values are made of: a smaller change of f may be noise.
    doubtful_share: float = 1e-3
    # Values may differ by this many times the noise where the change sought is below the noise: it
    # is known to a factor only.  With 1024, steps of f of 0.2 % were climbed in float32.
    hidden_noise: float = 32.0
    # How near to an end of the bracket the next trial may be, as a share of its width.  After
    # ``trials_before_look`` trials in a row that are too long it may be nearer to the lower end, by
    # the same factor each time: then it is not noise that makes them fail, and the scale is wrong.
    nearest_share: float = 0.2
    # The same after a guess, of which the scale may be wrong by orders of magnitude.
    nearest_share_of_guess: float = 0.01
    # The length of a guess is this share of |x|, from 0.1 to 1.  At 1 for every x it leaps over the
    # next minimum more often, at 0.1 it is far too short where |x| is large
    # (tests/methods/test_basins.py).
    guess_share: float = 0.1
    # How many times as far as the last one the next trial may be, without an upper end.
    least_growth: float = 2.0
    most_growth: float = 10.0
    # The range of the power p by which f grows along a bracket: 2 is a parabola, which before a
    # wall of fourth or higher powers is far too careful (tests/methods/test_lbfgs.py has one).
    least_power: float = 2.0
    most_power: float = 10.0
    # After so many trials that all were too short f may have no lower bound: the growth, from then
    # on this one, is squared each time, and the search soon ends at the longest step of the dtype.
    trials_before_endless: int = 10
    endless_growth: float = 4.0


WOLFE_CONSTANTS = WolfeConstants()

SEARCHING, FOUND, FAILED = 0, 1, 2  # verdicts
TRIAL, LOOK = 0, 1  # what an evaluation is for: a trial, or a look at the noise of values


@record
class Line:
    """The way from a sample along a direction d, as far as it is known before the search."""

    direction: Array
    slope: float  # <g, d>
    descends: bool  # is that a number below 0?
    longest: float  # t of the longest step that the dtype can hold
    first: float  # t of the first trial
    guess: bool  # is that a mere guess, which may be far off?

    @staticmethod
    def along(m: Machine, here: Sample, direction: Array, guess: bool) -> Line:
        """With the products that it needs."""
        slope, square = m.inner(here.gradient, direction), m.inner(direction, direction)
        return Line.of(m, here, direction, slope, square, guess)

    @staticmethod
    def of(
        m: Machine, here: Sample, direction: Array, slope: float, square: float, guess: bool
    ) -> Line:
        """``square`` is |d|^2."""
        first = m.case(1.0, (guess, lambda: first_guess(m, here)))
        # Where f has no lower bound, steps grow without bound.
        longest = math.sqrt(m.largest) / m.maximum(m.sqrt(square), 1.0)
        descends = (slope < 0.0) & (slope > -math.inf)
        return Line(direction, slope, descends, longest, m.minimum(first, longest), guess)

    def ask(self, m: Machine, here: Sample, search: Search, c1: float) -> Ask:
        """The next trial, with its gradient where f has fallen enough, or the next look; where the
        line does not descend, what is known here."""
        t, descends = m.where(search.trials == 0, self.first, search.next), self.descends
        point = m.choose(descends, m.combination(here.point, t, self.direction), here.point)
        below = m.where(search.phase == LOOK, UNKNOWN, here.value + c1 * t * self.slope)
        return Ask(point, VALUE, m.no(descends), here, (), (), None, below)

    def ask_gradient(self, there: Sample) -> Ask:
        """The gradient at a trial of which the value is known."""
        return Ask(there.point, GRADIENT, known=there)

    def fall(self, m: Machine, share: float, here: Sample, t: float, point: Array) -> Any:
        """What a share of the slope says that f changes by, up to a point at t."""
        return share * t * self.slope

    def slope_at(
        self, m: Machine, there: Sample, t: float, made: Vectors, sums: Sums
    ) -> Any:  # fmt: skip
        """<grad f, d> at another sample, at t; ``made`` and ``sums`` come with its evaluation."""
        return math.nan if there.gradient is None else m.inner(there.gradient, self.direction)


@record
class Trial:
    """A step length, and what is known there."""

    t: float
    value: float
    slope: float = math.nan


def first_guess(m: Machine, here: Sample, norm: float | None = None) -> Any:
    """t of a first trial along the gradient, of which nothing but the scale of x is known; its norm
    is that of the sample, unless it is given."""
    norm = here.grad_norm if norm is None else norm
    length = WOLFE_CONSTANTS.guess_share * m.maximum(m.norm(here.point), 1.0)
    return m.minimum(length, 1.0) / m.where(norm == 0.0, 1.0, norm)


START = Trial(0.0, math.nan)  # the low end as long as no trial has fallen
NO_END = Trial(math.inf, math.nan)  # the high end as long as there is none


@record
class Search:
    """A search under way."""

    t: float = 0.0  # of the trial under way, if it is not the first, which the line knows
    next: float = 0.0  # t of the next evaluation: of that trial, or of a look
    trials: int = 0  # before this one
    phase: int = TRIAL
    verdict: int = SEARCHING
    low: Trial = START
    high: Trial = NO_END
    too_long: int = 0  # trials in a row
    finite: bool = False  # was anything finite?
    taken: float = 0.0  # t of the trial to take: the last that lowered f so far; 0: none has
    look: Look = NO_LOOK

    def looked(
        self, m: Machine, rounding: Rounding, here: Sample, value: float
    ) -> tuple[Search, Rounding]:
        """After a value that a look at the noise has asked for."""
        rounding, look = self.look.answered(m, rounding, here, value)
        phase = m.where(look.done, TRIAL, LOOK)
        return m.but(self, next=look.end(m), phase=phase, look=look), rounding

    def seen(self, most: int) -> str:
        """What the trials were like, if there is none to take."""
        if not self.trials:
            return "this is not a descent direction"
        if self.finite:
            return (
                f"{most} trials do not lower the objective: rounding is reached, or jac is not the "
                "gradient of fun"
            )
        return f"value or gradient is not finite in {most} trials, down to a step of {self.t:.3g}"


NEW = Search()


@dataclasses.dataclass(frozen=True)
class Wolfe:
    """Seek t with f(x + t d) <= f(x) + c1 t <g, d> and <grad f(x + t d), d> >= c2 <g, d>.

    Nor may f be higher than at the low end.  Where values are level within their noise the first
    condition is <grad f(x + t d), d> <= (2 c1 - 1) <g, d>.  The noise is measured where the fourth
    trial fails and the change sought is small.  Where that change is hidden below the last digit of
    values a smaller gradient is enough, too, and the fourth trial is the last.  After ``most``
    trials the last whose value satisfies the first condition is taken.  Where the first trial is a
    mere guess the next may be much nearer.
    """

    c1: float
    c2: float
    most: int

    def passes(
        self, m: Machine, search: Search, here: Sample, line: Line, t: float, there: Sample,
        slope: float,
    ) -> Any:  # fmt: skip
        """Are both conditions met by values, as they are by most trials?"""
        falls = self._falls(m, search, here, line, t, there)
        return falls & (slope >= self.c2 * line.slope) & m.isfinite(there.grad_norm)

    def _falls(
        self, m: Machine, search: Search, here: Sample, line: Line, t: float, there: Sample
    ) -> Any:
        enough = here.value + line.fall(m, self.c1, here, t, there.point)
        # Without a low end its value is NaN.
        return (there.value <= enough) & m.no(there.value > search.low.value)

    def tell(
        self, m: Machine, search: Search, rounding: Rounding, here: Sample, line: Line, t: float,
        there: Sample, slope: float, end_slope: float,
    ) -> Search:  # fmt: skip
        """After a trial ``there``, with that slope; ``here`` is where the line begins.

        ``end_slope`` is what a high end of the bracket has in its place: NaN where values come
        alone, as few of these ends have a gradient then."""
        c = WOLFE_CONSTANTS
        trials, value, usable = search.trials + 1, there.value, m.isfinite(there.grad_norm)
        falls = self._falls(m, search, here, line, t, there)
        change = -line.fall(m, 1.0, here, t, there.point)
        small = change <= c.doubtful_share * rounding.size(m, here.value)
        small = small & rounding.may_be_noise(change)
        noise = rounding.between(m, here.value, value)
        hidden = NOISE * change <= noise
        noise = m.where(hidden, c.hidden_noise * noise, noise)
        level = falls | (abs(value - here.value) <= noise)
        level = level & m.isfinite(value)
        gradient_fell = hidden & level & (there.grad_norm < here.grad_norm)
        # A guess may be wrong by orders of magnitude: its short trials say nothing of rounding.
        at_rounding = hidden & m.no(line.guess) & (trials > c.trials_before_look)
        out_of_trials = (trials >= self.most) | at_rounding
        good = level & usable & (falls | (slope <= (2 * self.c1 - 1) * line.slope))
        low = m.choose(search.low.t > 0.0, search.low, Trial(0.0, here.value, line.slope))

        def look() -> Search:
            begun = Look.along(m, here, line.direction, line.slope, change, t)
            return m.but(search, next=begun.end(m), phase=LOOK, look=begun)

        def verdict(taken: Any, spent: Any) -> Any:
            return m.where(spent, m.where(taken > 0.0, FOUND, FAILED), SEARCHING)

        def lengthen() -> Search:
            new, open_ended = Trial(t, value, slope), search.high.t == math.inf
            further = m.minimum(_beyond(m, low, new, trials, line.guess), line.longest)
            t_next = m.where(open_ended, further, _between(m, new, search.high, c.nearest_share))
            taken = m.where(falls, t, search.taken)
            spent = m.where(open_ended, (trials >= self.most) | (t >= line.longest), out_of_trials)
            return Search(
                t_next, t_next, trials, TRIAL, verdict(taken, spent), new, search.high, 0, True,
                taken, search.look,
            )  # fmt: skip

        def shorten() -> Search:
            # Without a usable gradient there is nothing to interpolate.
            known = m.where(level & m.no(usable), math.nan, value)
            new = Trial(t, known, end_slope)
            too_long = search.too_long + 1
            nearest = m.power(c.nearest_share, m.maximum(too_long - c.trials_before_look, 1))
            nearest = m.where(line.guess & (low.t == 0.0), c.nearest_share_of_guess, nearest)
            t_next, finite = _between(m, low, new, nearest), search.finite | m.isfinite(known)
            taken = search.taken
            return Search(
                t_next, t_next, trials, TRIAL, verdict(taken, out_of_trials), low, new, too_long,
                finite, taken, search.look,
            )  # fmt: skip

        branches = [
            (m.no(line.descends), lambda: m.but(search, verdict=FAILED)),
            (m.no(falls) & (trials > c.trials_before_look) & small, look),
        ]
        if there.gradient is None:
            branches += [(level, lambda: search)]  # the gradient first
        return m.case(
            search,
            *branches,
            (
                gradient_fell | (good & (slope >= self.c2 * line.slope)),
                lambda: m.but(search, verdict=FOUND, taken=t),
            ),
            (good, lengthen),
            otherwise=shorten,
        )


def _between(m: Machine, low: Trial, high: Trial, nearest: float) -> Any:
    """Where a + b u + c u^p is least, u the way from low, not too near to either end; the middle
    where it has no least value.

    Value and slope at low and value at high give a, b and c.  The slope at high gives p; where that
    is not known, p = 2, a parabola.
    """
    c, width = WOLFE_CONSTANTS, high.t - low.t
    bend = high.value - low.value - low.slope * width  # c width^p
    bends = bend > 0.0
    bend = m.where(bends, bend, 1.0)
    power = (high.slope - low.slope) * width / bend
    within = m.minimum(m.maximum(power, c.least_power), c.most_power)
    power = m.where(m.isfinite(power), within, 2.0)
    share = m.power(-low.slope * width / (power * bend), 1.0 / (power - 1.0))
    share = m.where(bends & m.isfinite(share), share, 0.5)
    return low.t + width * m.minimum(m.maximum(share, nearest), 1.0 - c.nearest_share)


def _beyond(m: Machine, before: Trial, low: Trial, trials: int, guess: Any) -> Any:
    """Where the cubic with values and slopes of both trials is least, within bounds."""
    c, width, change = WOLFE_CONSTANTS, low.t - before.t, low.value - before.value
    # Its slope after u widths from low on, in units of that at low: -1 + linear u + square u^2.
    # (No `**`, which raises an exception on the host where it overflows.)
    steep = -low.slope * width
    steep = m.where(steep > 0.0, steep, 1.0)
    square = (3.0 * (before.slope + low.slope) * width - 6.0 * change) / steep
    linear = square + (low.slope - before.slope) * width / steep
    root = linear * linear + 4.0 * square
    below = linear + m.sqrt(m.maximum(root, 0.0))
    turns = (root >= 0.0) & (below > 0.0)
    # Without a least value: after a guess, as far as the slope needs to change by as much as it
    # was; later ones may leap over bumps, which pays (LOGHAIRY, HUMPS of the scoreboard).
    bend = abs(low.slope - before.slope)
    bends = guess & (bend > 0.0)
    scale = m.where(bends, -before.slope / m.where(bends, bend, 1.0), math.inf)
    further = m.where(turns, 2.0 / m.where(turns, below, 1.0), scale)
    further = low.t + width * further
    further = m.minimum(m.maximum(further, c.least_growth * low.t), c.most_growth * low.t)
    endless = trials - c.trials_before_endless
    growth = m.power(c.endless_growth, m.power(2.0, m.minimum(m.maximum(endless, 0), 8)))
    return m.where(endless > 0, growth * low.t, further)
