"""How long the first step is: L from gradients near x0, as in `methods.search.backtracking`."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from momentous.jax.machine import Evaluation
from momentous.jax.vectors import (
    Limits,
    Scalar,
    Tree,
    combination,
    distance_squared,
    norm,
    number,
)

MOST = 6  # trials


class Probe(NamedTuple):
    """The trial under way: the gradient at x0 - t g/|g| has been asked for."""

    t: Scalar
    norm: Scalar  # |g|
    trials: Scalar

    @staticmethod
    def none() -> Probe:
        return Probe(number(0.0), number(0.0), jnp.asarray(0))

    @staticmethod
    def first(limits: Limits, here: Evaluation) -> Probe:
        """After the evaluation at x0."""
        t = math.sqrt(limits.rounding) * jnp.maximum(1.0, norm(here.point))
        return Probe(t, here.norm, jnp.asarray(1))

    def point(self, x0: Tree, gradient: Tree) -> Tree:
        return combination(x0, -self.t / self.norm, gradient)

    def answered(
        self, asked: Scalar, here: Evaluation, x0: Tree, gradient: Tree, limits: Limits
    ) -> tuple[Scalar, Scalar, Probe]:
        """If a trial was asked for: is L found; L; and otherwise the next trial, farther away where
        the function is flat and nearer where it is not finite."""
        apart, change = jax.lax.cond(
            asked,
            lambda: (distance_squared(here.point, x0), distance_squared(here.gradient, gradient)),
            lambda: (number(0.0), number(0.0)),
        )
        apart, change = jnp.sqrt(apart), jnp.sqrt(change)
        slope = jnp.where(apart > 0.0, change / apart, 0.0)
        good = here.usable & (slope > 0.0) & jnp.isfinite(slope)
        found = good | (self.trials >= MOST)
        # As a last resort the first step has length 1.
        lipschitz = jnp.where(good, rounded(slope, limits), self.norm)
        t = self.t * jnp.where(here.usable, 1e2, 1e-2)
        return found, lipschitz, Probe(t, self.norm, self.trials + 1)


def rounded(slope: Scalar, limits: Limits) -> Scalar:
    """The number with a quarter of the digits of the dtype: the rest is rounding."""
    bits = round(-math.log2(limits.rounding) / 4)
    mantissa, exponent = jnp.frexp(slope)
    return jnp.ldexp(jnp.round(mantissa * 2**bits), exponent - bits)
