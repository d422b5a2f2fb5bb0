"""Pairs of ids from a file: what to predict ratings for."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.data.columns import KNOWN
from momentous.lowrank.data.errors import RatingsFileError


def read_pairs(lines: Iterable[str], name: str) -> NDArray[Any]:
    """The first two fields of every line, as text, in an array of shape (N, 2).

    Fields stand between ``::``, tabs, semicolons, commas or spaces, whichever comes first in this
    list and is in the first line.  A first line with the names of columns is left out.

    Parameters
    ----------
    lines : iterable of str
    name : str
        What to call the file in messages.
    """
    pairs: list[list[str]] = []
    between = None
    for number, line in enumerate(lines, start=1):
        text = line.strip("\ufeff\r\n ")
        if not text:
            continue
        between = between or next((s for s in ("::", "\t", ";", ",") if s in text), " ")
        fields = _fields(text, between)
        if len(fields) < 2 or not all(fields[:2]):
            raise RatingsFileError(
                name, "expected a user and an item in each line", line=number, content=text
            )
        if pairs or not _is_header(fields):
            pairs.append(fields[:2])
    if not pairs:
        raise RatingsFileError(name, "has no pairs, at most a header")
    return np.array(pairs)


def _fields(text: str, between: str) -> list[str]:
    if between in (",", ";"):
        parts: Iterator[str] = iter(next(csv.reader([text], delimiter=between)))
    else:
        parts = iter(text.split(None if between == " " else between))
    return [part.strip() for part in parts]


def _is_header(fields: list[str]) -> bool:
    plain = [re.sub(r"[^a-z0-9]", "", field.lower()) for field in fields]
    return plain[0] in KNOWN[0] and plain[1] in KNOWN[1]
