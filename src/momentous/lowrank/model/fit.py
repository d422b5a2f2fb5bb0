"""From ratings to a fitted model: what is held out, where to begin, what is kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from momentous.core.result import Result
from momentous.lowrank.checks import check_number
from momentous.lowrank.data.ratings import Floats, Ratings
from momentous.lowrank.data.vocabulary import UNKNOWN
from momentous.lowrank.factors import balanced
from momentous.lowrank.model.fitted import LowRankModel, vocabulary_of
from momentous.lowrank.objective import LowRankObjective
from momentous.lowrank.solvers.fit import FitConfig, FitProgress, Observer, Watcher, solve


@dataclass
class Fit:
    """A model, and how it was found."""

    model: LowRankModel
    result: Result  # of the solver's run, at its last point
    message: str  # why the fit ended; the run does not know of entries that are held out
    objective: float  # F at the model, without the balance term
    held_out_errors: list[float] = field(default_factory=list)  # after each iteration
    error: MemoryError | None = None  # that ended it; the model is the last point before
    training_error: float = math.nan  # of the entries seen, where it was asked for


def fit_model(
    ratings: Ratings,
    config: FitConfig,
    *,
    start: LowRankModel | None = None,
    watch: Watcher | None = None,
    save: Callable[[LowRankModel, FitProgress], Any] | None = None,
    save_every: float = 60.0,
    with_training_error: bool = False,
) -> Fit:
    """Fit a model; interrupted by Ctrl-C, or where memory ends, the model as it stands.

    Parameters
    ----------
    ratings : Ratings
        For the logistic loss of +1 and -1.
    config : FitConfig
    start : LowRankModel, optional
        Begin there: rows and columns that it knows keep their parameters at first.  What it was
        fitted to is never held out, and what it held out stays so.
    watch : callable, optional
        Called with a `FitProgress` after each iteration; returning True ends the fit.
    save : callable, optional
        Called with the model as it stands (the best on the held-out share, where there is one) and
        its `FitProgress`, after the first iteration and then every ``save_every`` seconds; that
        does not count as time of the fit.  A fit that starts at that model goes on from there.
    with_training_error : bool
        Also compute the error on the entries seen, where the fit was computed.
    """
    check_number("save_every", save_every, 0.0)
    held_out = None
    if config.validation_share is not None:
        ratings, held_out = (
            ratings.split(config.validation_share, config.random_state)
            if start is None
            else _split_like(start, ratings, config)
        )
    objective = config.objective(ratings)

    def model(x: Floats) -> LowRankModel:
        return _model_at(x, objective, ratings, held_out)

    observer = Observer(
        objective,
        held_out,
        config.patience,
        watch,
        None if save is None else lambda x, step: save(model(x), step),
        save_every,
    )
    x0 = None if start is None else _start_at(start, objective, config)
    x, result = solve(objective, config, x0, observer)
    fit = Fit(
        model(x),
        result,
        observer.why_ended(result),
        objective.value(x, balance=0.0),
        observer.held_out_errors,
        observer.error,
    )
    if with_training_error:
        fit.training_error = objective.error(x, objective.ratings, fit.model.value_range)
    return fit


def _model_at(
    x: Floats, objective: LowRankObjective, ratings: Ratings, held_out: Ratings | None
) -> LowRankModel:
    r = objective.rank
    P, Q = (np.array(objective.backend.to_host(side)) for side in objective.split(x))
    U, V = P[:, :r], Q[:, :r]
    if objective.ridge == 0.0:  # a ridge has chosen among equal products already
        U, V = (factor.astype(objective.dtype) for factor in balanced(U, V))
    row_bias, col_bias = (
        np.ascontiguousarray(side[:, r]) if side.shape[1] > r else np.zeros(len(side), side.dtype)
        for side in (P, Q)
    )
    return LowRankModel(
        loss=objective.loss,
        mean=objective.mean,
        rows=vocabulary_of(ratings, 0),
        cols=vocabulary_of(ratings, 1),
        row_factors=np.ascontiguousarray(U),
        col_factors=np.ascontiguousarray(V),
        row_bias=row_bias,
        col_bias=col_bias,
        penalty=objective.penalty,
        value_range=ratings.value_range,
        seen=ratings,
        held_out=held_out,
    )


def _split_like(
    start: LowRankModel, ratings: Ratings, config: FitConfig
) -> tuple[Ratings, Ratings]:
    """Hold out what the model held out, and the share of what it has not seen.

    An entry that it was fitted to would say nothing about the error on other entries.
    """
    rows = start.rows.positions(vocabulary_of(ratings, 0).ids)[ratings.rows].astype(np.int64)
    cols = start.cols.positions(vocabulary_of(ratings, 1).ids)[ratings.cols]
    known = (rows != UNKNOWN) & (cols != UNKNOWN)
    cells = np.where(known, rows * len(start.cols) + cols, UNKNOWN)
    fitted, held = (
        np.isin(cells, [] if old is None else old.rows.astype(np.int64) * old.shape[1] + old.cols)
        for old in (start.seen, start.held_out)
    )
    new = np.flatnonzero(~fitted & ~held)
    rng = np.random.default_rng(config.random_state)
    share = float(config.validation_share or 0.0)
    held[rng.choice(new, round(share * new.size), replace=False, shuffle=False)] = True
    if not held.any() or held.all():
        raise ValueError(
            f"the model to begin with was fitted to {np.count_nonzero(fitted)} of these "
            f"{ratings.nnz} entries, and of the other {ratings.nnz - np.count_nonzero(fitted)} a "
            f"share of {share:g} cannot be held out; begin again, or go on without validation"
        )
    return ratings.where(~held), ratings.where(held)


def _start_at(model: LowRankModel, objective: LowRankObjective, config: FitConfig) -> Floats:
    """The model's parameters for rows and columns that it knows, small random ones for others."""
    x = objective.random_start(np.random.default_rng(config.random_state))
    common = min(objective.rank, model.rank)
    P, Q = (np.array(objective.backend.to_host(side)) for side in objective.split(x))
    for which, own, vocabulary, factors, bias in (
        (0, P, model.rows, model.row_factors, model.row_bias),
        (1, Q, model.cols, model.col_factors, model.col_bias),
    ):
        there = vocabulary.positions(vocabulary_of(objective.ratings, which).ids)
        known = there != UNKNOWN
        own[known, :common] = factors[there[known], :common]
        if objective.penalty.biases:
            own[known, -1] = bias[there[known]]
    return objective.join(P, Q)
