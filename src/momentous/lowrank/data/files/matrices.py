"""Matrices as ratings: MatrixMarket files and SciPy's .npz.  They keep their shape."""

from __future__ import annotations

import math
import re
import zipfile

import numpy as np
import scipy.sparse

from momentous.io.archive import DAMAGED, ArchiveError, is_archive
from momentous.lowrank.data.errors import Limits, RatingsFileError
from momentous.lowrank.data.files.cache import KIND, read_cache
from momentous.lowrank.data.files.dialect import BYTE_ORDER_MARK, WHITESPACE, File
from momentous.lowrank.data.files.scans import (
    IdColumn,
    Lines,
    Scan,
    Work,
    choose_precision,
    read_triples,
    skipped_note,
)
from momentous.lowrank.data.files.text import plain_text, rating_column
from momentous.lowrank.data.ratings import Ratings, check_starts, make_ratings

Outcome = tuple[Ratings, list[str]]
"""Ratings and what there is to warn of."""

# --- MatrixMarket ---------------------------------------------------------------------------------

_BANNER = r"%%matrixmarket matrix coordinate (real|integer|double) general"


def read_matrix_market(file: File, work: Work) -> Outcome:
    """The entries of a MatrixMarket file.

    Taken are matrices in coordinate form, real or integer, without symmetry; the format is that of
    Boisvert, Pozo and Remington, "The Matrix Market exchange formats" (NIST, 1996).  SciPy's
    reader is not taken: damaged files can end the process in it.
    """
    limits = work.options.limits
    skip, (rows, columns, entries) = _sizes(file)
    _check_sides((rows, columns), entries, file.name, limits)
    expected = "expected row, column and value separated by spaces"
    path = plain_text(file, work, one_space=True)
    lines = Lines((path,), (file.name,), 3, WHITESPACE, skip, expected=expected)
    row, column = (
        f"CASE WHEN regexp_full_match(c{k}, '[0-9]{{1,18}}') AND CAST(c{k} AS BIGINT) "
        f"BETWEEN 1 AND {side} THEN CAST(c{k} AS BIGINT) - 1 END"
        for k, side in enumerate((rows, columns))
    )
    scan = Scan(
        file.name,
        lines,
        IdColumn("c0", row),
        IdColumn("c1", column),
        rating_column("c2", work.options),
        (
            (f"{row} IS NULL", f"expected a row from 1 to {rows}"),
            (f"{column} IS NULL", f"expected a column from 1 to {columns}"),
        ),
    )
    found = read_triples(scan, work)
    assert isinstance(found.user, np.ndarray) and isinstance(found.item, np.ndarray)  # noqa: PT018
    present = found.value.size + found.skipped + found.missing
    if present != entries:
        raise RatingsFileError(file.name, f"promises {entries} entries and has {present}")
    # In double precision where a dtype is asked for, so that none becomes infinite unseen.
    values = choose_precision(found.value, work.options.dtype and np.float64)
    ratings, notes = make_ratings(found.user, found.item, values, shape=(rows, columns))
    return ratings, skipped_note(file.name, found.skipped) + notes


def _sizes(file: File) -> tuple[int, tuple[int, ...]]:
    """How many lines stand before the entries, and the numbers of rows, columns and entries."""
    banner = None
    with file.path.open("rb") as stream:
        for number, raw in enumerate(stream, 1):
            line = raw.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "replace").strip()
            if not line or (banner and line.startswith("%")):
                continue
            problem = "expected the numbers of rows, columns and entries"
            if banner is None:
                banner = re.fullmatch(_BANNER, " ".join(line.lower().split()))
                if banner:
                    continue
                problem = "expected '%%MatrixMarket matrix coordinate real general' (or integer)"
            elif re.fullmatch(r"\d{1,18}\s+\d{1,18}\s+\d{1,18}", line, re.ASCII):
                return number, tuple(map(int, line.split()))
            raise RatingsFileError(file.name, problem, number, line)
    raise RatingsFileError(file.name, "ends before the line with the numbers of rows and columns")


def _check_sides(shape: tuple[int, int], entries: int, name: str, limits: Limits) -> None:
    """Refuse a matrix of many rows (or columns) without entries: each takes memory."""
    for side, what in zip(shape, ("rows", "columns"), strict=True):
        if side > limits.empty_sides + 10 * entries:
            problem = f"asks for {side:,} {what} with {entries:,} entries"
            raise limits.exceeded("empty_sides", name, problem)


# --- SciPy's npz ----------------------------------------------------------------------------------


def _check_parts(archive: zipfile.ZipFile) -> None:
    """Are places whole numbers, one for each of the data?  SciPy would cut what is not."""
    lengths = {}
    for part in ("row", "col", "indices", "indptr", "data"):
        if f"{part}.npy" not in archive.namelist():
            continue
        with archive.open(f"{part}.npy") as stream:
            form = np.lib.format
            is_first = form.read_magic(stream) == (1, 0)
            header = form.read_array_header_1_0 if is_first else form.read_array_header_2_0
            shape, _, dtype = header(stream)
        lengths[part] = math.prod(shape)
        if part != "data" and dtype.kind not in "iu":
            raise ValueError(f"its {part} is of {dtype}, not of whole numbers")
        if part == "indptr":
            with archive.open("indptr.npy") as stream:
                lengths[part] = int(np.lib.format.read_array(stream, allow_pickle=False)[-1])
    if len(set(lengths.values())) > 1:
        raise ValueError(f"its parts are of different lengths: {lengths}")


def read_npz(file: File, work: Work) -> Outcome:
    """A cache of ours, or a matrix that ``scipy.sparse.save_npz`` has written.

    SciPy checks all but where rows start: differences of crafted starts overflow.
    """
    path, name, limits = file.path, file.name, work.options.limits
    if is_archive(path, KIND):
        try:
            return read_cache(path)[1:]
        except ArchiveError as error:
            raise RatingsFileError(name, f"cannot be read: {error}") from error
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
            if unpacked > limits.unpacked_bytes:
                raise limits.exceeded("unpacked_bytes", name, f"unpacks to {unpacked:,} bytes")
            _check_parts(archive)
        matrix = scipy.sparse.load_npz(path)
        if matrix.format not in ("coo", "csr", "csc"):
            raise ValueError(
                f"its form is {matrix.format!r}; save it with save_npz(matrix.tocsr())"
            )
        if matrix.format != "coo":
            check_starts(matrix.indptr, matrix.indptr.size - 1, matrix.data.size, "its indptr")
            matrix.check_format()
        _check_sides(matrix.shape, matrix.nnz, name, limits)
        entries = matrix.tocoo()
        return make_ratings(entries.row, entries.col, entries.data, shape=matrix.shape)
    except RatingsFileError:
        raise
    except DAMAGED as error:
        raise RatingsFileError(
            name, f"expected a matrix written by scipy.sparse.save_npz: {error}"
        ) from error
