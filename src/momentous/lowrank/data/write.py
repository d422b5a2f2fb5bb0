"""Ratings into a file, in one of the formats that can be read again."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse

from momentous.io.atomic import atomic_file
from momentous.io.optional import require
from momentous.lowrank.data.ratings import Ratings

ENDINGS = (".csv", ".tsv", ".dat", ".parquet", ".npz")
_BLOCK = 1 << 17  # entries that are text at a time


def write_ratings(ratings: Ratings, path: str | os.PathLike[str]) -> None:
    """Write ratings; the ending of the name says in which format.

    ``.csv`` and ``.tsv`` with a header, ``.dat`` as ``user::item::rating``, ``.parquet``, or
    ``.npz``, a SciPy matrix without ids.
    """
    path = Path(path)
    if path.suffix not in ENDINGS:
        raise ValueError(f"{path.name!r} must end in one of {', '.join(ENDINGS)}")
    if path.suffix == ".npz":
        with atomic_file(path) as file:
            scipy.sparse.save_npz(file, ratings.to_sparse())
        return
    users = _named(ratings.rows, ratings.row_ids)
    items = _named(ratings.cols, ratings.col_ids)
    columns = {"user": users, "item": items, "rating": ratings.values}
    if path.suffix == ".parquet":
        parquet = require("pyarrow.parquet", "app", "A Parquet file")
        table = require("pyarrow", "app", "A Parquet file").table(columns)
        with atomic_file(path) as file:
            parquet.write_table(table, file)
        return
    _refuse_unwritable(path, ratings.row_ids, ratings.col_ids)
    with atomic_file(path, "w") as file:
        if path.suffix != ".dat":
            write_table(file, columns, "\t" if path.suffix == ".tsv" else ",")
            return
        for block in _blocks(list(columns.values())):
            file.writelines("::".join(fields) + "\n" for fields in zip(*block, strict=True))


def write_table(file: IO[str], columns: dict[str, Any], between: str = ",") -> None:
    """Write arrays as the columns of a table with a header, quoted where need be."""
    writer = csv.writer(file, delimiter=between, lineterminator="\n")
    writer.writerow(columns)
    for block in _blocks(list(columns.values())):
        writer.writerows(zip(*block, strict=True))


def _blocks(columns: Sequence[Any]) -> Any:
    """The columns as text, some lines at a time."""
    for begin in range(0, len(columns[0]), _BLOCK):
        yield [_texts(column[begin : begin + _BLOCK]) for column in columns]


def _texts(values: Any) -> list[str]:
    """Each value in the fewest digits that give it back; 3 and not 3.0."""
    texts: list[str] = values.astype(np.str_).tolist()
    return [text.removesuffix(".0") for text in texts] if values.dtype.kind == "f" else texts


def _refuse_unwritable(path: Path, *sides: Any) -> None:
    """Ids that would be read as something else: nothing is written then."""
    forbidden = ("\r", "\0", "\n", "::") if path.suffix == ".dat" else ("\r", "\0")
    edges = " \t:" if path.suffix == ".dat" else " \t\n"
    for ids in sides:
        for name in () if ids is None or ids.dtype.kind not in "UO" else map(str, ids.tolist()):
            if not name or name != name.strip(edges) or any(part in name for part in forbidden):
                raise ValueError(
                    f"the id {name!r} cannot stand in a {path.suffix} file; write .parquet"
                )


def _named(positions: Any, ids: Any) -> Any:
    return np.asarray(positions) if ids is None else ids[positions]
