"""Is there a GPU that can be used, and is there room on it?  If not, one sentence says why."""

from __future__ import annotations

import os

from momentous.io.optional import require
from momentous.lowrank.data.ratings import Compressed

OLDEST = 80  # compute capability 8.0, Ampere: copies to shared memory that go on by themselves
ROOM = 1.25  # for factors and for what a sweep holds for a while
LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")


class DeviceError(RuntimeError):
    """The GPU cannot be used."""


def require_gpu() -> None:
    """Raise an error that says what is missing, if anything is."""
    runtime = require("cupy", "cuda", "device='cuda'").cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        if "insufficient" in str(error).lower():
            found, needed = runtime.driverGetVersion(), runtime.runtimeGetVersion()
            raise DeviceError(
                f"the GPU driver is too old: it supports CUDA {_version(found)}, and CuPy is made "
                f"for CUDA {_version(needed)}; update the driver, or install cupy-cuda12x"
            ) from None
        count = 0
    if not count:
        raise DeviceError("there is no NVIDIA GPU that can be used here; take device='cpu'")
    major, minor = (runtime.deviceGetAttribute(code, runtime.getDevice()) for code in (75, 76))
    if 10 * major + minor < OLDEST:
        raise DeviceError(
            f"the GPU has compute capability {major}.{minor}, and device='cuda' needs 8.0 (Ampere) "
            "or higher; take device='cpu'"
        )


def local_gpu() -> int:
    """The number of this rank's GPU; ranks share where there are fewer GPUs than ranks."""
    local = next((os.environ[name] for name in LOCAL_RANKS if name in os.environ), "0")
    count = require("cupy", "cuda", "device='cuda'").cuda.runtime.getDeviceCount()
    return int(local) % int(count)


def gpu_available() -> bool:
    """Can the GPU be used?"""
    try:
        require_gpu()
    except (ImportError, DeviceError):
        return False
    return True


def check_memory(groups: Compressed, orders: int) -> None:
    """Raise where entries in so many orders do not fit."""
    cupy = require("cupy", "cuda", "device='cuda'")
    entries = int(groups.others.size)
    needed = orders * (4 * entries + groups.values.nbytes)
    if orders > 1:
        needed += 24 * entries  # the sort that makes the second order
    free = cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()
    if entries >= 1 << 31:
        raise ValueError(
            f"there are {entries:,} entries, and device='cuda' is for fewer than 2^31; take "
            "device='cpu'"
        )
    if ROOM * needed > free:
        raise MemoryError(
            f"{entries:,} entries need about {int(ROOM * needed):,} bytes on the GPU, and "
            f"{free:,} are free; take device='cpu', or fewer entries"
        )


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
