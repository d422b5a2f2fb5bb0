"""What L-BFGS asks of its memory of the curvature, and the test that a pair must pass."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any

from momentous.core.machine import NUMBERS, Arithmetic, Host, has_kinks
from momentous.core.oracle import Sample
from momentous.core.passes import GRADIENT_ALONG, Pass
from momentous.core.rule import UNKNOWN, VALUE, Ask, Sums, Vectors
from momentous.core.space import Array, Space
from momentous.methods.classical.prox_model import line_with_kinks
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

    def __len__(self) -> int:
        return self.count  # type: ignore[no-any-return]

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

    def descent(self, m: Host, gradient: Array) -> Array:
        """-H g."""
        return self.direction(m.space, gradient)

    def solve(self, m: Host, held: Array, r: Array) -> tuple[Array, Array]:
        """See `box_model.Inverse`."""
        raise NotImplementedError

    @abc.abstractmethod
    def first_scale(self, m: Any = None) -> float:
        """gamma of H = gamma I + ..."""

    def line(self, m: Host, here: Sample) -> Line | FusedLine:
        # It is made where the next step begins: by then nobody holds the curvature before.
        line = self._line
        if line is None:
            make = self._make_box_line if has_kinks(m) else self._make_line
            line = self._line = make(m, here)
        return line

    def _make_box_line(self, m: Host, here: Sample) -> Line:
        return line_with_kinks(m, here, self, self.count == 0)

    def _make_line(self, m: Host, here: Sample) -> Line | FusedLine:
        d, is_guess = self.direction(m.space, here.gradient), self.count == 0
        if m.fuses:
            return FusedLine(d, functools.partial(Line.along, m, here, d, is_guess))
        return Line.along(m, here, d, is_guess)

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

    __slots__ = ("_along", "_known", "direction", "end", "found", "vectors", "work")

    def __init__(
        self, direction: Array, along: Callable[[], Line], end: Array = None,
        work: Pass = GRADIENT_ALONG, vectors: Vectors = (),
    ):  # fmt: skip
        self._along = along
        self._known: Line | None = None
        self.direction, self.end, self.work, self.vectors = direction, end, work, vectors
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

    def fall(self, m: Any, share: float, here: Sample, t: float, point: Array) -> Any:
        return share * t * self.slope

    @property
    def longest(self) -> float:
        return self.known.longest

    @property
    def guess(self) -> bool:
        return self.known.guess

    @property
    def descends(self) -> bool:
        return self.known.descends

    @property
    def first(self) -> float:
        return self.known.first if self.end is None else 1.0

    def ask(self, m: Any, here: Sample, search: Search, c1: float) -> Ask:
        if self.end is not None and not search.trials:
            return self._with_pass(Ask(self.end, VALUE))
        ask = self.known.ask(m, here, search, c1)
        is_trial = self.descends and search.phase != LOOK
        return self._with_pass(ask) if is_trial else ask

    def ask_gradient(self, there: Sample) -> Ask:
        return self._with_pass(self.known.ask_gradient(there))

    def _with_pass(self, ask: Ask) -> Ask:
        work, vectors = GRADIENT_ALONG, (self.direction,)
        if ask.point is self.end:
            work, vectors = self.work, self.vectors
        # A gradient that is asked for apart has its pass; one that a value brings has none.
        return ask._replace(work=work, vectors=vectors, below=UNKNOWN)

    def slope_at(self, m: Any, there: Sample, made: Vectors, sums: Sums) -> Any:
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


def moved_square(m: Any, s: Array, y: Array) -> Any:
    """<y, y> where the step has moved: in a box the change of the gradient by a variable that is
    held is no curvature along anything that moved."""
    return m.dot(lambda xp, s, y: (y, xp.where(s != 0.0, y, 0.0)), s, y)


def is_of_use(ss: float, sy: float, yy: float, m: Arithmetic = NUMBERS) -> bool:
    """Does a pair with these products keep H positive definite, beyond rounding?"""
    root = m.sqrt(ss) * m.sqrt(m.maximum(yy, 0.0))
    return (yy > 0) & (sy > SMALLEST_COSINE * root)  # type: ignore[no-any-return]


@functools.cache
def blas() -> Any:
    """SciPy's BLAS, whose calls cost a fraction of NumPy's; imported where a run needs it."""
    from scipy.linalg import blas as routines

    return routines
