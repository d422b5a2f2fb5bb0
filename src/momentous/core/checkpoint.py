"""Checkpoints: a run between two steps, on disk, so that it can go on another day.

The file is a NumPy ``.npz`` archive without pickles: a JSON header and the arrays it refers to,
each stored once however many fields share it.  It is written beside its final name, flushed to the
disk and renamed; the file before it is kept as ``NAME.previous``.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import os
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import array_api_compat
import numpy as np

from momentous.core.arrays import Array, to_numpy
from momentous.core.record import RECORDS
from momentous.core.status import EventKind, Status

FORMAT = "momentous checkpoint"
VERSION = 1

_ENUMS: dict[str, type[enum.Enum]] = {cls.__name__: cls for cls in (Status, EventKind)}


class CheckpointError(ValueError):
    """A file that is not a checkpoint, is damaged, or belongs to another problem."""


@dataclasses.dataclass
class Checkpoint:
    """Where and how often a run is saved.

    It is also saved when the run ends, when it is interrupted, and before an exception of the
    user's code propagates.

    Parameters
    ----------
    path : str or path
        The file.  A file there that is not a checkpoint is never overwritten.
    every_seconds : float or None
        Save when so many seconds have passed since the last time.
    every_iterations : int or None
        Save whenever the iteration number is a multiple of this.
    """

    path: str | os.PathLike[str]
    every_seconds: float | None = 30.0
    every_iterations: int | None = None

    def __post_init__(self) -> None:
        self.path = Path(self.path)
        if self.every_seconds is not None and not self.every_seconds >= 0:
            raise ValueError(f"every_seconds={self.every_seconds!r} must be a number >= 0 or None")
        if self.every_iterations is not None and not self.every_iterations >= 1:
            raise ValueError(f"every_iterations={self.every_iterations!r} must be >= 1 or None")
        if not self.path.parent.is_dir():
            raise FileNotFoundError(
                f"the folder {self.path.parent} for the checkpoint {self.path.name} does not exist"
            )
        if self.path.exists() and not _is_checkpoint(self.path):
            raise CheckpointError(
                f"{self.path} exists and is not a checkpoint; it is not overwritten: remove it or "
                "choose another name"
            )
        self._saved_at = time.monotonic()

    def is_due(self, nit: int) -> bool:
        """Has enough happened since the last save?"""
        if self.every_iterations is not None and nit % self.every_iterations == 0:
            return True
        return (
            self.every_seconds is not None
            and time.monotonic() - self._saved_at >= self.every_seconds
        )

    def save(self, content: dict[str, Any]) -> None:
        """Write ``content`` so that the file is either the old one or the new one, never a part."""
        save(Path(self.path), content)
        self._saved_at = time.monotonic()


def save(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint atomically, and keep the one before it."""
    packer = _Packer()
    header = {"format": FORMAT, "version": VERSION, "content": packer.pack(content)}
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        arrays: dict[str, Any] = {f"a{i}": a for i, a in enumerate(packer.arrays)}
        np.savez(file, header=text, **arrays)
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        _keep_previous(path)
    os.replace(partial, path)
    _sync_folder(path.parent)


def load(path: str | os.PathLike[str], from_numpy: Callable[[np.ndarray], Array]) -> dict[str, Any]:
    """Read a checkpoint; ``from_numpy`` turns its arrays into those of the caller's library."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no checkpoint {path} to resume from")
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file):
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                header = _header(archive, path)
                arrays = [archive[f"a{i}"] for i in range(len(archive.files) - 1)]
    except CheckpointError:
        raise
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, KeyError) as error:
        previous = path.with_name(path.name + ".previous")
        remedy = f"; the checkpoint before it is {previous}" if previous.exists() else ""
        raise CheckpointError(
            f"{path} is truncated, damaged or not a checkpoint ({error}){remedy}"
        ) from error
    if header["version"] != VERSION:
        raise CheckpointError(
            f"{path} has checkpoint version {header['version']}, this release of momentous reads "
            f"version {VERSION}; resume it with the release that wrote it"
        )
    content: dict[str, Any] = _unpack(header["content"], arrays, [None] * len(arrays), from_numpy)
    return content


class _Packer:
    """Turns a tree of records into JSON, and its arrays into a list in which each stands once."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._index: dict[int, int] = {}

    def pack(self, item: Any) -> Any:
        if isinstance(item, enum.Enum):
            return {"enum": type(item).__name__, "value": item.value}
        if item is None or type(item) in (bool, int, float, str):
            return item
        if isinstance(item, tuple | list):
            return {"list": [self.pack(part) for part in item], "tuple": isinstance(item, tuple)}
        if isinstance(item, dict):
            return {"dict": {key: self.pack(part) for key, part in item.items()}}
        if isinstance(item, Plain):
            index = self._add(item.array)
            return {"plain": index}
        if array_api_compat.is_array_api_obj(item):
            return {"array": self._add(item)}
        name = f"{type(item).__module__}.{type(item).__qualname__}"
        if name in RECORDS:
            fields = {f.name: self.pack(getattr(item, f.name)) for f in dataclasses.fields(item)}
            return {"record": name, "fields": fields}
        raise TypeError(
            f"a checkpoint cannot hold {item!r} ({name}); states are made of numbers, text, "
            "arrays, tuples and classes decorated with @record"
        )

    def _add(self, item: Array) -> int:
        if id(item) not in self._index:
            self._index[id(item)] = len(self.arrays)
            self.arrays.append(to_numpy(item))
        return self._index[id(item)]


class Plain:
    """Wraps a NumPy array that stays one on reading, whatever the library of x."""

    def __init__(self, array: np.ndarray):
        self.array = array


def _unpack(item: Any, arrays: list[np.ndarray], made: list[Any], from_numpy: Any) -> Any:
    def again(part: Any) -> Any:
        return _unpack(part, arrays, made, from_numpy)

    if not isinstance(item, dict):
        return item
    if "enum" in item:
        return _ENUMS[item["enum"]](item["value"])
    if "list" in item:
        parts = [again(part) for part in item["list"]]
        return tuple(parts) if item["tuple"] else parts
    if "dict" in item:
        return {key: again(part) for key, part in item["dict"].items()}
    if "plain" in item:
        return arrays[item["plain"]]
    if "array" in item:
        i = item["array"]
        if made[i] is None:  # fields that shared an array share it again
            made[i] = from_numpy(arrays[i])
        return made[i]
    if item["record"] not in RECORDS:
        raise CheckpointError(
            f"the checkpoint holds a {item['record']}, which is not imported here; "
            "import the module that defines it, then resume"
        )
    fields = {name: again(part) for name, part in item["fields"].items()}
    return RECORDS[item["record"]](**fields)


def _header(archive: Any, path: Path) -> dict[str, Any]:
    """The header of an open archive, if it is one of ours."""
    if "header" in archive.files:
        try:
            header = json.loads(archive["header"].tobytes())
        except (ValueError, UnicodeDecodeError):
            header = None
        if isinstance(header, dict) and header.get("format") == FORMAT:
            return header
    raise CheckpointError(f"{path} is not a checkpoint of momentous, but another npz archive")


def _is_checkpoint(path: Path) -> bool:
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file):
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                return bool(_header(archive, path))
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, KeyError):
        return False


def _keep_previous(path: Path) -> None:
    """Give the present file a second name, without a moment in which it has none."""
    aside = path.with_name(path.name + ".aside")
    try:
        aside.unlink(missing_ok=True)
        os.link(path, aside)
        os.replace(aside, path.with_name(path.name + ".previous"))
    except OSError:  # a file system without hard links: the atomic rename still protects the file
        aside.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
