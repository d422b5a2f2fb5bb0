"""The oracles of functions and maps whose data, or whose variables, are spread over ranks."""

from __future__ import annotations

import math
from typing import Any

from momentous.core.oracle import FunctionOracle, MapOracle, Sample
from momentous.core.oracle.base import scalar
from momentous.core.space import Array
from momentous.distributed.agreement import Agreement


class DataOracle(FunctionOracle):
    """x is on every rank; value and gradient are sums over ranks."""

    def __init__(self, agreement: Agreement, *given: Any):
        super().__init__(*given)
        self.interrupts, self._agreement = agreement.interrupts, agreement

    def _call_value(self, x: Array) -> float:
        call = super()._call_value
        value, failure = self._agreement.local(lambda: call(x))
        return self._agreement.sum_of_values(0.0 if failure else value, failure)

    def _call_gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        # What is known is the value of the whole sum: of no use to the part of it that is here.
        call = super()._call_gradient
        found, failure = self._agreement.local(lambda: call(x, math.nan))
        value, gradient, values = found or (0.0, None, 0)
        value = scalar(value, "fun")
        value, gradient = self._agreement.sum_of_gradients(self.space, value, gradient, failure)
        return value, gradient, values


class VariablesOracle(FunctionOracle):
    """Every rank has its part of x; fun gives the whole value, and its part of the gradient."""

    def __init__(self, agreement: Agreement, *given: Any):
        super().__init__(*given)
        self.interrupts, self._agreement = agreement.interrupts, agreement

    def _call_value(self, x: Array) -> float:
        return self._agreement.same_value(super()._call_value(x))

    def _sample(self, x: Array, value: Any, answer: Array) -> Sample:
        value, make = scalar(value, "fun"), super()._sample
        sample: Sample
        sample, value = self._agreement.with_value(value, lambda: make(x, value, answer))
        sample.value = value
        return sample


class DataMapOracle(MapOracle):
    """x is on every rank, and so is the image; values are sums over ranks."""

    def __init__(self, agreement: Agreement, *given: Any):
        super().__init__(*given)
        self.interrupts, self._agreement = agreement.interrupts, agreement

    def _call_value(self, x: Array) -> float:
        if self._objective is None:
            return super()._call_value(x)
        call = super()._call_value
        value, failure = self._agreement.local(lambda: call(x))
        return self._agreement.sum_of_values(0.0 if failure else value, failure)

    def _call_gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        value, image, values = super()._call_gradient(x, known)
        return self._agreement.sum_of_values(value, None), image, values


class VariablesMapOracle(MapOracle):
    """Every rank has its part of x and of the image; values are those of the whole."""

    def __init__(self, agreement: Agreement, *given: Any):
        super().__init__(*given)
        self.interrupts, self._agreement = agreement.interrupts, agreement

    def _call_value(self, x: Array) -> float:
        if self._objective is None:
            return super()._call_value(x)
        return self._agreement.same_value(super()._call_value(x))

    def _sample(self, x: Array, value: float, answer: Array) -> Sample:
        make = super()._sample
        sample: Sample
        sample, value = self._agreement.with_value(value, lambda: make(x, value, answer))
        if self.has_values:
            sample.value = value
        return sample
