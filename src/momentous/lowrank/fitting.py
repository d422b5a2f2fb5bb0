"""Fit a low-rank model to ratings: which solver, from where, until when, watched by whom."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from momentous.api import accelerate, minimize
from momentous.core.method import Method
from momentous.core.result import Result
from momentous.core.status import Status
from momentous.lowrank.biased import BiasedProblem, Loss, log_odds
from momentous.lowrank.biased_sweep import BiasedSweep
from momentous.lowrank.model import LowRankModel
from momentous.lowrank.names import UNKNOWN, Names
from momentous.lowrank.objective import check_number
from momentous.lowrank.penalty import WEIGHTING, Penalty, default_bias_ridge, default_ridge
from momentous.lowrank.ratings import Floats, Ratings
from momentous.lowrank.start import balanced
from momentous.methods import method_class

SWEEPS, ITERATIONS = 200, 1000  # limits where none is given
IMPROVEMENT = 1e-4  # of the held-out error, relative: less than this is none


class Step(NamedTuple):
    """What there is to tell after an iteration."""

    nit: int
    fun: float  # the objective
    change: float  # norm of the gradient, or of the change that a sweep made
    held_out: float  # error on the validation share, NaN without one
    restarts: int

    def __str__(self) -> str:
        held_out = "" if math.isnan(self.held_out) else f"  held out {self.held_out:.5f}"
        return (
            f"{self.nit:5d}  objective {self.fun:.7g}  change {self.change:.3g}{held_out}"
            f"  restarts {self.restarts}"
        )


Watcher = Callable[[Step], Any]


@dataclass
class Fit:
    """A model, and how it came about."""

    model: LowRankModel
    result: Result
    objective: float  # F at the model, without the balance term
    held_out: list[float] = field(default_factory=list)  # after each iteration


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to fit; the estimators' parameters of the same names say what each means."""

    rank: int = 10
    loss: Loss = "squared"
    solver: Any = "auto"
    ridge: float | None = None
    bias_ridge: float | None = None
    weighting: float = WEIGHTING
    biases: bool = True
    centre: bool = True
    balance: float = 1.0
    max_iterations: int | None = None
    tol: float = 1e-4
    validation_share: float | None = None
    patience: int = 5
    threads: int | None = None
    rng: Any = 0

    def __post_init__(self) -> None:
        for name in ("rank", "patience", "max_iterations"):
            if not self._left_open(name):
                check_number(name, getattr(self, name), 1, whole=True)
        for name in ("ridge", "bias_ridge", "weighting", "balance", "tol"):
            if not self._left_open(name):
                check_number(name, getattr(self, name), 0.0)
        if self.validation_share is not None:
            check_number("validation_share", self.validation_share, 0.0, 1.0)
        try:
            np.random.default_rng(self.rng)
        except (ValueError, TypeError):
            raise ValueError(
                f"random_state={self.rng!r} must be a whole number >= 0, a Generator or None"
            ) from None
        if isinstance(self.solver, str) and not self.by_sweeps:
            method_class(self.solver)  # an unknown name is told before any work
        elif not isinstance(self.solver, str | type | Method):
            raise TypeError(f"solver={self.solver!r} must be a name, a Method class or an instance")

    def _left_open(self, name: str) -> bool:
        return getattr(self, name) is None and Recipe.__dataclass_fields__[name].default is None

    @property
    def by_sweeps(self) -> bool:
        """Alternating half steps, and not a method that goes by gradients?"""
        return isinstance(self.solver, str) and self.solver in ("auto", "sweep")


