"""Matrices as ratings: MatrixMarket files, SciPy's .npz, dense text.  They keep their shape."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentous.io.archive import DAMAGED
from momentous.lowrank.data.errors import Limits, RatingsFileError
from momentous.lowrank.data.formats import (
    BYTE_ORDER_MARK,
    Sample,
    check_columns,
    split,
)
from momentous.lowrank.data.ratings import Ratings, make_ratings
from momentous.lowrank.data.tables import NOT_UTF8, Problem, Scan
from momentous.lowrank.data.text import Text, lines, number, plain_name

Shape = tuple[int, int]

# --- MatrixMarket ---------------------------------------------------------------------------------

_BANNER = r"%%matrixmarket matrix coordinate (real|integer|double) general"


def matrix_market_scan(text: Text, folder: Path, limits: Limits) -> tuple[Scan, tuple[int, ...]]:
    """How to read the entries of a MatrixMarket file, ids from 0; and its rows, columns, entries.

    Taken are matrices in coordinate form, real or integer, without symmetry; the format is that of
    Boisvert, Pozo and Remington, "The Matrix Market exchange formats" (NIST, 1996).
    """
    skip, sizes = _sizes(text)
    rows, columns, entries = sizes
    for side, what in ((rows, "rows"), (columns, "columns")):
        check_side(side, entries, what, text.name, limits)
    path = plain_name(text.path, folder)
    cells = r"string_split(regexp_replace(trim(line, chr(9) || ' '), '[ \t]+', ' ', 'g'), ' ')"
    row, column = (_index(k) for k in (1, 2))
    scan = Scan(
        text.name,
        f"SELECT CAST({row} - 1 AS VARCHAR) AS user, CAST({column} - 1 AS VARCHAR) AS item, "
        f"{number('cells[3]', text.found)} AS rating, line, cells "
        f"FROM (SELECT line, {cells} AS cells FROM "
        f"({lines([path], text.separator, skip, limits)}))",
        f"len(cells) = 3 AND {row} BETWEEN 1 AND {rows} AND {column} BETWEEN 1 AND {columns}",
        f"CASE WHEN trim(line) = '' OR starts_with(trim(line), '%') THEN {Problem.BLANK:d} "
        f"WHEN len(cells) <> 3 THEN {Problem.FIELDS:d} "
        f"WHEN coalesce({row} NOT BETWEEN 1 AND {rows}, true) THEN {Problem.ROW:d} "
        f"WHEN coalesce({column} NOT BETWEEN 1 AND {columns}, true) THEN {Problem.COLUMN:d} "
        "ELSE 0 END",
        ((text.path, text.name),),
        skip,
        {
            Problem.FIELDS: "expected row, column and value separated by spaces",
            Problem.ROW: f"expected a row from 1 to {rows}",
            Problem.COLUMN: f"expected a column from 1 to {columns}",
        },
    )
    return scan, sizes


def _index(k: int) -> str:
    """A field as a whole number, as SQL; NULL where it is none."""
    whole = f"regexp_full_match(cells[{k}], '[0-9]{{1,18}}')"
    return f"CASE WHEN {whole} THEN CAST(cells[{k}] AS BIGINT) END"


def _sizes(text: Text) -> tuple[int, tuple[int, ...]]:
    """How many lines stand before the entries, and the numbers of rows, columns and entries."""
    banner = None
    with text.path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            line = raw.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "replace").strip()
            if not line:
                continue
            if banner is None:
                banner = " ".join(line.lower().split())
                if not re.fullmatch(_BANNER, banner):
                    raise RatingsFileError(
                        text.name,
                        "expected '%%MatrixMarket matrix coordinate real general' (or integer)",
                        number,
                        line,
                    )
            elif not line.startswith("%"):
                if not re.fullmatch(r"\d{1,18}\s+\d{1,18}\s+\d{1,18}", line, re.ASCII):
                    raise RatingsFileError(
                        text.name, "expected the numbers of rows, columns and entries", number, line
                    )
                return number, tuple(map(int, line.split()))
    raise RatingsFileError(text.name, "ends before the line with the numbers of rows and columns")


def check_side(side: int, entries: int, what: str, name: str, limits: Limits) -> None:
    """Refuse a matrix of many rows (or columns) without entries: each takes memory."""
    if side > limits.empty_sides + 10 * entries:
        raise limits.exceeded(
            "empty_sides", name, f"asks for {side:,} {what} with {entries:,} entries"
        )


# --- SciPy's npz ----------------------------------------------------------------------------------


def read_npz(path: Path, name: str, limits: Limits) -> tuple[Ratings, list[str]]:
    """The stored entries of a matrix that ``scipy.sparse.save_npz`` has written.

    Everything is checked before it is used; SciPy itself trusts the indices.
    """
    try:
        with path.open("rb") as file:
            with zipfile.ZipFile(file) as archive:
                unpacked = sum(member.file_size for member in archive.infolist())
            if unpacked > limits.unpacked_bytes:
                raise limits.exceeded("unpacked_bytes", name, f"unpacks to {unpacked:,} bytes")
            file.seek(0)
            with np.load(file, allow_pickle=False) as content:
                arrays = {key: _member(content, key) for key in content.files}
        shape, (rows, cols, values) = _entries(arrays)
        for side, what in zip(shape, ("rows", "columns"), strict=True):
            check_side(side, values.size, what, name, limits)
        return make_ratings(rows, cols, values, shape)
    except RatingsFileError:
        raise
    except (*DAMAGED, TypeError) as error:
        raise RatingsFileError(
            name, f"expected a matrix written by scipy.sparse.save_npz: {error}"
        ) from error


def _member(content: Any, key: str) -> NDArray[Any]:
    """One array, if it is as long as its header says: NumPy would ask for the memory first."""
    member = key if key in content.zip.namelist() else f"{key}.npy"
    with content.zip.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0}.get(
            version, np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(file)
    size = dtype.itemsize
    for side in shape:
        size *= int(side)
    if not 0 <= size <= content.zip.getinfo(member).file_size or dtype.hasobject:
        raise ValueError(f"the array {key!r} is not as long as it says")
    array: NDArray[Any] = content[key]
    return array


def _entries(
    arrays: dict[str, NDArray[Any]],
) -> tuple[Shape, tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """Shape, rows, columns and values of a matrix in one of SciPy's forms."""
    form = arrays["format"].item()
    form = form.decode("ascii") if isinstance(form, bytes) else str(form)
    if form not in ("coo", "csr", "csc"):
        raise ValueError(f"its form is {form!r}; save it with save_npz(matrix.tocsr())")
    sides = arrays["shape"]
    if sides.shape != (2,) or sides.dtype.kind not in "iu" or sides.min() < 1:
        raise ValueError("its shape is not that of a matrix")
    shape = int(sides[0]), int(sides[1])
    if max(shape) >= 2**31:
        raise ValueError(f"{max(shape)} rows or columns are too many")
    values = arrays["data"]
    if values.ndim != 1 or values.dtype.kind not in "fiub":
        raise ValueError(f"its data are not a flat array of real numbers, but {values.dtype}")
    if form == "coo":
        rows, cols = _indices(arrays, "row"), _indices(arrays, "col")
    else:
        groups = shape[0] if form == "csr" else shape[1]
        starts, others = _indices(arrays, "indptr"), _indices(arrays, "indices")
        if (
            starts.size != groups + 1
            or starts[0] != 0
            or starts[-1] != values.size
            or np.any(starts[1:] < starts[:-1])
        ):
            raise ValueError("its indptr does not ascend from 0 to the number of entries")
        group = np.repeat(np.arange(groups, dtype=np.int32), np.diff(starts))
        rows, cols = (group, others) if form == "csr" else (others, group)
    return shape, (rows, cols, values)


