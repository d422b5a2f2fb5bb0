"""What L-BFGS knows of the curvature: pairs of a step s and the change y of the gradient along it.

`pairs` has the store of the newest pairs, `matrix` that of all pairs for few variables: each on the
host, and where numbers are arrays, in compiled loops and in lanes.
"""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from scipy.linalg.lapack import dgesv, dposv

from momentous.core import blocks
from momentous.core.machine import NUMBERS, Arithmetic, BoxMachine, Host, has_kinks
from momentous.core.oracle import Sample
from momentous.core.passes import GRADIENT_ALONG, Pass
from momentous.core.rule import UNKNOWN, VALUE, Ask, Sums, Vectors
from momentous.core.space import Array, Space, to_numpy
from momentous.methods.classical.box_model import BoxLine, Inverse
from momentous.methods.classical.constants import LBFGS_CONSTANTS
from momentous.methods.classical.prox_model import ProxLine
from momentous.methods.classical.self_scaling import SelfScaling
from momentous.methods.search.wolfe import LOOK, Line, Search


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

    def plus_product(self, matrices: Array, left: Array, right: Array, /) -> Array:
        """The matrices (..., d, d) and left' right, of two finite rows each, (..., 2, d)."""

    def solve(self, matrix: Array, right: Array, /) -> Array:
        """Not numbers where the matrix is singular."""

    def solve_positive(self, matrix: Array, right: Array, /) -> Array:
        """Not numbers where the matrix is not positive definite."""


class Curvature(Inverse, abc.ABC):
    """The pairs of a run.  A new pair makes a new one, with the long arrays of the one before it,
    changed in place on the host and in lanes: a memory is told once."""

    __slots__ = ()

    count: Any  # of pairs
    # The way along -H g from where the pairs end: on the host, once it is asked for.
    way: Line | FusedLine | None

    def __len__(self) -> int:
        return int(self.count)

    @property
    def is_on_host(self) -> bool:
        return isinstance(self.count, int)

    @abc.abstractmethod
    def at(self, m: Any, here: Sample) -> Curvature:
        """The same for a run that goes on at another point."""

    def without_pairs_at(self, m: Any, here: Sample) -> Curvature:
        """The same for one that has no pairs yet, where numbers are arrays."""
        self.way = line_from(m, here, UNIT, True)  # type: ignore[misc]  # a field of all stores
        return self

    def after(
        self, m: Any, moved: Any, failed: Any, here: Sample, there: Sample,
        noise: Callable[[], Any], scaling: SelfScaling | None = None,
    ) -> Curvature:  # fmt: skip
        """After an evaluation: where a search has moved from here to there, with the pair of that
        step, if it is of use; where it has failed, with another way to go, as a rule without pairs.
        ``noise`` gives that of the difference of the two values.  Elsewhere the two samples are the
        same.  With ``scaling`` H is scaled before it takes a pair."""
        if isinstance(m, Host):
            if not moved:
                return self.after_failure(m) if failed else self
        elif not m.needs(moved | failed):
            return self
        return self._after(m, moved, failed, here, there, noise(), scaling)

    @abc.abstractmethod
    def _after(
        self, m: Any, moved: Any, failed: Any, here: Sample, there: Sample, noise: Any,
        scaling: SelfScaling | None,
    ) -> Curvature:  # fmt: skip
        """Long arrays are changed outside of branches, which would copy them."""

    @property
    def can_recover(self) -> Any:
        """Is another way left where a search along this one fails?"""
        return self.count > 0

    @property
    def forgets(self) -> Any:
        """Are all pairs dropped where a search fails?"""
        return True

    @abc.abstractmethod
    def after_failure(self, m: Host) -> Curvature:
        """After a search that has failed, on the host: here where nothing is known."""

    def is_at_hand(self, space: Space) -> bool:
        """Is it in the memory of the host?  What is on a device is not kept for an operator."""
        return space.library is np.ndarray

    @abc.abstractmethod
    def inverse(self, held: np.ndarray | None) -> Callable[[np.ndarray], np.ndarray]:
        """What multiplies flat NumPy vectors, or the columns of a matrix, by H, or where variables
        are held by the inverse of what B = H^-1 says of the others: on the host."""

    def line(self, m: Any, here: Sample) -> Any:
        if self.way is None:
            self.way = self.make_line(m, here)  # type: ignore[misc]  # a field of all stores
        return self.way

    def make_line(self, m: Any, here: Sample) -> Line | FusedLine:
        return line_from(m, here, self, self.count == 0)

    def known_line(self, m: Any, here: Sample) -> Any:
        """The same, where it is not better made later."""
        return None if isinstance(m, Host) else self.make_line(m, here)


class Unit(Inverse):
    """H without pairs: the identity."""

    gamma = 1.0

    def descent(self, m: Any, gradient: Array) -> Array:
        return m.vector(-m.entries(gradient))

    def held_step(self, m: Any, held: Array, target: Array, gradient: Array) -> Array:
        return self.descent(m, gradient)


UNIT = Unit()


