"""Entries gathered from the blocks of a file, with every line that is wrong accounted for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.data.errors import RatingsFileError
from momentous.lowrank.data.fields import Column, decimals
from momentous.lowrank.data.growing import Growing
from momentous.lowrank.data.ids import Ids
from momentous.lowrank.data.lines import Block, Places

LONGEST_ID = 256
"""In bytes: what is longer is a damaged line, and would make every id take as much memory."""

IdColumn = Column | NDArray[np.int64]


class Faults:
    """The lines of a block that cannot be used; the first of them is the one to be told."""

    def __init__(self, block: Block):
        self.block = block
        self.good = np.ones(len(block), bool)
        self._first: tuple[int, str] | None = None

    def mark(self, lines: Places, problem: str) -> None:
        """Say what is wrong with some lines, given by their indices in the block."""
        self.good[lines] = False
        if lines.size and (self._first is None or lines.min() < self._first[0]):
            self._first = int(lines.min()), problem

    def raise_first(self) -> None:
        """Raise an error for the first line that is wrong, if one is."""
        if self._first is not None:
            index, problem = self._first
            block = self.block
            raise RatingsFileError(
                block.name, problem, int(block.numbers[index]), block.line(index)
            )


class Triples:
    """Users, items and values so far.

    Parameters
    ----------
    skip_bad : bool
        Leave out lines that are wrong, and count them in `skipped`, instead of raising an error.
    """

    def __init__(self, skip_bad: bool = False):
        self.skip_bad = skip_bad
        self.skipped = 0
        self.users, self.items = Ids(), Ids()
        self._values = Growing()

    @property
    def count(self) -> int:
        """Entries so far."""
        return len(self._values)

    def take(
        self, faults: Faults, lines: Places, users: IdColumn, items: IdColumn, ratings: Column
    ) -> None:
        """Take the entries of a block.

        Parameters
        ----------
        faults : Faults
            What is known to be wrong already.
        lines : array of int
            The lines that the fields come from, as indices in the block.
        users, items : Column or array of int, one a line
        ratings : Column
        """
        values, valid = decimals(ratings)
        faults.mark(lines[~valid], "expected a number as the rating")
        faults.mark(lines[valid & ~np.isfinite(values)], "expected a finite rating")
        for ids, what in ((users, "user"), (items, "item")):
            if isinstance(ids, Column):
                _check_ids(faults, lines, ids, what)
        if not self.skip_bad:
            faults.raise_first()
        good = faults.good[lines]
        self.skipped += int(np.count_nonzero(~faults.good))
        for ids, into in ((users, self.users), (items, self.items)):
            if isinstance(ids, Column):
                into.add(ids if good.all() else ids.where(good))
            else:
                into.add_integers(ids[good])
        self.add_values(values[good])

    def add_values(self, values: NDArray[np.floating[Any]]) -> None:
        """Take the next values; in half the memory where that loses nothing, as with stars."""
        short = values.astype(np.float32)
        self._values.append(short if np.array_equal(short, values) else values)

    def values(self, dtype: Any = None) -> NDArray[np.floating[Any]]:
        """All values.  To be called once, at the end.

        Parameters
        ----------
        dtype : float32 or float64, optional
            By default float64, and float32 for more than 2^25 (33 million) values that it holds
            exactly.
        """
        if dtype is None:
            exact = self._values.dtypes <= {np.dtype(np.float32)}
            dtype = np.float32 if exact and self.count > 1 << 25 else np.float64
        result, begin = np.empty(self.count, dtype), 0
        for part in self._values.used_up():
            result[begin : begin + part.size] = part
            begin += part.size
        return result


def _check_ids(faults: Faults, lines: Places, ids: Column, what: str) -> None:
    faults.mark(lines[ids.lengths == 0], f"expected the id of the {what}, which is empty")
    faults.mark(
        lines[ids.lengths > LONGEST_ID],
        f"expected the id of the {what}, of at most {LONGEST_ID} bytes",
    )
    if (ids.data > 127).any():
        readable = np.fromiter(map(_is_utf8, ids.texts()), bool, len(ids))
        faults.mark(lines[~readable], f"expected the id of the {what} in UTF-8")


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
