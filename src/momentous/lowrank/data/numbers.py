"""Files that have nothing but numbers, read by DuckDB's own parser and proved right afterwards.

That parser is the fastest way to read a text, but it says nothing of what it leaves out, and takes
007, 7.0 and 7 for the same whole number.  So what it gives is used only if it accounts for every
byte of the file: there are as many rows as lines, and the ids, written plainly, are as long as the
text that no other field, delimiter or line end takes.  In a text of digits and the marks
``, - . / : ; |`` no whole number can be written in fewer letters than plainly; so every id is
written plainly, and no field was left out.  Where this does not hold, the file is read by lines.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from momentous.io.optional import require
from momentous.io.types import AnyArray

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection

SINGLE_FROM = 1 << 25  # values, from which on they are kept in float32 where that is exact
SINGLE_MOST = 1e38
_CHUNK = 1 << 16  # bytes: what is looked at several times stays in the processor's cache
_FIRST, _LAST = ord(","), ord(";")  # between them: - . / the digits :

Integers = NDArray[np.int64]
Columns = dict[str, AnyArray]
"""``user``, ``item``, ``value``, and of a text ``rest``."""


class Coded(NamedTuple):
    """Triples in the order of their lines, and the ids of rows and columns, sorted."""

    rows: NDArray[np.int32]
    cols: NDArray[np.int32]
    values: AnyArray
    row_ids: AnyArray
    col_ids: AnyArray


@dataclass(frozen=True)
class Census:
    """What a text of digits and marks consists of."""

    size: int = 0  # bytes
    lines: int = 0
    ends: int = 0  # bytes that end lines
    colons: int = 0

    def __add__(self, other: Census) -> Census:
        return Census(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


def take_census(file: BinaryIO) -> Census | None:
    """Count what is left of a file; None if there is anything but digits and marks."""
    size = feeds = returns = colons = 0
    last = b"\n"
    while chunk := file.read(_CHUNK):
        part = np.frombuffer(chunk, np.uint8)
        counts = [int(np.count_nonzero(part == ord(one))) for one in "\n\r:\t|"]
        within = np.count_nonzero(part - _FIRST <= _LAST - _FIRST)  # with colons
        if within + sum(counts) - counts[2] < len(chunk):
            return None
        size, feeds, returns = size + len(chunk), feeds + counts[0], returns + counts[1]
        colons, last = colons + counts[2], chunk[-1:]
    return Census(size, feeds + (last != b"\n"), feeds + returns, colons)


@dataclass(frozen=True)
class Numbers:
    """A query that gives a file at once, if the file has nothing but numbers.

    Its columns are ``user``, ``item`` and ``value``; of a text also ``rest``, the length of all
    other fields.
    """

    query: str
    census: Census | None = None  # of a text
    between: int = 0  # bytes of delimiters per triple in a text
    movies: tuple[tuple[int, int], ...] = ()
    """Items and how many triples each has, if items stand in lines of their own."""

    def read(self, connection: Connection) -> Columns | None:
        """The triples; None if the file is not what it seemed to be."""
        try:
            # As a relation: what `execute` gives is copied once more.
            found: Columns = connection.sql(self.query).fetchnumpy()
        except require("duckdb", "app", "Reading a file of ratings").Error:
            return None
        if any(isinstance(column, np.ma.MaskedArray) for column in found.values()):
            return None  # something is NULL
        rows = found["value"].size
        if not rows or not np.isfinite(found["value"]).all():
            return None
        if self.census is None:
            return found
        lines, letters = rows, written(found["user"]) + int(found.pop("rest").sum())
        if self.movies:
            names, counts = np.array(self.movies).T
            if counts.sum() != rows:
                return None
            found["item"] = np.repeat(names, counts)
            lines, letters = rows + names.size, letters + written(names) + names.size
        else:
            letters += written(found["item"])
        size = letters + self.between * rows + self.census.ends
        return found if (size, lines) == (self.census.size, self.census.lines) else None


def written(numbers: Integers) -> int:
    """How many letters whole numbers take, all together."""
    low, high = int(numbers.min()), int(numbers.max())
    letters, power = numbers.size + np.count_nonzero(numbers < 0), 10
    while power <= max(high, -low):
        letters += np.count_nonzero(numbers >= power) + np.count_nonzero(numbers <= -power)
        power *= 10
    return int(letters)


def read_columns(connection: Connection, plans: list[Numbers]) -> Columns | None:
    """Files one after the other; None if one of them is not what it seemed to be."""
    parts = []
    for plan in plans:
        found = plan.read(connection)
        if found is None:
            return None
        parts.append(found)
    if len(parts) == 1:
        return parts[0]
    return {
        # Files give their columns up as these are joined.
        name: np.concatenate([part.pop(name) for part in parts])
        for name in ("user", "item", "value")
    }


def coded(columns: Columns, dtype: DTypeLike | None = None) -> Coded:
    """Triples with their ids numbered; the columns are given up."""
    rows, row_ids = numbered(columns.pop("user"))
    cols, col_ids = numbered(columns.pop("item"))
    return Coded(rows, cols, kept_values(columns.pop("value"), dtype), row_ids, col_ids)


def kept_values(
    values: AnyArray, dtype: DTypeLike | None = None, single_from: int | None = None
) -> AnyArray:
    """In float64; without a ``dtype``, more than so many (by default `SINGLE_FROM`) are float32
    where that is exact."""
    most = SINGLE_FROM if single_from is None else single_from
    if dtype is None and values.size > most:
        if values.dtype == np.float32:
            return values
        if np.abs(values).max() < SINGLE_MOST:
            single = values.astype(np.float32)
            return single if np.array_equal(single, values) else values
    if values.dtype == np.float32 and dtype is not None and np.dtype(dtype) == np.float32:
        return values
    return values.astype(np.float64, copy=False)


def are_close(low: int, high: int, count: int) -> bool:
    """Is a table from all numbers between the two small beside so many triples?"""
    return high - low < min(4 * count + (1 << 16), 2**31)


def numbered(numbers: Integers) -> tuple[NDArray[np.int32], Integers]:
    """The place of each number among all different ones, and those in order."""
    low, high = int(numbers.min()), int(numbers.max())
    if not are_close(low, high, numbers.size):
        ids, codes = np.unique(numbers, return_inverse=True)
        return codes.astype(np.int32), ids.astype(np.int64)
    offsets = numbers - low
    table = np.zeros(high - low + 1, np.int32)
    table[offsets] = 1
    ids = np.flatnonzero(table) + low
    table[ids - low] = np.arange(ids.size, dtype=np.int32)
    return table[offsets], ids
