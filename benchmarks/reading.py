"""How long it takes to read ratings, beside a plain query of DuckDB.

Ten million rows are written into a temporary folder: CSV and ``::`` with ids that are numbers,
``::`` with ids that are text, the format of the Netflix prize, and Parquet.  Each is read, in a
process of its own, by `read_ratings` (lines checked, ids coded, entries sorted) and, except for
Netflix, by DuckDB's own reader with a query that codes and sorts, too, but checks nothing.  CPU
seconds are those of all threads; the peak of memory is that of the process.

    python benchmarks/reading.py [--rows 10000000] [--threads 2]
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import resource
import tempfile
import time
import warnings
from pathlib import Path

import duckdb
import numpy as np

from momentous.lowrank import read_ratings

USERS, ITEMS, BLOCK = 70_000, 10_000, 500_000


def write(folder: Path, rows: int) -> dict[str, Path]:
    """The files, by a word for each."""
    rng = np.random.default_rng(0)
    paths = {
        "number ids, CSV": folder / "ratings.csv",
        "number ids, ::": folder / "ratings.dat",
        "text ids, ::": folder / "texts.dat",
        "number ids, Netflix": folder / "combined_data_1.txt",
        "number ids, Parquet": folder / "ratings.parquet",
    }
    csv, dat, texts, netflix = (path.open("w") for path in list(paths.values())[:4])
    with csv, dat, texts, netflix:
        csv.write("userId,movieId,rating,timestamp\n")
        for begin in range(0, rows, BLOCK):
            size = min(BLOCK, rows - begin)
            users = rng.integers(0, USERS, size).tolist()
            items = (rng.zipf(1.1, size) % ITEMS).tolist()
            stars = (rng.integers(1, 11, size) / 2).tolist()
            triples = list(zip(users, items, stars, strict=True))
            csv.writelines(f"{u},{i},{r},978300760\n" for u, i, r in triples)
            dat.writelines(f"{u}::{i}::{r}::978300760\n" for u, i, r in triples)
            texts.writelines(f"user{u}::item{i}::{r}::978300760\n" for u, i, r in triples)
        first = 0
        for movie, count in enumerate(rng.multinomial(rows, np.full(ITEMS, 1 / ITEMS)).tolist(), 1):
            users = (np.arange(first, first + count) * 7919 % USERS).tolist()
            netflix.write(f"{movie}:\n")
            netflix.writelines(f"{u},{u % 5 + 1},2005-09-06\n" for u in users)
            first += count
    duckdb.sql(
        f"COPY (SELECT * FROM read_csv('{paths['number ids, CSV']}')) "
        f"TO '{paths['number ids, Parquet']}'"
    )
    return paths


def ours(path: Path, threads: int | None) -> None:
    """What this library does."""
    read_ratings(path, cache=False, threads=threads)


def plain_query(path: Path, threads: int | None) -> None:
    """What a person who knows DuckDB would write."""
    columns = "{'u': 'VARCHAR', 'i': 'VARCHAR', 'v': 'DOUBLE', 't': 'VARCHAR'}"
    table = (
        f"read_parquet('{path}') AS r(u, i, v, t)"
        if path.suffix == ".parquet"
        else f"read_csv('{path}', delim = '{'::' if path.suffix == '.dat' else ','}', "
        f"header = {path.suffix == '.csv'}, columns = {columns})"
    )
    with duckdb.connect(config={"threads": threads} if threads else {}) as connection:
        connection.execute(f"CREATE TABLE raw AS SELECT * FROM {table}")
        for side in "ui":
            connection.execute(
                f"CREATE TABLE codes_{side} AS SELECT {side}, row_number() OVER (ORDER BY {side}) "
                f"- 1 AS {side}_code FROM (SELECT DISTINCT {side} FROM raw)"
            )
        connection.execute(
            "SELECT u_code, i_code, v FROM raw JOIN codes_u USING (u) JOIN codes_i USING (i) "
            "ORDER BY u_code, i_code"
        ).fetchnumpy()


def measured(name: str, path: Path, threads: int | None) -> tuple[float, float, float]:
    """CPU seconds, seconds, and the peak of memory in MB."""
    warnings.simplefilter("ignore", RuntimeWarning)  # pairs that are drawn twice
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    {"read_ratings": ours, "plain DuckDB": plain_query}[name](path, threads)
    seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, seconds, peak_memory()


def peak_memory() -> float:
    """In MB, of this program alone: on Linux `ru_maxrss` counts what started it, too."""
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s+(\d+)", status.read_text())
        if found:
            return int(found[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    processes = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        for words, path in write(Path(folder), given.rows).items():
            for name in ("read_ratings", "plain DuckDB"):
                if name == "plain DuckDB" and "Netflix" in words:
                    continue
                with processes.Pool(1) as pool:
                    found = pool.apply(measured, (name, path, given.threads))
                cpu, seconds, memory = found
                print(
                    f"{words:20}  {name:12}  {cpu:6.2f} CPU s  {seconds:6.2f} s  {memory:6,.0f} MB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
