"""A fitted low-rank model: predictions, recommendations, and new rows without a new fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from momentous.io.types import AnyArray, Integers
from momentous.lowrank.backends import Backend, RowStep, find_backend
from momentous.lowrank.checks import check_number, corrects_names, thread_count
from momentous.lowrank.data.ids import Id, Ids, as_ids
from momentous.lowrank.data.ratings import (
    Compressed,
    Floats,
    Ratings,
    pair_up,
    stored_ratings,
)
from momentous.lowrank.data.vocabulary import (
    UNKNOWN,
    Pairs,
    Positions,
    Vocabulary,
    pairs_of,
    ratings_of,
)
from momentous.lowrank.factors import PAIRS, products
from momentous.lowrank.losses import Loss
from momentous.lowrank.objective import LowRankObjective
from momentous.lowrank.penalty import Penalty
from momentous.lowrank.priors import LearnedPriors, PredictionVariance
from momentous.lowrank.solvers.certificate import Certificate, certify
from momentous.lowrank.solvers.fit import FitRun
from momentous.lowrank.solvers.learned import FreeEnergy

Unknown = Literal["mean", "nan", "error"]
NEWTON_STEPS = 50  # of rows that are folded in; convex and damped by the ridge, a few are enough


class Recommended(NamedTuple):
    """Items and what the model says about them, best first."""

    items: AnyArray
    scores: Floats


class Similar(NamedTuple):
    """Ids whose factors point the same way, and the cosines, the most similar first."""

    ids: AnyArray
    scores: Floats


@dataclass(frozen=True, eq=False)
class LowRankModel:
    """mean + row bias + column bias + row factors . column factors.

    For the logistic loss that sum is the log odds of a label +1.
    """

    loss: Loss
    mean: float
    rows: Vocabulary  # the ids
    cols: Vocabulary
    row_factors: Floats  # (rows, rank)
    col_factors: Floats
    row_bias: Floats  # zeros in a model without biases
    col_bias: Floats
    penalty: Penalty  # with which it was fitted; rows that are folded in get the same
    value_range: tuple[float, float]  # the least and the greatest rating seen
    seen: Ratings  # the entries that it was fitted to, by position
    learned: LearnedPriors | None = None  # in place of the penalty, where priors were learned
    held_out: Ratings | None = None  # not fitted to, but no news to their rows either
    run: FitRun | None = None  # that led here, and that a fit can go on with

    @property
    def rank(self) -> int:
        """Number of factors."""
        return int(self.row_factors.shape[1])

    def __repr__(self) -> str:
        return (
            f"<LowRankModel {self.loss}, rank {self.rank}, {len(self.rows):,} x "
            f"{len(self.cols):,}, of {self.seen.nnz:,} entries>"
        )

    def positions(self, ratings: Ratings) -> tuple[Positions, Positions]:
        """The row and the column here of each of these entries, -1 where they are not known."""
        rows, cols = self.rows.positions(ratings.ids(0)), self.cols.positions(ratings.ids(1))
        return rows[ratings.rows], cols[ratings.cols]

    # --- predictions ------------------------------------------------------------------------------

    def scores(self, pairs: Pairs, unknown: Unknown = "mean") -> Floats:
        """The sum above at each pair of ids.

        Parameters
        ----------
        pairs : array of shape (N, 2), table of two columns, Ratings or sparse matrix
        unknown : {"mean", "nan", "error"}
            For ids that the fit has not seen: what is known without them (the mean, and the bias
            of the other id), NaN, or an error that names the first.
        """
        check_unknown(unknown)
        row_ids, col_ids = pairs_of(pairs)
        rows, cols = self.rows.positions(row_ids), self.cols.positions(col_ids)
        if unknown == "error":
            _refuse_unknown(self.rows, rows, row_ids, "row")
            _refuse_unknown(self.cols, cols, col_ids, "column")
        scores = self.scores_at(rows, cols)
        if unknown == "nan":
            scores[(rows == UNKNOWN) | (cols == UNKNOWN)] = np.nan
        return scores

    def scores_at(self, rows: Integers, cols: Integers) -> Floats:
        """The same by position, where -1 stands for a row or column that is not known."""
        scores = np.full(rows.shape, self.mean, self.row_factors.dtype)
        known_row, known_col = rows != UNKNOWN, cols != UNKNOWN
        scores[known_row] += self.row_bias[rows[known_row]]
        scores[known_col] += self.col_bias[cols[known_col]]
        both = known_row & known_col
        scores[both] += products(self.row_factors, self.col_factors, rows[both], cols[both])
        return scores

    def problem(
        self, backend: str | Backend = "auto", device: str = "cpu"
    ) -> tuple[LowRankObjective, Floats]:
        """What a fit of the entries seen minimises, and the model as a point of it.

        Where priors were learned that is a `FreeEnergy`.
        """
        given = self.seen, self.rank, self.loss, 0.0, self.penalty, self.row_factors.dtype
        objective = LowRankObjective(*given, mean=self.mean, backend=backend, device=device)
        sides = [self.row_factors, self.col_factors]
        if self.penalty.biases:
            biases = self.row_bias, self.col_bias
            sides = [np.column_stack(both) for both in zip(sides, biases, strict=True)]
        sides[1] = sides[1][objective.items]
        x = objective.join(*(objective.backend.asarray(one, objective.dtype) for one in sides))
        if self.learned is None:
            return objective, x
        energy, (rows, cols) = FreeEnergy(objective), self.learned.variances
        own = self.learned._replace(variances=(rows, cols[objective.items]))
        return energy, energy.point_of_model(x, own)

    def certify(
        self,
        tol: float = 1e-4,
        backend: str | Backend = "auto",
        device: str = "cpu",
        seed: int = 0,
    ) -> Certificate:
        """How far the model is, at most, from the best one of any rank, for the entries seen.

        The verdict is GLOBAL where that is within ``tol``, relative to the objective.  Losses
        without a `Loss.conjugate`, and a ridge of 0, are refused.  ``seed`` is that of the random
        vector of the bound, which fails for one in 1e10 of them: another one is another proof.
        A model with learned priors has no certificate.
        """
        if self.learned is not None:
            raise ValueError(
                "a fit with learned priors has no certificate, which speaks of fits with a fixed "
                "ridge: fit with ridge='fixed', with a number as ridge, or with rank='auto'"
            )
        return certify(*self.problem(backend, device), tol=tol, seed=seed)

    def predict(self, pairs: Pairs, unknown: Unknown = "mean") -> Floats:
        """What the loss makes of the score: a rating within their range, a probability, ..."""
        return self.loss.response(self.scores(pairs, unknown), self.value_range)

    def deviations(self, pairs: Pairs, unknown: Unknown = "mean") -> Floats:
        """The standard deviation of the rating that each pair would get, around `predict`.

        From the noise and the variances of the parameters, calibrated on the entries seen; an id
        that is not known has those of its prior.
        """
        if self.learned is None:
            raise ValueError(
                "the model has no standard deviations: it was fitted with a fixed ridge; fit with "
                "learned priors (ridge=None, squared loss, a given rank)"
            )
        check_unknown(unknown)
        row_ids, col_ids = pairs_of(pairs)
        rows, cols = self.rows.positions(row_ids), self.cols.positions(col_ids)
        out = np.empty(len(rows), self.row_factors.dtype)
        for begin in range(0, len(rows), PAIRS):
            block = slice(begin, begin + PAIRS)
            left, right = (
                (_factors_at(factors, at), variances)
                for at, factors, variances in zip(
                    (rows[block], cols[block]),
                    (self.row_factors, self.col_factors),
                    self.learned.at(rows[block], cols[block]).variances,
                    strict=True,
                )
            )
            variance = PredictionVariance.at(left, right, self.learned.biases).total
            out[block] = self.learned.calibration * np.sqrt(self.learned.noise + variance)
        if unknown == "nan":
            out[(rows == UNKNOWN) | (cols == UNKNOWN)] = np.nan
        return out

    def training_error(self) -> float:
        """The loss's error (root mean square error, mean log loss, ...) for the entries seen; NaN
        without any."""
        if not self.seen.nnz:
            return np.nan
        # Without `problem`: a model that was loaded for a few rows has fewer of them than factors.
        one, loss = np.ones_like, self.loss.of(self.seen.by_row.values)
        left = np.column_stack([self.row_factors, self.row_bias, one(self.row_bias)])
        right = np.column_stack([self.col_factors, one(self.col_bias), self.col_bias + self.mean])
        total = find_backend("numpy").sum_of_errors(loss, left, right, self.seen, self.value_range)
        return loss.error_of_mean(total / self.seen.weight)

    def evaluate(self, ratings: Ratings) -> dict[str, float]:
        """The loss's measures (rmse and mae, log loss and accuracy, ...) for these ratings."""
        given = {} if ratings.weights is None else {"weights": ratings.weights}
        return self.loss.measures(self.scores(ratings), ratings.values, self.value_range, **given)

    # --- recommendations --------------------------------------------------------------------------

    @corrects_names
    def recommend(
        self,
        row: Id,
        n: int = 10,
        exclude_seen: bool = True,
        unknown: Unknown = "error",
        *,
        allowed: Iterable[Id] | None = None,
        forbidden: Iterable[Id] | None = None,
    ) -> Recommended:
        """The n columns with the highest scores for one row, without those it had entries for.

        A row that is not known is an error, or else gets the order by column bias.  With
        ``allowed``, only these columns are looked at; never those that are ``forbidden``.  Ids in
        either that the model does not know make no difference.
        """
        if np.ndim(row):
            raise TypeError(
                f"recommend takes one id, not {type(row).__name__} of {np.size(row)} ids; "
                "recommend_all takes many"
            )
        return self.recommend_all(
            [row], n, exclude_seen, unknown, allowed=allowed, forbidden=forbidden
        )[0]

    @corrects_names
    def recommend_all(
        self,
        rows: Ids,
        n: int = 10,
        exclude_seen: bool = True,
        unknown: Unknown = "error",
        *,
        allowed: Iterable[Id] | None = None,
        forbidden: Iterable[Id] | None = None,
        backend: str | Backend = "auto",
        device: str = "cpu",
    ) -> list[Recommended]:
        """The same for many rows at once, one answer per row; ``device="cuda"``: on a GPU."""
        check_number("n", n, 1, whole=True)
        check_unknown(unknown)
        positions = self.rows.positions(rows)
        if unknown == "error":
            _refuse_unknown(self.rows, positions, as_ids(rows), "row")
        columns = self._columns(allowed, forbidden)
        best, scores = self.best_columns(positions, n, exclude_seen, columns, backend, device)
        answers = self.loss.response(scores, self.value_range)
        counts = np.count_nonzero(best >= 0, axis=1)
        each = zip(self.cols.ids[best], answers, counts, strict=True)
        return [Recommended(items[:count], answer[:count]) for items, answer, count in each]

    def best_columns(
        self,
        rows: Positions,
        n: int,
        exclude_seen: bool = True,
        columns: Positions | None = None,
        backend: str | Backend = "auto",
        device: str = "cpu",
    ) -> tuple[Positions, Floats]:
        """The same by position, and the scores; of the given columns, in rising order, or of all.

        One row of the answer per row; where there are not n columns it ends in -1.
        """
        known = rows != UNKNOWN
        kind = find_backend(backend, device, len(rows) * len(self.cols))
        left = np.zeros((len(rows), self.rank), self.row_factors.dtype)
        left[known] = self.row_factors[rows[known]]
        entries = (self.seen, self.held_out) if exclude_seen else ()
        seen = [of_rows(one.by_row, rows) for one in entries if one is not None]
        right, offsets = self.col_factors, self.mean + self.col_bias
        if columns is not None:
            right, offsets = right[columns], offsets[columns]
            seen = [_of_columns(one, columns, len(self.cols)) for one in seen]
        if not len(right):
            return np.empty((len(rows), 0), np.intp), np.empty((len(rows), 0), right.dtype)
        best, scores = kind.best_columns(left, right, offsets, seen, min(n, len(right)))
        scores[known] += self.row_bias[rows[known], None]
        if columns is not None:
            best = np.where(best >= 0, columns[best], UNKNOWN)
        return best, scores

    def _columns(
        self, allowed: Iterable[Id] | None, forbidden: Iterable[Id] | None
    ) -> Positions | None:
        """The columns that pass both filters, in rising order; None: all."""
        if allowed is None and forbidden is None:
            return None
        free = np.full(len(self.cols), allowed is None)
        for ids, state in ((allowed, True), (forbidden, False)):
            if ids is not None:
                positions = self.cols.positions(_flat(ids))
                free[positions[positions != UNKNOWN]] = state
        return np.flatnonzero(free)

    @corrects_names
    def similar_columns(self, col: Id, n: int = 10) -> Similar:
        """The columns whose factors point the same way as those of one column, by their cosine."""
        return _similar(self.cols, self.col_factors, col, n, "column")

    @corrects_names
    def similar_rows(self, row: Id, n: int = 10) -> Similar:
        """The same for rows."""
        return _similar(self.rows, self.row_factors, row, n, "row")

    # --- new rows and columns ---------------------------------------------------------------------

    def transposed(self) -> LowRankModel:
        """The model of the transposed matrix: columns where this one has rows."""
        return replace(
            self,
            rows=self.cols,
            cols=self.rows,
            row_factors=self.col_factors,
            col_factors=self.row_factors,
            row_bias=self.col_bias,
            col_bias=self.row_bias,
            penalty=self.penalty.transposed(),
            learned=None if self.learned is None else self.learned.transposed(),
            seen=transpose(self.seen),
            held_out=None if self.held_out is None else transpose(self.held_out),
            run=None,
        )

    def fold_in_columns(
        self,
        pairs: Pairs,
        values: ArrayLike | None = None,
        backend: str | Backend = "auto",
        device: str = "cpu",
    ) -> LowRankModel:
        """As `fold_in`, with the parts of rows and columns exchanged: the rows stay as they are."""
        new = transpose(ratings_of(pairs, values, dtype=self.row_factors.dtype))
        return self.transposed().fold_in(new, None, backend, device).transposed()

    def fold_in(
        self,
        pairs: Pairs,
        values: ArrayLike | None = None,
        backend: str | Backend = "auto",
        device: str = "cpu",
    ) -> LowRankModel:
        """A model that knows further rows from their entries; the columns stay as they are.

        A row is one ridge regression on the columns' factors, for a loss that is not quadratic a
        few Newton steps; all rows are solved for at once.  A row that is known already is computed
        again, from these entries alone.  Entries of columns that the model does not know are left
        out.
        """
        new = ratings_of(pairs, values, dtype=self.row_factors.dtype)
        self.loss.check(new)
        # A row of the matrix without entries says nothing about the user of that id.
        given = np.flatnonzero(np.diff(new.by_row.starts))
        ids, col_ids = new.ids(0), new.ids(1)
        rows, cols = self.rows.extended(ids[given]), self.cols.positions(col_ids)
        where = np.full(len(ids), UNKNOWN)
        where[given] = rows.positions(ids[given])
        known = new.where(cols[new.cols] != UNKNOWN)
        added = where[known.rows], cols[known.cols], known.by_row.values
        grown = self.grown(rows, self.cols, lambda old: ~np.isin(old.rows, where), *added)
        return grown.with_best_rows(where[given], backend, device)

    def grown(
        self,
        rows: Vocabulary,
        cols: Vocabulary,
        stays: Callable[[Ratings], NDArray[np.bool_]],
        *added: AnyArray,
    ) -> LowRankModel:
        """The model with further ids, whose parameters are 0, and with further entries: rows,
        columns and values; of the old entries those that ``stays`` says are left."""
        more = len(rows) - len(self.rows), len(cols) - len(self.cols)
        shape, held_out = (len(rows), len(cols)), self.held_out
        if held_out is not None:
            left = stays(held_out)
            held_out = join_entries(held_out, left, shape) if left.any() else None
        return replace(
            self,
            rows=rows,
            cols=cols,
            row_factors=np.pad(self.row_factors, [(0, more[0]), (0, 0)]),
            col_factors=np.pad(self.col_factors, [(0, more[1]), (0, 0)]),
            row_bias=np.pad(self.row_bias, (0, more[0])),
            col_bias=np.pad(self.col_bias, (0, more[1])),
            learned=None if self.learned is None else self.learned.grown(*more),
            seen=join_entries(self.seen, stays(self.seen), shape, *added),
            held_out=held_out,
            run=None,
        )

    def with_best_rows(
        self, rows: Positions, backend: str | Backend = "auto", device: str = "cpu"
    ) -> LowRankModel:
        """The model with these rows the best for their entries."""
        own, learned = of_rows(self.seen.by_row, rows), self.learned
        solved = self.solve_rows(own, backend, device)
        factors, bias = self.row_factors.copy(), self.row_bias.copy()
        factors[rows] = solved[:, : self.rank]
        if self.penalty.biases:
            bias[rows] = solved[:, -1]
        if learned is not None:
            learned = learned.with_rows(rows, learned.of_rows(own, self.col_factors)[1])
        return replace(self, row_factors=factors, row_bias=bias, learned=learned)

    def solve_rows(
        self, groups: Compressed, backend: str | Backend = "auto", device: str = "cpu"
    ) -> Floats:
        """Factors, and with biases the bias as the last parameter, of rows with these entries."""
        features = self.col_factors
        if self.penalty.biases:
            features = np.column_stack([features, np.ones_like(features[:, :1])])
        step = RowStep(self.row_weights(groups), features, self.mean + self.col_bias)
        return solve_rows(groups, self.loss, step, backend, device)

    def row_weights(self, groups: Compressed) -> Floats:
        """The weights of the squared parameters of rows with these entries."""
        if self.learned is None:
            return self.penalty.weights(groups.group_weights, self.rank)
        return self.learned.of_rows(groups, self.col_factors)[0]


