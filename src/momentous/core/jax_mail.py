"""Numbers between JAX and the host, in memory of the host that the GPU reads and writes.

A transfer of JAX's own takes a tenth of a millisecond and more, as long as ten passes over a vector
of ten million entries.  Here the numbers of a call stand in an array in memory of the host, which
compiled functions copy to the GPU as they begin; and sums are copied to such an array as they end,
between two copies of a ticket that no other call has.  The host looks until both are there.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

PATIENCE = 3000  # looks, some 0.3 ms; then JAX is asked to wait
SLOTS = 2  # for the numbers of one pass: the next call may be made before the last has run

# Tickets are whole numbers as doubles.  Memory that is used again has older ones in it, perhaps of
# another mail: each begins where no other gets to.
_beginnings = itertools.count(1)
_SPAN = 2.0**32


class _Slot:
    """Numbers for a call, in memory of the host, and what is ready once they have been read."""

    def __init__(self, count: int, there: Any):
        import jax

        self.array = jax.device_put(np.zeros(count), there).block_until_ready()
        self.numbers = (ctypes.c_double * count).from_address(self.array.unsafe_buffer_pointer())
        self.done: Any = None


class JaxMail:
    """The numbers and sums of calls on one GPU.  All of it is used with 64 bits switched on."""

    def __init__(self, device: Any):
        import jax

        self._here, self._there = _places(device)
        self._ticket = next(_beginnings) * _SPAN
        self._ticket_here = jax.device_put(np.array([self._ticket]), self._here)
        self._slots: dict[str, list[_Slot]] = {}

    def run(self, function: Any, name: str, numbers: Sequence[float], *given: Any) -> Any:
        """Call a function that `mailed` has made: its answer, and what gives the sums."""
        slot = self._slot(name, len(numbers)) if len(numbers) else None
        if slot is not None:
            slot.numbers[:] = [*numbers]
        weights = None if slot is None else slot.array
        made, letter, self._ticket_here = function(self._ticket_here, weights, *given)
        ticket, self._ticket = self._ticket, self._ticket + 1.0
        if slot is not None:
            slot.done = self._ticket_here
        return made, lambda: _read(letter, ticket)

    def _slot(self, name: str, count: int) -> _Slot:
        """The older one of a pass, once its numbers have been read."""
        slots = self._slots.get(name)
        if slots is None:
            slots = self._slots[name] = [_Slot(count, self._there) for _ in range(SLOTS)]
        slot = slots.pop(0)
        slots.append(slot)
        if slot.done is not None and not slot.done.is_ready():
            slot.done.block_until_ready()
        return slot


def _read(letter: Any, ticket: float) -> list[float]:
    """The numbers of a letter, as soon as they are there."""
    if letter is None:
        return []
    count = letter.shape[0]
    places = (ctypes.c_double * count).from_address(letter.unsafe_buffer_pointer())
    for _ in range(PATIENCE):
        if places[0] == ticket and places[count - 1] == ticket:
            found: list[float] = places[1 : count - 1]
            return found
    import jax

    numbers: list[float] = jax.device_get(letter)[1:-1].tolist()
    return numbers


@cache
def _places(device: Any) -> tuple[Any, Any]:
    """Where arrays are on the device, and where they are in memory of the host."""
    from jax.sharding import SingleDeviceSharding

    here = SingleDeviceSharding(device, memory_kind="device")
    return here, SingleDeviceSharding(device, memory_kind="pinned_host")


def mailed(compute: Callable[..., tuple[Any, Any]], device: Any) -> Any:
    """``compute(numbers, *given) -> answer, sums`` as a compiled function for `JaxMail.run`."""
    import jax
    import jax.numpy as jnp

    here, there = _places(device)

    def run(ticket: Any, numbers: Any, *given: Any) -> Any:
        if numbers is not None:
            numbers = jax.device_put(numbers, here)
        made, sums = compute(numbers, *given)
        letter = None if sums is None else jnp.concatenate([ticket, sums, ticket])
        return made, letter, ticket + 1.0

    return jax.jit(run, out_shardings=(here, there, here))


@cache
def has_mail(device: Any) -> bool:
    """Does this work here?  It is tried out: not all versions and devices have such memory."""
    import jax

    if device.platform != "gpu":
        return False
    try:
        with jax.enable_x64(True):
            mail = JaxMail(device)
            double = mailed(lambda numbers, x: (x, numbers * x), device)
            x = jax.device_put(np.ones(2), device)
            answers = [mail.run(double, "trial", (turn, 2.0), x)[1] for turn in range(5)]
            return [answer() for answer in answers] == [[turn, 2.0] for turn in range(5)]
    except Exception:  # whatever JAX says: there is another way
        return False
