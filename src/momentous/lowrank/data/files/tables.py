"""Triples in tables with typed columns: Parquet, and the results of queries."""

from __future__ import annotations

from momentous.lowrank.data.errors import RatingsFileError
from momentous.lowrank.data.files.database import duckdb_errors, quoted_name, read_files
from momentous.lowrank.data.files.dialect import PAIR, TRIPLE, File, find_columns
from momentous.lowrank.data.files.scans import (
    ONE_EACH,
    IdColumn,
    RatingColumn,
    Scan,
    Work,
)

COPY = "momentous_rows"
_INTEGERS = {
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER",
    "UBIGINT", "UHUGEINT",
}  # fmt: skip
_SMALL_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"}
_SINGLE = {"TINYINT", "SMALLINT", "UTINYINT", "USMALLINT", "FLOAT"}  # float32 has them all
_NUMBERS = {*_INTEGERS, "FLOAT", "DOUBLE", "DECIMAL"}
_ROUNDS = {"FLOAT": "16777216", "DOUBLE": "9007199254740992"}  # whole numbers from here on
ROUNDED = "expected ids as integers or text: floats of this size merge neighbours"
_NO_IDS, _TEXTS = ("STRUCT", "MAP", "UNION", "BLOB", "BIT"), ("VARCHAR", "ENUM")


def parquet_scan(file: File, work: Work) -> Scan:
    """Triples, or pairs, in a Parquet file."""
    return table_scan(f"SELECT * FROM {read_files('read_parquet', [file.path])}", file.name, work)


def table_scan(query: str, name: str, work: Work, is_stream: bool = False) -> Scan:
    """Triples, or pairs, from the columns of any query, with their types.

    Whole numbers stay numbers and texts stay texts, whatever they look like; ids of other types
    (dates, UUIDs) become the text that DuckDB writes for them.  Of a stream, which can be read only
    once, a copy is read.
    """
    table = f"({query}\n)"  # it may end in a comment
    with duckdb_errors(name):
        described = work.connection.execute(f"DESCRIBE {query}").fetchall()
    names, types = [one[0] for one in described], [one[1] for one in described]
    count = work.options.count_of(len(names))
    chosen = find_columns(name, work.options.columns, len(names), names, count)
    quoted = [quoted_name(names[k]) for k in chosen]
    kinds = [types[k] for k in chosen]
    rating = ONE_EACH
    if count == TRIPLE:
        if kinds[2].split("(")[0] not in _NUMBERS:
            raise RatingsFileError(name, f"the ratings are of type {kinds[2]}; expected numbers")
        number = f"CAST({quoted[2]} AS {'FLOAT' if kinds[2] in _SINGLE else 'DOUBLE'})"
        rating = RatingColumn(number, is_missing=f"coalesce(isnan({number}), true)")
    user, item = (
        _id_column(column, kind, name) for column, kind in zip(quoted[:2], kinds[:2], strict=True)
    )
    rounded = [f"abs({quoted[k]}) >= {_ROUNDS[kinds[k]]}" for k in (0, 1) if kinds[k] in _ROUNDS]
    if is_stream:
        with duckdb_errors(name):
            columns = ", ".join(quoted)
            work.connection.execute(f"CREATE TEMP TABLE {COPY} AS SELECT {columns} FROM {table}")
        table = COPY
    return Scan(
        name,
        table,
        user,
        item,
        rating,
        tuple((f"coalesce({one}, false)", ROUNDED) for one in rounded),
        are_pairs=count == PAIR,
    )


def _id_column(column: str, kind: str, name: str) -> IdColumn:
    """Ids of any type."""
    if kind.startswith(_NO_IDS) or kind.endswith("]"):
        raise RatingsFileError(name, f"ids are of type {kind}; expected numbers or text")
    text = f"CAST({column} AS VARCHAR)"
    if kind in _ROUNDS:  # whole numbers in a column that has had holes
        text = (
            f"CASE WHEN {column} = trunc({column}) AND abs({column}) < {_ROUNDS[kind]} "
            f"THEN CAST(CAST({column} AS BIGINT) AS VARCHAR) "
            f"WHEN isfinite({column}) THEN {text} END"
        )
    if kind not in _INTEGERS:
        return IdColumn(text, stays_text=kind.startswith(_TEXTS))
    # In few bytes where these hold all numbers of the type: that is read several times faster.
    size = "INTEGER" if kind in _SMALL_INTEGERS else "BIGINT"
    return IdColumn(text, f"TRY_CAST({column} AS {size})")
