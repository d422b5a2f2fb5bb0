"""Simple terms h that are added to f: L1, groups, sets.  What is asked of one is its value and its
proximal map.

prox(x, t) is where h(z) + |z - x|^2/(2t) is least; of a set it is the projection, and h is 0 inside
and infinite outside.  Terms are written in the array API standard: x may be of any library.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import warnings
from collections.abc import Callable
from numbers import Real
from typing import Any, Protocol

import array_api_compat
import numpy as np

from momentous.core.admission import Admission, levels_to_the_user, scalar
from momentous.core.box import Entries, Sides, numbers_or_none
from momentous.core.space import Array, Space

TERMS = "L1, ElasticNet, GroupL2, NonNegative, Box, Simplex, Ball"


class SimpleTerm(Protocol):
    """What ``penalty=`` takes: a convex function h of the whole array x, as two functions."""

    def value(self, x: Array, /) -> Any: ...
    def prox(self, x: Array, step: Any, /) -> Array: ...


def _xp(x: Array) -> Any:
    return array_api_compat.array_namespace(x)


def _where(x: Array) -> dict[str, Any]:
    """The device of x; JAX finds its own."""
    return {} if array_api_compat.is_jax_array(x) else {"device": array_api_compat.device(x)}


def _summed(a: Array) -> Any:
    """In double precision, where the library has it switched on."""
    return _xp(a).sum(a, dtype=float if array_api_compat.is_jax_array(a) else _xp(a).float64)


def as_weight(x: Array, weight: Any) -> Any:
    """A number as it is; weights as an array of the library, dtype and device of x."""
    if isinstance(weight, int | float):
        return weight
    made = _xp(x).asarray(weight, dtype=x.dtype, **_where(x))
    pairs = zip(made.shape[::-1], x.shape[::-1], strict=False)
    if len(made.shape) > len(x.shape) or any(a not in (1, b) for a, b in pairs):
        raise ValueError(
            f"a penalty has numbers of shape {tuple(made.shape)} for entries or groups of shape "
            f"{tuple(x.shape)}; give one number, or one for each"
        )
    return made


def _is_of_another_library(value: Any) -> bool:
    """Is it an array, of compiled code perhaps, whose numbers are not looked at?  Or a list with
    one."""
    if isinstance(value, list | tuple):
        return any(map(_is_of_another_library, value))
    return array_api_compat.is_array_api_obj(value) and not isinstance(
        value, np.ndarray | np.generic
    )


def _check(term: Any, *names: str, one: bool = False) -> None:
    """Numbers are finite and >= 0; a list is an array from here on.  ``one``: not several."""
    kinds = "one number" if one else "one number, or an array of numbers"
    for name in names:
        value = given = getattr(term, name)
        if _is_of_another_library(value):
            several, fits = bool(getattr(value, "shape", ())), True  # it may be traced
        else:
            if isinstance(value, list | tuple):
                with contextlib.suppress(ValueError):  # lists of unlike lengths
                    value = np.asarray(value)
                    object.__setattr__(term, name, value)
            numbers = np.asarray(value, object if isinstance(value, list | tuple) else None)
            several, fits = numbers.ndim > 0, numbers.dtype.kind in "biuf"
            fits = fits and bool(np.all((numbers >= 0) & np.isfinite(numbers)))
        if not fits or (one and several):
            raise ValueError(
                f"{type(term).__name__}: {name}={given!r:.200} must be finite and >= 0: {kinds}"
            )


@dataclasses.dataclass(frozen=True)
class L1:
    """weight |x|_1: many entries of the solution are exactly 0.

    ``weight`` is a number, or one per entry: 0 for those that are not penalised.
    """

    weight: Any = 1.0

    def __post_init__(self) -> None:
        _check(self, "weight")

    def value(self, x: Array) -> Any:
        xp = _xp(x)
        return _summed(xp.abs(x) * as_weight(x, self.weight))

    def prox(self, x: Array, step: Any) -> Array:
        threshold = step * as_weight(x, self.weight)
        return x - _xp(x).clip(x, -threshold, threshold)

    def _unit(self, x: Array) -> Any:
        return _inverse_of_large(as_weight(x, self.weight))


@dataclasses.dataclass(frozen=True)
class ElasticNet:
    """weight |x|_1 + ridge |x|^2/2.

    scikit-learn's ``alpha`` and ``l1_ratio`` are weight = alpha l1_ratio and ridge = alpha
    (1 - l1_ratio).
    """

    weight: Any = 1.0
    ridge: float = 1.0

    def __post_init__(self) -> None:
        _check(self, "weight")
        _check(self, "ridge", one=True)

    def value(self, x: Array) -> Any:
        return L1(self.weight).value(x) + self.ridge * _summed(x * x) / 2

    def prox(self, x: Array, step: Any) -> Array:
        return L1(self.weight).prox(x, step) / (1.0 + step * self.ridge)


def _are_ordered(labels: tuple[Any, ...]) -> bool:
    """Are they real numbers, NaN not among them?"""
    return all(isinstance(each, Real) and each == each for each in labels)


@dataclasses.dataclass(frozen=True)
class GroupL2:
    """weight times the sum of the norms of groups of entries: whole groups are exactly 0.

    Groups are the rows of x (along its last axis); or, with ``groups``, the entries with the same
    label, one label per entry of x.  ``weight`` is a number, or one per group (with labels: in
    their order).
    """

    weight: Any = 1.0
    groups: Any = None

    def __post_init__(self) -> None:
        _check(self, "weight")
        if self.groups is not None:
            if isinstance(self.groups, list | tuple) and any(map(np.ndim, self.groups)):
                raise ValueError(
                    f"GroupL2: groups={self.groups!r} are lists in a list; give one label per "
                    "entry of x: [0, 0, 1] puts the first two entries into one group"
                )
            labels = tuple(np.asarray(self.groups).reshape(-1).tolist())
            if not (all(isinstance(each, str) for each in labels) or _are_ordered(labels)):
                raise ValueError(
                    f"GroupL2: groups={self.groups!r:.200} must be labels that can be sorted, "
                    "numbers or names, one per entry of x, as in [0, 0, 1]"
                )
            object.__setattr__(self, "groups", labels)

    @functools.cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """The group of each entry; and the places of the entries of each group, filled up with one
        place behind the last entry."""
        _, group, sizes = np.unique(self.groups, return_inverse=True, return_counts=True)
        places = np.full((len(sizes), sizes.max(initial=0)), len(group))
        order = np.argsort(group, kind="stable")
        column = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        places[group[order], column] = order
        return group.reshape(-1), places

    def _sums(self, x: Array) -> Array:
        """Over the groups."""
        xp = _xp(x)
        if self.groups is not None:
            if len(self.groups) != math.prod(x.shape):
                raise ValueError(
                    f"GroupL2: groups= has {len(self.groups)} labels, and x of shape "
                    f"{tuple(x.shape)} has {math.prod(x.shape)} entries; give one label per entry"
                )
            places = xp.asarray(self._places[1], **_where(x))
            flat = xp.concat([xp.reshape(x, (-1,)), xp.zeros(1, dtype=x.dtype, **_where(x))])
            x = xp.reshape(xp.take(flat, xp.reshape(places, (-1,)), axis=0), places.shape)
        return xp.sum(x, axis=-1)

    def _norms(self, x: Array) -> Array:
        return _xp(x).sqrt(self._sums(x * x))

    def _spread(self, x: Array, numbers: Array) -> Array:
        """One number per group, to each of its entries."""
        xp = _xp(x)
        if self.groups is None:
            return numbers[..., None]
        group = xp.asarray(self._places[0], **_where(x))
        return xp.reshape(xp.take(numbers, group, axis=0), x.shape)

    def value(self, x: Array) -> Any:
        norms = self._norms(x)
        return _summed(norms * as_weight(norms, self.weight))

    def prox(self, x: Array, step: Any) -> Array:
        xp, norms = _xp(x), self._norms(x)
        threshold = step * as_weight(norms, self.weight)
        zero = xp.zeros_like(norms)
        share = 1.0 - threshold / xp.where(norms > threshold, norms, zero + 1.0)
        return x * self._spread(x, xp.where(norms > threshold, share, zero + 0.0 * norms))

    def _unit(self, x: Array) -> Any:
        norms = self._norms(x)
        return _inverse_of_large(as_weight(norms, self.weight)) * _xp(x).ones_like(norms)

    def _rest(self, u: Array, end: Array, step: Any) -> Array:
        xp, norms = _xp(u), self._norms(u)
        threshold, one = step * as_weight(norms, self.weight), xp.ones_like(norms)
        share = xp.where(norms > threshold, threshold / xp.where(norms > 0, norms, one), one)
        return u * self._spread(u, share)


def _outside(xp: Any, outside: Any) -> Any:
    """The value of a set: 0 inside, else infinite."""
    zero = 0.0 * xp.astype(outside, xp.float32)
    return xp.where(outside, zero + math.inf, zero)


def _beyond_rounding(xp: Any, distance: Any) -> Any:
    """Not where it is not a number."""
    return ~(distance <= math.sqrt(xp.finfo(distance.dtype).eps))


@dataclasses.dataclass(frozen=True)
class Box:
    """lower <= x <= upper: the same as ``bounds=(lower, upper)``, None for none."""

    lower: Any = None
    upper: Any = None

    def __post_init__(self) -> None:
        for name, missing in (("lower", -math.inf), ("upper", math.inf)):
            side = getattr(self, name)
            if side is not None and not _is_of_another_library(side):
                made = numbers_or_none(side, missing, f"{type(self).__name__}: {name}=")
                object.__setattr__(self, name, made if made.ndim else float(made))

    @property
    def bounds(self) -> Sides:
        return Sides(self.lower, self.upper)

    def value(self, x: Array) -> Any:
        return _outside(_xp(x), _xp(x).any(x != self.prox(x, 1.0)))

    def prox(self, x: Array, step: Any) -> Array:
        return _xp(x).clip(x, *(None if a is None else as_weight(x, a) for a in self.bounds))


@dataclasses.dataclass(frozen=True)
class NonNegative(Box):
    """x >= 0: the same as ``bounds=(0, None)``."""

    lower: Any = dataclasses.field(default=0.0, init=False)
    upper: Any = dataclasses.field(default=None, init=False)


def _shared(x: Array, total: Any, inside: Array) -> Array:
    """The sum of each row of x, less the total, over the number of those inside (at least one)."""
    xp = _xp(x)
    number = xp.sum(xp.astype(inside, x.dtype), axis=-1, keepdims=True)
    return (xp.sum(x, axis=-1, keepdims=True) - total) / xp.maximum(number, xp.ones_like(number))


@dataclasses.dataclass(frozen=True)
class Simplex:
    """x >= 0 with the sum ``total``; where x has more axes, each of its rows (along the last).

    The projection sorts [1]_: it is max(x - theta, 0), and theta the largest of
    (u_1 + ... + u_j - total)/j, u the sorted entries, the largest first.

    .. [1] J. Duchi, S. Shalev-Shwartz, Y. Singer, T. Chandra, "Efficient projections onto the
       l1-ball for learning in high dimensions", ICML 2008.
    """

    total: Any = 1.0

    def __post_init__(self) -> None:
        _check(self, "total", one=True)

    def value(self, x: Array) -> Any:
        xp = _xp(x)
        off = xp.abs(xp.sum(x, axis=-1) - self.total) / (1.0 + self.total)
        return _outside(xp, xp.any(_beyond_rounding(xp, off)) | xp.any(x < 0.0))

    def prox(self, x: Array, step: Any) -> Array:
        xp = _xp(x)
        if not any(x.shape[-1:]):
            raise ValueError(
                f"Simplex: x of shape {tuple(x.shape)} has no entries with a sum; give x at least "
                "one entry along its last axis"
            )
        x = x - xp.max(x, axis=-1, keepdims=True)  # theta moves with x, which may be large
        u = xp.sort(x, axis=-1, descending=True)
        count = xp.arange(1, x.shape[-1] + 1, dtype=x.dtype, **_where(x))
        theta = xp.max((xp.cumulative_sum(u, axis=-1) - self.total) / count, axis=-1, keepdims=True)
        inside = x > theta
        y = xp.where(inside, x - theta, xp.zeros_like(x))
        # The sum by the small numbers: f may change much with it.
        off = _shared(y, self.total, inside)
        return xp.where(inside, xp.maximum(y - off, xp.zeros_like(x)), y)

    def _unit(self, x: Array) -> Any:
        return _small(self.total)

    def _rest(self, u: Array, end: Array, step: Any) -> Array:
        """The smaller of u and theta."""
        xp, inside = _xp(u), end > 0.0
        theta = _shared(xp.where(inside, u - end, xp.zeros_like(u)), 0.0, inside)
        return xp.where(inside, theta, u)


@dataclasses.dataclass(frozen=True)
class Ball:
    """|x| <= radius, in the Euclidean norm of all of x."""

    radius: Any = 1.0

    def __post_init__(self) -> None:
        _check(self, "radius", one=True)

    def _norm(self, x: Array) -> Array:
        return _xp(x).linalg.vector_norm(x)

    def value(self, x: Array) -> Any:
        xp = _xp(x)
        over = (self._norm(x) - self.radius) / (1.0 + self.radius)
        return _outside(xp, _beyond_rounding(xp, over))

    def prox(self, x: Array, step: Any) -> Array:
        xp, norm = _xp(x), self._norm(x)
        one = xp.ones_like(norm)
        return x * xp.where(norm > self.radius, self.radius / xp.where(norm > 0, norm, one), one)

    def _unit(self, x: Array) -> Any:
        return _small(2.0 * self.radius)

    def _rest(self, u: Array, end: Array, step: Any) -> Array:
        xp, norm = _xp(u), self._norm(u)
        zero = xp.zeros_like(norm)
        over = 1.0 - self.radius / xp.where(norm > 0, norm, zero + 1.0)
        return u * xp.where(norm > self.radius, over, zero)


def _inverse_of_large(weight: Any) -> Any:
    """1/w where w > 1, else 1."""
    if isinstance(weight, int | float):
        return 1.0 / max(1.0, weight)
    return 1.0 / _xp(weight).maximum(weight, _xp(weight).ones_like(weight))


def _small(size: Any) -> Any:
    """The size of a set that is smaller than 1, else 1; and 1 of a point."""
    if isinstance(size, int | float):
        return min(1.0, size) or 1.0
    one = _xp(size).ones_like(size)
    return _xp(size).where((size > 0.0) & (size < one), size, one)


def _unit(term: Any, x: Array) -> Any:
    """The step t by which a point is measured: 1; but of a set that is narrower the width, and of a
    norm with a weight w > 1 the step 1/w, whose prox moves by 1.

    With the step 1 a small set, or a steep norm, holds all that is within a tolerance of its kinks,
    and so might any point be a solution.
    """
    unit = vars(type(term)).get("_unit")  # not that of a subclass, whose prox may be another
    return 1.0 if unit is None else unit(term, x)


def _target(term: Any, x: Array, g: Array) -> Array:
    """prox(x - t g, t)."""
    t = _unit(term, x)
    return term.prox(x - _of_entries(term, x, t) * g, t)


def _of_entries(term: Any, x: Array, t: Any) -> Any:
    """The step t of each entry, given that of each group."""
    return term._spread(x, t) if type(term) is GroupL2 else t


def _gap(term: Any, x: Array, g: Array) -> Array:
    """(x - prox(x - t g, t))/t, where neither a small g nor a small x is lost beside the other:
    with u = x - t g it is also g + (u - prox(u))/t, and ``_rest`` of a term is u - prox(u) without
    the difference."""
    xp, step = _xp(x), _unit(term, x)
    if type(term) is L1:
        weight = as_weight(x, term.weight)
        return xp.minimum(xp.maximum(x / step, g - weight), g + weight)
    t = _of_entries(term, x, step)
    u = x - t * g
    end = term.prox(x - t * g, step)  # a prox may write into what it is given
    rest = vars(type(term)).get("_rest")  # not that of a subclass, whose prox may be another
    left = u - end if rest is None else rest(term, u, end, step)
    return xp.where(t * xp.abs(g) < xp.abs(x), g + left / t, (x - end) / t)


class _TermOfUser:
    """A term of the user's own: it may work in place, and may return one buffer again and again."""

    def __init__(self, given: SimpleTerm, space: Space):
        self._given, self._space, self._admission = given, space, Admission(space)
        self._source = f"the prox of penalty={type(given).__name__}"

    def value(self, x: Array) -> Any:
        return self._given.value(self._space.copy(x))

    def prox(self, x: Array, step: Any) -> Array:
        return self._admission.admit(self._given.prox(self._space.copy(x), step), self._source)


