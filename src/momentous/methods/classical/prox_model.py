"""The step of L-BFGS for f + h, h a simple term: its model, and the search along the way there.

The model is <g, p> + <p, B p>/2 + h(x + p), B the inverse of H.  At its least value the entries of
x + p are free, and there h is smooth, or held: at 0 for L1, at a side for a set.  Given which are
held, and where, and the slope v of h along the free ones, that is

    p_A = where they are held - x_A,   lambda_A = (H_AA)^-1 (p_A + (H (g + v))_A),
    p = -H (g + v - lambda),

as in a box (`box_model`).  What the guess is made of is asked of the proximal map alone: with
w = x + p - t (g + B p), the model's own proximal gradient step, prox(w, t) says where all entries
go, (w - prox(w, t))/t is v, and the entries that do not move when w moves a little are held.  The
first guess is that of the proximal gradient step.  Repeated, this is a semismooth Newton method for
the model [1]_ [2]_, which for L1 and boxes ends after a few turns with the exact answer.  Its last
point is a value of the proximal map, whatever the guesses were worth: it is always one where h is
finite.  Where it does not descend, the proximal gradient step takes its place.

The search goes along the straight line to that point, on which f + h is no more than f and a linear
function, as h is convex; and beyond it, where decrease and slope say so, along the proximal map of
the way on, prox(w + (t - 1) d, step): what h holds stays, and every point is one where h is finite.

.. [1] M. Hintermueller, K. Ito, K. Kunisch, "The primal-dual active set strategy as a semismooth
   Newton method", SIAM J. Optim. 13 (2003).
.. [2] J. D. Lee, Y. Sun, M. A. Saunders, "Proximal Newton-type methods for minimizing composite
   functions", SIAM J. Optim. 24 (2014).
"""

from __future__ import annotations

import math
from typing import Any

from momentous.core.machine import BoxMachine
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.rule import Sums, Vectors
from momentous.core.space import Array
from momentous.methods.classical.box_model import (
    BentLine,
    Inverse,
    where_held,
    zeros_like,
)
from momentous.methods.search.wolfe import Line

# Turns after which the answer is taken as it is; and how near, in units of |p|, it is settled.
MOST_TURNS = 10
SETTLED = 1e-3


@record
class Model:
    """A guess at the least value of the model."""

    end: Array  # x + p
    slope: Array  # v, of h there
    held: Array  # 1 where an entry is held, else 0
    wanted: Array  # v for the next turn
    off: Array  # by what the turn before was off
    moved: float = 0.0  # |p|^2
    turns: int = 0


def _off_target(xp: Any, held: Array, target: Array, p: Array) -> Array:
    return xp.where(held != 0.0, target - p, xp.zeros_like(p))


def _guess(m: BoxMachine, w: Array, step: Any) -> Model:
    """What the proximal map says of a point w."""
    penalty = m.penalty
    end = penalty.prox(m, w, step)
    nothing = m.each(zeros_like, w)
    slope = m.combination(nothing, 1.0 / step, w, end)
    small = math.sqrt(m.rounding)
    size = m.norm(w) / math.sqrt(max(m.dimension, 1))
    beside = m.each(lambda xp, w: w + small * xp.abs(w), w)
    beside = m.combination(beside, small * size, m.each(lambda xp, a: xp.ones_like(a), w))
    held = m.each(_same, penalty.prox(m, beside, step), end)
    return Model(end, slope, held, slope, slope)


def _same(xp: Any, a: Array, b: Array) -> Array:
    return xp.astype(a == b, a.dtype)


