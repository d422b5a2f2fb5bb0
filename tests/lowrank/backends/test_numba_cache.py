"""Kernels are compiled also where nothing can be cached."""

import numpy as np
import pytest

from momentous.lowrank.backends import find_backend

pytest.importorskip("numba")


def test_a_function_is_compiled_where_no_cache_can_be_written(monkeypatch):
    from numba.core import caching

    find_backend("numba")
    from momentous.lowrank.backends.numba.compiler import compiled_kernel

    class NoLocator:
        @classmethod
        def from_function(cls, function, path):
            return None

    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [NoLocator])

    @compiled_kernel()
    def double(x):
        return 2.0 * x

    assert double(np.float64(1.5)) == 3.0
