"""Models on disk: a NumPy archive of plain arrays with a JSON header, no pickles."""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from momentous.core.method import Method
from momentous.lowrank.model import LowRankModel
from momentous.lowrank.names import Names
from momentous.lowrank.penalty import Penalty
from momentous.lowrank.ratings import Ratings
from momentous.methods import method_of

FORMAT = "momentous low-rank model"
VERSION = 1

_ARRAYS = ("row_factors", "col_factors", "row_bias", "col_bias")


class ModelFileError(ValueError):
    """A file that is not a model, is damaged, or comes from another version."""


def save_model(model: LowRankModel, path: str | os.PathLike[str], extra: Any = None) -> None:
    """Write a model; the file is the old one or the new one at any time, never a part.

    Parameters
    ----------
    model : LowRankModel
    path : path
        Taken as it is: no ending is added.
    extra : optional
        Anything that JSON can hold, given back by `load_model`.
    """
    path = Path(path)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "loss": model.loss,
        "mean": model.mean,
        "limits": model.limits,
        "penalty": dataclasses.asdict(model.penalty),
        "extra": extra,
    }
    arrays: dict[str, Any] = {name: getattr(model, name) for name in _ARRAYS}
    arrays |= {"row_ids": model.rows.ids, "col_ids": model.cols.ids}
    arrays |= _arrays_of(model.seen, "")
    if model.held_out is not None:
        arrays |= _arrays_of(model.held_out, "held_out_")
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            np.savez(file, header=text, **arrays)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def load_model(path: str | os.PathLike[str]) -> tuple[LowRankModel, Any]:
    """Read a model, and what was saved along with it.

    Raises
    ------
    ModelFileError
        Where the file is something else, is damaged or has another version.
    FileNotFoundError
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no model {path}")
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file):
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                return _read(archive, path)
    except ModelFileError:
        raise
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, KeyError, TypeError) as error:
        raise ModelFileError(f"{path} is damaged, or no model of momentous ({error})") from error


def _read(archive: Any, path: Path) -> tuple[LowRankModel, Any]:
    header = json.loads(archive["header"].tobytes()) if "header" in archive.files else None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelFileError(f"{path} is no model of momentous, but another npz archive")
    if header["version"] != VERSION:
        raise ModelFileError(
            f"{path} has model version {header['version']}, this release of momentous reads "
            f"version {VERSION}; fit it again, or read it with the release that wrote it"
        )
    arrays = {name: archive[name] for name in _ARRAYS}
    rows, cols = Names(archive["row_ids"]), Names(archive["col_ids"])
    low, high = header["limits"]
    shape = len(rows), len(cols)
    held_out = "held_out_starts" in archive.files
    model = LowRankModel(
        loss=header["loss"],
        mean=header["mean"],
        limits=(low, high),
        penalty=Penalty(**header["penalty"]),
        rows=rows,
        cols=cols,
        seen=_ratings_from(archive, "", shape),
        held_out=_ratings_from(archive, "held_out_", shape) if held_out else None,
        **arrays,
    )
    if len(model.row_factors) != len(rows) or len(model.col_factors) != len(cols):
        raise ModelFileError(f"{path} is damaged: its factors and its ids differ in number")
    return model, header["extra"]


def _arrays_of(ratings: Ratings, prefix: str) -> dict[str, Any]:
    names = ("starts", "others", "values")
    return {prefix + name: getattr(ratings.by_row, name) for name in names}


def _ratings_from(archive: Any, prefix: str, shape: tuple[int, int]) -> Ratings:
    counts = np.diff(archive[prefix + "starts"])
    rows = np.repeat(np.arange(shape[0], dtype=np.int32), counts)
    return Ratings(rows, archive[prefix + "others"], archive[prefix + "values"], shape)


# --- parameters -----------------------------------------------------------------------------------


def as_plain(value: Any) -> Any:
    """A parameter of a fit as JSON can hold it, a method with its own as in checkpoints."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.integer | np.floating):
        return value.item()
    if isinstance(value, Method):
        described = value.described()
        if _comes_back(value, described):
            return described
        warnings.warn(
            f"of the solver {value!r} only the name {value.name!r} is saved: it is not registered, "
            "or has parameters that a file cannot hold",
            RuntimeWarning,
            stacklevel=4,
        )
        return value.name
    if isinstance(value, type) and issubclass(value, Method):
        return value.name
    if isinstance(value, np.random.Generator | np.random.RandomState):
        return None
    return np.dtype(value).name


def _comes_back(method: Method, described: dict[str, Any]) -> bool:
    try:
        return bool(from_plain(json.loads(json.dumps(described))) == method)
    except (ValueError, TypeError, KeyError):
        return False


def from_plain(value: Any) -> Any:
    """The parameter again."""
    return method_of(value) if isinstance(value, dict) else value
