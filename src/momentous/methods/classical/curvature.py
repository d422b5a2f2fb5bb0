"""What L-BFGS asks of its memory of the curvature, and the test that a pair must pass."""

from __future__ import annotations

import abc
import functools
import math
from typing import Any

from momentous.core.oracle import Oracle, Sample
from momentous.core.space import Array, Space
from momentous.methods.search.wolfe import Ahead

# A pair whose <s, y> is not this much of |s| |y| says nothing that can be relied on.
SMALLEST_COSINE = 1e-10
# So many times the noise of values must a correction by them be; and its range.
SIGNAL = 12.0
LEAST_CORRECTION, MOST_CORRECTION = 0.5, 2.0


class Curvature(abc.ABC):
    """The pairs s_i, y_i of a run: steps, and the changes of the gradient along them.

    It never changes: a new pair makes a new one.
    """

    __slots__ = ()

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of pairs."""

    @abc.abstractmethod
    def at(self, space: Space, sample: Sample) -> Curvature:
        """The same for a run that goes on at another point."""

    @abc.abstractmethod
    def extended(self, space: Space, here: Sample, there: Sample, noise: float) -> Curvature:
        """With the pair of the step from here to there, if it is of use; ``noise`` is that of the
        difference of their values."""

    @abc.abstractmethod
    def direction(self, space: Space, gradient: Array) -> Array:
        """-H g at the point where the pairs end, as a fresh array."""

    def line(self, oracle: Oracle, here: Sample) -> tuple[Array, float, Ahead | None]:
        """That direction d, <g, d>, and what is known beyond."""
        direction = self.direction(oracle.space, here.gradient)
        return direction, oracle.space.inner(here.gradient, direction), None

    @abc.abstractmethod
    def packed(self) -> Any:
        """The record that stands for it in a checkpoint."""


def correction(fall: float, slope: float, sy: float, noise: float) -> float:
    """t, by which <s, y> is better multiplied, by what the values say; 1 if that is noise.

    <s, y> is a mean of the curvature along a step, and t <s, y> that at its end, up to O(|s|^4): of
    the cubic with the values and slopes at both ends.  BFGS then updates H to V'HV + s s'/(t <s,
    y>), with V = I - y s'/<s, y> [1]_.  Like BFGS, and unlike a correction of y along s [2]_, this
    is the same method in all linear coordinates.  ``fall`` is f(x) - f(x + s), ``slope``
    <grad f(x), s>; <s, y> > 0.

    .. [1] M. C. Biggs, "Minimization algorithms making use of non-quadratic properties of the
       objective function", J. Inst. Maths Applics 8 (1971); Y. Yuan, "A modified BFGS algorithm for
       unconstrained optimization", IMA J. Numer. Anal. 11 (1991).
    .. [2] J. Z. Zhang, N. Y. Deng, L. H. Chen, "New quasi-Newton equation and related methods for
       unconstrained optimization", J. Optim. Theory Appl. 102 (1999).
    """
    change = 6.0 * fall + 3.0 * (sy + 2.0 * slope)
    if not abs(change) > SIGNAL * noise:
        return 1.0
    return min(max(1.0 + change / sy, LEAST_CORRECTION), MOST_CORRECTION)


def is_of_use(ss: float, sy: float, yy: float) -> bool:
    """Does a pair with these products keep H positive definite, beyond rounding?"""
    return yy > 0 and sy > SMALLEST_COSINE * math.sqrt(ss) * math.sqrt(yy)


@functools.cache
def blas() -> Any:
    """SciPy's BLAS, whose calls cost a fraction of NumPy's; imported where a run needs it."""
    from scipy.linalg import blas as routines

    return routines
