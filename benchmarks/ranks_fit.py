"""Sweeps and gradients of a low-rank model on 1, 2 and 4 processes: time, bytes, memory, and what
the cost model says about more.

Each line is a launch: one process without a launcher, or several by torchrun (Gloo), each with so
many threads.  "sweep" is an iteration of the accelerated sweeps, with all that belongs to it,
"conjugate" the same by two steps of conjugate gradients per half sweep, "gradient" a value with its
gradient.  The least time of all iterations and rounds counts.  Bytes are counted where they are
sent, and held beside the table of docs/how-to/ratings-on-ranks.md: the program ends with an error
where they differ
by more than 2 %.  Memory is what the largest process has of its own once all is set up, less what
it has after the imports.

The cost model: a sweep on P ranks takes T_1 / P + V (P - 1) / P / bandwidth + 3 log2(P) latency,
with V the bytes of the table and T_1 the time of one process.  For the launches here, bandwidth and
latency are measured with them.  For other sizes T_1 is taken to grow as the number of entries times
r (r + 1), for conjugate gradients times r; of the two ways the faster one is printed.  Memory per
rank is that of the entries by row and by column (16 bytes for each), of six vectors like x, of V,
and of what is on its way.

    python benchmarks/ranks_fit.py [--data netflix-tenth] [--rank 10] [--seconds 3] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import ctypes
import gc
import json
import math
import os
import pstats
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
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
STEPS = 2  # of conjugate gradients, as fits take above rank 16
WORKS = ["sweep", "conjugate", "gradient"]


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


def measure(
    folder: Path, rank: int, threads: int, seconds: float, profile: bool, wanted: list[str]
) -> dict[str, Any]:
    """Seconds and bytes per sweep and per gradient, and the memory of the largest rank."""
    from momentous import accelerate
    from momentous.distributed import find
    from momentous.lowrank import Sweep
    from momentous.lowrank.data.ratings import Compressed, stored_ratings
    from momentous.lowrank.ranks import RankRatings
    from momentous.lowrank.solvers.fit import FitConfig

    ranks = find()
    shape = json.loads((folder / "shape.json").read_text())
    shared = "r" if ranks.size > 1 else None  # of which each rank takes its part
    before = _own_bytes()
    names = ("starts", "others", "values")
    parts = (np.load(folder / f"{part}.npy", mmap_mode=shared) for part in names)
    own: Any = stored_ratings(tuple(shape), Compressed(*parts), (None, None))
    if ranks.size > 1:
        own = RankRatings.share_of(own, ranks)
    plain = {"ridge": "fixed", "biases": False, "centre": False}
    config = FitConfig(rank=rank, threads=threads, backend="numba", **plain)
    objective = config.objective(own)
    x = objective.random_start(np.random.default_rng(0))
    times: list[tuple[float, int]] = []  # and bytes sent until then

    def note(*_: Any) -> None:
        times.append((perf_counter(), ranks.traffic.bytes))

    def sweeps(count: int, steps: int | None = None) -> None:
        sweep = Sweep(objective, steps=steps)
        accelerate(
            sweep, sweep.begin(x), value=True, tol=0.0, max_iterations=count, secants=0,
            callback=note, ranks=objective.layout,
        )  # fmt: skip

    def gradients(count: int) -> None:
        for _ in range(count):
            objective.value_and_gradient(x.copy())
            note()

    found = {"shape": shape, "nnz": own.whole.nnz}
    works = {"sweep": sweeps, "conjugate": partial(sweeps, steps=STEPS), "gradient": gradients}
    for name in wanted:
        work = works[name]
        work(3)  # compiles, and shows how long one takes
        longest = ranks.all_reduce(np.diff(times, axis=0)[-1:, 0], "max")
        times.clear()
        _profiled(work, max(6, math.ceil(seconds / longest[0])), profile and ranks.rank == 0)
        steps = np.diff(times, axis=0)
        found[name] = {"time": float(steps[:, 0].min()), "bytes": int(np.median(steps[:, 1]))}
        times.clear()
    memory = np.array([_own_bytes() - before], np.float64)
    found["memory"] = float(ranks.all_reduce(memory, "max")[0])
    return found | _network(ranks, shape[1] * rank * (rank + 3) // 2)


def _network(ranks: Any, numbers: int) -> dict[str, float]:
    """Bytes per second of a reduce_scatter of so many numbers, and seconds of the shortest call."""

    def least(call: Callable[[], Any]) -> float:
        times = []
        for _ in range(20):
            begin = perf_counter()
            call()
            times.append(perf_counter() - begin)
        return min(times)

    much, little = np.zeros((numbers, 1), np.float32), np.zeros(1)
    latency = least(lambda: ranks.all_reduce(little)) / max(1.0, math.log2(ranks.size))
    travel = max(1e-9, least(lambda: ranks.reduce_scatter(much)) - latency)
    return {"latency": latency, "bandwidth": much.nbytes * (1 - 1 / ranks.size) / travel}


def _own_bytes() -> int:
    """The memory that this process alone has; the arrays in files are not among it."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # gives back what is free
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


