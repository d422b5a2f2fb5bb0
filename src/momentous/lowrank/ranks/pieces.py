"""Which files, and which pieces of large ones, a rank reads.

All files together are cut into as many stretches of equal length as there are ranks, in their
order.  Where a cut falls into a file of text whose lines can be read alone it is moved to the next
line, and in a Parquet file to a row; any other file is read whole, by the rank that has its middle.
"""

from __future__ import annotations

import mmap
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from momentous.distributed import Ranks
from momentous.lowrank.data.errors import Limits, RatingsFileError
from momentous.lowrank.data.files.database import duckdb_errors, open_database, quoted_text
from momentous.lowrank.data.files.dialect import File, find_dialect, parse_columns
from momentous.lowrank.data.files.formats import FORMATS, TEXT, Format, find_format
from momentous.lowrank.data.files.sources import Paths, Source, find_sources
from momentous.lowrank.data.read import Reading

LEAST = 1 << 20  # bytes of a file that is worth a cut
# Lines of JSON are not among them: the first one names the keys of all.
LINES = [*(FORMATS[name] for name in ("dat", "csv", "tsv", "space")), TEXT]
STEP = 1 << 20  # bytes that are looked through at a time


@dataclass(frozen=True)
class Lines(Source):
    """Some lines of a file of text, and its header."""

    header: int = 0  # bytes
    begin: int = 0
    end: int = 0

    def unpacked(self, folder: Path, limits: Limits) -> File:
        copy = folder / uuid.uuid4().hex
        with self.path.open("rb") as file, copy.open("wb") as piece:
            piece.write(file.read(self.header))
            file.seek(self.begin)
            left = self.end - self.begin
            while left and (chunk := file.read(min(STEP, left))):
                piece.write(chunk)
                left -= len(chunk)
        return File(copy, self.name, self.inner_name)

    def with_line_of_file(self, error: RatingsFileError) -> RatingsFileError:
        """The error with the number of the line in the whole file."""
        skipped = _count(self.path, 0, self.begin, b"\n") - _count(self.path, 0, self.header, b"\n")
        line = None if error.line is None else error.line + skipped
        return RatingsFileError(error.path, error.problem, line, error.content)


@dataclass(frozen=True)
class Rows(Source):
    """Some rows of a Parquet file."""

    first: int = 0
    last: int = 0

    def unpacked(self, folder: Path, limits: Limits) -> File:
        whole = super().unpacked(folder, limits)
        return File(whole.path, whole.name, whole.inner_name, (self.first, self.last))


def own_sources(source: Paths, ranks: Ranks, reading: Reading) -> list[Source]:
    """What this rank reads; ``reading`` are options of `read_ratings`."""
    sources = find_sources(source)
    sizes = [max(1, one.path.stat().st_size) for one in sources]
    total, begin, cut = sum(sizes), 0, False
    stretch = total * ranks.rank / ranks.size, total * (ranks.rank + 1) / ranks.size
    own: list[Source] = []
    for one, size in zip(sources, sizes, strict=True):
        part = [min(max((end - begin) / size, 0.0), 1.0) for end in stretch]
        # In which stretches do its first and its last byte lie?  All ranks say the same.
        crosses = begin * ranks.size // total != (begin + size - 1) * ranks.size // total
        piece = _piece(one, part[0], part[1], reading) if crosses and size >= LEAST else None
        cut |= isinstance(piece, Lines)
        if piece is not None:
            own += [piece] if part[0] < part[1] and not _is_empty(piece) else []
        elif stretch[0] <= begin + size / 2 < stretch[1]:
            own.append(one)
        begin += size
    if not cut:
        return own
    # A record in quotes may go on in the next line: then nobody can tell where lines begin.
    quotes = any(
        _count(one.path, one.begin, one.end, b'"') for one in own if isinstance(one, Lines)
    )
    if ranks.sum(float(quotes)):
        return sources if ranks.rank == 0 else []
    return own


def _piece(one: Source, low: float, high: float, reading: Reading) -> Source | None:
    """The piece of a file between two shares of it; None where the file cannot be cut."""
    if one.member is not None or one.path.suffix.lower() == ".gz":
        return None
    file, named = File(one.path, one.name, one.inner_name), reading.get("format")
    try:
        found = FORMATS[named] if named else find_format(file)
        if found is FORMATS["parquet"]:
            count = _row_count(file)
            return Rows(one.path, first=round(low * count), last=round(high * count))
        if found not in LINES:
            return None
        columns = parse_columns(reading.get("columns"))
        limits = reading.get("limits") or Limits()
        delimiter, decimal = _delimiter(found, reading), reading.get("decimal", ".")
        skip = find_dialect(file.head, delimiter, columns, limits, decimal=decimal).skip
        header = _line_start(one.path, skip)
    except RatingsFileError:
        return None  # who reads the file says what is wrong with it
    size = one.path.stat().st_size
    begin, end = (
        _line_after(one.path, header + round(part * (size - header))) for part in (low, high)
    )
    return Lines(one.path, header=header, begin=begin, end=end)


def _delimiter(found: Format, reading: Reading) -> str | None:
    """The one asked for, or that of the format."""
    keywords = getattr(found.scans, "keywords", {})
    delimiter: str | None = reading.get("delimiter") or keywords.get("delimiter")
    return delimiter


def _is_empty(piece: Source) -> bool:
    if isinstance(piece, Lines):
        return piece.begin >= piece.end
    return isinstance(piece, Rows) and piece.first >= piece.last


def _row_count(file: File) -> int:
    place = quoted_text(os.path.abspath(file.path))
    query = f"SELECT sum(num_rows) FROM parquet_file_metadata({place})"
    with (
        duckdb_errors(file.name, "cannot be read as Parquet"),
        open_database(file.path.parent, 0) as database,
    ):
        return int(database.execute(query).fetchall()[0][0])


def _line_start(path: Path, skip: int) -> int:
    """Where the line after so many begins."""
    with path.open("rb") as file:
        for _ in range(skip):
            file.readline()
        return file.tell()


def _line_after(path: Path, place: int) -> int:
    """Where the first line begins that does not begin before this place."""
    with path.open("rb") as file:
        if not place:
            return 0
        file.seek(place - 1)
        file.readline()
        return min(file.tell(), os.fstat(file.fileno()).st_size)


def _count(path: Path, begin: int, end: int, byte: bytes) -> int:
    """How often a byte stands between two places of a file."""
    if begin >= end:
        return 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return sum(content[k : min(k + STEP, end)].count(byte) for k in range(begin, end, STEP))
