"""Atomic writes: after a crash or on a full disk a file is the old one or the new one.

A file is written under a unique name beside its final one, synced to the disk and renamed.  If
anything goes wrong before the rename, the partial file is removed and the old file is untouched.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

PathLike = str | os.PathLike[str]


@contextlib.contextmanager
def atomic_file(path: PathLike, mode: str = "wb", *, keep_previous: bool = False) -> Iterator[Any]:
    """Open a file for writing that takes the place of ``path`` when the block ends without error.

    Of a symbolic link the file that it points to is replaced; a device or a pipe is written to
    directly.  ``mode`` is "wb", or "w" for text in UTF-8 with ``\\n`` at the ends of lines;
    ``keep_previous`` keeps the file before as ``NAME.previous``.
    """
    if mode not in ("wb", "w"):
        raise ValueError(f"mode={mode!r} must be 'wb' or 'w'")
    final = Path(os.path.realpath(path))
    if final.exists() and not final.is_file():
        with _opened(final, os.O_WRONLY, mode) as file:
            yield file
        return
    partial = final.with_name(f"{final.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    # Exclusive: a file or link that is already there is never followed.
    file = _opened(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if keep_previous and final.exists():
            _link_previous(final)
        os.replace(partial, final)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk is told without the file
        raise
    _sync_folder(final.parent)


def write_text(path: PathLike, text: str) -> None:
    """Write a text file, all of it or nothing."""
    with atomic_file(path, "w") as file:
        file.write(text)


def previous_path(path: PathLike) -> Path:
    """Where ``keep_previous`` keeps the file before."""
    path = Path(path)
    return path.with_name(path.name + ".previous")


def _opened(path: Path, flags: int, mode: str) -> IO[Any]:
    descriptor = os.open(path, flags, 0o666)
    if mode == "w":
        return open(descriptor, "w", encoding="utf-8", newline="\n")
    return open(descriptor, "wb")


def _link_previous(path: Path) -> None:
    """Give the present file a second name, without a moment in which it has none."""
    aside = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.aside")
    # A file system without hard links keeps no previous file; the rename still protects this one.
    with contextlib.suppress(OSError):
        os.link(path, aside)
        os.replace(aside, previous_path(path))
        # Two names of one file: then a rename does nothing (another process was here just now).
        aside.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system can."""
    if os.name != "posix":
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
