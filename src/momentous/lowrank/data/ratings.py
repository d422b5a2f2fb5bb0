"""The observed entries of a matrix, checked and kept once, compressed by row."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, DTypeLike, NDArray

from momentous.io.types import AnyArray, AnyDType, Integers
from momentous.io.types import Floats as Floats
from momentous.lowrank.checks import check_number, corrects_names
from momentous.lowrank.data.draws import Keys, keys_of, least_keys, mix, new_generator
from momentous.lowrank.data.draws import Rng as Rng
from momentous.lowrank.data.errors import shorten
from momentous.lowrank.data.ids import as_ids, require_unmasked
from momentous.lowrank.data.sorting import compressed_by_row

if TYPE_CHECKING:
    from typing_extensions import TypeIs

VALUES_PER_BLOCK = 1 << 16  # which fit the caches
WEIGHT_RANGE = 1e-30, 1e30  # neither 0 nor infinite in single precision, nor are sums of 1e8
Entries = tuple[ArrayLike, ...]  # rows, columns and values
Ids = tuple[ArrayLike | None, ArrayLike | None]
IdPair = tuple[AnyArray | None, AnyArray | None]
Users = Callable[[AnyArray], NDArray[np.bool_]]  # which of these ids are chosen


class SparseMatrix(Protocol):
    """A matrix of ``scipy.sparse``."""

    @property
    def shape(self) -> tuple[int, int]: ...
    def tocoo(self) -> scipy.sparse.coo_array: ...


def is_sparse(matrix: object) -> TypeIs[SparseMatrix]:
    """Is this a matrix of ``scipy.sparse``?"""
    return bool(scipy.sparse.issparse(matrix))


@dataclass(frozen=True, eq=False)
class Compressed:
    """Entries grouped by row (or by column), sorted by the other index within a group.

    Attributes
    ----------
    starts : int64 array of length groups + 1
        Group i owns the entries ``starts[i]`` to ``starts[i + 1] - 1``.
    others : int32 array, one per entry
        The column where groups are rows, the row where groups are columns.
    values : float array, one per entry; with weights, of two columns: value and weight
    """

    starts: NDArray[np.int64]
    others: NDArray[np.int32]
    values: Floats

    def where(self, chosen: NDArray[np.bool_]) -> Compressed:
        """The entries that are chosen, by one flag each."""
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(chosen, dtype=np.int64)])
        return Compressed(before[self.starts], self.others[chosen], self.values[chosen])

    @property
    def group_weights(self) -> AnyArray:
        """The sum of each group's weights: without any, its number of entries."""
        counts = np.diff(self.starts)
        if self.values.ndim == 1:
            return counts
        owners = np.repeat(np.arange(counts.size), counts)
        return np.bincount(owners, self.values[:, 1], counts.size)


class Whole(Protocol):
    """What is known of all entries of a matrix, also where they are spread over ranks."""

    @property
    def nnz(self) -> int: ...
    @property
    def weight(self) -> float: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def mean(self) -> float: ...
    @property
    def deviation(self) -> float: ...
    @property
    def value_range(self) -> tuple[float, float]: ...


