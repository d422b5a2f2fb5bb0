"""Sparse matrices as ratings: MatrixMarket files and SciPy's .npz.  They keep their shape."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np
import scipy.sparse

from momentous.lowrank.data.errors import RatingsFileError
from momentous.lowrank.data.fields import WHITESPACE, split, whole_numbers
from momentous.lowrank.data.lines import Block, Readable, blocks
from momentous.lowrank.data.triples import Faults, Triples
from momentous.lowrank.ratings import Ratings


def read_matrix_market(
    stream: Readable, name: str, triples: Triples, *, advance: Callable[[int], None]
) -> tuple[int, int]:
    """Add the entries of a MatrixMarket file, ids from 0, and return the matrix's shape.

    Taken are matrices in coordinate form, real or integer, without symmetry; the format is that of
    Boisvert, Pozo and Remington, "The Matrix Market exchange formats" (NIST, 1996).
    """
    shape: tuple[int, int, int] | None = None
    begun = False
    for block in blocks(stream, name, advance):
        for part in _parts(block, begun):
            begun = True
            comment = part.data[part.starts[0]] == ord("%")
            if comment:
                continue
            body = part
            if shape is None:
                shape = _sizes(part)
                body = part.where(slice(1, None))
            _take(body, shape, triples)
    if shape is None:
        raise RatingsFileError(name, "ends before the line with the numbers of rows and columns")
    if triples.count + triples.skipped != shape[2]:
        raise RatingsFileError(
            name, f"promises {shape[2]} entries and has {triples.count + triples.skipped}"
        )
    return shape[:2]


def _parts(block: Block, begun: bool) -> Iterator[Block]:
    """Runs of comments and of other lines; the first line must be the banner."""
    if len(block) and not begun:
        banner = block.line(0).lower().split()
        wanted = r"%%matrixmarket matrix coordinate (real|integer|double) general"
        if not re.fullmatch(wanted, " ".join(banner)):
            raise RatingsFileError(
                block.name,
                "expected '%%MatrixMarket matrix coordinate real general' (or integer)",
                int(block.numbers[0]),
                block.line(0),
            )
    comment = block.data[block.starts] == ord("%")
    changes = np.flatnonzero(np.diff(comment)) + 1
    for lines in np.split(np.arange(len(block)), changes):
        if lines.size:
            yield block.where(lines)


def _sizes(block: Block) -> tuple[int, int, int]:
    fits, cells = split(block.where(slice(0, 1)), WHITESPACE, 3, (0, 1, 2))
    read = [whole_numbers(cell) for cell in cells] if fits.all() else []
    if not read or not all(valid.all() and (value >= 0).all() for value, valid in read):
        raise RatingsFileError(
            block.name,
            "expected the numbers of rows, columns and entries",
            int(block.numbers[0]),
            block.line(0),
        )
    rows, columns, entries = (int(value[0]) for value, _ in read)
    return rows, columns, entries


def _take(block: Block, shape: tuple[int, int, int], triples: Triples) -> None:
    faults = Faults(block)
    fits, (*places, values) = split(block, WHITESPACE, 3, (0, 1, 2))
    lines = np.flatnonzero(fits)
    faults.mark(np.flatnonzero(~fits), "expected row, column and value separated by spaces")
    indices = []
    for cell, what, size in zip(places, ("row", "column"), shape[:2], strict=True):
        index, valid = whole_numbers(cell)
        valid &= (index >= 1) & (index <= size)
        faults.mark(lines[~valid], f"expected a {what} from 1 to {size}")
        indices.append(index - 1)
    triples.take(faults, lines, indices[0], indices[1], values)


def read_npz(stream: IO[bytes], name: str) -> Ratings:
    """The stored entries of a matrix that ``scipy.sparse.save_npz`` has written."""
    try:
        matrix: Any = scipy.sparse.load_npz(stream)
        return Ratings.from_sparse(matrix)
    except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise RatingsFileError(
            name, f"expected a matrix written by scipy.sparse.save_npz: {error}"
        ) from error
