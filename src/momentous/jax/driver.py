"""The driver of rules in compiled code: one evaluation of the function per turn.

Every place where the function is called is compiled on its own, and under ``vmap`` all of them run
all the time: so there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from momentous.core import stopping
from momentous.core.acceptance import final_limit, rises
from momentous.core.box import Box
from momentous.core.oracle import Sample
from momentous.core.rule import RUNNING, Ask, Goal, Rule
from momentous.core.status import OUTPUTS, SUCCESSES, Status, is_one_of
from momentous.jax import vectors
from momentous.jax.machine import Compiled
from momentous.jax.vectors import Scalar, Tree, number, select
from momentous.methods.classical.curvature import Curvature

UNBOUNDED = int(Status.UNBOUNDED)


class Known(NamedTuple):
    """What is known of a point."""

    sample: Sample
    size: Scalar  # of its gradient, by the norm that the tolerance is for
    aux: Any  # what the function has brought along


class Start(NamedTuple):
    """The scale of a run: what is known at x0."""

    value: Scalar
    norm: Scalar
    size: Scalar  # of x0


class Rest(NamedTuple):
    """Does a run rest at one value?"""

    level: Scalar  # iterations in a row whose values differ by no more than their noise ...
    value: Scalar  # ... from this one
    norm: Scalar  # the smallest of the gradients so far, and in which iteration
    iteration: Scalar


class State(NamedTuple):
    """Where a run stands between two turns."""

    memory: Any  # the rule's
    shown: Known  # the point that was reported last
    last: Known | None  # the one that was evaluated last, for a rule that asks for it again
    tol: Scalar
    start: Start
    rest: Rest | None  # for a rule that may end at the noise of values
    evaluations: Scalar  # values and gradients, one of each
    started: Scalar  # is all known that the first iteration needs?
    iterations: Scalar  # as `momentous.minimize` counts them
    restarts: Scalar  # epochs that have ended, those that were discarded included
    status: Scalar  # RUNNING or a `Status`

    @property
    def runs(self) -> Scalar:
        return self.status == RUNNING

    @property
    def succeeded(self) -> Scalar:
        return is_one_of(self.status, SUCCESSES)


class Driver:
    """A rule at a function ``fun(x, args) -> (value, aux)``."""

    def __init__(
        self, method: Any, fun: Callable[[Tree, Any], tuple[Scalar, Any]], args: Any, x0: Tree, *,
        rtol: float, atol: float, key: Any = None, norm: Callable[[Tree], Scalar] | None = None,
        forward: bool = False, lanes: bool = False, box: Box | None = None,
        penalty: Any = None,
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

    def begin(self, x0: Tree, aux: Any) -> State:
        """Before the first turn; ``aux`` has the shapes of what the function brings along."""
        unknown, nothing = number(jnp.inf), jnp.asarray(0)
        first = Known(Sample(x0, unknown, x0, unknown), unknown, aux)
        shape = jax.eval_shape(lambda: self._first(first.sample, unknown))
        memory = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
        last = None if self.rule.ask(self.m, memory).again is False else first
        limit = self.rule.rise_limit(self.m, memory, first.sample)
        if limit is None or limit.reference.gradient is None:
            first = _without_gradient(first)  # nobody asks for it
        start = Start(unknown, unknown, vectors.norm(x0))
        rest = Rest(nothing, unknown, unknown, nothing) if self.rule.ends_at_noise else None
        state = State(
            memory, first, last, number(self.atol), start, rest, nothing, jnp.asarray(False),
            nothing, nothing, jnp.asarray(RUNNING),
        )  # fmt: skip
        return jax.tree.map(self.m.varying, state)  # type: ignore[no-any-return]

    def _first(self, here: Sample, tol: Any) -> Any:
        memory = self.rule.begin(self.m, here, Goal(self.atol))
        memory = self.rule.with_tolerance(self.m, memory, tol)  # known with the first gradient
        return jax.tree.map(self.m.strong, memory)

    def after_one(self, state: State) -> State:
        """One evaluation further."""
        first, m, rule = state.evaluations == 0, self.m, self.rule
        ask: Ask = rule.ask(m, state.memory)
        point = select(first, state.shown.sample.point, ask.point)
        again: Any = jnp.asarray(False)
        if state.last is None:
            known = self._evaluated(point)
        else:
            again = ask.again & ~first
            known = self._unless(again, state.last, point)
        here, size = known.sample, known.size
        tol = state.tol
        if self.rtol:
            tol = jnp.where(first, self.atol + self.rtol * size, tol)

        m.spent = 2 * (state.evaluations + jnp.logical_not(again))

        def told() -> Any:
            made, sums = m.worked(rule, state.memory, here, (), ())
            return rule.tell(m, state.memory, here, made, sums)

        def is_store(item: Any) -> bool:
            return isinstance(item, Curvature)

        def begun() -> Any:
            # Stores begin with zeros, as they are: in a branch they would be copied.
            return jax.tree.map(
                lambda new, old: m.but(old, way=new.way) if is_store(new) else new,
                self._first(here, tol), state.memory, is_leaf=is_store,
            )  # fmt: skip

        memory = m.case(state.memory, (first, begun), otherwise=told)
        memory = jax.tree.map(m.strong, rule.write(m, memory))
        outcome = memory.outcome
        usable = jnp.isfinite(here.value) & jnp.isfinite(here.grad_norm)
        shown = known if state.shown.sample.gradient is not None else _without_gradient(known)
        shown = select(first | outcome.shows & usable, shown, state.shown)
        ended = outcome.ended
        iterations = state.iterations + (ended & state.started)
        start = state.start
        start = select(first, Start(here.value, here.grad_norm, start.size), start)
        rest, rests = state.rest, False
        if rest is not None:
            rest = select(ended, self._rest(rest, memory, shown.sample, iterations), rest)
            rests = stopping.rests(rest.level, iterations - rest.iteration)
        status = state.status
        for condition, reason in (
            (self._may_end(memory, shown, tol) & ended, int(Status.CONVERGED)),
            (first & ~usable, int(Status.NON_FINITE)),
            (ended & self._unbounded(memory, shown.sample, start, iterations), UNBOUNDED),
            (ended, outcome.status),
            (ended & rests, int(Status.NO_PROGRESS)),
        ):
            status = jnp.where((status == RUNNING) & condition, reason, status)
        return State(
            memory, shown, None if state.last is None else known, tol, start, rest, m.spent // 2,
            state.started | ended, iterations,
            state.restarts + ended * m.restarts(outcome.events), status,
        )  # fmt: skip

    def _rest(self, rest: Rest, memory: Any, shown: Sample, iterations: Scalar) -> Rest:
        noise, less = self.rule.noise(memory), shown.grad_norm < rest.norm
        smallest = select(less, (shown.grad_norm, iterations), (rest.norm, rest.iteration))
        level = stopping.count_level(self.m, rest.level, rest.value, shown.value, noise)
        return Rest(*level, *smallest)

    def _unbounded(self, memory: Any, shown: Sample, start: Start, iterations: Scalar) -> Scalar:
        """As `momentous.core.stopping.unbounded` has it."""
        m, accepted = self.m, self.rule.accepted(memory)
        risen = shown.value > accepted.value
        value, norm = select(
            risen, (accepted.value, accepted.grad_norm), (shown.value, shown.grad_norm)
        )
        fall = start.value - value

        def look() -> Any:
            point = select(risen, accepted.point, shown.point)
            square = vectors.inner(point, point)
            scale = abs(start.value), start.norm, jnp.maximum(1.0, start.size)
            down = stopping.falls_for_ever(m, *scale, fall, norm, square)
            return down | stopping.overflows(square, m.largest)

        far = fall > stopping.DIVERGENCE_FACTOR * start.norm
        return m.case(jnp.asarray(False), (far | (iterations % 32 == 0), look))

    def run(self, state: State, most: Any) -> State:
        """Until the run ends, or has taken so many evaluations; in lanes, until all have."""
        m = self.m

        def goes_on(state: State) -> Scalar:
            return state.runs & (state.evaluations < most)

        def turn(state: State) -> State:
            if not m.lanes:
                return self.after_one(state)
            all_lanes, m.mask = m.mask, goes_on(state)
            after = select(m.mask, self.after_one(state), state)
            m.mask = all_lanes
            return after  # type: ignore[no-any-return]

        return jax.lax.while_loop(lambda state: m.any(goes_on(state)), turn, state)  # type: ignore[no-any-return]

    def _may_end(self, memory: Any, shown: Known, tol: Scalar) -> Any:
        """Is the gradient small where f has not risen?"""
        if not self.rule.stops_at_tolerance:
            return False
        small = (shown.size <= tol) & jnp.isfinite(shown.sample.value)
        limit = self.rule.rise_limit(self.m, memory, shown.sample)
        if limit is None:
            return small
        return self.m.case(jnp.asarray(False), (small, lambda: ~rises(self.m, shown.sample, limit)))

    def _unless(self, again: Scalar, last: Known, point: Tree) -> Known:
        """What was evaluated last, where it is asked for again."""
        if not self.m.lanes:
            return jax.lax.cond(again, lambda: last, lambda: self._evaluated(point))  # type: ignore[no-any-return]
        return select(again, last, self._evaluated(point))  # type: ignore[no-any-return]

    def _evaluated(self, point: Tree) -> Known:
        box = self.m.box
        if box is not None:  # never outside; rules ask inside, and there this changes nothing
            point = box.clip(self.m, point)

        def fun(y: Tree) -> tuple[Scalar, Any]:
            return self.fun(y, self.args)

        if self.forward:
            value, aux = fun(point)
            gradient, _ = jax.jacfwd(fun, has_aux=True)(point)
        else:
            (value, aux), gradient = jax.value_and_grad(fun, has_aux=True)(point)
        value, penalty = number(value), self.m.penalty
        if penalty is not None:
            value = value + penalty.total(self.m, point)
            gradient = penalty.smooth(self.m, point, gradient)
        kinks = box or penalty
        length = self._length(gradient) if kinks is None else kinks.size(self.m, point, gradient)
        length = jnp.where(jnp.isfinite(value), length, jnp.nan)
        size = length if self.norm is None else number(self.norm(gradient))
        return Known(Sample(point, value, gradient, length), size, aux)

    def _length(self, gradient: Tree) -> Scalar:
        """Its norm, in one pass where squares are numbers of full precision."""
        square, numbers = vectors.inner(gradient, gradient), jnp.finfo(vectors.wide())
        safe = (square > float(numbers.tiny) / float(numbers.eps)) & jnp.isfinite(square)
        return self.m.case(jnp.sqrt(square), (~safe, lambda: vectors.norm(gradient)))

    def finished(self, state: State) -> State:
        """What a run returns: the point reported last or, where the run has not succeeded, the last
        accepted one if that is lower."""
        accepted, shown = self.rule.accepted(state.memory), state.shown
        limit = final_limit(self.m, accepted, state.start.value, self.rule.noise(state.memory))
        risen = is_one_of(state.status, SUCCESSES & OUTPUTS) & rises(self.m, shown.sample, limit)
        status = jnp.where(risen, int(Status.OBJECTIVE_ROSE), state.status)
        state = state._replace(status=status)
        lower = ~state.succeeded & (accepted.value < shown.sample.value)
        aux = shown.aux
        if jax.tree.leaves(aux):
            aux = jax.lax.cond(lower, lambda: self.fun(accepted.point, self.args)[1], lambda: aux)
        point, value = select(
            lower, (accepted.point, accepted.value), (shown.sample.point, shown.sample.value)
        )
        size = jnp.where(lower, jnp.nan, shown.size)
        # A run that still goes on when its evaluations are spent has ended by that.
        status = jnp.where(status == RUNNING, int(Status.MAX_EVALUATIONS), status)
        return state._replace(shown=Known(Sample(point, value), size, aux), status=status)


def _without_gradient(known: Known) -> Known:
    point, value, norm = known.sample.point, known.sample.value, known.sample.grad_norm
    return known._replace(sample=Sample(point, value, None, norm))
