"""What L-BFGS asks of its memory of the curvature, and the test that a pair must pass."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any

from momentous.core.machine import NUMBERS, Arithmetic, Host
from momentous.core.oracle import Sample
from momentous.core.passes import GRADIENT_ALONG, Pass
from momentous.core.rule import VALUE, Ask, Sums, Vectors
from momentous.core.space import Array, Space
from momentous.methods.search.wolfe import LOOK, Line, Search

# A pair whose <s, y> is not this much of |s| |y| says nothing that can be relied on.
SMALLEST_COSINE = 1e-10
# So many times the noise of values must a correction by them be; and its range.
SIGNAL = 12.0
LEAST_CORRECTION, MOST_CORRECTION = 0.5, 2.0


class Curvature(abc.ABC):
    """The pairs s_i, y_i of a run: steps, and the changes of the gradient along them.

    It never changes: a new pair makes a new one.  How it is kept is for the machine to say.
    """

    __slots__ = ()

    count: Any  # of pairs

    @abc.abstractmethod
    def line(self, m: Any, here: Sample) -> Any:
        """The way along -H g from here, where the pairs end."""

    @abc.abstractmethod
    def at(self, m: Any, here: Sample) -> Curvature:
        """The same for a run that goes on at another point."""

    @abc.abstractmethod
    def after(
        self, m: Any, moved: Any, failed: Any, here: Sample, there: Sample,
        noise: Callable[[], Any],
    ) -> Curvature:  # fmt: skip
        """After an evaluation: where a search has moved from here to there, with the pair of that
        step, if it is of use; where it has failed, without pairs.  ``noise`` gives that of the
        difference of the two values."""


class HostCurvature(Curvature):
    """What is known of the curvature on the host."""

    __slots__ = ("_line",)

    _line: Line | FusedLine | None  # once it is known

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of pairs."""

    @property
    def count(self) -> int:
        return len(self)

    @abc.abstractmethod
    def extended(self, space: Space, here: Sample, there: Sample, noise: float) -> HostCurvature:
        """With the pair of the step from here to there, if it is of use; ``noise`` is that of the
        difference of their values."""

    @abc.abstractmethod
    def without_pairs(self) -> HostCurvature:
        """Where nothing is known."""

    @abc.abstractmethod
    def direction(self, space: Space, gradient: Array) -> Array:
        """-H g at the point where the pairs end, as a fresh array."""

    def line(self, m: Host, here: Sample) -> Line | FusedLine:
        # It is made where the next step begins: by then nobody holds the curvature before.
        if self._line is None:
            self._line = self._make_line(m, here)
        return self._line

    def _make_line(self, m: Host, here: Sample) -> Line | FusedLine:
        g, guess = here.gradient, not len(self)
        d = self.direction(m.space, g)
        if not m.space.fuses:
            return Line.of(m, here, d, m.inner(g, d), m.inner(d, d), guess)
        return FusedLine(d, lambda: Line.of(m, here, d, m.inner(g, d), m.inner(d, d), guess), guess)

    def after(
        self, m: Host, moved: bool, failed: bool, here: Sample, there: Sample,
        noise: Callable[[], float],
    ) -> HostCurvature:  # fmt: skip
        if moved:
            return self.extended(m.space, here, there, noise())
        return self.without_pairs() if failed else self

    @abc.abstractmethod
    def packed(self) -> Any:
        """The record that stands for it in a checkpoint."""


class FusedLine:
    """A `Line` where a pass over vectors is one kernel: with a gradient comes the slope there.

    Where the point ``end`` of t = 1 is known before the slope at the start, the first trial does
    not wait for that: its pass makes a new pair, on trust that the search will take it.
    """

    __slots__ = ("_along", "_known", "direction", "end", "found", "guess", "vectors", "work")

    def __init__(
        self, direction: Array, along: Callable[[], Line], guess: bool,
        end: Array = None, work: Pass = GRADIENT_ALONG, vectors: Vectors = (),
    ):  # fmt: skip
        self._along, self._known = along, None
        self.direction, self.guess = direction, guess
        self.end, self.work, self.vectors = end, work, vectors
        self.found: tuple[Sample | None, Vectors, Sums] = None, (), ()  # by the last pass

    @property
    def known(self) -> Line:
        """The line, with the sums of the pass that has made it."""
        if self._known is None:
            self._known = self._along()
        return self._known

    @property
    def slope(self) -> float:
        return self.known.slope

    @property
    def longest(self) -> float:
        return self.known.longest

    @property
    def descends(self) -> bool:
        return self.known.descends

    def length(self, m: Host, search: Search) -> Any:
        is_end = self.end is not None and not search.trials
        return 1.0 if is_end else self.known.length(m, search)

    def ask(self, m: Host, here: Sample, search: Search) -> Ask:
        if self.end is not None and not search.trials and search.phase != LOOK:
            return self._with_pass(Ask(self.end, VALUE))
        ask = self.known.ask(m, here, search)
        return ask if search.phase == LOOK else self._with_pass(ask)

    def ask_gradient(self, there: Sample) -> Ask:
        return self._with_pass(self.known.ask_gradient(there))

    def _with_pass(self, ask: Ask) -> Ask:
        if ask.point is self.end:
            return ask._replace(work=self.work, vectors=self.vectors)
        return ask._replace(work=GRADIENT_ALONG, vectors=(self.direction,))

    def slope_at(self, m: Host, there: Sample, made: Vectors, sums: Sums) -> Any:
        if sums:
            self.found = there, made, sums
        if self.found[0] is there:
            return self.found[2][0]
        return self.known.slope_at(m, there, made, sums)


def correction(
    fall: float, slope: float, sy: float, noise: float, m: Arithmetic = NUMBERS
) -> float:
    """t, by which <s, y> is better multiplied, by what the values say; 1 if that is noise.

    <s, y> is a mean of the curvature along a step, and t <s, y> that at its end, up to O(|s|^4): of
    the cubic with the values and slopes at both ends.  BFGS then updates H to V'HV + s s'/(t <s,
    y>), with V = I - y s'/<s, y> [1]_.  Like BFGS, and unlike a correction of y along s [2]_, this
    is the same method in all linear coordinates.  ``fall`` is f(x) - f(x + s), ``slope``
    <grad f(x), s>; <s, y> > 0.

    .. [1] M. C. Biggs, "Minimization algorithms making use of non-quadratic properties of the
       objective function", J. Inst. Maths Applics 8 (1971); Y. Yuan, "A modified BFGS algorithm for
       unconstrained optimization", IMA J. Numer. Anal. 11 (1991).
    .. [2] J. Z. Zhang, N. Y. Deng, L. H. Chen, "New quasi-Newton equation and related methods for
       unconstrained optimization", J. Optim. Theory Appl. 102 (1999).
    """
    change = 6.0 * fall + 3.0 * (sy + 2.0 * slope)
    t = m.minimum(m.maximum(1.0 + change / sy, LEAST_CORRECTION), MOST_CORRECTION)
    return m.where(abs(change) > SIGNAL * noise, t, 1.0)  # type: ignore[no-any-return]


def is_of_use(ss: float, sy: float, yy: float, m: Arithmetic = NUMBERS) -> bool:
    """Does a pair with these products keep H positive definite, beyond rounding?"""
    root = m.sqrt(ss) * m.sqrt(m.maximum(yy, 0.0))
    return (yy > 0) & (sy > SMALLEST_COSINE * root)  # type: ignore[no-any-return]


@functools.cache
def blas() -> Any:
    """SciPy's BLAS, whose calls cost a fraction of NumPy's; imported where a run needs it."""
    from scipy.linalg import blas as routines

    return routines
