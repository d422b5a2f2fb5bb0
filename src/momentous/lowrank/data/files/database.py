"""Connections to DuckDB, its errors in our words, and its SQL."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from momentous.io.optional import require
from momentous.lowrank.checks import thread_count
from momentous.lowrank.data.errors import RatingsFileError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection

THREADS_PER_CORE = 4  # that DuckDB may start; it starts as many as it is asked for, at once

# Nothing is downloaded or loaded because of what a file is called, and no variable of Python is a
# table because of its name.
_CLOSED = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}


@contextlib.contextmanager
def open_database(folder: Path, threads: int | None = None) -> Iterator[Connection]:
    """A connection to DuckDB, which puts what does not fit into memory into the folder."""
    settings = {**_CLOSED, "temp_directory": str(folder / "spill")}
    if threads is not None:
        settings["threads"] = str(min(threads, THREADS_PER_CORE * thread_count(None)))
    with _duckdb().connect(":memory:", config=settings) as connection:
        yield connection


def _duckdb() -> ModuleType:
    return require("duckdb", "app", "Reading a file or a table of ratings")


@contextlib.contextmanager
def duckdb_errors(name: str) -> Iterator[None]:
    """Errors of DuckDB become ours, in one line: those that Arrow passes on are errors of the
    system or of Arrow."""
    arrow = require("pyarrow", "app", "Reading ratings")
    try:
        yield
    except (_duckdb().Error, arrow.ArrowException, OSError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise RatingsFileError(name, f"cannot be read: {reason[0]}") from error


def quoted_text(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def quoted_name(name: str) -> str:
    """The name of a table or a column as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def read_files(function: str, paths: list[Path], *options: str) -> str:
    """A function of DuckDB that reads files, as SQL.

    DuckDB would take the name of a folder, ``rating=99``, for a column of all files below it.
    """
    names = ", ".join(quoted_text(str(path)) for path in paths)
    return f"{function}({', '.join([f'[{names}]', *options, 'hive_partitioning = false'])})"