def numbers_per_sweep(items: int, rank: int, steps: int | None = None) -> int:
    """The systems, or what conjugate gradients need if that is less; and all_gathers of items."""
    systems = rank * (rank + 1) // 2 + rank
    if steps is None:
        return items * (systems + rank)
    return items * (min(systems, rank + 1 + 2 * steps * rank) + 2 * rank)


def predicted(alone: float, numbers: float, ranks: int, bandwidth: float, latency: float) -> float:
    """Seconds of a sweep."""
    if ranks == 1:
        return alone
    travel = 4 * numbers * (ranks - 1) / ranks / bandwidth
    return alone / ranks + travel + 3 * math.log2(ranks) * latency


def memory(name: str, rank: int, ranks: int, conjugate: bool) -> float:
    """Bytes on a rank."""
    entries, users, items = DATA[name]
    travel = 24 * items * (rank + 1)  # slopes and products in double precision, directions
    if not conjugate:
        travel = 8 * min(1 << 25, items * rank * (rank + 3) // 2)
    shared = (3 * 4 * items * rank + travel) * (ranks > 1)
    return (16 * entries + 6 * 4 * (users + items) * rank) / ranks + shared


def predictions(found: dict[str, Any], measured_rank: int) -> None:
    """The tables, from what one process has measured."""
    per_product = found["sweep"]["time"] / (found["nnz"] * measured_rank * (measured_rank + 1))
    per_pass = found["conjugate"]["time"] / (found["nnz"] * measured_rank)
    for name, (entries, _, items) in DATA.items():
        for rank in (16, 64, 128):
            ways = {  # seconds alone, and numbers
                "by systems": (per_product * entries * rank * (rank + 1),
                               numbers_per_sweep(items, rank)),
                "conjugate": (per_pass * entries * rank, numbers_per_sweep(items, rank, STEPS)),
            }  # fmt: skip
            sizes = ", ".join(f"{4e-6 * way[1]:,.0f} MB {how}" for how, way in ways.items())
            print(f"\n{name}, rank {rank}: {sizes}; seconds per sweep, and GB per rank")
            print(f"{'ranks':>7}" + "".join(f"{network:>25}" for network in NETWORKS))
            for ranks in RANKS:
                row = f"{ranks:7}"
                for network in NETWORKS.values():
                    times = {how: predicted(*way, ranks, *network) for how, way in ways.items()}
                    how = min(times, key=lambda one: times[one])
                    size = memory(name, rank, ranks, how == "conjugate") / 1e9
                    row += f"{times[how]:9.4g} {size:5.4g} {how}"
                print(row)


def main(given: argparse.Namespace, folder: Path) -> int:
    write_data(given.data, folder)
    options = ["--rank", str(given.rank), "--seconds", str(given.seconds)]
    options += ["--works", *given.works, *(["--profile"] if given.profile else [])]
    alone, worst = None, 0.0
    heads = ("seconds", "speed-up", "model", "MB", "of table", "GB")
    print(f"processes threads {'':9}{''.join(f'{head:>10}' for head in heads)}", flush=True)
    launches: dict[str, dict[str, Any]] = {}
    for words in given.launches * given.rounds:
        processes, threads = map(int, words.split("x"))
        found = launch(folder, processes, threads, options)
        for name in given.works:
            before = launches.get(words, found)[name]["time"]
            found[name]["time"] = min(found[name]["time"], before)
        launches[words] = found
    for words, found in launches.items():
        processes, threads = map(int, words.split("x"))
        alone = alone or found
        items, rank = found["shape"][1], given.rank
        table = {
            "sweep": numbers_per_sweep(items, rank),
            "conjugate": numbers_per_sweep(items, rank, STEPS),
            "gradient": 2 * items * rank,
        }
        for name in given.works:
            numbers = table[name]
            this, share = found[name], found[name]["bytes"] / (4 * numbers)
            network = found["bandwidth"], found["latency"]
            model = predicted(alone[name]["time"], numbers, processes, *network) / threads
            print(
                f"{processes:9} {threads:7} {name:9}{this['time']:10.4f}"
                f"{alone[name]['time'] / this['time']:10.2f}{model:10.4f}"
                f"{this['bytes'] / 1e6:10.3f}{share:10.3f}{found['memory'] / 1e9:10.3f}",
                flush=True,
            )
            if processes > 1:
                worst = max(worst, abs(share - 1.0))
    assert alone is not None
    if not given.profile and given.works == WORKS:
        predictions(alone, given.rank)
    if worst > MOST_OFF:
        print(f"bytes differ from the table by {worst:.1%}", file=sys.stderr)
    return int(worst > MOST_OFF)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="netflix-tenth")
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--launches", nargs="+", default=LAUNCHES, metavar="PROCESSESxTHREADS")
    parser.add_argument("--works", nargs="+", default=WORKS, choices=WORKS)
    parser.add_argument("--rounds", type=int, default=2, help="of all launches; the least counts")
    parser.add_argument("--profile", action="store_true", help="where rank 0 spends its time")
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is None:
        with tempfile.TemporaryDirectory() as name:
            sys.exit(main(arguments, Path(name)))
    measured = measure(
        arguments.worker, arguments.rank, arguments.threads, arguments.seconds, arguments.profile,
        arguments.works,
    )  # fmt: skip
    if int(os.environ.get("RANK", "0")) == 0:
        (arguments.worker / "found.json").write_text(json.dumps(measured))
