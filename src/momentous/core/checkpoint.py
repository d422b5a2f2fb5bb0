"""Checkpoints: a run between two steps, on disk, so that it can go on another day.

The file is an archive (`momentous.io.archive`) of kind "checkpoint": a tree of records in its
header, and the arrays that it refers to, each stored once however many fields share it.  The file
before it is kept as ``NAME.previous``.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import array_api_compat
import numpy as np

from momentous.core.record import RECORDS
from momentous.core.space import Array, to_numpy
from momentous.core.status import EventKind, Status
from momentous.io.archive import ArchiveError, is_archive, read_archive, write_archive

KIND, VERSION = "checkpoint", 2

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
        if self.path.exists() and not is_archive(self.path, KIND):
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
    packed = packer.pack(content)
    arrays = {f"a{i}": array for i, array in enumerate(packer.arrays)}
    write_archive(path, KIND, VERSION, packed, arrays, keep_previous=True)


def load(path: str | os.PathLike[str], from_numpy: Callable[[np.ndarray], Array]) -> dict[str, Any]:
    """Read a checkpoint; ``from_numpy`` turns its arrays into those of the caller's library."""
    try:
        archive = read_archive(path, KIND, VERSION)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no checkpoint {path} to resume from") from None
    except ArchiveError as error:
        raise CheckpointError(str(error)) from error
    try:
        arrays = [archive.arrays[f"a{i}"] for i in range(len(archive.arrays))]
        content: dict[str, Any] = _unpack(archive.content, arrays, [None] * len(arrays), from_numpy)
    except (KeyError, IndexError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged ({type(error).__name__}: {error})") from error
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
            f"a checkpoint cannot hold {item!r} ({name}); memories are made of numbers, text, "
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
