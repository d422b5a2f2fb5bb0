"""A few numbers that a kernel writes to memory of the host, and the wait for them.

The host fills the places with a mark and looks at them until none is left: the numbers are there
some microseconds before the GPU reports the end of the kernel.  If it takes long, the host asks the
GPU to wake it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# The bits of a NaN that no sum has.
MARK = 0x7FF8_0DD5_0DD5_0DD5
PATIENCE = 3000  # looks, some 0.3 ms


class Mailbox:
    """``places`` is memory of the host that the GPU can write to."""

    def __init__(self, places: np.ndarray):
        self._places = places
        self._bits: Any = memoryview(places.view(np.int64))  # type: ignore[arg-type]
        self._count, self._open = 0, False

    def clear(self, count: int, stream: Callable[[], Any]) -> None:
        """Mark the first ``count`` places; all of them will be written to."""
        if self._open:  # a wait was cut short: what was to come then must not come later
            stream().synchronize()
        bits, self._open = self._bits, True
        for i in range(count):
            bits[i] = MARK
        self._count = count

    def wait(self, stream: Callable[[], Any]) -> list[float]:
        """The numbers, as soon as all are there; ``stream()`` has the kernel that writes them."""
        bits, looks = self._bits, 0
        for i in range(self._count):
            while bits[i] == MARK:
                looks += 1
                if looks > PATIENCE:
                    stream().synchronize()
                    return self._numbers()
        return self._numbers()

    def _numbers(self) -> list[float]:
        self._open = False
        numbers: list[float] = self._places[: self._count].tolist()
        return numbers