class Penalty:
    """A simple term as rules ask for it: of a machine or a space, on the host.

    What is smooth in it, ridge |x|^2/2 of an elastic net, is counted as a part of f.
    """

    __slots__ = ("given", "ridge", "term")

    def __init__(self, given: Any, space: Space | None = None):
        self.given, self.term, self.ridge = given, given, None
        if type(given) is ElasticNet:  # the prox of a subclass may be another
            self.term, self.ridge = L1(given.weight), given.ridge
        elif space is not None and type(given) not in _OURS:
            self.term = _TermOfUser(given, space)

    def apply(self, m: Entries, function: Any, x: Array, *others: Any) -> Any:
        """What a function of whole arrays makes of x, and of a step or another array."""
        made = function(x, *others)
        view = isinstance(made, np.ndarray) and made.base is not None
        if view or isinstance(made, np.generic):
            return np.array(made)  # a point has memory of its own
        return made

    def value(self, m: Entries, x: Array) -> Any:
        """h(x), without its smooth part."""
        return scalar(self.apply(m, self.term.value, x), "value(x) of the penalty")

    def total(self, m: Entries, x: Array) -> Any:
        """h(x)."""
        value = self.value(m, x)
        return value if self.ridge is None else value + self.ridge * m.inner(x, x) / 2

    def smooth(self, m: Any, x: Array, gradient: Array, sign: float = 1.0) -> Array:
        """The gradient with that of the smooth part of h."""
        return gradient if self.ridge is None else m.combination(gradient, sign * self.ridge, x)

    def prox(self, m: Entries, x: Array, step: Any) -> Array:
        return self.apply(m, self.term.prox, x, step)

    def gap(self, m: Any, x: Array, gradient: Array) -> Array:
        """(x - prox(x - t g, t))/t: 0 exactly at first-order points of f + h.  The step t is 1,
        but less for small sets and steep norms."""
        return self.apply(m, functools.partial(_gap, self.term), x, gradient)

    def has_unit_step(self, x: Array) -> bool:
        """Is the step t of the gap 1?"""
        step = _unit(self.term, x)
        return bool(step == 1.0 if isinstance(step, float) else _xp(step).all(step == 1.0))

    def target(self, m: Any, x: Array, gradient: Array) -> Array:
        """prox(x - t g, t)."""
        return self.apply(m, functools.partial(_target, self.term), x, gradient)

    def size(self, m: Any, x: Array, gradient: Array) -> Any:
        """The norm of the gap, not finite where an entry of the gradient is not."""
        return m.norm(self.gap(m, x, gradient)) + 0.0 * m.inner(gradient, gradient)

    def report(self, space: Space, x: Array, size: float) -> dict[str, Any]:
        """What a result says of the term at x: h(x), and |x - prox(x - g, 1)|."""
        return {"penalty": self.total(space, x), "optimality": size}


