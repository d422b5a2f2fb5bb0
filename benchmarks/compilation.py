"""What compilation costs: `GridSearchCV` over ranks with an empty cache, a full one, and new ranks.

Each line is a fresh process that searches over ranks with two jobs on a twin, with numba's cache in
a folder that is empty at first: CPU seconds (of all jobs) and wall seconds, and their ratios to the
warm search.  "new ranks" has ranks that no process has seen before, in the cache that the search
over other ranks left: kernels are for all ranks, so that it should be about as fast as the warm one
(at ranks that cost as much).

    OPENBLAS_NUM_THREADS=1 python benchmarks/compilation.py [--twin ml-1m] [--sweeps 10]
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import subprocess
import sys
import tempfile
from time import perf_counter

RANKS, NEW_RANKS = (20, 32, 48), (21, 31, 47)
SEARCH = """
import numpy as np
from sklearn.model_selection import GridSearchCV
from momentous.lowrank import MatrixCompletion, Ratings

ratings = Ratings.twin({twin!r})
pairs = np.column_stack([ratings.rows, ratings.cols])
fit = MatrixCompletion(max_iterations={sweeps}, tol=0.0, threads=1)
GridSearchCV(fit, {{"rank": {ranks}}}, cv=2, n_jobs=2, refit=False).fit(pairs, ratings.values)
"""


def search(twin: str, sweeps: int, ranks: tuple[int, ...], cache: str) -> tuple[float, float]:
    """CPU and wall seconds of a process that searches over these ranks."""
    code = SEARCH.format(twin=twin, sweeps=sweeps, ranks=list(ranks))
    before, began = os.times(), perf_counter()
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    after = os.times()
    cpu = after.children_user + after.children_system
    return cpu - before.children_user - before.children_system, perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--twin", default="ml-1m")
    parser.add_argument("--sweeps", type=int, default=10)
    given = parser.parse_args()
    print(f"{given.twin}, ranks {RANKS}, 2 folds, {given.sweeps} sweeps, 2 jobs")
    with tempfile.TemporaryDirectory() as cache:
        found = {
            name: search(given.twin, given.sweeps, ranks, cache)
            for name, ranks in (
                ("empty cache", RANKS),
                ("warm", RANKS),
                (f"new ranks {NEW_RANKS}", NEW_RANKS),
            )
        }
    print(f"{'':28}{'CPU s':>8}{'ratio':>7}{'wall s':>8}{'ratio':>7}")
    for name, (cpu, wall) in found.items():
        ratios = cpu / found["warm"][0], wall / found["warm"][1]
        print(f"{name:28}{cpu:>8.1f}{ratios[0]:>7.2f}{wall:>8.1f}{ratios[1]:>7.2f}")


if __name__ == "__main__":
    main()
