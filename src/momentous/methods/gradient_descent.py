"""Gradient descent, and the line search that it shares with the other classical methods.

One test serves them all.  Along -p a step t is accepted if ``f(x - t p) <= f(x) - t <p, g>/2``: for
p = g and t = 1/L that is the descent lemma, for a conjugate direction Armijo's rule with 1/2.
"""

from __future__ import annotations

import dataclasses
import math

from momentous.core.arrays import Array, Space
from momentous.core.method import Method, State
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.methods.epoch import check_positive
from momentous.methods.probe import probed_lipschitz

# So many times the noise must the required decrease be for values to decide in any case.
SIGNAL = 10.0
# Halvings in one search; a search that needs more goes on in the next step.
MOST_HALVINGS = 60
# A step this much shorter than all that lowered f is not taken on the word of the gradient alone.
SHORTEST = 2.0**-20


@record
class Found:
    """The end of a line search."""

    sample: Sample  # the last trial, with its value, and its gradient where it was taken
    step_size: float  # t of that trial
    trials: int
    accepted: bool
    stuck: bool  # not accepted, and too short for another trial to be of use
    events: tuple[Event, ...]
    shortest: float  # for the next search

    def ending(self, here: Sample) -> Ending | None:
        """Is this the end of the run, at the point that the search began with?"""
        return halted(here, self.step_size, self.sample.value) if self.stuck else None


def search(
    oracle: Oracle,
    here: Sample,
    p: Array,
    slope: float,
    first: float,
    shortest: float,
    *,
    backoff: float = 2.0,
    most: int = MOST_HALVINGS,
    guarded: bool = True,
    with_gradient: bool = True,
) -> Found:
    """Try the points x - t p, t = first, first/backoff, ..., until f is lowered by t slope/2.

    ``slope`` is <p, g> at x.  Guarded, the search knows rounding: where the values at both ends are
    equal within rounding and the decrease asked for is not well above it, the test is replaced by
    its first-order equivalent, that f still falls along -p at the trial point.  That takes the
    gradient there, and steps below ``shortest``, a small part of the shortest that values ever
    accepted, are not worth it: something else is wrong.  A trial is never accepted where the value
    is not finite, nor ``with_gradient`` (which takes it at the end) where the gradient is not.
    """
    space, t = oracle.space, first
    events: tuple[Event, ...] = ()
    for trials in range(1, most + 2):
        point = space.combination(here.point, -t, p)
        value = oracle.value(point)
        accepted = math.isfinite(value)
        if not accepted:
            events = (Event(EventKind.NON_FINITE, value),)
        elif guarded and _within_rounding(space, here.value, value, t * slope / 2):
            if t < shortest or space.distance_squared(point, here.point) == 0.0:
                return Found(Sample(point, value), t, trials, False, True, events, shortest)
            there = oracle.gradient(point)
            accepted = there.finite and space.inner(p, there.gradient) >= 0.0
        else:
            accepted = value <= here.value - t * slope / 2
            shortest = min(shortest, t * SHORTEST) if accepted else shortest
        if accepted and with_gradient:
            oracle.gradient(point)
        known = oracle.last or Sample(point, value)
        if accepted and known.gradient is not None and not known.finite:
            accepted, events = False, (Event(EventKind.NON_FINITE, known.grad_norm),)
        if accepted or trials == most + 1:
            break
        t /= backoff
    stuck = not accepted and space.distance_squared(point, here.point) == 0.0
    return Found(known, t, trials, accepted, stuck, events, shortest)


def _within_rounding(space: Space, before: float, after: float, required: float) -> bool:
    error = space.value_noise(before, after)
    return abs(after - before) <= error and required <= SIGNAL * error


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
    longest = math.sqrt(float(space.xp.finfo(space.dtype).max))
    return min(step_size, longest / max(norm, 1.0))


def halted(sample: Sample, step_size: float, value: float) -> Ending:
    """Why there is no way on from a sample: the last trial, of that step size, had that value."""
    norm = sample.grad_norm
    numbers = {"grad_norm": norm, "step_size": step_size}
    if norm == 0.0:
        return Ending(Status.COMPLETED, "the gradient is exactly zero", numbers)
    if not math.isfinite(value):
        return Ending(
            Status.NON_FINITE,
            f"the objective or its gradient is not finite (the value is {value}) even for the step "
            f"size {step_size:.3g}, from a point with gradient norm {norm:.3g}; check fun and jac "
            "around result.x",
            numbers,
        )
    return Ending(
        Status.NO_PROGRESS,
        f"a step of size {step_size:.3g} changes the objective by no more than rounding, and "
        f"longer ones do not lower it, at gradient norm {norm:.3g}; a larger tol, a higher "
        "precision or subtracting a constant from the objective helps, and so does checking the "
        "gradient",
        numbers,
    )


def left_the_domain(sample: Sample, step_size: float) -> Ending:
    """The ending of a method that may not shrink its step."""
    return Ending(
        Status.NON_FINITE,
        "the objective or its gradient is not finite at the point that the method reached, and the "
        f"step size {step_size:.3g} is fixed; give a smaller one (a larger gradient_lipschitz), or "
        "pass backtracking=True",
        {"grad_norm": sample.grad_norm, "step_size": step_size},
    )


@record
class DescentState(State):
    """Where a method without extrapolation stands."""

    current: Sample  # x^k with its gradient, and its value where the method looks at values
    trial: float  # the first step size of the next search
    shortest: float  # the least that the gradient alone may accept
    origin: Sample | None  # x0, where values do not decide which points are accepted

    @property
    def accepted(self) -> Sample:
        return self.current if self.origin is None else self.origin


