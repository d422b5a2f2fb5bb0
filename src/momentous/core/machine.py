"""The machine of a rule: what branches, numbers and vectors are where the rule runs.

On the host they are Python's and an array library's.  `momentous.jax` has the compiled machine.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from momentous.core.passes import Pass
from momentous.core.record import COPIERS
from momentous.core.space import Array, Space, to_numpy
from momentous.core.status import Event, EventKind, has_restart
from momentous.io.types import FunctionTo, Unchecked

R = TypeVar("R")
N = TypeVar("N", bound=float)
Branch = tuple[Unchecked, Callable[[], R]]  # the condition may be one of each lane
Events = tuple[Event, ...]
Vectors = tuple[Array, ...]
Sums = tuple[float, ...]
# Of `core.rule` and `core.oracle`, which are above this module.
Ask: TypeAlias = Unchecked
Rule: TypeAlias = Unchecked
Sample: TypeAlias = Unchecked

STEP = 2  # what an evaluation may bring: the gradient, and the rule's pass over it


class Arithmetic(Protocol):
    """Numbers and conditions.

    Conditions are joined by ``&`` and ``|`` and negated by `no`.  A rule never asks for the truth
    of a condition: in a compiled loop there is none.
    """

    smallest: float  # positive number whose square and inverse are numbers
    tiny: float  # the smallest positive number of full precision

    def no(self, condition: bool, /) -> bool: ...
    def where(self, condition: bool, a: R, b: R, /) -> R: ...
    def isfinite(self, a: float, /) -> bool: ...
    def minimum(self, a: N, b: N, /) -> N: ...
    def maximum(self, a: N, b: N, /) -> N: ...
    def sqrt(self, a: float, /) -> float: ...
    def power(self, a: float, b: float, /) -> float: ...
    def floor(self, a: float, /) -> int: ...

    def rounded(self, a: float, bits: int, /) -> float:
        """The number with so many bits."""


class Records(Protocol):
    """Records that change."""

    def but(self, record: R, **changes: object) -> R:
        """The record with other values in these fields."""


class Machine(Arithmetic, Records, Protocol):
    """What a rule may use."""

    rounding: float  # unit roundoff u of the vectors
    largest: float  # number that their entries can hold
    dimension: int
    fuses: bool  # is a pass best asked for together with the gradient that it reads?
    no_events: Unchecked
    fused: bool  # does every evaluation bring value and gradient?
    spent: int  # values and gradients that the run has taken so far
    # `core.box.Box` where x has bounds, and then it is a `BoxMachine`; else None.
    box: Unchecked
    penalty: Unchecked  # the same with a `core.penalties.Penalty` where f has a simple term

    def case(self, record: R, *branches: Branch[R], otherwise: Callable[[], R] | None = None) -> R:
        """What the first branch makes of the record whose condition holds; without one, what
        ``otherwise`` makes, or the record as it is."""

    def usually(
        self, record: R, condition: bool, usual: Callable[[], R], otherwise: Callable[[], R]
    ) -> R:
        """What ``usual`` makes of the record where the condition holds, as it does nearly always,
        and what ``otherwise`` makes elsewhere."""

    def switch(
        self, record: R, index: int, functions: Sequence[FunctionTo[R]], *given: object
    ) -> R:
        """What the function with that index makes of the record and what is given."""

    def event(self, kind: EventKind, value: float, happens: bool = True) -> Unchecked:
        """An event, if it happens; events are joined by ``+``."""

    def restarted(self, events: Unchecked, /) -> bool:
        """Is a `RESTART` among the events?"""

    def passed_on(self, ask: Ask, rule: Rule, /) -> Ask:
        """What a rule within another asks, as that one asks it."""

    def worked(
        self, rule: Rule, memory: Unchecked, here: Sample, made: Vectors, sums: Sums, /
    ) -> tuple[Vectors, Sums]:
        """What the pass of a rule has made, for one within another that is told of it."""

    def choose(self, condition: bool, a: R, b: R, /) -> R:
        """An array or a record."""

    def unbegun(self, begin: Callable[[], R], /) -> R:
        """A memory that is not read before it is begun; it has the form of what this makes."""

    def same(self, a: Array, b: Array, /) -> bool:
        """Is it the same point?"""

    def run(
        self, work: Pass, vectors: Sequence[Array], numbers: Sequence[float], skip: int = 0
    ) -> tuple[tuple[Array, ...], tuple[float, ...]]:
        """The new vectors of a pass, and its sums but for the first ones."""

    def inner(self, a: Array, b: Array, /) -> float: ...
    def norm(self, a: Array, /) -> float: ...
    def distance(self, a: Array, b: Array, /) -> float: ...
    def combination(self, x: Array, weight: float, y: Array, z: Array = None, /) -> Array: ...
    def stepped(
        self, x: Array, weight: float, y: Array, origin: Array, /
    ) -> tuple[Array, float]: ...
    def displaced(self, x: Array, radius: float, seed: int, draw: int, /) -> Array: ...
    def value_noise(self, value: float, /) -> float: ...


class BoxMachine(Machine, Protocol):
    """What a rule may use besides where x has bounds, or f a simple term beside it."""

    def each(self, formula: FunctionTo[Array], *vectors: Array) -> Array:
        """What ``formula(xp, *vectors)`` makes, entry by entry; xp is the array library."""

    def dot(self, formula: FunctionTo[tuple[Array, Array]], *vectors: Array) -> float:
        """The inner product of the two vectors that the formula makes, entry by entry."""

    def last(self, a: Array, /) -> Array:
        """Zeros, but for the last entry of ``a`` that is not zero."""

    def repeat(self, record: R, goes_on: Callable[[R], bool], turn: Callable[[R], R], /) -> R:
        """What turn after turn makes of the record, as long as it goes on."""


def has_kinks(m: Unchecked) -> bool:
    """Are there bounds, or a simple term beside f?  Of a machine or a space."""
    return m.box is not None or m.penalty is not None


class Numbers:
    """Numbers, branches and records on the host."""

    smallest, tiny = 1e-150, sys.float_info.min
    no_events: Events = ()

    @staticmethod
    def case(record: R, *branches: Branch[R], otherwise: Callable[[], R] | None = None) -> R:
        for condition, branch in branches:
            if condition:
                return branch()
        return record if otherwise is None else otherwise()

    @staticmethod
    def usually(
        record: R, condition: bool, usual: Callable[[], R], otherwise: Callable[[], R]
    ) -> R:
        return usual() if condition else otherwise()

    def switch(
        self, record: R, index: int, functions: Sequence[FunctionTo[R]], *given: object
    ) -> R:
        return functions[index](self, record, *given)

    @staticmethod
    def but(record: R, **changes: object) -> R:
        changed: R = COPIERS[type(record)](record)
        for name in changes:  # `items` takes longer
            setattr(changed, name, changes[name])
        return changed

    @staticmethod
    def event(kind: EventKind, value: float, happens: bool = True) -> Events:
        return (Event(kind, float(value)),) if happens else ()

    @staticmethod
    def where(condition: bool, a: R, b: R) -> R:
        return a if condition else b

    @staticmethod
    def unbegun(begin: Callable[[], R]) -> R:
        return begin()

    choose = where
    no = staticmethod(operator.not_)
    isfinite = staticmethod(math.isfinite)
    minimum = staticmethod(min)
    maximum = staticmethod(max)
    sqrt = staticmethod(math.sqrt)
    power = staticmethod(operator.pow)
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
        "box", "combination", "dimension", "displaced", "distance", "dot", "each", "fused", "fuses",
        "inner", "largest", "norm", "penalty", "rounding", "space", "spent", "stepped",
        "value_noise",
    )  # fmt: skip
    same = staticmethod(operator.is_)
    restarted = staticmethod(has_restart)

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
        self.stepped, self.value_noise = space.stepped, space.value_noise
        self.box, self.each, self.dot = space.box, space.each, space.dot
        self.penalty = space.penalty
        self.fused, self.spent = False, 0  # as the driver says

    @staticmethod
    def passed_on(ask: Ask, rule: Rule) -> Ask:
        return ask if ask.need != STEP or ask.work else ask._replace(work=rule.work)

    @staticmethod
    def worked(
        rule: Rule, memory: Unchecked, here: Sample, made: Vectors, sums: Sums
    ) -> tuple[Vectors, Sums]:
        return made, sums  # it came with the evaluation

    def last(self, a: Array) -> Array:
        entries = to_numpy(a).reshape(-1)
        kept = np.zeros_like(entries)
        kept[np.flatnonzero(entries)[-1:]] = 1  # of every rank's part, where x is spread
        return a * self.space.from_numpy(kept.reshape(self.space.shape))

    @staticmethod
    def repeat(record: R, goes_on: Callable[[R], bool], turn: Callable[[R], R]) -> R:
        while goes_on(record):
            record = turn(record)
        return record

    def run(
        self, work: Pass, vectors: Sequence[Array], numbers: Sequence[float], skip: int = 0
    ) -> tuple[tuple[Array, ...], tuple[float, ...]]:
        return self.space.compute(work, vectors, numbers, None, skip)[:2]


NUMBERS: Arithmetic = Numbers()
