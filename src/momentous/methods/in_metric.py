"""Any method in coordinates in which a metric is Euclidean, refreshed at its restarts."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Protocol

from momentous.core.method import Method
from momentous.core.oracle import NO_SAMPLE, Oracle, Sample
from momentous.core.record import record
from momentous.core.space import Array
from momentous.core.status import RESTARTS
from momentous.core.step import Report, Step


class Coordinates(Protocol):
    """Linear coordinates of the space of x in which a metric is the sum of squares."""

    @property
    def origin(self) -> Array:
        """The coordinates of the point where the metric was taken."""

    def point(self, w: Array) -> Array:
        """The x with the coordinates w."""

    def pulled(self, g: Array) -> Array:
        """What a gradient g in x is in the coordinates."""


@record
class MetricSample(Sample):
    """A sample in the coordinates, and the one in x that it was made of."""

    outer: Sample = NO_SAMPLE


class MetricOracle(Oracle):
    """The function in the coordinates of a metric: every call goes on to the oracle in x."""

    def __init__(self, oracle: Oracle, coordinates: Coordinates, last: Sample | None = None):
        self.outer, self.coordinates = oracle, coordinates
        self.space, self.interrupts, self.fused = oracle.space, oracle.interrupts, oracle.fused
        self.last = last

    @property
    def nfev(self) -> int:  # type: ignore[override]
        return self.outer.nfev

    @property
    def njev(self) -> int:  # type: ignore[override]
        return self.outer.njev

    def value(self, x: Array) -> float:
        sample = self._at(x)
        if sample.value != sample.value:
            self.outer.recall(sample.outer)
            sample.value = self.outer.value(sample.outer.point)
            assert self.outer.last is not None
            sample.outer = self.outer.last
        return sample.value

    def gradient(self, x: Array) -> Sample:
        sample = self._at(x)
        if sample.gradient is None:
            self.outer.recall(sample.outer)
            self.last = sample = self.sample_at(x, self.outer.gradient(sample.outer.point))
        return sample

    def sample_at(self, w: Array, outer: Sample) -> MetricSample:
        """The sample at w, made of the one in x."""
        if not outer.has_finite_gradient:
            return MetricSample(w, outer.value, outer.gradient, math.nan, outer=outer)
        gradient = self.coordinates.pulled(outer.gradient)
        return MetricSample(w, outer.value, gradient, self.space.norm(gradient), outer=outer)

    def peek(self, x: Array) -> float:
        return self.outer.peek(self._at(x).outer.point)

    def in_x(self, sample: Sample) -> Sample:
        """The sample in x that one in the coordinates was made of."""
        if isinstance(sample, MetricSample):
            return sample.outer
        if sample.point is None:
            return NO_SAMPLE
        return Sample(self.coordinates.point(sample.point), sample.value)

    def _at(self, w: Array) -> MetricSample:
        last = self.last
        if last is None or last.point is not w:
            last = MetricSample(w, outer=Sample(self.coordinates.point(w)))
        elif not isinstance(last, MetricSample):  # made by the method itself
            last = MetricSample(w, last.value, outer=self.in_x(last))
        self.last = last
        return last


class Metrics(Protocol):
    """A metric for every x; asked again for the same array it gives the same one."""

    def __call__(self, x: Array) -> Coordinates: ...

    def describe(self) -> dict[str, Any]:
        """Its parameters, for checkpoints."""


@record
class MetricMemory:
    """The memory of the method in the coordinates of the metric at the centre."""

    inner: Any
    centre: Array  # x where the metric was taken
    last: Sample | None  # what the oracle in the coordinates knows
    dual: float  # the norm of the gradient at the centre in the metric, over the Euclidean one
    tol: float
    seed: int
    refreshes: int = 0  # metrics taken after the first one


@dataclasses.dataclass(frozen=True)
class InMetric(Method[MetricMemory]):
    """A method in a metric that is taken again whenever the method's momentum restarts.

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
        One whose epochs end with restart events; with others the metric stays that of x0.  It
        does so under `AdaRAGD` and `AdaRHB` with constants given, too: L, rho, eps and the radii
        are numbers of one metric, and mean nothing in the next one.
    metric_at : Metrics
        The metric at x, such as `GaussNewton`.
    """

    name = "in-metric"
    has_epochs = True
    summary = "a method with restarts in a metric that is taken again at each of them"
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

    def description(self) -> dict[str, Any]:
        plain = {"method": self.method.description(), "metric": self.metric_at.describe()}
        return {"name": self.name, "parameters": plain}

    def start(self, oracle: Oracle, x0: Array, tol: float | None, seed: int) -> Step[MetricMemory]:
        oracle.value(x0)
        sample = oracle.gradient(x0)
        seen, here, dual = self._centred(oracle, sample)
        goal = self.tolerance_for(tol)
        inner = self.method.start(seen, here.point, dual * goal, seed)
        memory = MetricMemory(inner.memory, sample.point, seen.last, dual, goal, seed)
        return Step(memory, dataclasses.replace(_in_x(seen, inner.report), sample=sample))

    def moved_to(
        self, oracle: Oracle, memory: MetricMemory, sample: Sample, tol: float | None, seed: int
    ) -> Step[MetricMemory]:
        seen, here, dual = self._centred(oracle, sample)
        goal = memory.tol if tol is None else tol
        inner = self.method.moved_to(seen, memory.inner, here, dual * goal, seed)
        inner = self.method.with_new_tolerance(inner, dual * goal)
        refreshes = memory.refreshes + 1
        after = MetricMemory(inner.memory, sample.point, seen.last, dual, goal, seed, refreshes)
        return Step(after, dataclasses.replace(_in_x(seen, inner.report), sample=sample))

    def with_new_tolerance(self, step: Step[MetricMemory], tol: float | None) -> Step[MetricMemory]:
        memory = step.memory
        goal = self.tolerance_for(tol)
        inner = self.method.with_new_tolerance(Step(memory.inner, step.report), goal * memory.dual)
        return Step(dataclasses.replace(memory, inner=inner.memory, tol=goal), step.report)

    def step(self, oracle: Oracle, memory: MetricMemory) -> Step[MetricMemory]:
        seen = MetricOracle(oracle, self.metric_at(memory.centre), memory.last)
        inner = self.method.step(seen, memory.inner)
        after = dataclasses.replace(memory, inner=inner.memory, last=seen.last)
        step = Step(after, _in_x(seen, inner.report))
        restarted = any(event.kind in RESTARTS for event in inner.report.events)
        if restarted and inner.report.ending is None:
            return self._refreshed(oracle, step)
        return step

    def _refreshed(self, oracle: Oracle, step: Step[MetricMemory]) -> Step[MetricMemory]:
        """The same with the metric of where the method stands, if that is another point."""
        memory, report = step.memory, step.report
        here = report.accepted
        if here is None or here.point is memory.centre or report.sample.grad_norm <= memory.tol:
            return step  # nothing has changed, or the run is about to end
        if here.gradient is None:  # accepted by its value alone: it is the next one anyway
            oracle.recall(here)
            here = oracle.gradient(here.point)
            if not here.has_finite_gradient:
                return step
        moved = self.moved_to(oracle, memory, here, memory.tol, memory.seed)
        moved.report = dataclasses.replace(
            moved.report, sample=report.sample, step_size=report.step_size, events=report.events
        )
        return moved

    def _centred(self, oracle: Oracle, sample: Sample) -> tuple[MetricOracle, Sample, float]:
        """The oracle in the metric at a sample, which it knows; the sample there, and the ratio of
        the norms."""
        metric = self.metric_at(sample.point)
        seen = MetricOracle(oracle, metric)
        here = seen.sample_at(metric.origin, sample)
        seen.recall(here)
        return seen, here, here.grad_norm / sample.grad_norm if sample.grad_norm else 1.0


def _in_x(seen: MetricOracle, report: Report) -> Report:
    """What a report in the coordinates says in x."""
    accepted, limit, ending = report.accepted, report.limit, report.ending
    if limit is not None:
        reference = limit.reference
        if isinstance(reference, MetricSample):
            limit = dataclasses.replace(limit, reference=reference.outer)
        else:  # made by the method itself: its value will do
            reference = Sample(None, reference.value)
            limit = dataclasses.replace(limit, reference=reference, convex=False)
    if ending is not None:
        message = f"{ending.message} (norms in the metric)"
        ending = dataclasses.replace(ending, message=message)
    return dataclasses.replace(
        report,
        sample=seen.in_x(report.sample),
        accepted=accepted.outer if isinstance(accepted, MetricSample) else None,
        limit=limit,
        ending=ending,
    )
