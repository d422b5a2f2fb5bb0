"""The box l <= x <= u of a problem: what a point and a gradient are worth in it.

The size of a gradient g at x is |v|, v = P(x - g) - x with the projection P onto the box: it is 0
exactly at first-order points, and |g| where no bound is near.  Whoever compares a size with a
tolerance is given this one (`Sample.grad_norm`), so that nothing else needs to know of bounds.

A variable in a narrow box, less than a hundred tolerances wide, is measured by its share of the
width: its entry of v is (P(x - t g) - x)/t, t the width of its bounds.  So the way to a bound,
where that is what is left of the gradient, is compared with the tolerance in parts of the width:
otherwise any point of a box narrower than the tolerance would be a solution.

A box is one simple set.  What rules ask of it is its projection, which is the proximal map of its
indicator: other simple terms may stand in its place.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import array_api_compat
import numpy as np

from momentous.core.space import Array, Space, to_numpy


class Entries(Protocol):
    """What a box needs of a machine, or of a space: formulas entry by entry, and sums."""

    def each(self, formula: Any, *vectors: Array) -> Array: ...
    def dot(self, formula: Any, *vectors: Array) -> Any: ...
    def norm(self, a: Array, /) -> Any: ...
    def inner(self, a: Array, b: Array, /) -> Any: ...


# The width of a variable's bounds, in tolerances, up to which it is measured by its share of that:
# between wider ones it is within a hundredth of the width from the bound that holds it.
NARROW = 100.0


class Sides(NamedTuple):
    """Lower and upper bounds as ``scipy.optimize.Bounds`` calls them."""

    lb: Any
    ub: Any


class Box:
    """Bounds with the library, dtype, device and shape of x; infinite where there is none."""

    __slots__ = ("lower", "tol", "unit", "upper")

    def __init__(self, lower: Array, upper: Array, tol: float = 0.0):
        self.lower, self.upper = lower, upper
        self.set_tolerance(tol)

    def set_tolerance(self, tol: float) -> None:
        """Whoever compares sizes with a tolerance says so beforehand."""
        self.tol = tol
        xp = array_api_compat.array_namespace(self.lower)
        limit = min(1.0, NARROW * tol)
        self.unit = _unit(xp, self.lower, self.upper, limit)  # t

    def clip(self, m: Entries, x: Array) -> Array:
        """The nearest point of the box."""
        return m.each(_clipped, x, self.lower, self.upper)

    def gap(self, m: Entries, x: Array, gradient: Array) -> Array:
        """(x - P(x - t g))/t: the gradient, cut off at the way to the bounds in parts of t."""
        if self.unit is None:
            return m.each(_gap, x, gradient, self.lower, self.upper)
        return m.each(_gap, x, gradient, self.lower, self.upper, self.unit)

    def target(self, m: Entries, x: Array, gradient: Array) -> Array:
        """P(x - t g)."""
        step = gradient if self.unit is None else gradient * self.unit
        return m.each(_clipped, x - step, self.lower, self.upper)

    def size(self, m: Entries, x: Array, gradient: Array) -> Any:
        """The norm of the gap, not finite where an entry of the gradient is not: there it is cut
        off, and means nothing."""
        return m.norm(self.gap(m, x, gradient)) + 0.0 * m.inner(gradient, gradient)

    def sides(self, m: Entries, x: Array, gradient: Array) -> Array:
        """Where x is at a bound: -1 at the lower, 1 at the upper, 0 between.  A fixed variable is
        at the one that holds it against the gradient."""
        return m.each(_sides, x, gradient, self.lower, self.upper)

    def active(self, m: Entries, x: Array) -> Any:
        """How many variables are at a bound."""
        return m.dot(_at_bound, x, self.lower, self.upper)

    def report(
        self, space: Space, x: Array, gradient: Array, shown: Array = None
    ) -> dict[str, Any]:
        """What a result says of bounds at x: which are active, with what multipliers, and the
        largest entry of the gap (on ranks, of this part).  ``shown`` is the gradient that the
        result shows, where that is another."""
        xp, sides = space.xp, self.sides(space, x, gradient)
        gap = abs(to_numpy(self.gap(space, x, gradient)))
        return {
            "active": xp.astype(sides, xp.int8),
            "multipliers": space.each(_at, sides, gradient if shown is None else shown),
            "optimality": float(gap.max(initial=0.0)),
        }

    def narrow(self, space: Space, x: Array, gradient: Array, tol: float) -> str:
        """What to say of bounds that are closer to each other than a tolerance; nothing, if none
        are, or all of these variables are at the bound that holds them."""
        if self.unit is None:
            return ""
        lower, upper, x, g = map(to_numpy, (self.lower, self.upper, x, gradient))
        held_by = np.where(g > 0.0, lower, np.where(g < 0.0, upper, x))
        narrow = (upper - lower < tol) & (held_by != x)
        falls = np.sum((x - held_by)[narrow] * g[narrow], dtype=float)
        count, fall = space.totals([float(narrow.sum()), float(falls)])
        if not count:
            return ""
        return (
            f"{tol:.3g} is more than the width between the bounds of {int(count)} free variables, "
            f"which are measured in parts of it: at first order they can lower f by {fall:.3g}"
        )

    def room(self, m: Entries, x: Array) -> Array:
        """The way from x to the nearer bound."""
        return m.each(_room, x, self.lower, self.upper)


# All formulas propagate NaN.


def _clipped(xp: Any, x: Array, lower: Array, upper: Array) -> Array:
    return xp.minimum(xp.maximum(x, lower), upper)


def _gap(xp: Any, x: Array, g: Array, lower: Array, upper: Array, t: Array | None = None) -> Array:
    up, down = (x - upper, x - lower) if t is None else ((x - upper) / t, (x - lower) / t)
    return xp.minimum(xp.maximum(g, up), down)


def _unit(xp: Any, lower: Array, upper: Array, limit: float) -> Array:
    width, one = upper - lower, xp.ones_like(lower)
    return xp.where((width > 0.0) & (width < limit), width, one)


def _at_bound(xp: Any, x: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    at = xp.astype((x <= lower) | (x >= upper), x.dtype)
    return at, at


def _sides(xp: Any, x: Array, g: Array, lower: Array, upper: Array) -> Array:
    low, high = x <= lower, x >= upper
    up = high & ((g < 0.0) | ~low)
    return xp.astype(up, x.dtype) - xp.astype(low & ~up, x.dtype)


def _at(xp: Any, side: Array, g: Array) -> Array:
    return xp.where(side != 0.0, g, 0.0)


class HostBox(Box):
    """A box on the host, which knows the last point that it has made: that one is inside."""

    __slots__ = ("latest",)

    def __init__(self, lower: Array, upper: Array, tol: float = 0.0):
        super().__init__(lower, upper, tol)
        self.latest: Array = None

    def set_tolerance(self, tol: float) -> None:
        super().set_tolerance(tol)
        if np.all(to_numpy(self.unit) == 1.0):
            self.unit = None  # two divisions fewer

    def clip(self, m: Entries, x: Array) -> Array:
        self.latest = super().clip(m, x)
        return self.latest


def _room(xp: Any, x: Array, lower: Array, upper: Array) -> Array:
    return xp.minimum(x - lower, upper - x)


def read_bounds(bounds: Any, space: Space) -> Box | None:
    """The box that ``bounds=`` asks for, in any of SciPy's forms and some more; None where no bound
    is finite, so that such a run is that without bounds.

    ``scipy.optimize.Bounds`` (anything with ``lb`` and ``ub``); one pair per entry of x; or a pair
    of a lower and an upper bound, each a number or an array that can be stretched to the shape of
    x.  None is no bound.  For two variables, two lists are SciPy's pairs; a tuple of two arrays,
    which can be read both ways, is refused.
    """
    # No pairs are those of no entries, too: of a rank that has none.
    none = bounds is None or (isinstance(bounds, tuple | list) and not bounds and space.size > 0)
    sides = () if none else read_sides(bounds, space.shape, space.describe()["dtype"])
    if space.agree is not None:  # before any sum over ranks
        space.agree(space.penalty, sides)
    # On ranks that have parts of x, all have a box or none has.
    if none or not any(space.totals([np.isfinite(side).sum() for side in sides])):
        return None
    return HostBox(*map(space.from_numpy, sides))


def read_sides(bounds: Any, shape: tuple[int, ...], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bounds for each entry of an array of that shape and dtype.

    A bound that the dtype does not hold is rounded into the box.
    """
    lower, upper = _both_sides(bounds, shape)
    _require_order(lower, upper)
    kind = np.dtype(np.float32 if dtype == "bfloat16" else dtype)  # NumPy has no bfloat16
    low, high = lower.astype(kind), upper.astype(kind)
    low = np.where(low < lower, np.nextafter(low, kind.type(math.inf)), low)
    high = np.where(high > upper, np.nextafter(high, kind.type(-math.inf)), high)
    none = low > high  # no number of the dtype is inside: the nearest
    return np.where(none, lower.astype(kind), low), np.where(none, lower.astype(kind), high)


