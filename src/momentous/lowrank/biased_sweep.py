"""The alternating sweep with biases: rows for these columns, columns for these rows, rescaled."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from momentous.lowrank.biased import BiasedProblem
from momentous.lowrank.data.ratings import Floats
from momentous.lowrank.plain_sweep import DAMPING
from momentous.lowrank.row_solves import RowSolver
from momentous.lowrank.start import least_penalty
from momentous.lowrank.sweeps import better_determined

ROWS, COLS = 0, 1


class BiasedSweep:
    """One round of half steps as a descent map: new rows for these columns, then new columns.

    Squared loss (alternating least squares): the state is P or Q alone, because the best other side
    is a function of it.  As in `ALSSweep` it is the side with fewer rows of hardly more entries
    than parameters, which jump from sweep to sweep.  Without a ridge (or with one that is hardly
    any) entries may not determine the best other side: then that of the sweep before goes along in
    the state, (P, Q), and no row gets worse than it was there, however near to singular its system
    is.

    Half steps alone are slow to agree on the scale of the factors under a ridge: where one side is
    too small the other has to be too large, and each is the best for the other.  `least_penalty`
    settles that between the half steps.  It leaves the predictions as they are, so this remains a
    descent map.  On the MovieLens 1M twin (`benchmarks/peers.py`, rank 10, no biases) F after 5
    sweeps is 0.5029 in place of 0.5289 with ridge 10, and 0.7393 in place of 0.8618 with a ridge of
    0.1 an entry; the least are 0.5016 and 0.7385.

    Logistic loss: each half step is one of Newton's, cut short where it would go too far (see
    `RowSolver`), and the state is (P, Q).  Its first factors are of equal size and remain so, and
    `least_penalty` makes no difference there.
    """

    def __init__(self, problem: BiasedProblem):
        self.problem = problem
        self.side = better_determined(problem.groups, problem.rank)
        self._one_sided = problem.loss == "squared" and problem.penalty.ridge > DAMPING
        self._last = _Round(None, None, None, None)  # for those who look on, and for the end
        self.solvers = [
            RowSolver(groups, weights, problem.threads, loss=problem.loss)
            for groups, weights in zip(problem.groups, problem.weights, strict=True)
        ]

    def state(self, x: Floats) -> Floats:
        """What the map takes, from a point; for the squared loss by its columns."""
        if self.problem.loss == "logistic":
            return x
        P, Q = self.problem.split(x)
        if self._one_sided:
            return Q.copy() if self.side == COLS else self._half(ROWS, None, Q)[0]
        return x if self.side == COLS else self.problem.join(self._half(ROWS, P, Q)[0], Q)

    def point(self, state: Floats) -> Floats:
        """The point that a state stands for."""
        if self.problem.loss == "logistic":
            return state
        last, (own, before) = self._last, self._own_and_other(state)
        other = last.other if last.state is state else self._half(1 - self.side, before, own)[0]
        return self.problem.join(*self._in_order(own, other))

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
            own, before = self._own_and_other(state)
            other, value = self._half(1 - self.side, before, own)
            value = value / problem.ratings.nnz + problem.penalty_of(own, self.side)
            both = self._rescaled(*self._in_order(own, other))
            rescaled = both[1 - self.side]
            current = None if self._one_sided else both[self.side]
            image, _ = self._half(self.side, current, rescaled)
            self._last = _Round(state, other, rescaled, image)
            if self._one_sided:
                return image, value
            return problem.join(*self._in_order(image, rescaled)), value
        P, Q = problem.split(state)
        value = problem.penalty_of(P, ROWS) + problem.penalty_of(Q, COLS)
        new_P, losses = self._half(ROWS, P, Q)
        new_Q, _ = self._half(COLS, Q, new_P)
        return problem.join(new_P, new_Q), value + losses / problem.ratings.nnz

    def _own_and_other(self, state: Floats) -> tuple[Floats, Floats | None]:
        """The side that the map goes by, and the other one, where it is in the state."""
        if self._one_sided:
            return state, None
        return self._in_order(*self.problem.split(state))

    def _in_order(self, one: Floats, other: Floats) -> tuple[Floats, Floats]:
        """(P, Q) of the side that the map goes by and the other one; or these of (P, Q)."""
        return (one, other) if self.side == ROWS else (other, one)

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
