"""Where ratings lie: a file, several, a folder, gzip, a zip archive, a member of one, a pipe."""

from __future__ import annotations

import contextlib
import difflib
import glob
import gzip
import os
import re
import stat
import sys
import uuid
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, TypeGuard

from momentous.io.archive import DAMAGED
from momentous.io.atomic import PathLike
from momentous.lowrank.data.errors import Limits, RatingsFileError, shorten
from momentous.lowrank.data.files.dialect import File

NETFLIX = re.compile(r"(combined_data_\d+|mv_\d+)\.txt(\.gz)?", re.IGNORECASE)
MOVIELENS = re.compile(r"(ratings\.(dat|csv|tsv|parquet)|u\.data)(\.gz)?", re.IGNORECASE)
# One table in several files, as Spark and others write it.
PARTS = re.compile(r".*\.parquet|part-.*", re.IGNORECASE)
# What DuckDB takes for a pattern, a home folder or an address, and bytes that are not UTF-8.
NO_NAME = re.compile("^~|^file:|[*?\\[\\]{}\ud800-\udfff]")
NO_PATH = re.compile(r"[a-z][a-z0-9]+://|\s*(SELECT|WITH|FROM)\s", re.IGNORECASE)
STANDARD_INPUT = "standard input"
MAGIC = {b"\x1f\x8b": ".gz", b"PAR1": ".parquet"}  # first bytes, and what such a file is called
RATIO_FROM = 1 << 26  # bytes; small files may well repeat themselves


@dataclass(frozen=True)
class Source:
    """One file of ratings: a file on the disk, or a member of the zip archive that it is."""

    path: Path
    member: str | None = None
    origin: str | None = None  # what a copy was made of

    @property
    def name(self) -> str:
        """For messages, and to be read again: an archive is named like a folder."""
        place = self.origin or str(self.path)
        return place if self.member is None else f"{place}/{self.member}"

    @property
    def inner_name(self) -> str:
        """The name of the file without folders and without .gz, in small letters."""
        return PurePosixPath(self.member or self.path.name).name.lower().removesuffix(".gz")

    def unpacked(self, folder: Path, limits: Limits) -> File:
        """A plain file with the content: the file itself, or an unpacked copy in a folder."""
        return File(self._plain(folder, limits), self.name, self.inner_name)

    def _plain(self, folder: Path, limits: Limits) -> Path:
        """It is a link where DuckDB takes the name for a pattern, or does not take it."""
        is_gzip = (self.member or self.path.name).lower().endswith(".gz")
        if self.member is None and not is_gzip and not NO_NAME.search(str(self.path)):
            return self.path
        copy = folder / uuid.uuid4().hex
        if self.member is None and not is_gzip:
            copy.symlink_to(self.path.resolve())
            return copy
        try:
            with contextlib.ExitStack() as stack:
                stream: IO[bytes] | gzip.GzipFile = stack.enter_context(self.path.open("rb"))
                packed = self.path.stat().st_size
                if self.member is not None:
                    archive = stack.enter_context(zipfile.ZipFile(stream))
                    packed = archive.getinfo(self.member).compress_size
                    stream = stack.enter_context(archive.open(self.member))
                if is_gzip:
                    stream = stack.enter_context(gzip.open(stream))
                self._copy(stream, packed, copy, limits)
        except RatingsFileError:
            raise
        except DAMAGED as error:
            raise RatingsFileError(self.name, f"cannot be unpacked: {error}") from error
        return copy

    def _copy(
        self, stream: IO[bytes] | gzip.GzipFile, packed: int, copy: Path, limits: Limits
    ) -> None:
        size = 0
        with copy.open("wb") as file:
            while chunk := stream.read(1 << 20):
                size += len(chunk)
                if size > limits.unpacked_bytes:
                    problem = f"unpacks to {size:,} bytes at least"
                    raise limits.exceeded("unpacked_bytes", self.name, problem)
                if size > max(RATIO_FROM, limits.unpacked_ratio * packed):
                    problem = f"unpacks to {size // max(packed, 1):,} times its size at least"
                    raise limits.exceeded("unpacked_ratio", self.name, problem)
                file.write(chunk)


Paths = PathLike | Source | Sequence[PathLike | Source]


def find_sources(path: Paths) -> list[Source]:
    """The files that a path or a list of paths means, in the order in which they are to be read.

    `read_ratings` says what a path may be.
    """
    if isinstance(path, Source):
        return [path]
    if isinstance(path, list | tuple):
        if not path:
            raise RatingsFileError("", "the list of files to read is empty")
        return [source for one in path for source in find_sources(one)]
    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"what is to be read, of type {type(path).__name__}, is neither a path, nor a list of "
            "paths, nor a table of pandas, polars or Arrow; of arrays make "
            "Ratings(rows, cols, values)"
        )
    place = expand_home(path)
    # By os.path, for which a name that no file can have is that of no file.
    if os.path.isdir(place):
        return _choose(_in_folder(place), place, "folder")
    if os.path.isfile(place):
        return _choose(_in_archive(place), place, "archive") if _is_zip(place) else [Source(place)]
    for parent in place.parents:
        if os.path.isfile(parent) and _is_zip(parent):
            return [_member(parent, place.relative_to(parent).as_posix())]
    given = os.fspath(path)
    if NO_PATH.match(given):
        raise FileNotFoundError(
            f"there is no file {shorten(given)!r}; of addresses Ratings.read takes what "
            "duckdb.sql(...) returns, the command line a pipe from DuckDB; SQL is read by "
            "Ratings.query and by --sql"
        )
    if glob.has_magic(str(place)):
        found = _files(Path(one) for one in glob.glob(str(place), recursive=True))
        if found:
            return found
        raise FileNotFoundError(f"no file fits the pattern {str(place)!r}")
    raise FileNotFoundError(f"there is no file {str(place)!r}{_neighbours(place)}")