def _both_sides(bounds: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        return _stretched(bounds.lb, shape, -math.inf), _stretched(bounds.ub, shape, math.inf)
    if not hasattr(bounds, "__len__") and hasattr(bounds, "__iter__"):
        bounds = list(bounds)
    if not hasattr(bounds, "__len__") or isinstance(bounds, str | Mapping):
        raise TypeError(
            f"bounds={bounds!r} must be one pair (lower, upper) per variable, a pair of arrays, or "
            "scipy.optimize.Bounds"
        )
    size, pairs = math.prod(shape), list(bounds)
    if size == 2 and _is_pair_of_arrays(bounds):
        raise ValueError(
            "bounds= is a tuple of two arrays of two numbers, which may be two pairs or all lower "
            "and all upper bounds: pass a list of pairs, or scipy.optimize.Bounds(lower, upper)"
        )
    if len(pairs) == size and all(_is_pair(pair) for pair in pairs):
        lower, upper = zip(*pairs, strict=True) if pairs else ((), ())
        return _stretched(lower, shape, -math.inf), _stretched(upper, shape, math.inf)
    # For two variables, a pair and None is no lower side without an upper one.
    half = size == 2 and {type(each) for each in pairs} == {tuple, type(None)}
    if len(pairs) == 2 and not half:
        return _stretched(pairs[0], shape, -math.inf), _stretched(pairs[1], shape, math.inf)
    for i, pair in enumerate(pairs):
        if not _is_pair(pair):
            raise ValueError(f"bounds= at index {i} is {pair!r}, which is no pair (lower, upper)")
    raise _misfit(f"bounds= has {len(pairs)} pairs, and x has {size} entries")


def _misfit(words: str) -> ValueError:
    """In SciPy's words, and ours."""
    return ValueError(
        f"The number of bounds is not compatible with the length of `x0`: {words}; give one pair "
        "per entry"
    )


def sides_or_pairs(bounds: Any) -> Any:
    """Bounds of which a tuple of two, numbers or arrays, is all lower and all upper ones: not so in
    SciPy, where for two variables two arrays are pairs."""
    is_pair = isinstance(bounds, tuple) and len(bounds) == 2
    if is_pair and not any(isinstance(side, tuple | list) for side in bounds):
        return Sides(*bounds)
    return bounds


def _is_pair_of_arrays(bounds: Any) -> bool:
    return isinstance(bounds, tuple) and all(
        _is_pair(side) and not isinstance(side, tuple | list) for side in bounds
    )


def _is_pair(pair: Any) -> bool:
    if isinstance(pair, tuple | list):
        return len(pair) == 2 and not any(isinstance(side, tuple | list) for side in pair)
    return array_api_compat.is_array_api_obj(pair) and tuple(pair.shape) == (2,)


def _stretched(side: Any, shape: tuple[int, ...], missing: float) -> np.ndarray:
    """A bound for each entry of x, in double precision."""
    given = numbers_or_none(side, missing, "bounds=")
    if given.size == math.prod(shape):
        given = given.reshape(shape)
    try:
        return np.array(np.broadcast_to(given, shape))
    except ValueError:
        sides = f"bounds= has a side of shape {given.shape}, and x is of shape {shape}"
        raise _misfit(sides) from None


def numbers_or_none(side: Any, missing: float, name: str) -> np.ndarray:
    """Real numbers in double precision, with ``missing`` for None; no text, no complex ones."""
    if array_api_compat.is_array_api_obj(side):
        side = to_numpy(side)
    with contextlib.suppress(ValueError):  # lists of unlike lengths
        given = np.asarray(side)
        if given.dtype.kind in "biuf":
            return given.astype(float)
    given = side if isinstance(side, np.ndarray) else np.asarray(side, object)
    made = np.empty(given.shape)
    for index, each in np.ndenumerate(given):
        if each is None:
            made[index] = missing
        elif isinstance(each, str | bytes | complex | np.complexfloating | np.datetime64):
            raise _no_number(each, name)  # float() would read some of them
        else:
            try:
                made[index] = float(each)
            except (TypeError, ValueError, OverflowError):
                raise _no_number(each, name) from None
    return made


def _no_number(each: Any, name: str) -> TypeError:
    return TypeError(
        f"{name} has {each!r}, which is no real number; give numbers, and None or infinity where "
        "there is no bound"
    )


def _require_order(lower: np.ndarray, upper: np.ndarray) -> None:
    bad = ~((lower <= upper) & (lower < math.inf) & (upper > -math.inf))
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
        low, high = float(lower[index]), float(upper[index])
        scipys = "An upper bound is less than the corresponding lower bound: " * (high < low)
        raise ValueError(f"{scipys}bounds= at index {index}: no x has {low} <= x <= {high}")
