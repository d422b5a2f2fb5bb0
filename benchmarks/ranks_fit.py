"""Sweeps and gradients of a low-rank model on 1, 2 and 4 processes: time, bytes, and predictions.

Each number of processes is a launch of torchrun (Gloo) with one thread per process.  Bytes are
counted where they are sent, and held beside the table of docs/cluster.md: the program ends with an
error where they differ by more than 2 %.  A gradient gathers the items and scatters their gradient,
which on a ring is as much as one all_reduce.

The prediction for P ranks is T_1 / P + V (P - 1) / P / bandwidth + 3 log2(P) latency with V the
bytes of a sweep in single precision, and T_1 from the time of one process here, which grows as the
number of entries times r (r + 1).  Memory per rank is that of the entries by row and by column (16
bytes for each), of six vectors like x, of V, and of the sums that travel at a time.

    python benchmarks/ranks_fit.py [--data ml-1m] [--rank 10] [--processes 1 2 4] [--seconds 3]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

MOST_OFF = 0.02
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


# --- one process of a launch ----------------------------------------------------------------------


def measure(data: str, rank: int, seconds: float) -> dict[str, Any]:
    """Seconds and bytes per sweep and per gradient on these ranks."""
    from momentous.distributed import find
    from momentous.lowrank import Ratings, Sweep
    from momentous.lowrank.ranks import RankRatings
    from momentous.lowrank.solvers.fit import FitConfig

    ranks = find()
    own = RankRatings.share_of(Ratings.twin(data).astype(np.float32), ranks)
    config = FitConfig(rank=rank, biases=False, centre=False, threads=1, backend="numba")
    objective = config.objective(own)
    x = objective.random_start(np.random.default_rng(0))
    sweep = Sweep(objective)
    state = sweep.begin(x)
    found = {"nnz": own.whole.nnz, "shape": own.whole.shape}
    for name, work in {
        "sweep": lambda: sweep(state.copy()),
        "gradient": lambda: objective.value_and_gradient(x.copy()),
    }.items():
        work()  # compiles
        found[name] = _repeated(work, seconds, ranks)
    return found


def _repeated(work: Callable[[], Any], seconds: float, ranks: Any) -> dict[str, float]:
    """The least wall and CPU seconds of several calls, those of the slowest rank."""
    best, spent, before = np.full(2, np.inf), 0.0, ranks.traffic.bytes
    work()
    sent = ranks.traffic.bytes - before
    while spent < seconds:
        begin = perf_counter(), process_time()
        work()
        took = np.array([perf_counter() - begin[0], process_time() - begin[1]])
        best = np.minimum(best, ranks.all_reduce(took, "max"))
        spent += float(ranks.all_reduce(took[:1], "max")[0])
    return {"wall": float(best[0]), "cpu": float(best[1]), "bytes": sent}


def launch(processes: int, data: str, rank: int, seconds: float) -> dict[str, Any]:
    """What rank 0 of a launch has measured."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        worker = [__file__, "--worker", str(out), "--data", data, "--rank", str(rank)]
        command = [sys.executable, *worker, "--seconds", str(seconds)]
        if processes > 1:
            launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
            command[1:1] = launcher
        subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        found: dict[str, Any] = json.loads(out.read_text())
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


def main(arguments: argparse.Namespace) -> int:
    data, rank, worst, alone = arguments.data, arguments.rank, 0.0, None
    heads = "".join(f"{head:>9}" for head in ("wall s", "CPU s", "speed-up"))
    print(f"{'processes':>9} {'':9}{heads}{'bytes':>12}{'of table':>9}")
    for processes in arguments.processes:
        found = launch(processes, data, rank, arguments.seconds)
        alone = alone or found
        items = found["shape"][1]
        table = {"sweep": 4 * numbers_per_sweep(items, rank), "gradient": 2 * 4 * items * rank}
        for name, expected in table.items():
            this, share = found[name], found[name]["bytes"] / expected
            ratio = alone[name]["cpu"] / this["cpu"]
            print(
                f"{processes:9} {name:9}{this['wall']:9.4f}{this['cpu']:9.4f}{ratio:9.2f}"
                f"{this['bytes']:12,}{share:9.3f}"
            )
            worst = max(worst, abs(share - 1.0))
    assert alone is not None
    predictions(alone["sweep"]["cpu"] / (alone["nnz"] * rank * (rank + 1)))
    if worst > MOST_OFF:
        print(f"bytes differ from the table by {worst:.1%}", file=sys.stderr)
    return int(worst > MOST_OFF)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--worker", type=Path)
    given = parser.parse_args()
    if given.worker is None:
        sys.exit(main(given))
    measured = measure(given.data, given.rank, given.seconds)
    if int(os.environ.get("RANK", "0")) == 0:
        given.worker.write_text(json.dumps(measured))
