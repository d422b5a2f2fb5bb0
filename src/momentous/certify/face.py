"""A point where bounds or a simple term hold some of x: the function of what is left free alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from momentous.core.admission import Admission
from momentous.core.oracle import Oracle, Sample
from momentous.core.penalties import L1, Ball, GroupL2, Simplex, as_weight
from momentous.core.space import Array, Space, to_numpy
from momentous.io.types import AnyArray, AnyFunction, JsonObject, Matrix

ROUNDINGS = 8.0  # of a bound: x is at it
CLOSE = 10.0  # a group of so many eps has a direction that is not known to better than a tenth


class Face:
    """The directions that are free at x as one flat vector, and what certifies them.

    Entries of x are held, and rows of it may be held along one direction each, their normal: what
    is free is then at right angles to it, by a reflection that takes the normal to an entry.

    What holds does so weakly if its multiplier is at most eps: then f may fall along it, which the
    curvature on the face does not show.  And what is only near the place where it would be held, by
    no more than eps, is held here too, but f falls on the way there.
    """

    noun = "the Hessian of the free variables"
    nothing, holds = "no variable is at a bound", "{} of {} variables are at bounds"
    strictly = "each fixed or with a multiplier above eps (strict complementarity)"
    weakly = "have multipliers of at most eps: whether f falls from there into the box is not told"
    nearly = "within eps of a bound to which f falls, but not at it: go on from P(x - grad f(x))"
    bend: Callable[[Array], Array] | None = None  # the Hessian of what is beside f

    def __init__(
        self, oracle: Oracle, sample: Sample, held: Array, weak: Array, room: Array,
        normals: Matrix | None = None, near: Array = False,
    ):  # fmt: skip
        space, x = oracle.space, sample.point
        xp, device = space.xp, space.device
        self.oracle, self.space, self.sample = oracle, space, sample
        self.held = np.broadcast_to(to_numpy(held), space.shape).reshape(-1)
        gone, self._mirrors = self.held, None
        if normals is not None and normals.any():
            mirrors, pivots = _mirrors(normals)
            gone = self.held | pivots.reshape(-1)
            self._mirrors = xp.asarray(mirrors, dtype=space.dtype, device=device)
        self.free = np.flatnonzero(~gone)
        weak = np.broadcast_to(to_numpy(weak), space.shape).reshape(-1)
        self.weak = tuple(np.flatnonzero(weak).tolist())
        near = np.broadcast_to(to_numpy(near), space.shape).reshape(-1)
        self.near = tuple(np.flatnonzero(near).tolist())
        places = np.full(space.size, self.free.size)
        places[self.free] = np.arange(self.free.size)
        self._take = xp.asarray(self.free, device=device)
        self._places = xp.asarray(places, device=device)
        self.point = self.part(x)
        if self._mirrors is not None and self.free.size:
            # Its size tells how long a step must be to show above rounding: that of x.
            self.point = self.point + space.norm(x) / math.sqrt(self.free.size)
        self._rest = x - self.spread(self.point)
        room = np.broadcast_to(to_numpy(room), space.shape).reshape(-1)
        if self._mirrors is not None:  # a direction that is free moves several entries
            room = np.full(room.shape, room[~self.held].min(initial=math.inf))
        self.room = Space(self.point).from_numpy(room[self.free])

    def _reflected(self, a: Array) -> Array:
        xp, mirrors = self.space.xp, self._mirrors
        if mirrors is None:
            return a
        rows = xp.reshape(a, mirrors.shape)
        rows = rows - mirrors * xp.sum(mirrors * rows, axis=-1, keepdims=True)
        return xp.reshape(rows, self.space.shape)

    def part(self, a: Array) -> Array:
        """What is free of it."""
        xp = self.space.xp
        return xp.take(xp.reshape(self._reflected(a), (-1,)), self._take)

    def spread(self, y: Array) -> Array:
        """The vector of which that is free, and nothing else."""
        xp = self.space.xp
        longer = xp.concat([y, xp.zeros(1, dtype=y.dtype, device=self.space.device)])
        return self._reflected(xp.reshape(xp.take(longer, self._places), self.space.shape))

    def whole(self, y: Array) -> Array:
        """The point of which that is free."""
        return self.spread(y) + self._rest

    def value(self, y: Array) -> float:
        return self.oracle.value(self.whole(y))

    def gradient(self, y: Array) -> Array:
        return self.part(self.oracle.gradient(self.whole(y)).gradient)

    def products(self, hessp: AnyFunction | None, args: tuple[object, ...]) -> AnyFunction | None:
        """Products with the Hessian of what is free, given those with the whole."""
        if hessp is None:
            return None
        admit = Admission(self.space).admit

        def product(y: Array, v: Array) -> Array:
            return self.part(admit(hessp(self.sample.point, self.spread(v), *args), "hessp"))

        return product

    def report(self, found: JsonObject, direction: Array | None) -> None:
        """What a certificate says of what is held."""
        space, sample = self.space, self.sample
        told = space.box.report(space, sample.point, sample.gradient)
        found |= {"active": told["active"], "multipliers": told["multipliers"]}
        if direction is not None:  # how far x may go along it, either way
            room = to_numpy(space.box.room(space, sample.point)).reshape(-1)
            sizes = np.abs(to_numpy(direction).reshape(-1))
            moves = sizes > 0.0
            longest = float(np.min(room[moves] / sizes[moves], initial=math.inf))
            found["longest_step"] = longest * (1.0 - 8.0 * space.rounding)  # none leaves the box

    @property
    def is_open(self) -> bool:
        """May f fall from what is held?"""
        return bool(self.weak or self.near)

    def words(self) -> str:
        """What is held, for a message."""
        if not (self.held.any() or self.weak or self.near):
            return self.nothing
        held = self.holds.format(int(self.held.sum()) - len(self.near), self.held.size)
        if not self.is_open:
            return f"{held}, {self.strictly}"
        if self.weak:
            held += f", and those at flat indices {_first(self.weak)} {self.weakly}"
        if self.near:
            held += f"; flat indices {_first(self.near)} are {self.nearly}"
        return held


def _first(indices: tuple[int, ...]) -> str:
    return ", ".join(map(str, indices[:5])) + (", ..." if len(indices) > 5 else "")


def _mirrors(normals: Matrix) -> tuple[Matrix, AnyArray]:
    """For every row m with |m|^2 = 2, so that a - m <m, a> takes the normal to its largest entry,
    where the pivots are; 0 where there is no normal."""
    sizes = np.linalg.norm(normals, axis=-1, keepdims=True)
    mirrors = np.divide(normals, sizes, out=np.zeros_like(normals), where=sizes > 0)
    place = np.argmax(np.abs(mirrors), axis=-1)[..., None]
    pivots = np.zeros(normals.shape, bool)
    np.put_along_axis(pivots, place, sizes > 0, axis=-1)
    mirrors += np.where(pivots, np.where(mirrors < 0.0, -1.0, 1.0), 0.0)
    lengths = np.linalg.norm(mirrors, axis=-1, keepdims=True)
    return mirrors * (math.sqrt(2.0) / np.where(lengths > 0, lengths, 1.0)), pivots


def face_in_box(oracle: Oracle, sample: Sample, eps: float) -> Face:
    """A variable is held if it is at a bound, but for rounding.  One that the gradient moves there
    within eps is near: f falls on that way, and has another gradient there."""
    space, box = oracle.space, oracle.space.box
    x, g = sample.point, sample.gradient
    xp, moved = space.xp, box.target(space, x, g)
    sizes = xp.where(g > 0.0, xp.abs(box.lower), xp.abs(box.upper))
    at = (box.sides(space, x, g) != 0) | (
        (box.sides(space, moved, g) != 0)
        & (xp.abs(x - moved) <= ROUNDINGS * space.rounding * sizes)
    )
    near = (box.sides(space, moved, g) != 0) & ~at
    weak = (at | near) & (xp.abs(g) <= eps) & (box.lower < box.upper)
    room = box.room(space, x)
    return Face(oracle, sample, at | near, weak, room, near=near & ~weak)


class TermFace(Face):
    """Where a simple term h is smooth along what it leaves free.

    The curve along which a ball holds x bends, too.  Points are brought back into the set, if h is
    one.  ``said`` takes the place of what words() says.
    """

    noun = "the Hessian of f + h along what h leaves free"
    nothing, holds = "h holds nothing", "h holds {} of {} entries at 0"
    strictly = "each by more than eps (strict complementarity)"
    weakly = "by no more than eps: whether f + h falls where they move is not told"
    nearly = (
        "within eps of 0, to which f + h falls, but not at it: go on from prox(x - grad f(x), 1)"
    )
    said: str | None = None

    def words(self) -> str:
        return self.said or super().words()

    def whole(self, y: Array) -> Array:
        return self.space.penalty.prox(self.space, super().whole(y), 0.0)

    def _bent(self, product: Array, v: Array) -> Array:
        return product if self.bend is None else product + self.part(self.bend(self.spread(v)))

    def gradient(self, y: Array) -> Array:
        return self._bent(super().gradient(y), y - self.point)

    def products(self, hessp: AnyFunction | None, args: tuple[object, ...]) -> AnyFunction | None:
        of_f = super().products(hessp, args)
        if of_f is None:
            return None
        ridge = self.space.penalty.ridge or 0.0
        return lambda y, v: self._bent(of_f(y, v), v) + ridge * v

    def report(self, found: JsonObject, direction: Array | None) -> None:
        held = self.held.reshape(self.space.shape).astype(np.int8)
        found |= {"active": self.space.xp.asarray(held, device=self.space.device)}


def face_of_term(oracle: Oracle, sample: Sample, eps: float) -> Face | None:
    """Of a term that is known here, and of no other."""
    space = oracle.space
    find = _FACES.get(type(space.penalty.term))
    if find is None:
        return None
    x, g = sample.point, sample.gradient
    return find(oracle, sample, eps, space.penalty.target(space, x, g))


def _of_l1(oracle: Oracle, sample: Sample, eps: float, end: Array) -> Face:
    """Entries are at 0, or the gradient moves them there."""
    x, xp = sample.point, oracle.space.xp
    weight = as_weight(x, oracle.space.penalty.term.weight)
    held = ((x == 0) | (end == 0)) & (weight > 0)
    weak = held & (weight - xp.abs(sample.gradient) <= eps)
    return TermFace(oracle, sample, held, weak, math.inf, near=held & (x != 0) & ~weak)


def _of_groups(oracle: Oracle, sample: Sample, eps: float, end: Array) -> Face:
    """The same of groups; the norm of the others bends.

    What is at right angles to a group of a few eps is not known: it is held, and weakly if it does
    not move to 0.
    """
    term, xp = oracle.space.penalty.term, oracle.space.xp
    x, norms = sample.point, term._norms(sample.point)
    weight = as_weight(norms, term.weight)
    stays = term._norms(end) > 0
    held = ((norms <= CLOSE * eps) | ~stays) & (weight > 0)
    weak = held & ((weight - term._norms(sample.gradient) <= eps) | ((norms > 0) & stays))
    ones = xp.ones_like(x)
    held, weak, near = (
        ones * term._spread(x, xp.astype(each, x.dtype)) != 0
        for each in (held, weak, held & (norms > 0) & ~weak)
    )
    face = TermFace(oracle, sample, held, weak, math.inf, near=near)
    face.holds = f"h holds {{}} of {{}} entries at 0, or within {CLOSE:g} eps of it"
    one = xp.ones_like(norms)
    size = xp.where(norms > 0, norms, one)

    def bend(v: Array) -> Array:
        along = term._spread(x, term._sums(x * v) / (size * size))
        return (v - along * x) * term._spread(x, weight * one / size)

    face.bend = bend
    return face


def _of_simplex(oracle: Oracle, sample: Sample, eps: float, end: Array) -> Face:
    """Entries at 0; and those of a row that are not have a given sum."""
    x, g = to_numpy(sample.point), to_numpy(sample.gradient)
    free = (x > 0) & (to_numpy(end) > 0)
    rounding = ROUNDINGS * oracle.space.rounding * np.max(x, axis=-1, keepdims=True, initial=0.0)
    count = np.maximum(free.sum(axis=-1, keepdims=True), 1)
    over = g - np.where(free, g, 0.0).sum(axis=-1, keepdims=True) / count
    fixed = not np.any(to_numpy(oracle.space.penalty.term.total))
    weak = ~free & (over <= eps) & (not fixed)
    near = ~free & (x > rounding) & ~weak
    return TermFace(oracle, sample, ~free, weak, x, free.astype(float), near)


def _of_ball(oracle: Oracle, sample: Sample, eps: float, end: Array) -> Face:
    """x on the sphere: what is free is at right angles to it, and bends by the multiplier."""
    space: Space = oracle.space
    x, radius = sample.point, float(space.penalty.term.radius)
    size, over = space.norm(x), space.norm(space.combination(x, -1.0, sample.gradient)) - radius
    touches = size >= radius * (1.0 - ROUNDINGS * space.rounding)
    on_sphere = over > 0.0 or touches
    normals = to_numpy(x).astype(float).reshape(1, -1) if on_sphere else None
    weak = on_sphere and radius > 0.0 and over <= eps
    room = math.inf if on_sphere else (radius - size) / math.sqrt(max(1, space.size))
    near = on_sphere and not touches and not weak
    face = TermFace(oracle, sample, radius == 0.0, weak, room, normals, near)
    face.said = "x lies within the ball"
    if weak:
        face.said = (
            "x lies on the sphere, held there by no more than a few eps: whether f falls towards "
            "the inside is not told"
        )
    elif near:
        face.said = (
            "x lies within eps of the sphere, to which f falls, but not on it: go on from "
            "prox(x - grad f(x), 1)"
        )
    elif on_sphere:
        face.said = "x lies on the sphere, held there by more than eps (strict complementarity)"
    if on_sphere and radius > 0.0:
        curvature = max(over, 0.0) / radius
        face.bend = lambda v: curvature * v
    return face


_FACES = {L1: _of_l1, GroupL2: _of_groups, Simplex: _of_simplex, Ball: _of_ball}
