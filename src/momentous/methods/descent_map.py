"""Restarted momentum around a map that never raises the objective: an ALS sweep, an EM step.

For the oracle the residual y - T(y) of the map stands where a gradient would stand: its norm is
zero at the fixed points, and y minus it is T(y), so that nothing else needs to be kept.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, get_args

from momentous.core.arrays import Array, Space
from momentous.core.method import Method, State
from momentous.core.oracle import Oracle, Sample
from momentous.core.record import record
from momentous.core.status import Ending, Event, EventKind, Status
from momentous.methods.epoch import check_positive
from momentous.methods.estimates import NOISE

RestartRule = Literal["either", "function", "gradient", "distance", "always"]

# B0, in units of the first residual, where it is not given.
FIRST_RADIUS = 30.0
# The decrease that value_tol asks for is measured over so many iterations: right after a restart a
# single one tells little.
WINDOW = 10


@record
class MapState(State):
    """The momentum iteration under way."""

    y: Array  # y^k, where the map is applied next; the very array x after a restart
    x: Array  # x^k, the last image
    base: Sample  # the last point accepted by its value: y^{k-1}, or where the epoch began
    bare: bool  # is y^k the image of that point, without momentum?
    lowest: float  # the lowest value of such points
    count: int  # m
    travelled: float  # sum of |x^{t+1} - x^t|^2 in this epoch
    radius: float  # B0
    epochs: int  # t, for c0
    first_norm: float  # |x^0 - T(x^0)|
    tol: float  # the residual to stop at, relative to that
    scale: float  # |f(x^0)|: the terms of later values may be as large as those of the first
    noise: float  # what rounding may do to a difference of values
    mark: float  # what the objective was ...
    marked: int  # ... so many iterations ago

    @property
    def value_noise(self) -> float:
        return self.noise

    @property
    def accepted(self) -> Sample:
        return self.base


@dataclasses.dataclass(frozen=True)
class DescentMap(Method):
    """Restarted momentum around a descent map T, f(T(y)) <= f(y): the method of ``accelerate``.

    ``x^{k+1} = T(y^k)``, ``y^{k+1} = x^{k+1} + beta (x^{k+1} - x^k)`` with
    beta = (m - 1)/(m + 2), where m counts from 1 and is 1 again after a restart.  With a gradient
    step as T this is accelerated gradient descent; that the restart rules make no use of what T is
    is what this class is about.  When to restart:

    - ``"either"``: by the function test or by the gradient test, whichever is first.  Of the two
      below now one, now the other restarts too late; this one never did (benchmarks/solver.py).
      After the gradient test m is half of what it was in place of 1: the momentum was too much, not
      wrong.  That makes a difference where there are several restarts: on quadratics of condition
      100 to 1e5 it saves from nothing to a fifth of the maps, and it does not cost any.
    - ``"function"``: when f(y^k) is above f(y^{k-1}).  y^k is discarded and x^k = T(y^{k-1}), which
      is known, takes its place.  One value an iteration.
    - ``"gradient"``: when <y^k - x^{k+1}, x^{k+1} - x^k> > 0 (O'Donoghue & Candes [2]_, with the
      residual for the gradient); free.
    - ``"distance"``: when m sum |x^{t+1} - x^t|^2 > max(B, B0)^2 over the epoch, as in Algorithm 2
      of Li & Lin [1]_; B0 shrinks by c0 at every restart.
    - ``"always"``: the plain iteration x^{k+1} = T(x^k), to compare with.

    After a restart by the second or third rule the point is accepted if it is no higher than where
    the epoch began (the paper's decrease test; its eps^(3/2)/sqrt(rho) is ``decrease`` here);
    otherwise the epoch is discarded, and the next one begins at the image of the old beginning
    (with ``"distance"``, B0 shrinks by c1).  That takes one value a restart, and is left out where
    there are no values.  So no accepted point is above the one before, beyond rounding, and a map
    that raises the objective without the help of momentum ends the run, at the point below.

    Where two values differ by no more than rounding the gradient test decides in place of the
    function test; how far rounding goes is learned from the map, which alone should not raise the
    objective at all.  The guarantee is descent; relatives that go further than one direction are
    Anderson acceleration and SQUAREM [3]_.

    Parameters
    ----------
    restart : {"either", "function", "gradient", "distance", "always"}
        The rule.
    has_values : bool
        Are there values of the objective?  Without them only ``"gradient"`` and ``"always"`` are
        possible.
    value_tol : float
        Stop when ten iterations lowered the objective by no more than this, relative to it (0:
        never).
    radius : float
        B, below which the distance rule does not go.
    initial_radius : float, optional
        B0; by default 30 |x^0 - T(x^0)|.
    radius_shrink : float, optional
        c0 > 1; by default 1 + 0.001 t in epoch t, as in section 5.1 of [1]_.
    failure_shrink : float
        c1.
    decrease : float
        By how much an epoch must have lowered the objective to be accepted.

    References
    ----------
    .. [1] H. Li, Z. Lin, "Restarted nonconvex accelerated gradient descent: no more polylogarithmic
       factor in the O(eps^(-7/4)) complexity", JMLR 24 (2023).
    .. [2] B. O'Donoghue, E. Candes, "Adaptive restart for accelerated gradient schemes", Found.
       Comput. Math. 15 (2015).
    .. [3] R. Varadhan, C. Roland, "Simple and globally convergent methods for accelerating the
       convergence of any EM algorithm", Scand. J. Stat. 35 (2008).
    """

    name = "descent-map"
    summary = "restarted momentum around any descent map"
    needs = "a map with f(T(y)) <= f(y)"
    guarantee = "descent"
    cost = "1 map; 1 value (function) or 1 a restart"

    restart: RestartRule = "either"
    has_values: bool = True
    value_tol: float = 0.0
    radius: float = 0.0
    initial_radius: float | None = None
    radius_shrink: float | None = None
    failure_shrink: float = 10.0
    decrease: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        rules = get_args(RestartRule)
        if self.restart not in rules:
            raise ValueError(f"restart={self.restart!r} must be one of {', '.join(rules)}")
        if not self.has_values and self.restart not in ("gradient", "always"):
            raise ValueError(
                f"restart={self.restart!r} compares values of the objective: pass value=, or leave "
                "it to restart='gradient', which needs none"
            )
        if not self.has_values and self.value_tol:
            raise ValueError(
                f"value_tol={self.value_tol!r} looks at values of the objective: pass value="
            )
        check_positive("accelerate", initial_radius=self.initial_radius)
        for name in ("value_tol", "radius", "decrease"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}={getattr(self, name)!r} must be a number >= 0")
        if self.radius_shrink is not None and not self.radius_shrink > 1:
            raise ValueError(f"radius_shrink={self.radius_shrink!r} (c0) must be above 1")
        if not self.failure_shrink >= 1:
            raise ValueError(f"failure_shrink={self.failure_shrink!r} (c1) must be at least 1")

    @property
    def stops_at_tolerance(self) -> bool:
        """The tolerance is relative to the first residual: for this method to judge."""
        return False

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> MapState:
        sample = oracle.gradient(x0)
        norm = sample.grad_norm
        state = MapState(
            sample=sample,
            step_size=1.0,
            events=(),
            ending=None,
            y=x0,
            x=x0,
            base=sample,
            bare=True,
            lowest=sample.value,
            count=1,
            travelled=0.0,
            radius=self.initial_radius or FIRST_RADIUS * norm,
            epochs=1,
            first_norm=norm,
            tol=self.default_tolerance if tol is None else tol,
            scale=abs(sample.value),
            noise=NOISE * oracle.space.rounding * abs(sample.value),
            mark=sample.value,
            marked=0,
        )
        state.ending = _fixed_point() if norm == 0.0 else None
        return state

    def with_tolerance(self, state: State, tol: float | None) -> State:
        assert isinstance(state, MapState)
        if tol is None:
            return state
        after = dataclasses.replace(state, tol=tol)
        if state.ending is not None and "tolerance" in state.ending.numbers:
            after.ending = _small_residual(after)  # what was reached may not be enough any more
        return after

    def step(self, oracle: Oracle, state: State) -> MapState:
        assert isinstance(state, MapState)
        if state.y is state.base.point:
            oracle.recall(state.base)  # the first step: T(x^0) is known
        now = dataclasses.replace(state, events=(), ending=None)
        sample, usable = self._tried(oracle, now)
        if not usable and not now.bare:
            now = self._discarded(oracle.space, now, sample)
            sample, usable = self._tried(oracle, now)
        rise = sample.value - now.lowest
        if not usable and now.noise < rise <= math.sqrt(oracle.space.rounding) * now.scale:
            # The map alone does not raise the objective: so small a rise measures the rounding.
            now.noise = 2 * rise
            sample, usable = self._tried(oracle, now)
        if usable:
            return self._moved(oracle, now, sample)
        return dataclasses.replace(
            now,
            sample=now.base,
            events=(*now.events, *_if_not_finite(sample)),
            ending=_no_descent(sample, now.base),
        )

    def _accepts_here(self, state: MapState) -> bool:
        """Is y^k one of the points that are accepted by their value?"""
        return state.count == 1 or self.restart in ("either", "function", "always")

    def _tried(self, oracle: Oracle, state: MapState) -> tuple[Sample, bool]:
        """The sample at y^k, and whether it can be used."""
        if self.has_values and self._accepts_here(state):
            # First the value: where the two are had apart, the map is not applied in vain.
            value, limit = oracle.value(state.y), state.lowest + state.noise
            if not (state.bare or self.restart in ("either", "function")):
                limit -= self.decrease
            if not (math.isfinite(value) and value <= limit):
                return Sample(state.y, value), False
        sample = oracle.gradient(state.y)
        if self.value_tol and sample.finite:
            oracle.value(state.y)  # the sample knows it from now on
        return sample, sample.finite

    def _moved(self, oracle: Oracle, state: MapState, y: Sample) -> MapState:
        """From y^k, which can be used, to y^{k+1}."""
        space, m = oracle.space, state.count
        x_next = space.combination(y.point, -1.0, y.gradient)
        change = space.combination(x_next, -1.0, state.x)
        travelled = state.travelled + space.inner(change, change)
        restarts = self._restarts(space, state, y, change, travelled)
        now = dataclasses.replace(state, sample=y, x=x_next, marked=state.marked + 1)
        if self._accepts_here(state):
            now.base, now.lowest = y, min(y.value, state.lowest)
        if restarts:
            now.y, now.bare, now.travelled = x_next, now.base is y, 0.0
            now.count = max(1, m // 2) if self.restart == "either" else 1
            now.radius, now.epochs = state.radius / self._shrink(state), state.epochs + 1
            if self.restart != "always":
                now.events = (*now.events, Event(EventKind.RESTART, float(m)))
        else:
            beta = m / (m + 3)  # (m - 1)/(m + 2) with the m of y^{k+1}
            now.y = space.combination(x_next, beta, change)
            now.bare, now.count, now.travelled = False, m + 1, travelled
        return self._judged(oracle, now)

    def _restarts(
        self, space: Space, state: MapState, y: Sample, change: Array, travelled: float
    ) -> bool:
        if self.restart == "always":
            return True
        if self.restart == "distance":
            limit = max(self.radius, state.radius)
            return not state.count * travelled <= limit * limit
        if self.restart == "function" and y.value < state.lowest - state.noise:
            return False
        return space.inner(y.gradient, change) > 0.0

    def _judged(self, oracle: Oracle, state: MapState) -> MapState:
        """Is this the end?  Not at a point that momentum has climbed to."""
        sample = state.sample
        ending = _small_residual(state)
        if state.marked >= WINDOW and self.value_tol:
            ending = ending or _small_decrease(state, self.value_tol)
            state.mark, state.marked = sample.value, 0
        if ending is None:
            return state
        if self.has_values and sample is not state.base:
            oracle.value(sample.point)  # the sample knows it from now on
            if not sample.value <= state.lowest + state.noise:
                return self._discarded(oracle.space, state, sample)
        state.ending = ending
        return state

    def _discarded(self, space: Space, state: MapState, seen: Sample) -> MapState:
        """What momentum has led to is left: on from the image of the last accepted point."""
        image = space.combination(state.base.point, -1.0, state.base.gradient)
        return dataclasses.replace(
            state,
            events=(
                *state.events,
                *_if_not_finite(seen),
                Event(EventKind.ROLLBACK, float(state.count)),
            ),
            y=image,
            x=image,
            bare=True,
            count=1,
            travelled=0.0,
            radius=state.radius / (self._shrink(state) * self.failure_shrink),
            epochs=state.epochs + 1,
            mark=state.base.value,
            marked=0,
        )

    def _shrink(self, state: MapState) -> float:
        return self.radius_shrink or 1 + 0.001 * state.epochs


def _small_residual(state: MapState) -> Ending | None:
    norm, first = state.sample.grad_norm, state.first_norm
    if norm == 0.0:
        return _fixed_point()
    if not norm <= state.tol * first:
        return None
    return Ending(
        Status.CONVERGED,
        f"the residual |x - T(x)| = {norm:.3g} is {norm / first:.3g} times the first one, within "
        f"the tolerance {state.tol:.3g}",
        {"grad_norm": norm, "first_grad_norm": first, "tolerance": state.tol},
    )


def _fixed_point() -> Ending:
    return Ending(Status.COMPLETED, "the map leaves x exactly where it is", {"grad_norm": 0.0})


def _small_decrease(state: MapState, value_tol: float) -> Ending | None:
    value, fall = state.sample.value, state.mark - state.sample.value
    if not abs(fall) <= value_tol * abs(value):  # where it rises, momentum is at work
        return None
    return Ending(
        Status.CONVERGED,
        f"{state.marked} iterations lowered the objective by {fall:.3g}, to {value:.6g}: within "
        f"the relative value_tol {value_tol:.3g}",
        {"decrease": fall, "fun": value, "value_tol": value_tol},
    )


def _rejected_for(sample: Sample) -> float:
    """The number that a sample was judged by: its value if that was enough, or its residual."""
    return sample.value if sample.gradient is None else sample.grad_norm


def _if_not_finite(sample: Sample) -> tuple[Event, ...]:
    seen = _rejected_for(sample)
    return () if math.isfinite(seen) else (Event(EventKind.NON_FINITE, seen),)


def _no_descent(sample: Sample, base: Sample) -> Ending:
    """The map alone, without momentum, has led from an accepted point to an unusable one."""
    numbers = {"fun": base.value, "image_fun": sample.value, "grad_norm": base.grad_norm}
    if math.isfinite(_rejected_for(sample)):
        return Ending(
            Status.OBJECTIVE_ROSE,
            f"the map, without momentum, raised the objective from {base.value:.6g} to "
            f"{sample.value:.6g}: it is no descent map there (what it solves inside may be nearly "
            "singular: a small ridge helps), or value is another objective than the one it lowers",
            numbers,
        )
    return Ending(
        Status.NON_FINITE,
        f"the map, without momentum, led from a point with objective {base.value:.6g} to one where "
        f"the objective is {sample.value} and the residual {sample.grad_norm}; check step and "
        "value around result.x",
        numbers,
    )