def fit_model(
    ratings: Ratings,
    recipe: Recipe,
    *,
    start: LowRankModel | None = None,
    watch: Watcher | None = None,
) -> Fit:
    """Fit a model; interrupted by Ctrl-C, the model as it stands.

    Parameters
    ----------
    ratings : Ratings
        For the logistic loss of +1 and -1.
    recipe : Recipe
    start : LowRankModel, optional
        Begin there: rows and columns that it knows keep their parameters at first.  What it was
        fitted to is never held out, and what it held out stays so.
    watch : callable, optional
        Told a `Step` after each iteration; returning True ends the fit.
    """
    held_out = None
    if recipe.validation_share is not None:
        ratings, held_out = (
            ratings.split(recipe.validation_share, recipe.rng)
            if start is None
            else _split_like(start, ratings, recipe)
        )
    problem = _problem(ratings, recipe)
    observer = _Observer(problem, held_out, recipe.patience, watch)
    run = run_sweeps if recipe.by_sweeps else _descend
    x, result = run(problem, recipe, start, observer)
    if observer.best is not None:
        x = observer.best
    if observer.gave_up and result.status is not Status.INTERRUPTED:
        # What was asked for: no solver's tolerance, but the least error on the entries held out.
        result.status, result.success = Status.CONVERGED, True
        result.message = (
            f"the held-out error {min(observer.held_out_errors):.6g} was not improved on in "
            f"{recipe.patience} iterations"
        )
    P, Q = (np.array(side) for side in problem.split(x))
    objective = problem.value(x)
    if not recipe.biases:
        P, Q = (np.column_stack([side, np.zeros(len(side), side.dtype)]) for side in (P, Q))
    U, V = P[:, :-1], Q[:, :-1]
    if problem.penalty.ridge == 0.0:  # a ridge has chosen among equal products already
        U, V = (factor.astype(problem.dtype) for factor in balanced(U, V))
    model = LowRankModel(
        loss=recipe.loss,
        mean=problem.mean,
        rows=_names(ratings, 0),
        cols=_names(ratings, 1),
        row_factors=np.ascontiguousarray(U),
        col_factors=np.ascontiguousarray(V),
        row_bias=np.ascontiguousarray(P[:, -1]),
        col_bias=np.ascontiguousarray(Q[:, -1]),
        penalty=problem.penalty,
        limits=_limits(ratings),
        seen=ratings,
        held_out=held_out,
    )
    return Fit(model, result, objective, observer.held_out_errors)


def _split_like(start: LowRankModel, ratings: Ratings, recipe: Recipe) -> tuple[Ratings, Ratings]:
    """Hold out what the model held out, and the share of what it has not seen.

    An entry that it was fitted to would say nothing about the error on other entries.
    """
    rows = start.rows.positions(_names(ratings, 0).ids)[ratings.rows].astype(np.int64)
    cols = start.cols.positions(_names(ratings, 1).ids)[ratings.cols]
    known = (rows != UNKNOWN) & (cols != UNKNOWN)
    cells = np.where(known, rows * len(start.cols) + cols, UNKNOWN)
    fitted, held = (
        np.isin(cells, [] if old is None else old.rows.astype(np.int64) * old.shape[1] + old.cols)
        for old in (start.seen, start.held_out)
    )
    new = np.flatnonzero(~fitted & ~held)
    rng = np.random.default_rng(recipe.rng)
    share = float(recipe.validation_share or 0.0)
    held[rng.choice(new, round(share * new.size), replace=False, shuffle=False)] = True
    if not held.any() or held.all():
        raise ValueError(
            f"the model to begin with was fitted to {np.count_nonzero(fitted)} of these "
            f"{ratings.nnz} entries, and of the other {ratings.nnz - np.count_nonzero(fitted)} a "
            f"share of {share:g} cannot be held out; begin anew, or go on without validation"
        )
    return ratings._where(~held), ratings._where(held)


def _names(ratings: Ratings, side: int) -> Names:
    return Names((ratings.row_ids, ratings.col_ids)[side], ratings.shape[side])


def _limits(ratings: Ratings) -> tuple[float, float]:
    return float(ratings.values.min()), float(ratings.values.max())


def _problem(ratings: Ratings, recipe: Recipe) -> BiasedProblem:
    loss = recipe.loss
    mean = 0.0
    if recipe.centre:
        mean = log_odds(ratings.values) if loss == "logistic" else ratings.mean
    ridge = default_ridge(ratings, loss) if recipe.ridge is None else recipe.ridge
    bias_ridge = default_bias_ridge(loss) if recipe.bias_ridge is None else recipe.bias_ridge
    return BiasedProblem(
        ratings,
        # No matrix has a higher rank than its smaller side: more factors could say nothing more.
        min(recipe.rank, *ratings.shape),
        loss,
        mean,
        Penalty(ridge, bias_ridge, recipe.weighting, recipe.biases),
        balance=0.0 if recipe.by_sweeps else recipe.balance,
        threads=recipe.threads,
    )


