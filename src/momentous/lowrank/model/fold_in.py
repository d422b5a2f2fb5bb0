"""New rows from their entries alone, for losses that one linear system does not solve."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from momentous.lowrank.backends.base import Matrix
from momentous.lowrank.backends.numpy.entries import add_penalty
from momentous.lowrank.data.ratings import Compressed, Floats
from momentous.lowrank.losses import Loss

BLOCK = 1 << 20  # features that are held at a time
NEWTON_STEPS = 20  # of a row; convex and damped by the ridge, a few are enough
HALVINGS = 40  # of such a step, until it counts as none
ROUNDING = 1e-14  # of sums of losses, relatively: no rise


def newton_rows(
    loss: Loss, groups: Compressed, features: Floats, offsets: Floats, weights: Floats
) -> Floats:
    """Ridge regressions of all rows, those of about equally many entries together.

    Rows are filled up to a power of two entries, so that a batch is one array: at most twice the
    work, and no loop over rows.

    Parameters
    ----------
    loss : Loss
    groups : Compressed
        The entries of each row.
    features : array, (columns, parameters)
    offsets : array, (columns,)
        What is known of a score without the row.
    weights : array, (rows, parameters)
        Of the squares of the parameters, halved, in the objective.

    Returns
    -------
    array, (rows, parameters)
        Zeros for rows without entries.
    """
    counts = np.diff(groups.starts)
    solutions = np.zeros(weights.shape)
    lengths = 1 << np.arange(int(counts.max(initial=0)).bit_length() + 1)
    for below, length in pairwise([0, *lengths.tolist()]):
        alike = np.flatnonzero((below < counts) & (counts <= length))
        at_a_time = max(1, BLOCK // (length * weights.shape[1]))
        for begin in range(0, alike.size, at_a_time):
            rows = alike[begin : begin + at_a_time]
            places = groups.starts[rows, None] + np.arange(length)
            there = np.arange(length) < counts[rows, None]
            places[~there] = 0  # an entry that has no say
            cols = groups.others[places]
            solutions[rows] = _newton(
                loss,
                there,
                features[cols].astype(np.float64) * there[:, :, None],
                offsets[cols].astype(np.float64),
                groups.values[places].astype(np.float64),
                weights[rows].astype(np.float64),
            )
    return solutions.astype(features.dtype)


def _newton(
    loss: Loss, there: Any, features: Floats, offsets: Floats, values: Floats, weights: Matrix
) -> Floats:
    """Newton's method for many rows, steps halved until no objective rises.

    Of shapes (rows, entries, parameters), (rows, entries) and (rows, parameters).
    """

    def evaluate(p: Floats) -> tuple[Floats, Floats, Floats]:
        parts = loss.entries(offsets + _times(features, p), values)
        losses, slopes, curvatures = (np.where(there, part, 0.0) for part in parts)
        total: Floats = np.sum(losses, axis=1) + 0.5 * np.sum(weights * p**2, axis=1)
        return total, slopes, curvatures

    solutions = np.zeros_like(weights)
    lowest, slopes, curvatures = evaluate(solutions)
    for _ in range(NEWTON_STEPS):
        gradients = weights * solutions + _times(features.mT, slopes)
        systems = features.mT @ (curvatures[:, :, None] * features)
        add_penalty(systems, weights)
        steps = np.linalg.solve(systems, gradients[:, :, None])[:, :, 0]
        for _ in range(HALVINGS):
            reached, slopes, curvatures = evaluate(solutions - steps)
            higher = ~(reached <= lowest + ROUNDING * np.abs(lowest))
            if not higher.any():
                break
            steps[higher] *= 0.5
        else:
            steps[higher] = 0.0
            reached, slopes, curvatures = evaluate(solutions - steps)
        solutions, gains, lowest = solutions - steps, lowest - reached, reached
        if np.all(gains <= 1e-12 * np.abs(lowest)):
            break
    return solutions


def _times(matrices: Floats, vectors: Floats) -> Floats:
    """One product of a matrix and a vector for each row."""
    product: Floats = (matrices @ vectors[:, :, None])[:, :, 0]
    return product