def solve_rows(
    groups: Compressed, loss: Loss, step: RowStep, backend: str | Backend, device: str,
    threads: int | None = None,
) -> Floats:  # fmt: skip
    """The best parameters of rows with these entries, for the features and offsets of the step."""
    kind, dtype = find_backend(backend, device, groups.others.size), step.features.dtype
    side = kind.side(groups, loss.of(groups.values), thread_count(threads))
    offsets = None if step.offsets is None else kind.asarray(step.offsets, dtype)
    weights, features = (kind.asarray(each, dtype) for each in step[:2])
    step = RowStep(weights, features, offsets)
    rows, _ = side.solve_rows(step)
    rounding = 64.0 * np.finfo(dtype).eps
    for _ in range(0 if loss.quadratic else NEWTON_STEPS):
        before = rows
        rows, _ = side.solve_rows(step._replace(current=before, with_value=False))
        if kind.xp.abs(rows - before).max() <= rounding * kind.xp.abs(rows).max():
            break
    found: Floats = kind.to_host(rows)
    return found


def _similar(vocabulary: Vocabulary, factors: Floats, one: Id, n: int, what: str) -> Similar:
    check_number("n", n, 1, whole=True)
    own = known_position(vocabulary, one, what)
    factors = factors.astype(np.float64)
    lengths = np.linalg.norm(factors, axis=1)
    cosines = factors @ factors[own] / np.maximum(lengths * lengths[own], 1e-300)
    cosines[own] = -np.inf
    best = np.argsort(-cosines, kind="stable")[: min(n, len(cosines) - 1)]
    return Similar(vocabulary.ids[best], cosines[best])


