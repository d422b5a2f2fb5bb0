"""Beside other libraries: time to equal training objective, and to equal held-out error.

Three contests on a 90/10 split of a twin, at equal rank and number of threads.  In the first two no
biases and no mean are fitted, and all that take part minimise the same function,

    F = (1/2N) (sum_ij (u_i.v_j - X_ij)^2 + ridge (sum_i w_i |u_i|^2 + sum_j w_j |v_j|^2)),

- "plain ridge", w = 1: cmfrec (lambda_ = ridge), here also as a bare `ALSSweep`;
- "weighted ridge", w_i the number of entries of row i: cmfrec (scale_lam), Spark's ALS (regParam),
  and those that go by stochastic gradients with a decay of the factors at each entry, whose sum is
  the same penalty: LIBMF (lambda_p2 = lambda_q2; its L1 penalties 0), cornac (lambda_reg), surprise
  (reg_all);
- "with biases", each library's own objective and defaults (LensKit fits its biases first, the
  others fit them along; penalties differ), so that held-out errors alone are compared.

Each library, in a process of its own, is asked for a few numbers of iterations, from scratch, after
one fit that does not count. The clock runs from the data in the library's own form to fitted
parameters (ours: from `Ratings` that are not yet grouped by column); F and the root mean square
error on the held-out tenth, predictions clipped to the scale, are computed here, in double
precision, for all alike. A line gives what the peer reached, the least time in which
`MatrixCompletion` had the same or less, and how many times sooner that was than the least time of
the peer itself: below 1 the peer is ahead. Learning rates, and in the last contest all penalties,
are the peers' defaults, which nobody has tuned; "small start" is `MatrixCompletion` with an option
and counts as ours, and a number of iterations, theirs or ours, stands for one that held-out entries
would choose; our own defaults were chosen on other splits of the
same twins, so that contest leans to our side (`held_out.py` has cmfrec tuned).

    OPENBLAS_NUM_THREADS=1 python benchmarks/peers.py [ml-1m] [--only cmfrec libmf ...]

On a machine that others use ``--clock cpu`` counts the CPU time of all threads, not wall time.
Peers that are not installed are left out, and named.  implicit has no ALS for explicit ratings.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("LK_NUM_BACKEND_THREADS", "1")  # LensKit's

import argparse
import json
import logging
import math
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np

from momentous import accelerate
from momentous.lowrank import ALSSweep, MatrixCompletion, Ratings
from momentous.lowrank.data.twins import MODELS
from momentous.lowrank.factors import products

ALTERNATING, STOCHASTIC = (2, 5, 10, 20, 40), (5, 10, 15, 18, 20, 22, 25, 40, 80)
SEED = 2  # our defaults were chosen on the splits 0 and 1 of these twins (held_out.py)
OURS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 45, 70)


class Model(NamedTuple):
    """Fitted parameters, rows and columns in the order of the ratings."""

    U: Any
    V: Any
    row_bias: Any = 0.0
    col_bias: Any = 0.0
    mean: float = 0.0


@dataclass
class Task:
    """What is to be fitted."""

    known: Ratings
    held_out: Ratings
    rank: int
    threads: int
    biases: bool
    ridge: float = 0.0
    weighting: float = 0.0
    forms: dict[str, Any] = field(default_factory=dict)  # the data in each library's own form

    def form(self, name: str, make: Callable[[Any], Any]) -> Any:
        """The data as `make` makes them of a table of user, item and rating; made once."""
        if name not in self.forms:
            pandas = import_module("pandas")
            known = self.known
            columns = {"user_id": known.rows, "item_id": known.cols, "rating": known.values}
            self.forms[name] = make(pandas.DataFrame(columns))
        return self.forms[name]

    def objective(self, model: Model) -> float:
        known = self.known
        residuals = products(model.U, model.V, known.rows, known.cols) - known.values
        penalty = 0.0
        for factor, side in ((model.U, known.by_row), (model.V, known.by_col)):
            counts = np.diff(side.starts)
            some = counts > 0  # for the other rows a library may leave anything, NaN included
            squares = np.sum(np.square(factor[some], dtype=np.float64), axis=1)
            penalty += float(counts[some] ** self.weighting @ squares)
        return float(residuals @ residuals + self.ridge * penalty) / (2 * known.nnz)

    def error(self, model: Model) -> float:
        rows, cols, values = self.held_out.rows, self.held_out.cols, self.held_out.values
        bias = np.broadcast_to(model.row_bias, self.known.shape[:1])[rows]
        bias = bias + np.broadcast_to(model.col_bias, self.known.shape[1:])[cols]
        z = products(np.nan_to_num(model.U), np.nan_to_num(model.V), rows, cols) + bias + model.mean
        z = np.clip(z, self.known.values.min(), self.known.values.max())
        return float(np.sqrt(np.mean((z - values) ** 2)))


Fit = Callable[[], Model]
Peer = Callable[[Task, int], Fit]


# --- ours -----------------------------------------------------------------------------------------


def momentous(task: Task, iterations: int, **chosen: Any) -> Fit:
    ratings = Ratings.from_sparse(task.known.to_sparse())
    options: dict[str, Any] = {"max_iterations": iterations, "tol": 0.0, "threads": task.threads}
    options |= chosen
    if not task.biases:
        options |= {"ridge": task.ridge, "weighting": task.weighting}
        options |= {"biases": False, "centre": False}

    def fit() -> Model:
        e = MatrixCompletion(task.rank, **options).fit(ratings)
        return Model(e.row_factors_, e.col_factors_, e.row_bias_, e.col_bias_, e.mean_)

    return fit


def small_start(task: Task, iterations: int) -> Fit:
    """Sweeps without momentum from small factors, to be stopped early; in single precision, as
    those that go by stochastic gradients."""
    return momentous(task, iterations, start_scale=3e-4, solver="sweep", dtype=np.float32)


def bare_sweep(task: Task, iterations: int) -> Fit:
    ratings = Ratings.from_sparse(task.known.to_sparse())
    first = 0.1 * np.random.default_rng(0).standard_normal((ratings.shape[1], task.rank))

    def fit() -> Model:
        sweep = ALSSweep(ratings, task.rank, task.ridge, task.threads)
        found = accelerate(sweep, sweep.start(first), True, tol=0.0, max_iterations=iterations)
        return Model(*sweep.factors(found.x - found.jac))

    return fit


# --- peers ----------------------------------------------------------------------------------------


def cmfrec(task: Task, iterations: int, conjugate: bool = False) -> Fit:
    known = task.known
    matrix = known.to_sparse().tocoo()
    options: dict[str, Any] = {} if task.biases else {"lambda_": task.ridge}
    model = import_module("cmfrec").CMF(
        k=task.rank, niter=iterations, nthreads=task.threads, use_cg=conjugate, use_float=False,
        user_bias=task.biases, item_bias=task.biases, center=task.biases, verbose=False,
        scale_lam=task.weighting == 1.0, precompute_for_predictions=False, **options,
    )  # fmt: skip

    def fit() -> Model:
        model.fit(matrix)
        biases = (model.user_bias_, model.item_bias_) if task.biases else (0.0, 0.0)
        return Model(model.A_, model.B_, *biases, model.glob_mean_ if task.biases else 0.0)

    return fit


def cmfrec_conjugate(task: Task, iterations: int) -> Fit:
    return cmfrec(task, iterations, conjugate=True)


def libmf(task: Task, iterations: int) -> Fit:
    # The wrapper hands over the memory as it lies, so it must lie row by row.
    triples = task.form("libmf", lambda table: np.ascontiguousarray(table, np.float32))
    model = import_module("libmf.mf").MF(
        k=task.rank, nr_iters=iterations, nr_threads=task.threads, quiet=True,
        lambda_p1=0.0, lambda_q1=0.0, lambda_p2=task.ridge, lambda_q2=task.ridge,
    )  # fmt: skip

    def fit() -> Model:
        model.fit(triples)
        U, V = (np.zeros((size, task.rank)) for size in task.known.shape)
        for factor, found in ((U, model.p_factors()), (V, model.q_factors())):
            factor[: len(found)] = np.nan_to_num(found)  # rows without entries are NaN there
        return Model(U, V)

    return fit


def cornac(task: Task, iterations: int) -> Fit:
    package = import_module("cornac")
    data = task.form(
        "cornac", lambda table: package.data.Dataset.from_uir(table.itertuples(index=False))
    )
    options: dict[str, Any] = {} if task.biases else {"lambda_reg": task.ridge}
    model = package.models.MF(
        k=task.rank, max_iter=iterations, num_threads=task.threads, use_bias=task.biases, **options
    )

    def fit() -> Model:
        model.fit(data)
        rows, cols = list(data.uid_map), list(data.iid_map)
        return placed(
            task, (rows, model.u_factors, model.u_biases), (cols, model.i_factors, model.i_biases),
            float(model.global_mean),
        )  # fmt: skip

    return fit


def surprise(task: Task, iterations: int) -> Fit:
    package = import_module("surprise")

    def make(table: Any) -> Any:
        scale = (task.known.values.min(), task.known.values.max())
        reader = package.Reader(rating_scale=scale)
        return package.Dataset.load_from_df(table, reader).build_full_trainset()

    data = task.form("surprise", make)
    options: dict[str, Any] = {} if task.biases else {"reg_all": task.ridge}
    model = package.SVD(
        n_factors=task.rank, n_epochs=iterations, biased=task.biases, random_state=0, **options
    )

    def fit() -> Model:
        model.fit(data)
        rows = [data.to_raw_uid(u) for u in data.all_users()]
        cols = [data.to_raw_iid(i) for i in data.all_items()]
        mean = data.global_mean if task.biases else 0.0
        return placed(task, (rows, model.pu, model.bu), (cols, model.qi, model.bi), mean)

    return fit


def spark(task: Task, iterations: int) -> Fit:
    session = spark_session(task.threads)
    data = task.form("spark", lambda table: session.createDataFrame(table).cache())
    data.count()
    als = import_module("pyspark.ml.recommendation").ALS(
        rank=task.rank, maxIter=iterations, regParam=task.ridge, seed=0,
        numUserBlocks=task.threads, numItemBlocks=task.threads,
        userCol="user_id", itemCol="item_id", ratingCol="rating",
    )  # fmt: skip

    def fit() -> Model:
        model = als.fit(data)
        # The factors are cached in Spark by then; that they come over to Python should not count,
        # but is a small part.
        sides = (model.userFactors.toPandas(), model.itemFactors.toPandas())
        return placed(task, *((s["id"], np.stack(s["features"]), 0.0) for s in sides), 0.0)

    return fit


def spark_session(threads: int) -> Any:
    builder = import_module("pyspark.sql").SparkSession.builder.master(f"local[{threads}]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": str(threads),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.log.level": "ERROR",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def lenskit(task: Task, iterations: int) -> Fit:
    os.environ["LK_NUM_THREADS"] = str(task.threads)
    data = task.form("lenskit", import_module("lenskit.data").from_interactions_df)
    scorer = import_module("lenskit.als").BiasedMFScorer(
        embedding_size=task.rank, epochs=iterations
    )
    options = import_module("lenskit.training").TrainingOptions(rng=0)

    def fit() -> Model:
        scorer.train(data, options)
        bias = scorer.bias
        rows = (scorer.users.ids(), scorer.user_embeddings, bias.user_biases)
        cols = (scorer.items.ids(), scorer.item_embeddings, bias.item_biases)
        return placed(task, rows, cols, float(bias.global_bias))

    return fit


def placed(task: Task, rows: Any, cols: Any, mean: float) -> Model:
    """A model in the order of the ratings, from (indices, factors, biases) of both sides."""
    factors, biases = [], []
    for size, (ids, found, bias) in zip(task.known.shape, (rows, cols), strict=True):
        place = np.asarray(ids, dtype=np.int64)
        factor, both = np.zeros((size, task.rank)), np.zeros(size)
        factor[place], both[place] = found, bias
        factors.append(factor)
        biases.append(both)
    return Model(*factors, *biases, mean)


# --- the contests ---------------------------------------------------------------------------------

CONTESTS: dict[str, tuple[dict[str, Any], dict[str, tuple[Peer, tuple[int, ...]]]]] = {
    "plain ridge": (
        {"biases": False, "weighting": 0.0},
        {
            "cmfrec": (cmfrec, ALTERNATING),
            "cmfrec, CG": (cmfrec_conjugate, ALTERNATING),
            "ALSSweep": (bare_sweep, ALTERNATING),
        },
    ),
    "weighted ridge": (
        {"biases": False, "weighting": 1.0},
        {
            "cmfrec": (cmfrec, ALTERNATING),
            "cmfrec, CG": (cmfrec_conjugate, ALTERNATING),
            "LIBMF": (libmf, STOCHASTIC),
            "cornac": (cornac, STOCHASTIC),
            "surprise": (surprise, (5, 10, 20, 40)),
            "Spark": (spark, ALTERNATING[:4]),
        },
    ),
    "with biases": (
        {"biases": True},
        {
            "small start": (small_start, OURS),
            "cmfrec": (cmfrec, ALTERNATING),
            "cmfrec, CG": (cmfrec_conjugate, ALTERNATING),
            "LensKit": (lenskit, ALTERNATING),
            "cornac": (cornac, STOCHASTIC),
            "surprise": (surprise, (5, 10, 20, 40)),
        },
    ),
}


class Point(NamedTuple):
    """What so many iterations take and give."""

    iterations: int
    seconds: float
    objective: float
    error: float


def curve(
    task: Task, peer: Peer, counts: Iterable[int], repeats: int, clock: Callable[[], float]
) -> list[Point]:
    peer(task, 1)()  # compile, load, start what has to be started
    points = []
    for count in counts:
        times = []
        for _ in range(repeats):
            fit = peer(task, count)
            began = clock()
            model = fit()
            times.append(clock() - began)
        objective = math.nan if task.biases else task.objective(model)
        points.append(Point(count, min(times), objective, task.error(model)))
    return points


def soonest(ours: list[Point], reached: Callable[[Point], bool]) -> float:
    return min((p.seconds for p in ours if reached(p)), default=math.inf)


def show(name: str, theirs: list[Point], ours: list[Point], counts: tuple[int, ...]) -> None:
    for p in (p for p in theirs if p.iterations in counts):
        line = f"{name:12}{p.iterations:>6}{p.seconds:>9.2f}"
        for value, reached in (
            (p.objective, lambda q, p=p: q.objective <= p.objective),
            (p.error, lambda q, p=p: q.error <= p.error),
        ):
            seconds = soonest(ours, reached)
            if math.isnan(value):
                line += f"{'-':>12}{'-':>8}{'-':>8}"
                continue
            line += f"{value:>12.5f}"
            if math.isinf(seconds):
                line += f"{'never':>8}{'-':>8}"
            else:
                line += f"{seconds:>8.2f}{soonest(theirs, reached) / seconds:>8.1f}"
        print(line, flush=True)


def alone(name: str, contest: str, peer: str, chosen: argparse.Namespace) -> list[Point] | str:
    """The curve of a peer in a process of its own, or why there is none.

    Libraries bring their own threads, which do not always get on with each other.
    """
    options = [f"--{key}={getattr(chosen, key)}" for key in SETTINGS]
    command = [sys.executable, __file__, name, f"--contests={contest}", f"--child={peer}", *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=chosen.patience)
    except subprocess.TimeoutExpired:
        return f"not done after {chosen.patience:g} seconds"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return [Point(*point) for point in json.loads(done.stdout.splitlines()[-1])]


def child(name: str, contest: str, peer: str, chosen: argparse.Namespace) -> None:
    warnings.simplefilter("ignore")  # of the peers
    logging.disable(logging.WARNING)
    known, held_out = (Ratings.twin if name in MODELS else Ratings.read)(name).split(0.1, SEED)
    options, peers = CONTESTS[contest]
    ridge = chosen.weighted if options.get("weighting") else chosen.ridge
    task = Task(known, held_out, chosen.rank, chosen.threads, ridge=ridge, **options)
    fit, counts = (momentous, OURS) if peer == "momentous" else peers[peer]
    counts = tuple(count for count in counts if count <= chosen.most)
    clock = CLOCKS[chosen.clock]
    print("\n" + json.dumps(curve(task, fit, counts, chosen.repeats, clock)))


def report(name: str, contest: str, chosen: argparse.Namespace) -> None:
    options, peers = CONTESTS[contest]
    ridge = chosen.weighted if options.get("weighting") else chosen.ridge
    what = "each its own objective" if options["biases"] else f"ridge {ridge:g}"
    clock = "CPU time" if chosen.clock == "cpu" else "wall time"
    print(f"\n{name}, {contest}, {what}, rank {chosen.rank}, {chosen.threads} threads, {clock}")
    print(f"{'':27}{'':12}{'same F':>16}{'':12}{'same error':>16}")
    heads = ("objective", "s", "sooner", "held out", "s", "sooner")
    widths = (12, 8, 8) * 2
    head = "".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True))
    print(f"{'':12}{'iter.':>6}{'s':>9}{head}", flush=True)
    ours = alone(name, contest, "momentous", chosen)
    if isinstance(ours, str):
        raise SystemExit(ours)
    show("momentous", ours, ours, (5, 10, 20, 45))
    for peer in peers:
        if peer == "small start":  # ours, too
            more = alone(name, contest, peer, chosen)
            if isinstance(more, str):
                raise SystemExit(more)
            ours = sorted([*ours, *more], key=lambda point: point.seconds)
            show(peer, more, ours, (5, 6, 7, 8, 10, 12))
        elif not chosen.only or peer in chosen.only:
            theirs = alone(name, contest, peer, chosen)
            if isinstance(theirs, str):
                print(f"{peer:12}left out: {theirs}", flush=True)
            else:
                show(peer, theirs, ours, peers[peer][1])


SETTINGS = ("rank", "threads", "ridge", "weighted", "repeats", "clock", "most")
CLOCKS = {"wall": perf_counter, "cpu": process_time}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="*", default=["ml-1m"], help="twins, or files of ratings")
    parser.add_argument("--only", nargs="+", help="peers, by the names in the table")
    parser.add_argument("--contests", nargs="+", default=list(CONTESTS))
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ridge", type=float, default=10.0, help="the plain one")
    parser.add_argument("--weighted", type=float, default=0.1, help="the weighted ridge")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--most", type=int, default=80, help="iterations, of all that take part")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds for each peer")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    for name in chosen.data:
        for contest in chosen.contests:
            if chosen.child:
                child(name, contest, chosen.child, chosen)
            else:
                report(name, contest, chosen)


if __name__ == "__main__":
    main()
