"""Matrices as ratings: MatrixMarket files and SciPy's .npz.  They keep their shape."""

from __future__ import annotations

import re
import zipfile
from itertools import islice

import numpy as np
import scipy.io

from momentous.io.archive import DAMAGED, ArchiveError, is_archive, read_array
from momentous.io.types import AnyArray
from momentous.lowrank.data.errors import Limits, RatingsFileError
from momentous.lowrank.data.files.cache import KIND, read_cache
from momentous.lowrank.data.files.dialect import File
from momentous.lowrank.data.files.scans import Work, choose_precision
from momentous.lowrank.data.ratings import Ratings, check_starts, make_ratings

Outcome = tuple[Ratings, list[str]]
"""Ratings and what there is to warn of."""

# --- MatrixMarket ---------------------------------------------------------------------------------

LEAST_BYTES = 4  # of an entry: "1 1" and the end of the line


def read_matrix_market(file: File, work: Work) -> Outcome:
    """The entries of a MatrixMarket file in coordinate form, as SciPy reads them.

    Without values (``pattern``) every entry is 1; a symmetric matrix has both of its halves.
    """
    name = file.name
    try:
        with file.path.open("rb") as stream:
            rows, columns, entries, form, field, _ = scipy.io.mminfo(stream)
            if form != "coordinate" or field == "complex":
                problem = f"is a {field} matrix in {form} form"
                raise RatingsFileError(name, f"{problem}; expected real numbers in coordinate form")
            # SciPy makes room for as many as are promised, before it looks for them.
            if entries * LEAST_BYTES > file.path.stat().st_size:
                problem = f"promises {entries:,} entries, more than a file of its size can hold"
                raise RatingsFileError(name, problem)
            _check_sides((rows, columns), entries, name, work.options.limits)
            stream.seek(0)
            found = scipy.io.mmread(stream, spmatrix=False)
        # In double precision where a dtype is asked for, so that none becomes infinite unseen.
        values = choose_precision(found.data, work.options.dtype and np.float64)
        return make_ratings(found.row, found.col, values, shape=found.shape)
    except RatingsFileError:
        raise
    except (ValueError, TypeError, OverflowError) as error:
        raise _market_error(file, str(error)) from error


def _market_error(file: File, problem: str) -> RatingsFileError:
    """The error with the line that SciPy names, where it does."""
    named = re.fullmatch(r"Line (\d+): (.*)", problem)
    if named is None:
        return RatingsFileError(file.name, f"cannot be read as MatrixMarket: {problem}")
    number = int(named[1])
    with file.path.open("rb") as stream:
        lines = [line.decode("utf-8", "replace").strip() for line in islice(stream, number)]
    return RatingsFileError(file.name, named[2], number, lines[-1] if lines else "")


def _check_sides(shape: tuple[int, int], entries: int, name: str, limits: Limits) -> None:
    """Refuse a matrix of many rows (or columns) without entries: each takes memory."""
    for side, what in zip(shape, ("rows", "columns"), strict=True):
        if side > limits.empty_sides + 10 * entries:
            problem = f"asks for {side:,} {what} with {entries:,} entries"
            raise limits.exceeded("empty_sides", name, problem)


# --- SciPy's npz ----------------------------------------------------------------------------------


def read_npz(file: File, work: Work) -> Outcome:
    """A cache of ours, or the stored entries that ``scipy.sparse.save_npz`` has written.

    Everything is checked before it is used; SciPy itself trusts the indices.
    """
    path, name, limits = file.path, file.name, work.options.limits
    if is_archive(path, KIND):
        try:
            return read_cache(path)[1:]
        except ArchiveError as error:
            raise RatingsFileError(name, f"cannot be read: {error}") from error
    try:
        with path.open("rb") as stream:
            with zipfile.ZipFile(stream) as archive:
                unpacked = sum(member.file_size for member in archive.infolist())
            if unpacked > limits.unpacked_bytes:
                raise limits.exceeded("unpacked_bytes", name, f"unpacks to {unpacked:,} bytes")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as content:
                arrays = {key: read_array(content, key) for key in content.files}
        rows, cols, values, shape = _entries(arrays)
        _check_sides(shape, values.size, name, limits)
        return make_ratings(rows, cols, values, shape=shape)
    except RatingsFileError:
        raise
    except DAMAGED as error:
        raise RatingsFileError(
            name, f"expected a matrix written by scipy.sparse.save_npz: {error}"
        ) from error


def _entries(
    arrays: dict[str, AnyArray],
) -> tuple[AnyArray, AnyArray, AnyArray, tuple[int, int]]:
    """Rows, columns, values and shape of a matrix in one of SciPy's forms.

    `make_ratings` checks the lengths and ranges of the indices.
    """
    form = arrays["format"].item()
    form = form.decode("ascii") if isinstance(form, bytes) else str(form)
    if form not in ("coo", "csr", "csc"):
        raise ValueError(f"its form is {form!r}; save it with save_npz(matrix.tocsr())")
    sides, values = arrays["shape"], arrays["data"]
    if sides.shape != (2,) or sides.dtype.kind not in "iu" or sides.min() < 1:
        raise ValueError("its shape is not that of a matrix")
    shape = int(sides[0]), int(sides[1])
    if max(shape) >= 2**31:
        raise ValueError(f"{max(shape)} rows or columns are too many")
    if values.ndim != 1 or values.dtype.kind not in "fiub":
        raise ValueError(f"its data are not a flat array of real numbers, but {values.dtype}")
    if form == "coo":
        return _indices(arrays, "row"), _indices(arrays, "col"), values, shape
    groups = shape[0] if form == "csr" else shape[1]
    starts, others = _indices(arrays, "indptr"), _indices(arrays, "indices")
    check_starts(starts, groups, values.size, "its indptr")
    group = np.repeat(np.arange(groups, dtype=np.int32), np.diff(starts))
    rows, cols = (group, others) if form == "csr" else (others, group)
    return rows, cols, values, shape


def _indices(arrays: dict[str, AnyArray], key: str) -> AnyArray:
    array = arrays[key]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"{key} is not a flat array of whole numbers")
    # Unsigned numbers would wrap in differences.
    return array.astype(np.int64, copy=False) if array.dtype.kind == "u" else array
