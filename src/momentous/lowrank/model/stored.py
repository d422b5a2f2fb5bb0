"""The rows and columns of a model as files have them: checked before anything is done with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from momentous.core.checkpoint import PackedRun
from momentous.io.types import AnyArray, JsonObject
from momentous.lowrank.data.ids import as_ids
from momentous.lowrank.data.ratings import (
    Compressed,
    Floats,
    Ratings,
    checked_storage,
    stored_ratings,
)
from momentous.lowrank.data.vocabulary import Positions
from momentous.lowrank.model.fitted import of_rows
from momentous.lowrank.solvers.fit import FitRun

ENTRIES = ("starts", "others", "values")
WEIGHTS = "weights"  # of the entries, where they have weights
HELD_OUT = "held_out_"
RUN = "run_"  # how the names of a run's arrays begin
BEST = "run_best"
LAST_CHARACTER, SURROGATES = 0x10FFFF, (0xD800, 0xDFFF)  # what text may not have: Unicode 3.9


@dataclass(frozen=True)
class StoredSide:
    """Ids, factors and biases of the rows, or of the columns, of a model."""

    ids: AnyArray
    factors: Floats
    bias: Floats
    variances: Floats | None  # of the parameters, where priors were learned

    @classmethod
    def checked(cls, arrays: Mapping[str, AnyArray], side: str) -> StoredSide:
        """Those of the side "row" or "col"; what is wrong is a ValueError that says what."""
        ids, factors, bias = (arrays[f"{side}_{name}"] for name in ("ids", "factors", "bias"))
        if factors.ndim != 2 or factors.dtype not in (np.float32, np.float64):
            raise ValueError(
                f"its {side}_factors have {factors.ndim} dimensions and are {factors.dtype}, not "
                "float32 or float64"
            )
        if factors.shape[1] < 1:
            raise ValueError(f"its {side}_factors have no columns")
        for name, array in ((f"{side}_ids", ids), (f"{side}_bias", bias)):
            if array.shape != (len(factors),):
                raise ValueError(f"its {name} are {array.size}, but its factors {len(factors)}")
        largest = largest_number(factors.dtype)
        for name, array in ((f"{side}_factors", factors), (f"{side}_bias", bias)):
            if array.dtype != factors.dtype or not np.all(np.abs(array) <= largest):
                raise ValueError(f"its {name} are not all finite numbers of type {factors.dtype}")
        variances = arrays.get(f"{side}_variances")
        if variances is not None:
            if len(variances) != len(factors):
                raise ValueError(
                    f"its {side}_variances are {len(variances)}, but its factors {len(factors)}"
                )
            fits = variances.dtype == factors.dtype
            if not (fits and np.all((variances >= 0.0) & (variances <= largest))):
                raise ValueError(
                    f"its {side}_variances are not all finite numbers >= 0 of type {factors.dtype}"
                )
        return cls(_checked_ids(ids, side), np.ascontiguousarray(factors), bias, variances)


@dataclass(frozen=True)
class StoredRows(StoredSide):
    """The rows of a model, or of one shard of it, and their entries."""

    seen: Ratings
    held_out: Ratings | None

    @classmethod
    def with_entries(cls, arrays: Mapping[str, AnyArray], cols: StoredSide) -> StoredRows:
        """The rows of a model with these columns, every array of them checked."""
        own = StoredSide.checked(arrays, "row")
        (kind, rank), (expected, expected_rank) = (
            (side.factors.dtype, side.factors.shape[1]) for side in (own, cols)
        )
        if (kind, rank) != (expected, expected_rank):
            raise ValueError(
                f"its row_factors are {kind} with {rank} columns, its col_factors {expected} with "
                f"{expected_rank}"
            )
        shape = len(own.ids), len(cols.ids)
        held_out = any(name.startswith(HELD_OUT) for name in arrays)
        return cls(
            own.ids,
            own.factors,
            own.bias,
            own.variances,
            _entries(arrays, "", shape),
            _entries(arrays, HELD_OUT, shape) if held_out else None,
        )

    def take(self, rows: Positions) -> StoredRows:
        """Some of the rows, in that order."""

        def entries(of: Ratings) -> Ratings:
            storage = of_rows(of.by_row, rows)
            return stored_ratings((len(rows), of.shape[1]), storage, (None, None))

        held_out = None if self.held_out is None else entries(self.held_out)
        variances = None if self.variances is None else self.variances[rows]
        return StoredRows(
            self.ids[rows], self.factors[rows], self.bias[rows], variances, entries(self.seen),
            held_out,
        )  # fmt: skip

    @classmethod
    def join(cls, parts: Sequence[StoredRows]) -> StoredRows:
        """The rows of all parts, in the order of their ids; of one part, as they are there."""
        if len(parts) == 1:
            return parts[0]
        held_out = [part.held_out for part in parts if part.held_out is not None]
        if len(held_out) not in (0, len(parts)):
            raise ValueError("some of its shards have entries held out, and others have not")
        variances = [part.variances for part in parts if part.variances is not None]
        if len(variances) not in (0, len(parts)):
            raise ValueError("some of its shards have variances, and others have not")
        whole = cls(
            _checked_ids(np.concatenate([part.ids for part in parts]), "row"),
            np.concatenate([part.factors for part in parts]),
            np.concatenate([part.bias for part in parts]),
            np.concatenate(variances) if variances else None,
            _join_entries([part.seen for part in parts]),
            _join_entries(held_out) if held_out else None,
        )
        return whole.take(np.argsort(whole.ids, kind="stable"))


def pack_run(run: FitRun | None) -> tuple[JsonObject | None, dict[str, AnyArray]]:
    """A run as JSON, and its arrays."""
    if run is None:
        return None, {}
    described = {name: getattr(run, name) for name in ("steps", "lowest", "since", "best_value")}
    arrays = {RUN + name: array for name, array in run.solver.arrays.items()}
    if run.best is not None:
        arrays[BEST] = run.best
    return described | {"tree": run.solver.tree}, arrays


def unpack_run(described: JsonObject | None, arrays: Mapping[str, AnyArray]) -> FitRun | None:
    """The run again; what it has of the solver is checked when a fit goes on with it."""
    if described is None:
        return None
    tree, steps, since = (described[name] for name in ("tree", "steps", "since"))
    lowest, value = (float(described[name]) for name in ("lowest", "best_value"))
    best = arrays.get(BEST)
    if not (
        isinstance(tree, dict)
        and isinstance(tree.get("fields"), dict)
        and (steps is None or type(steps) is int)
        and type(since) is int
        and (best is None or _is_point(best))
    ):
        raise ValueError("the run that led to it cannot be read")
    own = {name.removeprefix(RUN): a for name, a in arrays.items() if name.startswith(RUN)}
    own.pop(BEST.removeprefix(RUN), None)
    return FitRun(PackedRun(tree, own), steps, lowest, since, best, value)


def _is_point(array: AnyArray) -> bool:
    numbers = array.dtype in (np.float32, np.float64)
    return numbers and bool(np.all(np.abs(array) <= largest_number(array.dtype)))


def largest_number(dtype: DTypeLike) -> float:
    """The squares of all numbers of a model must be finite, and in float64 a million of them."""
    return min(math.sqrt(np.finfo(dtype).max), math.sqrt(np.finfo(np.float64).max / 2**20))


def _entries(arrays: Mapping[str, AnyArray], prefix: str, shape: tuple[int, int]) -> Ratings:
    try:
        starts, others, values = (arrays[prefix + name] for name in ENTRIES)
        weights = arrays.get(prefix + WEIGHTS)
        return checked_storage(shape, starts, others, values, weights=weights, may_be_empty=True)
    except ValueError as error:
        what = "entries held out" if prefix else "entries"
        raise ValueError(f"of its {what}, {error}") from None


def _join_entries(parts: Sequence[Ratings]) -> Ratings:
    counts = np.concatenate([np.diff(part.by_row.starts) for part in parts])
    storage = Compressed(
        np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)]),
        np.concatenate([part.cols for part in parts]),
        np.concatenate([part.by_row.values for part in parts]),
    )
    return stored_ratings((counts.size, parts[0].shape[1]), storage, (None, None))


def _checked_ids(ids: AnyArray, side: str) -> AnyArray:
    """Ids that can be sorted, compared and shown, each of them once."""
    if ids.dtype.kind in "US" and ids.dtype.itemsize and ids.size:
        # Any bytes can stand in an array of text; Python refuses some when they are looked at.
        text = np.ascontiguousarray(ids)
        codes: AnyArray = text.view(np.uint32 if ids.dtype.kind == "U" else np.uint8)
        low, high = SURROGATES
        last = LAST_CHARACTER if ids.dtype.kind == "U" else 0x7F
        if codes.max() > last or np.any((codes >= low) & (codes <= high)):
            raise ValueError(f"one of its {side}_ids is no text")
    ids = as_ids(ids)
    if np.unique(ids).size != ids.size:
        raise ValueError(f"an id comes twice in its {side}_ids")
    return ids
