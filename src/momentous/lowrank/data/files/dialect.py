"""How the lines of a file are cut into fields, and which field is what.

The rules are few and look at no more than the first hundred lines that are not blank.  DuckDB could
guess, too, but knows neither ``::`` nor names of columns, and a guess that goes wrong reads a file
as what it is not; here a file that the rules do not fit is refused.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from pathlib import Path

from momentous.lowrank.data.errors import Limits, RatingsFileError

WHITESPACE = " "  # as a delimiter: any run of spaces and tabs
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
DENSE_FROM = 8  # numbers per line, without a header: nobody writes triples like that
COLONS = "expected '::' between fields; ':::' does not say where a field ends"
_TRIED = ("::", "\t", ",", ";", "|", WHITESPACE)
_SAMPLE_BYTES, _SAMPLE_LINES, _LONGEST_LINE = 1 << 16, 100, 1 << 20

Columns = Sequence[str | int]
"""Names in the header, or numbers from 0, of user, item and rating; of pairs, of user and item."""

# Names in small letters, without what is neither letter nor digit.
KNOWN = (
    {"user", "userid", "uid", "username", "customer", "customerid", "reviewerid", "row"},
    {"item", "itemid", "iid", "movie", "movieid", "film", "filmid", "product", "productid", "book",
     "bookid", "isbn", "asin", "artist", "artistid", "track", "trackid", "col", "column"},
    {"rating", "ratings", "score", "stars", "value", "overall", "bookrating"},
)  # fmt: skip
PAIR, TRIPLE = 2, 3  # columns
WANTED = {PAIR: "user and item", TRIPLE: "user, item and rating"}


# --- a file and its beginning ---------------------------------------------------------------------


@dataclass(frozen=True)
class FirstLines:
    """The first lines of a file that are not blank, without spaces around them."""

    name: str  # of the file, for messages
    lines: list[str]
    numbers: list[int]  # of the lines in the file, from 1

    def error(self, problem: str) -> RatingsFileError:
        """An error about the first of the lines."""
        return RatingsFileError(self.name, problem, self.numbers[0], self.lines[0])


@dataclass(frozen=True)
class File:
    """A plain file to be read."""

    path: Path
    name: str  # for messages
    inner_name: str  # without folders and without .gz, in small letters

    @cached_property
    def begin(self) -> bytes:
        """Its first bytes."""
        with self.path.open("rb") as file:
            return file.read(_SAMPLE_BYTES).removeprefix(BYTE_ORDER_MARK)

    @cached_property
    def head(self) -> FirstLines:
        """Its first lines."""
        return first_lines(self.path, self.name)


def first_lines(path: Path, name: str) -> FirstLines:
    """Look at the beginning of a text, after any blank lines however many."""
    lines: list[str] = []
    numbers: list[int] = []
    size, number = 0, 0
    with path.open(encoding="latin-1") as file:  # Python takes all ends of lines, and any byte
        while size < _SAMPLE_BYTES and len(lines) < _SAMPLE_LINES:
            raw = file.readline(_LONGEST_LINE).encode("latin-1")
            if not raw:
                break
            if not number:
                if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
                    raise RatingsFileError(name, "is encoded as UTF-16; save it as UTF-8")
                raw = raw.removeprefix(BYTE_ORDER_MARK)
            text = raw.decode("utf-8", "replace").strip(" \n")
            if text:
                size += len(raw)
                lines.append(text)
                numbers.append(number + 1)
            number += raw.endswith(b"\n") or len(raw) < _LONGEST_LINE
    if not lines:
        raise RatingsFileError(name, "is empty")
    return FirstLines(name, lines, numbers)


# --- how lines are cut ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Dialect:
    """How a file writes its lines."""

    delimiter: str
    fields: int  # in every line
    columns: tuple[int, ...]  # which fields are user, item and rating, from 0
    skip: int  # lines before the first that has data: blank ones and the header
    samples: list[list[str]]  # the first records with data

    @property
    def expected(self) -> str:
        """What a line must be, for messages."""
        return f"expected {self.fields} fields separated by {self.delimiter!r}"


def has_quotes(delimiter: str) -> bool:
    """May fields between such delimiters be quoted?"""
    return len(delimiter) == 1 and delimiter != WHITESPACE


def find_dialect(
    head: FirstLines,
    delimiter: str | None,
    columns: Columns | None,
    limits: Limits,
    count: int | None = None,
    decimal: str = ".",
) -> Dialect:
    """The dialect of a file from its first lines; one damaged line does not matter.

    With a count of 3 the file has ratings, and a first line without a number is a header.  With 2
    it has pairs; their ids may be any text, so that only a name for users tells a header, or that
    names were asked for.  Without a count it has pairs where most lines have two fields and no
    more; then a name for anything tells a header.
    """
    for number, line in zip(head.numbers, head.lines, strict=True):
        if len(line) >= min(limits.line_bytes, _LONGEST_LINE):
            problem = f"has a line of more than {limits.line_bytes:,} bytes"
            raise limits.exceeded("line_bytes", head.name, problem, number, line)
    # A comma that stands for a decimal point is the last that separates fields.
    tried = sorted(_TRIED, key=decimal.__eq__) if delimiter is None else [delimiter]
    cut = {one: split_lines(head.lines, one) for one in tried}
    clear = [[one for one in cut[each] if not _runs_on(one, each)] for each in tried]
    records, told_by = dict(zip(tried, clear, strict=True)), [KNOWN[0]]  # names of a header
    best, fields = _most_agree(records, cut, count or TRIPLE)
    if count is None:
        pair, two = _most_agree(records, cut, PAIR)
        count = PAIR if not fields and two == PAIR else TRIPLE
        if count == PAIR:
            best, fields, told_by = pair, two, [*KNOWN]
    if not fields:
        if len(clear[0]) < len(cut[tried[0]]):
            raise head.error(COLONS)
        if delimiter is not None:
            raise head.error(f"expected {WANTED[count]} separated by {delimiter!r}")
        raise head.error(f"expected lines of {WANTED[count]} with a delimiter")
    check_columns(fields, head, limits)
    first = cut[best][0]
    if count == PAIR:
        by_name = columns is not None and any(isinstance(one, str) for one in columns)
        header = by_name or any(matching_names(first, known) for known in told_by)
    else:
        header = len(first) == fields and best != "::" and not any(map(_is_number, first))
        some = (one for line in cut[best][:10] for one in line)
        is_dense = fields >= DENSE_FROM and all(not one or _is_number(one) for one in some)
        if not header and columns is None and is_dense:
            raise head.error(
                f"has {fields} numbers per line and no header, as a dense matrix has: read that "
                "with numpy.genfromtxt, and pass rows, columns and values of what is rated to "
                "Ratings; of triples say which columns they are, as in columns=(0, 1, 2)"
            )
    where = find_columns(head.name, columns, fields, first if header else None, count)
    skip = head.numbers[0] - 1
    if header:
        skip += 1 + "".join(first).count("\n")
    samples = [one for one in cut[best][int(header) :] if len(one) == fields]
    return Dialect(best, fields, where, skip, samples)


def check_columns(fields: int, head: FirstLines, limits: Limits) -> None:
    """Refuse a line with more fields than anybody needs."""
    if fields > limits.columns:
        problem = f"has {fields:,} fields per line"
        raise limits.exceeded("columns", head.name, problem, head.numbers[0])


def split_lines(lines: list[str], delimiter: str) -> list[list[str]]:
    """The fields of lines, without quotes and without spaces around them."""
    if delimiter == WHITESPACE:
        return [line.split() for line in lines]
    if not has_quotes(delimiter) or not any('"' in line for line in lines):
        return [[one.strip() for one in line.split(delimiter)] for line in lines]
    ended = (line + "\n" for line in lines)  # a record may go on in the next line
    records = csv.reader(ended, delimiter=delimiter, skipinitialspace=True)
    try:
        return [[one.strip() for one in record] for record in records]
    except csv.Error:  # a field of more than 128 KiB
        return [[line] for line in lines]


def _is_number(text: str) -> bool:
    try:
        float(text[:400])
    except ValueError:
        return False
    return True


def _runs_on(record: list[str], delimiter: str) -> bool:
    """Have colons been cut that do not say where a field ends, as in 1:::2?"""
    return delimiter == "::" and any(one.startswith(":") for one in record[1:])


def _most_agree(
    clear: dict[str, list[list[str]]], cut: dict[str, list[list[str]]], least: int
) -> tuple[str, int]:
    """The delimiter that cuts most lines into equally many fields, and how many these are: 0
    where it is less than half of the lines."""
    agree = {one: _common_count(records, least) for one, records in clear.items()}
    best = max(agree, key=lambda one: agree[one][1])  # the first of equals
    fields, lines = agree[best]
    return best, fields if lines and 2 * lines >= len(cut[best]) else 0


def _common_count(records: list[list[str]], least: int) -> tuple[int, int]:
    """The number of fields, at least so many, that most records have, and how many have it."""
    agree = Counter(map(len, records))
    enough = [(count, lines) for count, lines in agree.items() if count >= least]
    return max(enough, key=lambda pair: pair[::-1], default=(0, 0))


# --- which field is what --------------------------------------------------------------------------


def parse_columns(
    columns: Columns | None, counts: tuple[int, ...] = (PAIR, TRIPLE)
) -> list[str | int] | None:
    """Different names or numbers, as many as there may be, if any."""
    if columns is None:
        return None
    given = list(columns) if isinstance(columns, Iterable) and not isinstance(columns, str) else []
    plain = all(isinstance(one, str | Integral) and not isinstance(one, bool) for one in given)
    if not plain or len(given) not in counts or len(set(given)) != len(given):
        number = " or ".join({PAIR: "two", TRIPLE: "three"}[count] for count in counts)
        raise ValueError(
            f"columns={columns!r} must be {number} different names or whole numbers, for "
            f"{WANTED[max(counts)]}"
        )
    return [one if isinstance(one, str) else int(one) for one in given]


def find_columns(
    name: str, columns: Columns | None, fields: int, names: Sequence[str] | None, count: int
) -> tuple[int, ...]:
    """The positions of user, item and rating (or of user and item) among so many columns.

    ``columns`` are those asked for, ``names`` what the file calls its columns, if it tells.
    """
    if columns is not None:
        return tuple(_place(name, one, fields, names) for one in columns)
    if names is None:
        return tuple(range(count))
    found = [matching_names(names, known) for known in KNOWN[:count]]
    if any(len(one) != 1 for one in found):
        are_known = count == TRIPLE and all(len(one) == 1 for one in found[:PAIR])
        pairs = "; of clicks, which have no rating, name user and item alone" if are_known else ""
        example = tuple(WANTED[count].replace(",", "").replace(" and", "").split())
        raise RatingsFileError(
            name,
            f"the header does not say plainly which columns are {WANTED[count]}; name them, as in "
            f"columns={example} or --columns {','.join(example)}, or number them from 0{pairs}",
            line=1,
            content=", ".join(names),
        )
    return tuple(one[0] for one in found)


def matching_names(names: Sequence[str], known: set[str]) -> list[int]:
    """The positions of names that are known."""
    return [k for k, name in enumerate(names) if re.sub(r"[^a-z0-9]", "", name.lower()) in known]


def _place(name: str, column: str | int, fields: int, names: Sequence[str] | None) -> int:
    if isinstance(column, str):
        if names is None:
            problem = f"no header to find the column {column!r} in; number columns from 0"
        elif column not in names:
            problem = f"no column {column!r}; there are {', '.join(names)[:500]}"
        else:
            return list(names).index(column)
    elif 0 <= int(column) < fields:
        return int(column)
    else:
        problem = f"no column {column}; there are {fields}, counted from 0"
    raise RatingsFileError(name, f"there is {problem}")