@dataclasses.dataclass(frozen=True)
class _BallOfParts(Ball):
    """A ball of an x that is spread over ranks."""

    norm: Any = None  # over all of them

    _rest, _unit = Ball._rest, Ball._unit

    def _norm(self, x: Array) -> Array:
        return _xp(x).asarray(self.norm(x), dtype=x.dtype, **_where(x))


class PenaltyOfParts(Penalty):
    """A simple term of an x that is spread over ranks: the sum of terms of the parts, or a ball."""

    __slots__ = ()

    def __init__(self, given: Any, space: Space, part: Array):
        super().__init__(given, space)
        if type(given) is Ball:
            self.term = _BallOfParts(given.radius, space.norm)
        elif not _is_sum_over_parts(given, part):
            raise ValueError(
                f"penalty={given!r} cannot be given together with ranks='variables': its proximal "
                "map takes more than this rank's part of x.  These can: L1, ElasticNet, Ball, Box, "
                "GroupL2 with groups within a part (labels, or rows of a part with rows), Simplex "
                "of rows, and an object of your own with an attribute separable = True"
            )

    def value(self, m: Any, x: Array) -> Any:
        space, here = getattr(m, "space", m), super().value(m, x)
        return here if type(self.given) is Ball else space.totals([here])[0]


def _is_sum_over_parts(term: Any, part: Array) -> bool:
    """Is the term a sum of one for each part?"""
    has_rows = len(part.shape) > 1  # each of them on one rank
    if type(term) is GroupL2:
        return has_rows or term.groups is not None
    if type(term) is Simplex:
        return has_rows
    return type(term) in (L1, ElasticNet, Box, NonNegative) or getattr(term, "separable", False)


