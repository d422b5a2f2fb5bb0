"""Ratings into a file, in one of the formats that can be read again."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
import scipy.sparse

from momentous.io.atomic import atomic_file
from momentous.io.optional import require
from momentous.io.types import AnyArray
from momentous.lowrank.data.files.sources import expand_home
from momentous.lowrank.data.ratings import Ratings
from momentous.lowrank.data.vocabulary import pairs_of

ENDINGS = (".csv", ".tsv", ".dat", ".parquet", ".npz")
_ROWS_PER_BLOCK = 1 << 17  # entries that are text at a time


def write_ratings(ratings: Ratings, path: str | os.PathLike[str]) -> None:
    """Write ratings; the ending of the name says in which format.

    ``.csv`` and ``.tsv`` with a header, ``.dat`` as ``user::item::rating``, ``.parquet``, or
    ``.npz``, a SciPy matrix without ids.
    """
    path = expand_home(path)
    if path.suffix not in ENDINGS:
        raise ValueError(f"{path.name!r} must end in one of {', '.join(ENDINGS)}")
    if ratings.weights is not None:
        raise ValueError(
            "a file of ratings has no weights: write them to a file of your own, and give them to "
            "the ratings read again by Ratings.with_weights"
        )
    users, items = pairs_of(ratings)
    columns = {"user": users, "item": items, "rating": ratings.values}
    is_text = path.suffix in (".csv", ".tsv", ".dat")
    if is_text:
        _refuse_unwritable(path, ratings.row_ids, ratings.col_ids)
    with atomic_file(path, "w" if is_text else "wb") as file:
        if path.suffix == ".npz":
            scipy.sparse.save_npz(file, ratings.to_sparse())
        elif path.suffix == ".parquet":
            table = require("pyarrow", "app", "A Parquet file").table(columns)
            require("pyarrow.parquet", "app", "A Parquet file").write_table(table, file)
        elif path.suffix == ".dat":
            for block in _blocks(columns):
                file.writelines("::".join(fields) + "\n" for fields in zip(*block, strict=True))
        else:
            write_table(file, columns, "\t" if path.suffix == ".tsv" else ",")


def write_table(
    file: IO[str], columns: dict[str, AnyArray], between: str = ",", harmless: bool = False
) -> None:
    """Write arrays as the columns of a table with a header, quoted where need be.

    With ``harmless``, texts neither control a terminal nor are formulas of a spreadsheet: control
    characters are written as escapes, and what begins like a formula gets an apostrophe before it.
    """
    writer = csv.writer(file, delimiter=between, lineterminator="\n")
    writer.writerow(columns)
    for block in _blocks(columns):
        made = [list(map(_harmless, cells)) for cells in block] if harmless else block
        writer.writerows(zip(*made, strict=True))


def _harmless(text: str) -> str:
    if not text.isprintable():
        text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    if not text.startswith(("=", "+", "-", "@")):
        return text
    try:
        float(text)  # a negative number is no formula
    except ValueError:
        return "'" + text
    return text


def _blocks(columns: dict[str, AnyArray]) -> Iterator[list[list[str]]]:
    """The columns as text, some lines at a time."""
    for begin in range(0, len(next(iter(columns.values()))), _ROWS_PER_BLOCK):
        yield [_texts(column[begin : begin + _ROWS_PER_BLOCK]) for column in columns.values()]


def _texts(values: AnyArray) -> list[str]:
    """Each value in the fewest digits that give it back; 3 and not 3.0."""
    texts: list[str] = values.astype(np.str_).tolist()
    return [text.removesuffix(".0") for text in texts] if values.dtype.kind == "f" else texts


def _refuse_unwritable(path: Path, *sides: AnyArray | None) -> None:
    """Ids that would be read as something else: nothing is written then."""
    forbidden = ("\r", "\0", "\n", "::") if path.suffix == ".dat" else ("\r", "\0")
    edges = " \t:" if path.suffix == ".dat" else " \t\n"
    for ids in sides:
        for name in () if ids is None or ids.dtype.kind not in "UO" else map(str, ids.tolist()):
            if not name or name != name.strip(edges) or any(part in name for part in forbidden):
                raise ValueError(
                    f"the id {name!r} cannot stand in a {path.suffix} file; write .parquet"
                )
