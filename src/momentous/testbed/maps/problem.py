"""A problem for `momentous.accelerate`: a map, the objective that it never raises, and a start."""

from collections.abc import Callable
from dataclasses import dataclass, field

from momentous.io.types import AnyArray
from momentous.testbed.problem import Rng, Vector, frozen

__all__ = ["MapProblem", "Matrix", "Rng", "Vector"]

Matrix = AnyArray
"""An array of two dimensions or more."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MapProblem:
    """A descent map T of a flat NumPy vector: f(T(x)) <= f(x), and T(x) = x where f is stationary.

    Points of a set (probabilities, variances, nonnegative numbers) are written in coordinates that
    any vector stands for, so that extrapolated points are points as well.

    Where the map knows f at the point that it is given, as an EM step does, ``step_and_value``
    brings both: then a map and a value cost one call, and a value alone costs a map.
    """

    name: str  # with the parameters in it
    description: str = field(repr=False)  # in one sentence
    start: Vector = field(repr=False)
    step: Callable[[Vector], Vector] = field(default=None, repr=False)  # type: ignore[assignment]
    value: Callable[[Vector], float] = field(default=None, repr=False)  # type: ignore[assignment]
    step_and_value: Callable[[Vector], tuple[Vector, float]] | None = field(
        default=None, repr=False
    )

    def __post_init__(self) -> None:
        both = self.step_and_value
        if both is not None:
            object.__setattr__(self, "step", lambda x: both(x)[0])
            object.__setattr__(self, "value", lambda x: both(x)[1])
        object.__setattr__(self, "start", frozen(self.start))

    @property
    def dimension(self) -> int:
        """Number of variables."""
        return int(self.start.size)
