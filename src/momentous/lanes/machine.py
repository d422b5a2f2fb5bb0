"""The machine of rules for many problems at once: one lane each.

Numbers are arrays (B,), vectors (B, d), of any array library; what is the same in all lanes may
stay a number of Python's.  A branch is computed for all lanes where any of them needs it, and what
it changes is taken in those alone.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import array_api_compat
import numpy as np

from momentous.core.array_machine import ArrayMachine, Number
from momentous.core.box import Box, HostBox
from momentous.core.machine import Branch, Host, Numbers, R
from momentous.core.record import RECORDS, shallow_copy
from momentous.core.space import Array, Space, to_numpy

PLAIN = (bool, int, float)
# Of matrices that are changed at a time, so that a product stays in the cache.
PIECE_BYTES = 1 << 20


class Guesses:
    """Which branches lanes need, as far as it is known before it is asked for: on a device a
    question takes as long as many operations, so all of a turn's are asked at its end."""

    def __init__(self) -> None:
        self.known: set[tuple[int, ...]] = set()
        self.skipped: list[
            tuple[tuple[int, ...], Array]
        ] = []  # branch and whether any lane needs it
        self.path: tuple[int, ...] = ()
        self.count = 0

    def within(self, key: tuple[int, ...], branch: Callable[[], R]) -> R:
        """What a branch makes, with the branches in it named after it."""
        before = self.path, self.count
        self.path, self.count = key, 0
        try:
            return branch()
        finally:
            self.path, self.count = before

    def next(self) -> tuple[int, ...]:
        """The name of the next branch."""
        self.count += 1
        return (*self.path, self.count)

    def begin(self) -> None:
        """Before a turn."""
        self.skipped, self.path, self.count = [], (), 0

    def learn(self, flags: np.ndarray) -> bool:
        """Was a branch skipped that some lane needs?  From now on none of those is."""
        missed = [key for (key, _), flag in zip(self.skipped, flags, strict=True) if flag]
        self.known.update(missed)
        return bool(missed)