def known_position(vocabulary: Vocabulary, one: Id, what: str) -> int:
    """Where an id stands; one that is not known is an error."""
    if np.ndim(one):
        raise TypeError(f"one {what} id is needed, not {one!r}; ask for each of them")
    positions = vocabulary.positions([one])
    _refuse_unknown(vocabulary, positions, [one], what, "fit or fold it in")
    return int(positions[0])


def _flat(ids: Iterable[Id]) -> Ids:
    """Ids as an array; sets and other collections, too."""
    return ids if isinstance(ids, str | np.ndarray) else list(ids)


def check_unknown(unknown: object) -> None:
    """Is this one of the answers to ids that are not known?"""
    if unknown not in get_args(Unknown):
        raise ValueError(f"unknown={unknown!r} must be 'mean', 'nan' or 'error'")


def _factors_at(factors: Floats, places: Positions) -> Floats:
    """Those of these rows; zeros where a row is not known."""
    found, known = np.zeros((len(places), factors.shape[1]), factors.dtype), places != UNKNOWN
    found[known] = factors[places[known]]
    return found


def _refuse_unknown(
    vocabulary: Vocabulary,
    positions: Positions,
    ids: Sequence[Id] | AnyArray,
    what: str,
    remedy: str = "fit or fold it in, or take unknown='mean' or 'nan'",
) -> None:
    bad = np.flatnonzero(positions == UNKNOWN)
    if bad.size:
        first = ids[bad[0]]
        first = first.item() if isinstance(first, np.generic) else first
        known = ", ".join(map(repr, vocabulary.ids[:3].tolist()))
        known += " and so on" if len(vocabulary) > 3 else ""
        raise ValueError(
            f"the {what} id {first!r} at position {bad[0]} is not in the model ({bad.size} of "
            f"{len(positions)} are not), whose {len(vocabulary):,} {what} ids are {known}; {remedy}"
        )