def _model_end(m: BoxMachine, here: Sample, inverse: Inverse, begun: Model, step: Any) -> Model:
    x = here.point

    def turn(state: Model) -> Model:
        gradient = m.combination(here.gradient, 1.0, state.wanted)
        target, scale = m.combination(state.end, -1.0, x), inverse.gamma
        p = m.case(
            target,
            (
                m.inner(state.held, state.held) > 0.0,
                lambda: inverse.held_step(m, state.held, target, gradient),
            ),
            otherwise=lambda: inverse.descent(m, gradient),
        )
        there = m.each(where_held, state.held, state.end, m.combination(x, 1.0, p))
        multipliers = m.each(_off_target, state.held, target, p)
        slope = m.combination(state.wanted, -1.0 / scale, multipliers)
        after = _guess(m, m.combination(there, step, slope), step)
        off = m.combination(after.end, -1.0, there)
        p = m.combination(after.end, -1.0, x)

        def mixed() -> Array:
            # The normal of a set is found by a secant: by turns alone it may take hundreds.
            change = m.combination(off, -1.0, state.off)
            square = m.inner(change, change)
            share = m.inner(off, change) / m.where(square > 0.0, square, 1.0)
            return m.combination(after.slope, -share, after.slope, state.slope)

        again = (m.distance(after.held, state.held) == 0.0) & (state.turns > 0)
        wanted = m.case(after.slope, (again, mixed))
        return Model(
            after.end, after.slope, after.held, wanted, off, m.inner(p, p), state.turns + 1
        )

    def goes_on(state: Model) -> Any:
        settled = m.inner(state.off, state.off) <= SETTLED * SETTLED * state.moved
        return m.no(settled & (state.turns > 0)) & (state.turns < MOST_TURNS)

    return m.repeat(begun, goes_on, turn)


@record
class ProxLine(BentLine):
    """The straight way from x to the end x + d, and beyond it the proximal map of the way on: what
    is held there stays, as long as h holds it."""

    end: Array
    linear: Array  # the slope of h at the end: <linear, d> is no less than what h changes by
    held: Array  # at the end
    step: Any  # of the proximal map that has led there

    @staticmethod
    def from_sample(m: BoxMachine, here: Sample, inverse: Inverse, guess: Any) -> ProxLine:
        """Towards the least value of the model.  Without pairs that is the proximal gradient step
        whose gradient step is of length 1."""
        norm = m.norm(here.gradient)
        first = 1.0 / (norm + (norm == 0.0))
        step = m.case(first, (m.no(guess), lambda: inverse.gamma))
        begun = _guess(m, m.combination(here.point, -step, here.gradient), step)
        found = m.case(begun, (m.no(guess), lambda: _model_end(m, here, inverse, begun, step)))
        line = ProxLine._to(m, here, found, step, guess)
        return m.case(
            line, (m.no(line.descends), lambda: ProxLine._to(m, here, begun, step, guess))
        )

    @staticmethod
    def _to(m: BoxMachine, here: Sample, model: Model, step: Any, guess: Any) -> ProxLine:
        d = m.combination(model.end, -1.0, here.point)
        slope = m.inner(m.combination(here.gradient, 1.0, model.slope), d)
        line = Line.of(m, here, d, slope, m.inner(d, d), guess)
        return ProxLine(
            d, slope, line.descends, line.longest, 1.0, guess, model.end, model.slope, model.held,
            step,
        )  # fmt: skip

    def at(self, m: Any, here: Sample, t: Any) -> Array:
        def beyond() -> Array:
            on = m.combination(self.end, t - 1.0, self.direction)
            return m.penalty.prox(m, m.combination(on, self.step, self.linear), self.step)

        def between() -> Array:
            return m.combination(here.point, t, self.direction)

        point: Array = m.case(self.end, (t < 1.0, between), (t > 1.0, beyond))
        return point

    def slopes(self, m: Any, gradient: Array) -> Array:
        """With a linear function in place of h."""
        slopes: Array = m.combination(gradient, 1.0, self.linear)
        return slopes

    def slope_at(
        self, m: Any, there: Sample, t: Any, made: Vectors, sums: Sums
    ) -> Any:  # fmt: skip
        """Of what still moves there.  Beyond the end the mean of the way on counts: along a sphere,
        or in a corner, the proximal map soon gets nowhere."""
        if there.gradient is None:
            return math.nan
        slopes, x, end = self.slopes(m, there.gradient), there.point, self.end

        def went_on() -> Any:
            way = m.inner(slopes, m.combination(x, -1.0, end))
            return way / m.where(t > 1.0, t - 1.0, 1.0)

        begun = m.dot(_moving, slopes, self.direction, self.held, x, end)
        return m.case(begun, (t > 1.0, went_on))


def _moving(
    xp: Any, slopes: Array, d: Array, held: Array, x: Array, end: Array
) -> tuple[Array, Array]:
    return slopes, xp.where((held == 0.0) | (x != end), d, xp.zeros_like(d))
