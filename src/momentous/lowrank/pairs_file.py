"""Pairs of ids from a file: what to predict ratings for."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.data.columns import KNOWN, Columns, places
from momentous.lowrank.data.errors import RatingsFileError
from momentous.lowrank.data.fields import UNIT_SEPARATOR, WHITESPACE, Column, unquoted
from momentous.lowrank.data.lines import Readable, blocks
from momentous.lowrank.data.sources import find_sources

STANDARD_INPUT = Path("-")
_DELIMITERS = (b"::", b"\t", b";", b",", b"|")


def read_pairs(path: Path, columns: Columns | None = None) -> NDArray[Any]:
    """A user and an item of every line, as text, in an array of shape (N, 2).

    Fields stand between ``::``, tabs, semicolons, commas, bars or spaces, whichever comes first in
    this list and is in the first line.  A first line with the names of columns is left out, and
    says which columns they are; without one they are the first two.

    Parameters
    ----------
    path : path
        A file, also compressed or in an archive, or ``-``, the standard input.
    columns : two names or numbers, optional
        Which columns are user and item, by the names in the header or counted from 0.
    """
    pairs: list[list[str]] = []
    with _opened(path) as (stream, name):
        lines = _lines(stream, name)
        number, first = next(lines, (0, b""))
        if not first:
            raise RatingsFileError(name, "is empty")
        # A delimiter between quotes is a part of a name.
        bare = re.sub(rb'"[^"]*"', b"", first)
        between = next((one for one in _DELIMITERS if one in bare), WHITESPACE)
        fields = _fields(first, between)
        count = len(fields)
        header = _header(fields, columns)
        user, item = _places(name, columns, count, header)
        if header is None:
            pairs.append(_pair(fields, user, item, name, number, first))
        for number, line in lines:
            fields = _fields(line, between)
            if len(fields) != count:
                raise RatingsFileError(
                    name,
                    f"expected {count} fields, as in the first line",
                    line=number,
                    content=line.decode("utf-8", "replace"),
                )
            pairs.append(_pair(fields, user, item, name, number, line))
    if not pairs:
        raise RatingsFileError(name, "has no pairs, at most a header")
    return np.array(pairs)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[Readable, str]]:
    if path == STANDARD_INPUT:
        yield sys.stdin.buffer, "standard input"
        return
    sources = find_sources(path)
    if len(sources) != 1:
        raise RatingsFileError(path, f"has {len(sources)} files; name the one with the pairs")
    with sources[0].open() as stream:
        yield stream, sources[0].name


def _lines(stream: Readable, name: str) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers."""
    for block in blocks(stream, name):
        texts = Column(block.data, block.starts, block.ends).texts()
        yield from zip(block.numbers.tolist(), texts, strict=True)


def _fields(line: bytes, between: bytes) -> list[bytes]:
    if between == WHITESPACE:
        return line.split()
    if len(between) == 1:
        line, between = unquoted(line, between), UNIT_SEPARATOR
    return [field.strip() for field in line.split(between)]


def _pair(
    fields: list[bytes], user: int, item: int, name: str, number: int, line: bytes
) -> list[str]:
    problem = "expected a user and an item in each line"
    try:
        pair = [fields[user].decode(), fields[item].decode()]
    except UnicodeDecodeError:
        pair, problem = [], "is not encoded as UTF-8; save it as UTF-8"
    if not all(pair) or not pair:
        raise RatingsFileError(name, problem, line=number, content=line.decode("utf-8", "replace"))
    return pair


def _header(fields: list[bytes], columns: Columns | None) -> list[str] | None:
    """The names of the columns, if the first line has them.

    Ids may be any text, so that only a name for users tells; items may well be called "book".
    """
    names = [field.decode("utf-8", "replace") for field in fields]
    asked_by_name = columns is not None and any(isinstance(one, str) for one in columns)
    return names if asked_by_name or _matching(names, KNOWN[0]) else None


def _matching(names: Sequence[str], known: set[str]) -> list[int]:
    return [k for k, name in enumerate(names) if re.sub(r"[^a-z0-9]", "", name.lower()) in known]


def _places(
    file: str, columns: Columns | None, count: int, names: list[str] | None
) -> tuple[int, int]:
    """Which fields are user and item."""
    if columns is not None:
        user, item = columns
        return places(file, (user, item, item), count, names)[:2]  # there is no rating to find
    if count < 2:
        raise RatingsFileError(
            file, "expected a user and an item in each line, but the first has one field"
        )
    if names is None:
        return 0, 1
    users, items = (_matching(names, known) for known in KNOWN[:2])
    if len(users) != 1 or len(items) != 1:
        raise RatingsFileError(
            file,
            "the header does not say plainly which columns are user and item; name them, as in "
            "--columns user,item, or number them from 0",
            line=1,
            content=", ".join(names),
        )
    return users[0], items[0]