@dataclasses.dataclass(frozen=True)
class GradientDescent(Method):
    """Gradient descent, x^{k+1} = x^k - eta grad f(x^k).

    *Fixed step* (``step_size`` or ``gradient_lipschitz`` given): eta as given, or 1/L; one gradient
    an iteration, no values.  With eta = 1/L the smallest gradient norm is at most eps after
    2 L (f(x0) - inf f)/eps^2 iterations.  (RAGD, Algorithm 1 of Li & Lin [1]_, takes 1/(4L), and is
    this method as long as it restarts in every iteration.)

    *Backtracking* (nothing given, or ``backtracking=True``), as in the experiments of Marumo &
    Takeda [2]_: the step is halved until ``f(x^{k+1}) <= f(x^k) - eta |grad f(x^k)|^2/2``, which
    eta <= 1/L satisfies, and multiplied by 1/0.9 for the next iteration.  One gradient an
    iteration and one value a trial, on average at most 1.16 trials.  Every iteration lowers f, and
    4 L (f(x0) - inf f)/eps^2 iterations are enough, if the first step is at least 1/(2L); no
    constant is needed.  The first step is 1/L with L from one extra gradient near x0, which scales
    with f and x.

    The test knows rounding: where the values cannot tell, a step is accepted if the objective still
    falls at its end.  A rejected trial may then cost a gradient, too.

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
    .. [1] H. Li, Z. Lin, "Restarted nonconvex accelerated gradient descent: no more polylogarithmic
       factor in the O(eps^(-7/4)) complexity", JMLR 24 (2023), section 5.1.
    .. [2] N. Marumo, A. Takeda, "Parameter-free accelerated gradient descent for nonconvex
       minimization", SIAM J. Optim. 34 (2024).
    """

    name = "gd"
    summary = "gradient descent, fixed step or backtracking"
    needs = "nothing; or a step size or L"
    guarantee = "O(eps^-2) gradients"
    cost = "1 gradient; with backtracking 1 value a trial"

    step_size: float | None = None
    gradient_lipschitz: float | None = None
    backtracking: bool | None = None
    backoff: float = 2.0
    growth: float = 1 / 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steps(self, self.step_size, self.gradient_lipschitz, self.backtracking)
        check_search(self, self.backoff, self.growth)

    @property
    def _backtracks(self) -> bool:
        return backtracks(self.step_size, self.gradient_lipschitz, self.backtracking)

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> DescentState:
        sample = oracle.gradient(x0)
        t = first_step(oracle, sample, self.step_size, self.gradient_lipschitz)
        origin = None if self._backtracks else Sample(x0, sample.value)
        return DescentState(sample, t, (), None, sample, t, t * SHORTEST, origin)

    def step(self, oracle: Oracle, state: State) -> DescentState:
        assert isinstance(state, DescentState)
        x = state.current
        if x.grad_norm == 0.0:
            ending = halted(x, state.trial, x.value)
            return dataclasses.replace(state, sample=x, events=(), ending=ending)
        return self._searched(oracle, state) if self._backtracks else self._fixed(oracle, state)

    def _fixed(self, oracle: Oracle, state: DescentState) -> DescentState:
        x, eta = state.current, state.trial
        point, moved = oracle.space.stepped(x.point, -eta, x.gradient, x.point)
        if moved == 0.0:
            ending = halted(x, eta, 0.0)
            return dataclasses.replace(state, sample=x, events=(), ending=ending)
        sample = oracle.gradient(point)
        if not sample.finite:
            events = (Event(EventKind.NON_FINITE, sample.grad_norm),)
            ending = left_the_domain(sample, eta)
            return dataclasses.replace(state, sample=sample, events=events, ending=ending)
        return dataclasses.replace(state, sample=sample, events=(), current=sample)

    def _searched(self, oracle: Oracle, state: DescentState) -> DescentState:
        x = state.current
        first = limited(oracle.space, state.trial, x.grad_norm)
        square = x.grad_norm * x.grad_norm
        found = search(oracle, x, x.gradient, square, first, state.shortest, backoff=self.backoff)
        t, ending, trial = found.step_size, None, found.step_size * self.growth
        if found.accepted:
            x = found.sample
        else:
            ending, trial = found.ending(x), t / self.backoff
        return DescentState(x, t, found.events, ending, x, trial, found.shortest, None)


def backtracks(
    step_size: float | None, gradient_lipschitz: float | None, backtracking: bool | None
) -> bool:
    """As asked for; by default where no step size follows from what is given."""
    if backtracking is not None:
        return backtracking
    return step_size is None and gradient_lipschitz is None


def check_steps(
    method: Method,
    step_size: float | None,
    gradient_lipschitz: float | None,
    backtracking: bool | None,
) -> None:
    """A step size follows from what is given, or is searched for."""
    owner = type(method).__name__
    check_positive(owner, step_size=step_size, gradient_lipschitz=gradient_lipschitz)
    if math.inf in (step_size, gradient_lipschitz):
        raise ValueError(f"{owner}: step_size and gradient_lipschitz must be finite")
    if step_size is not None and gradient_lipschitz is not None:
        raise ValueError(
            f"{owner}: step_size={step_size!r} (eta) and gradient_lipschitz={gradient_lipschitz!r} "
            "(eta = 1/L) say the same thing; give one of them"
        )
    if step_size is None and gradient_lipschitz is None and backtracking is False:
        raise ValueError(f"{owner}: without backtracking give step_size= or gradient_lipschitz=")


def check_search(method: Method, backoff: float, growth: float) -> None:
    """Rejected steps get shorter, accepted ones do not."""
    owner = type(method).__name__
    if not 1 < backoff < math.inf:
        raise ValueError(f"{owner}: backoff={backoff!r} must be above 1")
    if not 1 <= growth < math.inf:
        raise ValueError(f"{owner}: growth={growth!r} must be at least 1")
