"""The contract of a method: frozen hyper-parameters, a memory that is a value, one step.

A method never loops, prints, times or stops: it maps a memory to the next.  What a step needs of
the memory it is given must not be changed by it, so that a run that is interrupted in the middle of
a step still holds the memory before it.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from numbers import Real
from typing import ClassVar, Generic

import numpy as np
from array_api_compat import is_array_api_obj

from momentous.core.oracle import NO_SAMPLE, Oracle
from momentous.core.space import Array, Space
from momentous.core.step import M, Report, Step, UnderWay
from momentous.io.types import Options, Unchecked

DEFAULT_TOLERANCE = 1e-5


# How fields are declared that hold one real number, or none.
_WHOLE = "a whole number"
_NUMBERS = {"float": "a number", "int": _WHOLE}
_NUMBERS |= {f"{name} | None": kind for name, kind in _NUMBERS.items()}


def is_number(value: Unchecked) -> bool:
    """Is it one real number?  Truth values and text are none."""
    if isinstance(value, float | int):  # as nearly always
        return not isinstance(value, bool)
    if isinstance(value, np.generic):
        return bool(value.dtype.kind in "iuf")
    return isinstance(value, Real) or (is_array_api_obj(value) and not value.shape)


@dataclasses.dataclass(frozen=True)
class Method(abc.ABC, Generic[M]):
    """A method that calls its oracle itself: hyper-parameters, ``start`` and ``step``."""

    name: ClassVar[str]
    summary: ClassVar[str] = ""  # these stand in the table of methods
    guarantee: ClassVar[str] = ""
    cost: ClassVar[str] = ""  # of one iteration
    requires: ClassVar[tuple[str, ...]] = ()  # parameters without which it cannot run
    alternatives: ClassVar[tuple[tuple[str, ...], ...]] = ()  # what may be given in their place
    # Does it have momentum, and stand only by the points where that is dropped (`RESTART`)?
    has_epochs: ClassVar[bool] = False
    takes_bounds: ClassVar[bool] = False  # does it keep to a box (`Space.box`)?
    takes_penalty: ClassVar[bool] = False  # does it take a simple term (`Space.penalty`)?
    ends_at_noise: ClassVar[bool] = False  # does one value for long mean that rounding is reached?
    counts_as_published: ClassVar[bool] = True  # does a run evaluate nothing that it does not ask?

    def __post_init__(self) -> None:
        """NumPy's numbers become Python's: they would change the dtype of the arrays they meet.
        Where a field is declared as a number, nothing else is taken."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            kind = _NUMBERS.get(str(field.type))
            missing = value is None and str(field.type).endswith("None")
            fits = is_number(value) and (kind != _WHOLE or value % 1 == 0 or value == math.inf)
            if kind is not None and not missing and not fits:
                raise ValueError(
                    f"{type(self).__name__}: {field.name}={value!r:.200} must be {kind}"
                )
            if isinstance(value, np.generic):
                plain = float(value) if isinstance(value, np.floating) else value.item()
                object.__setattr__(self, field.name, plain)

    @property
    def stops_at_tolerance(self) -> bool:
        """False where a small gradient alone is not the goal."""
        return True

    @property
    def default_tolerance(self) -> float:
        """The gradient norm to stop at when the user names none; 0 for "only my own rule"."""
        return DEFAULT_TOLERANCE

    def tolerance_for(self, tol: float | None) -> float:
        """The gradient norm to stop at: what was asked for, or the default."""
        return self.default_tolerance if tol is None else tol

    def in_box(self) -> Method:
        """The method that a run with bounds, or a simple term, takes in its place, if it can."""
        return self

    @abc.abstractmethod
    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> Step[M]:
        """What stands before the first step.  Value and gradient at x0 are known to the oracle.

        ``tol`` is the gradient norm that the user asked for (None: nothing was asked for, and the
        run stops at ``default_tolerance``); ``seed`` is where randomised methods draw from.
        """

    @abc.abstractmethod
    def step(self, oracle: Oracle, memory: M) -> Step[M]:
        """One iteration."""

    def set_out(
        self, oracle: Oracle, x0: Array, tol: float | None, seed: int
    ) -> UnderWay[M] | None:
        """Before `start`, where evaluations stand between which a run may be saved; else None."""
        return None

    def take_step(self, oracle: Oracle, way: UnderWay[M]) -> tuple[M, Report]:
        """One iteration, or the rest of it; here a step that was broken off begins again."""
        if way.known is None:
            way.known, way.nfev, way.njev = oracle.last or NO_SAMPLE, oracle.nfev, oracle.njev
        oracle.recall(way.known)
        oracle.nfev, oracle.njev = way.nfev, way.njev
        step = self.step(oracle, way.memory)
        return step.memory, step.report

    def with_new_tolerance(self, step: Step[M], tol: float | None) -> Step[M]:
        """The same in a run that is resumed and asked for another tolerance (None: for none).

        By default a memory that has a field ``tol`` gets the new one.
        """
        memory: Unchecked = step.memory
        if tol is None or not hasattr(memory, "tol"):
            return step
        return Step(dataclasses.replace(memory, tol=tol), step.report)

    def inverse_hessian(self, space: Space, memory: M) -> Unchecked:
        """An operator like the inverse of the Hessian, where the method has learned one: the
        ``hess_inv`` of a result."""
        return None

    def for_costly_gradients(
        self, dimension: int, nbytes: int, matrix_bytes: float = 0.0
    ) -> Method[M]:
        """The same where a gradient, of so many numbers and bytes, costs many passes over it, and
        a matrix of doubles may take so many bytes; 0: no such matrix is wanted."""
        return self

    def parameters(self) -> Options:
        """The hyper-parameters by name."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def description(self) -> Options:
        """Name and hyper-parameters as a checkpoint holds them: plain, methods within it too."""
        plain = {
            name: value.description() if isinstance(value, Method) else value
            for name, value in self.parameters().items()
        }
        return {"name": self.name, "parameters": plain}
