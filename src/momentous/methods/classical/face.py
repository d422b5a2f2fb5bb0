"""The variables that the model of L-BFGS holds, for pairs in the memory of the host.

What a pivot needs of all pairs are sums over the held variables A and the step at those that may
change sides.  So the rows of U are kept, side by side, at the candidates C: the variables that a
step has put at a bound before.  A holds some of them.  Pivots read U_C alone, a fifth of U if a
fifth of the variables is at bounds, and one pass over all of U, which a step without bounds takes
too, shows whether others would leave the box: these become candidates, and the pivots go on.  As C
only grows, that ends; mostly it does after one pass.

From step to step C, A and the sums are kept: what is computed anew is the part of the variables
that change sides, and the rows of new pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from momentous.core.checkpoint import Plain
from momentous.core.machine import Host, Numbers
from momentous.core.record import record
from momentous.core.space import Array, Space, to_numpy
from momentous.methods.classical.box_model import cut_between, exchange, longer

# Passes over all pairs after which the step is cut off at the bounds as it is.
MOST_PASSES = 50
# Candidates are dropped that are not held where these are more than such a share of all.
MOST_IDLE = 1 / 4
# The room for candidates: a multiple of so many, so that rows begin alike.
STRIDE = 8


class Entries(Numbers):
    """The machine of entries of x, as NumPy arrays."""

    def __init__(self, space: Space):
        self._totals, self.rounding = space.totals, space.rounding

    @staticmethod
    def each(formula: Callable[..., np.ndarray], *vectors: np.ndarray) -> np.ndarray:
        return formula(np, *vectors)

    def inner(self, a: np.ndarray, b: np.ndarray) -> float:
        return self._totals([float(np.vdot(a, b))])[0]

    repeat = staticmethod(Host.repeat)

    @staticmethod
    def last(a: np.ndarray) -> np.ndarray:
        kept = np.zeros_like(a)
        place = np.flatnonzero(a)[-1:]  # of every rank's part, where x is spread
        kept[place] = a[place]
        return kept


class Face:
    """The candidates C, and of them those that are held, A."""

    __slots__ = ("_room", "gram", "idle", "newer", "places", "sides")

    def __init__(self, places: np.ndarray, sides: np.ndarray, gram: np.ndarray, size: int):
        self.places, self.sides = places, sides  # of C, in the order of arrival; not 0 in A
        self.gram = gram  # U_A'U_A, on this rank
        self.newer: tuple[int, ...] = ()  # the rows of pairs since then
        self.idle = np.ones(size, bool)  # all variables but C
        self.idle[places] = False
        self._room: np.ndarray | None = None  # U_C', and room for more

    @staticmethod
    def empty(m: Host, rows: int) -> Face:
        return Face(np.empty(0, int), np.empty(0), np.zeros((rows, rows)), m.space.size)

    @property
    def columns(self) -> np.ndarray:
        """U_C'."""
        assert self._room is not None
        return self._room[:, : len(self.places)]

    def renew(self, m: Host, rows: Any) -> None:
        """With the rows of newer pairs."""
        if self._room is None:
            self._make_room(rows.columns_at(m, self.places))
        held, half = self.sides != 0.0, len(self.gram) // 2
        for i in self.newer:
            for j in (i, i + half):
                self.columns[j] = rows.row(j)[self.places]
            for j in (i, i + half):
                self.gram[j] = self.gram[:, j] = self.columns @ (self.columns[j] * held)
        self.newer = ()

    def _make_room(self, columns: np.ndarray) -> None:
        count = columns.shape[1]
        self._room = np.empty((len(columns), (count + count // 2) // STRIDE * STRIDE + STRIDE))
        self._room[:, :count] = columns

    def admit(self, m: Host, rows: Any, places: np.ndarray) -> None:
        """More candidates, which are not held yet."""
        if not len(places):
            return
        known, more = self.columns, rows.columns_at(m, places)
        self.places = np.concatenate([self.places, places])
        self.sides = np.concatenate([self.sides, np.zeros(len(places))])
        self.idle[places] = False
        assert self._room is not None
        if len(self.places) > self._room.shape[1]:
            self._make_room(np.concatenate([known, more], axis=1))
        else:
            self._room[:, known.shape[1] : len(self.places)] = more

    def add_row(self, row: int) -> None:
        """After a new pair; without the candidates that are not held, if they are many."""
        self.newer = (*self.newer, row)
        held = np.flatnonzero(self.sides)
        if len(self.places) - len(held) > MOST_IDLE * len(self.places) and self._room is not None:
            columns = self.columns[:, held]
            self.places, self.sides = self.places[held], self.sides[held]
            self.idle[:] = True
            self.idle[self.places] = False
            self._make_room(columns)

    def hold(self, sides: np.ndarray) -> None:
        """Other sides of the candidates."""
        now, before = sides != 0.0, self.sides != 0.0
        changed = np.flatnonzero(now != before)
        if 2 * len(changed) > np.count_nonzero(now):  # all anew
            part = self.columns[:, now]
            self.gram = part @ part.T
        elif len(changed):
            for chosen, sign in ((changed[now[changed]], 1.0), (changed[before[changed]], -1.0)):
                part = self.columns[:, chosen]
                self.gram += sign * (part @ part.T)
        self.sides = sides

    def _count(self, m: Host) -> tuple[int, int]:
        """Of the candidates, and of those that are held, on all ranks."""
        mine = len(self.places), int(np.count_nonzero(self.sides))
        return tuple(map(int, m.space.totals(mine))) if m.space.is_part else mine  # type: ignore[return-value]

    def weights_where(
        self, m: Host, pairs: Any, held: Array, target: Array, gradient: Array
    ) -> np.ndarray:
        """w of the step U w - gamma g where these entries of x are held, and no others."""
        sides, aim, g = (to_numpy(a).reshape(-1) for a in (held, target, gradient))
        self.renew(m, pairs.rows)
        self.admit(m, pairs.rows, np.flatnonzero((sides != 0.0) & self.idle))
        self.hold(sides[self.places])
        products = pairs.rows.products(m, gradient)
        return self._weights(m, pairs, products, aim[self.places], g[self.places])

    def _weights(
        self, m: Host, pairs: Any, products: np.ndarray, target: np.ndarray, g: np.ndarray
    ) -> np.ndarray:
        """The same, given U'g, and targets and gradient at the candidates."""
        known, gram = pairs.known, self.gram
        right = self.columns @ ((target + known.gamma * g) * (self.sides != 0.0))
        if m.space.is_part:
            sums = m.space.totals([*right.tolist(), *gram.reshape(-1).tolist()])
            right, gram = np.asarray(sums[: len(right)]), np.reshape(sums[len(right) :], gram.shape)
        right = right.reshape(2, -1) - known.gamma * products
        if not self._count(m)[1]:
            return known.weights(m, products)  # type: ignore[no-any-return]
        return known.weights_on_face(m, gram, right)  # type: ignore[no-any-return]

    def least_between(self, m: Host, pairs: Any, lo: Array, up: Array, gradient: Array) -> Array:
        """p, where the model is least between these two."""
        space, rows = m.space, pairs.rows
        if not pairs.count:  # H is the identity
            return m.each(cut_between(m), m.each(lambda xp, g: -g, gradient), lo, up)
        low, high, g = (to_numpy(a).reshape(-1) for a in (lo, up, gradient))
        self.renew(m, rows)
        pressed = low == high
        self.admit(m, rows, np.flatnonzero(pressed & self.idle))
        self.hold((-np.sign(g) * pressed)[self.places])
        wrong = np.zeros(len(self.places))
        for _ in range(MOST_PASSES):
            weights, held = self._pivot(m, pairs, low, high, g, wrong)
            p = rows.combine(m, weights, -pairs.known.gamma, gradient)
            entries = to_numpy(p).reshape(-1)
            below = entries < low
            new = np.flatnonzero((below | (entries > high)) & self.idle)
            if not space.totals([len(new)])[0]:
                break
            wrong = np.concatenate([np.zeros(len(self.places)), 1.0 - 2.0 * below[new]])
            self.admit(m, rows, new)
        if not held:
            return p
        entries, chosen = np.clip(entries, low, high), self.sides != 0.0
        places, lower = self.places[chosen], self.sides[chosen] < 0.0
        entries[places] = longer(m) * np.where(lower, low[places], high[places])
        return space.from_numpy(entries.reshape(space.shape))

    def _pivot(
        self, m: Host, pairs: Any, low: np.ndarray, high: np.ndarray, g: np.ndarray,
        wrong: np.ndarray,
    ) -> tuple[np.ndarray, int]:  # fmt: skip
        """w of the step that is least where the candidates alone have bounds, and how many of them
        are held."""
        if not self._count(m)[0]:
            return pairs.known.weights(m, pairs.products), 0
        low, high, g = low[self.places], high[self.places], g[self.places]
        weights: list[np.ndarray] = []

        def held_step(sides: np.ndarray, target: np.ndarray) -> np.ndarray:
            self.hold(sides)
            weights[:] = [self._weights(m, pairs, pairs.products, target, g)]
            step: np.ndarray = weights[0].reshape(-1) @ self.columns - pairs.known.gamma * g
            return step

        entries: Any = Entries(m.space)
        exchange(entries, low, high, self.sides, wrong, held_step)
        return weights[0], self._count(m)[1]

    def packed(self) -> StoredFace:
        return StoredFace(Plain(self.places), Plain(self.sides), Plain(self.gram), self.newer)


@record
class StoredFace:
    """A `Face` in a checkpoint."""

    places: Plain
    sides: Plain
    gram: Plain
    newer: tuple[int, ...]

    def face(self, size: int) -> Face:
        """As it was, for so many variables."""
        places, sides, gram = (a.array.copy() for a in (self.places, self.sides, self.gram))
        face = Face(places, sides, gram, size)
        face.newer = self.newer
        return face
