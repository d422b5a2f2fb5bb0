"""A stream of text as blocks of whole lines: bytes, and where in them each line lies."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.data.errors import RatingsFileError

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

BLOCK_SIZE = 1 << 21
"""Bytes read at once: large enough that NumPy's calls cost nothing, small enough for the cache."""

UNREADABLE = (EOFError, zlib.error, BadZipFile, OSError)
"""What unpacking raises when an archive is damaged or cut off."""

LONGEST_LINE = 1 << 24

LINE_END, RETURN, SPACE, TAB = b"\n\r \t"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Readable(Protocol):
    """The one thing that a stream is asked for."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class Block:
    """Some lines of a file; blank ones are left out but counted.

    Attributes
    ----------
    name : str
        The file, for messages.
    data : array of bytes
    starts, ends : array of int
        Line i is ``data[starts[i]:ends[i]]``, without spaces around it and without its end.
    numbers : array of int
        The line's number in the file, from 1.
    """

    name: str
    data: Bytes
    starts: Places
    ends: Places
    numbers: Places

    def __len__(self) -> int:
        return self.starts.size

    def line(self, index: int) -> str:
        """The text of a line."""
        return bytes(self.data[self.starts[index] : self.ends[index]]).decode("utf-8", "replace")

    def where(self, chosen: Any) -> Block:
        """Some of the lines."""
        return replace(
            self,
            starts=self.starts[chosen],
            ends=self.ends[chosen],
            numbers=self.numbers[chosen],
        )


def blocks(
    stream: Readable, name: str, advance: Callable[[int], None] = lambda size: None
) -> Iterator[Block]:
    """Read a stream to its end, in blocks of whole lines.

    Parameters
    ----------
    stream : binary stream
    name : str
        What to call it in messages.
    advance : callable
        Told how many bytes have been read.
    """
    rest, count = b"", 0
    for chunk in _chunks(stream, name):
        if not (count or rest):
            _refuse_other_encodings(chunk, name)
            chunk = chunk.removeprefix(BYTE_ORDER_MARK)
        advance(len(chunk))
        if b"\0" in chunk:
            raise RatingsFileError(name, "expected text, but there are zero bytes: a binary file?")
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            rest += chunk
            if len(rest) > LONGEST_LINE:
                raise RatingsFileError(name, "expected lines of text, but there are no line ends")
            continue
        block, count = _block(name, rest + chunk[:cut], count)
        rest = chunk[cut:]
        yield block
    if rest:
        yield _block(name, rest + b"\n", count)[0]


def _chunks(stream: Readable, name: str) -> Iterator[bytes]:
    try:
        while chunk := stream.read(BLOCK_SIZE):
            yield chunk
    except UNREADABLE as error:
        raise RatingsFileError(name, f"cannot be read to its end: {error}") from error


def _refuse_other_encodings(chunk: bytes, name: str) -> None:
    if chunk.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise RatingsFileError(name, "is encoded as UTF-16; save it as UTF-8")


def _block(name: str, text: bytes, before: int) -> tuple[Block, int]:
    """The lines of a text that ends with a line end, and the number of the last one."""
    data = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(data == LINE_END)
    starts = np.concatenate([[0], ends[:-1] + 1])
    numbers = np.arange(before + 1, before + 1 + ends.size)
    starts, ends = trimmed(data, starts, ends, (SPACE, RETURN))
    block = Block(name, data, starts, ends, numbers)
    full = ends > starts
    return (block if full.all() else block.where(full)), before + full.size


def trimmed(
    data: Bytes, starts: Places, ends: Places, blanks: tuple[int, ...]
) -> tuple[Places, Places]:
    """Move the bounds of pieces of text inwards over what is blank."""

    def blank(place: Places) -> Mask:
        byte = data[place]
        found: Mask = np.logical_or.reduce([byte == value for value in blanks])
        return found

    while (move := (starts < ends) & blank(np.maximum(ends - 1, 0))).any():
        ends = ends - move
    while (move := (starts < ends) & blank(np.minimum(starts, data.size - 1))).any():
        starts = starts + move
    return starts, ends
