"""Ratings that were read once, kept beside their file in a form that loads at once."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from momentous.lowrank.data.sources import Source
from momentous.lowrank.ratings import Ratings

_VERSION = 1
_refused: set[Path] = set()  # folders whose refusal has been told


class Cache:
    """The cache of one file, folder or list of files.

    It is valid as long as the files have the same size and time stamp and are read with the same
    options; what is not valid, or damaged, counts as absent and is written anew.

    Parameters
    ----------
    place : Path
        What was asked for; the cache lies beside it as ``NAME.momentous.npz``.
    sources : list of Source
    options : dict
        All that the outcome depends on, as JSON can write it.
    """

    def __init__(self, place: Path, sources: list[Source], options: dict[str, Any]):
        if not place.exists():  # a member of an archive
            place = sources[0].path
        place = place.resolve()
        self.path = place.with_name(place.name + ".momentous.npz")
        files = []
        for source in sources:
            facts = source.path.stat()
            files.append([source.path.name, source.member, facts.st_size, facts.st_mtime_ns])
        self._key = json.dumps([_VERSION, files, options], sort_keys=True)

    def load(self) -> tuple[Ratings, list[str]] | None:
        """The ratings and what was said when they were read; None where there is no valid cache."""
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as content:
                if str(content["key"]) != self._key:
                    return None
                rows = np.arange(content["starts"].size - 1, dtype=np.int32)
                ratings = Ratings(
                    np.repeat(rows, np.diff(content["starts"])),
                    content["others"],
                    content["values"],
                    tuple(content["shape"].tolist()),
                    **{name: content[name] for name in json.loads(str(content["ids"]))},
                )
                return ratings, json.loads(str(content["said"]))
        except Exception:  # absent or damaged; damaged archives raise errors of a dozen kinds
            return None

    def save(self, ratings: Ratings, said: list[str]) -> None:
        """Write it, all or nothing; where that is not possible, say so once a folder."""
        storage = ratings.by_row
        content: dict[str, Any] = {
            "key": self._key,
            "said": json.dumps(said),
            "shape": ratings.shape,
            "starts": storage.starts,
            "others": storage.others,
            "values": storage.values,
        }
        both = {"row_ids": ratings.row_ids, "col_ids": ratings.col_ids}
        named = {name: ids for name, ids in both.items() if ids is not None}
        content |= named
        content["ids"] = json.dumps(list(named))
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")
        try:
            try:
                with partial.open("wb") as file:
                    np.savez(file, **content)
                os.replace(partial, self.path)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as error:
            if self.path.parent not in _refused:
                _refused.add(self.path.parent)
                warnings.warn(
                    f"no cache for faster reading can be kept in {self.path.parent} "
                    f"({error.strerror}); cache=False does without",
                    RuntimeWarning,
                    stacklevel=3,
                )
