"""Types of what comes from outside: arrays of any kind, JSON, functions of the user's own.

NumPy's generic types and ``Callable[..., T]`` stand for `Any` themselves, so they have their names
here, where explicit `Any` is allowed.
"""

from collections.abc import Callable
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.lib.npyio import NpzFile as _NpzFile
from numpy.typing import NDArray

Floats = NDArray[np.floating]  # float32 or float64
Integers = NDArray[np.integer]
AnyArray = NDArray[Any]
AnyDType = np.dtype[Any]
JsonObject = dict[str, Any]  # as `json.loads` makes it: who reads one checks what is in it
AnyFile = IO[Any]  # of text or of bytes
AnyFunction = Callable[..., Any]
FloatClass = type[np.floating]
AnyId = str | float | np.integer
NpzFile: TypeAlias = "_NpzFile[Any]"  # not generic for Python itself