_OURS = (L1, GroupL2, Box, NonNegative, Simplex, Ball)


def bounds_or_term(bounds: Any, penalty: Any) -> tuple[Any, Any]:
    """A box as bounds, any other as a term; both at once are refused."""
    if bounds is not None:
        raise ValueError(
            "bounds= and penalty= cannot be given together; Box(lower, upper) is the term of "
            "bounds alone, and a term of your own may do both: an object with value(x) and "
            "prox(x, step)"
        )
    return (penalty.bounds, None) if type(penalty) in (Box, NonNegative) else (None, penalty)


def check_term(term: Any) -> None:
    """Can it be a simple term?"""
    if isinstance(term, type):
        raise TypeError(f"penalty={term.__name__} is a class; pass an object: {term.__name__}(...)")
    if not all(callable(getattr(term, name, None)) for name in ("value", "prox")):
        raise TypeError(
            f"penalty={term!r} must be one of {TERMS}, with its parameters, or an object with "
            "value(x) and prox(x, step)"
        )


def read_penalty(term: Any, space: Space, start: Array) -> Penalty:
    """The term that ``penalty=`` asks for, tried out at the start."""
    check_term(term)
    there = term.prox(space.copy(start), 1.0)  # it may work in place
    shape = tuple(getattr(there, "shape", ()))
    if shape != space.shape or getattr(there, "dtype", None) != space.dtype:
        raise ValueError(
            f"the prox of penalty={term!r} makes {getattr(there, 'dtype', type(there).__name__)} "
            f"of shape {shape} of an x of {space.dtype} and shape {space.shape}; it must keep both"
        )
    return PenaltyOfParts(term, space, start) if space.is_part else Penalty(term, space)


