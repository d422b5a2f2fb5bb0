"""The oracle of a descent map T: where a gradient would stand there is the image T(x).

The norm of a sample is that of the residual x - T(x), which is zero at the fixed points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from momentous.core.admission import Admission
from momentous.core.oracle.base import CachedOracle, Sample, both_of, scalar, without_grad
from momentous.core.space import Array, Space, set_writable


class MapOracle(CachedOracle):
    """Images and values of the user's map: step, value and args as for `momentous.accelerate`.

    Where there is no objective, the norm of the residual stands for it.
    """

    noun = "residual"

    def __init__(
        self,
        step: Callable[..., Any],
        value: Callable[..., Any] | bool | None,
        args: tuple[Any, ...],
        space: Space,
    ):
        if not callable(step):
            raise TypeError(f"step must be callable, not {step!r}")
        if not (value is None or value is True or callable(value)):
            raise TypeError(f"value={value!r} must be callable, True or None")
        super().__init__(space, fused=not callable(value))
        self._step = without_grad(step, space)
        self._objective = without_grad(value, space) if callable(value) else None
        self._paired = value is True
        self.has_values = value is not None
        self._args = args
        self._admission = Admission(space)

    def arrays_at(self, sample: Sample) -> dict[str, Array]:
        """The residual x - T(x) as ``jac``, and T(x) as ``image``."""
        x, image = sample.point, sample.image
        residual = None if image is None else self.space.combination(x, -1.0, image)
        return {"jac": residual, "image": image}

    def _call_value(self, x: Array) -> float:
        set_writable(x, False)
        if self._objective is not None:
            return scalar(self._objective(x, *self._args), "value")
        value, image, _ = self._call_gradient(x, math.nan)
        return self._sample(x, value, image).value

    def _call_gradient(self, x: Array, known: float) -> tuple[float, Array, int]:
        if not self._paired:
            image = self._admission.admit(self._step(x, *self._args), "step")
            return math.nan, image, int(not self.has_values)
        contract = "with value=True step must return (x_next, value at x)"
        parts = both_of(self._step(x, *self._args), contract)
        value = scalar(parts.pop(), "step (the value)")
        return value, self._admission.admit(parts.pop(), "step"), 1

    def _sample(self, x: Array, value: float, answer: Array) -> Sample:
        norm = self.space.distance(x, answer)
        return Sample(x, value if self.has_values else norm, None, norm, answer)