class Ratings:
    """The observed entries X_ij of an m x n matrix: who (row) gave what (column) which value.

    The entries are stored once, sorted by row and then by column; all arrays are read-only.

    Parameters
    ----------
    rows, cols : array of int
        Indices from 0, one per entry.
    values : array of float, one per entry
        Finite. float32 stays float32, everything else becomes float64. Where a pair (row, column)
        comes more than once the last one counts, with a warning that says how often. Masked ones
        (``numpy.ma``) are refused, as NaN is: leave out what was not rated.
    shape : pair of int, optional
        (m, n); by default the number of ids, or else just large enough for the indices.
    row_ids, col_ids : array of length m or n, optional
        What the outside calls a row or a column; None means that the index is the id. Whole
        numbers are kept as integers of 64 bits, or all as text where one of them does not fit.
    weights : array of float, one per entry, optional
        How often each entry counts in a fit, above 0: by default once.

    Attributes
    ----------
    shape : pair of int
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
    row_ids: AnyArray | None
    col_ids: AnyArray | None

    def __init__(
        self,
        rows: ArrayLike,
        cols: ArrayLike,
        values: ArrayLike,
        shape: tuple[int, int] | None = None,
        *,
        row_ids: ArrayLike | None = None,
        col_ids: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ):
        for note in self._fill((rows, cols, values), shape, (row_ids, col_ids), weights):
            warnings.warn(note, RuntimeWarning, stacklevel=2)

    def _fill(
        self,
        entries: Entries,
        shape: tuple[int, int] | None,
        ids: Ids,
        weights: ArrayLike | None = None,
    ) -> list[str]:
        """Take the entries; return what there is to say about pairs that come more than once."""
        row, col = _indices(entries[0], "row"), _indices(entries[1], "column")
        value = _reals(entries[2])
        if not row.size == col.size == value.size:
            raise ValueError(
                "ratings need one row, one column and one value per entry; there are "
                f"{row.size} rows, {col.size} columns and {value.size} values"
            )
        if not value.size:
            raise ValueError("there are no ratings: at least one entry is needed")
        names = _ids(ids[0]), _ids(ids[1])
        asked = (None, None) if shape is None else shape
        m = _side_length(row, names[0], asked[0], "row")
        n = _side_length(col, names[1], asked[1], "column")
        _check_finite(value, lambda k: (row[k], col[k]))
        if weights is None:
            storage = Compressed(*compressed_by_row(row, col, value, m, n))
        else:
            both = pair_up(value, checked_weights(weights, row.size, "weights"))
            starts, others, order = compressed_by_row(row, col, np.arange(row.size), m, n)
            storage = Compressed(starts, others, both[order])
        self._take((m, n), storage, names)
        return repeated_note(value.size, self.nnz)

    def _take(
        self,
        shape: tuple[int, int],
        storage: Compressed,
        names: IdPair,
    ) -> None:
        self.shape, self.by_row = shape, _read_only(storage)
        self.row_ids, self.col_ids = names

    def _like(self, storage: Compressed) -> Ratings:
        """Other entries of the same matrix, already in order."""
        return stored_ratings(self.shape, storage, (self.row_ids, self.col_ids))

    # --- what there is ----------------------------------------------------------------------------

    @property
    def nnz(self) -> int:
        """Number of entries (N)."""
        return int(self.by_row.others.size)

    @property
    def dtype(self) -> AnyDType:
        """Of the values: float32 or float64."""
        return self.by_row.values.dtype

    @property
    def density(self) -> float:
        """Share of the matrix that is observed."""
        return self.nnz / math.prod(self.shape)

    @cached_property
    def mean(self) -> float:
        """Mean of all values, summed in double precision."""
        if self.weights is not None:
            return float(np.average(self.values.astype(np.float64), weights=self.weights))
        return float(np.mean(self.values, dtype=np.float64))

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of all values, in double precision, by blocks that fit the caches."""
        values, mean, squares = self.values, np.float64(self.mean), 0.0
        for begin in range(0, values.size, VALUES_PER_BLOCK):
            block = slice(begin, begin + VALUES_PER_BLOCK)
            away = values[block] - mean
            squares += float(away @ (away if self.weights is None else away * self.weights[block]))
        return math.sqrt(squares / self.weight)

    @property
    def whole(self) -> Whole:
        """What has nnz, weight, shape, mean, deviation and value_range of the whole matrix: these
        ratings, unless they are the part of one rank (`momentous.lowrank.ranks`)."""
        return self

    def total(self, count: int) -> int:
        """The sum of such a number over all ranks: here it is that number."""
        return int(self.totals(np.array([count], np.int64))[0])

    def totals(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sums of such numbers over all ranks."""
        return counts

    @cached_property
    def value_range(self) -> tuple[float, float]:
        """The least and the greatest value."""
        return float(self.values.min()), float(self.values.max())

    @property
    def rows(self) -> NDArray[np.int32]:
        """The row of each entry, in the order of the storage; made again at each call."""
        return np.repeat(np.arange(self.shape[0], dtype=np.int32), np.diff(self.by_row.starts))

    @property
    def cols(self) -> NDArray[np.int32]:
        """The column of each entry, in the order of the storage."""
        return self.by_row.others

    @property
    def values(self) -> Floats:
        """The value of each entry, in the order of the storage."""
        given = self.by_row.values
        return given if given.ndim == 1 else given[:, 0]

    @property
    def weights(self) -> Floats | None:
        """The weight of each entry, in the order of the storage; None: all count once."""
        given = self.by_row.values
        return None if given.ndim == 1 else given[:, 1]

    def ids(self, which: int) -> AnyArray:
        """The ids of the rows (0) or columns (1): the indices where they have none."""
        given = (self.row_ids, self.col_ids)[which]
        return np.arange(self.shape[which]) if given is None else given

    @cached_property
    def weight(self) -> float:
        """The sum of all weights: without any, the number of entries."""
        return float(self.nnz if self.weights is None else self.weights.sum(dtype=np.float64))

    @cached_property
    def by_col(self) -> Compressed:
        """The same entries grouped by column; made at the first use and kept."""
        matrix, values = self.to_sparse(), self.by_row.values
        if values.ndim > 1:
            matrix.data = np.arange(self.nnz)
        turned = matrix.tocsc()  # a counting sort: linear, and rows stay in order
        starts, others = turned.indptr.astype(np.int64), turned.indices.astype(np.int32)
        data = turned.data if values.ndim == 1 else values[turned.data]
        return _read_only(Compressed(starts, others, data))

    def __len__(self) -> int:
        return self.nnz

    def __repr__(self) -> str:
        m, n = self.shape
        return f"<Ratings {m:,} x {n:,}, {self.nnz:,} entries ({self.density:.2%}), {self.dtype}>"

    # --- others made of it ------------------------------------------------------------------------

    @corrects_names
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

        Notes
        -----
        Which ones, a hash of row id, column and seed says: those on ranks, however many there are,
        are the same ones.
        """
        check_number("share", share, 0.0, 1.0)
        total = self.whole.nnz
        if total < 2:
            raise ValueError("one entry alone cannot be split")
        count = min(max(1, round(share * total)), total - 1)
        held = self._draw(count, np.ones(self.nnz, bool), rng)
        return self.where(~held), self.where(held)

    def drawn(self, share: float, among: NDArray[np.bool_], rng: Rng) -> NDArray[np.bool_]:
        """A random share of some of the entries, as one flag per entry."""
        count = round(share * self.total(int(np.count_nonzero(among))))
        return self._draw(count, among, rng)

    def _draw(self, count: int, among: NDArray[np.bool_], rng: Rng) -> NDArray[np.bool_]:
        """So many entries: those with the least hashes of row id, column and seed."""
        drawn, seed = np.zeros(self.nnz, bool), self.shared_seed(rng)
        if count:
            keys = np.repeat(self.row_keys, np.diff(self.by_row.starts))
            of_cols = mix(seed ^ mix(np.arange(self.shape[1], dtype=np.uint64)))
            for begin in range(0, self.nnz, VALUES_PER_BLOCK):
                block = slice(begin, begin + VALUES_PER_BLOCK)
                keys[block] = mix(keys[block] ^ of_cols[self.cols[block]])
            drawn[among] = least_keys(keys[among], count, self.totals)
        return drawn

    @property
    def row_keys(self) -> Keys:
        """What random numbers of a row depend on: a hash of its id."""
        return keys_of(self.ids(0))

    def shared_seed(self, rng: Rng) -> np.uint64:
        """A random number, the same on all ranks."""
        return np.uint64(new_generator(rng).integers(2**63))

    def where(self, chosen: NDArray[np.bool_]) -> Ratings:
        """The entries that are chosen, by one flag per entry in the order of the storage."""
        return self._like(self.by_row.where(chosen))

    def of_users(self, chosen: Users) -> Ratings:
        """The entries of the rows whose ids are chosen, which are all of its rows; there may be
        none."""
        row_ids = self.ids(0)
        mine, counts, storage = (
            choose_users(chosen, row_ids),
            np.diff(self.by_row.starts),
            self.by_row,
        )
        entries = np.repeat(mine, counts)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts[mine])])
        own = Compressed(starts, storage.others[entries], storage.values[entries])
        shape = int(mine.sum()), self.shape[1]
        return stored_ratings(shape, own, (row_ids[mine], self.col_ids))

    def signs(self, threshold: float | None = None) -> Ratings:
        """One-bit ratings: +1 where the value is above the threshold (the mean), otherwise -1."""
        # As a float64 scalar: a Python float would first be rounded to the values' precision.
        above = self.values > np.float64(self.whole.mean if threshold is None else threshold)
        return self._holding(np.where(above, self.dtype.type(1), self.dtype.type(-1)))

    def astype(self, dtype: DTypeLike) -> Ratings:
        """The same entries with float32 or float64 values."""
        dtype = rating_dtype(dtype)
        return self if dtype == self.dtype else self._holding(self.values.astype(dtype))

    def with_values(self, values: ArrayLike) -> Ratings:
        """The same rows and columns with other values, given in the order of the storage.

        The indices are shared, not copied; single precision stays, everything else becomes double.
        """
        new = _reals(values).copy()  # the caller may go on writing to theirs
        if new.size != self.nnz:
            raise ValueError(f"there are {self.nnz} entries but {new.size} values for them")
        _check_finite(new, lambda k: (self.rows[k], self.cols[k]))
        return self._holding(new)

    def with_weights(self, weights: ArrayLike) -> Ratings:
        """The same entries, each counted as often as its weight says, in the order of the
        storage."""
        return self._holding(self.values, checked_weights(weights, self.nnz, "weights"))

    def _holding(self, values: Floats, weights: Floats | None = None) -> Ratings:
        """Other values, and other weights or the same ones."""
        weights = self.weights if weights is None else weights
        both = values if weights is None else pair_up(values, weights)
        return self._like(Compressed(self.by_row.starts, self.by_row.others, both))

    def to_sparse(self) -> scipy.sparse.csr_array:
        """The values as a SciPy matrix, which shares their memory where the index types allow."""
        parts = self.values, self.by_row.others, self.by_row.starts
        return scipy.sparse.csr_array(parts, shape=self.shape)

    # --- where they come from ---------------------------------------------------------------------

    @classmethod
    def from_sparse(
        cls,
        matrix: SparseMatrix,
        *,
        row_ids: ArrayLike | None = None,
        col_ids: ArrayLike | None = None,
    ) -> Ratings:
        """The stored entries of a SciPy sparse matrix, explicit zeros included.

        Entries that are stored twice are not added up: the last one counts, as everywhere here.
        """
        if not is_sparse(matrix):
            raise TypeError(f"expected a SciPy sparse matrix, not {type(matrix).__name__}")
        entries = matrix.tocoo()
        parts = entries.row, entries.col, entries.data, matrix.shape
        return cls(*parts, row_ids=row_ids, col_ids=col_ids)

    # The package, which knows both this class and those who make ratings, puts them here.
    read: ClassVar[Maker]
    """Ratings from a file or a table: `momentous.lowrank.data.read_ratings`."""
    query: ClassVar[Maker]
    """Ratings from SQL: `momentous.lowrank.data.read.query_ratings`."""
    twin: ClassVar[Maker]
    """Synthetic ratings shaped like a known data set: `momentous.lowrank.twin`."""


