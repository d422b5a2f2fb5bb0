"""A method as a machine that JAX can compile: one evaluation of the function per turn.

`momentous.methods` asks for values and gradients wherever it needs them.  In a compiled loop every
place where the function is called is compiled on its own, and under ``vmap`` all of them run all
the time.  A machine therefore asks once per turn: `point` says where, `advance` goes on with the
answer, and a *phase* in its memory says what the answer was wanted for.  The numbers of a method
come from its class in `momentous.methods`; the decisions are the same, written without branches.
"""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import jax.numpy as jnp

from momentous.core.status import Status
from momentous.jax.vectors import Limits, Scalar, Tree

RUNNING = -1  # in place of a `Status`
ITERATE = 0  # the phase in which the answer is that of the next iteration


class Evaluation(NamedTuple):
    """Value and gradient at the point that was asked for."""

    point: Tree
    value: Scalar
    gradient: Tree
    norm: Scalar  # the Euclidean norm of the gradient, NaN where the value is not finite
    size: Scalar  # the norm that the tolerance is for

    @property
    def usable(self) -> Scalar:
        """Are value and gradient finite?"""
        return jnp.isfinite(self.value) & jnp.isfinite(self.norm)


class Progress(NamedTuple):
    """What a run tells about itself."""

    status: Scalar  # RUNNING or a `Status`
    iterations: Scalar  # as `momentous.minimize` counts them
    restarts: Scalar  # epochs that have ended, those that were discarded included
    rollbacks: Scalar  # those that were discarded

    @staticmethod
    def none() -> Progress:
        return Progress(jnp.asarray(RUNNING), jnp.asarray(0), jnp.asarray(0), jnp.asarray(0))

    def counted(
        self, iterated: Scalar, ended: Scalar = False, discarded: Scalar = False
    ) -> Progress:
        """The same after an iteration, if it was one, in which the epoch may have ended."""
        return self._replace(
            iterations=self.iterations + iterated,
            restarts=self.restarts + (ended | discarded),
            rollbacks=self.rollbacks + discarded,
        )

    def ending(self, condition: Scalar, status: Any) -> Progress:
        """The same, ended with this status if the condition holds and it had not ended before."""
        running = self.status == RUNNING
        return self._replace(status=jnp.where(running & condition, int_of(status), self.status))

    @property
    def runs(self) -> Scalar:
        return self.status == RUNNING


class Machine(abc.ABC):
    """A method, and how its memory goes on from turn to turn."""

    @abc.abstractmethod
    def begin(self, x0: Tree) -> Any:
        """The memory before the first evaluation, which is the one at x0."""

    @abc.abstractmethod
    def point(self, memory: Any) -> Tree:
        """Where to evaluate the function next."""

    def repeats(self, memory: Any) -> Scalar | None:
        """Is the next point the one that was evaluated last?  None: never."""
        return None

    @abc.abstractmethod
    def advance(self, memory: Any, here: Evaluation, tol: Scalar) -> tuple[Any, Scalar]:
        """The memory after that evaluation; and is its point the one that the iteration reports?"""

    def accepted(self, memory: Any) -> tuple[Tree, Scalar] | None:
        """The last point that was accepted by its value, and that value; None: values are not
        looked at."""
        return None


class Reported(NamedTuple):
    """What is known of the point that an iteration reports."""

    value: Scalar
    norm: Scalar
    size: Scalar

    @staticmethod
    def of(here: Evaluation) -> Reported:
        return Reported(here.value, here.norm, here.size)


class AcceptingMachine(Machine):
    """A machine whose epochs are kept or discarded by the value at their end.

    Its memory has ``start`` and ``value``, the last accepted point and f there; ``reported``; and
    ``progress``.
    """

    limits: Limits

    def accepted(self, memory: Any) -> tuple[Tree, Scalar]:
        return memory.start, memory.value

    def _noise(self, value: Scalar) -> Scalar:
        """`Space.value_noise`."""
        return 8.0 * self.limits.rounding * jnp.abs(value)

    def _closed(self, memory: Any, closes: Scalar, tol: Scalar, **counted: Scalar) -> Progress:
        """The progress after an iteration; it is the last one where what it reports is small and f
        has not risen there above the last accepted point."""
        reported, limit = memory.reported, memory.value + self._noise(memory.value)
        progress: Progress = memory.progress.counted(closes, **counted)
        small = (reported.size <= tol) & (reported.value <= limit)
        return progress.ending(closes & small, Status.CONVERGED)


def int_of(status: Any) -> Any:
    return int(status) if isinstance(status, Status) else status


def zero_or_stuck(norm: Scalar) -> Scalar:
    """The status where a step does not move x."""
    return jnp.where(norm == 0.0, int(Status.COMPLETED), int(Status.NO_PROGRESS))
