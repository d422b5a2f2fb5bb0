"""The one archive format: plain arrays with a JSON header in a NumPy ``.npz`` file, no pickles.

Every archive says what kind it is (a checkpoint, a model, a cache of ratings) and in which version;
a reader checks both, and the type and shape of every array, before anybody uses them.
"""

import json
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from momentous.io.atomic import PathLike, atomic_file, previous_path
from momentous.io.types import AnyArray, JsonObject, NpzFile

FORMAT = "momentous"
HEADER = "header"

UNPACKED_BYTES = 16 << 30
"""What an array in an archive may take in memory, unless the reader says otherwise."""

# What NumPy, zipfile and zlib raise where a file is damaged or is something else.
DAMAGED = (
    zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError, ValueError, TypeError,
    LookupError, ArithmeticError, AttributeError, EOFError, OSError, SyntaxError, RuntimeError,
    MemoryError,
)  # fmt: skip


class ArchiveError(ValueError):
    """A file that is no archive of momentous, is damaged, or is of another kind or version."""


@dataclass(frozen=True)
class ArraySpec:
    """What an array in an archive must be: letters of ``dtype.kind``, and dimensions."""

    kinds: str  # "f" floats, "iu" whole numbers, "b" booleans, "US" text
    ndim: int
    required: bool = True

    def check(self, name: str, array: AnyArray) -> None:
        """Raise an error that names the array unless it is as it must be."""
        fits = array.dtype.kind in self.kinds and array.dtype.isnative
        if not fits or array.ndim != self.ndim:
            raise ArchiveError(
                f"its array {name!r} has {array.ndim} dimensions and dtype {array.dtype}; expected "
                f"are {self.ndim} and a dtype of kind {' or '.join(self.kinds)} in the byte order "
                "of this machine"
            )


@dataclass(frozen=True)
class Archive:
    """What was read: the header's content and the arrays by name."""

    content: JsonObject
    arrays: dict[str, AnyArray]


def write_archive(
    path: PathLike,
    kind: str,
    version: int,
    content: Mapping[str, object],
    arrays: Mapping[str, AnyArray],
    *,
    compressed: bool = False,
    keep_previous: bool = False,
    permissions: int | None = None,
) -> None:
    """Write an archive atomically; ``content`` is anything that JSON can hold."""
    if HEADER in arrays:
        raise ValueError(f"no array may be called {HEADER!r}")
    header = {"format": FORMAT, "kind": kind, "version": version, "content": content}
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    save = np.savez_compressed if compressed else np.savez
    with atomic_file(path, keep_previous=keep_previous, permissions=permissions) as file:
        save(file, **{HEADER: text}, **arrays)  # type: ignore[arg-type]


def read_archive(
    path: PathLike,
    kind: str,
    version: int,
    schema: Mapping[str, ArraySpec] | None = None,
    also: str | None = None,
) -> Archive:
    """Read an archive of that kind and version.

    ``schema`` says which arrays there must be and what they must be; without one, all arrays are
    read as they are, and with one, those whose names begin with ``also``.  Everything that is wrong
    is an `ArchiveError` that names the file.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with _opened(path) as archive:
            header = _header(archive)
            _check_header(header, kind, version)
            arrays = _arrays(archive, schema, also)
    except ArchiveError as error:
        raise ArchiveError(f"{path}: {error}") from None
    except DAMAGED as error:
        previous = previous_path(path)
        remedy = f"; the file before it is {previous}" if previous.exists() else ""
        raise ArchiveError(
            f"{path} is truncated, damaged or not an archive of momentous "
            f"({type(error).__name__}: {error}){remedy}"
        ) from error
    return Archive(header["content"], arrays)


def read_array(archive: NpzFile, name: str, largest: int = UNPACKED_BYTES) -> AnyArray:
    """An array of an open npz file, if it is as long as its own header says.

    NumPy asks for the memory first and looks later: a header of a few bytes could fill the machine.
    """
    assert archive.zip is not None  # as long as it is open
    member = name if name in archive.zip.namelist() else f"{name}.npy"
    with archive.zip.open(member) as file:
        version = np.lib.format.read_magic(file)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0}.get(
            version, np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read_header(file)
    size = dtype.itemsize * math.prod(int(side) for side in shape)
    if not 0 <= size <= archive.zip.getinfo(member).file_size or dtype.hasobject:
        raise ArchiveError(f"its array {name!r} is not as long as it says, or holds objects")
    if size > largest:
        raise ArchiveError(f"its array {name!r} has {size:,} bytes, the limit is {largest:,}")
    array: AnyArray = archive[name]
    return array


def is_archive(path: PathLike, kind: str) -> bool:
    """Is this an archive of ours of that kind?"""
    try:
        with _opened(path) as archive:
            return bool(_header(archive)["kind"] == kind)
    except (ArchiveError, *DAMAGED):
        return False


@contextmanager
def _opened(path: PathLike) -> Iterator[NpzFile]:
    with open(path, "rb") as file, zipfile.ZipFile(file):  # NumPy takes other files too
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            yield archive


def _header(archive: NpzFile) -> JsonObject:
    header: JsonObject | None = None
    if HEADER in archive.files:
        with suppress(ValueError):
            header = json.loads(read_array(archive, HEADER).tobytes())
    ours = isinstance(header, dict) and header.get("format") == FORMAT
    if (
        header
        and ours
        and isinstance(header.get("content"), dict)
        and isinstance(header.get("kind"), str)
    ):
        return header
    raise ArchiveError("this is not an archive of momentous, but another npz file")


def _check_header(header: JsonObject, kind: str, version: int) -> None:
    if header["kind"] != kind:
        raise ArchiveError(f"this is a {header['kind']}, not a {kind}")
    if header.get("version") != version:
        raise ArchiveError(
            f"this {kind} has version {header.get('version')!r}, this release of momentous reads "
            f"version {version}; read it with the release that wrote it"
        )


def _arrays(
    archive: NpzFile, schema: Mapping[str, ArraySpec] | None, also: str | None
) -> dict[str, AnyArray]:
    if schema is None:
        return {name: read_array(archive, name) for name in archive.files if name != HEADER}
    missing = [n for n, spec in schema.items() if spec.required and n not in archive.files]
    if missing:
        raise ArchiveError(f"it lacks the array {missing[0]!r}")
    arrays = {name: read_array(archive, name) for name in schema if name in archive.files}
    for name, array in arrays.items():
        schema[name].check(name, array)
    if also is not None:
        more = (name for name in archive.files if name.startswith(also) and name not in arrays)
        arrays |= {name: read_array(archive, name) for name in more}
    return arrays