Maker = Callable[..., Ratings]  # type: ignore[explicit-any]


def make_ratings(
    *entries: ArrayLike, shape: tuple[int, int] | None = None, ids: Ids = (None, None)
) -> tuple[Ratings, list[str]]:
    """Ratings, and what there is to warn of, for those who pass warnings on themselves."""
    ratings = object.__new__(Ratings)
    return ratings, ratings._fill(entries, shape, ids)


def stored_ratings(
    shape: tuple[int, int],
    storage: Compressed,
    ids: IdPair,
) -> Ratings:
    """Ratings from arrays that are in order already, and are known to be."""
    ratings = object.__new__(Ratings)
    ratings._take(shape, storage, ids)
    return ratings


def rating_dtype(dtype: DTypeLike) -> AnyDType:
    """A type that ratings are kept in."""
    try:
        found: AnyDType | str = np.dtype(dtype)
    except TypeError:
        found = repr(dtype)
    if isinstance(found, str) or found not in (np.float32, np.float64):
        raise ValueError(f"ratings are kept in float32 or float64, not in {found}")
    return found


def choose_users(chosen: Users, ids: AnyArray) -> NDArray[np.bool_]:
    """Which of these ids are chosen, as the caller's function says, whose answer is checked."""
    flags = np.asarray(chosen(ids))
    if not ids.size:
        return np.zeros(0, bool)
    if flags.dtype != np.bool_ or flags.shape != ids.shape:
        raise TypeError(
            f"users=... has returned {_brief(flags)} for {ids.size} ids; it must return one flag, "
            "True or False, for each of them, as np.isin(ids, wanted) does"
        )
    return flags


