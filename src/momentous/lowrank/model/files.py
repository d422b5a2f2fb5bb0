"""Models on disk: one archive of plain arrays and JSON, checked before anything uses it."""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from momentous.core.method import Method
from momentous.distributed import Ranks
from momentous.io.archive import ArchiveError, ArraySpec, read_archive, write_archive
from momentous.io.types import AnyArray, AnyDType, JsonObject
from momentous.lowrank.backends import Backend
from momentous.lowrank.data.vocabulary import Vocabulary
from momentous.lowrank.losses import Loss, restore_loss
from momentous.lowrank.model.fitted import LowRankModel
from momentous.lowrank.model.shards import (
    Wanted,
    load_shards,
    remove_shards,
    save_shards,
    wanted_rows,
)
from momentous.lowrank.model.stored import (
    ENTRIES,
    HELD_OUT,
    RUN,
    StoredRows,
    StoredSide,
    largest_number,
    pack_run,
    unpack_run,
)
from momentous.lowrank.penalty import Penalty
from momentous.lowrank.solvers.fit import FitRun
from momentous.methods.registry import method_of

KIND, VERSION = "low-rank model", 3

NUMBERS = ("row_factors", "col_factors", "row_bias", "col_bias")
IDS = ("row_ids", "col_ids")
KINDS = dict(zip(ENTRIES, "iif", strict=True))  # of the entries seen and held out
SCHEMA = {
    **{name: ArraySpec("f", 2 if "factors" in name else 1) for name in NUMBERS},
    **{name: ArraySpec("iufUS", 1) for name in IDS},
    **{name: ArraySpec(kind, 1) for name, kind in KINDS.items()},
    **{HELD_OUT + name: ArraySpec(kind, 1, required=False) for name, kind in KINDS.items()},
}
OF_ROWS = [name for name in SCHEMA if not name.startswith("col_")]
MANIFEST = {  # of a model in shards
    name: replace(spec, required=spec.required and name not in OF_ROWS)
    for name, spec in SCHEMA.items()
}
MALFORMED = (ValueError, TypeError, LookupError, AttributeError, OverflowError)
"""What parts that do not fit together end in."""


def save_model(
    model: LowRankModel,
    path: str | os.PathLike[str],
    extra: JsonObject | None = None,
    ranks: Ranks | None = None,
) -> None:
    """Write a model; the file is the old one or the new one at any time, never a part.

    No ending is added to the path; `load_model` gives back ``extra``, a dict that JSON can hold.
    With ``ranks`` each rank passes the model of its own users, and there is one more file for each
    beside the path.
    """
    content = {
        "loss": model.loss.describe(),
        "mean": model.mean,
        "limits": model.value_range,
        "penalty": dataclasses.asdict(model.penalty),
        "extra": extra,
    }
    arrays: dict[str, AnyArray] = {name: getattr(model, name) for name in NUMBERS}
    arrays |= {"row_ids": model.rows.ids, "col_ids": model.cols.ids}
    for prefix, ratings in (("", model.seen), (HELD_OUT, model.held_out)):
        if ratings is not None:
            arrays |= {prefix + name: getattr(ratings.by_row, name) for name in ENTRIES}
    run, vectors = pack_run(model.run)
    if ranks is None or ranks.size == 1:
        write_archive(path, KIND, VERSION, content | {"run": run}, arrays | vectors)
        remove_shards(Path(path))
        return
    rows = {name: arrays.pop(name) for name in OF_ROWS if name in arrays} | vectors

    def save_rest(shards: JsonObject) -> None:
        write_archive(path, KIND, VERSION, content | {"shards": shards}, arrays)

    save_shards(Path(path), rows, run, save_rest, ranks)