def cells(ratings: Ratings) -> NDArray[np.int64]:
    """One number for each entry: where its pair is in the matrix, row by row."""
    numbers: NDArray[np.int64] = ratings.rows.astype(np.int64) * ratings.shape[1] + ratings.cols
    return numbers


def of_rows(storage: Compressed, rows: Positions) -> Compressed:
    """The entries of these rows, in their order; of a row that is not known none."""
    if np.array_equal(rows, np.arange(storage.starts.size - 1)):
        return storage
    counts, known = np.zeros(len(rows), np.int64), rows != UNKNOWN
    counts[known] = np.diff(storage.starts)[rows[known]]
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    places = np.arange(starts[-1]) + np.repeat(storage.starts[rows] - starts[:-1], counts)
    return Compressed(starts, storage.others[places], storage.values[places])


def _of_columns(storage: Compressed, columns: Positions, count: int) -> Compressed:
    """The entries of these columns, of so many in all, numbered in their order."""
    place = np.full(count, UNKNOWN, np.int32)
    place[columns] = np.arange(len(columns))
    others = place[storage.others]
    return replace(storage, others=others).where(others != UNKNOWN)


def transpose(ratings: Ratings) -> Ratings:
    """The entries of the transposed matrix."""
    m, n = ratings.shape
    return stored_ratings((n, m), ratings.by_col, (ratings.col_ids, ratings.row_ids))


def join_entries(
    old: Ratings, kept: NDArray[np.bool_], shape: tuple[int, int], *added: AnyArray
) -> Ratings:
    """Those kept, and those added: rows, columns and values, or these beside weights."""
    parts: list[AnyArray] = [old.rows[kept], old.cols[kept], old.by_row.values[kept]]
    if added:
        if parts[2].ndim != added[2].ndim:
            parts[2], new = (
                each if each.ndim > 1 else pair_up(each) for each in (parts[2], added[2])
            )
            added = added[0], added[1], new
        parts = [np.concatenate(both) for both in zip(parts, added, strict=True)]
    rows, cols, values = parts
    if values.ndim == 1:
        return Ratings(rows, cols, values, shape)
    return Ratings(rows, cols, values[:, 0], shape, weights=values[:, 1])
