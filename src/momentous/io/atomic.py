"""Atomic writes: after a crash or on a full disk a file is the old one or the new one.

A file is written under a unique name beside its final one, synced to the disk and renamed.  If
anything goes wrong before the rename, the partial file is removed and the old file is untouched.
What a killed process has left is removed by the next one that writes the same file.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import platform
import re
import secrets
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from momentous.io.types import AnyFile


PathLike = str | os.PathLike[str]

# NAME.HOST-PROCESS-RANDOM.partial; ".aside" is the second name of a file on its way to ".previous".
_LEFT = re.compile(r"\.([0-9a-f]{8})-([0-9]{1,9})-[0-9a-f]{8}\.(partial|aside)\Z")
_looked_after: set[Path] = set()  # what this process has written before


@contextlib.contextmanager
def atomic_file(
    path: PathLike,
    mode: str = "wb",
    *,
    keep_previous: bool = False,
    permissions: int | None = None,
) -> Iterator[AnyFile]:
    """Open a file for writing that takes the place of ``path`` when the block ends without error.

    Of a symbolic link the file that it points to is replaced, and there must be one; a device or a
    pipe is written to directly.  ``mode`` is "wb", or "w" for text in UTF-8 with ``\\n`` at the
    ends of lines; ``keep_previous`` keeps the file before as ``NAME.previous``.  The file has the
    permissions of the one that it replaces, or at most those that are given.
    """
    if mode not in ("wb", "w"):
        raise ValueError(f"mode={mode!r} must be 'wb' or 'w'")
    final = _final(path)
    if final.exists() and not final.is_file():
        with _opened(final, os.O_WRONLY, mode) as file:
            yield file
        return
    if final not in _looked_after:
        _looked_after.add(final)
        remove_left_over(final.parent, re.escape(final.name))
    partial = _beside(final, "partial")
    keeps = permissions is None and os.name == "posix" and final.exists()
    with _named(path, partial):
        # Exclusive: a file or link that is already there is never followed.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        file = _opened(partial, flags, mode, 0o600 if keeps else permissions)
        try:
            with file:
                if keeps:
                    _take_permissions(file.fileno(), final.stat())
                yield file
                file.flush()
                os.fsync(file.fileno())
            if keep_previous and final.exists():
                _link_previous(final)
            os.replace(partial, final)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    _sync_folder(final.parent)


def require_writable(path: PathLike) -> None:
    """Raise the OSError now, and not after hours of work, that writing this file would end in."""
    final = _final(path)
    if not final.exists() or final.is_file():
        partial = _beside(final, "partial")
        with _named(path, partial):
            _opened(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, "wb").close()
            partial.unlink()


def write_text(path: PathLike, text: str) -> None:
    """Write a text file, all of it or nothing."""
    with atomic_file(path, "w") as file:
        file.write(text)


def previous_path(path: PathLike) -> Path:
    """Where ``keep_previous`` keeps the file before."""
    path = Path(path)
    return path.with_name(path.name + ".previous")


def permissions_of(path: PathLike, folder: PathLike | None = None) -> int | None:
    """Who may read and write a file, as far as a new file in a folder, by default its own, can have
    the same; None where there is no such file.

    The group's are left out where a new file would belong to another group.
    """
    if os.name != "posix":
        return None
    try:
        facts, around = os.stat(path), os.stat(Path(path).parent if folder is None else folder)
    except OSError:
        return None
    of_folder = around.st_mode & stat.S_ISGID or sys.platform == "darwin"
    same = facts.st_gid == (around.st_gid if of_folder else os.getegid())
    return stat.S_IMODE(facts.st_mode) & (0o777 if same else 0o707)


def remove_left_over(folder: PathLike, names: str = ".*") -> None:
    """Remove what killed processes have left in a folder, of all files or of those whose names
    match a regular expression.

    Only plain files with our kind of name, of this user, from a process of this machine that no
    longer lives; where the system cannot tell, nothing is removed.
    """
    if os.name != "posix":
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            place = _LEFT.search(entry.name)
            if place is None or not re.fullmatch(names, entry.name[: place.start()]):
                continue
            if place[1] == _this_machine() and not _lives(int(place[2])):
                facts = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(facts.st_mode) and facts.st_uid == os.getuid():
                    os.unlink(entry.path)


def _final(path: PathLike) -> Path:
    """Where the file itself lies, behind any links."""
    final = Path(os.path.realpath(path))
    if final.is_symlink():  # a link that leads to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    if os.path.islink(path) and not os.path.exists(path):  # by os.path: /dev/stdout is a link, too
        problem = f"a link to {str(final)!r}, which does not exist; make that file, or remove the"
        raise FileNotFoundError(errno.ENOENT, f"{problem} link", str(path))
    return final


@contextlib.contextmanager
def _named(path: PathLike, partial: Path) -> Iterator[None]:
    """Errors name the file that was asked for; a full disk is told without any."""
    try:
        yield
    except OSError as error:
        if error.filename in (None, str(partial)):
            error.filename = str(path)
        raise


def _beside(path: Path, ending: str) -> Path:
    """A unique name, which says who made it."""
    maker = f"{_this_machine()}-{os.getpid()}-{secrets.token_hex(4)}"
    return path.with_name(f"{path.name}.{maker}.{ending}")


@functools.cache
def _this_machine() -> str:
    """Eight digits for where the numbers of processes hold: the host, and the container on it."""
    place = platform.node()
    with contextlib.suppress(OSError):
        place += str(os.stat("/proc/self/ns/pid").st_ino)
    return f"{zlib.crc32(place.encode()):08x}"


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to somebody else
        return True
    return True


def _take_permissions(descriptor: int, old: os.stat_result) -> None:
    """Those of the file before; those of its group only where the new file can have that group."""
    mode = stat.S_IMODE(old.st_mode) & 0o777
    if os.fstat(descriptor).st_gid != old.st_gid:
        try:
            os.fchown(descriptor, -1, old.st_gid)
        except OSError:
            mode &= ~0o070
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:  # some file systems refuse any change
        os.fchmod(descriptor, mode)


def _opened(path: Path, flags: int, mode: str, permissions: int | None = None) -> AnyFile:
    descriptor = os.open(path, flags, 0o666 if permissions is None else permissions)
    if mode == "w":
        return open(descriptor, "w", encoding="utf-8", newline="\n")
    return open(descriptor, "wb")


def _link_previous(path: Path) -> None:
    """Give the present file a second name, without a moment in which it has none."""
    aside = _beside(path, "aside")
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
