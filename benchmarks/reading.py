"""How long it takes to read ratings from text, beside a plain query of DuckDB.

Ten million rows are written into a temporary folder: with ids that are text, in the ``::`` format,
and with ids that are numbers, as CSV.  Each is read by `read_ratings` (lines checked, ids coded,
entries sorted) and by DuckDB's own CSV reader with a query that codes and sorts, too, but checks
nothing.  CPU seconds are those of all threads.

    python benchmarks/reading.py [--rows 10000000] [--threads 2]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from momentous.lowrank import read_ratings

USERS, ITEMS, BLOCK = 70_000, 10_000, 500_000


def write(folder: Path, rows: int) -> dict[str, Path]:
    """The files, by a word for each."""
    rng = np.random.default_rng(0)
    paths = {"text ids, ::": folder / "ratings.dat", "number ids, CSV": folder / "ratings.csv"}
    with paths["text ids, ::"].open("w") as dat, paths["number ids, CSV"].open("w") as csv:
        csv.write("userId,movieId,rating,timestamp\n")
        for begin in range(0, rows, BLOCK):
            size = min(BLOCK, rows - begin)
            users = rng.integers(0, USERS, size).tolist()
            items = (rng.zipf(1.1, size) % ITEMS).tolist()
            stars = (rng.integers(1, 11, size) / 2).tolist()
            triples = list(zip(users, items, stars, strict=True))
            dat.writelines(f"user{u}::item{i}::{r}::978300760\n" for u, i, r in triples)
            csv.writelines(f"{u},{i},{r},978300760\n" for u, i, r in triples)
    return paths


def plain_query(path: Path, threads: int | None) -> None:
    """What a person who knows DuckDB would write."""
    between = "::" if path.suffix == ".dat" else ","
    with duckdb.connect(config={"threads": threads} if threads else {}) as connection:
        connection.execute(
            f"CREATE TABLE raw AS SELECT * FROM read_csv('{path}', delim = '{between}', "
            f"header = {path.suffix == '.csv'}, "
            "columns = {'u': 'VARCHAR', 'i': 'VARCHAR', 'v': 'DOUBLE', 't': 'VARCHAR'})"
        )
        for side in "ui":
            connection.execute(
                f"CREATE TABLE codes_{side} AS SELECT {side}, row_number() OVER (ORDER BY {side}) "
                f"- 1 AS {side}_code FROM (SELECT DISTINCT {side} FROM raw)"
            )
        connection.execute(
            "SELECT u_code, i_code, v FROM raw JOIN codes_u USING (u) JOIN codes_i USING (i) "
            "ORDER BY u_code, i_code"
        ).fetchnumpy()


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """CPU seconds and seconds."""
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.perf_counter() - begin


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    import warnings

    warnings.simplefilter("ignore", RuntimeWarning)  # pairs that are drawn twice
    with tempfile.TemporaryDirectory() as folder:
        for words, path in write(Path(folder), given.rows).items():
            ours = timed(lambda path=path: read_ratings(path, cache=False, threads=given.threads))
            plain = timed(lambda path=path: plain_query(path, given.threads))
            for name, (cpu, seconds) in (("read_ratings", ours), ("plain DuckDB", plain)):
                print(f"{words:16}  {name:12}  {cpu:6.2f} CPU s  {seconds:6.2f} s", flush=True)


if __name__ == "__main__":
    main()
