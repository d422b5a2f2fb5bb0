"""The oracle of a function in coordinates in which a metric is Euclidean."""

from __future__ import annotations

import math
from typing import Protocol

from momentous.core.oracle.base import NO_SAMPLE, Oracle, Sample
from momentous.core.record import record
from momentous.core.space import Array


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
        self._last = last

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
            self._last = sample = self.sample_at(x, self.outer.gradient(sample.outer.point))
        return sample

    def sample_at(self, w: Array, outer: Sample) -> MetricSample:
        """The sample at w, made of the one in x."""
        if not outer.has_finite_gradient:
            return MetricSample(w, outer.value, outer.gradient, math.nan, outer=outer)
        gradient = self.coordinates.pulled(outer.gradient)
        return MetricSample(w, outer.value, gradient, self.space.norm(gradient), outer=outer)

    def learn_value(self, sample: Sample) -> None:
        kept, self._last = self._last, sample
        try:
            sample.value = self.value(sample.point)
        finally:
            self._last = kept

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
        last = self._last
        if last is None or last.point is not w:
            last = MetricSample(w, outer=Sample(self.coordinates.point(w)))
        elif not isinstance(last, MetricSample):  # made by the method itself
            last = MetricSample(w, last.value, outer=self.in_x(last))
        self._last = last
        return last
