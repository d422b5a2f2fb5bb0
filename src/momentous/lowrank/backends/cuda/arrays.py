"""CuPy, imported when it is first used, so that every file here can be read without it."""

from typing import TYPE_CHECKING

from momentous.io.optional import LazyModule

if TYPE_CHECKING:
    import cupy as cupy
    from cupy import ndarray as Array  # noqa: N812
    from cupyx.scipy import sparse as sparse
else:
    cupy = LazyModule("cupy", "cuda", "device='cuda'")
    sparse = LazyModule("cupyx.scipy.sparse", "cuda", "device='cuda'")
    Array = object  # for annotations alone

__all__ = ["Array", "cupy", "sparse"]