def _indices(arrays: dict[str, NDArray[Any]], key: str) -> NDArray[Any]:
    array = arrays[key]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"{key} is not a flat array of whole numbers")
    # make_ratings checks lengths and ranges; unsigned numbers would wrap in differences.
    return array.astype(np.int64, copy=False) if array.dtype.kind == "u" else array


# --- dense text -----------------------------------------------------------------------------------

JESTER_MISSING, JESTER_SCALE = 99.0, 10.0


def read_dense(
    text: Text,
    sample: Sample,
    delimiter: str,
    limits: Limits,
    missing: float | None = None,
    skip_bad: bool = False,
) -> tuple[Ratings, list[str], int]:
    """A matrix written in full: the ratings, what there is to say, and lines left out.

    No rating is an empty field, ``nan``, or the value ``missing``; without one, it is 99 if all
    others lie between -10 and 10, as in the Jester data.  Their first column, which counts the
    ratings of the line, is left out where it does so in every line.
    """
    width = len(split(sample.lines[0], delimiter))
    check_columns(width, sample, limits)
    kept: list[NDArray[np.float64]] = []
    skipped = 0
    with text.path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            if number == 1:
                raw = raw.removeprefix(BYTE_ORDER_MARK)
            if not raw.strip():
                continue
            problem, row = _dense_row(raw, delimiter, width)
            if row is None and not skip_bad:
                content = raw.decode("utf-8", "replace").strip()
                raise RatingsFileError(text.name, problem, number, content)
            if row is None:
                skipped += 1
            else:
                kept.append(row)
    if not kept:
        raise RatingsFileError(text.name, "has no ratings")
    table = np.array(kept)
    given = ~np.isnan(table)
    if missing is None:
        others = np.abs(table[given & (table != JESTER_MISSING)])
        counts = table[:, 0] if width > 1 else np.empty(0)
        inner = np.abs(table[:, 1:][given[:, 1:] & (table[:, 1:] != JESTER_MISSING)])
        if others.max(initial=0) <= JESTER_SCALE or (
            counts.size and inner.max(initial=0) <= JESTER_SCALE
        ):
            missing = JESTER_MISSING
    if missing is not None:
        given &= table != missing
    notes = []
    if width > 1 and np.array_equal(table[:, 0], np.count_nonzero(given[:, 1:], axis=1)):
        notes.append(f"{text.name}: the first column counts the ratings of each line; left out")
        table, given = table[:, 1:], given[:, 1:]
    rows, cols = np.nonzero(given)
    if not rows.size:
        raise RatingsFileError(text.name, "has no ratings")
    ratings, more = make_ratings(rows, cols, table[rows, cols], (table.shape[0], table.shape[1]))
    return ratings, notes + more, skipped


def _dense_row(raw: bytes, delimiter: str, width: int) -> tuple[str, NDArray[np.float64] | None]:
    """The numbers of a line, NaN where one is missing; or what is wrong with it."""
    try:
        cells = split(raw.decode().strip(" \r\n"), delimiter)
    except UnicodeDecodeError:
        return NOT_UTF8, None
    if len(cells) != width:
        return f"expected {width} fields, as in the first line", None
    try:
        row = np.array([float(cell) if cell else np.nan for cell in cells])
    except ValueError:
        return "expected numbers, or nothing where there is no rating", None
    return ("expected finite numbers", None) if np.isinf(row).any() else ("", row)
