"""Numba's cache on disk for several processes that begin at once: one compiles, the others wait.

Without it the jobs of a grid search all compile the same kernels at the same time.  This file needs
numba, so is itself imported only where it is used.
"""

from __future__ import annotations

import contextlib
import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import Any

FunctionCache: Any = import_module("numba.core.caching").FunctionCache
fcntl: Any = import_module("fcntl") if find_spec("fcntl") else None  # not on Windows

PATIENCE = 60.0  # seconds, after which a process compiles for itself
PAUSE = 0.02


class SharedCache(FunctionCache):  # type: ignore[misc]  # numba has no types
    """The cache of one function.

    A kernel that is not in it is compiled under a lock of the kernel's own, between `load_overload`
    and `save_overload`, and looked for once more when the lock is there.  What it calls is compiled
    under the same lock.  A lock ends with its process; where there are none, or no file for one can
    be written, every process compiles for itself.
    """

    _holder: SharedCache | None = None  # numba compiles one function at a time

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function, or None: then the caller compiles it."""
        found = super().load_overload(sig, target_context)
        if found is not None or SharedCache._holder is not None or fcntl is None:
            return found
        self._file = self._locked_file()
        if self._file is None:
            return None
        SharedCache._holder = self
        found = super().load_overload(sig, target_context)
        if found is not None:
            self._release()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep it for the next time, and for those who wait."""
        try:
            super().save_overload(sig, data)
        finally:
            if SharedCache._holder is self:
                self._release()

    def _locked_file(self) -> int | None:
        with contextlib.suppress(OSError):
            folder = Path(self.cache_path)
            folder.mkdir(parents=True, exist_ok=True)
            name = f"{self._py_func.__qualname__.rpartition('.')[2]}.lock"
            file = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o644)
            end = monotonic() + PATIENCE
            while monotonic() < end:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return file
                sleep(PAUSE)
            os.close(file)
        return None

    def _release(self) -> None:
        SharedCache._holder = None
        if self._file is not None:
            os.close(self._file)
            self._file = None
