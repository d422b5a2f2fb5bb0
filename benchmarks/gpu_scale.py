"""Sweeps and gradients on a GPU by the number of ratings, until memory or the index type ends.

python benchmarks/gpu_scale.py TABLE.csv PICTURE.svg    draws the table that gpu.py wrote
"""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

COUNTS = (10**6, 3 * 10**6, 10**7, 3 * 10**7, 10**8, 3 * 10**8, 10**9, 2 * 10**9)
COLUMNS = ("ratings", "bytes on the device", "ms per sweep, rank 10", "ms per sweep, rank 32",
           "ms per value and gradient, rank 10")  # fmt: skip
USERS_PER, ITEMS = 200, 17_770


def scaling(folder: Path | None) -> None:
    """In single precision; the table goes to the folder of the variable OUT, too, if it is set."""
    import cupy

    print("\nsynthetic ratings: " + ", ".join(COLUMNS))
    rows, pool = [], cupy.get_default_memory_pool()
    for count in COUNTS:
        try:
            rows.append(scaled(count))
            print("  " + "  ".join(f"{one:>16,}" for one in rows[-1]), flush=True)
        except (MemoryError, ValueError) as error:
            print(f"  {count:>16,}  {error}", flush=True)
        pool.free_all_blocks()
    with Path(os.environ.get("OUT", ".")).joinpath("gpu_scaling.csv").open("w") as file:
        csv.writer(file).writerows([COLUMNS, *rows])


def scaled(entries: int) -> tuple[float, ...]:
    """Users with 200 ratings on average, and items as popular as those of the Netflix data."""
    import cupy

    from gpu_common import timed
    from momentous.lowrank import find_backend
    from momentous.lowrank.backends import PlainTerms, RowStep
    from momentous.lowrank.losses import find_loss

    groups = synthetic(entries)
    users = groups.starts.size - 1
    backend: Any = find_backend("cuda", "cuda")
    side: Any = backend.side(groups, find_loss("squared"), 1)
    sides = side, side.twin(ITEMS)
    times = []
    for rank in (10, 32):
        U, V = (cupy.random.standard_normal((n, rank), np.float32) for n in (users, ITEMS))
        weights = [cupy.full((n, rank), 5.0, np.float32) for n in (users, ITEMS)]

        steps = RowStep(weights[0], V), RowStep(weights[1], U, with_value=False)

        def sweep(steps: tuple[RowStep, RowStep] = steps) -> None:
            for one, step in zip(sides, steps, strict=True):
                one.solve_rows(step)

        times.append(timed(sweep, 5, 2))
    x = cupy.random.standard_normal((users + ITEMS, 10), np.float32)
    gradient, terms = cupy.empty_like(x), PlainTerms(1.0 / entries, 1.0, 0.0, 0.0)

    def both() -> float:
        value: float = backend.plain_objective(sides.__getitem__, x, users, terms, gradient)
        return value

    times.append(timed(both, 5, 2))
    return entries, cupy.get_default_memory_pool().used_bytes(), *(round(t, 3) for t in times)


def synthetic(entries: int) -> Any:
    """Ratings by user, made on the device."""
    import cupy

    from momentous.lowrank.data.ratings import Compressed
    from momentous.lowrank.data.twins import power_law

    users = entries // USERS_PER
    law = power_law(ITEMS, 100_480_507, 1, 232_944, 1.5)
    ends = cupy.asarray(np.cumsum(law) / law.sum())
    others = cupy.empty(entries, np.int32)
    for begin in range(0, entries, 10**7):
        part = slice(begin, min(begin + 10**7, entries))
        others[part] = cupy.searchsorted(ends[:-1], cupy.random.random(part.stop - part.start))
    counts = cupy.random.geometric(1 / 180, users).astype(np.int64) + 20
    starts = cupy.zeros(users + 1, np.int64)
    cupy.cumsum(counts, out=starts[1:])
    starts = cupy.minimum(starts, entries)
    starts[-1] = entries
    values = cupy.empty(entries, np.float32)
    for begin in range(0, entries, 10**7):
        part = slice(begin, min(begin + 10**7, entries))
        values[part] = cupy.random.randint(1, 6, part.stop - part.start)
    return Compressed(starts, others, values)


def draw(table: Path, picture: Path) -> None:
    """Time against the number of ratings, both on logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "momentous"
    from matplotlib import pyplot

    with table.open() as file:
        names, *rows = csv.reader(file)
    numbers = np.array(rows, float)
    figure, axes = pyplot.subplots(figsize=(6.4, 4.0), layout="constrained")
    for k, mark in zip((2, 3, 4), "osd", strict=True):
        axes.loglog(numbers[:, 0], numbers[:, k], marker=mark, label=names[k].removeprefix("ms "))
    axes.set_xlabel("ratings")
    axes.set_ylabel("ms")
    axes.grid(which="both", alpha=0.2)
    axes.legend()
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    draw(*map(Path, sys.argv[1:]))
