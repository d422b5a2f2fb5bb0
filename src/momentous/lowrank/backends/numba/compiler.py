"""How kernels are compiled: once per loss, from one source, with the loss's formula in it.

This file needs numba, so is itself imported only where it is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Protocol, TypeVar, cast

import numpy as np

from momentous.io.types import AnyFunction
from momentous.lowrank.losses import Loss

Function = TypeVar("Function", bound=AnyFunction)

TEMPLATE = Path(__file__).with_name("loss_kernels.py")


class KernelDecorator(Protocol):
    """As `compiled_kernel`, with what rounding may do."""

    def __call__(self, *freedoms: str) -> Callable[[Function], Function]: ...


def compiled_kernel(
    *freedoms: str, inline: bool = False, cached: bool = True
) -> Callable[[Function], Function]:
    """Compile without the interpreter's lock; `freedoms` are what rounding may do.

    Numba's files are named by file and function, and do not see what a function calls in another
    file: a digest of this folder's code is made part of the name.  Where no folder for them can be
    written to (a read-only installation without a home), functions are compiled again in every
    process.
    """
    njit = import_module("numba").njit
    options = {"error_model": "numpy", "fastmath": set(freedoms), "forceinline": inline}

    def compile_function(function: Function) -> Function:
        if cached:
            function.__qualname__ += f"_{_folder_digest()}"
            with contextlib.suppress(RuntimeError):  # "cannot cache function"
                return cast(Function, njit(nogil=True, cache=True, **options)(function))
        return cast(Function, njit(nogil=True, **options)(function))

    return compile_function


@cache
def _folder_digest() -> str:
    folder = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return hashlib.sha256(folder).hexdigest()[:12]


# --- one set of kernels per loss ------------------------------------------------------------------


@cache
def kernels_for(loss: type[Loss]) -> ModuleType:
    """The kernels for a loss: the template, loaded under a name of its own.

    So the loss's formula is a global of these kernels, which numba's cache on disk can take.
    """
    name = f"kernels_of_{loss.__module__}_{loss.__qualname__}".replace(".", "_")
    spec = spec_from_file_location(f"{__package__}.{name}", TEMPLATE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    module.__dict__["LOSS"] = loss
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def entry_source(loss: type[Loss]) -> str:
    """The function ``entry(z, values, k, parameters)`` of a loss, from its formula: at the
    prediction z of the k-th of these values."""
    names = {f"p{k}": f"parameters[{k}]" for k in range(len(fields(loss)))}
    names |= {"x": "float64(values[k])"}
    if loss.weighted:
        names |= {"x": "float64(values[k, 0])", "w": "float64(values[k, 1])"}
    given = "".join(f"    {name} = {one}\n" for name, one in names.items())
    return f"def entry(z, values, k, parameters):\n{given}{loss.formula().in_python()}\n"


def compiled_entry(loss: type[Loss]) -> AnyFunction:
    """The same, compiled into whatever calls it."""
    elementary = import_module("momentous.lowrank.backends.numba.elementary")
    names = {name: getattr(math, name) for name in ("expm1", "fabs", "log", "sqrt", "tanh")}
    names |= {"exp": elementary.exp, "log1p": elementary.log1p, "float64": np.float64}
    exec(entry_source(loss), names)  # made of the names of operations and of numbers
    entry: AnyFunction = names["entry"]
    return compiled_kernel("contract", inline=True, cached=False)(entry)


def kernel_of(loss: type[Loss]) -> KernelDecorator:
    """`compiled_kernel` for kernels that call the loss's entry.

    The loss and a digest of its formula and its kind are made part of the name, too.
    """
    kind = (
        loss.quadratic, loss.unit_curvature, loss.self_concordant, loss.dense_weight,
        entry_source(loss),
    )  # fmt: skip
    digest = hashlib.sha256(repr(kind).encode()).hexdigest()[:12]

    def decorator(*freedoms: str) -> Callable[[Function], Function]:
        def compile_named(function: Function) -> Function:
            function.__qualname__ = f"{function.__name__}_{loss.name}_{digest}"
            return compiled_kernel(*freedoms)(function)

        return compile_named

    return decorator


@cache
def thread_pool(threads: int) -> ThreadPoolExecutor:
    """One pool for all objectives: its threads sleep when there is nothing to do."""
    return ThreadPoolExecutor(threads, thread_name_prefix="momentous-lowrank")


if hasattr(os, "register_at_fork"):  # the threads of a pool do not live on in a forked process
    os.register_at_fork(after_in_child=thread_pool.cache_clear)
