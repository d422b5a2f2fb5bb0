"""How long the first step is: the Lipschitz constant L of the gradient from gradients near x0."""

from __future__ import annotations

import math

from momentous.core.machine import Machine
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.space import Array

TRIALS = 6


@record
class Probe:
    """L = |grad f(x0 - t g/|g|) - g|/t with a small t.

    Where the function is flat (or not finite) at that distance, larger (smaller) ones are tried; as
    a last resort the answer makes the first step one of length 1.
    """

    gradient: Array  # g, at x0
    norm: float  # |g|
    distance: float  # t of the trial under way
    trials: int = 1
    found: bool = False
    lipschitz: float = 1.0

    @staticmethod
    def at(m: Machine, here: Sample) -> Probe:
        t = math.sqrt(m.rounding) * m.maximum(1.0, m.norm(here.point))
        return Probe(here.gradient, here.grad_norm, t, found=here.grad_norm == 0.0)

    def point(self, m: Machine, x0: Array) -> Array:
        """Where the trial is."""
        return m.combination(x0, -self.distance / self.norm, self.gradient)

    def answered(self, m: Machine, x0: Array, here: Sample) -> Probe:
        """After the trial."""
        apart, change = m.distance(here.point, x0), m.distance(here.gradient, self.gradient)
        finite = m.isfinite(here.grad_norm)
        slope = m.where(apart > 0.0, change / m.where(apart > 0.0, apart, 1.0), 0.0)
        good = finite & (slope > 0.0) & m.isfinite(slope)
        # A difference of gradients has half of the digits of the dtype.  Half of these are kept:
        # the rest is rounding, which differs with BLAS, with the machine and with the number of
        # ranks, and would make their runs differ.
        bits = round(-math.log2(m.rounding) / 4)
        return m.but(
            self,
            distance=self.distance * m.where(finite, 1e2, 1e-2),
            trials=self.trials + 1,
            found=good | (self.trials >= TRIALS),
            lipschitz=m.where(good, m.rounded(m.where(good, slope, 1.0), bits), self.norm),
        )
