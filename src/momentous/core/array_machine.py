"""What machines share whose numbers are arrays: those of many lanes, and that of compiled code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from momentous.core.machine import Branch, Numbers, R
from momentous.core.passes import GRADIENT, Pass
from momentous.core.space import Array
from momentous.core.status import RESTARTS, EventKind

# Events are counted: a `ROLLBACK` as 1 and a `RESTART`, whose epoch is kept, as 1 + KEPT.
KEPT = 1024


class ArrayMachine:
    """Numbers, events, and vectors as arrays of a library; a machine adds branches and sums."""

    xp: Any  # the array library
    device: Any = None
    dtype: Any  # of vectors
    wide: Any  # dtype of numbers that decide something
    rounding: float
    fuses, fused = False, True
    penalty: Any = None
    spent: Any = 2  # as the driver says
    no_events = 0
    but = staticmethod(Numbers.but)

    def case(self, record: R, *branches: Branch[R], otherwise: Callable[[], R] | None = None) -> R:
        raise NotImplementedError

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        raise NotImplementedError

    def inner(self, a: Array, b: Array) -> Any:
        raise NotImplementedError

    def norm(self, a: Array) -> Any:
        raise NotImplementedError

    def column(self, weight: Any) -> Any:
        """A number to be multiplied by the entries of a vector."""
        raise NotImplementedError

    def switch(
        self, record: R, index: int, functions: Sequence[Callable[..., R]], *given: object
    ) -> R:
        makes = [functools.partial(function, self, record, *given) for function in functions]
        branches = [(index == i, make) for i, make in enumerate(makes[:-1])]
        return self.case(record, *branches, otherwise=makes[-1])

    def worked(self, rule: Any, memory: Any, here: Any, made: Any, sums: Any) -> Any:
        if rule.work is GRADIENT:  # nothing: it need not be asked
            return (), ()
        return self.run_pass(rule, rule.ask(self, memory), here)

    def run_pass(self, rule: Any, ask: Any, here: Any) -> tuple[Any, Any]:
        """What the pass of a rule makes of the gradient that it has asked for."""
        if not ask.vectors:
            return (), ()
        return self.run(rule.work, (here.gradient, *ask.vectors), ask.numbers, skip=1)

    def value_noise(self, value: float) -> float:
        return 8.0 * self.rounding * abs(value)

    # Events.

    def event(self, kind: EventKind, value: Any, happens: Any = True) -> Any:
        """Restarts are counted; the rest is for a trace, which there is not."""
        number = 1 + KEPT * (kind is EventKind.RESTART)
        return self.where(happens, number, 0) if kind in RESTARTS else 0

    def restarts(self, events: Any) -> Any:
        """How many there are."""
        return events % KEPT

    def restarted(self, events: Any) -> Any:
        return events >= KEPT

    # Vectors.

    def combination(self, x: Array, weight: Any, y: Array, z: Array = None) -> Array:
        if z is not None:
            y = y - z
        elif isinstance(weight, float) and abs(weight) == 1.0:
            return x + y if weight == 1.0 else x - y
        return y * self.column(weight) + x

    def stepped(self, x: Array, weight: Any, y: Array, origin: Array) -> tuple[Array, Any]:
        made = self.combination(x, weight, y)
        apart = made - origin
        return made, self.inner(apart, apart)

    def distance(self, a: Array, b: Array) -> Any:
        return self.norm(a - b)

    def run(
        self, work: Pass, vectors: Sequence[Array], numbers: Sequence[Any], skip: int = 0
    ) -> tuple[tuple[Array, ...], tuple[Any, ...]]:
        made, products = work.formula(*vectors, *map(self.column, numbers))
        return made, tuple(self.inner(a, b) for a, b in products[skip:])

    def each(self, formula: Callable[..., Array], *vectors: Array) -> Array:
        return formula(self.xp, *vectors)

    def dot(self, formula: Callable[..., tuple[Array, Array]], *vectors: Array) -> Any:
        return self.inner(*formula(self.xp, *vectors))

    def last(self, a: Array) -> Array:
        entries = self.entries(a)
        ends = self.xp.arange(1, entries.shape[-1] + 1, device=self.device)
        places = self.xp.where(entries != 0.0, ends, 0)
        is_last = places == self.xp.max(places, axis=-1, keepdims=True)
        return self.vector(self.xp.where(is_last, entries, 0.0))

    def entries(self, vector: Array) -> Array:
        return vector

    def vector(self, entries: Array) -> Array:
        return self.xp.astype(entries, self.dtype, copy=False)

    def widened(self, a: Array) -> Array:
        return a if a.dtype == self.wide else self.xp.astype(a, self.wide)
