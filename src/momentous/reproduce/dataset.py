"""The data sets of the experiments: a file of ratings, or the synthetic twin of one, by name."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from momentous.lowrank import Ratings
from momentous.lowrank.data.twins import MODELS


@dataclass(frozen=True)
class DataSet:
    """Ratings under the name that the paper has for them.

    Parameters
    ----------
    name : str
        One of the names of the twins.
    path : Path, optional
        The file; without one the twin is made.
    """

    name: str
    path: Path | None = None

    def __post_init__(self) -> None:
        if self.path is None and self.name not in MODELS:
            raise ValueError(
                f"there is no twin of {self.name!r}; give its file, {self.name}=PATH, or one of "
                f"{', '.join(MODELS)}"
            )
        if self.path is not None and not self.path.exists():
            raise ValueError(
                f"there is no file {self.path} for {self.name}; leave the path out to take the "
                "synthetic twin"
            )

    @classmethod
    def parse(cls, text: str) -> DataSet:
        """``NAME`` for the twin, ``NAME=PATH`` for a file."""
        name, equals, path = text.partition("=")
        if equals and not path:  # an unset variable, perhaps: not a wish for the twin
            raise ValueError(f"{text!r} names no file; write {name}=PATH, or {name} for the twin")
        return cls(name, Path(path).expanduser() if path else None)

    @property
    def twin(self) -> bool:
        """Is it synthetic?"""
        return self.path is None

    @cached_property
    def ratings(self) -> Ratings:
        """Read, or made, once."""
        return Ratings.twin(self.name) if self.path is None else Ratings.read(self.path)

    @cached_property
    def fingerprint(self) -> str:
        """Of the entries: what was found on one data set is not taken for another's."""
        digest = hashlib.sha256(repr(self.ratings.shape).encode())
        storage = self.ratings.by_row
        for part in (storage.starts, storage.others, storage.values):
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()[:16]
