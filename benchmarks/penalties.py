"""Simple terms: "auto" with ``penalty=`` beside scikit-learn, skglm, celer and SciPy's nnls.

Lasso, elastic net, group lasso, nonnegative least squares, logistic regression with L1, and L1
Student-t regression, which is not convex and has no baseline.  Every solver is asked for as much as
it can give; what counts is (F - F*)/F*, F* the lowest value of all, and CPU time as a ratio to
ours, the least of several runs, all in one process and in turns.  ``residual`` is
|x - prox(x - g, 1)| of our x, relative to that at 0, computed here.  skglm and celer are made for
these problems, with coordinate descent on working sets in compiled code; the last column is how
many values and gradients ours takes.

    pip install scikit-learn skglm celer
    python benchmarks/penalties.py [--rows 500] [--columns 2000] [--repeats 3] [--only lasso]
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scipy.optimize import nnls
from scipy.special import expit

import momentous

Solvers = dict[str, Callable[[], np.ndarray]]


def data(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns correlated by 0.5 with their neighbours, and 1 % of the coefficients not 0."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns))
    for j in range(1, columns):
        X[:, j] = 0.5 * X[:, j - 1] + np.sqrt(0.75) * X[:, j]
    truth = np.zeros(columns)
    chosen = rng.choice(columns, max(columns // 100, 5), replace=False)
    truth[chosen] = rng.standard_normal(len(chosen))
    y = X @ truth
    y += 0.3 * np.linalg.norm(y) / np.sqrt(rows) * rng.standard_normal(rows)
    return np.asfortranarray(X), y, rng.standard_t(2, rows)


def problems(rows: int, columns: int) -> dict[str, tuple[Any, Any, Solvers]]:
    """Name: f with its gradient, the term, and the baselines."""
    X, y, heavy = data(rows, columns)
    n = rows
    largest = np.abs(X.T @ y).max() / n
    labels = np.sign(y)
    groups = np.arange(columns) // 5

    def squares(w: np.ndarray) -> tuple[float, np.ndarray]:
        e = X @ w - y
        return float(e @ e) / (2 * n), X.T @ e / n

    def logistic(w: np.ndarray) -> tuple[float, np.ndarray]:
        z = labels * (X @ w)
        return float(np.logaddexp(0, -z).mean()), -X.T @ (labels * expit(-z)) / n

    def student(w: np.ndarray) -> tuple[float, np.ndarray]:
        e = X @ w - y - heavy
        return float(np.log1p(e * e / 2).mean()), X.T @ (e / (1 + e * e / 2)) / n

    made: dict[str, tuple[Any, Any, Solvers]] = {}
    for share in (10, 100):
        a = float(largest / share)
        made[f"lasso 1/{share}"] = (squares, momentous.L1(a), lasso(X, y, a))
    a = float(largest / 20)
    net = momentous.ElasticNet(a * 0.5, a * 0.5)
    made["elastic net"] = (squares, net, elastic_net(X, y, a))
    a = float(largest / 5)
    made["group lasso"] = (squares, momentous.GroupL2(a, groups), group_lasso(X, y, a))
    A = np.abs(X[:, : columns // 4])
    b = A @ np.maximum(np.random.default_rng(1).standard_normal(A.shape[1]), 0) + y

    def nonnegative(w: np.ndarray) -> tuple[float, np.ndarray]:
        e = A @ w - b
        return float(e @ e) / 2, A.T @ e

    made["nnls"] = (nonnegative, momentous.NonNegative(), {"scipy": lambda: nnls(A, b)[0]})
    a = float(np.abs(X.T @ labels).max() / (2 * n) / 10)
    made["logistic"] = (logistic, momentous.L1(a), sparse_logistic(X, labels, a))
    made["Student-t"] = (student, momentous.L1(float(largest / 50)), {})
    return made


def lasso(X: np.ndarray, y: np.ndarray, a: float) -> Solvers:
    import celer
    import skglm
    from sklearn import linear_model

    ours = {"alpha": a, "fit_intercept": False}
    return {
        "sklearn": lambda: linear_model.Lasso(**ours, tol=1e-14, max_iter=10**5).fit(X, y).coef_,
        "skglm": lambda: skglm.Lasso(**ours, tol=1e-13).fit(X, y).coef_,
        "celer": lambda: celer.Lasso(**ours, tol=1e-14).fit(X, y).coef_,
    }


def elastic_net(X: np.ndarray, y: np.ndarray, a: float) -> Solvers:
    import celer
    import skglm
    from sklearn import linear_model

    ours = {"alpha": a, "l1_ratio": 0.5, "fit_intercept": False}
    net = linear_model.ElasticNet(**ours, tol=1e-14, max_iter=10**5)
    return {
        "sklearn": lambda: net.fit(X, y).coef_,
        "skglm": lambda: skglm.ElasticNet(**ours, tol=1e-13).fit(X, y).coef_,
        "celer": lambda: celer.ElasticNet(**ours, tol=1e-14).fit(X, y).coef_,
    }


def group_lasso(X: np.ndarray, y: np.ndarray, a: float) -> Solvers:
    import celer
    import skglm

    ours = {"groups": 5, "alpha": a, "fit_intercept": False}
    return {
        "skglm": lambda: skglm.GroupLasso(**ours, tol=1e-13).fit(X, y).coef_,
        "celer": lambda: celer.GroupLasso(**ours, tol=1e-14).fit(X, y).coef_,
    }


def sparse_logistic(X: np.ndarray, labels: np.ndarray, a: float) -> Solvers:
    import celer
    import skglm
    from sklearn import linear_model

    C = 1 / (a * len(labels))
    ours = {"fit_intercept": False, "C": C}
    liblinear = {"solver": "liblinear", "l1_ratio": 1, "tol": 1e-8, "max_iter": 10**4}
    sparse = skglm.SparseLogisticRegression(alpha=a, tol=1e-11, fit_intercept=False)
    return {
        "sklearn": lambda: (
            linear_model.LogisticRegression(**ours, **liblinear).fit(X, labels).coef_[0]
        ),
        "skglm": lambda: sparse.fit(X, labels).coef_[0],
        "celer": lambda: celer.LogisticRegression(**ours, tol=1e-11).fit(X, labels).coef_[0],
    }


def cpu_seconds(solve: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    found = solve()
    return time.process_time() - began, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--columns", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="problems whose name begins so")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("problem: ours (relative gap, residual, seconds, evaluations); baseline: gap, time/ours")
    for name, (fun, term, others) in problems(given.rows, given.columns).items():
        if not name.startswith(given.only):
            continue
        x0 = np.zeros(fun(np.zeros(given.columns // (4 if name == "nnls" else 1)))[1].size)

        def gap(x: np.ndarray, fun: Any = fun, term: Any = term) -> float:
            return float(np.linalg.norm(x - term.prox(x - fun(x)[1], 1.0)))

        first = gap(x0)

        def ours(fun: Any = fun, term: Any = term, x0: Any = x0, first: float = first) -> Any:
            return momentous.minimize(fun, x0, jac=True, penalty=term, tol=1e-9 * first)

        solvers: dict[str, Callable[[], Any]] = {"ours": ours, **others}
        seconds = dict.fromkeys(solvers, np.inf)
        found: dict[str, np.ndarray] = {}
        for solve in solvers.values():
            solve()  # what is compiled is compiled
        for _ in range(given.repeats):
            for which, solve in solvers.items():
                spent, x = cpu_seconds(solve)
                if which == "ours":
                    result, x = x, x.x
                seconds[which], found[which] = min(seconds[which], spent), x
        values = {which: fun(x)[0] + float(term.value(x)) for which, x in found.items()}
        lowest = min(values.values())
        rows = [f"{(values[w] - lowest) / abs(lowest):.1e}" for w in solvers]
        words = [
            f"{w} {row} {seconds[w] / seconds['ours']:.3f}"
            for w, row in list(zip(solvers, rows, strict=True))[1:]
        ]
        print(
            f"{name}: {rows[0]}, {gap(found['ours']) / first:.1e}, {seconds['ours']:.3f} s, "
            f"{result.nfev}{'' if result.success else ' ' + result.message}; " + "; ".join(words),
            flush=True,
        )


if __name__ == "__main__":
    main()
