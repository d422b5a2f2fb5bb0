"""The alternating sweep with biases: rows for these columns, columns for these rows, rescaled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from momentous.lowrank.biased import BiasedProblem
from momentous.lowrank.ratings import Compressed, Floats
from momentous.lowrank.row_solves import RowSolver
from momentous.lowrank.start import least_penalty

ROWS, COLS = 0, 1


class BiasedSweep:
    """One round of half steps as a descent map: new rows for these columns, then new columns.

    Squared loss (alternating least squares): the state is P or Q alone, because the best other side
    is a function of it.  As in `ALSSweep` it is the side with fewer rows of hardly more entries
    than parameters, which jump from sweep to sweep.

    Half steps alone are slow to agree on the scale of the factors under a ridge: where one side is
    too small the other has to be too large, and each is the best for the other.  `least_penalty`
    settles that between the half steps.  It leaves the predictions as they are, so this remains a
    descent map.  On the MovieLens 1M twin (`benchmarks/peers.py`, rank 10, no biases) F after 5
    sweeps is 0.5029 in place of 0.5289 with ridge 10, and 0.7393 in place of 0.8618 with a ridge of
    0.1 an entry; the least are 0.5016 and 0.7385.

    Logistic loss: each half step is one of Newton's, cut short where it would go too far (see
    `RowSolver`), and the state is (P, Q).  Its first factors are
    of equal size and remain so, and `least_penalty` makes no difference there.
    """

    def __init__(self, problem: BiasedProblem):
        self.problem = problem
        self.side = better_determined(problem.groups, problem.rank)
        self._last = _Round(None, None, None, None)  # for those who look on, and for the end
        self.solvers = [
            RowSolver(groups, weights, problem.threads)
            for groups, weights in zip(problem.groups, problem.weights, strict=True)
        ]

    def state(self, x: Floats) -> Floats:
        """What the map takes, from the columns of a point."""
        if self.problem.loss == "logistic":
            return x
        Q = self.problem.split(x)[1].copy()
        return Q if self.side == COLS else self._half(ROWS, None, Q)[0]

    def point(self, state: Floats) -> Floats:
        """The point that a state stands for."""
        if self.problem.loss == "logistic":
            return state
        last = self._last
        other = last.other if last.state is state else self._half(1 - self.side, None, state)[0]
        return self.problem.join(*self._in_order(state, other))

    def point_after(self, state: Floats, image: Floats) -> Floats:
        """The point after a sweep from this state; its rows are the best for its columns."""
        if self.problem.loss == "logistic" or self.side == COLS:
            return self.point(image)
        if self._last.state is not state:
            self(state)
        return self.problem.join(self._last.image, self._last.rescaled)

    def __call__(self, state: Floats) -> tuple[Floats, float]:
        """(the next state, F at this one)."""
        problem = self.problem
        if problem.loss == "squared":
            other, value = self._half(1 - self.side, None, state)
            value = value / problem.ratings.nnz + problem.penalty_of(state, self.side)
            rescaled = self._rescaled(*self._in_order(state, other))[1 - self.side]
            image, _ = self._half(self.side, None, rescaled)
            self._last = _Round(state, other, rescaled, image)
            return image, value
        P, Q = problem.split(state)
        value = problem.penalty_of(P, ROWS) + problem.penalty_of(Q, COLS)
        new_P, losses = self._half(ROWS, P, Q)
        new_Q, _ = self._half(COLS, Q, new_P)
        return problem.join(new_P, new_Q), value + losses / problem.ratings.nnz

    def _in_order(self, state: Floats, other: Floats) -> tuple[Floats, Floats]:
        """(P, Q), whichever of them is the state."""
        return (state, other) if self.side == ROWS else (other, state)

    def _rescaled(self, P: Floats, Q: Floats) -> tuple[Floats, Floats]:
        """The same predictions under the least penalty of the factors."""
        problem, r = self.problem, self.problem.rank
        if problem.penalty.ridge == 0.0:  # nothing to choose among equal products by
            return P, Q
        U, V = least_penalty(P[:, :r], Q[:, :r], *(weights[:, 0] for weights in problem.weights))
        return np.hstack([U, P[:, r:]]), np.hstack([V, Q[:, r:]])

    def _half(self, which: int, own: Floats | None, other: Floats) -> tuple[Floats, float]:
        """The best parameters of one side, and what the step tells about F.

        That is the least value of this side's terms for the squared loss, and the sum of the losses
        before the step for the logistic one.
        """
        problem = self.problem
        features = other
        offsets = np.full(len(other), problem.mean, problem.dtype)
        if problem.penalty.biases:
            features = other.copy()
            features[:, -1] = 1.0
            offsets += other[:, -1]
        return self.solvers[which](features, offsets, own)


class _Round(NamedTuple):
    """What a sweep of the squared loss came by."""

    state: Any
    other: Any  # the other side, the best for the state
    rescaled: Any  # the same, rescaled
    image: Any  # the best for that


def better_determined(groups: tuple[Compressed, Compressed], rank: int) -> int:
    """The side with fewer rows of less than 2 r entries; of equals the one with fewer rows."""
    few = [int(np.count_nonzero(np.diff(side.starts) < 2 * rank)) for side in groups]
    if few[ROWS] != few[COLS]:
        return ROWS if few[ROWS] < few[COLS] else COLS
    return ROWS if groups[ROWS].starts.size < groups[COLS].starts.size else COLS
