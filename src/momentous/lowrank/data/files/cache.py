"""Ratings that were read once, kept beside their file in a form that loads at once."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import numpy as np

from momentous.io.archive import (
    ArchiveError,
    ArraySpec,
    is_archive,
    read_archive,
    write_archive,
)
from momentous.io.atomic import permissions_of
from momentous.io.types import JsonObject
from momentous.lowrank.data.files.sources import Source
from momentous.lowrank.data.ratings import Ratings, checked_storage

KIND, VERSION = "cache of ratings", 3
_SCHEMA = {
    "starts": ArraySpec("i", 1),
    "others": ArraySpec("i", 1),
    "values": ArraySpec("f", 1),
    "row_ids": ArraySpec("iuU", 1, required=False),
    "col_ids": ArraySpec("iuU", 1, required=False),
}


class Cache:
    """The cache of one file, folder or list of files.

    It is valid as long as the files have the same size and time stamp and are read with the same
    options, all that the outcome depends on; what is not valid counts as absent and is written
    again.  It lies beside the place that was asked for, as ``NAME.momentous.npz``; what has that
    name and is no cache of ours is neither read nor replaced, and no link is followed.
    """

    def __init__(self, place: Path, sources: list[Source], options: JsonObject):
        if not place.exists():  # a member of an archive, or a pattern
            place = sources[0].path
        place = place.resolve()
        self.path = place.with_name(place.name + ".momentous.npz")
        files, self._permissions = [], 0o666
        for source in sources:
            facts = source.path.stat()
            # Who may not read every one of the files may not read the cache.
            mode = permissions_of(source.path, self.path.parent)
            self._permissions &= 0o666 if mode is None else mode | 0o600
            files.append([source.path.name, source.member, facts.st_size, facts.st_mtime_ns])
        self._key = json.dumps([files, options], sort_keys=True)

    def load(self) -> tuple[Ratings, list[str]] | None:
        """The ratings and their warnings; None where there is no valid cache."""
        if self._stands_in_the_way() is not None:
            return None
        try:
            key, ratings, notes = read_cache(self.path)
        except (OSError, ValueError):
            return None
        return (ratings, notes) if key == self._key else None

    def save(self, ratings: Ratings, notes: list[str]) -> str | None:
        """Write it; where that is not possible, what to say about it."""
        problem = self._stands_in_the_way()
        if problem is None and self.path.exists() and not is_archive(self.path, KIND):
            problem = "is no cache of momentous, or a damaged one"
        if problem is not None:
            return (
                f"no cache for faster reading is kept: {self.path} {problem}, and is left as it "
                "is; move it away, or take cache=False"
            )
        ids = {"row_ids": ratings.row_ids, "col_ids": ratings.col_ids}
        kept = {name: array for name, array in ids.items() if array is not None}
        content = {
            "key": self._key,
            "notes": notes,
            "shape": list(ratings.shape),
            "ids": {name: array.dtype.str for name, array in kept.items()},
        }
        try:
            arrays, mode = {**vars(ratings.by_row), **kept}, self._permissions
            write_archive(self.path, KIND, VERSION, content, arrays, permissions=mode)
        except OSError as error:
            return (
                f"no cache for faster reading can be kept in {self.path.parent} "
                f"({error.strerror}); cache=False does without"
            )
        return None

    def _stands_in_the_way(self) -> str | None:
        """What has the cache's name and can be none: a link, which may lead anywhere, a pipe, or
        what somebody else keeps to himself."""
        try:
            kind = self.path.lstat().st_mode
        except OSError:
            return None
        if stat.S_ISLNK(kind):
            return "is a symbolic link"
        if not stat.S_ISREG(kind):
            return "is no plain file"
        return None if os.access(self.path, os.R_OK) else "is one that you may not read"


def read_cache(path: Path) -> tuple[str, Ratings, list[str]]:
    """The key, the ratings and their warnings, all checked, from a cache of any file."""
    kept = read_archive(path, KIND, VERSION, _SCHEMA)
    try:
        m, n = kept.content["shape"]
        notes = [str(note) for note in kept.content["notes"]]
        ids = {name: kept.arrays[name] for name in ("row_ids", "col_ids") if name in kept.arrays}
        if {name: array.dtype.str for name, array in ids.items()} != kept.content["ids"]:
            raise ValueError("its ids are not those that were kept")
        for name, array in ids.items():
            if np.any(array[1:] <= array[:-1]):
                raise ValueError(f"its {name} do not ascend")
        starts, others, values = (kept.arrays[name] for name in ("starts", "others", "values"))
        names = ids.get("row_ids"), ids.get("col_ids")
        ratings = checked_storage((m, n), starts, others, values, *names)
        return str(kept.content["key"]), ratings, notes
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise ArchiveError(f"{path}: {error}") from error
