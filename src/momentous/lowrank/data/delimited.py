"""Triples in lines of text: MovieLens .dat, .csv and u.data, and any CSV or TSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from momentous.lowrank.data.columns import Columns, places
from momentous.lowrank.data.errors import RatingsFileError
from momentous.lowrank.data.fields import (
    UNIT_SEPARATOR,
    WHITESPACE,
    Column,
    decimals,
    split,
    unquoted,
)
from momentous.lowrank.data.formats import described
from momentous.lowrank.data.lines import Block, Readable, blocks
from momentous.lowrank.data.triples import Faults, Triples

DELIMITERS = {"dat": b"::", "tsv": b"\t", "csv": b",", "space": WHITESPACE}
"""By the name of the format."""

_TRIED = (b"::", b"\t", b",", b";", b"|", WHITESPACE)
_WORDS = {b"::": "'::'", b"\t": "tabs", b",": "commas", WHITESPACE: "spaces"}


@dataclass(frozen=True)
class Dialect:
    """How a file writes its triples.

    Attributes
    ----------
    delimiter : bytes
    fields : int
        In every line.
    columns : three int
        Which fields are user, item and rating, from 0.
    header : bool
        Whether the first line has names.
    """

    delimiter: bytes
    fields: int
    columns: tuple[int, int, int]
    header: bool


def read_delimited(
    stream: Readable,
    name: str,
    triples: Triples,
    *,
    delimiter: bytes | None = None,
    columns: Columns | None = None,
    advance: Callable[[int], None],
) -> None:
    """Add the triples of a stream.

    Parameters
    ----------
    stream : binary stream
    name : str
        What to call it in messages.
    triples : Triples
        Where they go.
    delimiter : bytes, optional
        By default that which cuts most of the first lines into the same number of fields.
    columns : three names or numbers, optional
        See `read_ratings`.
    advance : callable
        Told how many bytes have been read.
    """
    dialect = None
    for block in blocks(stream, name, advance):
        if dialect is None and len(block):
            dialect = recognised(block, delimiter, columns)
            block = block.where(slice(int(dialect.header), None))
        if dialect is not None and len(block):
            _take(block, dialect, triples)


def _take(block: Block, dialect: Dialect, triples: Triples) -> None:
    faults = Faults(block)
    fits, (users, items, ratings) = split(block, dialect.delimiter, dialect.fields, dialect.columns)
    by = _WORDS.get(dialect.delimiter, repr(dialect.delimiter.decode()))
    faults.mark(np.flatnonzero(~fits), f"expected {dialect.fields} fields separated by {by}")
    triples.take(faults, np.flatnonzero(fits), users, items, ratings)


def recognised(block: Block, delimiter: bytes | None, columns: Columns | None) -> Dialect:
    """Tell the dialect of a file from its first lines; one damaged line does not matter."""
    head = block.where(slice(0, 100))
    tried = _TRIED if delimiter is None else (delimiter,)
    counts = {one: _common_count(head, one) for one in tried}
    best = max(tried, key=lambda one: counts[one][1])  # the first of equals
    fields, lines = counts[best]
    if 2 * lines < len(head):
        raise RatingsFileError(
            block.name,
            f"expected lines of user, item and rating; {described()}"
            if delimiter is None
            else f"expected user, item and rating separated by {_WORDS[delimiter]}",
            int(head.numbers[0]),
            head.line(0),
        )
    first = _texts(head.where(slice(0, 1)), best, fields)
    header = first is not None and best != b"::" and not any(map(_is_number, first))
    names = first if header else None
    return Dialect(best, fields, places(block.name, columns, fields, names), header)


def _common_count(head: Block, delimiter: bytes) -> tuple[int, int]:
    """The number of fields, at least three, that most lines have, and how many have it."""
    lines = Column(head.data, head.starts, head.ends).texts()
    agree = Counter(_count(line, delimiter) for line in lines)
    enough = [(count, lines) for count, lines in agree.items() if count >= 3]
    return max(enough, key=lambda pair: pair[::-1], default=(0, 0))


def _count(line: bytes, delimiter: bytes) -> int:
    if delimiter == WHITESPACE:
        return len(line.split())
    if len(delimiter) == 1:
        line, delimiter = unquoted(line, delimiter), UNIT_SEPARATOR
    return line.count(delimiter) + 1


def _texts(line: Block, delimiter: bytes, fields: int) -> list[str] | None:
    fits, cells = split(line, delimiter, fields, tuple(range(fields)))
    if not fits.all():
        return None
    return [cell.texts()[0].decode("utf-8", "replace") for cell in cells]


def _is_number(text: str) -> bool:
    data = np.frombuffer(text.encode() + b"\n", np.uint8)
    return bool(decimals(Column(data, np.array([0]), np.array([data.size - 1])))[1][0])
