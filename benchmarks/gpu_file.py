"""From a Parquet file with a hundred million ratings to a saved model on the GPU, part by part."""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from gpu_common import report
from momentous.lowrank import Ratings
from momentous.lowrank.data import read
from momentous.lowrank.model import fit_model, load_model, save_model
from momentous.lowrank.solvers.fit import FitConfig

USERS, ITEMS, EACH = 480_189, 17_770, 209  # 100 million, as in the Netflix data
WHOLE_BOUND, FIT_BOUND = 8.0, 0.3  # s


def write_parquet(path: Path, each: int) -> None:
    """Different pairs in no order of users or items."""
    import duckdb

    duckdb.sql(
        f"COPY (SELECT (range * 7919 % {USERS})::INTEGER AS user, "
        f"((hash(range * 7919 % {USERS}) % {ITEMS} + range // {USERS} * 83) % {ITEMS})::INTEGER "
        f"AS item, (1 + hash(range) % 5)::TINYINT AS rating FROM range({USERS} * {each})) "
        f"TO '{path}' (FORMAT parquet)"
    )


def file(folder: Path | None) -> None:
    """Reading, numbering ids and sorting, fitting, saving."""
    with tempfile.TemporaryDirectory() as place:
        small, large = Path(place, "small.parquet"), Path(place, "large.parquet")
        write_parquet(small, 5)
        began = perf_counter()
        write_parquet(large, EACH)
        size = large.stat().st_size
        print(f"\nfrom file to model; the file of {size:,} bytes was written in "
              f"{perf_counter() - began:.1f} s")  # fmt: skip
        from_file(small, Path(place, "model"), quiet=True)  # kernels are compiled
        for _ in range(2):
            from_file(large, Path(place, "model"))
        _, extra = load_model(Path(place, "model"))
        assert extra == {"made": "from a file"}


def from_file(path: Path, out: Path, quiet: bool = False) -> None:
    """One time all of it."""
    parts: dict[str, float] = {}
    began = perf_counter()
    taken = read.read_triples

    def watched(*given: Any) -> Any:
        found = taken(*given)
        parts["read by DuckDB"] = perf_counter() - began
        return found

    read.read_triples = watched  # type: ignore[assignment]
    try:
        ratings = Ratings.read(path, cache=False, device="cuda")
    finally:
        read.read_triples = taken
    parts["ids numbered, sorted"] = perf_counter() - began - parts["read by DuckDB"]
    begun = perf_counter()
    config = FitConfig(rank=10, max_iterations=20, tol=0.0, device="cuda")
    found = fit_model(ratings, config)
    parts["fit, 20 iterations, all of it"] = perf_counter() - begun
    begun = perf_counter()
    save_model(found.model, out, {"made": "from a file"})
    parts["save"] = perf_counter() - begun
    whole = perf_counter() - began
    if quiet:
        return
    print(f"  {ratings}")
    for name, seconds in parts.items():
        report(f"  {name}", seconds, None, "s")
    report("  of the fit, the iterations", found.result.time, FIT_BOUND, "s")
    report("  from file to saved model", whole, WHOLE_BOUND, "s")
