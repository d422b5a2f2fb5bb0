"""Models on disk: a NumPy archive of plain arrays with a JSON header, no pickles."""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from momentous.lowrank.model import LowRankModel
from momentous.lowrank.names import Names
from momentous.lowrank.penalty import Penalty
from momentous.lowrank.ratings import Ratings

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
    entries = model.seen.by_row
    arrays: dict[str, Any] = {name: getattr(model, name) for name in _ARRAYS}
    arrays |= {"row_ids": model.rows.ids, "col_ids": model.cols.ids}
    arrays |= {"starts": entries.starts, "others": entries.others, "values": entries.values}
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
    counts = np.diff(archive["starts"])
    seen = Ratings(
        np.repeat(np.arange(len(rows), dtype=np.int32), counts),
        archive["others"],
        archive["values"],
        (len(rows), len(cols)),
    )
    model = LowRankModel(
        loss=header["loss"],
        mean=header["mean"],
        limits=(low, high),
        penalty=Penalty(**header["penalty"]),
        rows=rows,
        cols=cols,
        seen=seen,
        **arrays,
    )
    if len(model.row_factors) != len(rows) or len(model.col_factors) != len(cols):
        raise ModelFileError(f"{path} is damaged: its factors and its ids differ in number")
    return model, header["extra"]
