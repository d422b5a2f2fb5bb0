"""The size of the Netflix prize data: what a fit of 100 million ratings takes in time and memory.

The synthetic twin is made (480,189 x 17,770, 100,480,507 ratings, in float32), then come the SVD
start, 20 accelerated sweeps of alternating least squares and 100 values with gradients, at rank 10.
After each, the time it took, the memory in use and the peak so far, as the operating system counts
them, in GB of 10^9 bytes; at the end the peak beyond the ratings as they are stored, once.

    OPENBLAS_NUM_THREADS=1 python benchmarks/netflix.py [--scale 0.1] [--threads 2]

With a scale there are that share of the users and of the ratings, and all of the items.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import dataclasses
import resource
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from momentous import accelerate
from momentous.lowrank import ALSSweep, LowRankObjective, Ratings
from momentous.lowrank.data.twins import MODELS

SWEEPS, EVALUATIONS, GB = 20, 100, 1e9


def memory_now() -> float:
    """Resident memory, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * float(resource.getpagesize())


def memory_peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0  # Linux counts in KiB


def phase(name: str, work: Callable[[], Any]) -> Any:
    """Do it, and tell what it took."""
    began = perf_counter()
    result = work()
    seconds = perf_counter() - began
    print(
        f"{name:34}{seconds:>9.1f}{memory_now() / GB:>10.2f}{memory_peak() / GB:>10.2f}", flush=True
    )
    return result


def twin(scale: float) -> Ratings:
    if scale == 1.0:
        return Ratings.twin("netflix")
    whole = MODELS["netflix"]
    shares = {key: round(scale * getattr(whole, key)) for key in ("users", "count", "most_rated")}
    MODELS["scaled"] = dataclasses.replace(whole, **shares)
    return Ratings.twin("scaled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    print(f"{'':34}{'seconds':>9}{'GB now':>10}{'GB peak':>10}", flush=True)
    phase("imports", lambda: None)
    ratings = phase("twin", lambda: twin(chosen.scale))
    storage = ratings.by_row
    size = storage.starts.nbytes + storage.others.nbytes + storage.values.nbytes
    problem = LowRankObjective(ratings, chosen.rank, threads=chosen.threads)
    x = phase("SVD start", problem.start)
    sweep = phase(
        "the entries grouped by column, too",
        lambda: ALSSweep(ratings, chosen.rank, threads=chosen.threads),
    )
    # The sweep begins at the columns of the start; the SVD is not done a second time.
    V = problem.split(x)[1]
    state = phase("first half sweep (and compilation)", lambda: sweep.start(V))
    phase(
        f"{SWEEPS} accelerated sweeps",
        lambda: accelerate(sweep, state, True, tol=0.0, max_iterations=SWEEPS),
    )
    phase("first gradient (and compilation)", lambda: problem.value_and_gradient(x))
    phase(
        f"{EVALUATIONS} values with gradients",
        lambda: [problem.value_and_gradient(x)[0] for _ in range(EVALUATIONS)],
    )
    print(f"{ratings}, rank {chosen.rank}, {chosen.threads} threads")
    print(
        f"the ratings: {size / GB:.2f} GB; peak {memory_peak() / GB:.2f} GB, "
        f"{(memory_peak() - size) / GB:.2f} GB beyond them"
    )


if __name__ == "__main__":
    main()
