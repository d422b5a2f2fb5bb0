"""The machine of rules in compiled code: branches are ``lax.switch``, vectors are pytrees."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.extend.core import jaxpr_as_fun
from jax.scipy.linalg import solve_triangular

from momentous.core.box import Box
from momentous.core.machine import ArrayMachine, Branch, R
from momentous.core.oracle import Sample
from momentous.core.passes import Pass
from momentous.core.record import RECORDS
from momentous.core.space import Array
from momentous.core.status import RESTARTS, EventKind
from momentous.jax import vectors
from momentous.jax.vectors import Limits, Tree, select


def register_records() -> None:
    """Make pytrees of the records that memories are made of."""
    for cls in RECORDS.values():
        if cls not in _REGISTERED:
            names = [field.name for field in dataclasses.fields(cls)]
            jax.tree_util.register_dataclass(cls, names, [])
            _REGISTERED.add(cls)


_REGISTERED: set[type] = set()
# Events are counted: a `ROLLBACK` as 1 and a `RESTART`, whose epoch is kept, as 1 + KEPT.
KEPT = 1024


class Compiled(ArrayMachine):
    """What branches, numbers and vectors are in compiled code."""

    no_events = 0
    xp: Any = jnp
    device: Any = None
    lanes_shape: tuple[int, ...] = ()

    def __init__(
        self, x0: Tree, key: Any, lanes: bool = False, box: Box | None = None, reads: Any = ()
    ):  # fmt: skip
        register_records()
        limits = Limits.of(x0)
        self.rounding, self.largest = limits.rounding, limits.largest
        self.smallest, self.dimension = limits.smallest, limits.dimension
        self.wide, self.whole = vectors.wide(), jnp.result_type(int)
        self.dtype = jnp.result_type(*jax.tree.leaves(x0) or [self.wide])
        self.tiny = float(jnp.finfo(self.wide).tiny)
        self.key, self.like, self.box = key, x0, box
        # Do many runs go on at once, under ``vmap``?  And in which of them is the branch taken that
        # is traced?
        self.lanes, self.mask = lanes, jnp.asarray(True)
        sides = () if box is None else (box.lower, box.upper)
        # The axes of ``shard_map`` along which anything that a run reads differs.
        read = jax.tree.leaves((x0, key, sides, reads))
        self.axes = frozenset[str]().union(*map(_axes_of, read))

    def strong(self, leaf: Any) -> Any:
        """A number or an array with a dtype that does not give way."""
        leaf = jnp.asarray(leaf)
        return self.varying(jax.lax.convert_element_type(leaf, leaf.dtype))

    def varying(self, leaf: Any) -> Any:
        """The same, of the type that it has in a branch, or a turn, that reads what differs."""
        missing = tuple(self.axes - _axes_of(leaf))
        return jax.lax.pcast(leaf, missing, to="varying") if missing else leaf

    def case(self, record: R, *branches: Branch[R], otherwise: Callable[[], R] | None = None) -> R:
        """Only the leaves that some branch changes pass through the switch: XLA would copy the
        others, which may be long vectors.  What a branch leaves out stays as it was."""
        chosen = [branch for branch in branches if branch[0] is not False]
        always = [i for i, (condition, _) in enumerate(chosen) if condition is True]
        if always:  # known before anything runs
            otherwise, chosen = chosen[always[0]][1], chosen[: always[0]]
        if not chosen:
            return record if otherwise is None else otherwise()
        given, tree = jax.tree.flatten(record)
        before = [self.strong(leaf) for leaf in given]
        if self.lanes:
            return tree.unflatten(self._by_lanes(given, before, tree, chosen, otherwise))  # type: ignore[no-any-return]
        traced = [self._traced(make, given, before, tree) for _, make in chosen]
        traced.append(self._traced(otherwise or (lambda: record), given, before, tree))
        union = sorted(set().union(*(changes for _, changes in traced)))

        def complete(program: Callable[..., Any], changes: list[int]) -> Callable[[], Any]:
            def run() -> list[Any]:
                made = dict(zip(changes, program(), strict=True))
                return [made.get(i, before[i]) for i in union]

            return run

        # The first condition that holds; the last branch where none does.
        index = jnp.asarray(len(chosen))
        for i, (condition, _) in reversed(list(enumerate(chosen))):
            index = jnp.where(condition, i, index)
        runs = [complete(*pair) for pair in traced]
        after = dict(zip(union, jax.lax.switch(index, runs), strict=True))
        return tree.unflatten([after.get(i, leaf) for i, leaf in enumerate(before)])  # type: ignore[no-any-return]

    def _by_lanes(
        self, given: list[Any], before: list[Any], tree: Any, branches: list[Branch[Any]],
        otherwise: Callable[[], Any] | None,
    ) -> list[Any]:  # fmt: skip
        """Each branch that a lane needs, for all lanes, and of the changed leaves a choice."""
        if otherwise is not None:
            branches = [*branches, (True, otherwise)]
        outer, after = self.mask, list(before)
        rest = outer
        for condition, make in branches:
            here = rest & condition
            rest = rest & jnp.logical_not(condition)
            self.mask = here
            program, changes = self._traced(make, given, before, tree)
            self.mask = outer

            def run(
                program: Any = program, changes: list[int] = changes, here: Any = here,
                after: Any = tuple(after),
            ) -> list[Any]:  # fmt: skip
                made = zip(changes, program(), strict=True)
                return [jnp.where(here, new, after[i]) for i, new in made]

            def skip(changes: list[int] = changes, after: Any = tuple(after)) -> list[Any]:
                return [after[i] for i in changes]

            made = jax.lax.cond(self.any(here), run, skip)
            for i, leaf in zip(changes, made, strict=True):
                after[i] = leaf
        return after

    def any(self, condition: Any) -> Any:
        """Does it hold in a lane?"""
        return _any_lane(condition) if self.lanes else condition

    def _traced(
        self, make: Callable[[], Any], given: list[Any], before: list[Any], tree: Any
    ) -> tuple[Callable[..., Any], list[int]]:
        """A branch as a program, and the leaves that it changes."""
        changes: list[int] = []

        def trace() -> list[Any]:
            leaves = tree.flatten_up_to(make())
            changes[:] = [
                i for i, leaf in enumerate(leaves) if leaf is not given[i] and leaf is not None
            ]
            return [self.varying(jnp.asarray(leaves[i], before[i].dtype)) for i in changes]

        return jaxpr_as_fun(jax.make_jaxpr(trace)()), changes

    def event(self, kind: EventKind, value: Any, happens: Any = True) -> Any:
        """Restarts are counted; the rest is for a trace, which there is not."""
        number = 1 + KEPT * (kind is EventKind.RESTART)
        return jnp.where(happens, number, 0) if kind in RESTARTS else 0

    def restarts(self, events: Any) -> Any:
        """How many there are."""
        return events % KEPT

    def restarted(self, events: Any) -> Any:
        return jnp.asarray(events) >= KEPT

    def passed_on(self, ask: Any, rule: Any) -> Any:
        return type(ask)(ask.point, ask.need, ask.again)

    def choose(self, condition: Any, a: Any, b: Any) -> Any:
        """Of two samples, the one without a gradient gets that of the other in its place."""
        if isinstance(a, Sample) and (a.gradient is None) != (b.gradient is None):
            gradient = b.gradient if a.gradient is None else a.gradient
            a, b = (Sample(each.point, each.value, gradient, each.grad_norm) for each in (a, b))
        return select(condition, a, b)

    def same(self, a: Array, b: Array) -> Any:
        pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
        return jnp.all(jnp.stack([jnp.all(p == q) for p, q in pairs]))

    def run(self, work: Pass, given: Sequence[Tree], numbers: Sequence[Any], skip: int = 0) -> Any:
        made, sums = vectors.run(work, tuple(given), tuple(numbers))
        return made, sums[skip:]

    def no(self, condition: Any) -> Any:
        return jnp.logical_not(condition)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        return jnp.where(condition, a, b)

    isfinite = staticmethod(jnp.isfinite)
    minimum = staticmethod(jnp.minimum)
    maximum = staticmethod(jnp.maximum)
    sqrt = staticmethod(jnp.sqrt)
    power = staticmethod(jnp.power)
    inner = staticmethod(vectors.inner)
    norm = staticmethod(vectors.norm)
    combination = staticmethod(vectors.combination)
    stepped = staticmethod(vectors.stepped)

    def floor(self, a: Any) -> Any:
        return jnp.floor(a).astype(int)

    def rounded(self, a: Any, bits: int) -> Any:
        mantissa, exponent = jnp.frexp(a)
        return jnp.ldexp(jnp.round(mantissa * 2**bits), exponent - bits)

    def distance(self, a: Array, b: Array) -> Any:
        return jnp.sqrt(vectors.distance_squared(a, b))

    # What the pairs of L-BFGS need.

    def needs(self, condition: Any) -> bool:
        return True

    def entries(self, vector: Tree) -> Array:
        leaves = [leaf.reshape(-1).astype(self.dtype) for leaf in jax.tree.leaves(vector)]
        return leaves[0] if len(leaves) == 1 else jnp.concatenate(leaves)

    def vector(self, entries: Array) -> Tree:
        leaves, tree = jax.tree.flatten(self.like)
        parts = jnp.split(entries, np.cumsum([leaf.size for leaf in leaves])[:-1])
        pairs = zip(parts, leaves, strict=True)
        return tree.unflatten([part.reshape(leaf.shape).astype(leaf.dtype) for part, leaf in pairs])

    def widened(self, a: Array) -> Array:
        return a.astype(self.wide)

    def matmul(self, a: Array, b: Array) -> Array:
        return jnp.matmul(a, b, precision="highest", preferred_element_type=self.wide)

    def put(self, rows: Array, i: Any, pair: Array, use: Any) -> Array:
        before = jax.lax.dynamic_index_in_dim(rows, i, 1, keepdims=False)
        return jax.lax.dynamic_update_index_in_dim(rows, jnp.where(use, pair, before), i, 1)

    def in_pieces(self, work: Callable[..., Any], changed: Any, whole: Array, *given: Any) -> Any:
        """The matrices without what the work takes off, as a product; and what else it finds."""
        columns, rows, found = work(self, whole, *given)
        # Sums of products, and not a product of matrices: they are one loop with the difference.
        parts = (columns[..., i, None] * rows[..., None, i, :] for i in range(rows.shape[-2]))
        return whole - sum(parts), found

    def solve(self, matrix: Array, right: Array) -> Array:
        return jnp.linalg.solve(matrix, right[..., None])[..., 0]

    def solve_positive(self, matrix: Array, right: Array) -> Array:
        """Not numbers where the matrix is not positive definite."""
        lower = jnp.linalg.cholesky(matrix)
        half = solve_triangular(lower, right, lower=True)
        return solve_triangular(lower.T, half, lower=False)

    # What bounds need.

    def each(self, formula: Callable[..., Array], *given: Tree) -> Tree:
        return jax.tree.map(partial(formula, jnp), *given)

    def dot(self, formula: Callable[..., tuple[Array, Array]], *given: Tree) -> Any:
        columns = zip(*map(jax.tree.leaves, given), strict=True)
        return sum(vectors.inner(*formula(jnp, *leaves)) for leaves in columns)

    def last(self, a: Tree) -> Tree:
        leaves, tree = jax.tree.flatten(a)
        # One more than the place of each entry among all; 0 for those that are zero.
        ends = [0, *itertools.accumulate(leaf.size for leaf in leaves)]
        places = [
            jnp.where(leaf != 0, end + jnp.arange(1, leaf.size + 1).reshape(leaf.shape), 0)
            for leaf, end in zip(leaves, ends, strict=False)
        ]
        last = jnp.max(jnp.stack([jnp.max(place) for place in places]))
        kept = [
            jnp.where(place == last, leaf, 0) for leaf, place in zip(leaves, places, strict=True)
        ]
        return tree.unflatten(kept)

    def repeat(self, record: R, goes_on: Callable[[R], Any], turn: Callable[[R], R]) -> R:
        def one(before: R) -> Any:
            return jax.tree.map(lambda a, b: jnp.asarray(a, b.dtype), turn(before), before)

        return jax.lax.while_loop(goes_on, one, jax.tree.map(self.strong, record))  # type: ignore[no-any-return]

    def unbegun(self, begin: Callable[[], R]) -> R:
        shapes = jax.eval_shape(begin)
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)  # type: ignore[no-any-return]

    def displaced(self, x: Tree, radius: Any, seed: int, draw: Any) -> Tree:
        leaves, tree = jax.tree.flatten(x)
        keys = jax.random.split(jax.random.fold_in(self.key, draw), len(leaves) + 1)
        drawn = [
            jax.random.normal(key, leaf.shape, leaf.dtype)
            for key, leaf in zip(keys[1:], leaves, strict=True)
        ]
        direction = tree.unflatten(drawn)
        share = jax.random.uniform(keys[0], dtype=vectors.wide()) ** (1 / max(self.dimension, 1))
        return self.combination(x, radius * share / self.norm(direction), direction)


@custom_vmap  # type: ignore[untyped-decorator]
def _any_lane(condition: Any) -> Any:
    return condition


@_any_lane.def_vmap  # type: ignore[untyped-decorator]
def _any_of(size: int, in_batched: list[bool], condition: Any) -> tuple[Any, bool]:
    return jnp.any(condition, 0) if in_batched[0] else condition, False


def _axes_of(leaf: Any) -> frozenset[str]:
    """The axes of ``shard_map`` along which it differs."""
    kind = jax.typeof(leaf)
    kind = getattr(kind, "manual_axis_type", kind)
    return getattr(kind, "varying", getattr(kind, "vma", frozenset()))
