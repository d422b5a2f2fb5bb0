"""The driver of rules in compiled code: one evaluation of the function per turn.

Every place where the function is called is compiled on its own, and under ``vmap`` all of them run
all the time: so there is one in a turn, and one before the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from momentous.core import stopping
from momentous.core.acceptance import final_limit, rises
from momentous.core.box import Box
from momentous.core.method import Method
from momentous.core.oracle import Sample
from momentous.core.result import in_lines
from momentous.core.rule import RUNNING, Goal, Rule
from momentous.core.status import OUTPUTS, SUCCESSES, Status, is_one_of
from momentous.jax.machine import Compiled, inner, norm, number, select
from momentous.jax.penalties import CompiledPenalty

Function = Callable[[jax.Array, Any], tuple[jax.Array, Any]]  # (x, args) -> value, aux


class Known(NamedTuple):
    """What is known of a point."""

    sample: Sample
    size: jax.Array  # of its gradient, by the norm that the tolerance is for
    aux: Any  # what the function has brought along

    def without_gradient(self) -> Known:
        sample = self.sample
        return self._replace(sample=Sample(sample.point, sample.value, None, sample.grad_norm))


class Rest(NamedTuple):
    """Does a run rest at one value?"""

    level: jax.Array  # iterations in a row whose values differ by no more than their noise ...
    value: jax.Array  # ... from this one
    norm: jax.Array  # the smallest of the gradients so far, and in which iteration
    iteration: jax.Array


class State(NamedTuple):
    """Where a run stands between two turns."""

    memory: Any  # the rule's
    shown: Known  # the point that was reported last
    last: Known | None  # the one that was evaluated last, for a rule that `repeats`
    tol: jax.Array
    start_value: jax.Array
    start_norm: jax.Array
    start_size: jax.Array  # |x0|
    rest: Rest | None  # for a rule that may end at the noise of values
    evaluations: jax.Array  # values and gradients, one of each
    started: jax.Array  # is all known that the first iteration needs?
    iterations: jax.Array  # as `momentous.minimize` counts them
    restarts: jax.Array  # epochs that have ended, those that were discarded included
    status: jax.Array  # RUNNING or a `Status`


class Limits(NamedTuple):
    """The most that a run may take."""

    evaluations: Any
    iterations: Any


class Solution(NamedTuple):
    """What `solve` returns: arrays, so that it can be vmapped and used in compiled code."""

    x: Any  # the solution, with the structure, shapes and dtypes of x0
    fun: jax.Array  # f(x)
    grad_norm: jax.Array  # the Euclidean norm of the gradient there, NaN where a run has failed and
    # returns a point that it had accepted before
    aux: Any  # what fun has brought along at x (``has_aux=True``)
    success: jax.Array
    status: jax.Array  # a `momentous.Status`, as an integer
    nit: jax.Array  # iterations as `momentous.minimize` counts them
    nfev: jax.Array  # values
    njev: jax.Array  # gradients: every evaluation brings both
    restarts: jax.Array

    @property
    def message(self) -> str:
        """The status in words; outside of compiled code only."""
        return self._statuses().lower().replace("_", " ")

    def __repr__(self) -> str:
        """A line for each entry, with the status by its name: of many runs, how many had which."""
        leaves = jax.tree.leaves(tuple(self))
        if not all(isinstance(leaf, np.ndarray | jax.Array) for leaf in leaves) or any(
            isinstance(leaf, jax.core.Tracer) for leaf in leaves
        ):
            return f"Solution{tuple.__repr__(self)}"
        entries = self._asdict() | {"status": self._statuses()}
        first = ("success", "status", "fun", "x")
        shown = {name: entries.pop(name) for name in first} | entries
        return in_lines({name: each for name, each in shown.items() if each is not None})

    def _statuses(self) -> str:
        status = np.asarray(self.status)
        if not status.ndim:
            return Status(int(status)).name
        names = Counter(Status(each).name for each in status.reshape(-1).tolist())
        return ", ".join(f"{count} {name}" for name, count in names.most_common())


class Driver:
    """A rule at a function."""

    def __init__(
        self, method: Method, fun: Function, args: Any, x0: jax.Array, *, rtol: float, atol: float,
        key: Any = None, norm: Callable[[jax.Array], jax.Array] | None = None,
        forward: bool = False, lanes: bool = False, box: Box | None = None,
        penalty: CompiledPenalty | None = None,
    ):  # fmt: skip
        if not isinstance(method, Rule):
            from momentous.methods.registry import rules

            raise TypeError(
                f"{method.name} has no compiled form; momentous.jax.minimize runs it with "
                f"a compiled function. These have one: {', '.join(rules())}"
            )
        self.rule, self.fun, self.args = method, fun, args
        self.rtol, self.atol = rtol, atol
        self.norm = norm  # None: Euclidean
        self.forward = forward  # differentiate in forward mode
        self.m = Compiled(x0, jax.random.key(0) if key is None else key, lanes, box, args)
        self.m.penalty = penalty

    def begin(self, x0: jax.Array) -> State:
        """After the evaluation at x0."""
        m, rule, known = self.m, self.rule, self._evaluate(x0)
        here, zero = known.sample, jnp.asarray(0)
        tol = number(self.atol)
        if self.rtol:
            tol = tol + self.rtol * known.size
        memory = rule.with_tolerance(m, rule.begin(m, here, Goal(self.atol)), tol)
        memory = jax.tree.map(m.strong, memory)  # as it is in turns: nothing in it is known
        last = known if rule.repeats else None
        limit = rule.rise_limit(m, memory, here)
        if limit is None or limit.reference.gradient is None:
            known = known.without_gradient()  # nobody asks for it
        infinity = number(jnp.inf)
        state = State(
            memory, known, last, tol, here.value, here.grad_norm, norm(x0),
            Rest(zero, infinity, infinity, zero) if rule.ends_at_noise else None,
            zero + 1, jnp.asarray(False), zero, zero,
            jnp.where(_is_usable(here), RUNNING, int(Status.NON_FINITE)),
        )  # fmt: skip
        return jax.tree.map(m.strong, self._commit(state))  # type: ignore[no-any-return]

    def turn(self, state: State) -> State:
        """One evaluation further."""
        m, rule = self.m, self.rule
        ask = rule.ask(m, state.memory)
        if state.last is None:
            known = self._evaluate(ask.point)
        else:
            known = self._unless(ask.again, state.last, ask.point)
        here, evaluations = known.sample, state.evaluations + jnp.logical_not(ask.again)
        m.spent = 2 * evaluations
        memory = rule.write(m, rule.tell(m, state.memory, here, *m.run_pass(rule, ask, here)))
        memory = jax.tree.map(m.strong, memory)
        shown = known if state.shown.sample.gradient is not None else known.without_gradient()
        return self._commit(
            state._replace(
                memory=memory,
                shown=select(memory.outcome.shows & _is_usable(here), shown, state.shown),
                last=None if state.last is None else known,
                evaluations=evaluations,
            )
        )

    def take_over(self, state: State) -> State:
        """Where the opening of the rule has come to its end."""
        self.m.spent = 2 * state.evaluations
        memory = jax.tree.map(self.m.strong, self.rule.take_over(self.m, state.memory))
        return self._commit(state._replace(memory=memory))

    def _commit(self, state: State) -> State:
        """Where an iteration has ended: counts, and whether the run ends."""
        memory, shown = state.memory, state.shown.sample
        outcome, ended = memory.outcome, memory.outcome.ended
        iterations = state.iterations + (ended & state.started)
        rest, rests = state.rest, False
        if rest is not None:
            rest = select(ended, self._rest(rest, memory, shown, iterations), rest)
            rests = stopping.rests(rest.level, iterations - rest.iteration)
        is_small, fall = self._is_small(state), state.start_value - self._lowest(state).value
        far = fall > stopping.DIVERGENCE_FACTOR * state.start_norm
        looks = far | (iterations % 32 == 0)

        def decide() -> Any:
            status = jnp.where(rests & (outcome.status == RUNNING), no_progress, outcome.status)
            unbounded = looks & self._is_unbounded(state, fall)
            status = jnp.where(unbounded, int(Status.UNBOUNDED), status)
            return jnp.where(is_small & self._has_not_risen(state), int(Status.CONVERGED), status)

        # One branch for all ends: a branch costs more than what is computed in it.
        no_progress, runs = int(Status.NO_PROGRESS), state.status == RUNNING
        may_end = is_small | looks | rests | (outcome.status != RUNNING)
        status = self.m.case(state.status, (runs & ended & may_end, decide))
        return state._replace(
            rest=rest,
            started=state.started | ended,
            iterations=iterations,
            restarts=state.restarts + ended * self.m.restarts(outcome.events),
            status=status,
        )

    def _rest(self, rest: Rest, memory: Any, shown: Sample, iterations: jax.Array) -> Rest:
        noise, less = self.rule.noise(memory), shown.grad_norm < rest.norm
        smallest = select(less, (shown.grad_norm, iterations), (rest.norm, rest.iteration))
        level = stopping.count_level(self.m, rest.level, rest.value, shown.value, noise)
        return Rest(*level, *smallest)

    def _lowest(self, state: State) -> Sample:
        """The lower of the point reported last and the accepted one."""
        shown, accepted = state.shown.sample, self.rule.accepted(state.memory)
        risen = shown.value > accepted.value
        value = jnp.where(risen, accepted.value, shown.value)
        norm = jnp.where(risen, accepted.grad_norm, shown.grad_norm)
        return Sample(select(risen, accepted.point, shown.point), value, None, norm)

    def _is_unbounded(self, state: State, fall: jax.Array) -> Any:
        """As `momentous.core.stopping.unbounded` has it."""
        m, lowest = self.m, self._lowest(state)
        square = inner(lowest.point, lowest.point)
        scale = abs(state.start_value), state.start_norm, jnp.maximum(1.0, state.start_size)
        down = stopping.falls_for_ever(m, *scale, fall, lowest.grad_norm, square)
        return down | stopping.overflows(square, m.largest)

    def _is_small(self, state: State) -> Any:
        """Is the gradient within the tolerance?"""
        if not self.rule.stops_at_tolerance:
            return False
        return (state.shown.size <= state.tol) & jnp.isfinite(state.shown.sample.value)

    def _has_not_risen(self, state: State) -> Any:
        shown = state.shown.sample
        limit = self.rule.rise_limit(self.m, state.memory, shown)
        return True if limit is None else ~rises(self.m, shown, limit)

    def run(self, state: State, most: Limits) -> Solution:
        """Until the run ends, or has come to a limit; in lanes, until all have."""
        m = self.m
        if not m.lanes:
            return self.end(self.advance(state, most), most)

        def turn(carry: tuple[State, jax.Array, Solution]) -> tuple[State, jax.Array, Solution]:
            # What a lane has found is kept apart: nobody looks at what becomes of its state.
            state, m.mask, found = carry
            after = self.turn(state)
            ends = jnp.logical_not(self._goes_on(after, most))
            found = m.case(found, (ends, lambda: self.end(after, most)))
            return after, m.mask & ~ends, found

        begun = state, self._goes_on(state, most), self.end(state, most)
        return jax.lax.while_loop(lambda carry: m.any(carry[1]), turn, begun)[2]  # type: ignore[no-any-return]

    def advance(self, state: State, most: Limits) -> State:
        """The same for one run, or until its rule hands over."""
        return jax.lax.while_loop(lambda state: self._goes_on(state, most), self.turn, state)  # type: ignore[no-any-return]

    def _goes_on(self, state: State, most: Limits) -> jax.Array:
        within = (state.evaluations < most.evaluations) & (state.iterations < most.iterations)
        hands_over = self.rule.hands_over(state.memory)
        return (state.status == RUNNING) & within & jnp.logical_not(hands_over)

    def end(self, state: State, most: Limits) -> Solution:
        """What a run returns that goes no further."""
        spent = state.evaluations >= most.evaluations
        limits = int(Status.MAX_EVALUATIONS), int(Status.MAX_ITERATIONS)
        return self.finish(state, jnp.where(spent, *limits))

    def _unless(self, again: Any, last: Known, point: jax.Array) -> Known:
        """What was evaluated last, where it is asked for again."""
        if not self.m.lanes:
            return jax.lax.cond(again, lambda: last, lambda: self._evaluate(point))  # type: ignore[no-any-return]
        return select(again, last, self._evaluate(point))

    def _evaluate(self, point: jax.Array) -> Known:
        box, penalty = self.m.box, self.m.penalty
        if box is not None:  # never outside; rules ask inside, and there this changes nothing
            point = box.clip(self.m, point)

        def fun(y: jax.Array) -> tuple[jax.Array, Any]:
            return self.fun(y, self.args)

        if self.forward:
            value, aux = fun(point)
            gradient, _ = jax.jacfwd(fun, has_aux=True)(point)
        else:
            (value, aux), gradient = jax.value_and_grad(fun, has_aux=True)(point)
        value = number(value)
        if penalty is not None:
            value = value + penalty.total(self.m, point)
            gradient = penalty.smooth(self.m, point, gradient)
        kinks = box or penalty
        length = self._length(gradient) if kinks is None else kinks.size(self.m, point, gradient)
        length = jnp.where(jnp.isfinite(value), length, jnp.nan)
        size = length if self.norm is None else number(self.norm(gradient))
        return Known(Sample(point, value, gradient, length), size, aux)

    def _length(self, gradient: jax.Array) -> jax.Array:
        """Its norm, in one pass where squares are numbers of full precision."""
        square, numbers = inner(gradient, gradient), jnp.finfo(self.m.wide)
        safe = (square > float(numbers.tiny) / float(numbers.eps)) & jnp.isfinite(square)
        return self.m.case(jnp.sqrt(square), (~safe, lambda: norm(gradient)))

    def finish(self, state: State, limit: Any = int(Status.MAX_EVALUATIONS)) -> Solution:
        """What a run returns, which has met that limit if it could go on: the point reported last
        or, where the run has not succeeded, the last accepted one if that is lower."""
        m, accepted, shown, status = (
            self.m, self.rule.accepted(state.memory), state.shown, state.status,
        )  # fmt: skip
        highest = final_limit(m, accepted, state.start_value, self.rule.noise(state.memory))
        risen = is_one_of(status, SUCCESSES & OUTPUTS) & rises(m, shown.sample, highest)
        status = jnp.where(risen, int(Status.OBJECTIVE_ROSE), status)
        fails = ~is_one_of(status, SUCCESSES)
        lower = fails & (accepted.value < shown.sample.value)
        aux = shown.aux
        if jax.tree.leaves(aux):
            aux = jax.lax.cond(lower, lambda: self.fun(accepted.point, self.args)[1], lambda: aux)
        point, value = select(
            lower, (accepted.point, accepted.value), (shown.sample.point, shown.sample.value)
        )
        size = jnp.where(lower, jnp.nan, shown.size)
        status = jnp.where(status == RUNNING, limit, status)
        count, success = state.evaluations, jnp.asarray(is_one_of(status, SUCCESSES))
        return Solution(
            point, value, size, aux, success, status, state.iterations, count, count,
            state.restarts,
        )  # fmt: skip


def _is_usable(here: Sample) -> jax.Array:
    return jnp.isfinite(here.value) & jnp.isfinite(here.grad_norm)
