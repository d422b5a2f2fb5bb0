"""From ratings to a fitted model: what is held out, where to begin, what is kept."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from momentous.core.loop import IntermediateResult
from momentous.core.result import Result
from momentous.lowrank.checks import check_number
from momentous.lowrank.data.ratings import Floats, Ratings, Rng
from momentous.lowrank.data.vocabulary import UNKNOWN, Vocabulary
from momentous.lowrank.model.fitted import LowRankModel, cells
from momentous.lowrank.objective import LowRankObjective
from momentous.lowrank.solvers.certificate import Certificate
from momentous.lowrank.solvers.fit import FitConfig, FitProgress, FitRun, Observer, Watcher, solve
from momentous.lowrank.solvers.learned import FreeEnergy
from momentous.lowrank.solvers.rank_search import MAX_SWEEPS, search_rank
from momentous.lowrank.solvers.ridge_path import PathPoint, follow_path

PATH_SHARE = 0.1  # of the entries that a path over the ridge holds out, unless told


@dataclass
class Fit:
    """A model, and how it was found."""

    model: LowRankModel
    result: Result  # of the solver's run, at its last point
    message: str  # why the fit ended; the run does not know of entries that are held out
    objective: float  # F at the model, without the balance term
    held_out_errors: list[float] = field(default_factory=list)  # after each iteration
    held_out_error: float = math.inf  # the least, of a fit that goes on with that of its start
    error: MemoryError | None = None  # that ended it; the model is the last point before
    training_error: float = math.nan  # of the entries seen, where it was asked for
    certificate: Certificate | None = None  # with rank="auto"
    path: list[PathPoint] = field(default_factory=list)  # with ridge="path"


def fit_model(
    ratings: Ratings,
    config: FitConfig,
    *,
    start: LowRankModel | None = None,
    watch: Watcher | None = None,
    save: Callable[[LowRankModel, FitProgress], None] | None = None,
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
        fitted to is never held out, and what it held out stays so.  Where ratings, objective and
        solver are those that the model was fitted with, its fit goes on with all that the solver
        remembers: on one CPU bit for bit as if it had not ended there.  ``max_iterations`` are
        further ones.
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
    whole, held_out, share = ratings, None, config.validation_share
    if share is None and config.ridge == "path":
        share = PATH_SHARE
    if share is not None:
        ratings, held_out = (
            ratings.split(share, config.random_state)
            if start is None
            else _split_like(start, ratings, share, config.random_state)
        )
    objective = config.objective(ratings)
    if config.rank == "auto":
        if start is not None:
            objective = objective.with_rank(min(start.rank, *ratings.whole.shape))
        kept = whole if config.validation_share is None else ratings
        return _fit_any_rank(objective, (kept, held_out), config, start, watch)

    x0 = None if start is None else _start_at(start, objective, config)

    def model(x: Floats, run: FitRun | None) -> LowRankModel:
        return _model_at(x, objective, ratings, held_out, run)

    observer = Observer(
        objective,
        held_out,
        config.patience,
        watch,
        None if save is None else lambda x, step, run: save(model(x, run), step),
        save_every,
        None if start is None else _run_to_go_on(start, x0, objective, held_out, config),
    )
    x, result = solve(objective, config, x0, observer)
    if isinstance(objective, FreeEnergy) and len(x) == objective.fixed.dimension:
        objective = objective.fixed  # interrupted before there were priors
    value = math.nan
    with contextlib.suppress(MemoryError, KeyboardInterrupt):  # the model is worth more
        value = objective.value(x, balance=0.0)
    fit = Fit(
        model(x, observer.run),
        result,
        observer.why_ended(result),
        value,
        observer.held_out_errors,
        observer.lowest,
        observer.error,
    )
    if with_training_error and fit.error is None:
        with contextlib.suppress(MemoryError, KeyboardInterrupt):
            fit.training_error = objective.error(x, objective.ratings, fit.model.value_range)
    return fit


def _fit_any_rank(
    objective: LowRankObjective,
    entries: tuple[Ratings, Ratings | None],
    config: FitConfig,
    start: LowRankModel | None,
    watch: Watcher | None,
) -> Fit:
    """The rank by `search_rank`; with ridge="path" the ridge of the least held-out error before.

    A path that has held out entries of its own gives them back to the last fit.
    """
    path: list[PathPoint] = []
    (ratings, held_out), errors = entries, []
    x = config.start(objective) if start is None else _start_at(start, objective, config)
    if config.ridge == "path":
        assert held_out is not None
        best, path = follow_path(objective, x, held_out, watch)
        errors = [point.held_out for point in path]
        if objective.ratings is ratings or config.validation_share is not None:
            objective, x = best.objective, best.x
        else:
            whole = config.objective(ratings).with_ridge(best.objective.ridge)
            objective, held_out = whole.with_rank(best.objective.rank), None
            x = objective.join(*best.objective.split(best.x))
    before, seconds = 0, 0.0

    def report(intermediate_result: IntermediateResult) -> bool:
        nit, fun = before + intermediate_result.nit, intermediate_result.fun
        step = FitProgress(nit, fun, intermediate_result.grad_norm, math.nan, 0)
        return watch is not None and not path and bool(watch(step))

    sweeps = config.max_iterations or MAX_SWEEPS
    for found in search_rank(objective, x, config.gap_tol, sweeps, report):
        before, seconds = found.sweeps, seconds + found.result.time
        if held_out is not None and not path:
            limits = ratings.whole.value_range
            errors.append(found.objective.error(found.x, held_out, limits))
    found.result["nit"], found.result["time"] = before, seconds
    certificate = found.certificate
    return Fit(
        _model_at(found.x, found.objective, ratings, held_out, None),
        found.result,
        f"rank {found.objective.rank}: {certificate.message}",
        certificate.objective,
        errors,
        min(errors, default=math.inf),
        training_error=found.objective.error(found.x, ratings, ratings.whole.value_range),
        certificate=certificate,
        path=path,
    )


def _run_to_go_on(
    start: LowRankModel,
    x0: Floats | None,
    objective: LowRankObjective,
    held_out: Ratings | None,
    config: FitConfig,
) -> FitRun | None:
    """The run that led to a model, if this fit is of the same entries, objective and solver."""
    run, ratings = start.run, objective.ratings
    same = (
        run is not None
        and (start.loss, start.penalty) == (objective.loss.plain, objective.penalty)
        and (start.mean, start.rank) == (objective.mean, objective.rank)
        and (start.learned is not None) == isinstance(objective, FreeEnergy)
        and start.row_factors.dtype == objective.dtype
        and np.array_equal(start.rows.ids, ratings.ids(0))
        and np.array_equal(start.cols.ids, ratings.ids(1))
        and _same_entries(start.seen, ratings)
        and _same_entries(start.held_out, held_out)
        and x0 is not None
        and run.is_of(objective, config, x0)
    )
    return None if objective.ranks.sum(float(not same)) else run


def _same_entries(one: Ratings | None, other: Ratings | None) -> bool:
    if one is None or other is None:
        return one is other
    return all(
        np.array_equal(getattr(one.by_row, name), getattr(other.by_row, name))
        for name in ("starts", "others", "values")
    )


def _model_at(
    x: Floats,
    objective: LowRankObjective,
    ratings: Ratings,
    held_out: Ratings | None,
    run: FitRun | None,
) -> LowRankModel:
    r = objective.rank
    P, Q = objective.factors(x)
    U, V = P[:, :r], Q[:, :r]
    if objective.ridge == 0.0:  # a ridge has chosen among equal products already
        U, V = (factor.astype(objective.dtype) for factor in objective.balanced(U, V))
    row_bias, col_bias = (
        np.ascontiguousarray(side[:, r]) if side.shape[1] > r else np.zeros(len(side), side.dtype)
        for side in (P, Q)
    )
    learned = objective.learned_priors(x) if isinstance(objective, FreeEnergy) else None
    return LowRankModel(
        loss=objective.loss.plain,
        mean=objective.mean,
        rows=Vocabulary(ratings.ids(0)),
        cols=Vocabulary(ratings.ids(1)),
        row_factors=np.ascontiguousarray(U),
        col_factors=np.ascontiguousarray(V),
        row_bias=row_bias,
        col_bias=col_bias,
        penalty=objective.penalty,
        learned=learned,
        value_range=ratings.whole.value_range,
        seen=ratings,
        held_out=held_out,
        run=run,
    )


def _split_like(
    start: LowRankModel, ratings: Ratings, share: float, random_state: Rng
) -> tuple[Ratings, Ratings]:
    """Hold out what the model held out, and the share of what it has not seen.

    An entry that it was fitted to would say nothing about the error on other entries.
    """
    rows, cols = start.positions(ratings)
    known = (rows != UNKNOWN) & (cols != UNKNOWN)
    places = np.where(known, rows * len(start.cols) + cols, UNKNOWN)
    fitted, held = (
        np.isin(places, [] if old is None else cells(old)) for old in (start.seen, start.held_out)
    )
    held |= ratings.drawn(share, ~fitted & ~held, random_state)
    known, kept = (ratings.total(int(np.count_nonzero(flags))) for flags in (fitted, ~held))
    count = ratings.whole.nnz
    if not 0 < kept < count:
        raise ValueError(
            f"the model to begin with was fitted to {known} of these {count} entries, and of the "
            f"other {count - known} a share of {share:g} cannot be held out; begin again, or go "
            "on without validation"
        )
    return ratings.where(~held), ratings.where(held)


def _start_at(model: LowRankModel, objective: LowRankObjective, config: FitConfig) -> Floats:
    """The model's parameters for rows and columns that it knows, small random ones for others.

    With learned priors of the same rank their variances, too, and those of the prior for others.
    """
    plain = objective.fixed if isinstance(objective, FreeEnergy) else objective
    x = plain.random_start(np.random.default_rng(config.random_state))
    common = min(plain.rank, model.rank)
    P, Q = (np.array(plain.backend.to_host(side)) for side in plain.split(x))
    places = []
    for which, own, vocabulary, factors, bias in (
        (0, P, model.rows, model.row_factors, model.row_bias),
        (1, Q, model.cols, model.col_factors, model.col_bias),
    ):
        ids = objective.ratings.ids(which)
        there = vocabulary.positions(ids[objective.items] if which else ids)
        known = there != UNKNOWN
        own[known, :common] = factors[there[known], :common]
        if objective.penalty.biases:
            own[known, -1] = bias[there[known]]
        places.append(there)
    x, learned = plain.join(P, Q), model.learned
    if not isinstance(objective, FreeEnergy) or learned is None:
        return x
    if model.rank != objective.rank or learned.biases != objective.penalty.biases:
        return x
    return objective.point_of_model(x, learned.at(*places))
