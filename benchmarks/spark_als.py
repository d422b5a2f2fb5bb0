"""Beside Spark's ALS on one machine: time to the same held-out error, and both start-up times.

The same Parquet files, rank, weighted ridge (regParam times the number of entries of each row) and
cores for all; no biases and no mean.  Spark runs in local mode; this library as one process with as
many threads as there are cores, and as one rank per core under torchrun.  A tenth of the entries,
of users and items that the rest has too, is held out; predictions are clipped to the scale.

Start-up is what comes before the first fit: imports, the JVM, reading, and one fit of one
iteration, in which code is compiled.  Spark is asked for a few numbers of iterations, from scratch;
our one fit is watched, with the clock stopped while its error is measured.  A line says what Spark
reached, and when ours was there.  CPU time is that of all processes and threads: wall time depends
on who else uses the machine.

    python benchmarks/spark_als.py [--data ml-10m] [--rank 10] [--ridge 0.1] [--cores 2]

Needs pyspark and Java.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

SEED, PARTS = 2, 8
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Of this process, its children, theirs, and all of them that have ended."""
    parents, spent = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended just now
            parents[int(folder.name)] = int(fields[1])
            spent[int(folder.name)] = sum(map(int, fields[11:15])) / TICKS
    total, family = 0.0, {os.getpid()}
    while family:
        total += sum(spent.get(process, 0.0) for process in family)
        family = {process for process, parent in parents.items() if parent in family}
    return total


class Clock:
    """Wall and CPU seconds since it was started, without the pauses."""

    def __init__(self) -> None:
        self.begun = np.array([perf_counter(), cpu_seconds()])

    def read(self) -> list[float]:
        return (np.array([perf_counter(), cpu_seconds()]) - self.begun).tolist()

    def pause(self, work: Any) -> Any:
        before = np.array([perf_counter(), cpu_seconds()])
        answer = work()
        self.begun += np.array([perf_counter(), cpu_seconds()]) - before
        return answer


