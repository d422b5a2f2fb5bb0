"""SQL over tables that are named, which can read nothing else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from momentous.io.optional import require
from momentous.lowrank.data.errors import RatingsFileError
from momentous.lowrank.data.files.database import (
    duckdb_errors,
    quoted_name,
    quoted_text,
    read_files,
)
from momentous.lowrank.data.files.dialect import check_columns
from momentous.lowrank.data.files.scans import Scan, Work
from momentous.lowrank.data.files.sources import Paths, find_sources, is_stream, receive
from momentous.lowrank.data.files.tables import table_scan

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection
    from typing_extensions import TypeIs

NAME = "the query"
ELSE = "name the file as one of them, or let Ratings.read read what duckdb.sql(...) returns"


class Table(Protocol):
    """A table of pandas, polars, Arrow or the like."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


@dataclass(frozen=True)
class Query:
    """SQL and what it may read, as `query_ratings` explains them: a source of ratings."""

    sql: str
    tables: Mapping[str, Table | Paths] = field(default_factory=dict)

    def __str__(self) -> str:
        return NAME


def is_table(source: object) -> TypeIs[Table]:
    """Is this a table of pandas, polars, Arrow or the like?"""
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "iloc")


@contextlib.contextmanager
def open_table(work: Work, source: Table | Query) -> Iterator[Scan]:
    """A scan of all rows of a table or a query.

    A table may be a stream, which can be read only once: there is no second way then.
    """
    if isinstance(source, Query):
        yield _query_scan(work, source)
        return
    name = f"the {type(source).__name__}"
    if "duckdb" in type(source).__module__:  # a relation is known to its own database alone
        arrow = require("pyarrow", "app", "Reading a relation of DuckDB")
        source = arrow.RecordBatchReader.from_stream(source)
    with duckdb_errors(name):
        work.connection.register("source_table", source)
    try:
        yield table_scan("SELECT * FROM source_table", name, work, is_stream=True)
    finally:
        work.connection.unregister("source_table")


def _query_scan(work: Work, query: Query) -> Scan:
    connection = work.connection
    with duckdb_errors(NAME):
        statements = connection.extract_statements(query.sql)
    if len(statements) != 1 or statements[0].type.name != "SELECT":
        found = ", ".join(one.type.name for one in statements) or "no statement"
        raise RatingsFileError(NAME, f"expected one SELECT, found {found}")
    _shut(connection, [path for name in query.tables for path in _add_table(work, query, name)])
    try:
        # Only within another statement, as here, can a SELECT not write (WITH x AS (COPY ...)).
        has_stream = any(map(is_table, query.tables.values()))
        return table_scan(statements[0].query.strip().rstrip(";"), NAME, work, has_stream)
    except RatingsFileError as error:
        if isinstance(error.__cause__, require("duckdb", "app", "A query").PermissionException):
            raise RatingsFileError(
                NAME, f"{error.problem}: it reads its tables alone; {ELSE}"
            ) from error
        raise


def _shut(connection: Connection, paths: list[Path]) -> None:
    """No files but these, no network, no extensions; and no way back."""
    if paths:
        allowed = ", ".join(quoted_text(os.path.abspath(path)) for path in paths)
        connection.execute(f"SET allowed_paths = [{allowed}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _add_table(work: Work, query: Query, name: str) -> list[Path]:
    """Make a table known by its name; returns the files that it is read from, later."""
    source, connection = query.tables[name], work.connection
    if is_table(source):
        with duckdb_errors(f"the table {name!r}"):
            connection.register(name, source)
        return []
    limits = work.options.limits
    found = receive(source, work.folder, limits) if is_stream(source) else find_sources(source)
    files = [one.unpacked(work.folder, limits) for one in found]
    functions = {_function(file.begin, file.inner_name) for file in files}
    if len(functions) > 1:
        raise RatingsFileError(files[0].name, f"the table {name!r} has files of different kinds")
    function, paths = functions.pop(), [file.path for file in files]
    if function == "read_csv":  # DuckDB takes minutes to look at columns by the thousand
        for file in files:
            marks = max(map(file.head.lines[0].count, ",;\t|"))
            check_columns(marks + 1, file.head, limits)
    with duckdb_errors(f"the table {name!r}"):
        table = read_files(function, paths)
        connection.execute(f"CREATE VIEW {quoted_name(name)} AS SELECT * FROM {table}")
    return paths


def _function(begin: bytes, name: str) -> str:
    """How DuckDB reads a file that begins so."""
    if begin.startswith(b"PAR1"):
        return "read_parquet"
    is_json = begin.lstrip()[:1] in (b"{", b"[") or name.endswith((".json", ".jsonl", ".ndjson"))
    return "read_json" if is_json else "read_csv"
