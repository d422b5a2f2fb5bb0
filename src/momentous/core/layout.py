"""Where x and the data of a run are: here all of it is in one process.

`momentous.distributed.layouts` has the layouts of many processes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from momentous.core.admission import starting_point
from momentous.core.loop import Run
from momentous.core.oracle import FunctionOracle, MapOracle
from momentous.core.space import Array, Inner, Space


class Layout:
    """The parts that a run is put together from."""

    def announced(self) -> contextlib.AbstractContextManager[None]:
        """A context in which an exception of one process ends all of them."""
        return contextlib.nullcontext()

    def start(self, x0: Any) -> Array:
        """x0 as an array of our own."""
        return starting_point(x0)

    def space(self, start: Array, inner: Inner | None = None) -> Space:
        """The space of x."""
        return Space(start, inner)

    def function_oracle(self, *given: Any) -> FunctionOracle:
        """The oracle of fun, jac and args in a space."""
        return FunctionOracle(*given)

    def map_oracle(self, *given: Any) -> MapOracle:
        """The oracle of step, value and args in a space."""
        return MapOracle(*given)

    def products(self, hessp: Callable[..., Any] | None, space: Space) -> Callable[..., Any] | None:
        """Products with the Hessian of the whole function, given those of the user."""
        return hessp

    def run(self, *given: Any, **options: Any) -> Run:
        """The loop."""
        return Run(*given, **options)
