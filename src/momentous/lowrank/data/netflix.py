"""The Netflix prize format: a line ``movie:`` followed by lines ``user,rating,date``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from momentous.lowrank.data.fields import Column, split, whole_numbers
from momentous.lowrank.data.lines import Block, Readable, blocks
from momentous.lowrank.data.triples import Faults, Triples

_UNKNOWN = -1


def read_netflix(
    stream: Readable, name: str, triples: Triples, *, advance: Callable[[int], None]
) -> None:
    """Add the ratings of a file ``combined_data_*.txt`` or ``mv_*.txt``; users are the rows.

    Parameters
    ----------
    stream : binary stream
    name : str
        What to call it in messages.
    triples : Triples
        Where they go.
    advance : callable
        Told how many bytes have been read.
    """
    movie = _UNKNOWN
    for block in blocks(stream, name, advance):
        if len(block):
            movie = _take(block, movie, triples)


def _take(block: Block, movie: int, triples: Triples) -> int:
    """Take a block that begins within the ratings of a movie; return the one it ends in."""
    faults = Faults(block)
    is_movie = block.data[block.ends - 1] == ord(":")
    headers = np.flatnonzero(is_movie)
    movies, valid = whole_numbers(
        Column(block.data, block.starts[headers], block.ends[headers] - 1)
    )
    valid &= movies >= 0
    faults.mark(headers[~valid], "expected the number of a movie before ':'")
    movies[~valid] = _UNKNOWN  # whose ratings cannot be used, either
    movies = np.concatenate([[movie], movies])

    lines = np.flatnonzero(~is_movie)
    of_line = movies[np.cumsum(is_movie)][lines]
    faults.mark(lines[of_line == _UNKNOWN], "expected a line 'movie:' before the first rating")
    fits, (users, ratings) = split(block.where(lines), b",", 3, (0, 1))
    faults.mark(lines[~fits], "expected 'user,rating,date' or 'movie:'")
    triples.take(faults, lines[fits], users, of_line[fits], ratings)
    # Lines that say which movie are no ratings: one that is wrong has been counted as skipped.
    return int(movies[-1])
