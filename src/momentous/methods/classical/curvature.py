"""What L-BFGS asks of its memory of the curvature, and what a machine supplies for it.

`pairs` has the store of the newest pairs, `matrix` that of all pairs for few variables; each on the
host, and where numbers are arrays: in compiled loops, and in lanes.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any, Protocol

from momentous.core.machine import BoxMachine, Host, has_kinks
from momentous.core.oracle import Sample
from momentous.core.passes import GRADIENT_ALONG, Pass
from momentous.core.rule import UNKNOWN, VALUE, Ask, Sums, Vectors
from momentous.core.space import Array
from momentous.methods.classical.box_model import Inverse
from momentous.methods.classical.compact import correction, is_of_use, moved_square
from momentous.methods.classical.prox_model import line_with_kinks
from momentous.methods.search.wolfe import LOOK, Line, Search


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


# --- on the host ----------------------------------------------------------------------------------


class HostCurvature(Curvature, Inverse):
    """What is known of the curvature on the host."""

    __slots__ = ("_line", "count")

    count: int
    _line: Line | FusedLine | None  # once it is known

    def __len__(self) -> int:
        return self.count

    @abc.abstractmethod
    def extended(self, m: Host, here: Sample, there: Sample, noise: float) -> HostCurvature:
        """With the pair of the step from here to there, if it is of use; ``noise`` is that of the
        difference of their values."""

    @abc.abstractmethod
    def without_pairs(self) -> HostCurvature:
        """Where nothing is known."""

    @abc.abstractmethod
    def inverse(self) -> Any:
        """H on flat NumPy vectors: `compact.CompactInverse`, or the like."""

    @abc.abstractmethod
    def packed(self) -> Any:
        """The record that stands for it in a checkpoint."""

    def line(self, m: Host, here: Sample) -> Line | FusedLine:
        # It is made where the next step begins: by then nobody holds the curvature before.
        line = self._line
        if line is None:
            line = self._line = self._make_line(m, here)
        return line

    def _make_line(self, m: Host, here: Sample) -> Line | FusedLine:
        is_guess = self.count == 0
        if has_kinks(m):
            return line_with_kinks(m, here, self, is_guess)
        d = self.descent(m, here.gradient)
        if m.fuses:
            return FusedLine(d, functools.partial(Line.along, m, here, d, is_guess))
        return Line.along(m, here, d, is_guess)

    def after(
        self, m: Host, moved: bool, failed: bool, here: Sample, there: Sample,
        noise: Callable[[], float],
    ) -> HostCurvature:  # fmt: skip
        if moved:
            return self.extended(m, here, there, noise())
        return self.without_pairs() if failed else self


class FusedLine:
    """A `Line` where a pass over vectors is one kernel: with a gradient comes the slope there.

    Where the point ``end`` of t = 1 is known before the slope at the start, the first trial does
    not wait for that: its pass makes a new pair, on trust that the search will take it.
    """

    def __init__(
        self, direction: Array, along: Callable[[], Line], end: Array = None,
        work: Pass = GRADIENT_ALONG, vectors: Vectors = (),
    ):  # fmt: skip
        self._along = along
        self._line: Line | None = None
        self.direction, self.end, self.work, self.vectors = direction, end, work, vectors
        self.found: tuple[Sample | None, Vectors, Sums] = None, (), ()  # by the last pass

    def known(self) -> Line:
        """The line, with the sums of the pass that has made it."""
        if self._line is None:
            self._line = self._along()
        return self._line

    def __getattr__(self, name: str) -> Any:
        if name not in ("descends", "fall", "guess", "longest", "slope"):
            raise AttributeError(name)
        return getattr(self.known(), name)

    @property
    def first(self) -> float:
        return self.known().first if self.end is None else 1.0

    def ask(self, m: Any, here: Sample, search: Search, c1: float) -> Ask:
        if self.end is not None and not search.trials:
            return self._with_pass(Ask(self.end, VALUE))
        ask = self.known().ask(m, here, search, c1)
        is_trial = self.descends and search.phase != LOOK
        return self._with_pass(ask) if is_trial else ask

    def ask_gradient(self, there: Sample) -> Ask:
        return self._with_pass(self.known().ask_gradient(there))

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
        return self.known().slope_at(m, there, made, sums)


# --- where numbers are arrays ---------------------------------------------------------------------


class CurvatureMachine(BoxMachine, Protocol):
    """What a machine supplies whose numbers are arrays; lanes come first in their shapes."""

    xp: Any  # the array library
    dtype: Any  # of vectors
    wide: Any  # dtype of numbers that decide something
    whole: Any  # dtype of whole numbers
    device: Any
    lanes_shape: tuple[int, ...]

    def needs(self, condition: Any, /) -> bool:
        """Does it hold in a lane, as far as is known?"""

    def entries(self, vector: Array, /) -> Array:
        """(..., d), whatever vectors are elsewhere."""

    def vector(self, entries: Array, /) -> Array:
        """The vector with these entries."""

    def widened(self, a: Array, /) -> Array: ...
    def matmul(self, a: Array, b: Array, /) -> Array: ...

    def put(self, rows: Array, i: Array, pair: Array, use: Array, /) -> Array:
        """The rows (..., 2, most, d) with a pair (..., 2, d) in place i, where it is of use."""

    def in_pieces(
        self, work: Callable[..., Any], changed: Array, whole: Array, /, *given: Array
    ) -> tuple[Array, Array]:
        """The matrices without what the work takes off, as a product; and what else it finds."""

    def solve(self, matrix: Array, right: Array, /) -> Array:
        """Not numbers where the matrix is singular."""

    def solve_positive(self, matrix: Array, right: Array, /) -> Array:
        """Not numbers where the matrix is not positive definite."""


class Pair:
    """A step, and what it says; zeros where it is not of use."""

    sy: Array  # one number per lane
    yy: Array
    t: Array

    def __init__(self, m: CurvatureMachine, moved: Any, here: Sample, there: Sample, noise: Any):
        s = m.entries(m.combination(there.point, -1.0, here.point))
        y = m.entries(m.combination(there.gradient, -1.0, here.gradient))
        ss, sy = m.inner(s, s), m.inner(s, y)
        yy = moved_square(m, s, y) if has_kinks(m) else m.inner(y, y)
        self.use = moved & is_of_use(ss, sy, yy, m)
        self.s, self.y = (m.choose(self.use, a, m.xp.zeros_like(a)) for a in (s, y))
        self.sy, self.yy = m.where(self.use, sy, 1.0), m.where(self.use, yy, 1.0)
        slope = m.inner(self.s, m.entries(here.gradient))
        self.t = correction(here.value - there.value, slope, self.sy, noise, m)


class Unit:
    """H without pairs."""

    def first_scale(self, m: CurvatureMachine) -> float:
        return 1.0

    def descent(self, m: CurvatureMachine, gradient: Array) -> Array:
        return m.vector(-m.entries(gradient))

    def solve(self, m: CurvatureMachine, held: Array, r: Array) -> tuple[Array, Array]:
        return r, r


UNIT = Unit()


def line_from(m: CurvatureMachine, here: Sample, inverse: Inverse, guess: Any) -> Line:
    """The way along -H g, or in a box or with a simple term to where the model is least."""
    if has_kinks(m):
        return line_with_kinks(m, here, inverse, guess)
    return Line.along(m, here, inverse.descent(m, here.gradient), guess)


class ArrayCurvature(Curvature, Inverse):
    """What is known of the curvature where numbers are arrays.  Zeros have no pairs."""

    __slots__ = ()

    way: Line  # from where the pairs end

    def line(self, m: CurvatureMachine, here: Sample) -> Line:
        return self.way

    def at(self, m: CurvatureMachine, here: Sample) -> ArrayCurvature:
        return m.but(self, way=line_from(m, here, self, self.count == 0))

    def after(
        self, m: CurvatureMachine, moved: Any, failed: Any, here: Sample, there: Sample,
        noise: Callable[[], Any],
    ) -> ArrayCurvature:  # fmt: skip
        if not m.needs(moved | failed):
            return self
        return self._after(m, moved, failed, here, there, Pair(m, moved, here, there, noise()))

    @abc.abstractmethod
    def _after(
        self, m: CurvatureMachine, moved: Any, failed: Any, here: Sample, there: Sample, pair: Pair
    ) -> ArrayCurvature:
        """The long arrays are changed outside of branches, which would copy them."""


def zeros(m: CurvatureMachine, *shape: int, dtype: Any = None) -> Array:
    """Of every lane."""
    return m.xp.zeros((*m.lanes_shape, *shape), dtype=dtype or m.wide, device=m.device)


def times(m: CurvatureMachine, rows: Array, vector: Array) -> Array:
    """The products of all rows with a vector."""
    return m.matmul(m.widened(rows), m.widened(vector)[..., None])[..., 0]
