"""The machine of rules in compiled code: branches are ``lax.switch``, vectors are pytrees."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun

from momentous.core.machine import Branch, R
from momentous.core.oracle import Sample
from momentous.core.passes import Pass
from momentous.core.record import RECORDS
from momentous.core.space import Array
from momentous.core.status import RESTARTS, EventKind
from momentous.jax import vectors
from momentous.jax.curvature import no_pairs
from momentous.jax.vectors import Limits, Tree, select
from momentous.methods.classical.curvature import Curvature


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


class Compiled:
    """What branches, numbers and vectors are in compiled code."""

    no_events, fuses = 0, False
    fused = True
    spent: Any = 2  # as the driver says

    def __init__(self, x0: Tree, key: Any):
        register_records()
        limits = Limits.of(x0)
        self.rounding, self.largest = limits.rounding, limits.largest
        self.smallest, self.dimension = limits.smallest, limits.dimension
        self.tiny = float(jnp.finfo(vectors.wide()).tiny)
        self.key, self.like = key, x0

    def case(self, record: R, *branches: Branch[R], otherwise: Callable[[], R] | None = None) -> R:
        """Only the leaves that some branch changes pass through the switch: XLA would copy the
        others, which may be long vectors.  What a branch leaves out stays as it was."""
        conditions = [condition for condition, _ in branches]
        given, tree = jax.tree.flatten(record)
        before = [strong(leaf) for leaf in given]
        changes: list[dict[int, Any]] = []
        programs = []
        for make in [*(branch for _, branch in branches), otherwise or (lambda: record)]:
            changed: dict[int, Any] = {}

            def trace(make: Callable[[], R] = make, changed: dict[int, Any] = changed) -> list[Any]:
                for i, leaf in enumerate(tree.flatten_up_to(make())):
                    if leaf is not given[i] and leaf is not None:
                        changed[i] = jnp.asarray(leaf, before[i].dtype)
                return list(changed.values())

            programs.append(jaxpr_as_fun(jax.make_jaxpr(trace)()))
            changes.append(changed)
        union = sorted(set().union(*changes))

        def complete(program: Callable[..., Any], changed: dict[int, Any]) -> Callable[[], Any]:
            def run() -> list[Any]:
                made = dict(zip(changed, program(), strict=True))
                return [made.get(i, before[i]) for i in union]

            return run

        # The first condition that holds; the last branch where none does.
        index = jnp.asarray(len(conditions))
        for i, condition in reversed(list(enumerate(conditions))):
            index = jnp.where(condition, i, index)
        runs = [complete(*pair) for pair in zip(programs, changes, strict=True)]
        after = dict(zip(union, jax.lax.switch(index, runs), strict=True))
        return tree.unflatten([after.get(i, leaf) for i, leaf in enumerate(before)])  # type: ignore[no-any-return]

    def switch(
        self, record: R, index: Any, functions: Sequence[Callable[..., R]], *given: Any
    ) -> R:
        branches = [
            (index == i, partial(function, self, record, *given))
            for i, function in enumerate(functions)
        ]
        return self.case(record, *branches[:-1], otherwise=branches[-1][1])

    def but(self, record: R, **changes: Any) -> R:
        return dataclasses.replace(record, **changes)  # type: ignore[type-var]

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

    def worked(self, rule: Any, memory: Any, here: Any, made: Any, sums: Any) -> Any:
        ask = rule.ask(self, memory)
        if not ask.vectors:
            return (), ()
        return self.run(rule.work, (here.gradient, *ask.vectors), ask.numbers, skip=1)

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

    def value_noise(self, value: Any) -> Any:
        return 8.0 * self.rounding * jnp.abs(value)

    def curvature(self, most: int | None, on_host: Any) -> Curvature:
        return no_pairs(self.like, most)

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


def strong(leaf: Any) -> Any:
    """A number or an array with a dtype that does not give way."""
    leaf = jnp.asarray(leaf)
    return jax.lax.convert_element_type(leaf, leaf.dtype)
