"""Test problems: a smooth function or a descent map, what is known about it, and where to start."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, cast

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from numpy.typing import ArrayLike, NDArray

from momentous.io.types import AnyArray

Array = Any
"""An array of any library that follows the array API standard."""

Vector = NDArray[np.float64]
"""What the testbed itself stores: NumPy, double precision."""

Matrix = AnyArray
"""NumPy's, of two dimensions or more."""

Rng = int | np.random.Generator | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """A function of a flat vector, with its derivatives and its known constants.

    The callables accept a vector of any array library and return arrays of the same library, dtype
    and device.  ``start`` and ``minimiser`` are float64 and read-only; see `start_in`.
    """

    name: str  # with the parameters in it
    description: str = field(repr=False)  # in one sentence
    start: Vector = field(repr=False)
    value_and_gradient: Callable[[Array], tuple[Array, Array]] = field(repr=False)
    # f(x), by default the first of the pair.
    value: Callable[[Array], Array] = field(default=None, repr=False)  # type: ignore[assignment]
    # Exact (x, v) -> D^2 f(x) v, where it is simple enough to be written down.
    hessian_product: Callable[[Array, Array], Array] | None = field(default=None, repr=False)
    # L and rho, on the ball |x| <= constants_radius; the factories say whether they are exact or
    # upper bounds.
    gradient_lipschitz: float | None = None
    hessian_lipschitz: float | None = None
    constants_radius: float = field(default=math.inf, repr=False)
    minimum: float | None = None  # the infimum of f, or else a lower bound
    minimum_is_exact: bool = field(default=False, repr=False)
    minimiser: Vector | None = field(default=None, repr=False)  # where it is attained, if known

    def __post_init__(self) -> None:
        if cast(object, self.value) is None:
            object.__setattr__(self, "value", lambda x: self.value_and_gradient(x)[0])
        object.__setattr__(self, "start", frozen(self.start))
        if self.minimiser is not None:
            object.__setattr__(self, "minimiser", frozen(self.minimiser))

    @property
    def dimension(self) -> int:
        """Number of variables."""
        return int(self.start.size)

    @property
    def has_constants(self) -> bool:
        """Whether L and rho are known globally and f is known to be bounded below."""
        known = (self.gradient_lipschitz, self.hessian_lipschitz, self.minimum)
        return None not in known and math.isinf(self.constants_radius)

    def gradient(self, x: Array) -> Array:
        """Gradient of f at x."""
        return self.value_and_gradient(x)[1]

    def start_in(self, xp: ModuleType = np, dtype: object = None, device: object = None) -> Array:
        """A fresh copy of the starting point as an array of another library (``torch``, ...).

        By default in double precision, where the library allows it, on its default device.
        """
        xp = array_namespace(xp.zeros(1))  # a plain module may lack the standard's arguments
        return xp.asarray(self.start.copy(), dtype=dtype, device=device)


@dataclass(frozen=True, eq=False, kw_only=True)
class MapProblem:
    """A descent map T of a flat NumPy vector: f(T(x)) <= f(x), and T(x) = x where f is stationary.

    It is what `momentous.accelerate` takes: the map, the objective that it never raises, a start.
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


def frozen(point: Vector) -> Vector:
    """Copy, so that no caller can change a problem behind its back."""
    copy = np.array(point, dtype=np.float64)
    copy.flags.writeable = False
    return copy


class Constants:
    """Constant arrays that follow the library, dtype and device of the point at hand."""

    def __init__(self, *arrays: ArrayLike) -> None:
        self._arrays = tuple(np.array(array, dtype=np.float64) for array in arrays)
        self._converted: dict[tuple[str, str, str], tuple[Array, ...]] = {}

    def like(self, x: Array) -> tuple[Array, ...]:
        """The constants as arrays of the same kind as x."""
        xp, where = array_namespace(x), device_of(x)
        if where is None:  # a JAX tracer: what is made from here on must not outlive the trace
            return self._convert(xp, x.dtype, None)
        key = (xp.__name__, str(x.dtype), str(where))
        if key not in self._converted:
            self._converted[key] = self._convert(xp, x.dtype, where)
        return self._converted[key]

    def _convert(self, xp: ModuleType, dtype: object, where: object) -> tuple[Array, ...]:
        if not xp.isdtype(dtype, "real floating"):
            raise TypeError(
                f"x must have a real floating-point dtype, not {dtype}; convert it first"
            )
        return tuple(xp.asarray(array, dtype=dtype, device=where) for array in self._arrays)
