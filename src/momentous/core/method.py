"""The contract of a method: frozen hyper-parameters, a state that is a value, one step.

A method never loops, prints, times or stops: it maps a state to the next.  What a step needs of the
state it is given must not be changed by it, so that a run that is interrupted in the middle of a
step still holds the state before it.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar

import numpy as np

from momentous.core.arrays import Array
from momentous.core.oracle import NO_SAMPLE, Oracle, Sample
from momentous.core.record import record
from momentous.core.status import Ending, Event

DEFAULT_TOLERANCE = 1e-5


@record
class State:
    """What every method tells the loop after a step; methods add fields of their own."""

    sample: Sample  # the point whose gradient this step took
    step_size: float  # eta, for the trace
    events: tuple[Event, ...]  # what happened in this step
    ending: Ending | None  # set when the method has ended by its own rule

    def release(self) -> None:
        """Let the arrays of the sample go: for a step that does not need them and is short of
        memory.  Should that step be interrupted, the run ends with the best point."""
        self.sample = NO_SAMPLE

    @property
    def value_noise(self) -> float:
        """How far a difference of values may be off here, where the method has measured it."""
        return 0.0

    @property
    def accepted(self) -> Sample | None:
        """The last point that was accepted by its value: for a method that looks at none, x0."""
        return None


@dataclasses.dataclass(frozen=True)
class Method(abc.ABC):
    """Hyper-parameters of a method, and its two maps: x0 -> state and state -> state."""

    name: ClassVar[str]
    summary: ClassVar[str] = ""  # these four stand in the table of methods
    needs: ClassVar[str] = ""
    guarantee: ClassVar[str] = ""
    cost: ClassVar[str] = ""  # of an iteration

    def __post_init__(self) -> None:
        """NumPy's numbers become Python's: they would change the dtype of the arrays they meet."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
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

    @abc.abstractmethod
    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> State:
        """The state before the first step.  Value and gradient at x0 are known to the oracle.

        ``tol`` is the gradient norm that the user asked for (None: nothing was asked for, and the
        run stops at ``default_tolerance``); ``seed`` is where randomised methods draw from.
        """

    @abc.abstractmethod
    def step(self, oracle: Oracle, state: State) -> State:
        """One iteration."""

    def stands_by(self, oracle: Oracle, state: State) -> bool:
        """Asked where the gradient is small enough: may the run end at ``state.sample``?"""
        return True

    def moved_to(
        self, oracle: Oracle, state: State, sample: Sample, tol: float | None, seed: int
    ) -> State:
        """The state of a run that goes on at another point, where value and gradient are known.

        A method that has learned something on its way carries it over; others start anew.
        """
        oracle.recall(sample)
        return self.start(oracle, sample.point, tol, seed)

    def with_tolerance(self, state: State, tol: float | None) -> State:
        """The state of a run that is resumed and asked for another tolerance (None: for none)."""
        return state

    def parameters(self) -> dict[str, Any]:
        """The hyper-parameters by name."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def described(self) -> dict[str, Any]:
        """Name and hyper-parameters as a checkpoint holds them: plain, methods within it too."""
        plain = {
            name: value.described() if isinstance(value, Method) else value
            for name, value in self.parameters().items()
        }
        return {"name": self.name, "parameters": plain}
