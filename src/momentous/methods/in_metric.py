"""Any method in coordinates in which a metric is Euclidean, refreshed at its restarts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Protocol

from momentous.core.arrays import Array
from momentous.core.loop import RESTARTS
from momentous.core.method import Method, State
from momentous.core.oracle import NO_SAMPLE, Oracle, Sample
from momentous.core.record import record
from momentous.core.status import Ending


class Coordinates(Protocol):
    """Linear coordinates of the space of x in which a metric is the sum of squares."""

    @property
    def origin(self) -> Array:
        """The coordinates of the point where the metric was taken."""

    def point(self, w: Array) -> Array:
        """The x with the coordinates w."""

    def pulled(self, g: Array) -> Array:
        """What a gradient g in x is in the coordinates."""


class Metrics(Protocol):
    """A metric for every x; asked again for the same array it gives the same one."""

    def __call__(self, x: Array) -> Coordinates: ...

    def describe(self) -> dict[str, Any]:
        """Its parameters, for checkpoints."""


@record
class MetricSample(Sample):
    """A sample in the coordinates, and the one in x that it was made of."""

    outer: Sample = NO_SAMPLE


@record
class MetricState(State):
    """The state of the method in the coordinates of the metric at the centre."""

    inner: State
    centre: Array  # x where the metric was taken
    last: Sample | None  # what the oracle in the coordinates knows
    dual: float  # the norm of the gradient at the centre in the metric, over the Euclidean one
    tol: float
    seed: int
    refreshes: int  # metrics taken after the first one

    @property
    def value_noise(self) -> float:
        return self.inner.value_noise

    @property
    def accepted(self) -> Sample | None:
        inner = self.inner.accepted
        return inner.outer if isinstance(inner, MetricSample) else None


class _Seen(Oracle):
    """The function in the coordinates of a metric: every call goes on to the oracle in x."""

    def __init__(self, oracle: Oracle, metric: Coordinates):
        self.outer, self.metric = oracle, metric
        self.space, self.interrupts = oracle.space, oracle.interrupts
        self.nfev, self.njev = oracle.nfev, oracle.njev
        self._last = None

    @property
    def fused(self) -> bool:
        return self.outer.fused

    def value(self, x: Array) -> float:
        sample = self._at(x)
        if sample.value != sample.value:
            self.outer.recall(sample.outer)
            sample.value = self.outer.value(sample.outer.point)
            assert self.outer.last is not None
            sample.outer = self.outer.last
            self.nfev, self.njev = self.outer.nfev, self.outer.njev
        return sample.value

    def gradient(self, x: Array) -> Sample:
        sample = self._at(x)
        if sample.gradient is None:
            self.outer.recall(sample.outer)
            self._last = sample = self.image(x, self.outer.gradient(sample.outer.point))
            self.nfev, self.njev = self.outer.nfev, self.outer.njev
        return sample

    def image(self, w: Array, known: Sample) -> MetricSample:
        """The sample at w, whose point in x is known."""
        if not known.finite:
            return MetricSample(w, known.value, known.gradient, math.nan, known)
        gradient = self.metric.pulled(known.gradient)
        return MetricSample(w, known.value, gradient, self.space.norm(gradient), known)

    def learn_value(self, sample: Sample) -> None:
        kept, self._last = self._last, sample
        sample.value = self.value(sample.point)
        self._last = kept

    def peek(self, x: Array) -> float:
        return self.outer.peek(self._at(x).outer.point)

    def in_x(self, sample: Sample) -> Sample:
        """The sample in x that one in the coordinates was made of."""
        if isinstance(sample, MetricSample):
            return sample.outer
        if sample.point is None:
            return NO_SAMPLE
        return Sample(self.metric.point(sample.point), sample.value)

    def _at(self, w: Array) -> MetricSample:
        last = self._last
        if last is None or last.point is not w:
            last = MetricSample(w, outer=Sample(self.metric.point(w)))
        elif not isinstance(last, MetricSample):  # made by the method itself
            last = MetricSample(w, last.value, outer=self.in_x(last))
        self._last = last
        return last


@dataclasses.dataclass(frozen=True)
class InMetric(Method):
    """A method in a metric that is taken anew whenever the method's momentum restarts.

    ``x+ = y - M^-1 grad f(y)/L`` in place of ``y - grad f(y)/L``, and norms to go with it.  With
    M = S'S that is the method itself in the coordinates w = S x.  A restart is the natural moment
    to change the geometry: there is no momentum that would have to be carried over.  What the
    method has learned (L) is kept, by its ``moved_to``.

    The run ends when the *Euclidean* norm of the gradient is small enough, and samples, traces and
    results are in x.  A checkpoint holds the point where the metric was taken, and the metric is
    taken there again when the run is resumed: pass the same ``method=`` then.

    Parameters
    ----------
    method : Method
        One whose epochs end with restart events; with others the metric stays that of x0.
    metric_at : Metrics
        The metric at x, such as `GaussNewton`.
    """

    name = "in-metric"
    summary = "a method with restarts in a metric that is taken anew at each of them"
    needs = "a metric"
    guarantee = "that of the method, between two restarts"
    cost = "that of the method, and a metric at every restart"

    method: Method
    metric_at: Metrics

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.method, Method):
            raise TypeError(
                f"InMetric: method={self.method!r} must be a Method, such as UniversalHeavyBall()"
            )
        if not (callable(self.metric_at) and hasattr(self.metric_at, "describe")):
            raise TypeError(
                f"InMetric: metric_at={self.metric_at!r} must be such as GaussNewton(objective)"
            )

    @property
    def stops_at_tolerance(self) -> bool:
        return self.method.stops_at_tolerance

    @property
    def default_tolerance(self) -> float:
        return self.method.default_tolerance

    def described(self) -> dict[str, Any]:
        plain = {"method": self.method.described(), "metric": self.metric_at.describe()}
        return {"name": self.name, "parameters": plain}

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> MetricState:
        oracle.value(x0)
        goal = self.default_tolerance if tol is None else tol

        def begun(seen: _Seen, here: MetricSample, tol: float) -> State:
            return self.method.start(seen, here.point, tol, seed)

        return self._centred(oracle, oracle.gradient(x0), begun, goal, seed, 0)

    def moved_to(
        self, oracle: Oracle, state: State, sample: Sample, tol: float | None, seed: int
    ) -> MetricState:
        assert isinstance(state, MetricState)
        before = state.inner
        goal = state.tol if tol is None else tol

        def moved(seen: _Seen, here: MetricSample, tol: float) -> State:
            inner = self.method.moved_to(seen, before, here, tol, seed)
            return self.method.with_tolerance(inner, tol)

        return self._centred(oracle, sample, moved, goal, seed, state.refreshes + 1)

    def with_tolerance(self, state: State, tol: float | None) -> MetricState:
        assert isinstance(state, MetricState)
        goal = self.default_tolerance if tol is None else tol
        inner = self.method.with_tolerance(state.inner, goal * state.dual)
        return dataclasses.replace(state, inner=inner, tol=goal)

    def stands_by(self, oracle: Oracle, state: State) -> bool:
        assert isinstance(state, MetricState)
        return self.method.stands_by(self._seen(oracle, state), state.inner)

    def step(self, oracle: Oracle, state: State) -> MetricState:
        assert isinstance(state, MetricState)
        seen = self._seen(oracle, state)
        inner = self.method.step(seen, state.inner)
        after = dataclasses.replace(
            state,
            sample=seen.in_x(inner.sample),
            step_size=inner.step_size,
            events=inner.events,
            ending=_in_the_metric(inner.ending),
            inner=inner,
            last=seen.last,
        )
        if inner.ending is None and any(event.kind in RESTARTS for event in inner.events):
            return self._refreshed(oracle, after)
        return after

    def _refreshed(self, oracle: Oracle, state: MetricState) -> MetricState:
        """The same state with the metric of where it stands, if that is another point."""
        here = state.accepted
        if here is None or here.point is state.centre or state.sample.grad_norm <= state.tol:
            return state  # nothing has changed, or the run is about to end
        after = self.moved_to(oracle, state, here, state.tol, state.seed)
        after.sample, after.step_size, after.events = state.sample, state.step_size, state.events
        return after

    def _centred(
        self,
        oracle: Oracle,
        sample: Sample,
        begun: Callable[[_Seen, MetricSample, float], State],
        tol: float,
        seed: int,
        refreshes: int,
    ) -> MetricState:
        """The state of a run that begins or goes on at a sample, in the metric there."""
        metric = self.metric_at(sample.point)
        seen = _Seen(oracle, metric)
        here = seen.image(metric.origin, sample)
        seen.recall(here)
        dual = here.grad_norm / sample.grad_norm if sample.grad_norm else 1.0
        inner = begun(seen, here, dual * tol)
        return MetricState(
            sample=sample,
            step_size=inner.step_size,
            events=inner.events,
            ending=_in_the_metric(inner.ending),
            inner=inner,
            centre=sample.point,
            last=seen.last,
            dual=dual,
            tol=tol,
            seed=seed,
            refreshes=refreshes,
        )

    def _seen(self, oracle: Oracle, state: MetricState) -> _Seen:
        seen = _Seen(oracle, self.metric_at(state.centre))
        if state.last is not None:
            seen.recall(state.last)
        return seen


def _in_the_metric(ending: Ending | None) -> Ending | None:
    if ending is None:
        return None
    return dataclasses.replace(ending, message=f"{ending.message} (norms in the metric)")


# L is 1 in the metric where the Gauss-Newton model holds.