def line_from(m: Any, here: Sample, inverse: Inverse, is_guess: Any) -> Line | FusedLine:
    """The way from here along -H g, or in a box or with a simple term to where the model is
    least."""
    if m.box is not None:
        return BoxLine.from_sample(m, here, inverse, is_guess)
    if m.penalty is not None:
        return ProxLine.from_sample(m, here, inverse, is_guess)
    d = inverse.descent(m, here.gradient)
    if m.fuses:
        return FusedLine(d, functools.partial(Line.along, m, here, d, is_guess))
    return Line.along(m, here, d, is_guess)


class Pair:
    """A step s, the change y of the gradient along it, and what they say."""

    __slots__ = ("gamma", "s", "slope", "sums", "sy", "t", "use", "y", "yy")

    slope: Any  # <s, g> where the step begins
    yy: float  # <y, y>, on the host
    sums: Sums  # of the pass that has made it, if there was one: <s, g>, <y, g>, |s|^2, ...

    def __init__(self, s: Array, y: Array, sy: Any, gamma: Any, t: Any, use: Any = True):
        self.s, self.y, self.sy, self.gamma, self.t, self.use = s, y, sy, gamma, t, use

    @staticmethod
    def on_host(m: Host, here: Sample, there: Sample, noise: float) -> Pair | None:
        """As flat arrays of doubles; None if it is not of use."""
        space, inner = m.space, m.inner
        s, y, g = there.point - here.point, there.gradient - here.gradient, here.gradient
        if not space.flat:
            s, y, g, inner = flat(space, s), flat(space, y), flat(space, g), blocks.inner
        sy, yy = inner(s, y), inner(y, y)
        square = inner(y, np.where(s != 0.0, y, 0.0)) if has_kinks(space) else yy
        if not is_of_use(inner(s, s), sy, square):  # `moved_square`
            return None
        slope = inner(s, g)
        t = correction(here.value - there.value, slope, sy, noise)
        pair = Pair(s, y, sy, sy / square, t)
        pair.yy, pair.slope = yy, slope
        return pair

    @staticmethod
    def in_arrays(m: CurvatureMachine, here: Sample, there: Sample, noise: Any) -> Pair:
        """As arrays (..., d); of no use where nothing has moved."""
        s = m.entries(m.combination(there.point, -1.0, here.point))
        y = m.entries(m.combination(there.gradient, -1.0, here.gradient))
        ss, sy = m.inner(s, s), m.inner(s, y)
        yy = moved_square(m, s, y) if has_kinks(m) else m.inner(y, y)
        use = is_of_use(ss, sy, yy, m)
        sy, yy = m.where(use, sy, 1.0), m.where(use, yy, 1.0)
        slope = m.inner(s, m.entries(here.gradient))
        t = correction(here.value - there.value, slope, sy, noise, m)
        pair = Pair(s, y, sy, sy / yy, t, use)
        pair.slope = slope
        return pair


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
    c = LBFGS_CONSTANTS
    change = 6.0 * fall + 3.0 * (sy + 2.0 * slope)
    t = m.minimum(m.maximum(1.0 + change / sy, c.least_correction), c.most_correction)
    return m.where(abs(change) > c.correction_signal * noise, t, 1.0)


def moved_square(m: BoxMachine, s: Array, y: Array) -> float:
    """<y, y> where the step has moved: in a box the change of the gradient by a variable that is
    held is no curvature along anything that moved."""
    return m.dot(lambda xp, s, y: (y, xp.where(s != 0.0, y, 0.0)), s, y)


def is_of_use(ss: float, sy: float, yy: float, m: Arithmetic = NUMBERS) -> bool:
    """Does a pair with these products keep H positive definite, beyond rounding?"""
    root = m.sqrt(ss) * m.sqrt(m.maximum(yy, 0.0))
    return (yy > 0) & (sy > LBFGS_CONSTANTS.smallest_cosine * root)


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

    def slope_at(
        self, m: Any, there: Sample, t: Any, made: Vectors, sums: Sums
    ) -> Any:  # fmt: skip
        if sums:
            self.found = there, made, sums
        if self.found[0] is there:
            return self.found[2][0]
        return self.known().slope_at(m, there, t, made, sums)


# --- small linear algebra -------------------------------------------------------------------------


def flat(space: Space, a: Array) -> np.ndarray:
    """As a flat array on the host, in double precision."""
    entries: np.ndarray = a if space.plain else to_numpy(a).astype(np.float64, copy=False)
    return entries if entries.ndim == 1 else entries.reshape(-1)


def zeros(m: CurvatureMachine, *shape: int, dtype: Any = None) -> Array:
    """Of every lane."""
    return m.xp.zeros((*m.lanes_shape, *shape), dtype=dtype or m.wide, device=m.device)


def column(number: Any) -> Any:
    """To be multiplied by a vector."""
    return number if isinstance(number, float) else number[..., None]


def times(m: CurvatureMachine, rows: Array, vector: Array) -> Array:
    """The products of all rows with a vector."""
    return m.matmul(m.widened(rows), m.widened(vector)[..., None])[..., 0]


def solve(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Not numbers where the matrix is singular."""
    _, _, found, failed = dgesv(matrix, right)
    return np.full_like(found, np.nan) if failed else found


def solve_positive(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Not numbers where the matrix is not positive definite."""
    if not right.size:  # LAPACK's interface refuses that
        return right
    _, found, failed = dposv(matrix, right)
    return np.full_like(found, np.nan) if failed else found