def _begin(problem: BiasedProblem, recipe: Recipe, model: LowRankModel | None) -> Floats:
    """Where to begin: at the model, where there is one, and else at random for sweeps."""
    if model is None and not recipe.by_sweeps:
        return problem.svd_start()
    x = problem.random_start(np.random.default_rng(recipe.rng))
    if model is None:
        return x
    ratings, common = problem.ratings, min(problem.rank, model.rank)
    for side, ids, names, factors, bias in zip(
        problem.split(x),
        (_names(ratings, 0), _names(ratings, 1)),
        (model.rows, model.cols),
        (model.row_factors, model.col_factors),
        (model.row_bias, model.col_bias),
        strict=True,
    ):
        there = names.positions(ids.ids)
        known = there != UNKNOWN
        side[known, :common] = factors[there[known], :common]
        if problem.penalty.biases:
            side[known, -1] = bias[there[known]]
    return x


def run_sweeps(
    problem: BiasedProblem,
    recipe: Recipe,
    model: LowRankModel | None = None,
    observer: _Observer | None = None,
) -> tuple[Floats, Result]:
    """Sweep until the tolerance of the recipe is reached; the point, and how it came about."""
    sweep = BiasedSweep(problem)
    callback = None
    if observer is not None:

        def callback(step: Any) -> bool:
            return observer(step, lambda: sweep.point(step.x))

    result = accelerate(
        sweep,
        sweep.state(_begin(problem, recipe, model)),
        value=True,
        restart="either" if recipe.solver == "auto" else "always",
        tol=0.0,
        value_tol=recipe.tol,
        max_iterations=recipe.max_iterations or SWEEPS,
        callback=callback,
    )
    # The image of the last point is no higher, and known unless an interrupt came in between.
    if result.image is None:
        return sweep.point(result.x), result
    return sweep.point_after(result.x, result.image), result


def _descend(
    problem: BiasedProblem, recipe: Recipe, model: LowRankModel | None, observer: _Observer
) -> tuple[Floats, Result]:
    # The yardstick of the tolerance does not depend on where this run begins.
    yardstick = problem.value_and_gradient(problem.random_start(np.random.default_rng(0)))[1]
    result = minimize(
        problem.value_and_gradient,
        _begin(problem, recipe, model),
        jac=True,
        method=recipe.solver,
        tol=recipe.tol * float(np.linalg.norm(yardstick)),
        max_iterations=recipe.max_iterations or ITERATIONS,
        callback=lambda step: observer(step, lambda: step.x),
    )
    return result.x, result


class _Observer:
    """Looks on after each iteration: tells the watcher, and knows when to stop early."""

    def __init__(
        self,
        problem: BiasedProblem,
        held_out: Ratings | None,
        patience: int,
        watch: Watcher | None,
    ):
        self.problem, self.held_out, self.patience, self.watch = problem, held_out, patience, watch
        self.held_out_errors: list[float] = []
        self.best: Floats | None = None
        self._lowest, self._since = math.inf, 0
        self._limits = _limits(problem.ratings)

    def __call__(self, step: Any, point: Callable[[], Floats]) -> bool:
        error = math.nan
        if self.held_out is not None:
            x = point()
            P, Q = self.problem.split(x)
            if self.problem.loss == "squared":  # of ratings within the limits, as predicted
                mean = self.problem.mean_loss(P, Q, self.held_out, self._limits)
                error = math.sqrt(2.0 * mean)
            else:
                error = self.problem.mean_loss(P, Q, self.held_out)
            self.held_out_errors.append(error)
            self._since += 1
            if error < self._lowest:
                self.best = np.array(x)
                if error < (1.0 - IMPROVEMENT) * self._lowest:
                    self._since = 0
                self._lowest = error
        told = Step(step.nit, step.fun, step.grad_norm, error, step.restarts)
        if self.watch is not None and self.watch(told):
            return True
        return self.gave_up

    @property
    def gave_up(self) -> bool:
        """Has the held-out error stopped falling?"""
        return self._since >= self.patience
