"""SQL over tables that are named, which can read nothing else unless its author says so."""

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
from momentous.lowrank.data.files.scans import Scan, Work
from momentous.lowrank.data.files.sources import Paths, find_sources, is_stream, receive
from momentous.lowrank.data.files.tables import table_scan

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection
    from typing_extensions import TypeIs

NAME = "the query"
ASK = "full access (full_access=True, --full-access)"


class Table(Protocol):
    """A table of pandas, polars, Arrow or the like."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


@dataclass(frozen=True)
class Query:
    """SQL and what it may read, as `query_ratings` explains them: a source of ratings."""

    sql: str
    tables: Mapping[str, Table | Paths] = field(default_factory=dict)
    full_access: bool = False

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
    if not statements or statements[-1].type.name != "SELECT":
        raise RatingsFileError(NAME, "its last statement must be a SELECT")
    *before, last = statements
    if before and not query.full_access:
        problem = f"it has {len(before) + 1} statements; without {ASK} it is one SELECT"
        raise RatingsFileError(NAME, problem)
    if query.full_access:
        connection.execute("SET autoinstall_known_extensions = true")
        connection.execute("SET autoload_known_extensions = true")
    paths = [path for name in query.tables for path in _add_table(work, query, name)]
    if not query.full_access:
        _shut(connection, paths)
    with duckdb_errors(NAME):
        for statement in before:
            connection.execute(statement)
    try:
        # Only within another statement, as here, can a SELECT not write (WITH x AS (COPY ...)).
        has_stream = any(map(is_table, query.tables.values()))
        return table_scan(last.query.strip().rstrip(";"), NAME, work, has_stream)
    except RatingsFileError as error:
        if isinstance(error.__cause__, require("duckdb", "app", "A query").PermissionException):
            more = f"it reads its tables alone; name the file as one of them, or take {ASK}"
            raise RatingsFileError(NAME, f"{error.problem}: {more}") from error
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
    paths = [file.path for file in files]
    with duckdb_errors(f"the table {name!r}"):
        table = read_files(functions.pop(), paths)
        connection.execute(f"CREATE VIEW {quoted_name(name)} AS SELECT * FROM {table}")
    return paths


def _function(begin: bytes, name: str) -> str:
    """How DuckDB reads a file that begins so."""
    if begin.startswith(b"PAR1"):
        return "read_parquet"
    is_json = begin.lstrip()[:1] in (b"{", b"[") or name.endswith((".json", ".jsonl", ".ndjson"))
    return "read_json" if is_json else "read_csv"
