"""Fit a low-rank model to ratings: which solver, from where, until when, watched by whom."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from momentous.core.method import Method
from momentous.core.result import Result
from momentous.front import accelerate, minimize
from momentous.lowrank.biased import BiasedProblem, Loss, log_odds
from momentous.lowrank.biased_sweep import BiasedSweep
from momentous.lowrank.model import LowRankModel
from momentous.lowrank.names import UNKNOWN, Names
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
        if isinstance(self.rank, bool) or not isinstance(self.rank, int | np.integer):
            raise TypeError(f"rank={self.rank!r} must be a whole number")
        if self.rank < 1:
            raise ValueError(f"rank={self.rank!r} must be at least 1")
        if self.max_iterations is not None and self.max_iterations < 1:
            raise ValueError(f"max_iterations={self.max_iterations!r} must be at least 1 or None")
        if not self.tol >= 0:
            raise ValueError(f"tol={self.tol!r} must be a number >= 0")
        if self.patience < 1:
            raise ValueError(f"patience={self.patience!r} must be at least 1")
        if isinstance(self.solver, str) and not self.by_sweeps:
            method_class(self.solver)  # an unknown name is told before any work
        elif not isinstance(self.solver, str | type | Method):
            raise TypeError(f"solver={self.solver!r} must be a name, a Method class or an instance")

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
        Begin there: rows and columns that it knows keep their parameters at first.
    watch : callable, optional
        Told a `Step` after each iteration; returning True ends the fit.
    """
    held_out = None
    if recipe.validation_share is not None:
        ratings, held_out = ratings.split(recipe.validation_share, recipe.rng)
    problem = _problem(ratings, recipe)
    observer = _Observer(problem, held_out, recipe.patience, watch)
    run = run_sweeps if recipe.by_sweeps else _descend
    x, result = run(problem, recipe, start, observer)
    if observer.best is not None:
        x = observer.best
    if observer.gave_up:
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
        rows=Names(ratings.row_ids, ratings.shape[0]),
        cols=Names(ratings.col_ids, ratings.shape[1]),
        row_factors=np.ascontiguousarray(U),
        col_factors=np.ascontiguousarray(V),
        row_bias=np.ascontiguousarray(P[:, -1]),
        col_bias=np.ascontiguousarray(Q[:, -1]),
        penalty=problem.penalty,
        limits=(float(ratings.values.min()), float(ratings.values.max())),
        seen=ratings,
    )
    return Fit(model, result, objective, observer.held_out_errors)


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
        (Names(ratings.row_ids, ratings.shape[0]), Names(ratings.col_ids, ratings.shape[1])),
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
        restart="function" if recipe.solver == "auto" else "always",
        tol=0.0,
        value_tol=recipe.tol,
        max_iterations=recipe.max_iterations or SWEEPS,
        callback=callback,
    )
    # The image of the last point is no higher, and known unless an interrupt came in between.
    state = result.x if result.jac is None else result.x - result.jac
    return sweep.point(state), result


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

    def __call__(self, step: Any, point: Callable[[], Floats]) -> bool:
        error = math.nan
        if self.held_out is not None:
            x = point()
            error = self.problem.mean_loss(*self.problem.split(x), self.held_out)
            if self.problem.loss == "squared":
                error = math.sqrt(2.0 * error)
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
