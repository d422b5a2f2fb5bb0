"""The fit with biases: mean + b_i + c_j + u_i . v_j, as an objective and as an alternating sweep.

A row's parameters (u_i, b_i) are one vector: for a fixed other side they are the coefficients of
the features (v_j, 1), and the targets are the ratings less what the other side's biases say.  So
biases take part in every half step and in every gradient like one more factor.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.losses import find_loss
from momentous.lowrank.objective import LowRankObjective
from momentous.lowrank.penalty import Penalty
from momentous.lowrank.plain import products
from momentous.lowrank.ratings import Compressed, Floats, Ratings
from momentous.lowrank.row_solves import RowSolver
from momentous.lowrank.start import svd_start

Loss = Literal["squared", "logistic"]


class BiasedProblem:
    """Ratings, a rank, a loss and a penalty: all that a solver is told.

    With p_i = (u_i, b_i), q_j = (v_j, c_j), z_ij = mean + b_i + c_j + u_i . v_j, and the weights
    w of `Penalty`,

        ``F = (1/N) sum l(z_ij, X_ij) + (1/2N) (sum_i w_i . p_i^2 + sum_j w_j . q_j^2)
        + (balance/2N) |U'U - V'V|_F^2``

    A point is one flat vector: all p_i, then all q_j.

    Parameters
    ----------
    ratings : Ratings
        For the logistic loss of +1 and -1.
    rank : int
        From 1 to the smaller side of the matrix.
    loss : "squared" or "logistic"
    mean : float
        What the model says without factors and biases; log odds for the logistic loss.
    penalty : Penalty
    balance : float
        For `value_and_gradient`; sweeps need no balance and know none.
    threads : int, optional
    """

    def __init__(
        self,
        ratings: Ratings,
        rank: int,
        loss: Loss,
        mean: float,
        penalty: Penalty,
        *,
        balance: float = 0.0,
        threads: int | None = None,
    ):
        find_loss(loss).check(ratings)
        self.ratings, self.rank, self.loss, self.mean = ratings, rank, loss, mean
        self.penalty, self.balance, self.threads = penalty, balance, threads
        self.width = rank + penalty.biases
        self.dtype = ratings.dtype
        self.groups = (ratings.by_row, ratings.by_col)
        self.weights = tuple(
            penalty.weights(np.diff(groups.starts), rank).astype(self.dtype)
            for groups in self.groups
        )

    # --- points -----------------------------------------------------------------------------------

    def join(self, P: Floats, Q: Floats) -> Floats:
        """The point with these parameters."""
        return np.concatenate([P.ravel(), Q.ravel()]).astype(self.dtype, copy=False)

    def split(self, x: Floats) -> tuple[Floats, Floats]:
        """The parameters (P, Q) of a point, as views."""
        cut = self.ratings.shape[0] * self.width
        return x[:cut].reshape(-1, self.width), x[cut:].reshape(-1, self.width)

    def random_start(self, rng: np.random.Generator) -> Floats:
        """Small random factors and no biases: enough for a sweep to begin with."""
        sides = []
        for size in self.ratings.shape:
            side = np.zeros((size, self.width))
            side[:, : self.rank] = 0.1 * rng.standard_normal((size, self.rank))
            sides.append(side)
        return self.join(*sides)

    def svd_start(self) -> Floats:
        """The balanced factors of what the mean leaves over (of the labels, for the logistic)."""
        ratings = self.ratings
        if self.loss == "squared":
            left_over = (ratings.values - self.mean).astype(self.dtype)
            ratings = ratings._like(
                Compressed(ratings.by_row.starts, ratings.by_row.others, left_over)
            )
        sides = []
        for factors in svd_start(ratings, self.rank):
            side = np.zeros((factors.shape[0], self.width))
            side[:, : self.rank] = factors
            sides.append(side)
        return self.join(*sides)

    # --- the function, for methods that go by gradients -------------------------------------------

    def value_and_gradient(self, x: Floats) -> tuple[float, Floats]:
        """F and its gradient: one pass over the entries with factors widened by constants."""
        P, Q = self.split(x)
        inner = self._inner()
        U, V = P[:, : self.rank], Q[:, : self.rank]
        value, widened = inner.value_and_gradient(inner.join(*self._widened(P, Q, inner)))
        count = self.ratings.nnz
        parts = inner.split(widened)
        grad_P, grad_Q = (
            np.array(part[: len(side), : self.width])
            for part, side in zip(parts, (P, Q), strict=True)
        )
        if self.penalty.biases:  # the bias of a column stands against the constant of the rows
            grad_Q[:, -1] = parts[1][: len(Q), -1]
        grad_P += self.weights[0] * P / count
        grad_Q += self.weights[1] * Q / count
        value += self._penalty_of(P, 0) + self._penalty_of(Q, 1)
        if self.balance:
            imbalance = U.T @ U - V.T @ V
            value += 0.5 * self.balance / count * float(np.sum(imbalance**2))
            grad_P[:, : self.rank] += 2.0 * self.balance / count * (U @ imbalance)
            grad_Q[:, : self.rank] -= 2.0 * self.balance / count * (V @ imbalance)
        return value, self.join(grad_P, grad_Q)

    def value(self, x: Floats) -> float:
        """F alone, without the balance."""
        P, Q = self.split(x)
        z = self.predictions(P, Q, self.ratings.rows, self.ratings.cols)
        losses, _ = find_loss(self.loss).evaluate(z, self.ratings.values)
        return losses / self.ratings.nnz + self._penalty_of(P, 0) + self._penalty_of(Q, 1)

    def _inner(self) -> LowRankObjective:
        """The bare objective, with room for the columns [b, 1] and [1, c + mean]."""
        if not hasattr(self, "_widened_objective"):
            rank, ratings = self.width + 1, self.ratings
            if rank > min(ratings.shape):  # rows and columns without entries change nothing
                shape = (max(rank, ratings.shape[0]), max(rank, ratings.shape[1]))
                ratings = Ratings(ratings.rows, ratings.cols, ratings.values, shape)
            self._widened_objective = LowRankObjective(
                ratings, rank, self.loss, balance=0.0, threads=self.threads
            )
        return self._widened_objective

    def _widened(self, P: Floats, Q: Floats, inner: LowRankObjective) -> tuple[Floats, Floats]:
        m, n = inner.ratings.shape
        left, right = (np.zeros((size, self.width + 1), self.dtype) for size in (m, n))
        left[: len(P), : self.width], left[:, -1] = P, 1.0
        right[: len(Q), : self.rank] = Q[:, : self.rank]
        right[:, -1] = self.mean
        if self.penalty.biases:
            right[:, self.rank] = 1.0
            right[: len(Q), -1] += Q[:, -1]
        return left, right

    def _penalty_of(self, side: Floats, which: int) -> float:
        squares = np.einsum("ij,ij,ij->", self.weights[which], side, side, dtype=np.float64)
        return 0.5 * float(squares) / self.ratings.nnz

    # --- predictions ------------------------------------------------------------------------------

    def predictions(self, P: Floats, Q: Floats, rows: Any, cols: Any) -> Floats:
        """z_ij at these pairs of positions."""
        z: Floats = products(P[:, : self.rank], Q[:, : self.rank], rows, cols) + self.dtype.type(
            self.mean
        )
        if self.penalty.biases:
            z += P[rows, -1] + Q[cols, -1]
        return z

    def deviance(self, P: Floats, Q: Floats, held_out: Ratings) -> float:
        """How wrong the predictions are elsewhere: the root mean square, or the mean log loss."""
        z = self.predictions(P, Q, held_out.rows, held_out.cols)
        total, _ = find_loss(self.loss).evaluate(z, held_out.values)
        mean = total / held_out.nnz
        return float(np.sqrt(2.0 * mean)) if self.loss == "squared" else mean


class BiasedSweep:
    """One round of half steps as a descent map: new rows for these columns, then new columns.

    Squared loss (alternating least squares): the state is Q alone, because the best P is a function
    of it.  Logistic loss (majorise-minimise): l'' <= 1/4, so that ``(z - t)^2 / 8`` with
    ``t = z0 + 4 y sigmoid(-y z0)`` lies above the loss and touches it at z0; each half step is the
    one for the squared loss with targets t and four times the penalty, and the state is (P, Q).
    """

    def __init__(self, problem: BiasedProblem):
        self.problem = problem
        self._last: tuple[Any, Any] = (None, None)  # a state and its P, for those who look on
        self.scale = 1.0 if problem.loss == "squared" else 4.0
        self.solvers = [
            RowSolver(groups, self.scale * weights, problem.threads)
            for groups, weights in zip(problem.groups, problem.weights, strict=True)
        ]

    def state(self, x: Floats) -> Floats:
        """What the map takes, from a point."""
        return self.problem.split(x)[1].copy() if self.problem.loss == "squared" else x

    def point(self, state: Floats) -> Floats:
        """The point that a state stands for."""
        if self.problem.loss == "logistic":
            return state
        last, P = self._last
        if last is not state:
            P, _ = self._half(0, None, state)
        return self.problem.join(P, state)

    def __call__(self, state: Floats) -> tuple[Floats, float]:
        """(the next state, F at this one)."""
        problem = self.problem
        if problem.loss == "squared":
            P, value = self._half(0, None, state)
            self._last = state, P
            value = value / problem.ratings.nnz + problem._penalty_of(state, 1)
            return self._half(1, None, P)[0], value
        P, Q = problem.split(state)
        value = problem._penalty_of(P, 0) + problem._penalty_of(Q, 1)
        new_P, losses = self._half(0, P, Q)
        new_Q, _ = self._half(1, Q, new_P)
        return problem.join(new_P, new_Q), value + losses / problem.ratings.nnz

    def _half(self, which: int, own: Floats | None, other: Floats) -> tuple[Floats, float]:
        """The best parameters of one side, and what the step tells about F.

        That is the least value of this side's terms for the squared loss, and the sum of the losses
        before the step for the logistic one.
        """
        problem, groups = self.problem, self.problem.groups[which]
        features = other.copy()
        if problem.penalty.biases:
            features[:, -1] = 1.0
        offsets = np.full(len(other), problem.mean, problem.dtype)
        if problem.penalty.biases:
            offsets += other[:, -1]
        offset = offsets[groups.others]
        if problem.loss == "squared":
            targets = groups.values - offset
            solution, explained = self.solvers[which](features, targets)
            squares = float(np.dot(targets, targets))
            return solution, 0.5 * (squares - explained)
        assert own is not None
        rows = np.repeat(np.arange(len(own)), np.diff(groups.starts))
        z = products(own, features, rows, groups.others) + offset
        losses, slopes = find_loss("logistic").evaluate(z, groups.values)
        return self.solvers[which](features, z - 4.0 * slopes - offset)[0], losses


def log_odds(labels: NDArray[Any]) -> float:
    """Of +1 among labels +1 and -1, with half a label of each kind added: never infinite."""
    ups = np.count_nonzero(labels > 0) + 0.5
    return float(np.log(ups / (labels.size + 1.0 - ups)))
