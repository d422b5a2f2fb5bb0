"""Ratings from a file: what it is, which reader reads it, and what was read before."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse

from momentous.lowrank.data.cache import Cache
from momentous.lowrank.data.columns import Columns, checked
from momentous.lowrank.data.delimited import DELIMITERS, read_delimited
from momentous.lowrank.data.errors import RatingsFileError
from momentous.lowrank.data.formats import FORMATS, recognised
from momentous.lowrank.data.matrices import read_matrix_market, read_npz
from momentous.lowrank.data.netflix import read_netflix
from momentous.lowrank.data.parquet import read_parquet
from momentous.lowrank.data.progress import shown_progress
from momentous.lowrank.data.sources import PathLike, Source, find_sources
from momentous.lowrank.data.triples import Triples
from momentous.lowrank.ratings import Ratings


def read_ratings(
    path: PathLike | Sequence[PathLike],
    *,
    format: str | None = None,
    columns: Columns | None = None,
    skip_bad: bool = False,
    cache: bool = True,
    progress: bool | None = None,
    dtype: Any = None,
) -> Ratings:
    """Read a file of ratings.

    Ids may be integers or any text, and are kept in `row_ids` and `col_ids`, sorted; they are
    integers if every one in the column is written as an integer, without leading zeros, and strings
    otherwise.  A matrix (.mtx, .npz) keeps its shape and has no ids; its row 1 is row 0 here.

    Parameters
    ----------
    path : path or list of paths
        A file, also compressed (.gz, .zip); a folder or a zip archive with the files of MovieLens
        or of the Netflix prize; ``archive.zip/member``; or a list, read in its order.
    format : str, optional
        One of `FORMATS`; by default recognised from the name and the first lines.
    columns : three names or numbers, optional
        Which columns are user, item and rating, by the names in the header or counted from 0.
        By default the header tells, or they are the first three.
    skip_bad : bool, optional
        Skip lines that are malformed, with a warning that says how many.  By default the first
        one raises `RatingsFileError`.
    cache : bool, optional
        Keep what was read beside the file, as ``NAME.momentous.npz``, and use it the next time if
        the file still has the same size and time stamp.  (Not for .npz and Parquet.)
    progress : bool, optional
        Show a bar; by default for large files on a terminal.
    dtype : float32 or float64, optional
        Of the values; by default float64, and float32 for more than 33 million ratings that are
        exact in it.

    Returns
    -------
    Ratings

    Raises
    ------
    RatingsFileError
        With the file, the line, and what was expected there.
    FileNotFoundError
    """
    if format is not None and format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; there are {', '.join(FORMATS)}")
    if columns is not None:
        columns = list(checked(columns))
    if dtype is not None and np.dtype(dtype) not in (np.float32, np.float64):
        raise ValueError(f"ratings are kept in float32 or float64, not in {np.dtype(dtype)}")
    sources = find_sources(path)
    formats = [format or recognised(source) for source in sources]
    if len(sources) > 1 and {"npz", "mtx"} & set(formats):
        raise RatingsFileError(sources[0].name, "a matrix must be the only file to read")
    kept = Cache(
        Path(path if isinstance(path, str | os.PathLike) else path[0]).expanduser(),
        sources,
        {
            "formats": formats,
            "columns": columns,
            "skip_bad": skip_bad,
            "dtype": None if dtype is None else str(np.dtype(dtype)),
        },
    )
    cache = cache and not {"npz", "parquet"} & set(formats)
    found = kept.load() if cache else None
    if found is None:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always", RuntimeWarning)
            ratings = _read(sources, formats, columns, skip_bad, progress, dtype)
        said = [str(warning.message) for warning in heard if warning.category is RuntimeWarning]
        if cache:
            kept.save(ratings, said)
    else:
        ratings, said = found
    for text in said:
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    return ratings


def _read(
    sources: list[Source],
    formats: list[str],
    columns: Columns | None,
    skip_bad: bool,
    progress: bool | None,
    dtype: Any,
) -> Ratings:
    sizes = [source.size for source in sources]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    triples, shape = Triples(skip_bad), None
    with shown_progress(progress, sources[0].inner_name, total) as advance:
        for source, format_ in zip(sources, formats, strict=True):
            with source.open() as stream:
                if format_ == "npz":
                    ratings = read_npz(_seekable(stream), source.name)
                    return ratings if dtype is None else ratings.astype(dtype)
                shape = _take(stream, source.name, format_, columns, triples, advance)
    if triples.skipped:
        warnings.warn(
            f"{sources[0].name}: skipped {triples.skipped} malformed "
            + ("line" if triples.skipped == 1 else "lines"),
            RuntimeWarning,
            stacklevel=2,
        )
    if not triples.count:
        raise RatingsFileError(sources[0].name, "has no ratings, at most a header")
    rows, row_ids = triples.users.numbered()
    cols, col_ids = triples.items.numbered()
    values = triples.values(dtype)
    if shape is not None:
        return Ratings(row_ids[rows], col_ids[cols], values, shape)
    if np.all(cols[1:] >= cols[:-1]):
        rows, cols, values = _turned(rows, cols, values, (row_ids.size, col_ids.size))
    return Ratings(rows, cols, values, row_ids=row_ids, col_ids=col_ids)


def _turned(rows: Any, cols: Any, values: Any, shape: tuple[int, int]) -> tuple[Any, Any, Any]:
    """Entries that come item by item, as Netflix has them, put user by user.

    `Ratings` would sort them, too, but a sort of any order takes several times the memory.
    """
    # In int32 where that is enough: otherwise SciPy makes all indices int64.
    small = np.int32 if cols.size < 2**31 else np.int64
    starts = np.searchsorted(cols, np.arange(shape[1] + 1, dtype=cols.dtype)).astype(small)
    turned = scipy.sparse.csc_array((values, rows, starts), shape=shape).tocsr()
    user = np.arange(shape[0], dtype=np.int32)
    return np.repeat(user, np.diff(turned.indptr)), turned.indices, turned.data


def _take(
    stream: IO[bytes],
    name: str,
    format_: str,
    columns: Columns | None,
    triples: Triples,
    advance: Callable[[int], None],
) -> tuple[int, int] | None:
    """Add the triples of a file of any format but npz; a matrix has a shape."""
    if format_ == "mtx":
        return read_matrix_market(stream, name, triples, advance=advance)
    if format_ == "netflix":
        read_netflix(stream, name, triples, advance=advance)
    elif format_ == "parquet":
        read_parquet(_seekable(stream), name, triples, columns=columns, advance=advance)
    else:
        read_delimited(
            stream,
            name,
            triples,
            delimiter=DELIMITERS.get(format_),
            columns=columns,
            advance=advance,
        )
    return None


def _seekable(stream: IO[bytes]) -> IO[bytes]:
    """Archives are unpacked into memory where a reader must jump about."""
    return stream if stream.seekable() and hasattr(stream, "fileno") else BytesIO(stream.read())