def load_model(
    path: str | os.PathLike[str], wanted: Wanted | None = None
) -> tuple[LowRankModel, JsonObject]:
    """Read a model, and what was saved along with it.

    ``wanted`` are the users to be read, by default all: `WithIds` or `OfRank`.  Where ranks have
    written the model, only their shards are read.

    An `ArchiveError` says where the file is something else, is damaged, has another version, or
    holds a model whose parts do not fit together.
    """
    archive = read_archive(path, KIND, VERSION, MANIFEST, RUN if wanted is None else None)
    content, arrays, run = archive.content, archive.arrays, None
    try:
        # Nothing but these checks sees an array of the file.
        cols = StoredSide.checked(arrays, "col")
        if "shards" in content:
            schema = {name: SCHEMA[name] for name in OF_ROWS}
            rows, run = load_shards(Path(path), content["shards"], schema, cols, wanted)
            if wanted is None:
                _require_entries(rows)
        else:
            for name in OF_ROWS:
                if SCHEMA[name].required and name not in arrays:
                    raise ValueError(f"it lacks the array {name!r}")
            rows = StoredRows.with_entries(arrays, cols)
            _require_entries(rows)
            if wanted is None:
                run = unpack_run(content["run"], arrays)
            else:  # a run is one of all rows
                rows = wanted_rows(rows, wanted)
        extra = content["extra"]
        if not isinstance(extra, dict | None) or not isinstance(
            (extra or {}).get("parameters", {}), dict
        ):
            raise ValueError("its parameters cannot be read")
        return _model(content, rows, cols, run), extra or {}
    except MALFORMED as error:
        raise damaged(path, error) from error


def _require_entries(rows: StoredRows) -> None:
    if not rows.seen.nnz:
        raise ValueError("it has no entries")


def damaged(path: str | os.PathLike[str], error: Exception) -> ArchiveError:
    """The error of a file whose parts do not fit together."""
    problem = f"it lacks {error}" if isinstance(error, KeyError) else error
    return ArchiveError(f"{path} is a damaged model: {problem}")


def _model(
    content: JsonObject, rows: StoredRows, cols: StoredSide, run: FitRun | None
) -> LowRankModel:
    """The model of these rows and columns, with what the header says, checked."""
    dtype = cols.factors.dtype
    largest = largest_number(dtype)
    mean, (low, high) = float(content["mean"]), map(float, content["limits"])
    if not (abs(mean) <= largest and -largest <= low <= high <= largest):
        raise ValueError(f"its mean is {mean} and its limits are {low} and {high}")
    penalty = Penalty(**content["penalty"])
    longest = max(len(rows.ids), len(cols.ids))
    with np.errstate(over="ignore"):
        entries = np.float64(longest) + max(penalty.offsets)
        heaviest = penalty.bias_ridge + penalty.ridge * entries**penalty.weighting
    flags = penalty.biases, penalty.row_biases
    if not (heaviest <= largest and all(isinstance(flag, bool) for flag in flags)):
        raise ValueError(f"its penalty is {penalty}")
    loss = restore_loss(content["loss"])
    for ratings in (rows.seen, rows.held_out):
        if ratings is not None:
            loss.check(ratings)
    return LowRankModel(
        loss=loss,
        mean=mean,
        rows=Vocabulary(rows.ids),
        cols=Vocabulary(cols.ids),
        row_factors=rows.factors,
        col_factors=cols.factors,
        row_bias=rows.bias,
        col_bias=cols.bias,
        penalty=penalty,
        value_range=(low, high),
        seen=rows.seen,
        held_out=rows.held_out,
        run=run,
    )


# --- parameters -----------------------------------------------------------------------------------


def fit_facts(parameters: Mapping[str, object], nit: int, objective: float) -> JsonObject:
    """How a model was fitted: what estimators and the command ``momentous fit`` save with it."""
    plain = {name: _as_plain(value) for name, value in parameters.items()}
    return {"parameters": plain, "n_iter": int(nit), "objective": objective}


def _as_plain(value: object) -> object:
    """A parameter of a fit as JSON can hold it, a method with its own as in checkpoints."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.integer | np.floating):
        return value.item()
    if isinstance(value, Loss):
        return {"loss": value.describe()}
    if isinstance(value, Backend):
        return value.name
    if isinstance(value, Method):
        described = value.description()
        if _can_be_restored(value, described):
            return described
        warnings.warn(
            f"of the solver {value!r} only the name {value.name!r} is saved: it is not registered, "
            "or has parameters that a file cannot hold",
            RuntimeWarning,
            stacklevel=5,
        )
        return value.name
    if isinstance(value, type) and issubclass(value, Method | Loss):
        return value.name
    if isinstance(value, np.random.Generator | np.random.RandomState):
        return None
    dtype: AnyDType = np.dtype(value)  # type: ignore[call-overload]  # it may be anything
    return dtype.name


def _can_be_restored(method: object, described: JsonObject) -> bool:
    try:
        return bool(from_plain(json.loads(json.dumps(described))) == method)
    except (ValueError, TypeError, KeyError):
        return False


def from_plain(value: object) -> object:
    """The parameter again."""
    if not isinstance(value, dict):
        return value
    return restore_loss(value["loss"]) if "loss" in value else method_of(value)
