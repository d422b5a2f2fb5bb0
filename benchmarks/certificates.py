"""What the certificate of a fit says of the twin of a data set, and its time in sweeps of that fit.

    python benchmarks/certificates.py [ml-1m] [--rank 10] [--ridge 75] [--device cpu]

Without a ridge it is the default, which grows with the number of ratings of a user; a given one is
the same for all.  A GPU reads twins in single precision.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from momentous.lowrank import MatrixCompletion, Ratings
from momentous.lowrank.solvers.certificate import certify
from momentous.lowrank.solvers.sweeps import Sweep, automatic_steps

REPEATS = 3


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """The shortest of some calls, after one that may compile, and what the last returns."""
    found, times = work(), []
    for _ in range(REPEATS):
        began = time.perf_counter()
        found = work()
        times.append(time.perf_counter() - began)
    return min(times), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("twin", nargs="?", default="ml-1m")
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--ridge", type=float)
    parser.add_argument("--tol", type=float, default=1e-7)
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    ratings = Ratings.twin(asked.twin)
    if asked.device != "cpu":
        ratings = ratings.astype(np.float32)
    plain = {"ridge": "fixed"} if asked.ridge is None else {"ridge": asked.ridge, "weighting": 0.0}
    # A proof asks for more sweeps than good predictions do.
    model = MatrixCompletion(
        asked.rank, tol=asked.tol, max_iterations=300, device=asked.device, **plain
    )
    began = time.perf_counter()
    model.fit(ratings)
    print(f"{ratings.nnz:,} ratings, rank {asked.rank}: {model.n_iter_} sweeps, "
          f"{time.perf_counter() - began:.1f} s, objective {model.objective_:.8g}")  # fmt: skip
    objective, x = model.model_.problem(device=asked.device)
    sweep = Sweep(objective, steps=automatic_steps(objective))
    state = sweep.begin(x)

    def wait() -> None:
        if asked.device != "cpu":
            import cupy

            cupy.cuda.Device().synchronize()

    one_sweep, _ = seconds(lambda: (sweep(state), wait()))
    proof, found = seconds(lambda: certify(objective, x))
    print(f"{found.verdict.name}, relative gap {found.relative_gap:.2g}: {found}")
    print(f"a sweep {1e3 * one_sweep:.4g} ms, the certificate {1e3 * proof:.4g} ms: "
          f"{proof / one_sweep:.2f} sweeps")  # fmt: skip


if __name__ == "__main__":
    main()
