"""Lines cut into fields, and fields read as numbers, thousands of them in each call of NumPy."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.data.lines import SPACE, TAB, Block, Bytes, Mask, Places, trimmed

QUOTE = ord('"')
UNIT_SEPARATOR = b"\x1f"
WHITESPACE = b""
"""As a delimiter: any run of spaces and tabs."""

_POWERS = 10.0 ** np.arange(17)
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.I)


@dataclass(frozen=True)
class Column:
    """The same field of many lines: ``data[starts[i]:ends[i]]``."""

    data: Bytes
    starts: Places
    ends: Places

    def __len__(self) -> int:
        return self.starts.size

    @property
    def lengths(self) -> Places:
        """Bytes in each field."""
        return self.ends - self.starts

    def where(self, chosen: Any) -> Column:
        """Some of the fields."""
        return Column(self.data, self.starts[chosen], self.ends[chosen])

    def texts(self) -> list[bytes]:
        """The fields as they stand there."""
        raw = self.data.tobytes()
        return [raw[a:b] for a, b in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]


def split(
    block: Block, delimiter: bytes, count: int, wanted: tuple[int, ...]
) -> tuple[Mask, list[Column]]:
    """Cut lines into fields.

    Parameters
    ----------
    block : Block
    delimiter : bytes
        One or more bytes, or `WHITESPACE`.
    count : int
        Fields that a line must have.
    wanted : tuple of int
        The fields to return, counted from 0.

    Returns
    -------
    fits : mask over the lines
        Those with as many fields as they must have.
    columns : list of Column
        The wanted fields of the lines that fit.
    """
    if len(delimiter) == 1 and (block.data == QUOTE).any():
        block, delimiter = _without_quotes(block, delimiter), UNIT_SEPARATOR
    data = block.data
    if delimiter == WHITESPACE:
        filled = (data != SPACE) & (data > 13)
        inside = np.concatenate([[False], filled, [False]])
        firsts, lasts = np.flatnonzero(np.diff(inside)).reshape(-1, 2).T
        fits, at = _grid(firsts, block, count)
        begins, ends = firsts[at], lasts[at]
    else:
        marks = np.flatnonzero(_matches(data, delimiter))
        fits, at = _grid(marks, block, count - 1)
        between = marks[at]
        begins = np.hstack([block.starts[fits, None], between + len(delimiter)])
        ends = np.hstack([between, block.ends[fits, None]])
    blanks = (SPACE,) if delimiter == b"\t" else (SPACE, TAB)
    return fits, [Column(data, *trimmed(data, begins[:, k], ends[:, k], blanks)) for k in wanted]


def _matches(data: Bytes, delimiter: bytes) -> Mask:
    """Where the delimiter begins."""
    found: Mask = data == delimiter[0]
    for k in range(1, len(delimiter)):
        found[:-k] &= data[k:] == delimiter[k]
        found[-k:] = False
    return found


def _grid(marks: Places, block: Block, count: int) -> tuple[Mask, Places]:
    """Which lines have exactly so many marks, and the indices of these, a row a line."""
    if marks.size == len(block) * count:  # nearly always: then look whether they lie as they must
        grid = marks.reshape(-1, count)
        if (grid >= block.starts[:, None]).all() and (grid < block.ends[:, None]).all():
            return np.ones(len(block), bool), np.arange(marks.size).reshape(-1, count)
    first = np.searchsorted(marks, block.starts)
    fits = np.searchsorted(marks, block.ends) - first == count
    return fits, first[fits, None] + np.arange(count)


def _without_quotes(block: Block, delimiter: bytes) -> Block:
    """The same lines with another delimiter and without quotes; slowly, line by line.

    A line whose quotes do not match is left as it is, and so has too few fields.
    """
    lines = Column(block.data, block.starts, block.ends).texts()
    written = [unquoted(line, delimiter) for line in lines]
    lengths = np.fromiter(map(len, written), np.int64, len(written))
    ends = np.cumsum(lengths + 1) - 1
    data = np.frombuffer(b"\n".join([*written, b""]), np.uint8)
    return Block(block.name, data, ends - lengths, ends, block.numbers)


def unquoted(line: bytes, delimiter: bytes) -> bytes:
    """The fields of one line, without quotes, joined by `UNIT_SEPARATOR`."""
    if b'"' not in line:
        return line.replace(delimiter, UNIT_SEPARATOR)
    try:
        # Latin-1 takes every byte to one character and back.
        (fields,) = csv.reader(
            [line.decode("latin-1")],
            delimiter=delimiter.decode(),
            strict=True,
            skipinitialspace=True,
        )
    except (csv.Error, ValueError):
        return line
    return UNIT_SEPARATOR.join(field.encode("latin-1") for field in fields)


def whole_numbers(column: Column) -> tuple[NDArray[np.int64], Mask]:
    """Read fields as integers.

    Returns
    -------
    values : array of int64
    valid : mask
        False where a field is not an integer as a computer writes it: with a plus sign or a leading
        zero it is a name that looks like a number, and 7 is not 007.
    """
    data, last = column.data, column.data.size - 1
    negative = (column.lengths > 0) & (data[np.minimum(column.starts, last)] == ord("-"))
    starts = column.starts + negative
    lengths = column.ends - starts
    leading_zero = (data[np.minimum(starts, last)] == ord("0")) & ((lengths > 1) | negative)
    valid = (lengths > 0) & (lengths <= 18) & ~leading_zero
    values = np.zeros(len(column), np.int64)
    for k in range(int(lengths[valid].max(initial=0))):
        digit = data[np.minimum(starts + k, last)] - np.uint8(48)  # wraps: no digit is above 9
        more = lengths > k
        valid &= (digit < 10) | ~more
        values = np.where(more, 10 * values + digit, values)
    return np.where(negative, -values, values), valid


def decimals(column: Column) -> tuple[NDArray[np.float64], Mask]:
    """Read fields as decimal numbers, rounded correctly; the mask says which are numbers.

    "nan" and "inf" are numbers here.
    """
    data, last, lengths = column.data, column.data.size - 1, column.lengths
    plain = (lengths > 0) & (lengths <= 15)  # up to 15 digits a float64 holds exactly
    digits, places = np.zeros(len(column), np.int64), np.zeros(len(column), np.int64)
    dots = np.zeros(len(column), np.int8)
    for k in range(int(lengths[plain].max(initial=0))):
        byte = data[np.minimum(column.starts + k, last)]
        digit, more = byte - np.uint8(48), lengths > k
        is_digit, is_dot = more & (digit < 10), more & (byte == ord("."))
        plain &= is_digit | is_dot | ~more
        digits = np.where(is_digit, 10 * digits + digit, digits)
        places += is_digit & (dots > 0)
        dots += is_dot
    plain &= (dots <= 1) & (lengths > dots)
    # One rounding, because both numbers are exact: the quotient is the float nearest the decimal.
    values = digits / _POWERS[np.minimum(places, 16)]
    valid = plain
    for index in np.flatnonzero(~plain):
        text = bytes(data[column.starts[index] : column.ends[index]])
        if _NUMBER.fullmatch(text):
            values[index], valid[index] = float(text), True
    return values, valid
