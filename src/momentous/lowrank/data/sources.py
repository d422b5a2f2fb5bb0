"""Where ratings lie: a file, several, a folder, gzip, a zip archive, a member of one."""

from __future__ import annotations

import contextlib
import glob
import gzip
import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from momentous.io.archive import DAMAGED
from momentous.lowrank.data.errors import Limits, RatingsFileError, shortened

NETFLIX = re.compile(r"(combined_data_\d+|mv_\d+)\.txt(\.gz)?", re.IGNORECASE)
PARTS = re.compile(r".*\.parquet|part-.*", re.IGNORECASE)
"""One table in several files, as Spark and others write it."""
MOVIELENS = re.compile(r"(ratings\.(dat|csv|tsv|parquet)|u\.data)(\.gz)?", re.IGNORECASE)

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Source:
    """One file of ratings.

    Attributes
    ----------
    path : Path
        The file on disk.
    member : str or None
        Of the zip archive that the file is.
    """

    path: Path
    member: str | None = None

    @property
    def name(self) -> str:
        """For messages, and to be read again: an archive is named like a folder."""
        return str(self.path) if self.member is None else f"{self.path}/{self.member}"

    @property
    def inner_name(self) -> str:
        """The name of the file without folders and without .gz, in small letters."""
        name = PurePosixPath(self.member).name if self.member else self.path.name
        return name.lower().removesuffix(".gz")

    @property
    def size(self) -> int:
        """Bytes on the disk, of an archive those of the whole."""
        return self.path.stat().st_size

    @contextlib.contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        with contextlib.ExitStack() as stack:
            stream: Any = stack.enter_context(self.path.open("rb"))
            if self.member is not None:
                archive = stack.enter_context(zipfile.ZipFile(stream))
                stream = stack.enter_context(archive.open(self.member))
            if self._is_gzip:
                stream = stack.enter_context(gzip.open(stream))
            yield stream

    @property
    def _is_gzip(self) -> bool:
        return (self.member or self.path.name).lower().endswith(".gz")

    def unpacked(self, folder: Path, limits: Limits) -> Path:
        """A plain file with the content: the file itself, or an unpacked copy in a folder."""
        if self.member is None and not self._is_gzip:
            return self.path
        copy = folder / f"unpacked-{sum(1 for _ in folder.iterdir())}"
        size = 0
        try:
            with self._opened() as stream, copy.open("wb") as file:
                while chunk := stream.read(1 << 20):
                    size += len(chunk)
                    if size > limits.unpacked_bytes:
                        raise limits.exceeded(
                            "unpacked_bytes", self.name, f"unpacks to {size:,} bytes at least"
                        )
                    file.write(chunk)
        except RatingsFileError:
            raise
        except DAMAGED as error:
            raise RatingsFileError(self.name, f"cannot be unpacked: {error}") from error
        return copy


def find_sources(path: PathLike | Sequence[PathLike]) -> list[Source]:
    """The files that a path means, in the order in which they are to be read.

    Parameters
    ----------
    path : path or list of paths
        A file; a pattern such as ``ratings-*.csv``; a folder or a zip archive with a data set of
        MovieLens or Netflix in it, with one file, or with the parts of one table;
        ``archive.zip/member``.
    """
    if not isinstance(path, str | os.PathLike):
        if not path:
            raise RatingsFileError("", "the list of files to read is empty")
        return [source for one in path for source in find_sources(one)]
    place = Path(path).expanduser()
    if place.is_dir():
        return _chosen(_in_folder(place), place, "folder")
    if place.is_file():
        return _chosen(_in_archive(place), place, "archive") if _is_zip(place) else [Source(place)]
    for parent in place.parents:
        if parent.is_file() and _is_zip(parent):
            return [_member(parent, place.relative_to(parent).as_posix())]
    if glob.has_magic(str(place)):
        found = [Source(Path(one)) for one in sorted(glob.glob(str(place), recursive=True))]
        found = [one for one in found if one.path.is_file() and not _is_ours(one.path)]
        if found:
            return found
        raise FileNotFoundError(f"no file fits the pattern {str(place)!r}")
    raise FileNotFoundError(f"there is no file {str(place)!r}{_neighbours(place)}")


def _is_zip(path: Path) -> bool:
    """A zip archive to look into; a .npz is one, too, but not for us."""
    return path.suffix.lower() != ".npz" and zipfile.is_zipfile(path)


def _in_folder(folder: Path) -> list[Source]:
    files = sorted(
        file
        for pattern in ("*", "*/*")
        for file in folder.glob(pattern)
        if file.is_file() and not file.name.startswith((".", "_")) and not _is_ours(file)
    )
    return [Source(file) for file in files]


def _is_ours(path: Path) -> bool:
    """A cache, which is no data."""
    return path.name.endswith(".momentous.npz")


def _in_archive(path: Path) -> list[Source]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = sorted(info.filename for info in archive.infolist() if not info.is_dir())
    except DAMAGED as error:
        raise RatingsFileError(path, f"is a damaged zip archive: {error}") from error
    return [Source(path, name) for name in names if not name.startswith("__MACOSX")]


def _chosen(candidates: list[Source], place: Path, what: str) -> list[Source]:
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
        f"It has: {shortened(inside, 300) or 'nothing'}",
    )


def _member(archive: Path, name: str) -> Source:
    members = _in_archive(archive)
    for source in members:
        if source.member == name:
            return source
    names = ", ".join(source.member or "" for source in members)
    raise RatingsFileError(archive, f"has no member {name!r}; it has: {shortened(names, 300)}")


def _neighbours(place: Path) -> str:
    """What else is there, for those who mistyped."""
    import difflib

    try:
        names = [file.name for file in place.parent.iterdir()]
    except OSError:
        return f" (nor a folder {str(place.parent)!r})"
    near = difflib.get_close_matches(place.name, names, n=3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
