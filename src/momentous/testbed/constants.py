"""Data of a problem, stored once in NumPy and handed out in the array library of the point."""

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import ArrayLike

from momentous.testbed.problem import Array


class Constants:
    """Constant arrays that follow the library, dtype and device of the point at hand.

    Examples
    --------
    >>> data = Constants([1.0, 2.0], [3.0, 4.0])
    >>> weights, scales = data.like(np.zeros(2, dtype=np.float32))
    >>> weights.dtype
    dtype('float32')
    """

    def __init__(self, *arrays: ArrayLike) -> None:
        self._arrays = tuple(np.array(array, dtype=np.float64) for array in arrays)
        self._converted: dict[tuple[str, str, str], tuple[Array, ...]] = {}

    def like(self, x: Array) -> tuple[Array, ...]:
        """Return the constants as arrays of the same kind as x."""
        xp, where = array_namespace(x), device(x)
        if where is None:  # a JAX tracer: what is made from here on must not outlive the trace
            return self._convert(xp, x.dtype, None)
        key = (xp.__name__, str(x.dtype), str(where))
        if key not in self._converted:
            self._converted[key] = self._convert(xp, x.dtype, where)
        return self._converted[key]

    def _convert(self, xp: Any, dtype: Any, where: Any) -> tuple[Array, ...]:
        if not xp.isdtype(dtype, "real floating"):
            raise TypeError(
                f"x must have a real floating-point dtype, not {dtype}; convert it first"
            )
        return tuple(xp.asarray(array, dtype=dtype, device=where) for array in self._arrays)
