"""The ids of users or items, as they come by: numbered in sorted order at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.data.fields import Column, whole_numbers
from momentous.lowrank.data.growing import Growing


class Ids:
    """One column of ids.

    They are integers as long as all look like integers, strings from the first one that does not:
    then the integers before become strings, too.
    """

    def __init__(self) -> None:
        self._entries = Growing()  # ids, or codes of ids
        self._codes: dict[bytes, int] | None = None  # of strings, in the order of appearance

    def add(self, column: Column) -> None:
        """Take the next ids, as they stand in the text."""
        if self._codes is None:
            values, valid = whole_numbers(column)
            if valid.all():
                self.add_integers(values)
                return
        self.add_strings(column.texts())

    def add_integers(self, values: NDArray[np.integer[Any]]) -> None:
        """Take the next ids, which are integers."""
        if self._codes is not None:
            self.add_strings([b"%d" % value for value in values.tolist()])
        elif values.size:
            fits = values.min() >= -(2**31) and values.max() < 2**31
            self._entries.append(values.astype(np.int32) if fits else values.astype(np.int64))

    def add_strings(self, texts: list[bytes]) -> None:
        """Take the next ids, which are strings."""
        if self._codes is None:
            self._become_strings()
        self._entries.append(self._encode(texts))

    def _become_strings(self) -> None:
        self._codes = {}
        codes = Growing()
        for part in self._entries.used_up():
            distinct, inverse = np.unique(part, return_inverse=True)
            texts = [b"%d" % value for value in distinct.tolist()]
            codes.append(self._encode(texts)[inverse])
        self._entries = codes

    def _encode(self, texts: list[bytes]) -> NDArray[np.int32]:
        codes = self._codes
        assert codes is not None
        numbers = (codes.setdefault(text, len(codes)) for text in texts)
        return np.fromiter(numbers, np.int32, len(texts))

    def numbered(self) -> tuple[NDArray[np.int32], NDArray[Any]]:
        """The index of each entry's id, and the sorted ids.  To be called once, at the end."""
        if self._codes is None:
            return self._numbered_integers()
        names = np.array([text.decode("utf-8", "replace") for text in self._codes])
        order = np.argsort(names, kind="stable")
        rank = np.empty(order.size, np.int32)
        rank[order] = np.arange(order.size)
        return self._translate(lambda part: rank[part]), names[order]

    def _numbered_integers(self) -> tuple[NDArray[np.int32], NDArray[Any]]:
        low = min(int(part.min()) for part in self._entries.parts())
        high = max(int(part.max()) for part in self._entries.parts())
        if high - low > max(4 * len(self._entries), 1 << 24):
            ids = np.unique(np.concatenate([np.unique(part) for part in self._entries.parts()]))
            return self._translate(lambda part: np.searchsorted(ids, part)), ids
        present = np.zeros(high - low + 1, bool)
        for part in self._entries.parts():
            present[np.subtract(part, low, dtype=np.int64)] = True
        ids = np.flatnonzero(present) + low
        index = np.cumsum(present, dtype=np.int32) - np.int32(1)
        return self._translate(lambda part: index[np.subtract(part, low, dtype=np.int64)]), ids

    def _translate(
        self, translate: Callable[[NDArray[Any]], NDArray[np.integer[Any]]]
    ) -> NDArray[np.int32]:
        result, begin = np.empty(len(self._entries), np.int32), 0
        for part in self._entries.used_up():
            result[begin : begin + part.size] = translate(part)
            begin += part.size
        return result
