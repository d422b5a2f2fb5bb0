"""A point at bounds: the function of its free variables alone, the others held where they are."""

import math

import numpy as np

from momentous.core.oracle import Oracle, Sample
from momentous.core.space import Array, to_numpy
from momentous.io.types import AnyFunction


class Face:
    """The free variables at x as one flat vector, and what certifies them.

    A variable is held if it is at a bound, or if the gradient moves it there: if it is at a bound
    in P(x - g).  It is weakly held if its multiplier is at most eps: then f may fall into the box
    along it, which the curvature on the face does not show.
    """

    def __init__(self, oracle: Oracle, sample: Sample, eps: float):
        space, box = oracle.space, oracle.space.box
        x, g = sample.point, sample.gradient
        self.oracle, self.space, self.sample = oracle, space, sample
        moved = box.clip(space, space.combination(x, -1.0, g))
        at = to_numpy(box.sides(space, x, g)).reshape(-1)
        meets = to_numpy(box.sides(space, moved, g)).reshape(-1)
        lower, upper, slope = (to_numpy(a).reshape(-1) for a in (box.lower, box.upper, g))
        self.held = (at != 0) | (meets != 0)
        self.free = np.flatnonzero(~self.held)
        weak = self.held & (np.abs(slope) <= eps) & (lower < upper)
        self.weak = tuple(int(i) for i in np.flatnonzero(weak))
        places = np.full(space.size, self.free.size)
        places[self.free] = np.arange(self.free.size)
        xp, device = space.xp, space.device
        self._take = xp.asarray(self.free, device=device)
        self._places = xp.asarray(places, device=device)
        self._rest = xp.reshape(x, (-1,)) * xp.asarray(
            self.held.astype(np.float64), dtype=space.dtype, device=device
        )
        room = to_numpy(box.room(space, x)).reshape(-1)[self.free]
        self.room = float(room.min()) if room.size else math.inf

    @property
    def point(self) -> Array:
        return self.part(self.sample.point)

    def part(self, a: Array) -> Array:
        """The free entries."""
        xp = self.space.xp
        return xp.take(xp.reshape(a, (-1,)), self._take)

    def spread(self, y: Array) -> Array:
        """A vector with these free entries, and zeros."""
        xp = self.space.xp
        longer = xp.concat([y, xp.zeros_like(self._rest[:1])])
        return xp.reshape(xp.take(longer, self._places), self.space.shape)

    def whole(self, y: Array) -> Array:
        """The point with these free entries."""
        return self.spread(y) + self.space.xp.reshape(self._rest, self.space.shape)

    def value(self, y: Array) -> float:
        return self.oracle.value(self.whole(y))

    def gradient(self, y: Array) -> Array:
        return self.part(self.oracle.gradient(self.whole(y)).gradient)

    def products(self, hessp: AnyFunction | None, args: tuple[object, ...]) -> AnyFunction | None:
        """Products with the Hessian of the free variables, given those with the whole."""
        if hessp is None:
            return None
        return lambda y, v: self.part(hessp(self.sample.point, self.spread(v), *args))

    def step(self, wanted: float | None) -> float | None:
        """A length of difference steps that stay inside, where the usual one may not."""
        usual = self.space.rounding ** (1 / 3) * (1.0 + self.space.norm(self.sample.point))
        inside = self.room / 4
        return wanted if min(wanted or usual, inside) == (wanted or usual) else inside

    def longest(self, direction: Array) -> float:
        """How far x may go along it, either way."""
        room = to_numpy(self.space.box.room(self.space, self.sample.point)).reshape(-1)
        sizes = np.abs(to_numpy(direction).reshape(-1))
        moves = sizes > 0.0
        return float(np.min(room[moves] / sizes[moves], initial=math.inf))

    def words(self) -> str:
        """What is held, for a message."""
        size = self.held.size
        held = f"{int(self.held.sum())} of {size} variables are at bounds"
        if not self.held.any():
            return "no variable is at a bound"
        if not self.weak:
            return f"{held}, each with a multiplier above eps (strict complementarity)"
        first = ", ".join(map(str, self.weak[:5])) + (", ..." if len(self.weak) > 5 else "")
        return (
            f"{held}, and those at flat indices {first} have multipliers of at most eps: whether "
            "f falls from there into the box is not told"
        )
