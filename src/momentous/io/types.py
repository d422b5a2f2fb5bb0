"""Types of what comes from outside: arrays of any kind, JSON, functions of the user's own.

NumPy's generic types and ``Callable[..., T]`` stand for `Any` themselves, so they have their names
here, where explicit `Any` is allowed.
"""

from collections.abc import Callable
from typing import IO, Any, TypeAlias, TypeVar

import numpy as np
from numpy.lib.npyio import NpzFile as _NpzFile
from numpy.typing import NDArray

T = TypeVar("T")

Floats = NDArray[np.floating]  # float32 or float64
Matrix = NDArray[np.float64]  # of any number of axes, in double precision
Integers = NDArray[np.integer]
AnyArray = NDArray[Any]
AnyDType = np.dtype[Any]
Unchecked = Any  # what user code or another library has given, before anything has looked at it
Options = dict[str, Any]  # keyword arguments by name
JsonObject = dict[str, Any]  # as `json.loads` makes it: who reads one checks what is in it
AnyFile = IO[Any]  # of text or of bytes
AnyFunction = Callable[..., Any]
FunctionTo = Callable[..., T]
FloatClass = type[np.floating]
AnyId = str | float | np.integer
NpzFile: TypeAlias = "_NpzFile[Any]"  # not generic for Python itself
