"""The formats that can be read, and how one is told from another."""

from __future__ import annotations

import re

from momentous.lowrank.data.errors import RatingsFileError
from momentous.lowrank.data.lines import BYTE_ORDER_MARK, UNREADABLE
from momentous.lowrank.data.sources import NETFLIX, Source

FORMATS = {
    "dat": "user::item::rating::timestamp, as ratings.dat of MovieLens",
    "csv": "user,item,rating with or without a header, as ratings.csv of MovieLens",
    "tsv": "the same with tabs, as u.data of MovieLens",
    "space": "the same with spaces",
    "netflix": "lines 'movie:' and 'user,rating,date', as combined_data_*.txt and mv_*.txt",
    "mtx": "a matrix in MatrixMarket's coordinate format",
    "npz": "a matrix written by scipy.sparse.save_npz",
    "parquet": "Parquet with columns of users, items and ratings",
}
"""What can be read, by the names that `read_ratings` takes."""

_HEAD = 1 << 14

UNDECIDED = "text"
"""Lines with a delimiter; which one, the reader finds out."""


def recognised(source: Source) -> str:
    """The format of a file, from its name and its beginning."""
    with source.open() as stream:
        try:
            head = stream.read(_HEAD).removeprefix(BYTE_ORDER_MARK)
        except UNREADABLE as error:
            raise RatingsFileError(source.name, f"cannot be unpacked: {error}") from error
    if not head.strip():
        raise RatingsFileError(source.name, "is empty")
    whole = head[: head.rfind(b"\n") + 1] if len(head) > _HEAD // 2 else head
    name = source.inner_name
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"PK"):
        return "npz"
    if name.endswith((".parquet", ".npz")) or (b"\0" in head and not _is_utf16(head)):
        raise RatingsFileError(source.name, f"is of no format known here; {described()}")
    if name.endswith(".mtx") or head.lower().startswith(b"%%matrixmarket"):
        return "mtx"
    if NETFLIX.fullmatch(name) or re.search(rb"^\s*\d+:\s*$", whole, re.MULTILINE):
        return "netflix"
    return UNDECIDED


def _is_utf16(head: bytes) -> bool:
    return head.startswith((b"\xff\xfe", b"\xfe\xff"))  # which gets a message of its own


def described() -> str:
    """All formats, for messages."""
    return "formats: " + "; ".join(f"{name} ({text})" for name, text in FORMATS.items())
