"""The turns of a machine: evaluate the function, let the machine go on, keep what is reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from momentous.core.status import SUCCESSES, Status
from momentous.jax.machine import RUNNING, Evaluation, Machine
from momentous.jax.vectors import Scalar, Tree, norm, number, select

Norm = Callable[[Tree], Scalar]


class State(NamedTuple):
    """Where a run stands between two turns."""

    memory: Any  # the machine's
    y: Tree  # the point reported last
    value: Scalar  # f there
    size: Scalar  # the norm of the gradient there
    aux: Any  # what the function has brought along there
    tol: Scalar
    evaluations: Scalar  # values and gradients, one of each
    last: Any  # the last evaluation and what came along with it, where a machine repeats points


class Turns(NamedTuple):
    """A machine at a function ``fun(y, args) -> (value, aux)``."""

    machine: Machine
    fun: Callable[[Tree, Any], tuple[Scalar, Any]]
    args: Any
    rtol: float
    atol: float
    norm: Norm | None = None  # None: Euclidean
    forward: bool = False  # differentiate in forward mode

    def begin(self, y0: Tree, aux: Any) -> State:
        """Before the first turn; ``aux`` has the shapes of what the function brings along."""
        unknown, memory = number(jnp.inf), self.machine.begin(y0)
        last: Any = None
        if self.machine.repeats(memory) is not None:
            last = Evaluation(y0, unknown, y0, unknown, unknown), aux
        return State(memory, y0, unknown, unknown, aux, number(self.atol), jnp.asarray(0), last)

    def after_one(self, state: State) -> State:
        """One evaluation further."""
        first, repeats, last = state.evaluations == 0, jnp.asarray(False), None
        point = select(first, state.y, self.machine.point(state.memory))
        if state.last is None:
            here, aux = self._evaluated(point)
        else:
            repeats = self.machine.repeats(state.memory)
            last = here, aux = jax.lax.cond(
                repeats, lambda: state.last, lambda: self._evaluated(point)
            )
        # The tolerance is known with the first gradient.
        tol = state.tol
        if self.rtol:
            tol = jnp.where(first, self.atol + self.rtol * here.size, tol)
        memory, shown = self.machine.advance(state.memory, here, tol)
        shown = shown | first
        kept = state.y, state.value, state.size, state.aux
        y, value, size, aux = select(shown, (point, here.value, here.size, aux), kept)
        return State(memory, y, value, size, aux, tol, state.evaluations + ~repeats, last)

    def _evaluated(self, point: Tree) -> tuple[Evaluation, Any]:
        def fun(y: Tree) -> tuple[Scalar, Any]:
            return self.fun(y, self.args)

        if self.forward:
            value, aux = fun(point)
            gradient, _ = jax.jacfwd(fun, has_aux=True)(point)
        else:
            (value, aux), gradient = jax.value_and_grad(fun, has_aux=True)(point)
        length, value = norm(gradient), number(value)
        length = jnp.where(jnp.isfinite(value), length, jnp.nan)
        size = length if self.norm is None else number(self.norm(gradient))
        return Evaluation(point, value, gradient, length, size), aux

    def output(self, state: State) -> State:
        """What a run returns: the point reported last or, where the run has not succeeded, the last
        accepted one if that is lower."""
        accepted = self.machine.accepted(state.memory)
        if accepted is None:
            return state
        point, value = accepted
        lower = ~is_success(state.memory.progress.status) & (value < state.value)
        aux = state.aux
        if jax.tree.leaves(aux):
            aux = jax.lax.cond(lower, lambda: self.fun(point, self.args)[1], lambda: state.aux)
        unknown = number(jnp.nan)
        kept = state.y, state.value, state.size
        y, value, size = select(lower, (point, value, unknown), kept)
        return state._replace(y=y, value=value, size=size, aux=aux)


def is_success(status: Scalar) -> Scalar:
    """Is this one of the successes among `Status`?"""
    return jnp.isin(status, jnp.asarray([int(each) for each in SUCCESSES]))


def status_of(status: Scalar) -> Scalar:
    """A run that still goes on when its evaluations are spent has ended by that."""
    return jnp.where(status == RUNNING, int(Status.MAX_EVALUATIONS), status)
