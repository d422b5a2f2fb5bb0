"""Gaps in scikit-learn's tables: `LowRankImputer` beside `IterativeImputer` and SoftImpute.

Three tenths of each table are taken out at random; the error is the root mean square one of what
was taken out, in standard deviations of the columns, the mean over draws.  SoftImpute (Mazumder,
Hastie, Tibshirani, JMLR 11, 2010) is in plain NumPy, on columns of mean 0 and deviation 1, with the
best of five ridges for each table, which it could not know.  CPU seconds of a fit in brackets.

    OMP_NUM_THREADS=1 python benchmarks/imputation.py [--draws 4]

Two draws on a shared core:

                   mean  IterativeImputer  rank 10      default      "path"       learned  Soft
    digits         .983  .788 (1.41)       .841 (.35)   .707 (.77)   .708 (3.25)  .732     .707
    breast_cancer  1.015 .449 (.44)        .486 (.05)   .478 (.11)   .460 (1.05)  .488     .466
    wine           1.027 .930 (.18)        .794 (.01)   .797 (.03)   .797 (.19)   .798     .800
    iris           .998  .638 (.05)        .655 (.01)   .655 (.02)   .649 (.09)   .637     .661
    diabetes       .987  .861 (.14)        .742 (.01)   .742 (.04)   .737 (.19)   .758     .740
    linnerud       1.003 .799 (.02)        .812 (.01)   .812 (.01)   .810 (.15)   .934     .823

(Wine over eight draws: .784 at rank 10, .785 by default.)
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from time import process_time

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.experimental import enable_iterative_imputer  # noqa: F401  # makes the next import work
from sklearn.impute import IterativeImputer, SimpleImputer

from momentous.lowrank import LowRankImputer, Ratings
from momentous.lowrank.model import fit_model
from momentous.lowrank.solvers.fit import FitConfig

Table = NDArray[np.float64]
TABLES = ("digits", "breast_cancer", "wine", "iris", "diabetes", "linnerud")
RIDGES = (1.0, 2.0, 5.0, 10.0, 20.0)


def soft_impute(X: Table, ridge: float, iterations: int = 100) -> Table:
    """The SVD of the table with its gaps filled, the singular values less the ridge, again and
    again."""
    gaps = np.isnan(X)
    mean, deviation = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
    deviation[deviation == 0.0] = 1.0
    filled = np.where(gaps, 0.0, (X - mean) / deviation)
    for _ in range(iterations):
        left, sizes, right = np.linalg.svd(filled, full_matrices=False)
        filled[gaps] = ((left * np.maximum(sizes - ridge, 0.0)) @ right)[gaps]
    return filled * deviation + mean


def learned_priors(X: Table) -> Table:
    """Learned priors in place of a ridge; rank 32, offsets of columns alone."""
    mean, deviation = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
    deviation[deviation == 0.0] = 1.0
    scaled, there = (X - mean) / deviation, ~np.isnan(X)
    rows, cols = np.nonzero(there)
    config = FitConfig(rank=32, biases=True, row_biases=False, centre=False, threads=1)
    model = fit_model(Ratings(rows, cols, scaled[there], X.shape), config).model
    found = model.row_factors @ model.col_factors.T + model.col_bias
    return np.where(there, X, found * deviation + mean)


METHODS: dict[str, Callable[[Table], Table]] = {
    "mean": lambda X: SimpleImputer().fit_transform(X),
    "IterativeImputer": lambda X: IterativeImputer(random_state=0).fit_transform(X),
    "rank 10": lambda X: LowRankImputer(10, threads=1).fit_transform(X),
    "default": lambda X: LowRankImputer(threads=1).fit_transform(X),
    "ridge='path'": lambda X: LowRankImputer(ridge="path", threads=1).fit_transform(X),
    "learned priors": learned_priors,
}
METHODS |= {f"SoftImpute {ridge:g}": lambda X, r=ridge: soft_impute(X, r) for ridge in RIDGES}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=4)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of IterativeImputer, which does not converge
    for name in TABLES:
        whole = getattr(datasets, f"load_{name}")().data.astype(np.float64)
        whole = whole[:, whole.std(axis=0) > 0.0]
        found: dict[str, list[tuple[float, float]]] = {}
        for seed in range(given.draws):
            gaps = np.random.default_rng(seed).random(whole.shape) < 0.3
            table = np.where(gaps, np.nan, whole)
            for method, fill in METHODS.items():
                before = process_time()
                errors = ((fill(table) - whole) / whole.std(axis=0))[gaps]
                error = float(np.sqrt(np.mean(errors**2)))
                found.setdefault(method, []).append((error, process_time() - before))
        means = {method: np.mean(each, axis=0) for method, each in found.items()}
        best = min((m for m in means if m.startswith("Soft")), key=lambda m: means[m][0])
        shown = [m for m in means if m == best or not m.startswith("Soft")]
        line = ", ".join(f"{m} {means[m][0]:.3f} ({means[m][1]:.2f})" for m in shown)
        print(f"{name} {whole.shape[0]} x {whole.shape[1]}: {line}", flush=True)


if __name__ == "__main__":
    main()