def _brief(values: object) -> str:
    """Values in one short line."""
    return shorten(" ".join(repr(values).split()), 60)


def no_ratings(row_ids: AnyArray, col_ids: AnyArray) -> Ratings:
    """Of these rows and columns, none."""
    storage = np.zeros(len(row_ids) + 1, np.int64), np.empty(0, np.int32), np.empty(0)
    return stored_ratings((len(row_ids), len(col_ids)), Compressed(*storage), (row_ids, col_ids))


def repeated_note(given: int, kept: int) -> list[str]:
    """What there is to say where pairs came more than once."""
    if given == kept:
        return []
    repeated = f"{given - kept} of {given} ratings are for a pair that is rated again later; "
    return [repeated + "the last one counts"]


def checked_storage(
    shape: tuple[int, int],
    starts: AnyArray,
    others: AnyArray,
    values: AnyArray,
    row_ids: AnyArray | None = None,
    col_ids: AnyArray | None = None,
    *,
    weights: AnyArray | None = None,
    may_be_empty: bool = False,
) -> Ratings:
    """Ratings from arrays as `Ratings.by_row` has them, for instance out of a file.

    Everything is checked before anybody uses it; what is wrong is a ValueError that says what.
    Only where they ``may_be_empty``, as the users of a shard may be, there may be no entries.
    """
    m, n = (int(side) for side in shape)
    if not (m > 0 or (may_be_empty and m == 0)) or m >= 2**31 or not 0 < n < 2**31:
        raise ValueError(f"the shape {m} x {n} is not possible")
    for name, array, kinds in (
        ("starts", starts, (np.int64,)),
        ("others", others, (np.int32,)),
        ("values", values, (np.float32, np.float64)),
    ):
        if array.ndim != 1 or array.dtype not in kinds:
            raise ValueError(f"{name} has {array.ndim} dimensions and dtype {array.dtype}")
    if others.size != values.size or not (values.size or may_be_empty):
        raise ValueError(f"there are {values.size} values in {others.size} columns")
    check_starts(starts, m, values.size, "starts")
    if others.min(initial=0) < 0 or others.max(initial=0) >= n:
        raise ValueError(f"a column lies outside of 0 to {n - 1}")
    falls = np.append(False, others[1:] <= others[:-1])[: values.size]
    falls[starts[:-1][starts[:-1] < values.size]] = False  # the first entry of a row
    if falls.any():
        raise ValueError("the columns of a row do not ascend")
    if not np.isfinite(values).all():
        raise ValueError("a value is not finite")
    names = _ids(row_ids), _ids(col_ids)
    for ids, size, what in zip(names, (m, n), ("row", "column"), strict=True):
        if ids is not None and (ids.size != size or ids.dtype.kind not in "iuUS"):
            raise ValueError(f"there are {size} {what}s but {ids.size} ids, of dtype {ids.dtype}")
    if weights is not None:
        values = pair_up(values, checked_weights(weights, values.size, "weights"))
    return stored_ratings((m, n), Compressed(starts, others, values), names)


