"""Sweeps and gradients of a low-rank model on 1, 2 and 4 processes: time, bytes, memory, and what
the cost model says beyond.

Each line is a launch: one process without a launcher, or several by torchrun (Gloo), each with so
many threads.  A sweep is an iteration of the accelerated sweeps, with all that belongs to it, and a
gradient is one of `minimize`'s evaluations.  Bytes are counted where they are sent, and held beside
the table of docs/cluster.md: the program ends with an error where they differ by more than 2 %.
Memory is what a process has of its own once all is set up, less what it has after the imports.

The predicted time on P ranks is T_1 / P + V (P - 1) / P / bandwidth + 3 log2(P) latency, with V the
bytes of a sweep in single precision as the table counts them, and T_1 from the time of one process
here, which grows as the number of entries times r (r + 1) (for conjugate gradients: times r, and
from the time of a sweep by these).  Memory per rank is that of the entries by row and by column (16
bytes for each), of six vectors like x, of V, and of the sums that travel at a time.

    python benchmarks/ranks_fit.py [--data netflix-tenth] [--rank 10] [--seconds 3] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import json
import math
import os
import pstats
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

MOST_OFF = 0.02
LAUNCHES = ["1x1", "1x2", "2x1", "4x1"]  # processes, and threads of each
DATA = {  # entries, users, items
    "Netflix": (100_480_507, 480_189, 17_770),
    "10 G ratings": (10**10, 10**9, 10**7),
}
NETWORKS = {  # bytes per second, seconds of latency
    "10 Gb/s": (1.25e9, 50e-6),
    "100 Gb/s": (12.5e9, 10e-6),
    "NVLink": (400e9, 5e-6),
}
RANKS = (1, 8, 32, 128, 1024)


def write_data(name: str, folder: Path) -> None:
    """The twin of a data set, as arrays that processes share."""
    from momentous.lowrank.data.twins import MODELS, Model, twin

    MODELS["netflix-tenth"] = Model(
        48_019, 17_770, 10_048_051, 17_653, 23_294, 3.60, dtype=np.float32
    )
    ratings = twin(name).astype(np.float32)
    for part in ("starts", "others", "values"):
        np.save(folder / f"{part}.npy", getattr(ratings.by_row, part))
    (folder / "shape.json").write_text(json.dumps(ratings.shape))


# --- one process of a launch ----------------------------------------------------------------------


def measure(folder: Path, rank: int, threads: int, seconds: float, profile: bool) -> dict[str, Any]:
    """Seconds and bytes per sweep and per gradient, and the memory of the largest rank."""
    from momentous import accelerate
    from momentous.distributed import find
    from momentous.lowrank import Sweep
    from momentous.lowrank.data.ratings import Compressed, stored_ratings
    from momentous.lowrank.ranks import RankRatings
    from momentous.lowrank.solvers.fit import FitConfig

    ranks = find()
    parts = (
        np.load(folder / f"{part}.npy", mmap_mode="r") for part in ("starts", "others", "values")
    )
    shape = json.loads((folder / "shape.json").read_text())
    before = _own_bytes()
    own: Any = stored_ratings(tuple(shape), Compressed(*parts), (None, None))
    if ranks.size > 1:
        own = RankRatings.share_of(own, ranks)
    config = FitConfig(rank=rank, biases=False, centre=False, threads=threads, backend="numba")
    objective = config.objective(own)
    x = objective.random_start(np.random.default_rng(0))
    sweep = Sweep(objective)
    times: list[tuple[float, int]] = []  # and bytes sent until then

    def note(*_: Any) -> None:
        times.append((perf_counter(), ranks.traffic.bytes))

    def sweeps(count: int) -> None:
        accelerate(
            sweep, sweep.begin(x), value=True, tol=0.0, max_iterations=count, secants=0,
            callback=note, ranks=objective.layout,
        )  # fmt: skip

    def gradients(count: int) -> None:
        for _ in range(count):
            objective.value_and_gradient(x.copy())
            note()

    found = {"shape": shape, "nnz": own.whole.nnz}
    for name, work in {"sweep": sweeps, "gradient": gradients}.items():
        work(3)  # compiles, and shows how long one takes
        longest = ranks.all_reduce(np.diff(times, axis=0)[-1:, 0], "max")
        times.clear()
        _profiled(work, max(6, math.ceil(seconds / longest[0])), profile and ranks.rank == 0)
        time, sent = np.median(np.diff(times, axis=0), axis=0)
        found[name] = {"time": float(time), "bytes": int(sent)}
        times.clear()
    memory = np.array([_own_bytes() - before], np.float64)
    return found | {"memory": float(ranks.all_reduce(memory, "max")[0])}


def _own_bytes() -> int:
    """The memory that this process alone has; the arrays in files are not among it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) * 1024


