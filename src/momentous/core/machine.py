"""The machine of a rule: what branches, numbers and vectors are where the rule runs.

On the host they are Python's and an array library's.  `momentous.jax` has the compiled machine.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from momentous.core.passes import Pass
from momentous.core.record import copied
from momentous.core.space import Array, Space
from momentous.core.status import Event, EventKind

R = TypeVar("R")
Branch = tuple[Any, Callable[[], R]]


class Arithmetic(Protocol):
    """Numbers and conditions.

    Conditions are joined by ``&`` and ``|`` and negated by `no`.  A rule never asks for the truth
    of a condition: in a compiled loop there is none.
    """

    smallest: float  # positive number whose square and inverse are numbers
    tiny: float  # the smallest positive number of full precision

    def no(self, condition: Any, /) -> Any: ...
    def where(self, condition: Any, a: Any, b: Any, /) -> Any: ...
    def isfinite(self, a: Any, /) -> Any: ...
    def minimum(self, a: Any, b: Any, /) -> Any: ...
    def maximum(self, a: Any, b: Any, /) -> Any: ...
    def sqrt(self, a: Any, /) -> Any: ...
    def floor(self, a: Any, /) -> Any: ...

    def rounded(self, a: Any, bits: int, /) -> Any:
        """The number with so many bits."""


class Machine(Arithmetic, Protocol):
    """What a rule may use."""

    rounding: float  # unit roundoff u of the vectors
    largest: float  # number that their entries can hold
    dimension: int
    fuses: bool  # is a pass best asked for together with the gradient that it reads?
    no_events: Any

    def case(self, record: R, *branches: Branch[R], otherwise: Callable[[], R] | None = None) -> R:
        """What the first branch makes of the record whose condition holds; without one, what
        ``otherwise`` makes, or the record as it is."""

    def switch(
        self, record: R, index: Any, functions: Sequence[Callable[..., R]], *given: Any
    ) -> R:
        """What the function with that index makes of the record and what is given."""

    def but(self, record: R, **changes: Any) -> R:
        """The record with other values in these fields."""

    def event(self, kind: EventKind, value: Any, happens: Any = True) -> Any:
        """An event, if it happens; events are joined by ``+``."""

    def run(
        self, work: Pass, vectors: Sequence[Array], numbers: Sequence[Any], skip: int = 0
    ) -> tuple[tuple[Array, ...], tuple[Any, ...]]:
        """The new vectors of a pass, and its sums but for the first ones."""

    def choose(self, condition: Any, a: Array, b: Array, /) -> Array: ...
    def inner(self, a: Array, b: Array, /) -> Any: ...
    def norm(self, a: Array, /) -> Any: ...
    def distance(self, a: Array, b: Array, /) -> Any: ...
    def combination(self, x: Array, weight: Any, y: Array, z: Array = None, /) -> Array: ...
    def displaced(self, x: Array, radius: Any, seed: int, draw: Any, /) -> Array: ...
    def value_noise(self, value: Any, /) -> Any: ...


class Numbers:
    """Numbers, branches and records on the host."""

    smallest, tiny = 1e-150, sys.float_info.min
    no_events: tuple[Event, ...] = ()

    @staticmethod
    def case(record: R, *branches: Branch[R], otherwise: Callable[[], R] | None = None) -> R:
        for condition, branch in branches:
            if condition:
                return branch()
        return record if otherwise is None else otherwise()

    def switch(
        self, record: R, index: int, functions: Sequence[Callable[..., R]], *given: Any
    ) -> R:
        return functions[index](self, record, *given)

    @staticmethod
    def but(record: R, **changes: Any) -> R:
        changed = copied(record)
        for name, value in changes.items():
            setattr(changed, name, value)
        return changed

    @staticmethod
    def event(kind: EventKind, value: Any, happens: bool = True) -> tuple[Event, ...]:
        return (Event(kind, float(value)),) if happens else ()

    @staticmethod
    def no(condition: bool) -> bool:
        return not condition

    @staticmethod
    def where(condition: bool, a: Any, b: Any) -> Any:
        return a if condition else b

    choose = where
    isfinite = staticmethod(math.isfinite)
    minimum = staticmethod(min)
    maximum = staticmethod(max)
    sqrt = staticmethod(math.sqrt)
    floor = staticmethod(math.floor)

    @staticmethod
    def rounded(a: float, bits: int) -> float:
        """The number with so many bits."""
        mantissa, exponent = math.frexp(a)
        kept = math.floor if exponent == sys.float_info.max_exp else round  # up there is infinity
        return math.ldexp(kept(mantissa * 2**bits), exponent - bits)


class Host(Numbers):
    """The machine of the host: vectors are arrays of a space."""

    __slots__ = (
        "combination", "dimension", "displaced", "distance", "fuses", "inner", "largest", "norm",
        "rounding", "space", "value_noise",
    )  # fmt: skip

    @staticmethod
    def of(space: Space) -> Host:
        """The machine of that space, made once."""
        machine: Host = space.machine or Host(space)
        space.machine = machine
        return machine

    def __init__(self, space: Space):
        self.space = space
        self.rounding, self.largest = space.rounding, space.largest
        self.dimension, self.fuses = space.dimension, space.fuses
        self.inner, self.norm, self.combination = space.inner, space.norm, space.combination
        self.displaced, self.distance = space.displaced, space.distance
        self.value_noise = space.value_noise

    def run(
        self, work: Pass, vectors: Sequence[Array], numbers: Sequence[float], skip: int = 0
    ) -> tuple[tuple[Array, ...], tuple[float, ...]]:
        return self.space.compute(work, vectors, numbers, None, skip)[:2]


NUMBERS: Arithmetic = Numbers()
