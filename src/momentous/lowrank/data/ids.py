"""Ids of any kind as one flat array: whole numbers of 64 bits, or text."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from momentous.io.types import AnyArray, AnyId

Id = AnyId
Ids = ArrayLike | Sequence[Id]  # what is given for them


def as_ids(ids: Ids) -> AnyArray:
    """A flat array of ids that can be sorted and stored.

    Whole numbers are integers; where one of them does not fit into 64 bits with a sign, all of the
    array are text, because NumPy has no kind of number that holds them beside negative ones.
    """
    array = np.atleast_1d(require_unmasked(ids, "ids"))
    if array.ndim != 1:
        raise ValueError(f"ids must be one flat array, not of shape {array.shape}")
    if array.dtype.kind == "f" and isinstance(ids, list | tuple):
        array = np.array(ids, object)  # whole numbers may be among them that are no longer there
    if array.dtype.kind == "O":  # a list, or a column of a table: look at what is in it
        _check_there(array, [k for k, one in enumerate(array) if _is_missing(one)])
        array = _of_objects(array.tolist())
    if array.dtype.kind == "f":
        _check_there(array, np.flatnonzero(~np.isfinite(array)).tolist())
        _check_exact(array)
        whole = array.astype(np.int64)
        array = whole if np.array_equal(whole, array) else array
    if array.dtype.kind == "u":
        fits = array.max(initial=0) < 2**63
        array = array.astype(np.int64 if fits else np.str_)
    return array


def require_unmasked(values: object, what: str, dtype: DTypeLike | None = None) -> AnyArray:
    """An array, unless some of it is masked: what a mask hides is not there to be used."""
    if isinstance(values, np.ma.MaskedArray) and (hidden := np.flatnonzero(values.mask)).size:
        raise ValueError(
            f"{hidden.size} of {values.size} {what} are masked, the first at position "
            f"{hidden[0]}; leave them out, with what belongs to them: keep = ~np.ma.getmaskarray(y)"
            ", then X[keep] and y[keep]"
        )
    return np.asarray(values, dtype)


def _of_objects(items: list[object]) -> AnyArray:
    """Python's own values as an array: large whole numbers must not become floats."""
    array = np.asarray(items) if items else np.empty(0, np.str_)
    odd = array.ndim != 1 or array.dtype.kind == "O"
    if odd or (array.dtype.kind == "f" and all(isinstance(one, Integral) for one in items)):
        array = np.array([str(one) for one in items])
    return array


def _check_exact(array: AnyArray) -> None:
    """Floats hold whole numbers up to 2^53 (in double precision): above, neighbours are one."""
    limit = 2.0 ** (np.finfo(array.dtype).nmant + 1)
    rounded = np.flatnonzero(np.abs(array) >= limit)
    if rounded.size:
        raise ValueError(
            f"the id at position {rounded[0]} is {array[rounded[0]]:.17g} in {array.dtype}, which "
            f"does not tell whole numbers above {limit:.0f} apart; pass ids as integers or as text "
            "(in one array of two columns, of dtype object)"
        )


def _is_missing(one: object) -> bool:
    """None, NaN, NaT, or the NA of pandas, which will not say whether it equals itself."""
    try:
        return one is None or bool(one != one)
    except TypeError:
        return True


def _check_there(ids: AnyArray, missing: list[int]) -> None:
    if missing:
        where = f"the id at position {missing[0]} is {ids[missing[0]]}"
        raise ValueError(f"{where}; an id is missing: leave the pair out")
