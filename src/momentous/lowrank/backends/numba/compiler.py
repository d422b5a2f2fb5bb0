"""How kernels are compiled: once per loss, from one source, with the loss's own functions in it.

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
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Protocol, TypeVar, cast

from momentous.io.types import AnyFunction
from momentous.lowrank.backends.numba.lanes import ROUNDER, polynomial, power_of_two
from momentous.lowrank.backends.numba.shared_cache import share_cache
from momentous.lowrank.losses import Loss

Function = TypeVar("Function", bound=AnyFunction)

TEMPLATE = "entry_kernels"


class KernelDecorator(Protocol):
    """As `compiled_kernel`, with what rounding may do."""

    def __call__(self, *freedoms: str) -> Callable[[Function], Function]: ...


# exp(r) for |r| <= log(2)/2 by its series up to r^13, and atanh(s)/s for s <= 1/3 by its series in
# s^2 up to s^30: the next terms are below half a unit in the last place.
EXP = tuple(1.0 / math.factorial(k) for k in range(13, -1, -1))
ATANH = tuple(1.0 / (2 * k + 1) for k in range(15, -1, -1))
LOG2_E = 1.0 / math.log(2.0)
# log(2) in two parts (Cody & Waite): whole multiples of the first up to 2^11 are exact.
LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e42fefa3800p-1"), float.fromhex("0x1.ef35793c76730p-45")
LEAST_EXPONENT = -708.0  # exp of it is still a normal number; what is less counts as this


def compiled_kernel(
    *freedoms: str, inline: bool = False, cached: bool = True
) -> Callable[[Function], Function]:
    """Compile without the interpreter's lock; `freedoms` are what rounding may do.

    Numba's files are named by file and function, and do not see what a function calls in another
    file: a digest of this folder's code is made part of the name.  Where no folder for them can be
    written to (a read-only installation without a home), functions are compiled again in every
    process; otherwise once, see `share_cache`.
    """
    njit = import_module("numba").njit
    options = {"error_model": "numpy", "fastmath": set(freedoms), "forceinline": inline}

    def compile_function(function: Function) -> Function:
        if cached:
            function.__qualname__ += f"_{_folder_digest()}"
            with contextlib.suppress(RuntimeError):  # "cannot cache function"
                kept = njit(nogil=True, cache=True, **options)(function)
                share_cache(kept)
                return cast(Function, kept)
        return cast(Function, njit(nogil=True, **options)(function))

    return compile_function


@cache
def _folder_digest() -> str:
    folder = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return hashlib.sha256(folder).hexdigest()[:12]


# --- functions that loops over entries can be vectorised with -------------------------------------


@compiled_kernel("contract", inline=True)  # the order of operations matters in it
def exp_of_minus(size: float) -> float:
    """``exp(-size)`` for size >= 0, in (0, 1]."""
    exponent = -size
    exponent = LEAST_EXPONENT if exponent < LEAST_EXPONENT else exponent
    rounded = exponent * LOG2_E + ROUNDER
    whole = rounded - ROUNDER
    rest = (exponent - whole * LN2_HIGH) - whole * LN2_LOW
    result: float = polynomial(rest, EXP) * power_of_two(rounded)
    return result


@compiled_kernel("contract", inline=True)
def log_of_one_plus(e: float) -> float:
    """``log(1 + e) = 2 atanh(e / (2 + e))`` for e in [0, 1]."""
    s = e / (2.0 + e)
    result: float = 2.0 * s * polynomial(s * s, ATANH)
    return result


FASTER = {"exp_of_minus": exp_of_minus, "log_of_one_plus": log_of_one_plus}


# --- one set of kernels per loss ------------------------------------------------------------------


_KERNELS: dict[tuple[type[Loss], str], ModuleType] = {}


def kernels_for(loss: type[Loss], template: str = TEMPLATE) -> ModuleType:
    """The kernels for a loss: the template, a file of this folder, loaded under a name of its own.

    So the loss's functions are globals of these kernels, which numba's cache on disk can take.
    """
    if (loss, template) in _KERNELS:
        return _KERNELS[loss, template]
    name = f"{template}_of_{loss.__module__}_{loss.__qualname__}".replace(".", "_")
    path = Path(__file__).parent / f"{template}.py"
    spec = spec_from_file_location(f"{__package__}.{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    module.__dict__["LOSS"] = loss
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return _KERNELS.setdefault((loss, template), module)


def compiled_entry(loss: type[Loss]) -> AnyFunction:
    """``loss.entry``, compiled into whatever calls it."""
    return _compiled(loss.entry, _is_own(loss))


def kernel_of(loss: type[Loss]) -> KernelDecorator:
    """`compiled_kernel` for kernels that call the loss's entry.

    The loss and a digest of its code are made part of the name, too.  Losses from outside this
    package are compiled again in every process.
    """
    digest = hashlib.sha256(_code(loss.entry)).hexdigest()[:12]

    def decorator(*freedoms: str) -> Callable[[Function], Function]:
        compiled = compiled_kernel(*freedoms, cached=_is_own(loss))

        def compile_named(function: Function) -> Function:
            function.__qualname__ = f"{function.__name__}_{loss.name}_{digest}"
            return compiled(function)

        return compile_named

    return decorator


def _is_own(loss: type[Loss]) -> bool:
    return loss.__module__.startswith("momentous.lowrank.losses.")


def _compiled(function: AnyFunction, cached: bool) -> AnyFunction:
    """A function compiled with all functions of its own module that it calls."""
    names = dict(function.__globals__)
    for name in function.__code__.co_names:
        called = names.get(name)
        if isinstance(called, FunctionType):
            names[name] = FASTER.get(name) if name in FASTER else _compiled(called, cached)
    rebuilt = FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    rebuilt.__qualname__ = function.__qualname__
    return compiled_kernel("contract", inline=True, cached=cached)(rebuilt)


def _code(function: AnyFunction) -> bytes:
    """What tells one version of a function, and of those that it calls, from another."""
    code = function.__code__
    parts = [code.co_code, repr(code.co_consts).encode(), repr(code.co_names).encode()]
    for name in code.co_names:
        called = function.__globals__.get(name)
        if isinstance(called, FunctionType):
            parts.append(_code(called))
        elif isinstance(called, int | float):
            parts.append(repr(called).encode())
    return b"".join(parts)


@cache
def thread_pool(threads: int) -> ThreadPoolExecutor:
    """One pool for all objectives: its threads sleep when there is nothing to do."""
    return ThreadPoolExecutor(threads, thread_name_prefix="momentous-lowrank")


if hasattr(os, "register_at_fork"):  # the threads of a pool do not live on in a forked process
    os.register_at_fork(after_in_child=thread_pool.cache_clear)
