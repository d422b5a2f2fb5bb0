"""Triples in the columns of a Parquet file, read by pyarrow, some rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import IO, Any

import numpy as np

from momentous.lowrank.data.columns import Columns, places
from momentous.lowrank.data.errors import RatingsFileError
from momentous.lowrank.data.ids import Ids
from momentous.lowrank.data.triples import Triples


def read_parquet(
    stream: IO[bytes],
    name: str,
    triples: Triples,
    *,
    columns: Columns | None = None,
    advance: Callable[[int], None],
) -> None:
    """Add the triples of a Parquet file; rows are counted from 1 in messages.

    Parameters
    ----------
    stream : binary stream that can seek
    name : str
        What to call it in messages.
    triples : Triples
        Where they go.
    columns : three names or numbers, optional
        See `read_ratings`.
    advance : callable
        Told how many bytes have been read, about.
    """
    arrow = _arrow()
    try:
        file = import_module("pyarrow.parquet").ParquetFile(stream)
        names = file.schema_arrow.names
        chosen = [names[k] for k in places(name, columns, len(names), names)]
        before, rows = 0, max(1, file.metadata.num_rows)
        size = stream.seek(0, 2)
        for batch in file.iter_batches(columns=chosen, batch_size=1 << 18):
            users, items, ratings = (batch.column(one) for one in chosen)
            _take(users, items, ratings, before, name, triples)
            before += batch.num_rows
            advance(size * batch.num_rows // rows)
    except (arrow.ArrowException, OSError) as error:
        raise RatingsFileError(name, f"cannot be read as Parquet: {error}") from error


def _arrow() -> Any:
    try:
        return import_module("pyarrow")
    except ImportError as error:
        raise ImportError(
            "Parquet files are read with pyarrow: pip install 'momentous[app]'"
        ) from error


def _take(users: Any, items: Any, ratings: Any, before: int, name: str, triples: Triples) -> None:
    """Take one batch, whose first row has `before` rows before it."""
    arrow, kind = _arrow(), ratings.type
    if not (arrow.types.is_floating(kind) or arrow.types.is_integer(kind)):
        raise RatingsFileError(name, f"the ratings are of type {kind}; expected numbers")
    values = ratings.cast(arrow.float64()).to_numpy(zero_copy_only=False)  # null becomes NaN
    known = [np.asarray(one.is_valid()) for one in (users, items)]
    good = np.isfinite(values) & known[0] & known[1]
    if not good.all() and not triples.skip_bad:
        row = int(np.argmin(good))
        found = f"{users[row]}, {items[row]}, {ratings[row]}"
        raise RatingsFileError(
            name, "expected a user, an item and a finite rating", before + row + 1, found
        )
    triples.skipped += int(np.count_nonzero(~good))
    _add_ids(triples.users, users.filter(arrow.array(good)), name)
    _add_ids(triples.items, items.filter(arrow.array(good)), name)
    triples.add_values(values[good])


def _add_ids(into: Ids, ids: Any, name: str) -> None:
    types = _arrow().types
    if types.is_dictionary(ids.type):
        ids = ids.dictionary_decode()
    if types.is_integer(ids.type) and not types.is_uint64(ids.type):
        into.add_integers(ids.to_numpy(zero_copy_only=False).astype(np.int64))
    elif types.is_string(ids.type) or types.is_large_string(ids.type):
        into.add_strings([text.encode() for text in ids.to_pylist()])
    else:
        raise RatingsFileError(name, f"ids are of type {ids.type}; expected integers or strings")
