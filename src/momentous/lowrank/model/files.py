"""Models on disk: archives of plain arrays and JSON, checked before anything uses them.

A model is one archive.  Where many ranks write it together, that archive has the items and names
one shard per rank, an archive with the rows of its users.  Shards are written first, then,
atomically, the file that names them: a model is the old one or the new one at any time, and whole.
Only the shards of the users that are wanted are read, one at a time, and only these users are kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from momentous.core.checkpoint import shard_path, shards_beside
from momentous.core.method import Method
from momentous.distributed import Ranks
from momentous.io.archive import (
    Archive,
    ArchiveError,
    ArraySpec,
    is_archive,
    read_archive,
    write_archive,
)
from momentous.io.atomic import permissions_of
from momentous.io.types import AnyArray, AnyDType, JsonObject
from momentous.lowrank.backends import Backend
from momentous.lowrank.data.vocabulary import Vocabulary
from momentous.lowrank.losses import Loss, restore_loss
from momentous.lowrank.model.fitted import LowRankModel
from momentous.lowrank.model.shards import OfRank, Wanted
from momentous.lowrank.model.stored import (
    ENTRIES,
    HELD_OUT,
    RUN,
    WEIGHTS,
    StoredRows,
    StoredSide,
    largest_number,
    pack_run,
    unpack_run,
)
from momentous.lowrank.penalty import Penalty
from momentous.lowrank.priors import LearnedPriors
from momentous.lowrank.solvers.fit import FitRun
from momentous.methods.registry import method_of

KIND, VERSION = "low-rank model", 3
SHARD_KIND, SHARD_VERSION = "low-rank model shard", 2

NUMBERS = ("row_factors", "col_factors", "row_bias", "col_bias")
VARIANCES = ("row_variances", "col_variances")  # where priors were learned
KINDS = dict(zip(ENTRIES, "iif", strict=True))  # of the entries seen and held out
SCHEMA = {
    **{name: ArraySpec("f", 2 if "factors" in name else 1) for name in NUMBERS},
    **{name: ArraySpec("iufUS", 1) for name in ("row_ids", "col_ids")},
    **{name: ArraySpec(kind, 1) for name, kind in KINDS.items()},
    **{HELD_OUT + name: ArraySpec(kind, 1, required=False) for name, kind in KINDS.items()},
    **{name: ArraySpec("f", 1, required=False) for name in (WEIGHTS, HELD_OUT + WEIGHTS)},
    **{name: ArraySpec("f", 2, required=False) for name in VARIANCES},
}
OF_ROWS = {name: spec for name, spec in SCHEMA.items() if not name.startswith("col_")}
WITH_OR_WITHOUT_ROWS = SCHEMA | {n: replace(spec, required=False) for n, spec in OF_ROWS.items()}
MALFORMED = (ValueError, TypeError, LookupError, AttributeError, OverflowError)
"""What parts that do not fit together end in."""


def save_model(
    model: LowRankModel,
    path: str | os.PathLike[str],
    extra: JsonObject | None = None,
    ranks: Ranks | None = None,
) -> None:
    """Write a model; the file is the old one or the new one at any time, never a part.

    No ending is added to the path; `load_model` gives back ``extra``, a dict that JSON can hold.  A
    file that is there must be a model or empty: anything else is not replaced, but an OSError.
    With ``ranks`` each rank passes the model of its own users, and there is one more file for each
    beside the path.  A failure of one rank is an OSError on all of them, and leaves the old model.
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
    if model.learned is not None:
        arrays |= dict(zip(VARIANCES, model.learned.variances, strict=True))
        content["learned"] = {
            "noise": model.learned.noise,
            "priors": [one.tolist() for one in model.learned.priors],
            "calibration": model.learned.calibration,
        }
    for prefix, ratings in (("", model.seen), (HELD_OUT, model.held_out)):
        if ratings is not None:
            storage = ratings.by_row
            arrays |= {prefix + "starts": storage.starts, prefix + "others": storage.others}
            arrays[prefix + "values"] = np.ascontiguousarray(ratings.values)
            if ratings.weights is not None:
                arrays[prefix + WEIGHTS] = np.ascontiguousarray(ratings.weights)
    run, vectors = pack_run(model.run)
    place = Path(path)
    if ranks is None or ranks.size == 1:
        _require_model(place)
        write_archive(place, KIND, VERSION, content | {"run": run}, arrays | vectors)
        _remove_shards(place)
        return
    rows = {name: arrays.pop(name) for name in OF_ROWS if name in arrays} | vectors
    token = int(ranks.sum(secrets.randbits(40) if ranks.rank == 0 else 0))
    shard = shard_path(place, token, ranks.rank)
    own = _shard_content(token, ranks.rank, ranks.size) | {"run": run}
    manifest = {"token": token, "count": ranks.size, "kind": rows["row_ids"].dtype.kind}

    def write_shard() -> None:
        mode = permissions_of(place)  # a shard is for nobody who may not read the model
        write_archive(shard, SHARD_KIND, SHARD_VERSION, own, rows, permissions=mode)

    def write_manifest() -> None:
        if ranks.rank == 0:
            _require_model(place)
            write_archive(place, KIND, VERSION, content | {"shards": manifest}, arrays)

    try:
        ranks.all_or_none(write_shard)
        ranks.all_or_none(write_manifest)
    except OSError:
        shard.unlink(missing_ok=True)
        raise
    if ranks.rank == 0:
        _remove_shards(place, token)


def _require_model(path: Path) -> None:
    """Refuse to replace a file that is no model; one without content may be replaced."""
    if path.is_file() and path.stat().st_size and not is_archive(path, KIND):
        raise FileExistsError(
            f"{path} exists and is no model of momentous: it is not replaced; move it away, or "
            "write to another file"
        )


