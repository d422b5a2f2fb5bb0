"""The machine of rules in compiled code: branches are ``lax.switch``."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.extend.core import jaxpr_as_fun
from jax.scipy.linalg import solve_triangular

from momentous.core.array_machine import ArrayMachine, Number
from momentous.core.box import Box
from momentous.core.machine import Branch, R
from momentous.core.oracle import Sample
from momentous.core.record import RECORDS


def register_records() -> None:
    """Make pytrees of the records that memories are made of."""
    for cls in RECORDS.values():
        if cls not in _REGISTERED:
            names = [field.name for field in dataclasses.fields(cls)]
            jax.tree_util.register_dataclass(cls, names, [])
            _REGISTERED.add(cls)


_REGISTERED: set[type] = set()


def number(value: Number) -> jax.Array:
    """A number of the dtype of sums, and of all that decides something: the widest that JAX has
    switched on."""
    return jnp.asarray(value, float)


def inner(a: jax.Array, b: jax.Array) -> jax.Array:
    """The sum of the products of entries."""
    wide = jnp.result_type(float)
    return jnp.sum(a.astype(wide) * b.astype(wide))


def norm(a: jax.Array) -> jax.Array:
    """The Euclidean norm, in units of the largest entry, whose square may overflow: two passes over
    the vector, and no branch."""
    largest = number(jnp.max(jnp.abs(a), initial=0.0))
    unit = jnp.where(largest > 0.0, largest, 1.0)
    return unit * jnp.sqrt(jnp.sum(jnp.square(a.astype(unit.dtype) / unit)))


def select(condition: jax.Array, a: R, b: R) -> R:
    """Leaf by leaf, of a where the condition holds and of b where not."""
    return jax.tree.map(lambda p, q: p if p is q else jnp.where(condition, p, q), a, b)  # type: ignore[no-any-return]


class Compiled(ArrayMachine):
    """What branches, numbers and vectors are in compiled code."""

    xp: Any = jnp
    lanes_shape: tuple[int, ...] = ()

    def __init__(
        self, x0: jax.Array, key: Any, lanes: bool = False, box: Box | None = None, reads: Any = ()
    ):  # fmt: skip
        register_records()
        numbers = jnp.finfo(x0.dtype)
        self.rounding, self.largest = float(numbers.eps) / 2, float(numbers.max)
        self.dimension, self.dtype, self.shape = x0.size, x0.dtype, x0.shape
        self.wide, self.whole = jnp.result_type(float), jnp.result_type(int)
        self.tiny = float(jnp.finfo(self.wide).tiny)
        self.smallest = 1e-150 if self.wide == jnp.float64 else 1e-18
        self.key, self.box = key, box
        # Leaves that `_by_lanes` has made in the branch that is traced, and what they are in lanes
        # outside of it.
        self._origins: dict[int, tuple[Any, Any]] = {}
        # Do many runs go on at once, under ``vmap``?  And in which of them is the branch taken that
        # is traced?
        self.lanes, self.mask = lanes, jnp.asarray(True)
        # Does any of them need a branch?  On a GPU the answer takes longer than most branches.
        self.asks = True
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
        traced = [self._traced(make, given, before, tree)[:2] for _, make in chosen]
        traced.append(self._traced(otherwise or (lambda: record), given, before, tree)[:2])
        union = sorted(set().union(*(changes for _, changes in traced)))

        def complete(program: Any, changes: list[int]) -> Callable[[], Any]:
            def run() -> list[Any]:
                made = dict(zip(changes, jaxpr_as_fun(program)(), strict=True))
                return [made.get(i, before[i]) for i in union]

            return run

        runs = [complete(*pair) for pair in traced]
        if len(runs) == 2:  # without a number of the branch: one kernel less
            made = jax.lax.cond(chosen[0][0], *runs)
        else:  # the first condition that holds; the last branch where none does
            index = jnp.asarray(len(chosen), jnp.int32)
            for i, (condition, _) in reversed(list(enumerate(chosen))):
                index = jnp.where(condition, jnp.int32(i), index)
            made = jax.lax.switch(index, runs)
        after = dict(zip(union, made, strict=True))
        return tree.unflatten([after.get(i, leaf) for i, leaf in enumerate(before)])  # type: ignore[no-any-return]

    def usually(
        self, record: R, condition: Number, usual: Callable[[], R], otherwise: Callable[[], R]
    ) -> R:
        """The usual result is made in any case, so that its branch has nothing to copy."""
        if self.lanes:
            return super().usually(record, condition, usual, otherwise)
        return self.case(usual(), (self.no(condition), otherwise))

    def _by_lanes(
        self, given: list[Any], before: list[Any], tree: Any, branches: list[Branch[Any]],
        otherwise: Callable[[], Any] | None,
    ) -> list[Any]:  # fmt: skip
        """Each branch that a lane needs, for all lanes, and of the changed leaves a choice."""
        if otherwise is not None:
            branches = [*branches, (True, otherwise)]
        outer, after = self.mask, list(before)
        rest, traced = outer, []
        for condition, make in branches:
            self.mask = here = rest & condition
            rest = rest & jnp.logical_not(condition)
            traced.append((here, *self._traced(make, given, before, tree)))
        self.mask = outer
        places: dict[int, list[int]] = {}
        for i, leaf in enumerate(given):
            places.setdefault(id(leaf), []).append(i)

        def latest(leaf: Any) -> Any:
            """What has become of a leaf in the branches before, where all its places have that."""
            found = {id(after[i]): after[i] for i in places.get(id(leaf), ())}
            return found.popitem()[1] if len(found) == 1 else leaf

        # No choice is needed of a leaf that a branch changes in its own lanes alone: half of the
        # choices of "auto" are such.  A branch reads what those before have left, which in its
        # lanes is what was given: so XLA may change it in place.
        for here, program, changes, own in sorted(traced, key=lambda branch: -len(branch[-1])):
            now = [after[i] for i in changes]
            reads = {id(const): latest(const) for const in program.consts}
            keeps = [i in own and reads.get(id(given[i]), before[i]) is after[i] for i in changes]
            program = program.replace(consts=[reads[id(const)] for const in program.consts])
            run = functools.partial(_in_lanes, here, jaxpr_as_fun(program), keeps, now)
            made = jax.lax.cond(self.any(here), run, lambda now=now: now) if self.asks else run()
            for i, leaf in zip(changes, made, strict=True):
                after[i] = leaf
        for leaf, old, origin in zip(after, before, given, strict=True):
            if leaf is not old:
                self._origins[id(leaf)] = leaf, origin
        return after

    def any(self, condition: Number) -> Number:
        """Does it hold in a lane?"""
        return _any_lane(condition) if self.lanes else condition

    def _traced(
        self, make: Callable[[], Any], given: list[Any], before: list[Any], tree: Any
    ) -> tuple[Any, list[int], set[int]]:
        """A branch as a program, the leaves that it changes, and those of them that it leaves as
        they are in lanes outside."""
        changes: list[int] = []
        own: set[int] = set()
        outside, self._origins = self._origins, {}

        def trace() -> list[Any]:
            leaves = tree.flatten_up_to(make())
            changes[:] = [
                i for i, leaf in enumerate(leaves) if leaf is not given[i] and leaf is not None
            ]
            for i in changes:
                origin = leaves[i]
                while origin is not given[i] and id(origin) in self._origins:
                    origin = self._origins[id(origin)][1]
                if origin is given[i]:
                    own.add(i)
            return [self.varying(jnp.asarray(leaves[i], before[i].dtype)) for i in changes]

        program = jax.make_jaxpr(trace)()
        self._origins = outside
        return program, changes, own

    def passed_on(self, ask: Any, rule: Any) -> Any:
        return type(ask)(ask.point, ask.need, ask.again)

    def choose(self, condition: Number, a: Number, b: Number) -> Any:
        """Of two samples, the one without a gradient gets that of the other in its place."""
        if isinstance(a, Sample) and (a.gradient is None) != (b.gradient is None):
            gradient = b.gradient if a.gradient is None else a.gradient
            a, b = (Sample(each.point, each.value, gradient, each.grad_norm) for each in (a, b))
        return select(condition, a, b)

    def same(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.all(a == b)

    def no(self, condition: Number) -> Number:
        return jnp.logical_not(condition)

    def where(self, condition: Number, a: Number, b: Number) -> Number:
        return jnp.where(condition, a, b)

    isfinite = staticmethod(jnp.isfinite)
    minimum = staticmethod(jnp.minimum)
    maximum = staticmethod(jnp.maximum)
    sqrt = staticmethod(jnp.sqrt)
    power = staticmethod(jnp.power)
    inner = staticmethod(inner)
    norm = staticmethod(norm)

    def column(self, weight: Number) -> Number:
        return jnp.asarray(weight).astype(self.dtype)

    def floor(self, a: Number) -> Number:
        return jnp.floor(a).astype(int)

    def rounded(self, a: Number, bits: int) -> Number:
        mantissa, exponent = jnp.frexp(a)
        return jnp.ldexp(jnp.round(mantissa * 2**bits), exponent - bits)

    # What the pairs of L-BFGS need.

    def needs(self, condition: Number) -> bool:
        return True

    def entries(self, vector: jax.Array) -> jax.Array:
        return vector.reshape(-1)

    def vector(self, entries: jax.Array) -> jax.Array:
        return entries.reshape(self.shape).astype(self.dtype)

    def matmul(self, a: jax.Array, b: jax.Array) -> jax.Array:
        # Two columns under ``vmap`` take XLA 2.5 times as long together as one by one.
        columns = [b[..., :1], b[..., 1:]] if b.shape[-1] == 2 else [b]
        products = [
            jnp.matmul(a, each, precision="highest", preferred_element_type=self.wide)
            for each in columns
        ]
        return jnp.concatenate(products, axis=-1)

    def put(self, rows: jax.Array, i: Number, pair: jax.Array, use: Number) -> jax.Array:
        before = jax.lax.dynamic_index_in_dim(rows, i, 1, keepdims=False)
        return jax.lax.dynamic_update_index_in_dim(rows, jnp.where(use, pair, before), i, 1)

    def plus_product(self, matrices: jax.Array, left: jax.Array, right: jax.Array) -> jax.Array:
        one, other = (left[..., i, :, None] * right[..., i, None, :] for i in range(2))
        return matrices + (one + other)

    def solve(self, matrix: jax.Array, right: jax.Array) -> jax.Array:
        return jnp.linalg.solve(matrix, right[..., None])[..., 0]

    def solve_positive(self, matrix: jax.Array, right: jax.Array) -> jax.Array:
        """Not numbers where the matrix is not positive definite."""
        lower = jnp.linalg.cholesky(matrix)
        half = solve_triangular(lower, right, lower=True)
        return solve_triangular(lower.T, half, lower=False)

    # What bounds need.

    def repeat(self, record: R, goes_on: Callable[[R], Any], turn: Callable[[R], R]) -> R:
        def one(before: R) -> Any:
            return jax.tree.map(lambda a, b: jnp.asarray(a, b.dtype), turn(before), before)

        return jax.lax.while_loop(goes_on, one, jax.tree.map(self.strong, record))  # type: ignore[no-any-return]

    def unbegun(self, begin: Callable[[], R]) -> R:
        shapes = jax.eval_shape(begin)
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)  # type: ignore[no-any-return]

    def displaced(self, x: jax.Array, radius: Number, seed: int, draw: Number) -> jax.Array:
        of_share, of_direction = jax.random.split(jax.random.fold_in(self.key, draw))
        direction = jax.random.normal(of_direction, x.shape, x.dtype)
        share = jax.random.uniform(of_share, dtype=self.wide) ** (1 / max(self.dimension, 1))
        return self.combination(x, radius * share / self.norm(direction), direction)


def _in_lanes(
    here: Number, branch: Callable[[], list[Any]], keeps: list[bool], now: list[Any]
) -> list[Any]:
    """What a branch makes of leaves in its lanes; some it keeps as they are in the others."""
    made = zip(keeps, branch(), now, strict=True)
    return [new if keep else jnp.where(here, new, old) for keep, new, old in made]


@custom_vmap  # type: ignore[untyped-decorator]
def _any_lane(condition: Number) -> Any:
    return condition


@_any_lane.def_vmap  # type: ignore[untyped-decorator]
def _any_of(size: int, in_batched: list[bool], condition: Number) -> tuple[Any, bool]:
    return jnp.any(condition, 0) if in_batched[0] else condition, False


def _axes_of(leaf: Any) -> frozenset[str]:
    """The axes of ``shard_map`` along which it differs."""
    kind = jax.typeof(leaf)
    kind = getattr(kind, "manual_axis_type", kind)
    return getattr(kind, "varying", getattr(kind, "vma", frozenset()))
