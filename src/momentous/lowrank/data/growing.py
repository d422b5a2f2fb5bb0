"""An array that grows at its end, and is let go of as it is used up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK = 1 << 24
"""Entries: so large that the system takes the memory back when a chunk is let go, which it does not
with many small arrays.  What is not filled yet takes no memory."""


class Growing:
    """Numbers in the order in which they came.

    They may come in a short type first; after the first that come in a long one, all become long.
    """

    def __init__(self) -> None:
        self._chunks: list[NDArray[Any]] = []
        self._filled: list[int] = []

    def __len__(self) -> int:
        return sum(self._filled)

    @property
    def dtypes(self) -> set[np.dtype[Any]]:
        """The types that there are."""
        return {chunk.dtype for chunk in self._chunks}

    def append(self, values: NDArray[Any]) -> None:
        """Add numbers at the end."""
        if self._chunks:
            values = values.astype(
                np.promote_types(values.dtype, self._chunks[-1].dtype), copy=False
            )
        while values.size:
            if (
                not self._chunks
                or self._chunks[-1].dtype != values.dtype
                or self._filled[-1] == CHUNK
            ):
                self._chunks.append(np.empty(CHUNK, values.dtype))
                self._filled.append(0)
            begin = self._filled[-1]
            taken = values[: CHUNK - begin]
            self._chunks[-1][begin : begin + taken.size] = taken
            self._filled[-1] += taken.size
            values = values[taken.size :]

    def parts(self) -> Iterator[NDArray[Any]]:
        """All numbers, some at a time."""
        for chunk, filled in zip(self._chunks, self._filled, strict=True):
            yield chunk[:filled]

    def used_up(self) -> Iterator[NDArray[Any]]:
        """All numbers, some at a time, and none is left."""
        while self._chunks:
            yield self._chunks.pop(0)[: self._filled.pop(0)]