def check_starts(starts: Integers, groups: int, count: int, name: str) -> None:
    """Raise an error unless these are starts of so many groups with so many entries."""
    fits = starts.size == groups + 1 and starts[0] == 0 and starts[-1] == count
    if not fits or np.any(starts[1:] < starts[:-1]):
        raise ValueError(f"{name} does not ascend from 0 to the number of entries")


def _read_only(storage: Compressed) -> Compressed:
    for array in (storage.starts, storage.others, storage.values):
        array.flags.writeable = False
    return storage


def checked_weights(
    weights: ArrayLike, count: int, name: str, least: float = WEIGHT_RANGE[0]
) -> NDArray[np.float64]:
    """Weights of so many entries; one number is the weight of all."""
    most = f"{count} numbers from {least:g} to {WEIGHT_RANGE[1]:g}, one per pair"
    array = _doubles(weights)
    if array is None:
        raise TypeError(f"{name}={_brief(weights)} must be {most}")
    require_unmasked(weights, "weights")
    if array.ndim == 0:
        array = np.full(count, array)
    wanted = f"{name} of shape {array.shape} must be {most}"
    if array.shape != (count,):
        raise ValueError(wanted)
    bad = np.flatnonzero(~((array >= least) & (array <= WEIGHT_RANGE[1])))
    if bad.size:
        raise ValueError(
            f"{wanted}, but that at position {bad[0]} is {array[bad[0]]:g}; leave out pairs that "
            "must not count"
        )
    return array