def write_data(name: str, folder: Path) -> str:
    """The known entries in parts, and those held out whose user and item are known."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from momentous.lowrank import Ratings

    known, held_out = Ratings.twin(name).split(0.1, SEED)
    seen = [np.bincount(known.rows) > 0, np.bincount(known.cols) > 0]
    tables = []
    for ratings in (known, held_out):
        users, items = ratings.rows, ratings.cols
        fits = (users < len(seen[0])) & (items < len(seen[1]))
        fits[fits] = seen[0][users[fits]] & seen[1][items[fits]]
        columns = {"user": users[fits], "item": items[fits]}
        columns["rating"] = ratings.values[fits].astype(np.float32)
        tables.append(pa.table({key: pa.array(value) for key, value in columns.items()}))
    (folder / "parts").mkdir()
    size = -(-tables[0].num_rows // PARTS)
    for part in range(PARTS):
        file = folder / "parts" / f"part-{part}.parquet"
        pq.write_table(tables[0].slice(part * size, size), file)
    pq.write_table(tables[1], folder / "held_out.parquet")
    return f"{known}, {tables[1].num_rows:,} entries held out"


def held_out_columns(folder: Path) -> list[np.ndarray]:
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "held_out.parquet")
    return [table.column(name).to_numpy() for name in ("user", "item", "rating")]


# --- Spark ----------------------------------------------------------------------------------------


def spark_curve(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    clock = Clock()
    from pyspark.ml.recommendation import ALS
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master(f"local[{given.cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "6g")
        .config("spark.sql.shuffle.partitions", str(given.cores))
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    data = session.read.parquet(str(folder / "parts")).cache()
    data.count()

    def fit(iterations: int) -> Any:
        model = ALS(
            rank=given.rank, maxIter=iterations, regParam=given.ridge, seed=0,
            numUserBlocks=given.cores, numItemBlocks=given.cores,
            userCol="user", itemCol="item", ratingCol="rating",
        ).fit(data)  # fmt: skip
        model.userFactors.count()
        return model

    fit(1)
    start_up, points = clock.read(), []
    users, items, values = held_out_columns(folder)
    low, high = data.selectExpr("min(rating)", "max(rating)").first()
    for iterations in given.iterations:
        clock = Clock()
        model = fit(iterations)
        times = clock.read()
        z = np.ones((len(values), given.rank))
        for side, ids in ((model.userFactors, users), (model.itemFactors, items)):
            table = side.toPandas()
            factors = np.zeros((int(table["id"].max()) + 1, given.rank))
            factors[table["id"].to_numpy()] = np.stack(table["features"])
            z *= factors[ids]
        error = float(np.sqrt(np.mean((np.clip(z.sum(axis=1), low, high) - values) ** 2)))
        points.append([iterations, error, *times])
    session.stop()
    return {"start_up": start_up, "points": points}


# --- ours -----------------------------------------------------------------------------------------


def our_curve(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    clock = Clock()
    from momentous.distributed import find
    from momentous.lowrank import Ratings
    from momentous.lowrank.data.vocabulary import Vocabulary
    from momentous.lowrank.ranks import RankRatings
    from momentous.lowrank.ranks.read import read_on_ranks
    from momentous.lowrank.solvers.fit import FitConfig, Observer, solve

    ranks, parts = find(), str(folder / "parts")
    if ranks.size == 1:
        ratings = Ratings.read(parts, cache=False)
    else:
        ratings = read_on_ranks(parts, ranks, cache=False)

    def config(iterations: int) -> Any:
        return FitConfig(
            rank=given.rank, ridge=given.ridge, weighting=1.0, biases=False, centre=False, tol=0.0,
            max_iterations=iterations, threads=given.cores if ranks.size == 1 else 1,
        )  # fmt: skip

    solve(config(1).objective(ratings), config(1))  # compiles
    users, items, values = held_out_columns(folder)
    rows = Vocabulary(ratings.ids(0)).positions(users)
    cols, mine = Vocabulary(ratings.ids(1)).positions(items), rows >= 0
    held_out = Ratings(
        rows[mine], cols[mine], values[mine], ratings.shape,
        row_ids=ratings.row_ids, col_ids=ratings.col_ids,
    )  # fmt: skip
    if ranks.size > 1:
        held_out = RankRatings(held_out, ranks)
    start_up = ranks.all_reduce(np.array(clock.read()) / [ranks.size, 1]).tolist()
    ratings = fresh(ratings)  # the entries by column are made in a fit, and count
    points: list[list[float]] = []
    clock = Clock()

    class Recorder(Observer):
        """Notes times and errors; its own work does not count."""

        def __call__(self, result: Any, point: Any) -> bool:
            clock.pause(lambda: self._note(result, point, clock.read()))
            return False

        def _note(self, result: Any, point: Any, times: list[float]) -> None:
            error = self.objective.error(point(result.x), held_out, self._value_range)
            wall, cpu = ranks.all_reduce(np.array(times) / [ranks.size, 1])
            points.append([result.nit, error, float(wall), float(cpu)])

    objective = config(given.most).objective(ratings)
    solve(objective, config(given.most), observer=Recorder(objective))
    return {"start_up": start_up, "points": points, "rank": ranks.rank}


def fresh(ratings: Any) -> Any:
    """The same entries, not yet grouped by column."""
    return ratings.where(np.ones(ratings.nnz, bool))


# --- the table ------------------------------------------------------------------------------------


def measured(name: str, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """What a child has found."""
    out = folder / f"{name}.json"
    words = [__file__, "--child", name, "--folder", str(folder)]
    for option in ("rank", "ridge", "cores", "most"):
        words += [f"--{option}", str(getattr(given, option))]
    words += ["--iterations", *map(str, given.iterations)]
    command = [sys.executable, *words]
    if name == "ranks":
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(given.cores)]
        command[1:1] = launcher
    settings = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=os.environ | settings)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def report(given: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{given.data}: {write_data(given.data, folder)}")
        print(f"rank {given.rank}, weighted ridge {given.ridge:g}, {given.cores} cores")
        found = {child: measured(child, folder, given) for child in ("threads", "ranks", "spark")}
    titles = {
        "spark": "Spark's ALS",
        "threads": f"momentous, {given.cores} threads",
        "ranks": f"momentous, {given.cores} ranks",
    }
    print(f"\nstart-up{'':22}{'wall s':>9}{'CPU s':>9}")
    for child, title in titles.items():
        wall, cpu = found[child]["start_up"]
        print(f"  {title:28}{wall:>9.1f}{cpu:>9.1f}")
    print(
        f"\nto the held-out error of{'':6}{'sweeps':>9}{'error':>9}{'wall s':>9}{'CPU s':>9}",
        end="",
    )
    print(f"{'sooner, wall':>14}{'CPU':>7}")
    for iterations, error, wall, cpu in found["spark"]["points"]:
        print(f"  {titles['spark']:28}{iterations:>9}{error:>9.5f}{wall:>9.2f}{cpu:>9.2f}")
        for child in ("threads", "ranks"):
            reached = [point for point in found[child]["points"] if point[1] <= error]
            if not reached:
                best = min(point[1] for point in found[child]["points"])
                print(f"  {titles[child]:28}never: {best:.5f} in {given.most} sweeps")
                continue
            sweeps, mine, own_wall, own_cpu = reached[0]
            print(f"  {titles[child]:28}{sweeps:>9}{mine:>9.5f}{own_wall:>9.2f}{own_cpu:>9.2f}"
                  f"{wall / own_wall:>14.1f}{cpu / own_cpu:>7.1f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="ml-10m", help="the name of a twin")
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--ridge", type=float, default=0.1)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--iterations", type=int, nargs="+", default=[5, 10], help="Spark's")
    parser.add_argument("--most", type=int, default=30, help="sweeps of ours")
    parser.add_argument("--child", choices=["spark", "threads", "ranks"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is None:
        report(given)
        return
    work = spark_curve if given.child == "spark" else our_curve
    found = work(given.folder, given)
    if found.get("rank", 0) == 0:
        (given.folder / f"{given.child}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