def _shard_content(token: int, shard: int, count: int) -> JsonObject:
    """What a shard says of itself: of which model it is, and which part."""
    return {"token": token, "shard": shard, "count": count}


def _remove_shards(path: Path, token: int | None = None) -> None:
    """Remove the shards of models that were written here before."""
    for shard in shards_beside(path):
        if token is None or not shard.name.startswith(shard_path(path, token, 0).name[:-1]):
            with contextlib.suppress(OSError):
                shard.unlink()


def load_model(
    path: str | os.PathLike[str], wanted: Wanted | None = None
) -> tuple[LowRankModel, JsonObject]:
    """Read a model, and what was saved along with it.

    ``wanted`` are the users to be read, by default all: `WithIds` or `OfRank`.  Where ranks have
    written the model, only their shards are read.

    An `ArchiveError` says where the file is something else, is damaged, has another version, or
    holds a model whose parts do not fit together.
    """
    prefix = RUN if wanted is None else None
    archive = read_archive(path, KIND, VERSION, WITH_OR_WITHOUT_ROWS, prefix)
    content, run, parts = archive.content, None, []
    try:
        # Nothing but these checks sees an array of the file.
        cols = StoredSide.checked(archive.arrays, "col")
        for name, part, has_run in _parts_with_rows(Path(path), archive, wanted):
            try:
                rows = StoredRows.with_entries(part.arrays, cols)
                if has_run:
                    run = unpack_run(part.content["run"], part.arrays)
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{name}{_problem(error)}") from error
            if wanted is not None:
                rows = rows.take(np.flatnonzero(wanted.chosen(rows.ids)))
            parts.append(rows)
        whole = StoredRows.join(parts)
        if wanted is None and not whole.seen.nnz:
            raise ValueError("it has no entries")
        extra = content["extra"]
        if not isinstance(extra, dict | None) or not isinstance(
            (extra or {}).get("parameters", {}), dict
        ):
            raise ValueError("its parameters cannot be read")
        return _model(content, whole, cols, run), extra or {}
    except MALFORMED as error:
        if isinstance(error, ArchiveError):
            raise  # it names the file already
        raise damaged(path, error) from error


def _parts_with_rows(
    path: Path, archive: Archive, wanted: Wanted | None
) -> Iterator[tuple[str, Archive, bool]]:
    """The archives with the rows that are wanted, how errors name them, and whether a run is asked
    for: it is one of all rows, or that of one of as many ranks."""
    manifest = archive.content.get("shards")
    if manifest is None:
        yield "", archive, wanted is None
        return
    token, count, kind = (manifest[name] for name in ("token", "count", "kind"))
    if not (_is_count(token, 2**40) and _is_count(count, 2**31) and count) or kind not in tuple(
        "iufUS"
    ):
        raise ValueError(f"its shards are described by {dict(manifest)}"[:200])
    has_run = isinstance(wanted, OfRank) and wanted.size == count
    for shard in range(count) if wanted is None else wanted.shards(count, kind):
        file, expected = shard_path(path, token, shard), _shard_content(token, shard, count)
        prefix = RUN if has_run else None
        try:
            part = read_archive(file, SHARD_KIND, SHARD_VERSION, OF_ROWS, prefix)
        except OSError as error:
            raise ArchiveError(f"{path} cannot be read whole: {error}") from error
        own = {name: part.content.get(name) for name in expected}
        if own != expected:
            raise ValueError(
                f"{file.name}: is shard {own['shard']} of {own['count']} of a model with the token "
                f"{own['token']}, where shard {shard} of {count} with the token {token} is expected"
            )
        yield f"{file.name}: ", part, has_run


def _is_count(number: object, limit: int) -> bool:
    return type(number) is int and 0 <= number < limit


def _problem(error: Exception) -> object:
    return f"it lacks {error}" if isinstance(error, KeyError) else error


def damaged(path: str | os.PathLike[str], error: Exception) -> ArchiveError:
    """The error of a file whose parts do not fit together."""
    return ArchiveError(f"{path} is a damaged model: {_problem(error)}")


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
    is_small = max(heaviest, *penalty.offsets) <= largest
    if not (is_small and all(isinstance(flag, bool) for flag in flags)):
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
        learned=_learned(content.get("learned"), rows, cols, penalty),
        value_range=(low, high),
        seen=rows.seen,
        held_out=rows.held_out,
        run=run,
    )


def _learned(
    described: JsonObject | None, rows: StoredRows, cols: StoredSide, penalty: Penalty
) -> LearnedPriors | None:
    """What the header and the arrays say of learned priors, checked."""
    if described is None or rows.variances is None or cols.variances is None:
        if any(one is not None for one in (described, rows.variances, cols.variances)):
            raise ValueError("its learned priors lack their variances, or these their priors")
        return None
    width = cols.factors.shape[1] + penalty.biases
    noise, calibration = float(described["noise"]), float(described["calibration"])
    row_prior, col_prior = (np.array(one, np.float64) for one in described["priors"])
    numbers = np.concatenate([row_prior, col_prior, [noise, calibration]])
    shapes = {side.shape for side in (row_prior, col_prior)}
    widths = {side.variances.shape[1] for side in (rows, cols) if side.variances is not None}
    if not (shapes == {(width,)} and widths == {width} and np.all(numbers > 0.0)):
        raise ValueError(f"its learned priors are {dict(described)}"[:200])
    if not np.all(numbers < largest_number(np.float64)):
        raise ValueError(f"its learned priors are {dict(described)}"[:200])
    return LearnedPriors(
        noise, (row_prior, col_prior), (rows.variances, cols.variances), penalty.biases,
        penalty.row_biases, calibration,
    )  # fmt: skip


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
