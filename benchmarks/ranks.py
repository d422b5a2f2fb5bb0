"""A sweep of alternating least squares at ranks 10 to 128: time, share of BLAS's speed, versions.

On a twin of MovieLens-1M, ridge 10, both half sweeps from the factors that three sweeps give.  The
speed of BLAS is that of a product of two 1024 x 1024 matrices on one thread.  "GFLOP/s" counts what
a sweep must do, N r (r + 1) for the sums of each side and r^3/3 for each system, whatever the
kernels spend on zeros.  Times are CPU seconds, the least of several, with wall seconds beside them.
"cg" is a sweep by ``--steps`` steps of conjugate gradients per row (2, as fits above rank 16 have
it), with the turning of the features that belongs to it; what it gains beside an exact one:
benchmarks/sweeps.py.

    OPENBLAS_NUM_THREADS=1 python benchmarks/ranks.py [--rank 10 32 50 64 128] [--steps K]
        [--old FOLDER ...]

``--old`` names folders with other versions of the package, as ``git worktree add FOLDER COMMIT``
makes them: every version has a process of its own, and they take turns.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import subprocess
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np

RIDGE, SIZE = 10.0, 1024


class Times(NamedTuple):
    """Seconds of one sweep."""

    cpu: float
    wall: float


def measured(work: Any) -> Times:
    wall, cpu = perf_counter(), process_time()
    work()
    return Times(process_time() - cpu, perf_counter() - wall)


# --- a version of the package, in a process of its own --------------------------------------------


def serve() -> None:
    """Answer each line of the input, a setting, with the times of a sweep."""
    from momentous.lowrank import ALSSweep, Ratings

    ratings: dict[Any, Any] = {}
    ready: dict[str, Any] = {}
    for line in sys.stdin:
        if line not in ready:
            twin, rank, dtype, threads, count = json.loads(line)
            if (twin, dtype) not in ratings:
                ratings[twin, dtype] = Ratings.twin(twin).astype(np.dtype(dtype))
            data = ratings[twin, dtype]
            sweep = ALSSweep(data, rank, RIDGE, threads)
            V = np.random.default_rng(0).standard_normal((data.shape[1], rank)) / 10
            V = V.astype(dtype)
            half = sweep.objective.half_sweep
            for _ in range(3):
                U, _ = half(0, None, V)
                V, _ = half(1, None, U)
            ready = {line: (sweep, U, V, count)}
        sweep, U, V, count = ready[line]
        half = sweep.objective.half_sweep

        def exact(half: Any = half, U: Any = U, V: Any = V) -> None:
            half(0, None, V)
            half(1, None, U)

        def by_steps(half: Any = half, U: Any = U, V: Any = V, count: int = count) -> None:
            half(0, U, V, steps=count)
            half(1, V, U, with_value=False, steps=count)

        # Older versions of the package have no such steps.
        steps = hasattr(sweep.objective, "principal_axes")
        times = [measured(exact), measured(by_steps) if steps else None]
        print(json.dumps(times), flush=True)


class Version:
    """The package in a folder, or the one that is installed."""

    def __init__(self, folder: str | None):
        self.name = folder or "this one"
        environment = dict(os.environ)
        if folder:
            environment["PYTHONPATH"] = str(Path(folder).resolve() / "src")
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def sweep(self, *setting: Any) -> tuple[Times, Times | None]:
        """Times of an exact sweep, and of one by conjugate gradients where there is that."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(setting), file=self.process.stdin, flush=True)
        exact, steps = json.loads(self.process.stdout.readline())
        return Times(*exact), None if steps is None else Times(*steps)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


# --- the table ------------------------------------------------------------------------------------


def blas_speed(dtype: str) -> float:
    """GFLOP/s of a large product, on one thread."""
    one = np.ones((SIZE, SIZE), dtype)
    return 2e-9 * SIZE**3 / min(measured(lambda: one @ one).cpu for _ in range(5))


def report(given: argparse.Namespace) -> None:
    from momentous.lowrank import Ratings

    ratings = Ratings.twin(given.twin)
    print(f"{given.twin}: {ratings}, ridge {RIDGE:g}")
    versions = [Version(folder) for folder in (None, *given.old)]
    for version in versions[1:]:
        print(f"old: {version.name}")
    print(f"{'rank':>5} {'':8}{'threads':>8}{'CPU s':>9}{'wall s':>9}{'GFLOP/s':>9}{'of BLAS':>9}"
          f"{'cg CPU s':>10}{'wall s':>9}"
          + "".join(f"{'old CPU s':>11}{'ratio':>7}{'of cg':>7}" for _ in given.old))  # fmt: skip
    for dtype in given.dtype:
        for rank in given.rank:
            work = 2.0 * ratings.nnz * rank * (rank + 1) + sum(ratings.shape) * rank**3 / 3
            for threads in given.threads:
                setting = (given.twin, rank, dtype, threads, given.steps)
                for version in versions:
                    version.sweep(*setting)  # compiles
                speed, times = 0.0, [[] for _ in versions]  # type: ignore[var-annotated]
                for _ in range(given.repeats):
                    speed = max(speed, blas_speed(dtype))
                    for version, found in zip(versions, times, strict=True):
                        found.append(version.sweep(*setting))
                cpu = [min(exact.cpu for exact, _ in found) for found in times]
                wall = min(exact.wall for exact, _ in times[0])
                cg = [min(steps[k] for _, steps in times[0]) for k in (0, 1)]
                rate = 1e-9 * work / cpu[0]
                print(f"{rank:>5} {dtype:8}{threads:>8}{cpu[0]:>9.4f}{wall:>9.4f}{rate:>9.1f}"
                      f"{rate / speed:>9.2f}{cg[0]:>10.4f}{cg[1]:>9.4f}"
                      + "".join(f"{old:>11.4f}{cpu[0] / old:>7.2f}{cg[0] / old:>7.2f}"
                                for old in cpu[1:]),
                      flush=True)  # fmt: skip
    for version in versions:
        version.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--twin", default="ml-1m")
    parser.add_argument("--rank", type=int, nargs="+", default=[10, 16, 32, 50, 64, 128])
    parser.add_argument("--dtype", nargs="+", default=["float64", "float32"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=2, metavar="K")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--old", nargs="*", default=[])
    given = parser.parse_args()
    serve() if given.serve else report(given)


if __name__ == "__main__":
    main()
