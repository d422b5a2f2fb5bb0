"""Types of what comes from outside: arrays of any kind, JSON, functions of the user's own.

NumPy's generic types and ``Callable[..., T]`` stand for `Any` themselves, so they have their names
here, where explicit `Any` is allowed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]  # float32 or float64
Integers = NDArray[np.integer]
AnyArray = np.ndarray  # of any dtype
AnyDType = np.dtype
JsonObject = dict[str, Any]  # as `json.loads` makes it: who reads one checks what is in it
AnyFunction = Callable[..., Any]
