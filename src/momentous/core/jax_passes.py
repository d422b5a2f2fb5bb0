"""Passes of JAX: one jitted function per pass.

XLA fuses the new vectors with the sums as it sees fit; arrays that are spread over devices stay so,
and XLA adds up the sums of the shards.  Sums are in double precision also where JAX has that
switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from momentous.core.passes import Pass


@cache
def _jitted(work: Pass, sums_at: Any) -> Any:
    """``(numbers, vectors, value)`` to the new vectors, and the sums with the value behind them."""
    import jax
    import jax.numpy as jnp

    def run(numbers: Any, vectors: Any, value: Any) -> Any:
        weights = () if numbers is None else numbers.astype(vectors[0].dtype)
        made, products = work.formula(*vectors, *weights)
        doubles = [(a.astype(jnp.float64), b.astype(jnp.float64)) for a, b in products]
        sums = [jnp.sum(a * b) for a, b in doubles]
        if value is not None:
            sums.append(value.reshape(()).astype(jnp.float64))
        return made, jnp.stack(sums) if sums else None

    return jax.jit(run) if sums_at is None else jax.jit(run, out_shardings=(None, sums_at))


@cache
def _memory_of_host(device: Any) -> Any:
    """Memory of the host that a GPU writes to: sums are there in 110 us, where a transfer after
    the pass takes 340 (H200, a million entries)."""
    import jax

    if device.platform != "gpu":
        return None
    if "pinned_host" not in {memory.kind for memory in device.addressable_memories()}:
        return None
    return jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")


class JaxPasses:
    """Runs passes on arrays of JAX that are like a given one."""

    def __init__(self, like: Any):
        import jax

        self._jax = jax
        devices = like.devices()
        self._sums_at = _memory_of_host(*devices) if len(devices) == 1 else None

    def brings(self, value: Any) -> bool:
        """Is this a scalar of JAX?"""
        return isinstance(value, self._jax.Array) and value.size == 1 and value.dtype.kind == "f"

    def start(
        self, work: Pass, vectors: Sequence[Any], numbers: Sequence[float], value: Any
    ) -> tuple[tuple[Any, ...], Callable[[], tuple[list[float], float]]]:
        """The new vectors, and a function that waits for the sums and the value."""
        run = _jitted(work, self._sums_at)
        with self._jax.enable_x64(True):
            weights = np.array(numbers, np.float64) if len(numbers) else None
            made, sums = run(weights, tuple(vectors), value)

        def read() -> tuple[list[float], float]:
            # (`device_get` would first start a copy of what is in memory of the host already.)
            found = [] if sums is None else np.asarray(sums).tolist()
            return (found, np.nan) if value is None else (found[:-1], found[-1])

        return made, read
