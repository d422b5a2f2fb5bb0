"""The objective of a low-rank model whose users, with their entries, are spread over ranks."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from momentous.distributed import Variables
from momentous.lowrank.backends import find_backend
from momentous.lowrank.data.ratings import Floats, Ratings
from momentous.lowrank.objective import LowRankObjective
from momentous.lowrank.ranks.items import ItemSweep
from momentous.lowrank.ranks.on_gpu import on_host
from momentous.lowrank.ranks.ratings import RankRatings
from momentous.lowrank.ranks.start import balanced_on_ranks, svd_on_ranks

ROWS, COLS = 0, 1


class RankObjective(LowRankObjective):
    """`LowRankObjective` of ratings that are spread over ranks; every rank makes the same calls.

    x is this rank's part of the point: the parameters P of its users, then the parameters of its
    share of the items (``ranks.share(n)``).  Values are those of the whole, and the same on all
    ranks.  With w parameters per row and n items, the numbers that travel are

    ===========================  ===================================================================
    value and gradient           all_gather n w, reduce_scatter n w (as much as one all_reduce of
                                 n w), and 1 + w^2 or so in one all_reduce
    half a sweep over users      all_gather n w
    half a sweep over items      reduce_scatter n (w (w + 1) / 2 + w)
    by k conjugate gradients     as above, or reduce_scatter n (w + 1), and k times all_gather n w
                                 and reduce_scatter n w, whichever is less; with all_gather n w
                                 where the items were rescaled
    its value, or the penalty    1
    start                        all_reduce n per product of the matrix with a vector
    ===========================  ===================================================================

    Newton's steps for items, where one may go too far, take all_gather n w and all_reduce n more.

    Parameters
    ----------
    ratings : RankRatings
    rank, others
        As for `LowRankObjective`, and the same on every rank.  Points are NumPy arrays with
        ``device="cuda"``, too.
    """

    ratings: RankRatings

    def __init__(  # type: ignore[explicit-any]
        self, ratings: Ratings, *given: Any, **options: Any
    ):
        if not isinstance(ratings, RankRatings):
            raise TypeError(f"expected RankRatings, not {type(ratings).__name__}")
        self.ranks = ratings.ranks
        self._all_items: tuple[Floats, Floats] | None = None
        mean_entries = ratings.whole.nnz // self.ranks.size  # all ranks choose alike
        chosen = options.pop("backend", "auto"), options.pop("device", "cpu"), mean_entries
        super().__init__(ratings, *given, backend=on_host(find_backend(*chosen)), **options)

    # --- points -----------------------------------------------------------------------------------

    @property
    def items(self) -> slice[int | None, int | None]:
        """This rank's share of the items."""
        return self.ranks.share(self.ratings.shape[1])

    def balanced(self, U: Floats, V: Floats) -> tuple[Floats, Floats]:
        return balanced_on_ranks(U, V, self.ranks)

    def gathered(self, Q: Floats) -> Floats:
        """The parameters of all items, from the shares of all ranks; the last ones are kept."""
        if self._all_items is None or self._all_items[0] is not Q:
            shares = self.ranks.shares(self.ratings.shape[1])
            self._all_items = Q, self.ranks.all_gather(np.ascontiguousarray(Q), shares)
        return self._all_items[1]

    @cached_property
    def _start(self) -> Floats:
        matrix = self.ratings.to_sparse().astype(np.float64)
        matrix.data = self.loss.start_values(self.ratings, self.mean).astype(np.float64)
        U, V = svd_on_ranks(matrix, self.rank, self.ranks)
        return self._without_biases(U, V[self.items])

    # --- sums over ranks --------------------------------------------------------------------------

    @property
    def layout(self) -> Variables:
        return Variables(self.ranks)

    def total(self, number: float) -> float:
        return self.ranks.sum(number)

    def any(self, flag: bool) -> bool:
        return bool(self.ranks.all_reduce(np.array([float(flag)]), "max")[0])

    def gram(self, factor: Floats, weights: Floats) -> NDArray[np.float64]:
        whole: NDArray[np.float64] = self.ranks.all_reduce(super().gram(factor, weights))
        return whole

    def norm(self, x: Floats) -> float:
        return float(np.sqrt(self.total(float(np.sum(np.square(x, dtype=np.float64))))))

    def counts(self, which: int) -> NDArray[np.int64]:
        """Of this rank's users (0), or of its share of the items (1), on all ranks."""
        return self._col_counts if which == COLS else super().counts(which)

    @cached_property
    def _col_counts(self) -> NDArray[np.int64]:
        counts = np.bincount(self.ratings.cols, minlength=self.ratings.shape[1])
        share: NDArray[np.int64] = self.ranks.reduce_scatter(counts.astype(np.int64))
        return share

    @cached_property
    def share_of_weights(self) -> Floats:
        """The weights of all items over the number of ranks: so much of the penalty stands beside
        the sums of one rank."""
        shares = self.ranks.shares(self.ratings.shape[1])
        whole: Floats = self.ranks.all_gather(self.weights[COLS], shares)
        whole /= self.ranks.size
        return whole

    def penalty_of(self, side: Floats, which: int) -> float:
        return self.total(super().penalty_of(side, which))

    # --- the function -----------------------------------------------------------------------------

    def value(self, x: ArrayLike, *, balance: float | None = None) -> float:
        """F at the point that x is a part of."""
        balance = self.balance if balance is None else balance
        with np.errstate(over="ignore", invalid="ignore"):
            P, Q = self.split(x)
            left, right = self._widen(P, self.gathered(Q))
            losses = self.side(self._long).value(*self._long_first(left, right))
            return self._whole_value(losses, P, Q, left, right, balance)[0]

    def value_and_gradient(self, x: ArrayLike) -> tuple[float, Floats]:
        """F, and this rank's part of its gradient."""
        P, Q = self.split(x)
        r, scale, share = self.rank, 1.0 / self.nnz, self.items
        with np.errstate(over="ignore", invalid="ignore"):
            left, right = self._widen(P, self.gathered(Q))
            grad_left, grad_right = np.zeros_like(left), np.zeros_like(right)
            losses = self.side(self._long).add_gradient(
                *self._long_first(left, right), scale, *self._long_first(grad_left, grad_right)
            )
            columns = [*range(r), -1] if self.penalty.biases else [*range(r)]
            sent = grad_right[:, columns] if right.shape[1] > len(columns) else grad_right
            of_items = self.ranks.reduce_scatter(np.ascontiguousarray(sent))
            value, of_left, of_right = self._whole_value(losses, P, Q, left, right, self.balance)
            if self.loss.dense_weight:
                factor = scale * self.loss.dense_weight
                grad_left += left @ (factor * of_right).astype(self.dtype)
                dense = right[share] @ (factor * of_left).astype(self.dtype)
                of_items += dense[:, columns]
            gradient: Floats = np.empty(self.dimension, self.dtype)
            pull = 2.0 * scale * self.balance * (of_left[:r, :r] - of_right[:r, :r])
            for part, own, found, turn, weights in zip(
                self._parts(gradient), (P, Q), (grad_left, of_items), (pull, -pull), self.weights,
                strict=True,
            ):  # fmt: skip
                part[...] = found[:, : self.width]
                part[:, :r] += own[:, :r] @ turn.astype(self.dtype)
                part += weights * own * self.dtype.type(scale)
            return value, gradient

    def _whole_value(
        self, losses: float, P: Floats, Q: Floats, left: Floats, right: Floats, balance: float
    ) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """F from this rank's losses, and the Gram matrices of both sides, in one message."""
        r = self.rank
        squares = self.backend.weighted_squares(self.weights[ROWS], P)
        squares += self.backend.weighted_squares(self.weights[COLS], Q)
        of_left = self.backend.gram(left)
        whole = self.ranks.all_reduce(np.concatenate([[losses, squares], of_left.ravel()]))
        losses, squares = float(whole[0]), float(whole[1])
        of_left, of_right = whole[2:].reshape(of_left.shape), self.backend.gram(right)
        if self.loss.dense_weight:
            losses += 0.5 * self.loss.dense_weight * float((of_left * of_right).sum())
        imbalance = float(((of_left[:r, :r] - of_right[:r, :r]) ** 2).sum())
        return (losses + 0.5 * (balance * imbalance + squares)) / self.nnz, of_left, of_right

    # --- one side for the other -------------------------------------------------------------------

    def half_sweep(
        self,
        which: int,
        own: Floats | None,
        other: Floats,
        *,
        with_value: bool = True,
        steps: int | None = None,
    ) -> tuple[Floats, float]:
        """New parameters of this rank's users (0), or of its share of the items (1)."""
        if which == COLS:
            found, value = ItemSweep(self, own, other, steps).solve()
        else:
            found, value = super().half_sweep(ROWS, own, other, with_value=True, steps=steps)
        return found, self.total(value) if with_value else 0.0
