"""Rules in compiled loops: the machine of JAX, and a rule as one that `Turns` can run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun

from momentous.core.machine import Branch, R
from momentous.core.oracle import Sample
from momentous.core.passes import Pass
from momentous.core.record import RECORDS
from momentous.core.rule import RUNNING, Ask, Goal, Rule
from momentous.core.space import Array
from momentous.core.status import RESTARTS, EventKind, Status
from momentous.jax import vectors
from momentous.jax.machine import Evaluation, Machine, Progress
from momentous.jax.vectors import Limits, Scalar, Tree, number, select


def register_records() -> None:
    """Make pytrees of the records that memories are made of."""
    for cls in RECORDS.values():
        if cls not in _REGISTERED:
            names = [field.name for field in dataclasses.fields(cls)]
            jax.tree_util.register_dataclass(cls, names, [])
            _REGISTERED.add(cls)


_REGISTERED: set[type] = set()


class Compiled:
    """The machine of compiled code: branches are ``lax.switch``, vectors are pytrees."""

    no_events, fuses = 0, False

    def __init__(self, x0: Tree, key: Any):
        limits = Limits.of(x0)
        self.rounding, self.largest = limits.rounding, limits.largest
        self.smallest, self.dimension = limits.smallest, limits.dimension
        self.tiny = float(jnp.finfo(vectors.wide()).tiny)
        self.key = key

    def case(self, record: R, *branches: Branch[R], otherwise: Callable[[], R] | None = None) -> R:
        """Only the leaves that some branch changes pass through the switch: XLA would copy the
        others, which may be long vectors."""
        conditions = [condition for condition, _ in branches]
        given, tree = jax.tree.flatten(record)
        before = [_strong(leaf) for leaf in given]
        changes: list[dict[int, Any]] = []
        programs = []
        for make in [*(branch for _, branch in branches), otherwise or (lambda: record)]:
            changed: dict[int, Any] = {}

            def trace(make: Callable[[], R] = make, changed: dict[int, Any] = changed) -> list[Any]:
                for i, leaf in enumerate(tree.flatten_up_to(make())):
                    if leaf is not given[i]:
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
        return jnp.where(happens, 1, 0) if kind in RESTARTS else 0

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
    choose = staticmethod(select)
    inner = staticmethod(vectors.inner)
    norm = staticmethod(vectors.norm)
    combination = staticmethod(vectors.combination)

    def floor(self, a: Any) -> Any:
        return jnp.floor(a).astype(int)

    def rounded(self, a: Any, bits: int) -> Any:
        mantissa, exponent = jnp.frexp(a)
        return jnp.ldexp(jnp.round(mantissa * 2**bits), exponent - bits)

    def distance(self, a: Array, b: Array) -> Any:
        return jnp.sqrt(vectors.distance_squared(a, b))

    def value_noise(self, value: Any) -> Any:
        return 8.0 * self.rounding * jnp.abs(value)

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


class RuleState(NamedTuple):
    """The memory of a rule, and what a run tells about itself."""

    memory: Any
    value: Scalar  # f, and the size of the gradient, at the point that is shown
    size: Scalar
    begun: Scalar  # is x0 evaluated?
    started: Scalar  # is all known that the first iteration needs?
    progress: Progress


class RuleMachine(Machine):
    """A rule, told one evaluation per turn."""

    def __init__(self, rule: Rule[Any], x0: Tree, tol: float, key: Any = None):
        register_records()
        self.rule, self.goal = rule, Goal(tol)
        self.m = Compiled(x0, jax.random.key(0) if key is None else key)

    def begin(self, x0: Tree) -> RuleState:
        zero = number(0.0)
        shape = jax.eval_shape(lambda: self._first(Sample(x0, zero, x0, zero)))
        memory = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
        no = jnp.asarray(False)
        return RuleState(memory, zero, zero, no, no, Progress.none())

    def _first(self, here: Sample, tol: Any = 0.0) -> Any:
        memory = self.rule.begin(self.m, here, self.goal)
        if hasattr(memory, "tol"):
            memory = self.m.but(memory, tol=tol)  # known with the first gradient
        return jax.tree.map(_strong, memory)

    def ask(self, state: RuleState) -> Ask:
        return self.rule.ask(self.m, state.memory)

    def point(self, state: RuleState) -> Tree:
        return self.ask(state).point

    def repeats(self, state: RuleState) -> Scalar:
        """Is the next point the one that was evaluated last?"""
        return state.begun & self.ask(state).again

    def advance(self, state: RuleState, here: Evaluation, tol: Scalar) -> tuple[RuleState, Scalar]:
        sample, m, rule = (
            Sample(here.point, here.value, here.gradient, here.norm),
            self.m,
            self.rule,
        )
        ask = self.ask(state)
        made, sums = (), ()
        if ask.vectors:
            made, sums = m.run(rule.work, (here.gradient, *ask.vectors), ask.numbers, skip=1)
        memory = m.case(
            state.memory,
            (state.begun, lambda: rule.tell(m, state.memory, sample, made, sums)),
            otherwise=lambda: self._first(sample, tol),
        )
        memory = rule.write(m, memory)
        outcome = memory.outcome
        shows = outcome.shows | ~state.begun
        value = jnp.where(shows, here.value, state.value)
        size = jnp.where(shows, here.size, state.size)
        ended = outcome.ended
        progress = state.progress.counted(ended & state.started)
        progress = progress._replace(restarts=progress.restarts + ended * outcome.events)
        if rule.stops_at_tolerance:
            limit = rule.rise_limit(m, memory, sample)
            good = ended & (size <= tol) & jnp.isfinite(value)
            if limit is not None:
                good &= value <= limit.reference.value + limit.allowance
            progress = progress.ending(good, Status.CONVERGED)
        progress = progress.ending(~state.begun & ~here.usable, Status.NON_FINITE)
        progress = progress.ending(ended & (outcome.status != RUNNING), outcome.status)
        yes, started = jnp.asarray(True), state.started | ended
        return RuleState(memory, value, size, yes, started, progress), shows & here.usable

    def accepted(self, state: RuleState) -> tuple[Tree, Scalar]:
        found = self.rule.accepted(state.memory)
        return found.point, found.value


def _strong(leaf: Any) -> Any:
    """A number or an array with a dtype that does not give way."""
    leaf = jnp.asarray(leaf)
    return jax.lax.convert_element_type(leaf, leaf.dtype)