def add_penalty(penalty: Any, bounds: Any, space: Space, start: Array) -> Any:
    """Give the space its simple term; what is returned are the bounds of one that is a box."""
    bounds, term = bounds_or_term(bounds, penalty)
    known = read_penalty(penalty, space, start)
    space.penalty = None if term is None else known
    return bounds


def membership(feasible: Any) -> Callable[[Array], bool]:
    """Is a point in the set that ``feasible=`` names: a term, or a function of x?"""
    if isinstance(feasible, type):
        name = feasible.__name__
        raise TypeError(f"feasible={name} is a class; pass a set such as {name}(...), an object")
    if callable(getattr(feasible, "value", None)):
        return lambda x: math.isfinite(scalar(feasible.value(x), "value(x) of feasible"))
    if callable(feasible):
        return lambda x: bool(feasible(x))
    raise TypeError(
        f"feasible={feasible!r} must be a set such as NonNegative(), or feasible(x) -> bool"
    )


def enter_domain(penalty: Penalty, space: Space, start: Array) -> Array:
    """The start, or prox(start, 1) with a warning where h is infinite there."""
    if math.isfinite(penalty.value(space, start)):
        return start
    warnings.warn(
        f"penalty={penalty.given!r} is infinite at x0: the run starts at prox(x0, 1), the nearest "
        "point where it is finite",
        RuntimeWarning,
        stacklevel=levels_to_the_user(),
    )
    return penalty.prox(space, start, 1.0)
