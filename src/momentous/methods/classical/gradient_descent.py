"""Gradient descent, with a fixed step or by line search."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Self

from momentous.core.machine import has_kinks
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.space import Array
from momentous.core.status import Ending, Event, EventKind
from momentous.core.step import Report, Step
from momentous.methods.classical.projected_gradient import ProjectedGradient
from momentous.methods.endings import Events, left_the_domain
from momentous.methods.search.backtracking import (
    SHORTEST,
    Backtracking,
    Searching,
    first_step,
    halted,
)
from momentous.methods.search.rounding import Rounding


@record
class DescentMemory(Searching):
    """Where a method without extrapolation stands."""

    current: Sample  # x^k with its gradient, and its value where the method looks at values
    origin: Sample | None  # x0, where values do not decide which points are accepted

    def as_step(
        self, sample: Sample, step_size: float, events: Events = (), ending: Ending | None = None
    ) -> Step[Self]:
        """The step that led here."""
        accepted = self.current if self.origin is None else self.origin
        return Step(self, Report(sample, step_size, events, ending, accepted, self.rounding.seen))


@dataclasses.dataclass(frozen=True)
class GradientDescent(Backtracking[DescentMemory]):
    """Gradient descent, x^{k+1} = x^k - eta grad f(x^k).

    *Fixed step* (``step_size`` or ``gradient_lipschitz`` given): eta as given, or 1/L; one gradient
    per iteration, no values.  With eta = 1/L the smallest gradient norm is at most eps after
    2 L (f(x0) - inf f)/eps^2 iterations.  (RAGD, Algorithm 1 of Li & Lin [1]_, takes 1/(4L), and is
    this method as long as it restarts in every iteration.)

    *Backtracking* (nothing given, or ``backtracking=True``), as in the experiments of Marumo &
    Takeda [2]_: the step is halved until ``f(x^{k+1}) <= f(x^k) - eta |grad f(x^k)|^2/2``, which
    eta <= 1/L satisfies, and multiplied by 1/0.9 for the next iteration.  One gradient per
    iteration and one value per trial, on average at most 1.16 trials.  Every iteration lowers f,
    and 4 L (f(x0) - inf f)/eps^2 iterations are enough, if the first step is at least 1/(2L); no
    constant is needed.  The first step is 1/L with L from one extra gradient near x0, which scales
    with f and x.

    With bounds it is the projected gradient method (`ProjectedGradient`), always with backtracking:
    a step that is given is the first to be tried.

    The test knows rounding: where the values cannot tell, a step is accepted if the objective still
    falls at its end.  A rejected trial may then cost a gradient, too.  How noisy values are is
    measured when a search is long, or tries a shorter step than all before it, and asks for
    little: four values, a few times in a run.

    Parameters
    ----------
    step_size : float, optional
        eta; with ``backtracking=True`` the first one to be tried.
    gradient_lipschitz : float, optional
        L; eta = 1/L.  With ``backtracking=True`` a guess to begin with (1e-3 in [2]_).
    backtracking : bool, optional
        By default only where neither of the two is given.
    backoff : float
        What a rejected step is divided by.
    growth : float
        What an accepted step is multiplied by for the next iteration, 1/0.9.

    References
    ----------
    .. [1] H. Li, Z. Lin, JMLR 24 (2023), section 5.1; see :class:`momentous.RAGD`.
    .. [2] N. Marumo, A. Takeda, SIAM J. Optim. (2024); see :class:`momentous.ParameterFreeAGD`.
    """

    name = "gd"
    takes_bounds = takes_penalty = True
    ends_at_noise = True
    summary = "gradient descent, fixed step or backtracking"
    alternatives = (("step_size",), ("gradient_lipschitz",))
    guarantee = "O(eps^-2) gradients"
    cost = "1 gradient; with backtracking 1 value per trial"

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> Step[DescentMemory]:
        if has_kinks(oracle.space):
            return self._projected.start(oracle, x0, tol, seed)  # type: ignore[no-any-return]
        sample = oracle.gradient(x0)
        t = first_step(oracle, sample, self.step_size, self.gradient_lipschitz)
        origin = None if self._backtracks else Sample(x0, sample.value)
        return DescentMemory(t, t * SHORTEST, Rounding(), sample, origin).as_step(sample, t)

    @functools.cached_property
    def _projected(self) -> Any:
        step = self.step_size
        return ProjectedGradient(self.gradient_lipschitz if step is None else 1.0 / step)

    def step(self, oracle: Oracle, memory: DescentMemory) -> Step[DescentMemory]:
        if has_kinks(oracle.space):
            return self._projected.step(oracle, memory)  # type: ignore[no-any-return]
        x = memory.current
        if x.grad_norm == 0.0:
            return memory.as_step(x, memory.trial, ending=halted(x, memory.trial, x.value))
        return self._searched(oracle, memory) if self._backtracks else self._fixed(oracle, memory)

    def _fixed(self, oracle: Oracle, memory: DescentMemory) -> Step[DescentMemory]:
        x, eta = memory.current, memory.trial
        point, moved = oracle.space.stepped(x.point, -eta, x.gradient, x.point)
        if moved == 0.0:
            return memory.as_step(x, eta, ending=halted(x, eta, 0.0))
        sample = oracle.gradient(point)
        if not sample.has_finite_gradient:
            events = (Event(EventKind.NON_FINITE, sample.grad_norm),)
            return memory.as_step(sample, eta, events, left_the_domain(sample, eta))
        return dataclasses.replace(memory, current=sample).as_step(sample, eta)

    def _searched(self, oracle: Oracle, memory: DescentMemory) -> Step[DescentMemory]:
        x = memory.current
        found = self._search(oracle, x, memory)
        here = found.sample if found.accepted else x
        t = found.step_size
        trial = t * self.growth if found.accepted else t / self.backoff
        after = DescentMemory(trial, found.shortest, found.rounding, here, None)
        return after.as_step(here, t, found.events, found.ending(x))
