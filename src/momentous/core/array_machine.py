"""What machines share whose numbers are arrays: those of many lanes, and that of compiled code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

from momentous.core.machine import Ask, BoxMachine, Numbers, R, Rule, Sample, Sums, Vectors
from momentous.core.passes import GRADIENT, Pass
from momentous.core.space import Array
from momentous.core.status import RESTARTS, EventKind
from momentous.io.types import FunctionTo, Unchecked

Number: TypeAlias = Unchecked  # a number or a condition, or an array with one of each lane

# Events are counted: a `ROLLBACK` as 1 and a `RESTART`, whose epoch is kept, as 1 + KEPT.
KEPT = 1024


class ArrayMachine(BoxMachine):
    """Numbers, events, and vectors as arrays of a library; a machine adds branches and sums."""

    xp: Unchecked  # the array library
    device: Unchecked = None
    dtype: Unchecked  # of vectors
    wide: Unchecked  # dtype of numbers that decide something
    fuses, fused = False, True
    box: Unchecked = None
    penalty: Unchecked = None
    spent: Number = 2  # as the driver says
    no_events = 0
    but = staticmethod(Numbers.but)

    def column(self, weight: Number) -> Number:
        """A number to be multiplied by the entries of a vector."""
        raise NotImplementedError

    def usually(
        self, record: R, condition: Number, usual: Callable[[], R], otherwise: Callable[[], R]
    ) -> R:
        return self.case(record, (condition, usual), otherwise=otherwise)

    def switch(
        self, record: R, index: int, functions: Sequence[FunctionTo[R]], *given: object
    ) -> R:
        makes = [functools.partial(function, self, record, *given) for function in functions]
        branches = [(index == i, make) for i, make in enumerate(makes[:-1])]
        return self.case(record, *branches, otherwise=makes[-1])

    def worked(
        self, rule: Rule, memory: Unchecked, here: Sample, made: Vectors, sums: Sums
    ) -> tuple[Vectors, Sums]:
        if rule.work is GRADIENT:  # nothing: it need not be asked
            return (), ()
        return self.run_pass(rule, rule.ask(self, memory), here)

    def run_pass(self, rule: Rule, ask: Ask, here: Sample) -> tuple[Vectors, Sums]:
        """What the pass of a rule makes of the gradient that it has asked for."""
        if not ask.vectors:
            return (), ()
        return self.run(rule.work, (here.gradient, *ask.vectors), ask.numbers, skip=1)

    def value_noise(self, value: float) -> float:
        return 8.0 * self.rounding * abs(value)

    # Events.

    def event(self, kind: EventKind, value: Number, happens: Number = True) -> Number:
        """Restarts are counted; the rest is for a trace, which there is not."""
        number = 1 + KEPT * (kind is EventKind.RESTART)
        return self.where(happens, number, 0) if kind in RESTARTS else 0

    def restarts(self, events: Number) -> Number:
        """How many there are."""
        return events % KEPT

    def restarted(self, events: Number) -> Number:
        return events >= KEPT

    # Vectors.

    def combination(self, x: Array, weight: Number, y: Array, z: Array = None) -> Array:
        if z is not None:
            y = y - z
        elif isinstance(weight, float) and abs(weight) == 1.0:
            return x + y if weight == 1.0 else x - y
        return y * self.column(weight) + x

    def stepped(self, x: Array, weight: Number, y: Array, origin: Array) -> tuple[Array, Number]:
        made = self.combination(x, weight, y)
        apart = made - origin
        return made, self.inner(apart, apart)

    def distance(self, a: Array, b: Array) -> Number:
        return self.norm(a - b)

    def run(
        self, work: Pass, vectors: Sequence[Array], numbers: Sequence[Number], skip: int = 0
    ) -> tuple[Vectors, Sums]:
        made, products = work.formula(*vectors, *map(self.column, numbers))
        return made, tuple(self.inner(a, b) for a, b in products[skip:])

    def each(self, formula: FunctionTo[Array], *vectors: Array) -> Array:
        return formula(self.xp, *vectors)

    def dot(self, formula: FunctionTo[tuple[Array, Array]], *vectors: Array) -> Number:
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