def expand_home(path: PathLike) -> Path:
    """The path with the home folder in place of ``~``, or of ``~user``, at its beginning.

    A file whose name begins with a tilde, ``~x.csv``, is that file.
    """
    place = Path(path)
    if place.parts[:1] != ("~",) and os.path.lexists(place):
        return place
    try:
        return place.expanduser()
    except RuntimeError:  # there is no such user
        return place


# --- pipes ----------------------------------------------------------------------------------------


def is_stream(source: object) -> TypeGuard[PathLike]:
    """Is this something that can be read only once: ``-``, ``/dev/stdin``, ``<(zcat ...)``?"""
    if not isinstance(source, str | os.PathLike) or os.fspath(source) == "-":
        return isinstance(source, str | os.PathLike)
    place = expand_home(source)
    try:
        kind = place.stat().st_mode
    except (OSError, ValueError):
        return False
    odd = stat.S_ISFIFO(kind) or stat.S_ISCHR(kind) or stat.S_ISSOCK(kind)
    return odd or (place.is_absolute() and place.parts[1] in ("dev", "proc"))


def receive(source: PathLike, folder: Path, limits: Limits) -> list[Source]:
    """What comes through a pipe, copied into a folder: read once, from its beginning to its end.

    A name that says what it is has to be found in its first bytes.
    """
    origin = STANDARD_INPUT if os.fspath(source) == "-" else str(source)
    with contextlib.ExitStack() as stack:
        standard = origin == STANDARD_INPUT
        stream = (
            sys.stdin.buffer if standard else stack.enter_context(expand_home(source).open("rb"))
        )
        start = stream.read(4)
        suffix = next((end for magic, end in MAGIC.items() if start.startswith(magic)), "")
        copy = folder / f"pipe{suffix}"
        file, size = stack.enter_context(copy.open("wb")), 0
        while start:
            size += len(start)
            if size > limits.unpacked_bytes:
                raise limits.exceeded("unpacked_bytes", origin, f"has {size:,} bytes at least")
            file.write(start)
            start = stream.read(1 << 20)
    return [replace(one, origin=origin) for one in find_sources(copy)]


def _is_zip(path: Path) -> bool:
    """A zip archive to look into; a .npz is one, too, but not for us."""
    return path.suffix.lower() != ".npz" and zipfile.is_zipfile(path)


def _files(paths: Iterable[Path]) -> list[Source]:
    """Those that are files and no caches of ours, in order."""
    kept = (one for one in paths if one.is_file() and not one.name.endswith(".momentous.npz"))
    return [Source(one) for one in sorted(kept)]


def _in_folder(folder: Path) -> list[Source]:
    found = [file for pattern in ("*", "*/*") for file in folder.glob(pattern)]
    return _files(file for file in found if not file.name.startswith((".", "_")))


def _in_archive(path: Path) -> list[Source]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(info.filename for info in archive.infolist() if not info.is_dir())
    except DAMAGED as error:
        raise RatingsFileError(path, f"is a damaged zip archive: {error}") from error
    return [Source(path, name) for name in names if not name.startswith("__MACOSX")]


def _choose(candidates: list[Source], place: Path, what: str) -> list[Source]:
    """Those that hold the ratings, where it is plain which do."""
    for pattern in (NETFLIX, MOVIELENS):
        known = [one for one in candidates if pattern.fullmatch(Path(one.name).name)]
        if known and (pattern is NETFLIX or len(known) == 1):
            return known
    parts = candidates and all(PARTS.fullmatch(one.inner_name) for one in candidates)
    if len(candidates) == 1 or parts:
        return candidates
    inside = ", ".join(Path(one.name).relative_to(place).as_posix() for one in candidates)
    raise RatingsFileError(
        place,
        f"this {what} has no single file of ratings (such as ratings.csv, ratings.dat, u.data, "
        f"combined_data_*.txt or mv_*.txt); name the file in it, as in {place / 'NAME'}. "
        f"It has: {shorten(inside, 300) or 'nothing'}",
    )


def _member(archive: Path, name: str) -> Source:
    members = _in_archive(archive)
    if Source(archive, name) in members:
        return Source(archive, name)
    names = shorten(", ".join(source.member or "" for source in members), 300)
    raise RatingsFileError(archive, f"has no member {name!r}; it has: {names}")


def _neighbours(place: Path) -> str:
    """What else is there, for those who mistyped."""
    try:
        names = [file.name for file in place.parent.iterdir()]
    except (OSError, ValueError):
        return f" (nor a folder {str(place.parent)!r})"
    near = difflib.get_close_matches(place.name, names, n=3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
