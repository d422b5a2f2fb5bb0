"""What the outside calls rows and columns: ids of any kind, and the positions they stand for."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from momentous.io.types import AnyArray
from momentous.lowrank.data.errors import shorten
from momentous.lowrank.data.files.dialect import (
    KNOWN,
    PAIR,
    TRIPLE,
    WANTED,
    find_columns,
    matching_names,
)
from momentous.lowrank.data.ids import Ids, as_ids
from momentous.lowrank.data.ratings import Floats, Ratings, SparseMatrix, is_sparse
from momentous.lowrank.data.sorting import sum_repeated

Positions = NDArray[np.intp]
UNKNOWN = -1
Pairs = ArrayLike | Ratings | SparseMatrix
"""Two columns of ids, of an array or a table; or what holds the values, too."""


class Vocabulary:
    """The ids of all rows (or of all columns), each at its position.

    Integers, strings or other sortable values.  Where one side has numbers and the other strings
    they are compared as strings: an array of pairs that mixes both kinds turns all into strings.
    Ids come without repetitions.
    """

    def __init__(self, ids: Ids):
        self.ids = as_ids(ids)
        self._order = np.argsort(self.ids, kind="stable")
        self._sorted = self.ids[self._order]

    def __len__(self) -> int:
        return int(self.ids.size)

    def positions(self, ids: Ids) -> Positions:
        """The position of each id, -1 for those that are not known."""
        asked, known, order = as_ids(ids), self._sorted, self._order
        if _is_text(asked) != _is_text(known):
            asked = asked.astype(np.str_)
            known = self.ids.astype(np.str_)
            order = np.argsort(known, kind="stable")
            known = known[order]
        if not known.size:
            return np.full(asked.shape, UNKNOWN)
        where = np.minimum(np.searchsorted(known, asked), known.size - 1)
        return np.where(known[where] == asked, order[where], UNKNOWN)

    def extended(self, ids: Ids) -> Vocabulary:
        """These, followed by those of ``ids`` that are new, in sorted order."""
        new = np.unique(as_ids(ids))
        new = new[self.positions(new) == UNKNOWN]
        return Vocabulary(np.concatenate([self.ids, new])) if new.size else self


def pairs_of(pairs: Pairs) -> tuple[AnyArray, AnyArray]:
    """The row ids and the column ids of pairs in any of the forms that estimators take."""
    refuse_path(pairs)
    if isinstance(pairs, Ratings):
        return _ids_at(pairs.rows, pairs.row_ids), _ids_at(pairs.cols, pairs.col_ids)
    if is_sparse(pairs):
        return pairs_of(Ratings.from_sparse(pairs))
    shape: tuple[int, ...] = getattr(pairs, "shape", ())
    places = getattr(pairs, "iloc", None)
    each = getattr(pairs, "iter_columns", None) or getattr(pairs, "itercolumns", None)
    if places is not None:  # pandas: a table, whose columns may be of different kinds
        columns = [places[:, k].to_numpy() for k in range(shape[1] if len(shape) > 1 else 0)]
    elif each is not None:  # polars, Arrow
        columns = [column.to_numpy() for column in each()]
    else:
        array = pairs if isinstance(pairs, np.ndarray) else _keep_kinds(pairs)
        shape, columns = array.shape, list(array.T) if array.ndim == 2 else []
    if len(columns) != 2:
        raise ValueError(
            f"pairs must be of shape (N, 2), a row id and a column id each, not {tuple(shape)}; "
            f"{remedy_of(pairs, PAIR)}"
        )
    return as_ids(columns[0]), as_ids(columns[1])


def refuse_path(X: object) -> None:
    """Refuse the name of a file, with what reads it."""
    if isinstance(X, str | os.PathLike):
        name = shorten(os.fspath(X))
        raise ValueError(f"X is the name {name!r}: to read that file pass Ratings.read({name!r})")


def remedy_of(X: Pairs, count: int = TRIPLE) -> str:
    """What to do with an X of other columns than so many, by what it looks like."""
    names = _names_of(X)
    shown = f"X has {len(names)} columns ({shorten(', '.join(names))})"
    found = [names[places[0]] for known in KNOWN if (places := matching_names(names, known))]
    if len(found) >= PAIR:
        chosen = found[:count] if len(found) >= count else ["user", "item", "rating"][:count]
        cut = f"X[{chosen!r}]" if hasattr(X, "iloc") else f"X.select({chosen!r})"
        return f"{shown}: pass those of {WANTED[count]} alone, {cut}"
    if names:
        users = f"id_vars={found[0]!r}" if found else "ignore_index=False"
        index = "" if found else ".reset_index()"
        long = (
            f"long = X.melt({users}){index}.dropna() as fit(long.iloc[:, :2], long.iloc[:, 2])"
            if hasattr(X, "iloc")
            else "X.unpivot(index=...) without what is missing"
        )
        return f"{shown}, of items, it seems: of a table with one column per item pass {long}"
    width = width_of(X)
    if width is None:
        return f"X, of type {type(X).__name__}, is no table of two columns, a user and an item each"
    if width == TRIPLE and not _has_gaps(X):
        return "X is an array of three columns: of triples pass X[:, :2] and y=X[:, 2]"
    return (
        "of a dense matrix with NaN where nothing is known pass rows, cols = "
        "np.nonzero(~np.isnan(X)) as Ratings(rows, cols, X[rows, cols]), of one with zeros there "
        "scipy.sparse.csr_array(X); LowRankImputer fills the gaps of a table"
    )


def width_of(X: Pairs) -> int | None:
    """The number of columns of a table or of an array; None for what is neither."""
    try:
        shape = np.shape(X)
    except ValueError:  # lists of unlike lengths
        return None
    return shape[1] if len(shape) == 2 else None


def _names_of(X: object) -> list[str]:
    """The names of the columns of a table, as text."""
    return [str(one) for one in getattr(X, "column_names", getattr(X, "columns", ()))]


def _has_gaps(X: object) -> bool:
    """Is this an array of numbers of which some are missing?"""
    array = np.asarray(X)
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def split_triples(X: Pairs, y: ArrayLike | None) -> tuple[Pairs, ArrayLike | None]:
    """A table of three columns as one of ids and the column of values; all else as it is.

    Which is which, the names say, or the order where none of them is known.
    """
    names = _names_of(X)
    if y is not None or len(names) != TRIPLE:
        return X, y
    places: tuple[int, ...] = (0, 1, 2)
    if any(matching_names(names, known) for known in KNOWN):
        places = find_columns("the table", None, TRIPLE, names, TRIPLE)
    elif _has_gaps(X):  # no ids: a table with one column for each of three items
        return X, y
    user, item, value = places
    places_of, select = getattr(X, "iloc", None), getattr(X, "select", None)
    if places_of is not None:  # pandas
        return places_of[:, [user, item]], places_of[:, value].to_numpy()
    if select is None:
        return X, y
    values = select([names[value]])  # polars, Arrow
    return select([names[user], names[item]]), np.asarray(values).reshape(-1)


def ratings_of(
    pairs: Pairs,
    values: ArrayLike | None,
    dtype: DTypeLike | None = None,
    weights: Floats | None = None,
) -> Ratings:
    """Ratings from pairs and values, or from what holds both."""
    if isinstance(pairs, Ratings) or is_sparse(pairs):
        if values is not None:
            holder = type(pairs).__name__
            raise ValueError(f"{holder} holds its values already: leave y out, or pass pairs")
        ratings = pairs if isinstance(pairs, Ratings) else Ratings.from_sparse(pairs)
    elif values is None:
        raise ValueError("y is missing: fit(pairs, y) needs one value for each pair")
    else:
        users, items = pairs_of(pairs)
        if not users.size:
            raise ValueError("there are no ratings: at least one pair is needed")
        row_ids, rows = np.unique(users, return_inverse=True)
        col_ids, cols = np.unique(items, return_inverse=True)
        ratings = Ratings(rows, cols, values, row_ids=row_ids, col_ids=col_ids, weights=weights)
    return ratings if dtype is None else ratings.astype(dtype)


def count_pairs(
    pairs: Pairs, weights: Floats | None = None, dtype: DTypeLike | None = None
) -> Ratings:
    """How often each pair comes, or the sum of the weights of its times."""
    (row_ids, rows), (col_ids, cols) = (
        np.unique(ids, return_inverse=True) for ids in pairs_of(pairs)
    )
    each = np.ones(rows.size) if weights is None else weights
    return ratings_of(
        Ratings(*sum_repeated(rows, cols, each), row_ids=row_ids, col_ids=col_ids), None, dtype
    )


def _keep_kinds(pairs: object) -> AnyArray:
    """Pairs in Python's own lists keep the kind of each id."""
    array = np.asarray(pairs)
    if array.dtype.kind in "USf" and array.ndim == 2:  # floats: whole numbers of 2^63 among others
        array = np.asarray(pairs, dtype=object)
    return array


def _ids_at(positions: AnyArray, ids: AnyArray | None) -> AnyArray:
    return positions if ids is None else ids[positions]


def _is_text(array: AnyArray) -> bool:
    return array.dtype.kind in "US"
