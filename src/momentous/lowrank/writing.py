"""Ratings into a file, in one of the formats that can be read again."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from momentous.lowrank.ratings import Ratings

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
        scipy.sparse.save_npz(path, ratings.to_sparse())
        return
    users = _named(ratings.rows, ratings.row_ids)
    items = _named(ratings.cols, ratings.col_ids)
    if path.suffix == ".parquet":
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        columns = {"user": users, "item": items, "rating": ratings.values}
        parquet.write_table(pyarrow.table(columns), path)
        return
    between = {".csv": ",", ".tsv": "\t", ".dat": "::"}[path.suffix]
    with open(path, "w", encoding="utf-8") as file:
        if path.suffix != ".dat":
            file.write(between.join(("user", "item", "rating")) + "\n")
        for begin in range(0, ratings.nnz, _BLOCK):
            block = slice(begin, begin + _BLOCK)
            file.writelines(
                f"{user}{between}{item}{between}{value:g}\n"
                for user, item, value in zip(
                    users[block].tolist(),
                    items[block].tolist(),
                    ratings.values[block].tolist(),
                    strict=True,
                )
            )


def _named(positions: Any, ids: Any) -> Any:
    return np.asarray(positions) if ids is None else ids[positions]
