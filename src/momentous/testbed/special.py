"""The complementary error function, which the array API standard lacks."""

from importlib import import_module

import numpy as np
from array_api_compat import (
    array_namespace,
    device,
    is_cupy_array,
    is_jax_array,
    is_numpy_array,
    is_torch_array,
)

from momentous.testbed.problem import Array


def erfc(x: Array) -> Array:
    """Complementary error function, elementwise, by the library that owns x or else by SciPy."""
    if is_torch_array(x):
        return import_module("torch.special").erfc(x)
    if is_jax_array(x):
        return import_module("jax.scipy.special").erfc(x)
    if is_cupy_array(x):
        return import_module("cupyx.scipy.special").erfc(x)
    scipy = import_module("scipy.special")
    if is_numpy_array(x):
        return scipy.erfc(x)
    return array_namespace(x).asarray(scipy.erfc(np.from_dlpack(x)), device=device(x))
