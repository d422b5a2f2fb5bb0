"""RAGD, RHB and the perturbed RAGD as machines: Algorithms 1 and 3, and Theorem 3."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from momentous.core import passes
from momentous.core.status import Status
from momentous.jax.machine import ITERATE, Evaluation, Machine, Progress, by_promise
from momentous.jax.vectors import (
    Limits,
    Scalar,
    Tree,
    combination,
    norm,
    number,
    run,
    select,
)
from momentous.methods.restarted.fixed_radius import FixedRadius
from momentous.methods.restarted.momentum import HeavyBall, Momentum
from momentous.methods.restarted.perturbed import PerturbedRAGD

OUTPUT = 1  # the evaluation is that of the averaged point, with which a run ends
START = 2  # the evaluation is that of x0, before it is displaced


class Average(NamedTuple):
    """The mean of y^0..y^k, and what it was at the shortest step (`methods.restarted.epoch`)."""

    mean: Tree
    snapshot: Tree
    shortest: Scalar

    @staticmethod
    def none(x: Tree) -> Average:
        return Average(x, x, number(jnp.inf))

    def added(self, k: Scalar, point: Tree, moved: Scalar, length: Scalar) -> Average:
        """With y^k, from which a step of that squared length leads, in an epoch of K = length."""
        first = k == 0
        mean = select(first, point, combination(self.mean, number(1) / (k + 1), point, self.mean))
        before = jnp.where(first, jnp.inf, self.shortest)
        shorter = (k >= length // 2) & (moved < before)
        snapshot = select(shorter, mean, self.snapshot)
        return Average(mean, snapshot, jnp.where(shorter, moved, before))


class FixedMemory(NamedTuple):
    x: Tree  # x^k
    ahead: Tree  # x^k + (1 - theta)(x^k - x^{k-1})
    k: Scalar
    travelled: Scalar  # S
    average: Average
    phase: Scalar
    draws: Scalar  # perturbations drawn so far
    progress: Progress


def asked(scheme: Momentum, x: Tree, ahead: Tree) -> Tree:
    """Where the iteration takes its gradient."""
    return x if isinstance(scheme, HeavyBall) else ahead


def restart_point(scheme: Momentum, z: Tree, x: Tree, theta: Any, restarts: Scalar) -> Tree:
    """Where the next epoch starts if the epoch restarts, and x^{k+1} = z otherwise."""
    if not isinstance(scheme, HeavyBall):
        return z
    a = (1 - 2 * theta) * (1 - theta)
    return combination(z, jnp.where(restarts, a / (1 + a), 0.0), x, z)


class FixedRadiusMachine(Machine):
    """`momentous.methods.restarted.fixed_radius`, compiled."""

    def __init__(self, method: FixedRadius, x0: Tree, tol: float, key: Any = None):
        self.method, self.scheme = method, method.scheme
        self.limits = Limits.of(x0)
        self.parameters = method.resolved(tol, self.limits.dimension)
        self.displacement = 0.0
        if isinstance(method, PerturbedRAGD):
            self.displacement = method.displacement(self.parameters)
        self.key = jax.random.key(0) if key is None else key

    def begin(self, x0: Tree) -> FixedMemory:
        first = START if self.displacement else ITERATE
        return FixedMemory(
            x0, x0, jnp.asarray(0), number(0.0), Average.none(x0), jnp.asarray(first),
            jnp.asarray(0), Progress.none(),
        )  # fmt: skip

    def point(self, memory: FixedMemory) -> Tree:
        return asked(self.scheme, memory.x, memory.ahead)

    def advance(
        self, memory: FixedMemory, here: Evaluation, tol: Scalar
    ) -> tuple[FixedMemory, Scalar]:
        p, k = self.parameters, memory.k + 1
        (z,), (moved,) = run(
            passes.STEPPED, (memory.ahead, here.gradient, memory.x), (-p.step_size,)
        )  # lines 3-4
        output = memory.phase == OUTPUT
        iterates = memory.phase == ITERATE
        travelled = memory.travelled + moved
        bad = ~(here.usable & jnp.isfinite(moved))
        far = ~bad & ~(k * travelled <= p.radius * p.radius)  # line 6
        ends = bad | far
        completes = ~ends & (k >= p.epoch_length)  # line 2
        average = memory.average.added(memory.k, here.point, moved, p.epoch_length)
        x = restart_point(self.scheme, z, memory.x, p.theta, far)
        x = select(bad | ~iterates, memory.x, x)
        momentum = jnp.where(ends | completes | ~iterates, 0.0, number(1 - p.theta))
        if self.displacement:
            x, drawn = self._displaced(memory, here, x, far | (memory.phase == START))
        else:
            drawn = memory.draws
        x = select(iterates & completes, average.snapshot, x)  # lines 10-11
        progress = memory.progress.counted(iterates & ~completes, iterates & (far | bad & (k > 1)))
        progress = progress.counted(output)
        progress = progress.ending(iterates & bad & (k == 1), Status.NON_FINITE)
        if self.method.stops_at_tolerance:
            small = here.usable & (here.size <= tol)
            progress = progress.ending(output & small, Status.CONVERGED)
            progress = progress.ending(iterates & ~completes & small, Status.CONVERGED)
        progress = progress.ending(output, by_promise(here.norm, p.promise, tol))
        after = FixedMemory(
            x=x,
            ahead=combination(x, momentum, x, memory.x),
            k=jnp.where(ends | completes | ~iterates, 0, k),
            travelled=jnp.where(ends | ~iterates, 0.0, travelled),
            average=average,
            phase=jnp.where(iterates & completes, OUTPUT, ITERATE),
            draws=drawn,
            progress=progress,
        )
        return after, here.usable & ~(iterates & completes)

    def _displaced(
        self, memory: FixedMemory, here: Evaluation, x: Tree, begins: Scalar
    ) -> tuple[Tree, Scalar]:
        """x moved at random within a ball where an epoch begins and the gradient is small."""
        p, count = self.parameters, self.limits.dimension
        displaced = begins & ~(here.norm > p.radius / p.step_size) & (count > 0)

        def draw(x: Tree) -> Tree:
            key = jax.random.fold_in(self.key, memory.draws)
            leaves, tree = jax.tree.flatten(x)
            keys = jax.random.split(key, len(leaves) + 1)
            direction = tree.unflatten(
                [
                    jax.random.normal(k, leaf.shape, leaf.dtype)
                    for k, leaf in zip(keys[1:], leaves, strict=True)
                ]
            )
            share = jax.random.uniform(keys[0], dtype=number(0.0).dtype) ** (1 / max(count, 1))
            return combination(x, self.displacement * share / norm(direction), direction)

        return jax.lax.cond(displaced, draw, lambda x: x, x), memory.draws + displaced
