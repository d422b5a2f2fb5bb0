"""A descent map as a solver under comparison sees it: counted, timed, kept, and stopped."""

import math
from array import array
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentous.testbed.maps import MapProblem

Vector = NDArray[np.float64]
COLUMNS = ("maps", "values", "time", "fun", "residual")  # one row per map
REMEMBERED = 4  # points of which image and value are kept


class MapStop(Exception):  # noqa: N818  not an error
    """The meter's way out of a solver: the goal is reached, or a limit."""

    def __init__(self, status: str):
        super().__init__(status)
        self.status = status


class MapMeter:
    """The map and the objective of a problem, counted apart.

    The run is over at the first map whose image has an objective of at most ``goal``, or that moves
    its point by no more than ``residual``.  What only tells that (the objective at images) is
    neither counted nor timed; time is that of the CPU.  What is known of the last points is not
    asked for again; where the map brings the value along, one call is one of each.
    """

    def __init__(
        self,
        problem: MapProblem,
        goal: float = -math.inf,
        residual: float = 0.0,
        max_maps: int = 10_000,
        max_time: float = math.inf,
    ):
        self.maps = self.values = 0
        self.free = problem.step_and_value is not None  # does a map bring the value along?
        self._problem, self._goal, self._residual = problem, goal, residual
        self._max_maps, self._max_time = max_maps, max_time
        self._known: list[tuple[Vector, dict[str, Any]]] = []
        self._columns = {name: array("d") for name in COLUMNS}
        self._started = process_time()

    def image(self, x: Vector) -> Vector:
        """T(x)."""
        known = self._at(x)
        if "image" not in known:
            self._ask(x, known)
        image: Vector = known["image"]
        return image

    def value(self, x: Vector) -> float:
        """f(x), or infinity where it is not a number."""
        known = self._at(x)
        if "value" not in known:
            if self.free:
                self._ask(x, known)
            else:
                self.values += 1
                known["value"] = float(self._problem.value(x))
        value: float = known["value"]
        return value if math.isfinite(value) else math.inf

    def both(self, x: Vector) -> tuple[Vector, float]:
        """(T(x), f(x)), where one call has both."""
        return self.image(x), self.value(x)

    def columns(self) -> dict[str, NDArray[np.float64]]:
        """One row per map: maps, values and CPU seconds so far, f at the image, |x - T(x)|."""
        return {name: np.array(column) for name, column in self._columns.items()}

    def _at(self, x: Vector) -> dict[str, Any]:
        for point, known in self._known:
            if point is x:
                return known
        self._known = [*self._known[1 - REMEMBERED :], (x, {})]
        return self._known[-1][1]

    def _ask(self, x: Vector, known: dict[str, Any]) -> None:
        both = self._problem.step_and_value
        self.maps += 1
        if both is not None:
            self.values += 1
            known["image"], known["value"] = both(x)
        else:
            known["image"] = self._problem.step(x)
        paused = process_time()
        elapsed = paused - self._started
        fun = float(self._problem.value(known["image"]))
        residual = float(np.linalg.norm(x - known["image"]))
        row = (self.maps, self.values, elapsed, fun, residual)
        for name, entry in zip(COLUMNS, row, strict=True):
            self._columns[name].append(entry)
        if fun <= self._goal:
            raise MapStop("reached")
        if residual <= self._residual:
            raise MapStop("elsewhere")
        if self.maps >= self._max_maps:
            raise MapStop("max maps")
        if elapsed >= self._max_time:
            raise MapStop("max time")
        self._started += process_time() - paused