class Lanes(ArrayMachine):
    """What branches, numbers and vectors are in a batch of arrays like this one, (B, d).

    ``bounds`` are those of all problems, like the array; `box` has those of the lanes.
    """

    smallest, tiny = Numbers.smallest, Numbers.tiny
    unbegun = staticmethod(Numbers.unbegun)

    def __init__(self, like: Array, *, bounds: Box | None = None):
        self.xp = xp = array_api_compat.array_namespace(like)
        self.space = Space(np.array(to_numpy(like[:1, ...])[0]))  # of one lane, on the host
        self.dtype, self.device = like.dtype, array_api_compat.device(like)
        self.rounding, self.largest = self.space.rounding, self.space.largest
        self.dimension = self.space.dimension
        self.on_numpy = isinstance(like, np.ndarray)
        # Numbers that decide something have the widest type that the library has.
        self.wide = xp.result_type(like.dtype, xp.float64)
        if self.wide != xp.float64:
            self.smallest, self.tiny = 1e-18, float(xp.finfo(self.wide).tiny)
        # Whole numbers, where the library lets them meet others, as the standard does not.
        self.whole = xp.int64
        try:
            xp.asarray([1]) * 0.5
        except TypeError:
            self.whole = self.wide
        on_host = "cpu" in str(self.device).lower()
        self.guesses = None if on_host else Guesses()
        self.bounds = self.box = bounds
        self.noun = "gradient" if bounds is None else "projected gradient"  # for messages
        self._hosts: dict[int, Host] = {}
        self.resize(like.shape[0])

    def resize(self, size: int, live: Array = None) -> None:
        """So many lanes, of which these are of interest (None: all)."""
        self.size, self.lanes_shape, self.live = size, (size,), live
        self.live_count = size if live is None else int(self.xp.count_nonzero(live))

    def enter(self, problems: np.ndarray) -> None:
        """From now on the lanes are these problems."""
        if self.bounds is not None:
            box = self.bounds
            lower, upper = self.rows(box.lower, problems), self.rows(box.upper, problems)
            self.box, self._hosts = Box(lower, upper, box.tol), {}

    def rows(self, array: Array, lanes: np.ndarray) -> Array:
        return self.xp.take(array, self.xp.asarray(lanes, device=self.device), axis=0)

    def host(self, lane: int) -> Host:
        """The machine of a single run of that lane, on the host."""
        if self.box is None:
            return Host.of(self.space)
        if lane not in self._hosts:
            sides = [np.array(to_numpy(a[lane, ...])) for a in (self.box.lower, self.box.upper)]
            space = Space(sides[0])
            space.box = HostBox(sides[0], sides[1], self.box.tol)
            self._hosts[lane] = Host.of(space)
        return self._hosts[lane]

    def full(self, value: Number) -> Array:
        """A number in every lane."""
        dtype = self.wide if isinstance(value, float) else self.whole
        return self.xp.full((self.size,), value, dtype=dtype, device=self.device)

    # Branches.

    def case(self, record: R, *branches: Branch[R], otherwise: Callable[[], R] | None = None) -> R:
        """What branches make is chosen lane by lane; what they leave out stays."""
        masks: list[Array] = []
        made: list[R] = []
        left, rest = self.live, self.live_count
        for condition, branch in (*branches, *([] if otherwise is None else [(True, otherwise)])):
            if condition is False:
                continue
            mask = left
            if condition is not True:
                mask = condition if left is None else condition & left
                left = ~condition if left is None else left & ~condition
            count, key = self._count(mask, rest)
            if count == 0:
                continue
            made.append(self._within(mask, count, key, branch))
            masks.append(mask)
            rest -= count
            if condition is True or rest == 0:
                break
        else:  # lanes are left that no branch is for
            made.append(record)
        return self._merge(masks, made)  # type: ignore[no-any-return]

    def _within(self, mask: Array, count: int, key: Any, branch: Callable[[], R]) -> R:
        """What a branch makes for the lanes that need it: within it no others are of interest."""
        outer = self.live, self.live_count
        # How many they are on a device nobody knows.
        self.live, self.live_count = mask, self.size if count < 0 else count
        try:
            return branch() if key is None else self.guesses.within(key, branch)  # type: ignore[union-attr]
        finally:
            self.live, self.live_count = outer

    def _count(self, mask: Array, rest: int) -> tuple[int, Any]:
        """How many lanes need a branch, and its name where that is a guess: -1 some, 0 none."""
        if mask is self.live:
            return rest, None
        if self.guesses is None:
            return int(self.xp.count_nonzero(mask)), None
        key = self.guesses.next()
        if key in self.guesses.known:
            return -1, key
        self.guesses.skipped.append((key, self.xp.any(mask)))
        return 0, None

    def _merge(self, masks: Sequence[Number], made: Sequence[Any], seen: Any = None) -> Any:
        """Of what was made the first where the first mask says so, ..., and else the last; where
        nothing was made (None), anything will do.

        What several fields share (a sample, an array) is merged once, and shared again.
        """
        last = made[-1]
        if all(each is last for each in made):
            return last
        if any(each is None for each in made):
            known = [i for i, each in enumerate(made) if each is not None]
            return self._merge([masks[i] for i in known[:-1]], [made[i] for i in known], seen)
        seen = {} if seen is None else seen
        key = tuple(map(id, made))
        if key not in seen:
            seen[key] = self._merge_parts(masks, made, seen), made  # kept: ids are not used again
        return seen[key][0]

    def _merge_parts(self, masks: Sequence[Array], made: Sequence[Any], seen: Any) -> Any:
        last = made[-1]
        kind = type(last)
        names = _field_names(kind)
        if names is not None:
            merged = shallow_copy(last)
            for name in names:
                setattr(merged, name, self._merge(masks, [getattr(a, name) for a in made], seen))
            return merged
        if isinstance(last, tuple):
            merged = [self._merge(masks, parts, seen) for parts in zip(*made, strict=False)]
            return kind(*merged) if hasattr(kind, "_fields") else tuple(merged)
        for mask, one in zip(masks, made[:-1], strict=False):
            if one is not made[-1]:
                last = self._select(mask, one, last)
        return last

    def _select(self, mask: Array, a: Number, b: Number) -> Any:
        """Numbers, vectors or matrices, lane by lane."""
        ndim = max(getattr(a, "ndim", 1), getattr(b, "ndim", 1))
        if ndim > 1 and not isinstance(mask, bool):
            mask = mask[(..., *[None] * (ndim - 1))]
        return self.where(mask, a, b)

    def choose(self, condition: Number, a: Number, b: Number) -> Any:
        """Of two samples, the one without a gradient gets that of the other in its place."""
        if condition is False or a is b:
            return b
        if self.guesses is None and not isinstance(condition, bool):
            count = np.count_nonzero(condition if self.live is None else condition & self.live)
            condition = True if count == self.live_count else condition if count else False
        return self._merge([condition], [a, b])

    # Rules within rules.

    def passed_on(self, ask: Any, rule: Any) -> Any:
        return type(ask)(ask.point, ask.need, ask.again, ask.known)

    # Numbers.  A number of Python's stays one where it can.

    def no(self, condition: Number) -> Number:
        return not condition if isinstance(condition, bool) else ~condition

    def where(self, condition: Number, a: Number, b: Number) -> Number:
        if isinstance(condition, bool) or a is b:
            return a if condition is True or a is b else b
        if isinstance(a, PLAIN) and isinstance(b, PLAIN):
            if type(a) is type(b) and a == b:
                return a
            a, b = self._number(a, b), self._number(b, a)
        return self.xp.where(condition, a, b)

    def _number(self, value: Number, other: Number = True) -> Array:
        """As an array, of the kind that both have room in."""
        kinds = {type(value), type(other)}
        xp = self.xp
        dtype = self.wide if float in kinds else self.whole if int in kinds else xp.bool
        return xp.asarray(value, dtype=dtype, device=self.device)

    def isfinite(self, a: Number) -> Number:
        return math.isfinite(a) if isinstance(a, PLAIN) else self.xp.isfinite(a)

    def minimum(self, a: Number, b: Number) -> Number:
        """As Python's ``min``, where an argument is NaN too."""
        return self.where(b < a, b, a)

    def maximum(self, a: Number, b: Number) -> Number:
        return self.where(b > a, b, a)

    def sqrt(self, a: Number) -> Number:
        return math.sqrt(a) if isinstance(a, PLAIN) else self.xp.sqrt(a)

    def power(self, a: Number, b: Number) -> Number:
        if self.on_numpy:
            return np.float_power(a, b)  # that of the C library, as Python's is
        a, b = (self._number(x, 1.0) if isinstance(x, PLAIN) else x for x in (a, b))
        return self.xp.astype(a, self.wide) ** self.xp.astype(b, self.wide)

    def floor(self, a: Number) -> Number:
        if isinstance(a, PLAIN):
            return math.floor(a)
        return self.xp.astype(self.xp.floor(a), self.whole)

    def rounded(self, a: Number, bits: int) -> Number:
        if isinstance(a, PLAIN):
            return Numbers.rounded(a, bits)
        xp = self.xp if hasattr(self.xp, "frexp") else np
        mantissa, exponent = xp.frexp(a if xp is self.xp else to_numpy(a))
        made = xp.ldexp(xp.round(mantissa * 2**bits), exponent - bits)
        return made if xp is self.xp else self.xp.asarray(made, device=self.device)

    # Vectors.

    def column(self, weight: Number) -> Number:
        """A number to be multiplied by the entries of a vector."""
        if isinstance(weight, PLAIN):
            return weight
        return self.xp.astype(weight, self.dtype, copy=False)[..., None]

    def inner(self, a: Array, b: Array) -> Number:
        xp = self.xp
        if a.dtype != self.wide:
            a, b = xp.astype(a, self.wide), xp.astype(b, self.wide)
        # NumPy's is BLAS, lane by lane, as on the host.
        return np.vecdot(a, b) if self.on_numpy else xp.sum(a * b, axis=-1)

    def norm(self, a: Array) -> Number:
        """Not finite as soon as an entry of ``a`` is not."""
        square = self.inner(a, a)
        root = self.xp.sqrt(square)
        if self.rounding > 1e-10:
            return root
        tiny = square < 1e-290  # squares of tiny entries underflow before the entries do
        return self.case(root, (tiny, lambda: self.xp.sqrt(self._shrunk(a)) * 2.0**-600))

    def _shrunk(self, a: Array) -> Number:
        return self.inner(a * 2.0**600, a * 2.0**600)

    def same(self, a: Array, b: Array) -> Number:
        return self.xp.all(a == b, axis=-1)

    def displaced(self, x: Array, radius: Number, seed: int, draw: Number) -> Array:
        """Drawn on the host, as for single runs."""
        draws = np.broadcast_to(to_numpy(draw) if hasattr(draw, "shape") else draw, self.size)
        pairs = zip(to_numpy(x), draws.tolist(), strict=True)
        moved = np.stack([self.space.displaced(row, radius, seed, k) for row, k in pairs])
        return self.xp.asarray(moved, dtype=self.dtype, device=self.device)

    # What bounds need.

    def inside(self, x: Array) -> Array:
        """Never outside of the box; rules ask inside, and there this changes nothing."""
        return x if self.box is None else self.box.clip(self, x)

    def repeat(self, record: R, goes_on: Callable[[R], Any], turn: Callable[[R], R]) -> R:
        """The host asks before each turn, on a device too: a turn is many operations."""
        key = None if self.guesses is None else self.guesses.next()
        while True:
            mask = goes_on(record) if self.live is None else goes_on(record) & self.live
            if not self.xp.any(mask):
                return record
            work = functools.partial(turn, record)
            made = self._within(mask, -1, key, work)
            record = self._merge([mask], [made, record])

    def solve(self, matrix: Array, right: Array) -> Array:
        """Not numbers where a matrix is singular."""
        try:
            return self.xp.linalg.solve(matrix, right[..., None])[..., 0]
        except (np.linalg.LinAlgError, RuntimeError):  # PyTorch's
            if len(matrix) == 1:
                return self.xp.full_like(right, math.nan)
            halves = slice(len(matrix) // 2), slice(len(matrix) // 2, None)
            return self.xp.concat([self.solve(matrix[half], right[half]) for half in halves])

    solve_positive = solve

    # What the pairs of L-BFGS need.

    def needs(self, condition: Number) -> bool:
        """Does it hold in a lane, as far as is known?"""
        if isinstance(condition, bool):
            return condition
        mask = condition if self.live is None else condition & self.live
        return self._count(mask, 0)[0] != 0

    def matmul(self, a: Array, b: Array) -> Array:
        return self.xp.matmul(a, b)

    def put(self, rows: Array, i: Array, pair: Array, use: Array) -> Array:
        if self.on_numpy:  # in place, as nobody else has them
            lanes = np.flatnonzero(use)
            rows[lanes, :, i[lanes]] = pair[lanes]
            return rows
        place = (self.xp.arange(rows.shape[-2], device=self.device) == i[..., None]) & use[
            ..., None
        ]
        return self.where(place[..., None, :, None], pair[..., :, None, :], rows)

    def plus_product(self, matrices: Array, left: Array, right: Array) -> Array:
        columns = self.xp.matrix_transpose(left)
        if not self.on_numpy:
            return matrices + self.xp.matmul(columns, right)
        step = max(1, PIECE_BYTES // max(1, matrices[0].nbytes))
        for start in range(0, self.size, step):  # in place, as nobody else has them
            piece = slice(start, start + step)
            part = matrices[piece]
            part += columns[piece] @ right[piece]
        return matrices


_NAMES: dict[type, tuple[str, ...] | None] = {}


def _field_names(kind: type[Any]) -> tuple[str, ...] | None:
    """The fields of a record; None: it is something else."""
    if kind not in _NAMES:
        is_record = kind in RECORDS.values()
        names = tuple(field.name for field in dataclasses.fields(kind)) if is_record else None
        _NAMES[kind] = names
    return _NAMES[kind]


def leaves(work: Callable[[Any], Any], tree: Any) -> Any:
    """A tree of records with something else in place of each array and number in it."""
    names = _field_names(type(tree))
    if names is not None:
        made = shallow_copy(tree)
        for name in names:
            setattr(made, name, leaves(work, getattr(tree, name)))
        return made
    if isinstance(tree, tuple):
        parts = [leaves(work, part) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return tree if tree is None else work(tree)


def gathered(tree: Any, index: Array) -> Any:
    """The lanes with these numbers."""

    def take(leaf: Any) -> Any:
        if not getattr(leaf, "ndim", 0):
            return leaf
        return array_api_compat.array_namespace(leaf).take(leaf, index, axis=0)

    return leaves(take, tree)


def one_lane(tree: Any, i: int) -> Any:
    """One lane of a tree on the host, as a single run has it."""

    def take(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray) or not leaf.ndim:
            return leaf.item() if isinstance(leaf, np.ndarray) else leaf
        return leaf[i].item() if leaf.ndim == 1 else leaf[i]

    return leaves(take, tree)
