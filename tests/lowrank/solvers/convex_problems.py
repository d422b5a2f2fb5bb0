"""Fifteen small convex problems, and their optima by cvxpy, which this program prints."""

from __future__ import annotations

import numpy as np

from momentous.lowrank import Ratings
from momentous.lowrank.losses import find_loss

SHAPE = (60, 40)
RIDGES = {"squared": 4.0, "logistic": 1.0, "implicit": 8.0}
KINDS = [  # one per seed: how the ridge grows with counts, and the ridge of the biases, if any
    {"weighting": 0.0, "bias_ridge": None}, {"weighting": 0.5, "bias_ridge": None},
    {"weighting": 0.0, "bias_ridge": 2.0}, {"weighting": 0.5, "bias_ridge": 0.5},
    {"weighting": 0.5, "bias_ridge": 0.0},
]  # fmt: skip
OPTIMA = {
    ("squared", 0): 818.72747745,
    ("squared", 1): 770.67753375,
    ("squared", 2): 646.26277943,
    ("squared", 3): 575.41631587,
    ("squared", 4): 596.13770679,
    ("logistic", 0): 366.02629580,
    ("logistic", 1): 388.45403640,
    ("logistic", 2): 344.05562732,
    ("logistic", 3): 319.31480756,
    ("logistic", 4): 303.19785583,
    ("implicit", 0): 728.36603050,
    ("implicit", 1): 772.20610144,
    ("implicit", 2): 499.60537484,
    ("implicit", 3): 495.75180128,
    ("implicit", 4): 495.86171187,
}


def options(loss, seed):
    """Of `FitConfig`, but for the rank."""
    kind = dict(KINDS[seed])
    if loss == "implicit" and kind["bias_ridge"] == 0.0:
        kind["bias_ridge"] = 1.0
    ridge = RIDGES[loss] / (4.0 if kind["weighting"] else 1.0)
    biases = kind["bias_ridge"] is not None
    kind["bias_ridge"] = kind["bias_ridge"] or 0.0
    return {"loss": loss, "ridge": ridge, "biases": biases, "centre": seed % 2 == 0, **kind}


def ratings(loss, seed):
    rng = np.random.default_rng(seed)
    m, n = SHAPE
    signal = rng.standard_normal((m, 3)) @ rng.standard_normal((3, n))
    signal += rng.standard_normal((m, 1)) + rng.standard_normal((1, n)) + 0.5
    signal += 0.3 * rng.standard_normal(SHAPE)
    there = rng.random(SHAPE) < 0.4
    values = signal[there]
    if loss == "logistic":
        values = np.where(values > 0.0, 1.0, -1.0)
    elif loss == "implicit":
        values = 1.0 + rng.poisson(2.0, values.size)
    return Ratings(*np.nonzero(there), values, SHAPE)


def optimum(loss, seed):
    """The least objective over all matrices and biases, times the number of entries, by cvxpy."""
    import cvxpy as cp

    given, entries = options(loss, seed), ratings(loss, seed)
    mean = find_loss(loss).mean(entries) if given["centre"] else 0.0
    there, values = np.zeros(SHAPE), np.zeros(SHAPE)
    there[entries.rows, entries.cols], values[entries.rows, entries.cols] = 1.0, entries.values
    X = cp.Variable(SHAPE)
    Z, penalty = X + mean, 0.0
    if given["biases"]:
        b, c = cp.Variable((SHAPE[0], 1)), cp.Variable((1, SHAPE[1]))
        Z = Z + b @ np.ones((1, SHAPE[1])) + np.ones((SHAPE[0], 1)) @ c
        penalty = 0.5 * given["bias_ridge"] * (cp.sum_squares(b) + cp.sum_squares(c))
    W, T = (np.maximum(there.sum(axis=k), 1.0) ** (0.5 * given["weighting"]) for k in (1, 0))
    penalty += given["ridge"] * cp.normNuc(cp.diag(W) @ X @ cp.diag(T))
    if loss == "squared":
        losses = 0.5 * cp.sum_squares(cp.multiply(there, Z - values))
    elif loss == "logistic":
        losses = cp.sum(cp.multiply(there, cp.logistic(-cp.multiply(values, Z))))
    else:
        roots = np.sqrt(1.0 + values)
        losses = 0.5 * cp.sum_squares(cp.multiply(roots, there - Z))
    problem = cp.Problem(cp.Minimize(losses + penalty))
    problem.solve(solver=cp.CLARABEL)
    return float(problem.value)


if __name__ == "__main__":
    for loss in RIDGES:
        for seed in range(len(KINDS)):
            print(f"    ({loss!r}, {seed}): {optimum(loss, seed):.8f},", flush=True)
