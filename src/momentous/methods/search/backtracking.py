"""Backtracking, the line search that the classical methods share: how far to go along a direction.

One test serves them all.  Along -p a step t is accepted if ``f(x - t p) <= f(x) - t <p, g>/2``: for
p = g and t = 1/L that is the descent lemma, for a conjugate direction Armijo's rule with 1/2.
"""

from __future__ import annotations

import dataclasses
import math

from momentous.core.machine import Host
from momentous.core.method import Method
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.space import Array, Space
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.core.step import M
from momentous.methods.checks import check, check_positive
from momentous.methods.endings import Events, no_progress, zero_gradient
from momentous.methods.search.probe import probed_lipschitz
from momentous.methods.search.rounding import Rounding

# So many times the noise must the required decrease be for values to decide in any case.
SIGNAL = 10.0
# A search that goes on for longer asks how noisy the values are.
PATIENCE = 3
# Halvings in one search; a search that needs more goes on in the next step.
MOST_HALVINGS = 60
# A step this much shorter than all that lowered f is not taken on the word of the gradient alone.
SHORTEST = 2.0**-20


@record
class Searching:
    """What a memory keeps for the next search."""

    trial: float  # the first step size that it tries
    shortest: float  # the least that the gradient alone may accept
    rounding: Rounding  # how noisy values are


@record
class Found:
    """The end of a line search."""

    sample: Sample  # the last trial, with its value, and its gradient where it was taken
    step_size: float  # t of that trial
    accepted: bool
    stuck: bool  # not accepted, and too short for another trial to be of use
    events: Events
    shortest: float  # these two are for the next search
    rounding: Rounding

    def ending(self, here: Sample) -> Ending | None:
        """Is this the end of the run, at the point that the search began with?"""
        return halted(here, self.step_size, self.sample.value) if self.stuck else None


@dataclasses.dataclass(frozen=True)
class Backtracking(Method[M]):
    """A method with a fixed step along the gradient, or one that is found by backtracking."""

    step_size: float | None = None
    gradient_lipschitz: float | None = None
    backtracking: bool | None = None
    backoff: float = 2.0
    growth: float = 1 / 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steps(self, self.step_size, self.gradient_lipschitz, self.growth)
        check(self, "backoff", 1 < self.backoff < math.inf, "must be above 1")
        if self.step_size is None and self.gradient_lipschitz is None and not self._backtracks:
            raise ValueError(
                f"{type(self).__name__}: without backtracking give step_size= or "
                "gradient_lipschitz="
            )

    @property
    def _backtracks(self) -> bool:
        """As asked for; by default where no step size follows from what is given."""
        if self.backtracking is not None:
            return self.backtracking
        return self.step_size is None and self.gradient_lipschitz is None

    def _search(
        self, oracle: Oracle, here: Sample, memory: Searching, *, with_gradient: bool = True
    ) -> Found:
        """The search along the gradient."""
        g, norm = here.gradient, here.grad_norm
        t = limited(oracle.space, memory.trial, norm)
        known = memory.shortest, memory.rounding
        return search(
            oracle, here, g, norm * norm, t, *known, self.backoff, with_gradient=with_gradient
        )


