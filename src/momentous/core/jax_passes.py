"""Passes of JAX: one jitted function per pass, so that XLA makes one kernel of it where it can.

Sums are in double precision also where JAX has that switched off.  Arrays that are spread over
devices stay so: XLA adds up the sums of the shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from momentous.core.passes import Pass


@cache
def _jitted(work: Pass, with_value: bool) -> Any:
    import jax
    import jax.numpy as jnp

    def run(vectors: tuple[Any, ...], numbers: Any, value: Any) -> Any:
        weights = [] if numbers is None else list(numbers.astype(vectors[0].dtype))
        made, products = work.formula(*vectors, *weights)
        sums = [jnp.sum(a.astype(jnp.float64) * b.astype(jnp.float64)) for a, b in products]
        if with_value:
            sums.append(value.reshape(()).astype(jnp.float64))
        return made, jnp.stack(sums) if sums else None

    return jax.jit(run)


class JaxPasses:
    """Runs passes on arrays of JAX."""

    def __init__(self, like: Any):
        import jax

        self._array, self._doubles, self._fetched = jax.Array, jax.enable_x64, jax.device_get

    def brings(self, value: Any) -> bool:
        """Is this a scalar of JAX?"""
        return isinstance(value, self._array) and value.size == 1 and value.dtype.kind == "f"

    def __call__(
        self, work: Pass, vectors: Sequence[Any], numbers: Sequence[float], value: Any
    ) -> tuple[tuple[Any, ...], np.ndarray, float]:
        """The new vectors; and once they are there, the sums and the value."""
        brings = value is not None
        with self._doubles(True):
            weights = np.array(numbers, np.float64) if len(numbers) else None
            made, sums = _jitted(work, brings)(tuple(vectors), weights, value)
        if sums is None:
            return made, np.empty(0), np.nan
        host = self._fetched(sums)
        return made, host[:-1] if brings else host, float(host[-1])
