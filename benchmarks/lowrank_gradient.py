"""Value and gradient of the low-rank objective: the compiled pass against what people write.

One evaluation at rank 10 on synthetic ratings shaped like MovieLens-10M, in float64 and float32,
against scipy.sparse products with NumPy, against PyTorch's autograd over `index_select`, and the
logistic loss against the squared one. The times are the best of several within one run; the ratios
are what to look at. Where the CPU time of the compiled pass is no more than its wall time, its
threads had to share one core, and its ratios are that much too small.

    python benchmarks/lowrank_gradient.py [DATA] [THREADS]
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Callable
from importlib.util import find_spec
from time import perf_counter, process_time
from typing import Any

import numpy as np

from momentous.lowrank import LowRankObjective, Ratings

RANK = 10
Evaluation = Callable[[], Any]


def best_of(evaluate: Evaluation, repeats: int) -> tuple[float, float]:
    """Wall and CPU milliseconds of the fastest evaluation; the first one does not count."""
    evaluate()
    times = []
    for _ in range(repeats):
        wall, cpu = perf_counter(), process_time()
        evaluate()
        times.append((1e3 * (perf_counter() - wall), 1e3 * (process_time() - cpu)))
    return min(times)


def by_scipy(problem: LowRankObjective, x: np.ndarray) -> Evaluation:
    """The formulas as they stand, with the gathers of NumPy and the products of SciPy."""
    ratings, (U, V) = problem.ratings, problem.split(x)
    rows, cols, X, N = ratings.rows, ratings.cols, ratings.values, ratings.nnz
    E = ratings.to_sparse().copy()

    def evaluate() -> tuple[float, np.ndarray, np.ndarray]:
        E.data = np.einsum("ij,ij->i", U[rows], V[cols]) - X
        D = U.T @ U - V.T @ V
        value = (E.data @ E.data + np.sum(D * D)) / (2 * N)
        return value, (E @ V + 2 * U @ D) / N, (E.T @ U - 2 * V @ D) / N

    return evaluate


def by_torch(problem: LowRankObjective, x: np.ndarray, threads: int) -> Evaluation:
    """The value alone, differentiated by PyTorch."""
    import torch

    torch.set_num_threads(threads)
    ratings = problem.ratings
    U, V = (torch.tensor(factor, requires_grad=True) for factor in problem.split(x))
    rows, cols = (torch.tensor(index.astype(np.int64)) for index in (ratings.rows, ratings.cols))
    X = torch.tensor(ratings.values)

    def evaluate() -> tuple[Any, Any, Any]:
        U.grad = V.grad = None
        z = (U.index_select(0, rows) * V.index_select(0, cols)).sum(1)
        D = U.T @ U - V.T @ V
        value = (((z - X) ** 2).sum() + (D**2).sum()) / (2 * ratings.nnz)
        value.backward()
        return value.detach(), U.grad, V.grad

    return evaluate


def same(one: Any, other: Any, tolerance: float) -> bool:
    """Whether two evaluations mean the same: a fast wrong answer is worth nothing."""
    value, *gradients = other
    flat = np.concatenate([np.asarray(part).ravel() for part in gradients])
    close = abs(float(value) / one[0] - 1) < tolerance
    return bool(close and np.linalg.norm(flat - one[1]) < tolerance * np.linalg.norm(one[1]))


def main(data: str = "ml-10m", threads: int = 2) -> None:
    ratings = Ratings.twin(data)
    print(f"{data}: {ratings}\nrank {RANK}, {threads} threads; milliseconds per evaluation")
    rng = np.random.default_rng(0)
    for dtype, tolerance in ((np.float64, 1e-10), (np.float32, 1e-3)):
        squared = LowRankObjective(ratings, RANK, dtype=dtype, threads=threads)
        onebit = LowRankObjective(ratings.signs(), RANK, "logistic", dtype=dtype, threads=threads)
        # Not the SVD start: that takes longer than everything else here, and changes no time.
        x = (0.6 * rng.standard_normal(squared.dimension)).astype(dtype)
        started = perf_counter()
        answer = squared.value_and_gradient(x)
        first = perf_counter() - started
        print(f"{np.dtype(dtype)} (the first evaluation, compilation included: {first:.1f} s)")
        print(f"  {'':28s}{'wall':>9s}{'CPU':>9s}")

        def show(name: str, times: tuple[float, float], remark: str = "") -> None:
            print(f"  {name:28s}{times[0]:9.1f}{times[1]:9.1f}   {remark}")

        ours = best_of(lambda p=squared, x=x: p.value_and_gradient(x), 40)
        show("compiled, squared loss", ours)
        for name, evaluate in {
            "its value alone": lambda p=squared, x=x: p.value(x),
            "compiled, logistic loss": lambda p=onebit, x=x: p.value_and_gradient(x),
        }.items():
            times = best_of(evaluate, 40)
            show(name, times, f"{times[0] / ours[0]:.2f} x the time")
        rivals = {"scipy.sparse and NumPy": by_scipy(squared, x)}
        if find_spec("torch"):
            rivals["PyTorch autograd"] = by_torch(squared, x, threads)
        for name, evaluate in rivals.items():
            agrees = "" if same(answer, evaluate(), tolerance) else ", BUT ANOTHER RESULT"
            theirs = best_of(evaluate, 4)
            show(name, theirs, f"{theirs[0] / ours[0]:.1f} x slower{agrees}")


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
