"""The oracles of functions and maps whose data, or whose variables, are spread over ranks."""

from __future__ import annotations

import math
from typing import Any

from momentous.core.admission import scalar
from momentous.core.oracle import FunctionOracle, InterruptFlag, MapOracle, Sample
from momentous.core.space import Array
from momentous.distributed.agreement import Agreement


class _OnRanks:
    """What these oracles share: the agreement of the run, which brings Ctrl-C to all ranks."""

    interrupts: InterruptFlag

    def __init__(self, agreement: Agreement, *given: Any):
        super().__init__(*given)
        self.interrupts, self._agreement = agreement.interrupts, agreement


class _FunctionOnRanks(_OnRanks, FunctionOracle):
    """A function whose values and gradients are not known to one rank alone."""

    def __init__(self, agreement: Agreement, *given: Any):
        super().__init__(agreement, *given)
        self._source.do_not_join()


class DataOracle(_FunctionOnRanks):
    """x is on every rank; value and gradient are sums over ranks."""

    def _call_value(self, x: Array) -> float:
        call = super()._call_value
        return self._agreement.sum_of_local(lambda: call(x))

    def _call_gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        # What is known is the value of the whole sum: of no use to the part of it that is here.
        call = super()._call_gradient
        found, failure = self._agreement.local(lambda: call(x, math.nan))
        value, gradient, values = found or (0.0, None, 0)
        # Where no value comes along, what travels in its place is 0: a NaN would be news.
        comes = values > 0
        part = scalar(value, "fun") if comes else 0.0
        value, gradient = self._agreement.sum_of_gradients(self.space, part, gradient, failure)
        return value if comes else math.nan, gradient, values


class VariablesOracle(_FunctionOnRanks):
    """Every rank has its part of x; fun gives the whole value, and its part of the gradient."""

    def _call_value(self, x: Array) -> float:
        return self._agreement.same_value(super()._call_value(x))

    def _call_gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        if self._source.by_differences:
            raise ValueError(
                "gradients by differences of fun do not work with ranks='variables': all ranks "
                "would move a coordinate at once; pass jac=callable, or jac=True if fun returns "
                "(f, g)"
            )
        return super()._call_gradient(x, known)

    def _sample(self, x: Array, value: Any, answer: Array) -> Sample:
        if not self.fused:  # the value is unknown, or that of all ranks already
            return super()._sample(x, value, answer)
        value, make = scalar(value, "fun"), super()._sample
        sample: Sample
        sample, value = self._agreement.with_value(value, lambda: make(x, value, answer))
        sample.value = value
        return sample


class DataMapOracle(_OnRanks, MapOracle):
    """x is on every rank, and so is the image; values are sums over ranks."""

    def _call_value(self, x: Array) -> float:
        call = super()._call_value
        if self._objective is None:
            return call(x)
        return self._agreement.sum_of_local(lambda: call(x))

    def _call_gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        value, image, values = super()._call_gradient(x, known)
        # Without a value this sum still brings news.
        total = self._agreement.sum_of_values(value if self._paired else 0.0)
        return total if self._paired else value, image, values


class VariablesMapOracle(_OnRanks, MapOracle):
    """Every rank has its part of x and of the image; values are those of the whole."""

    def _call_value(self, x: Array) -> float:
        if self._objective is None:
            return super()._call_value(x)
        return self._agreement.same_value(super()._call_value(x))

    def _sample(self, x: Array, value: float, answer: Array) -> Sample:
        make = super()._sample
        if not self._paired:
            return make(x, value, answer)
        sample: Sample
        sample, value = self._agreement.with_value(value, lambda: make(x, value, answer))
        sample.value = value
        return sample
