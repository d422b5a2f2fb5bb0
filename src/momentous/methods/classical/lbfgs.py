"""L-BFGS, step by step and on any array."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from momentous.core.machine import Host
from momentous.core.method import Method
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.space import Array, Space
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.core.step import Report, Step
from momentous.methods.checks import check
from momentous.methods.classical.curvature import Curvature
from momentous.methods.classical.fused_pairs import FusedPairs
from momentous.methods.classical.limited_memory import Listed, Stacked
from momentous.methods.classical.whole_matrix import WholeMatrix
from momentous.methods.endings import Events, zero_gradient
from momentous.methods.search.rounding import Rounding
from momentous.methods.search.wolfe import search

# Up to so many variables the default is the matrix of all pairs: as costly there as 80 pairs.
WHOLE = 128
# Pairs that the default keeps up to so many variables.  A doubling saves gradients, and where
# vectors are long it costs more than it saves (benchmarks/overhead.py).
MEMORY = ((500, 40), (50_000, 20), (math.inf, 10))


def default_memory(dimension: float) -> int:
    """Pairs to keep for so many variables: a function of nothing else, so that runs can be had
    again."""
    return next(pairs for size, pairs in MEMORY if dimension <= size)


@record
class LBFGSMemory:
    """The iterate, and what is known of the curvature."""

    current: Sample
    curvature: Curvature
    rounding: Rounding  # how noisy values are
    corrects: bool = True  # until a search fails: are pairs corrected by values?

    def as_step(
        self, step_size: float, events: Events = (), ending: Ending | None = None
    ) -> Step[LBFGSMemory]:
        """The step that led here."""
        here, noise = self.current, self.rounding.seen
        return Step(self, Report(here, step_size, events, ending, here, noise))


@dataclasses.dataclass(frozen=True)
class LBFGS(Method[LBFGSMemory]):
    """Limited-memory BFGS with a weak Wolfe line search (Nocedal [1]_, Liu & Nocedal [2]_).

    The direction is -H g, with H the BFGS update of (<s, y>/<y, y>) I of the newest pair by all
    pairs that are kept, in compact form [3]_; up to 128 variables these are all pairs of the run,
    and H is kept as a matrix.  What a pair says of the curvature along its step is corrected by
    the values [6]_.  A step length t is sought with
    f(x + t d) <= f(x) + c1 t <g, d> and <grad f(x + t d), d> >= c2 <g, d>, by a bracket as in [4]_
    whose trials are interpolated rather than bisected.  The first trial is 1, in the first
    iteration 1/|g|, from where the next may be far.  Where values cannot tell, within their noise,
    the first condition is replaced by <grad f(x + t d), d> <= (2 c1 - 1) <g, d>, its equivalent
    for a quadratic [5]_.  A search that runs out of trials takes the last that lowered f; one that
    has none drops the pairs and goes on with the gradient; if that fails too, the run ends.

    No guarantee for nonconvex functions.  One value and one gradient per trial, seldom more than
    one trial per iteration.

    Parameters
    ----------
    memory : int, optional
        Pairs to keep.  By default all of them up to 128 variables, 40 up to 500, 20 up to 50,000,
        and then 10.
    max_trials : int
        The most trials of a line search.
    sufficient_decrease, curvature : float
        c1 and c2, 0 < c1 < c2 < 1 and c1 < 1/2.

    References
    ----------
    .. [1] J. Nocedal, "Updating Quasi-Newton Matrices with Limited Storage", Math. Comp. 35 (1980).
    .. [2] D. C. Liu, J. Nocedal, "On the Limited Memory BFGS Method for Large Scale Optimization",
       Math. Programming 45 (1989).
    .. [3] R. H. Byrd, J. Nocedal, R. B. Schnabel, "Representations of Quasi-Newton Matrices and
       Their Use in Limited Memory Methods", Math. Programming 63 (1994).
    .. [4] A. S. Lewis, M. L. Overton, "Nonsmooth Optimization via Quasi-Newton Methods", Math.
       Programming 141 (2013): the weak Wolfe bisection.
    .. [5] W. W. Hager, H. Zhang, "A New Conjugate Gradient Method with Guaranteed Descent and an
       Efficient Line Search", SIAM J. Optim. 16 (2005): the approximate Wolfe conditions.
    .. [6] M. C. Biggs, "Minimization Algorithms Making Use of Non-quadratic Properties of the
       Objective Function", J. Inst. Maths Applics 8 (1971).
    """

    name = "lbfgs"
    ends_at_noise = True
    summary = "limited-memory BFGS"
    guarantee = "none"
    cost = "1 value and 1 gradient per trial (about 1)"

    memory: int | None = None
    sufficient_decrease: float = 1e-4
    curvature: float = 0.9
    max_trials: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("memory", "max_trials"):
            value = getattr(self, name)
            if value is None and name == "memory":
                continue
            check(self, name, isinstance(value, int) and value >= 1, "must be a whole number >= 1")
        c1, c2 = self.sufficient_decrease, self.curvature
        if not (0 < c1 < 0.5 and c1 < c2 < 1):
            raise ValueError(
                f"LBFGS: sufficient_decrease={c1!r} (c1) and curvature={c2!r} (c2) must satisfy "
                "0 < c1 < 1/2 and c1 < c2 < 1"
            )

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> Step[LBFGSMemory]:
        sample = oracle.gradient(x0)
        rounding = Rounding.at(Host.of(oracle.space), sample.value)
        curvature = self._no_pairs(oracle.space)
        return LBFGSMemory(sample, curvature, rounding).as_step(0.0)

    def moved_to(
        self, oracle: Oracle, memory: LBFGSMemory, sample: Sample, tol: float | None, seed: int
    ) -> Step[LBFGSMemory]:
        """With the pairs: they are still what is known of the curvature."""
        curvature = memory.curvature.at(oracle.space, sample)
        return dataclasses.replace(memory, current=sample, curvature=curvature).as_step(0.0)

    def step(self, oracle: Oracle, memory: LBFGSMemory) -> Step[LBFGSMemory]:
        space, here = oracle.space, memory.current
        if here.grad_norm == 0.0:
            return memory.as_step(0.0, ending=zero_gradient(0.0))
        direction, slope, ahead = memory.curvature.line(oracle, here)
        if not (slope < 0 and math.isfinite(slope)):
            return self._forgotten(oracle, memory, "this is not a descent direction")
        known = len(memory.curvature) > 0
        found = search(
            oracle,
            here,
            direction,
            slope,
            1.0 if known else 1.0 / here.grad_norm,
            memory.rounding,
            conditions=(self.sufficient_decrease, self.curvature),
            most=self.max_trials,
            guess=not known,
            ahead=ahead,
        )
        if found.sample is None:
            memory = dataclasses.replace(memory, rounding=found.rounding)
            return self._forgotten(oracle, memory, found.seen)
        there, rounding = found.sample, found.rounding
        noise = (
            rounding.between(Host.of(space), here.value, there.value)
            if memory.corrects
            else math.inf
        )
        curvature = memory.curvature.extended(space, here, there, noise)
        after = LBFGSMemory(there, curvature, rounding, memory.corrects)
        return Step(after, Report(there, found.step_size, (), None, there, rounding.seen))

    def inverse_hessian(self, space: Space, memory: LBFGSMemory) -> Callable[[], Any] | None:
        """H, for vectors on the host: what has stayed on a device is not kept for this."""
        curvature = memory.curvature
        on_host = isinstance(curvature, WholeMatrix) or space.library is np.ndarray
        if space.has_own_inner or space.is_part or not on_host:
            return None
        return functools.partial(_inverse_hessian, curvature, space.size)

    def _no_pairs(self, space: Space) -> Curvature:
        """What is known before the first step."""
        most, size = self.memory, space.dimension
        if most is None:
            if space.has_own_inner:  # x is a part of a vector
                ones = space.from_numpy(np.ones(space.shape))
                size = round(space.inner(ones, ones))
            elif size <= WHOLE and not space.is_part:
                return WholeMatrix.unknown(size)
            most = default_memory(size)
        if Stacked.suits(space):
            return Stacked.filled(most, space.shape)
        return FusedPairs(most) if space.fuses else Listed(most)

    def _forgotten(self, oracle: Oracle, memory: LBFGSMemory, why: str) -> Step[LBFGSMemory]:
        """No way along that direction: drop the pairs; without pairs there is no way at all."""
        if memory.curvature:
            event = Event(EventKind.RESTART, float(len(memory.curvature)))
            # Values that cancel are noisier than they look: they may have spoilt the pairs.
            after = dataclasses.replace(
                memory, curvature=self._no_pairs(oracle.space), corrects=False
            )
            return after.as_step(0.0, (event,))
        norm = memory.current.grad_norm
        ending = Ending(
            Status.NO_PROGRESS,
            f"no step along the gradient, of norm {norm:.3g}, is accepted: {why}",
            {"grad_norm": norm, "trials": self.max_trials},
        )
        return memory.as_step(0.0, ending=ending)


def _inverse_hessian(curvature: Curvature, size: int) -> Any:
    from momentous.methods.classical.inverse_hessian import InverseHessian  # imports scipy.sparse

    return InverseHessian.of(curvature, size)
