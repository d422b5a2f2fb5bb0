"""Implicit feedback against the package `implicit`: time to equal objective, and ranking.

Ratings become implicit feedback: what was rated was seen, with confidence 1 + alpha * rating.  A
fifth of the entries is held out.  `implicit` has its alternating least squares, exact and by
conjugate gradients (its default), `ImplicitMF` its accelerated sweeps; all minimise

    sum over all pairs of c (p - u.v)^2 + ridge (|U|^2 + |V|^2)

at the same rank, ridge and number of threads, in single precision.  One function evaluates the
objective of all of them.  "Sooner" is the time of `implicit` up to an iteration over the time of
`ImplicitMF` up to the first sweep whose objective is no higher.  Times are those of the iterations,
without reading and compiling; CPU time counts all threads and is the one to look at on a machine
that others use.

    OPENBLAS_NUM_THREADS=1 python benchmarks/implicit_feedback.py [TWIN or FILE] [--rank 10 32 64]
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from implicit.als import AlternatingLeastSquares

from momentous.lowrank import ImplicitMF, LowRankObjective, Ratings
from momentous.lowrank.losses import Implicit
from momentous.lowrank.model import fit_model

TOP, LONG = 10, 20
BLOCK = 1024  # users ranked at a time


class Point(NamedTuple):
    """Where a solver is after an iteration."""

    wall: float
    cpu: float
    U: Any
    V: Any


def ranking(U: Any, V: Any, seen: Ratings, held_out: Ratings) -> tuple[float, float]:
    """NDCG@10 and recall@20 of the items held out, among those that a user has not seen."""
    before, after = (part.to_sparse().tocsr() for part in (seen, held_out))
    ndcg, recall, users = 0.0, 0.0, 0
    discounts = 1.0 / np.log2(np.arange(2, LONG + 2))
    for first in range(0, len(U), BLOCK):
        scores = U[first : first + BLOCK] @ V.T
        for k, row in enumerate(scores):
            i = first + k
            wanted = after.indices[after.indptr[i] : after.indptr[i + 1]]
            if not wanted.size:
                continue
            row[before.indices[before.indptr[i] : before.indptr[i + 1]]] = -np.inf
            best = np.argpartition(-row, LONG)[:LONG]
            hits = np.isin(best[np.argsort(-row[best], kind="stable")], wanted)
            ideal = discounts[: min(TOP, wanted.size)].sum()
            ndcg += float(discounts[:TOP][hits[:TOP]].sum() / ideal)
            recall += float(hits.sum() / wanted.size)
            users += 1
    return ndcg / users, recall / users


def clock() -> tuple[float, float]:
    return perf_counter(), process_time()


def ours(data: Ratings, rank: int, alpha: float, ridge: float, threads: int, n: int) -> Any:
    """The points of `ImplicitMF`, the sum of a sweep and what comes after it."""
    points: list[Point] = []
    estimator = ImplicitMF(
        rank, alpha, ridge, threads=threads, max_iterations=n, tol=0.0, dtype=np.float32
    )
    values: list[tuple[float, float, float]] = []
    started = clock()
    fit = fit_model(
        data,
        estimator._config(),
        watch=lambda step: values.append((*np.subtract(clock(), started), step.fun)),
    )
    model = fit.model
    points.append(Point(*np.subtract(clock(), started), model.row_factors, model.col_factors))
    return values, points[-1]


def theirs(
    data: Ratings, rank: int, alpha: float, ridge: float, threads: int, n: int, cg: bool
) -> list[Point]:
    """The points of `implicit` after each iteration; its confidence is what the matrix holds."""
    matrix = data.to_sparse()
    confidence = scipy.sparse.csr_matrix(
        (1 + alpha * matrix.data, matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)),
        shape=matrix.shape, dtype=np.float32, copy=True,
    )  # fmt: skip
    solver = AlternatingLeastSquares(
        factors=rank, regularization=ridge, alpha=1.0, use_cg=cg, iterations=n,
        num_threads=threads, random_state=0, dtype=np.float32,
    )  # fmt: skip
    points: list[Point] = []
    spent = np.zeros(2)
    started = np.array(clock())

    def look(*arguments: Any) -> None:
        nonlocal spent
        now = np.array(clock())
        factors = solver.user_factors.copy(), solver.item_factors.copy()
        points.append(Point(*(now - started - spent), *factors))
        spent += np.array(clock()) - now

    solver.fit(confidence, show_progress=False, callback=look)
    return points


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="?", default="ml-1m")
    parser.add_argument("--rank", type=int, nargs="+", default=[10, 32, 64])
    parser.add_argument("--alpha", type=float, default=1.0)
    parser.add_argument("--ridge", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=15)
    given = parser.parse_args()
    file = Path(given.data)
    ratings = Ratings.read(file) if file.exists() else Ratings.twin(given.data)
    seen, held_out = ratings.astype(np.float32).split(0.2)
    print(f"{given.data}: {seen}, alpha {given.alpha:g}, ridge {given.ridge:g}")
    for rank in given.rank:
        setting = (rank, given.alpha, given.ridge, given.threads)
        objective = LowRankObjective(
            seen, rank, Implicit(given.alpha), 0.0, given.ridge, np.float64, given.threads
        )

        def value(point: Point, objective: Any = objective) -> float:
            return float(objective.value(objective.join(point.U, point.V)))

        ours(seen, *setting, 2)  # compiled before the clock runs
        values, last = ours(seen, *setting, 4 * given.iterations)
        print(f"\nrank {rank}, {given.threads} threads")
        print(f"{'':22}{'iter.':>6}{'wall s':>8}{'CPU s':>8}{'objective':>11}{'NDCG@10':>9}"
              f"{'recall@20':>10}{'sooner: wall':>14}{'CPU':>6}")  # fmt: skip

        def show(name: str, n: int, point: Point, ratios: str = "", value: Any = value) -> None:
            quality = ranking(point.U, point.V, seen, held_out)
            print(f"{name:22}{n:>6}{point.wall:>8.2f}{point.cpu:>8.2f}{value(point):>11.6f}"
                  f"{quality[0]:>9.4f}{quality[1]:>10.4f}{ratios}", flush=True)  # fmt: skip

        for name, cg in (("implicit, exact", False), ("implicit, CG", True)):
            points = theirs(seen, *setting, given.iterations, cg)
            for n in (5, 10, given.iterations):
                goal = value(points[n - 1])
                reached = [now for now in values if now[2] <= goal * (1 + 1e-6)]
                ratios = f"{'never':>14}"
                if reached:
                    wall, cpu, _ = reached[0]
                    point = points[n - 1]
                    ratios = f"{point.wall / wall:>14.1f}{point.cpu / cpu:>6.1f}"
                show(name, n, points[n - 1], ratios)
        for n in (5, 10, given.iterations):
            _, point = ours(seen, *setting, n)
            show("ImplicitMF", n, point)
        show("ImplicitMF", len(values), last)


if __name__ == "__main__":
    main()
