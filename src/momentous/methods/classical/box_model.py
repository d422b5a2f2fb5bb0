"""The step of L-BFGS in a box: its model, minimised exactly, and the search along a ray that bends.

The model is <g, p> + <p, B p>/2 over l <= x + p <= u, B the inverse of H.  With the variables A
held at bounds, where p is known, and lambda = B p + g, which is 0 elsewhere,

    lambda_A = (H_AA)^-1 (p_A + (H g)_A),      p = -H (g - lambda).

p is the answer if it is within the bounds and
lambda has the signs of multipliers.  Block principal pivoting [1]_ exchanges all variables of which
that is not true; where that does not lower their number for a while, the last of them only, which
makes it finite [2]_.  Where no bound is met p is -H g: without bounds this is L-BFGS.

A variable at a bound to which the gradient presses it stays there, whatever the model says: what it
knows of such a variable is older than the gradient, and along that it would have to come back.
Without this rule runs take 1 % more gradients (benchmarks/bounds.py), DGOSPEC 26 in place of 20.

The search goes along P(x + t p), with the slope of what still moves.

.. [1] J. J. Judice, F. M. Pires, "A block principal pivoting algorithm for large-scale strictly
   monotone linear complementarity problems", Comput. Oper. Res. 21 (1994).
.. [2] K. G. Murty, "Note on a Bard-type scheme for solving the complementarity problem", Opsearch
   11 (1974).
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable
from typing import Any, Protocol

from momentous.core.machine import BoxMachine
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.rule import UNKNOWN, VALUE, Ask, Sums, Vectors
from momentous.core.space import Array
from momentous.methods.search.wolfe import LOOK, Line, Search, first_guess

# So often all wrong variables are exchanged without there being fewer of them.
MOST_TRIES = 3
# Pivots after which the answer is taken as it is, cut off at the bounds (seen: 57 at the most).
MOST_PIVOTS = 200


class Inverse(Protocol):
    """H, as the model needs it."""

    __slots__ = ()

    gamma: Any  # of H = gamma I + ...; 1 without pairs
    face: Any = None  # what it knows of variables that were held, if it keeps that

    def kept_face(self, m: Any) -> Any:
        """That, from now on; None where it does not."""
        return None

    @abc.abstractmethod
    def descent(self, m: Any, gradient: Array) -> Array:
        """-H g, as a fresh vector."""

    @abc.abstractmethod
    def held_step(self, m: Any, held: Array, target: Array, gradient: Array) -> Array:
        """p, where <g, p> + <p, B p>/2 is least of all p that are ``target`` where ``held`` is not
        0; and there, p - gamma (B p + g).  Not numbers where that is not known."""


@record
class Pivots:
    """The search for the variables that the model holds at bounds."""

    held: Array  # -1 at the lower bound, 1 at the upper, 0 free
    wrong: Array  # what has to be added to that
    step: Array  # p
    count: float = math.inf  # of the wrong ones
    least: float = math.inf  # the smallest count so far
    tries: int = 0  # since then
    pivots: int = 0


def model_step(m: BoxMachine, here: Sample, inverse: Inverse) -> Array:
    """p, where the model is least of all that the gradient does not press to their bounds, a little
    longer where it meets one."""
    box, x, g = m.box, here.point, here.gradient
    lo = m.each(_way_down, x, g, box.lower, box.upper)
    up = m.each(_way_up, x, g, box.lower, box.upper)
    if inverse.face is not None:
        known: Array = inverse.face.least_between(m, inverse, lo, up, g)
        return known
    newton = inverse.descent(m, g)
    wrong = m.each(_outside, newton, lo, up)

    def pivoted() -> Array:
        if (face := inverse.kept_face(m)) is not None:
            return face.least_between(m, inverse, lo, up, g)

        def held_step(held: Array, target: Array) -> Array:
            return inverse.held_step(m, held, target, g)

        pressed = m.each(_pressed, g, lo, up)
        first = m.choose(m.inner(pressed, pressed) > 0.0, pressed, wrong)
        step = exchange(m, lo, up, m.each(zeros_like, g), first, held_step)
        return m.each(cut_between(m), step, lo, up)

    return m.case(newton, (m.inner(wrong, wrong) > 0.0, pivoted))


def longer(m: BoxMachine) -> float:
    """x + (l - x) need not be l.  Of a step that is by this factor longer it is at most l, as
    rounding keeps the order of numbers; and the search cuts it off at l."""
    return 1.0 + 8.0 * m.rounding


def cut_between(m: BoxMachine) -> Callable[..., Array]:
    """The formula of a step, cut off at two sides and a little longer there."""
    return functools.partial(_cut, longer(m))


def exchange(
    m: BoxMachine, lo: Array, up: Array, held: Array, wrong: Array,
    held_step: Callable[[Array, Array], Array],
) -> Array:  # fmt: skip
    """The step that is least between two sides, given a guess at what is held at them, and what is
    to be added to that.  ``held_step(held, target)`` is the one with these entries at their
    targets, beyond the side that holds them."""

    def turn(state: Pivots) -> Pivots:
        fewer = state.count < state.least
        tries = m.where(fewer, 0, state.tries + 1)
        change = m.case(state.wrong, (tries > MOST_TRIES, lambda: m.last(state.wrong)))
        held = m.each(_sum, state.held, change)
        target = m.each(_target, held, lo, up)
        p = held_step(held, target)
        wrong = m.each(_wrong, held, p, target, lo, up)
        least = m.where(fewer, state.count, state.least)
        return Pivots(held, wrong, p, m.inner(wrong, wrong), least, tries, state.pivots + 1)

    def goes_on(state: Pivots) -> Any:
        return (state.count > 0.0) & (state.pivots < MOST_PIVOTS)

    return m.repeat(Pivots(held, wrong, held), goes_on, turn).step


def _way_down(xp: Any, x: Array, g: Array, lower: Array, upper: Array) -> Array:
    """The way to the lower bound; 0 where the gradient presses x to the upper one."""
    return xp.where((x == upper) & (g < 0.0), 0.0, lower - x)


def _way_up(xp: Any, x: Array, g: Array, lower: Array, upper: Array) -> Array:
    return xp.where((x == lower) & (g > 0.0), 0.0, upper - x)


def zeros_like(xp: Any, a: Array) -> Array:
    return xp.zeros_like(a)


def where_held(xp: Any, held: Array, target: Array, free: Array) -> Array:
    return xp.where(held != 0.0, target, free)


def _sum(xp: Any, a: Array, b: Array) -> Array:
    return a + b


def _pressed(xp: Any, g: Array, lo: Array, up: Array) -> Array:
    """The sides of variables that cannot move."""
    return xp.where(lo == up, -xp.sign(g), 0.0)


def _outside(xp: Any, p: Array, lo: Array, up: Array) -> Array:
    """On which side a step leaves the box: -1, 1, or 0 where it does not."""
    return xp.sign(p - xp.minimum(xp.maximum(p, lo), up))


def _target(xp: Any, held: Array, lo: Array, up: Array) -> Array:
    """The way to the bound where a variable is held, else 0."""
    return xp.where(held < 0.0, lo, xp.where(held > 0.0, up, 0.0))


def _wrong(xp: Any, held: Array, p: Array, target: Array, lo: Array, up: Array) -> Array:
    """What has to change: free variables outside join, and those with multipliers of the wrong
    sign leave, which are the held ones inside."""
    inside = xp.minimum(xp.maximum(p, lo), up)
    leaves = xp.where(inside != target, -held, 0.0)
    return xp.where(held == 0.0, xp.sign(p - inside), leaves)


def _cut(longer: float, xp: Any, p: Array, lo: Array, up: Array) -> Array:
    cut = xp.minimum(xp.maximum(p, lo), up)
    return xp.where((cut <= lo) | (cut >= up), cut * longer, cut)


def _slope(
    xp: Any, g: Array, d: Array, x: Array, lower: Array, upper: Array
) -> tuple[Array, Array]:
    """The gradient, and d where no bound has been met."""
    return g, xp.where((x > lower) & (x < upper), d, 0.0)


def _far(xp: Any, d: Array, x: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """1 where a variable moves by more than 1, or with no bound ahead, and ends between bounds."""
    no_bound = ((d < 0.0) & (lower == -math.inf)) | ((d > 0.0) & (upper == math.inf))
    between = (x + d > lower) & (x + d < upper)
    far = xp.astype(between & (no_bound | (xp.abs(d) > 1.0)), d.dtype)
    return far, far


def _way(xp: Any, g: Array, x: Array, y: Array) -> tuple[Array, Array]:
    return g, y - x


@record
class BentLine(Line):
    """A way from a sample that need not be straight."""

    def at(self, m: Any, here: Sample, t: Any) -> Array:
        """The point at t."""
        raise NotImplementedError

    def slopes(self, m: Any, gradient: Array) -> Array:
        """By how much f changes along each entry of x, with that gradient."""
        return gradient

    def ask(self, m: Any, here: Sample, search: Search, c1: float) -> Ask:
        t, descends = m.where(search.trials == 0, self.first, search.next), self.descends
        there = self.at(m, here, t)
        point = m.choose(descends, there, here.point)
        below = UNKNOWN
        if not m.fused:  # values come alone
            fall = self.fall(m, c1, here, t, there)
            below = m.where(search.phase == LOOK, UNKNOWN, here.value + fall)
        return Ask(point, VALUE, m.no(descends), here, below=below)

    def fall(self, m: Any, share: float, here: Sample, t: float, point: Array) -> Any:
        """By the straight way to the point."""
        told = m.dot(_way, self.slopes(m, here.gradient), here.point, point)
        return share * m.minimum(told, 0.0)


@record
class BoxLine(BentLine):
    """The way P(x + t d) from a sample in a box."""

    @staticmethod
    def from_sample(m: BoxMachine, here: Sample, inverse: Inverse, guess: Any) -> BoxLine:
        """Towards the least value of the model.  Without pairs that is P(x - g): the first trial
        goes there if each variable arrives at a bound, or moves by at most 1 towards one."""
        box = m.box
        d = model_step(m, here, inverse)

        def first_trial() -> Any:
            far = m.dot(_far, d, here.point, box.lower, box.upper) > 0.0
            return m.where(far, first_guess(m, here), 1.0)

        line = Line.along(m, here, d, guess)
        first = m.minimum(m.case(1.0, (guess, first_trial)), line.longest)
        return BoxLine(d, line.slope, line.descends, line.longest, first, guess)

    def at(self, m: Any, here: Sample, t: Any) -> Array:
        point: Array = m.box.clip(m, m.combination(here.point, t, self.direction))
        return point

    def slope_at(
        self, m: Any, there: Sample, t: Any, made: Vectors, sums: Sums
    ) -> Any:  # fmt: skip
        """Of what still moves there."""
        box = m.box
        if there.gradient is None:
            return math.nan
        d, g = self.direction, there.gradient
        return m.dot(_slope, g, d, there.point, box.lower, box.upper)