def search(
    oracle: Oracle,
    here: Sample,
    p: Array,
    slope: float,
    first: float,
    shortest: float,
    rounding: Rounding,
    backoff: float = 2.0,
    *,
    most: int = MOST_HALVINGS,
    guarded: bool = True,
    with_gradient: bool = True,
) -> Found:
    """Try the points x - t p, t = first, first/backoff, ..., until f is lowered by t slope/2.

    ``slope`` is <p, g> at x.  Guarded, the search knows rounding: where the values at both ends are
    equal within rounding and the decrease asked for is not well above it, the test is replaced by
    its first-order equivalent, that f still falls along -p at the trial point.  That takes the
    gradient there, and steps below ``shortest``, a small part of the shortest that values ever
    accepted, are not worth it: something else is wrong.  The noise of the values is measured where
    the fourth trial fails, or one shorter than all that values ever accepted.  A trial is never
    accepted where the value is not finite, nor ``with_gradient`` (which takes it at the end) where
    the gradient is not.
    """
    space, t = oracle.space, first
    events: Events = ()
    for trials in range(1, most + 2):
        point = space.combination(here.point, -t, p)
        value, required = oracle.value(point), t * slope / 2
        falls, accepted = value <= here.value - required, math.isfinite(value)
        # Noise may also shorten the step by one halving per search: then no search is long.
        unusual = trials > PATIENCE or t * SHORTEST < shortest
        doubtful = unusual and rounding.doubts(required)
        if guarded and accepted and not falls and doubtful:
            rounding = rounding.measured(oracle, here, p, slope, required, -t)
        if not accepted:
            events = (Event(EventKind.NON_FINITE, value),)
        elif guarded and _too_small_to_tell(space, rounding, here.value, value, required):
            if t < shortest or space.distance_squared(point, here.point) == 0.0:
                tried = Sample(point, value)
                return Found(tried, t, False, True, events, shortest, rounding)
            there = oracle.gradient(point)
            accepted = there.has_finite_gradient and space.inner(p, there.gradient) >= 0.0
        else:
            accepted = falls
            if falls:
                shortest = min(shortest, t * SHORTEST)
                rounding = rounding.trusting(required, here.value)
        if accepted and with_gradient:
            oracle.gradient(point)
        known = oracle.last or Sample(point, value)
        if accepted and known.gradient is not None and not known.has_finite_gradient:
            accepted, events = False, (Event(EventKind.NON_FINITE, known.grad_norm),)
        if accepted or trials == most + 1:
            break
        t /= backoff
    stuck = not accepted and space.distance_squared(point, here.point) == 0.0
    return Found(known, t, accepted, stuck, events, shortest, rounding)


def _too_small_to_tell(
    space: Space, rounding: Rounding, before: float, after: float, required: float
) -> bool:
    """Do the values say nothing about a decrease as small as the one required?"""
    noise = rounding.between(Host.of(space), before, after)
    return abs(after - before) <= noise and required <= SIGNAL * noise


def first_step(
    oracle: Oracle, sample: Sample, step_size: float | None, gradient_lipschitz: float | None
) -> float:
    """The step size as given, or 1/L with L as given or, from one extra gradient, as found."""
    if step_size is not None:
        return step_size
    if gradient_lipschitz is not None:
        return 1 / gradient_lipschitz
    found = 1 / probed_lipschitz(oracle, sample)
    oracle.recall(sample)
    return found


def limited(space: Space, step_size: float, norm: float) -> float:
    """The step size, if a step along a vector of that norm stays within what the dtype can hold.

    Where f has no lower bound, step sizes grow without bound.
    """
    return min(step_size, math.sqrt(space.largest) / max(norm, 1.0))


def halted(sample: Sample, step_size: float, value: float) -> Ending:
    """Why there is no way on from a sample: the last trial, of that step size, had that value."""
    norm = sample.grad_norm
    if norm == 0.0:
        return zero_gradient(step_size)
    if not math.isfinite(value):
        return Ending(
            Status.NON_FINITE,
            f"the objective or its gradient is not finite (the value is {value}) even for the step "
            f"size {step_size:.3g}, from a point with gradient norm {norm:.3g}; check fun and jac "
            "around result.x",
            {"grad_norm": norm, "step_size": step_size},
        )
    return no_progress(
        f"a step of size {step_size:.3g} changes the objective by no more than rounding, and "
        f"longer ones do not lower it, at gradient norm {norm:.3g}",
        grad_norm=norm,
        step_size=step_size,
    )


def check_steps(
    method: Method, step_size: float | None, gradient_lipschitz: float | None, growth: float
) -> None:
    """At most one thing says how long the first step is, and accepted steps do not get shorter."""
    owner = type(method).__name__
    check_positive(method, "step_size", "gradient_lipschitz")
    if math.inf in (step_size, gradient_lipschitz):
        raise ValueError(f"{owner}: step_size and gradient_lipschitz must be finite")
    if step_size is not None and gradient_lipschitz is not None:
        raise ValueError(
            f"{owner}: step_size={step_size!r} (eta) and gradient_lipschitz={gradient_lipschitz!r} "
            "(eta = 1/L) say the same thing; give one of them"
        )
    check(method, "growth", 1 <= growth < math.inf, "must be at least 1")