def pair_up(values: Floats, weights: Floats | None = None) -> Floats:
    """Values beside their weights, in two columns of the values' precision; by default ones."""
    both: Floats = np.ones((values.size, 2), values.dtype)
    both[:, 0] = values
    if weights is not None:
        both[:, 1] = weights
    return both


def _flat(array: AnyArray, what: str) -> AnyArray:
    if array.ndim != 1:
        raise ValueError(f"{what} must be one flat array, not of shape {array.shape}")
    return array


def _doubles(values: ArrayLike) -> NDArray[np.float64] | None:
    """An array in double precision; None where these are no real numbers."""
    with contextlib.suppress(ValueError, TypeError):  # of lists of unlike lengths, and of texts
        array = np.asarray(values)
        if array.dtype.kind in "biufO":
            return array.astype(np.float64)
    return None


def _indices(index: ArrayLike, what: str) -> Integers:
    """Indices as a flat array of integers."""
    array = _flat(require_unmasked(index, f"{what} indices"), f"{what} indices")
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(
            f"{what} indices must be integers, not {array.dtype}; number the ids from 0 and pass "
            f"them as {'row_ids' if what == 'row' else 'col_ids'}"
        )
    return array


def _reals(values: ArrayLike) -> Floats:
    """Values as a flat array of float32, if they are that, or else of float64."""
    array = _flat(require_unmasked(values, "ratings"), "ratings")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"ratings must be real numbers, not {array.dtype}")
    return array if array.dtype == np.float32 else array.astype(np.float64, copy=False)


def _check_finite(values: Floats, place: Callable[[int], tuple[int, int]]) -> None:
    """Refuse values that are not finite; `place` gives row and column of a position."""
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        k = int(bad[0])
        row, col = place(k)
        raise ValueError(
            f"the rating at position {k} (row {row}, column {col}) is {values[k]}, and {bad.size} "
            f"of {values.size} are not finite; leave out what was not rated, as "
            "Ratings.read(table, missing='drop') does"
        )


def _ids(ids: ArrayLike | None) -> AnyArray | None:
    """Ids as a flat array of our own, if there are any."""
    if ids is None:
        return None
    array = np.array(as_ids(ids))
    array.flags.writeable = False
    return array


def _side_length(index: Integers, ids: AnyArray | None, asked: int | None, what: str) -> int:
    """How many rows (or columns) there are; every index must be one of them."""
    size = int(index.max()) + 1 if ids is None else ids.size
    if asked is not None:
        size = int(asked)
    if index.min() < 0 or index.max() >= size:
        k = int(np.flatnonzero((index < 0) | (index >= size))[0])
        raise ValueError(
            f"the {what} index at position {k} is {index[k]}, but there are only {size} {what}s; "
            "indices count from 0"
        )
    if ids is not None and ids.size != size:
        raise ValueError(f"there are {size} {what}s but {ids.size} ids for them")
    if size > np.iinfo(np.int32).max:
        raise ValueError(f"{size} {what}s are more than the {np.iinfo(np.int32).max} possible")
    return size
