"""The objective with biases: mean + b_i + c_j + u_i . v_j under a penalty for every row.

A row's parameters (u_i, b_i) are one vector: for a fixed other side they are the coefficients of
the features (v_j, 1), and the targets are the ratings less what the other side's biases say.  So
biases take part in every gradient and in every half step like one more factor.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.data.ratings import Floats, Ratings
from momentous.lowrank.losses import find_loss
from momentous.lowrank.objective import LowRankObjective
from momentous.lowrank.penalty import Penalty
from momentous.lowrank.plain import products
from momentous.lowrank.start import svd_start

Loss = Literal["squared", "logistic"]
BLOCK = 1 << 15  # entries whose predictions are held at a time: these and their factors fit a cache


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
            penalty.weights(np.diff(groups.starts), rank, of_rows=rows).astype(self.dtype)
            for groups, rows in zip(self.groups, (True, False), strict=True)
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
        return self._without_biases(
            0.1 * rng.standard_normal((size, self.rank)) for size in self.ratings.shape
        )

    def svd_start(self) -> Floats:
        """The balanced factors of what the mean leaves over (of the labels, for the logistic)."""
        ratings = self.ratings
        if self.loss == "squared":
            ratings = ratings.with_values((ratings.values - self.mean).astype(self.dtype))
        return self._without_biases(svd_start(ratings, self.rank))

    def _without_biases(self, factors: Iterable[Floats]) -> Floats:
        extra = self.width - self.rank
        return self.join(*(np.pad(side, [(0, 0), (0, extra)]) for side in factors))

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
        value += self.penalty_of(P, 0) + self.penalty_of(Q, 1)
        if self.balance:
            imbalance = U.T @ U - V.T @ V
            value += 0.5 * self.balance / count * float(np.sum(imbalance**2))
            grad_P[:, : self.rank] += 2.0 * self.balance / count * (U @ imbalance)
            grad_Q[:, : self.rank] -= 2.0 * self.balance / count * (V @ imbalance)
        return value, self.join(grad_P, grad_Q)

    def value(self, x: Floats) -> float:
        """F alone, without the balance."""
        P, Q = self.split(x)
        return self.mean_loss(P, Q, self.ratings) + self.penalty_of(P, 0) + self.penalty_of(Q, 1)

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

    def penalty_of(self, side: Floats, which: int) -> float:
        """The penalty's part of F: of the rows (0) or of the columns (1)."""
        squares = np.einsum("ij,ij,ij->", self.weights[which], side, side, dtype=np.float64)
        return 0.5 * float(squares) / self.ratings.nnz

    def mean_loss(
        self,
        P: Floats,
        Q: Floats,
        ratings: Ratings,
        limits: tuple[float, float] = (-np.inf, np.inf),
    ) -> float:
        """Of these ratings, block by block: the mean of l(z_ij, X_ij), with z within limits."""
        rows, total = ratings.rows, 0.0
        for begin in range(0, ratings.nnz, BLOCK):
            block = slice(begin, begin + BLOCK)
            i, j = rows[block], ratings.cols[block]
            z = products(P[:, : self.rank], Q[:, : self.rank], i, j) + self.dtype.type(self.mean)
            if self.penalty.biases:
                z += P[i, -1] + Q[j, -1]
            z = np.clip(z, *limits)
            total += find_loss(self.loss).evaluate(z, ratings.values[block])[0]
        return total / ratings.nnz


def log_odds(labels: NDArray[Any]) -> float:
    """Of +1 among labels +1 and -1, with half a label of each kind added: never infinite."""
    ups = np.count_nonzero(labels > 0) + 0.5
    return float(np.log(ups / (labels.size + 1.0 - ups)))
