"""Numba's cache on disk for several processes that begin at once: one compiles, the others wait.

Without it the jobs of a grid search all compile the same kernels at the same time.  This file needs
numba, so is itself imported only where it is used.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from types import FunctionType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from numba.core.base import BaseContext
    from numba.core.caching import FunctionCache
    from numba.core.compiler import CompileResult
    from numba.core.typing import Signature
else:
    FunctionCache = import_module("numba.core.caching").FunctionCache
COMPILER_LOCK = import_module("numba.core.compiler_lock").global_compiler_lock
HAS_LOCKS = find_spec("fcntl") is not None  # not on Windows


class Dispatcher(Protocol):
    """A function of numba's, as far as it is used here."""

    py_func: FunctionType
    _cache: FunctionCache
    compile: Callable[[Signature], CompileResult]


PATIENCE = 60.0  # seconds, after which a process compiles for itself
PAUSE = 0.02


class SharedCache(FunctionCache):  # type: ignore[misc]  # numba has no types
    """The cache of one function, which `share_cache` gives to its dispatcher.

    A kernel that is not in it is compiled under a lock of the kernel's own, which `load_overload`
    takes, and looked for once more when the lock is there.  What it calls is compiled under the
    same lock.  Whatever ends the compilation, Ctrl-C included, releases the lock; where there are
    none, or no file for one can be written, every process compiles for itself.
    """

    _holder: SharedCache | None = None  # numba compiles one function at a time
    _file: int | None = None

    def load_overload(self, sig: Signature, target_context: BaseContext) -> CompileResult | None:
        """The compiled function, or None: then the caller compiles it."""
        found = super().load_overload(sig, target_context)
        if found is not None or SharedCache._holder is not None or not HAS_LOCKS:
            return found
        SharedCache._holder = self
        return super().load_overload(sig, target_context) if self._lock() else None

    def _lock(self) -> bool:
        fcntl = import_module("fcntl")
        with contextlib.suppress(OSError):
            folder = Path(self.cache_path)
            folder.mkdir(parents=True, exist_ok=True)
            name = f"{self._py_func.__qualname__.rpartition('.')[2]}.lock"
            self._file = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o644)
            end = monotonic() + PATIENCE
            while monotonic() < end:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
                sleep(PAUSE)
        return False

    def release(self) -> None:
        """Let other processes have the lock, if it is held for this function."""
        if SharedCache._holder is self:
            SharedCache._holder = None
            if self._file is not None:
                os.close(self._file)
                self._file = None


def share_cache(dispatcher: Dispatcher) -> None:
    """Give a function of numba's a `SharedCache`, whose lock ends with each compilation."""
    cache = dispatcher._cache = SharedCache(dispatcher.py_func)
    compile_overload = dispatcher.compile

    def compile_and_release(sig: Signature) -> CompileResult:
        with COMPILER_LOCK:  # numba's own, which one thread may take again: one holder at a time
            try:
                return compile_overload(sig)
            finally:
                cache.release()

    dispatcher.compile = compile_and_release
