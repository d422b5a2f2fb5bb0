"""The objective of a low-rank model whose users, with their entries, are spread over ranks."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from momentous.distributed import Variables
from momentous.io.types import Integers
from momentous.lowrank.backends import Backend, RowStep, find_backend
from momentous.lowrank.backends.base import FULL_STEP
from momentous.lowrank.backends.conjugate import conjugate_change
from momentous.lowrank.backends.numpy import solve_systems
from momentous.lowrank.backends.sums import (
    DensePart,
    furthest_moves,
    numbers_per_row,
    unpack_lines,
)
from momentous.lowrank.data.ratings import Floats, Ratings
from momentous.lowrank.objective import LowRankObjective
from momentous.lowrank.ranks.on_gpu import on_host
from momentous.lowrank.ranks.ratings import RankRatings
from momentous.lowrank.ranks.start import balanced_on_ranks, svd_on_ranks

ROWS, COLS = 0, 1
LINES = 1 << 25  # numbers of the items' systems that are added up over ranks at a time
Doubles = NDArray[np.float64]


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

    def summed(self, array: Floats) -> Floats:
        total: Floats = self.ranks.all_reduce(np.ascontiguousarray(array))
        return total

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


def numbers_by_products(width: int, steps: int) -> int:
    """What travels per item for so many steps of conjugate gradients: right-hand side and sum of
    curvatures, then a direction there and a product back for each step."""
    return width + 1 + 2 * steps * width


class ItemSweep:
    """New parameters of this rank's share of the items, given the users of all ranks.

    Each rank sums over its own users, and solves for its share.  What travels are the items'
    systems, or for conjugate gradients, where that is less, the products of the systems with the
    directions of each step: either way the outcome is the same, but for rounding.  With ``steps``
    by so many steps of conjugate gradients, otherwise by solving.
    """

    def __init__(
        self, objective: RankObjective, own: Floats | None, users: Floats, steps: int | None
    ):
        self.objective, self.ranks, self.loss = objective, objective.ranks, objective.loss
        self.side, self.steps, self.width = objective.side(COLS), steps, objective.width
        self.axes, self.squares = None, np.ones(self.width)
        if steps is not None:
            assert own is not None
            self.axes, self.squares = objective.principal_axes(COLS, users)
            users = objective.turned(users, self.axes)
        self.features, self.offsets = objective._features(users)
        self.before = np.zeros((len(objective.weights[COLS]), self.width))
        current = None
        if own is not None:
            current = self._in_axes(objective.gathered(own))
            self.before += current[objective.items]
        self.empty = objective.counts(COLS) == 0 if not self.loss.dense_weight else None
        if self.empty is not None:
            self.before[self.empty] = 0.0
        self.penalty = objective.weights[COLS].astype(np.float64)
        self.step = RowStep(objective.share_of_weights, self.features, self.offsets, current)
        self.dense = self._dense_part()

    def solve(self) -> tuple[Floats, float]:
        """The parameters, and this rank's part of what `LowRankObjective.half_sweep` returns."""
        if self.steps is None or self._by_systems(self.steps):
            change, value = self._from_systems()
        else:
            change, value = self._from_products(self.steps)
        if self.loss.self_concordant:
            change *= self._step_lengths(change)[:, None]
        if self.steps is not None and self.empty is not None:
            change[self.empty] = 0.0
        solutions = (self.before + change).astype(self.objective.dtype)
        return self._out_of_axes(solutions), value

    def _in_axes(self, side: Floats) -> Floats:
        return side if self.axes is None else self.objective.turned(side, self.axes)

    def _out_of_axes(self, side: Floats) -> Floats:
        return side if self.axes is None else self.objective.turned(side, self.axes.T)

    # --- systems travel ---------------------------------------------------------------------------

    def _by_systems(self, steps: int) -> bool:
        """Are systems, with the sum of curvatures that preconditions, less than products?"""
        known = self.loss.unit_curvature or self.objective.penalty.biases
        return known and numbers_per_row(self.width) <= numbers_by_products(self.width, steps)

    def _from_systems(self) -> tuple[Doubles, float]:
        change, value = np.zeros_like(self.before), 0.0
        block = self.ranks.block(self.objective.ratings.shape[1])
        length = max(1, LINES // (numbers_per_row(self.width) * self.ranks.size))
        for first in range(0, block, length):
            part = slice(first, min(first + length, block))
            lines, losses = self._lines(part.start, part.stop)
            value += losses
            penalty, before = self.penalty[part], self.before[part]
            mine = self.ranks.reduce_scatter(lines)[: len(penalty)]
            if self.dense is not None:
                mine = mine.astype(np.float64)
                value += self.dense.add_to_lines(mine, before)
            if self.steps is None:
                change[part], least = self._solve_rows(mine, penalty, before)
                value += least
            else:
                systems, b = unpack_lines(mine, self.width)
                b -= penalty * before
                change[part] = self._improve(systems, b, penalty, part, self.steps)
        return change, value

    def _solve_rows(
        self, lines: Floats, penalty: Doubles, before: Doubles
    ) -> tuple[Doubles, float]:
        quadratic = self.loss.quadratic
        backend: Backend = self.objective.backend
        found = backend.solve_lines(lines, penalty, before, quadratic=quadratic)
        if found is None:
            systems, b = unpack_lines(lines, self.width)
            b -= penalty * before
            found = solve_systems(systems, b, penalty, before, shortest=quadratic)
        return found

    def _lines(self, first: int, last: int) -> tuple[Floats, float]:
        """The sums for the rows first to last - 1 of the share of every rank, one share after
        another and all of them equally long."""
        n = self.objective.ratings.shape[1]
        block, size = self.ranks.block(n), self.ranks.size
        lines = np.zeros((size, last - first, numbers_per_row(self.width)), self.objective.dtype)
        losses = 0.0
        for rank in range(size):
            begin, end = (
                min(rank * block + first, n),
                min(rank * block + last, (rank + 1) * block, n),
            )
            if begin < end:
                lines[rank, : end - begin], found = self.side.row_sums(self.step, begin, end)
                losses += found
        return lines.reshape(-1, lines.shape[2]), losses

    def _improve(
        self, systems: Doubles, b: Doubles, penalty: Doubles, part: slice[int, int], steps: int
    ) -> Doubles:
        """By conjugate gradients, with systems at hand; the dense part is in them."""
        curved: Floats | Integers = systems[:, -1, -1]
        if self.loss.unit_curvature:
            curved = self.objective.counts(COLS)[part]
        elif self.dense is not None:
            curved = curved - self.dense.weight * self.dense.gram[-1, -1]

        def product(directions: Doubles) -> Doubles:
            turned = np.einsum("ipq,iq->ip", systems, directions)
            return np.asarray(turned + penalty * directions)

        change: Doubles = conjugate_change(
            b, self._diagonal(curved, penalty), product, steps, self.objective.dtype
        )
        return change

    # --- products travel --------------------------------------------------------------------------

    def _from_products(self, steps: int) -> tuple[Doubles, float]:
        """By conjugate gradients: each step sends directions, and adds up products."""
        ranks, dtype, n = self.ranks, self.objective.dtype, self.objective.ratings.shape[1]
        found, shares = self.side.row_slopes(self.step), ranks.shares(n)
        sums = np.column_stack([found.downwards, found.curved]).astype(dtype)
        mine = ranks.reduce_scatter(sums).astype(np.float64)
        penalty = self.penalty
        b, value = mine[:, :-1] - penalty * self.before, found.losses
        if self.dense is not None:
            value += self.dense.add_to_sides(b, self.before)

        def product(directions: Doubles) -> Doubles:
            everywhere = ranks.all_gather(directions.astype(dtype), shares)
            turned = self.side.row_products(self.features, found.curvatures, everywhere)
            whole = ranks.reduce_scatter(turned.astype(dtype)) + penalty * directions
            if self.dense is not None:
                whole += self.dense.weight * (directions @ self.dense.gram)
            return np.asarray(whole, np.float64)

        change = conjugate_change(b, self._diagonal(mine[:, -1], penalty), product, steps, dtype)
        return change, value

    def _diagonal(self, curved: Floats | Integers, penalty: Doubles) -> Doubles:
        """Of the preconditioner."""
        diagonal: Doubles = np.asarray(curved, np.float64)[:, None] * self.squares + penalty
        if self.dense is not None:
            diagonal += self.dense.weight * self.dense.gram.diagonal()
        return diagonal

    # --- both -------------------------------------------------------------------------------------

    def _dense_part(self) -> DensePart | None:
        """Of the sum over all pairs: F'F, F'o and o'o of all users."""
        own = DensePart.of(self.loss, self.features, self.offsets)
        if own is None:
            return None
        sums = np.concatenate([own.gram.ravel(), own.pull, [own.rest]])
        whole, size = self.ranks.all_reduce(sums), self.width
        gram, pull = whole[: size * size].reshape(size, size), whole[size * size : -1]
        return DensePart(own.weight, gram, pull, float(whole[-1]))

    def _step_lengths(self, change: Doubles) -> Doubles:
        """How much of Newton's steps to take, so that no prediction on any rank moves too far; see
        `Side.solve_rows`."""
        lengths = [
            np.einsum("jq,jq->j", rows, rows, dtype=np.float64).max(initial=0.0)
            for rows in (self.features, change)
        ]
        furthest, longest = self.ranks.all_reduce(np.array(lengths), "max")
        steps: Doubles = np.ones(len(change))
        if furthest * longest <= FULL_STEP**2:
            return steps
        shares = self.ranks.shares(self.objective.ratings.shape[1])
        everywhere = self.ranks.all_gather(change, shares)
        moves = furthest_moves(self.side.groups, self.features, everywhere)
        reach = self.ranks.all_reduce(moves, "max")[self.objective.items]
        far = reach > FULL_STEP
        steps[far] = np.log1p(reach[far]) / reach[far]
        return steps
