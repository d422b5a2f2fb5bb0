"""A few numbers that a kernel writes to memory of the host, and the wait for them.

The host fills the places with a mark and looks at them until none is left: the numbers are there
some microseconds before the GPU reports the end of the kernel.  If it takes long, the host asks the
GPU to wake it.  There is room for the numbers of several kernels, so that one can be started before
those of another are read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from momentous.core.passes import AT_ONCE

# The bits of a NaN that no sum has.
MARK = 0x7FF8_0DD5_0DD5_0DD5
PATIENCE = 3000  # looks, some 0.3 ms
LETTERS = AT_ONCE + 2  # that may be under way at once: a direction's sums may not be read yet

Wait = Callable[[], Any]  # waits for all kernels that were started


class Letter:
    """The places of one kernel; ``pointer`` is the address of the first."""

    __slots__ = ("_bits", "_count", "_places", "pointer")

    def __init__(self, places: np.ndarray):
        self._places, self._count = places, 0
        self._bits: Any = memoryview(places.view(np.int64))  # type: ignore[arg-type]
        self.pointer = places.ctypes.data

    @property
    def is_open(self) -> bool:
        """Has nobody read it yet?"""
        return self._count > 0

    def clear(self, count: int, wait: Wait) -> None:
        """Mark the first ``count`` places; all of them will be written to."""
        if self._count:  # what was to come then must not come later
            wait()
        bits, self._count = self._bits, count
        for i in range(count):
            bits[i] = MARK

    def read(self, wait: Wait) -> list[float]:
        """The numbers, as soon as all are there."""
        bits, looks = self._bits, 0
        for i in range(self._count):
            while bits[i] == MARK:
                looks += 1
                if looks > PATIENCE:
                    wait()
                    return self._numbers()
        return self._numbers()

    def _numbers(self) -> list[float]:
        count, self._count = self._count, 0
        numbers: list[float] = self._places[:count].tolist()
        return numbers


class Mailbox:
    """``places`` is memory of the host that the GPU can write to; letters share it."""

    def __init__(self, places: np.ndarray):
        # The one that was given out last stands last.
        self._letters = [Letter(part) for part in np.split(places, LETTERS)]

    def letter(self, count: int, wait: Wait) -> Letter:
        """A letter with so many places, all marked."""
        letters, i = self._letters, 0
        while letters[i].is_open:
            i += 1
            if i == LETTERS:  # a wait was cut short: the oldest will not be read any more
                i = 0
                break
        letter = letters.pop(i)
        letters.append(letter)
        letter.clear(count, wait)
        return letter


NO_LETTER = Letter(np.empty(0))  # of a kernel without numbers
