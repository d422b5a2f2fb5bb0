"""CuPy, imported when it is first used, so that every file here can be read without it."""

from __future__ import annotations

from typing import Any

from momentous.io.optional import LazyModule

cupy: Any = LazyModule("cupy", "cuda", "device='cuda'")
sparse: Any = LazyModule("cupyx.scipy.sparse", "cuda", "device='cuda'")
