"""Which columns are user, item and rating: as asked, or as the header says."""

from __future__ import annotations

import re
from collections.abc import Sequence

from momentous.lowrank.data.errors import RatingsFileError

Columns = Sequence[str | int]
"""Names in the header, or numbers from 0, of user, item and rating."""

# Names in small letters, without what is neither letter nor digit.
KNOWN = (
    {"user", "userid", "uid", "username", "customer", "customerid", "reviewerid", "row"},
    {"item", "itemid", "iid", "movie", "movieid", "film", "filmid", "product", "productid", "book",
     "bookid", "isbn", "asin", "artist", "artistid", "track", "trackid", "col", "column"},
    {"rating", "ratings", "score", "stars", "value", "overall", "bookrating"},
)  # fmt: skip


def checked(columns: Columns) -> Columns:
    """Three different names or numbers."""
    if isinstance(columns, str) or len(columns) != 3 or len(set(columns)) != 3:
        raise ValueError(
            "columns must be three different names or numbers, for user, item and rating, not "
            f"{columns!r}"
        )
    return columns


def places(
    file: str, columns: Columns | None, fields: int, names: Sequence[str] | None
) -> tuple[int, int, int]:
    """The positions of user, item and rating.

    Parameters
    ----------
    file : str
        What to call the file in messages.
    columns : three names or numbers, or None
        What was asked for.
    fields : int
        How many columns there are.
    names : list of str or None
        What they are called, if the file tells.
    """
    if columns is not None:
        user, item, rating = (_place(file, one, fields, names) for one in columns)
        return user, item, rating
    if names is None:
        return 0, 1, 2
    plain = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in names]
    found = [[k for k, name in enumerate(plain) if name in known] for known in KNOWN]
    if any(len(matching) != 1 for matching in found):
        raise RatingsFileError(
            file,
            "the header does not say plainly which columns are user, item and rating; name them, "
            "as in columns=('user', 'item', 'rating'), or number them from 0",
            line=1,
            content=", ".join(names),
        )
    return found[0][0], found[1][0], found[2][0]


def _place(file: str, column: str | int, fields: int, names: Sequence[str] | None) -> int:
    if isinstance(column, str) and names is None:
        raise RatingsFileError(
            file, f"there is no header to find the column {column!r} in; number columns from 0"
        )
    if isinstance(column, str) and names is not None:
        if column not in names:
            raise RatingsFileError(
                file, f"there is no column {column!r}; there are {', '.join(names)}"
            )
        return list(names).index(column)
    if not 0 <= int(column) < fields:
        raise RatingsFileError(
            file, f"there is no column {column}; there are {fields}, counted from 0"
        )
    return int(column)