def _profiled(work: Callable[[int], None], count: int, profile: bool) -> None:
    if not profile:
        work(count)
        return
    profiler = cProfile.Profile()
    profiler.runcall(work, count)
    print(f"{count} times:", file=sys.stderr)
    pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(16)


def launch(folder: Path, processes: int, threads: int, options: list[str]) -> dict[str, Any]:
    """What rank 0 of a launch has measured."""
    worker = [__file__, "--worker", str(folder), "--threads", str(threads), *options]
    command = [sys.executable, *worker]
    if processes > 1:
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
        command[1:1] = launcher
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": str(threads)})
    found: dict[str, Any] = json.loads((folder / "found.json").read_text())
    return found


# --- the cost model -------------------------------------------------------------------------------


def numbers_per_sweep(items: int, rank: int) -> int:
    """reduce_scatter of the systems, and all_gather of the items."""
    return items * (rank * (rank + 1) // 2 + rank) + items * rank


def predicted(alone: float, sent: float, ranks: int, network: str) -> float:
    """Seconds of a sweep."""
    if ranks == 1:
        return alone
    bandwidth, latency = NETWORKS[network]
    travel = sent * (ranks - 1) / ranks / bandwidth
    return alone / ranks + travel + 3 * math.log2(ranks) * latency


def memory(name: str, rank: int, ranks: int) -> float:
    """Bytes on a rank."""
    entries, users, items = DATA[name]
    shared = 3 * 4 * items * rank + 2 * 4 * min(1 << 25, items * rank * (rank + 3) // 2)
    return (16 * entries + 6 * 4 * (users + items) * rank) / ranks + shared


def predictions(per_product: float) -> None:
    """The tables, from the seconds of one process per entry and r (r + 1)."""
    for name, (entries, _, items) in DATA.items():
        for rank in (16, 64, 128):
            alone = per_product * entries * rank * (rank + 1)
            sent = 4 * numbers_per_sweep(items, rank)
            print(f"\n{name}, rank {rank}: {sent / 1e6:,.0f} MB per sweep; seconds per sweep")
            head = "".join(f"{network:>12}" for network in NETWORKS)
            print(f"{'ranks':>7}{head}{'GB per rank':>14}")
            for ranks in RANKS:
                times = (predicted(alone, sent, ranks, network) for network in NETWORKS)
                row = "".join(f"{time:12.4g}" for time in times)
                print(f"{ranks:7}{row}{memory(name, rank, ranks) / 1e9:14.4g}")


def main(given: argparse.Namespace, folder: Path) -> int:
    write_data(given.data, folder)
    options = ["--rank", str(given.rank), "--seconds", str(given.seconds)]
    options += ["--profile"] if given.profile else []
    alone, worst = None, 0.0
    heads = "".join(f"{head:>10}" for head in ("seconds", "speed-up", "MB", "of table", "GB"))
    print(f"processes threads {'':9}{heads}", flush=True)
    for words in given.launches:
        processes, threads = map(int, words.split("x"))
        found = launch(folder, processes, threads, options)
        alone = alone or found
        items = found["shape"][1]
        table = {
            "sweep": 4 * numbers_per_sweep(items, given.rank),
            "gradient": 2 * 4 * items * given.rank,
        }
        for name, expected in table.items():
            this, share = found[name], found[name]["bytes"] / expected
            ratio = alone[name]["time"] / this["time"]
            print(
                f"{processes:9} {threads:7} {name:9}{this['time']:10.4f}{ratio:10.2f}"
                f"{this['bytes'] / 1e6:10.3f}{share:10.3f}{found['memory'] / 1e9:10.3f}",
                flush=True,
            )
            if processes > 1:
                worst = max(worst, abs(share - 1.0))
    assert alone is not None
    if not given.profile:
        predictions(alone["sweep"]["time"] / (alone["nnz"] * given.rank * (given.rank + 1)))
    if worst > MOST_OFF:
        print(f"bytes differ from the table by {worst:.1%}", file=sys.stderr)
    return int(worst > MOST_OFF)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="netflix-tenth")
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--launches", nargs="+", default=LAUNCHES, metavar="PROCESSESxTHREADS")
    parser.add_argument("--profile", action="store_true", help="where rank 0 spends its time")
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is None:
        with tempfile.TemporaryDirectory() as name:
            sys.exit(main(arguments, Path(name)))
    measured = measure(
        arguments.worker, arguments.rank, arguments.threads, arguments.seconds, arguments.profile
    )
    if int(os.environ.get("RANK", "0")) == 0:
        (arguments.worker / "found.json").write_text(json.dumps(measured))
