"""The observed entries of a matrix, kept once, compressed by row."""

from __future__ import annotations

import math
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from momentous.lowrank.entries import (
    Compressed,
    Floats,
    Integers,
    check_finite,
    compress,
    flat_ids,
    flat_indices,
    flat_values,
    side_length,
)

__all__ = ["Compressed", "Floats", "Integers", "Ratings", "Rng"]

Rng = int | np.random.Generator | None


class Ratings:
    """The observed entries X_ij of an m x n matrix: who (row) gave what (column) which value.

    The entries are stored once, sorted by row and then by column; all arrays are read-only.

    Parameters
    ----------
    rows, cols : array of int
        Indices from 0, one an entry.
    values : array of float, one an entry
        Finite. float32 stays float32, everything else becomes float64. Where a pair (row, column)
        comes more than once the last one counts, with a warning that says how often.
    shape : pair of int, optional
        (m, n); by default the number of ids, or else just large enough for the indices.
    row_ids, col_ids : array of length m or n, optional
        What the outside calls a row or a column; None means that the index is the id.

    Attributes
    ----------
    shape : pair of int
    nnz : int
        Number of entries (N).
    by_row : Compressed
        The storage itself.

    Examples
    --------
    >>> from momentous.lowrank import Ratings
    >>> Ratings([0, 0, 1], [0, 2, 1], [5.0, 3.0, 4.0])
    <Ratings 2 x 3, 3 entries (50.00%), float64>
    """

    shape: tuple[int, int]
    by_row: Compressed
    row_ids: NDArray[Any] | None
    col_ids: NDArray[Any] | None

    def __init__(
        self,
        rows: ArrayLike,
        cols: ArrayLike,
        values: ArrayLike,
        shape: tuple[int, int] | None = None,
        *,
        row_ids: ArrayLike | None = None,
        col_ids: ArrayLike | None = None,
    ):
        row, col = flat_indices(rows, "row"), flat_indices(cols, "column")
        value = flat_values(values)
        if not row.size == col.size == value.size:
            raise ValueError(
                "ratings need one row, one column and one value an entry; there are "
                f"{row.size} rows, {col.size} columns and {value.size} values"
            )
        if not value.size:
            raise ValueError("there are no ratings: at least one entry is needed")
        names = flat_ids(row_ids, "row_ids"), flat_ids(col_ids, "col_ids")
        asked = (None, None) if shape is None else shape
        m = side_length(row, names[0], asked[0], "row")
        n = side_length(col, names[1], asked[1], "column")
        check_finite(value, lambda k: (row[k], col[k]))
        self._take((m, n), compress(row, col, value, m, n), names)

    def _take(
        self,
        shape: tuple[int, int],
        storage: Compressed,
        names: tuple[NDArray[Any] | None, NDArray[Any] | None],
    ) -> None:
        for array in (storage.starts, storage.others, storage.values):
            array.flags.writeable = False
        self.shape, self.by_row = shape, storage
        self.row_ids, self.col_ids = names

    def _like(self, storage: Compressed) -> Ratings:
        """Other entries of the same matrix, already in order."""
        other = object.__new__(Ratings)
        other._take(self.shape, storage, (self.row_ids, self.col_ids))
        return other

    # --- what there is ----------------------------------------------------------------------------

    @property
    def nnz(self) -> int:
        """Number of entries (N)."""
        return int(self.by_row.values.size)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values: float32 or float64."""
        return self.by_row.values.dtype

    @property
    def density(self) -> float:
        """Share of the matrix that is observed."""
        return self.nnz / math.prod(self.shape)

    @cached_property
    def mean(self) -> float:
        """Mean of all values, summed in double precision."""
        return float(np.mean(self.by_row.values, dtype=np.float64))

    @property
    def rows(self) -> NDArray[np.int32]:
        """The row of each entry, in the order of the storage; made anew at each call."""
        return np.repeat(np.arange(self.shape[0], dtype=np.int32), np.diff(self.by_row.starts))

    @property
    def cols(self) -> NDArray[np.int32]:
        """The column of each entry, in the order of the storage."""
        return self.by_row.others

    @property
    def values(self) -> Floats:
        """The value of each entry, in the order of the storage."""
        return self.by_row.values

    @cached_property
    def by_col(self) -> Compressed:
        """The same entries grouped by column; made at the first use and kept."""
        turned = self.to_sparse().tocsc()  # a counting sort: linear, and rows stay in order
        storage = Compressed(
            turned.indptr.astype(np.int64), turned.indices.astype(np.int32), turned.data
        )
        for array in (storage.starts, storage.others, storage.values):
            array.flags.writeable = False
        return storage

    def __len__(self) -> int:
        return self.nnz

    def __repr__(self) -> str:
        m, n = self.shape
        return f"<Ratings {m:,} x {n:,}, {self.nnz:,} entries ({self.density:.2%}), {self.dtype}>"

    # --- others made of it ------------------------------------------------------------------------

    def split(self, share: float, rng: Rng = 0) -> tuple[Ratings, Ratings]:
        """Hold out a random share of the entries.

        Parameters
        ----------
        share : float
            Between 0 and 1; ``round(share * nnz)`` entries are held out, at least one, and at
            least one stays.
        rng : seed or Generator

        Returns
        -------
        kept, held_out : Ratings
            Of the same shape and with the same ids; a row may be left without entries in either.
        """
        if not 0.0 < share < 1.0:
            raise ValueError(f"the share to hold out must lie between 0 and 1, not be {share}")
        if self.nnz < 2:
            raise ValueError("one entry alone cannot be split")
        count = min(max(1, round(share * self.nnz)), self.nnz - 1)
        held = np.zeros(self.nnz, dtype=bool)
        rng = np.random.default_rng(rng)
        held[rng.choice(self.nnz, count, replace=False, shuffle=False)] = True
        return self._where(~held), self._where(held)

    def _where(self, chosen: NDArray[np.bool_]) -> Ratings:
        storage = self.by_row
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(chosen, dtype=np.int64)])
        return self._like(
            Compressed(before[storage.starts], storage.others[chosen], storage.values[chosen])
        )

    def signs(self) -> Ratings:
        """One-bit ratings: +1 where the value is above the mean, otherwise -1.

        A value equal to the mean counts as -1.
        """
        # As a float64 scalar: a Python float would first be rounded to the values' precision.
        above = self.values > np.float64(self.mean)
        return self._holding(np.where(above, self.dtype.type(1), self.dtype.type(-1)))

    def astype(self, dtype: Any) -> Ratings:
        """The same entries with float32 or float64 values."""
        dtype = np.dtype(dtype)
        if dtype not in (np.float32, np.float64):
            raise ValueError(f"ratings are kept in float32 or float64, not in {dtype}")
        return self if dtype == self.dtype else self._holding(self.values.astype(dtype))

    def with_values(self, values: ArrayLike) -> Ratings:
        """The same rows and columns with other values, given in the order of the storage.

        The indices are shared, not copied; single precision stays, everything else becomes double.
        """
        new = flat_values(values).copy()  # the caller may go on writing to theirs
        if new.size != self.nnz:
            raise ValueError(f"there are {self.nnz} entries but {new.size} values for them")
        check_finite(new, lambda k: (self.rows[k], self.cols[k]))
        return self._holding(new)

    def _holding(self, values: Floats) -> Ratings:
        return self._like(Compressed(self.by_row.starts, self.by_row.others, values))

    def to_sparse(self) -> scipy.sparse.csr_array:
        """The entries as a SciPy matrix, which shares their memory where the index types allow."""
        storage = self.by_row
        return scipy.sparse.csr_array(
            (storage.values, storage.others, storage.starts), shape=self.shape
        )

    # --- where they come from ---------------------------------------------------------------------

    @classmethod
    def from_sparse(
        cls,
        matrix: Any,
        *,
        row_ids: ArrayLike | None = None,
        col_ids: ArrayLike | None = None,
    ) -> Ratings:
        """The stored entries of a SciPy sparse matrix, explicit zeros included.

        Entries that are stored twice are not added up: the last one counts, as everywhere here.
        """
        if not scipy.sparse.issparse(matrix):
            raise TypeError(f"expected a SciPy sparse matrix, not {type(matrix).__name__}")
        entries = matrix.tocoo()
        return cls(
            entries.row, entries.col, entries.data, matrix.shape, row_ids=row_ids, col_ids=col_ids
        )

    @classmethod
    def read(cls, path: str | Path | list[str | Path], **options: Any) -> Ratings:
        """Read a file of ratings; see `momentous.lowrank.data.read_ratings` for the options."""
        ratings: Ratings = import_module("momentous.lowrank.data").read_ratings(path, **options)
        return ratings

    @classmethod
    def twin(cls, name: str, rng: Rng = 0) -> Ratings:
        """Synthetic ratings shaped like a known data set; see `momentous.lowrank.twins.twin`."""
        ratings: Ratings = import_module("momentous.lowrank.twins").twin(name, rng)
        return ratings
