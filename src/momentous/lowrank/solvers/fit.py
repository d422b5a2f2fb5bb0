"""Fit an objective: which solver, until when, watched by whom."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from time import monotonic
from typing import NamedTuple

import numpy as np

from momentous.api import iterate
from momentous.core.checkpoint import (
    MALFORMED,
    CheckpointError,
    InMemory,
    PackedRun,
    RunState,
)
from momentous.core.loop import IntermediateResult
from momentous.core.method import Method
from momentous.core.result import Result
from momentous.core.status import Status
from momentous.io.types import JsonObject
from momentous.lowrank.data.ratings import Floats, Ratings, Whole
from momentous.lowrank.losses import Implicit, Loss, Squared, find_loss
from momentous.lowrank.objective import LowRankObjective
from momentous.lowrank.options import ModelOptions, check_options
from momentous.lowrank.penalty import Penalty
from momentous.lowrank.solvers.learned import PLAIN_SWEEPS, FreeEnergy, LearnedSweep
from momentous.lowrank.solvers.rank_search import FIRST_RANK
from momentous.lowrank.solvers.sweeps import STEPS, Sweep, automatic_steps
from momentous.methods.descent_map import DescentMap, RestartRule
from momentous.methods.registry import method_class

SWEEPS, ITERATIONS = 200, 1000  # limits where none is given
# Of iALS: the mean row's ridge, per entry.  So lambda falls as the weight of what was not seen
# rises; it is within a factor of 2 of those published for ML-1M, ML-20M and MSD (.007, .003, .002),
# each of which is wrong for other data and weights (benchmarks/published_ials.py weights).
RIDGE_PER_ENTRY = 0.05
IMPROVEMENT = 1e-4  # of the held-out error, relative: less than this is none


@dataclass(eq=False, kw_only=True)
class FitConfig(ModelOptions):
    """How to fit, checked; it is not changed afterwards."""

    def __post_init__(self) -> None:
        self.loss_object  # noqa: B018  # an unknown name is refused before any work
        check_options(self)
        if self.rank != "auto" and isinstance(self.ridge, str) and self.ridge == "path":
            raise ValueError(f"ridge='path' finds the rank, too: rank={self.rank!r} must be 'auto'")
        if self.rank == "auto" and not (isinstance(self.solver, str) and self.solver == "auto"):
            raise ValueError(f"rank='auto' goes by sweeps: solver={self.solver!r} must be 'auto'")
        if self.rank == "auto" and self.ridge == 0.0:
            raise ValueError(
                f"rank='auto' ends with a certificate, which a fit with ridge={self.ridge!r} has "
                "not: take a small ridge, or a number as rank"
            )
        if self.unobserved_weight is not None and not isinstance(self.loss_object, Implicit):
            raise ValueError(
                f"unobserved_weight={self.unobserved_weight!r} is for the implicit loss, not for "
                f"loss={self.loss_object.name!r}"
            )
        try:
            np.random.default_rng(self.random_state)
        except (ValueError, TypeError):
            raise ValueError(
                f"random_state={self.random_state!r} must be a whole number >= 0, a Generator or "
                "None"
            ) from None
        if isinstance(self.solver, str) and not self.by_sweeps:
            method_class(self.solver)  # and so is this one
        elif not isinstance(self.solver, str | type | Method):
            raise TypeError(f"solver={self.solver!r} must be a name, a Method class or an instance")

    @cached_property
    def loss_object(self) -> Loss:
        """The loss, where ``loss`` may be its name."""
        found, weight = find_loss(self.loss), self.unobserved_weight
        return Implicit(1.0 / weight) if weight and isinstance(found, Implicit) else found

    @property
    def by_sweeps(self) -> bool:
        """Alternating half steps, and not a method that goes by gradients?"""
        return isinstance(self.solver, str) and self.solver in ("auto", "sweep")

    @property
    def learns_priors(self) -> bool:
        """Are the ridges learned?  Only with the default ridge of the squared loss, for fits of a
        given rank by sweeps; a ``weighting`` and a ``bias_ridge`` are those of a fixed one."""
        given = self.ridge, self.weighting, self.bias_ridge
        is_default = all(one is None for one in given) and self.rank != "auto"
        return is_default and self.by_sweeps and type(self.loss_object) is Squared

    @property
    def method(self) -> Method:
        """The solver, where ``solver`` may be its name or its class."""
        if self.by_sweeps:
            return self.map_method
        cls = method_class(self.solver) if isinstance(self.solver, str) else self.solver
        return cls() if isinstance(cls, type) else cls

    @property
    def map_method(self) -> DescentMap:
        """What accelerates sweeps."""
        if self.learns_priors:  # whose noise says when to stop
            return DescentMap(restart="always", secants=0)
        rule: RestartRule = "either" if self.solver == "auto" else "always"
        # No secants: they save few sweeps, and would carry a backend's rounding into the 7th digit.
        return DescentMap(restart=rule, value_tol=self.tol, secants=0)

    def objective(self, ratings: Ratings) -> LowRankObjective:
        """What is to be minimised: a `FreeEnergy`, where priors are learned."""
        loss = self.loss_object
        loss.check(ratings)  # before it takes its defaults from them
        centre = loss.centred if self.centre is None else self.centre
        fixed = LowRankObjective(
            ratings,
            # No matrix has a higher rank than its smaller side: more factors say nothing more.
            min(FIRST_RANK if self.rank == "auto" else self.rank, *ratings.whole.shape),
            loss,
            0.0 if self.by_sweeps else self.balance,
            self.penalty(ratings.whole),
            threads=self.threads,
            mean=loss.mean(ratings.whole) if centre else 0.0,
            backend=self.backend,
            device=self.device,
        )
        return FreeEnergy(fixed) if self.learns_priors else fixed

    def penalty(self, whole: Whole) -> Penalty:
        """How factors and biases are kept small.

        With ``unobserved_weight`` as published (see `ImplicitMF`) for ``sum_S (z - 1)^2 + a0
        sum_all z^2 + lambda sum_i (c_i + a0 n)^nu |u_i|^2``: the factors of the implicit loss with
        alpha = 1/a0 are sqrt(1 + a0) times as large.
        """
        loss, weight = self.loss_object, self.unobserved_weight
        ridge = None if self.ridge is None or isinstance(self.ridge, str) else float(self.ridge)
        weighting, offsets = loss.weighting, (0.0, 0.0)
        if weight is None:
            ridge = loss.default_ridge(whole) if ridge is None else ridge
        else:
            weighting, offsets = 1.0, (weight * whole.shape[1], weight * whole.shape[0])
            if ridge is None:
                exponent = 1.0 if self.weighting is None else self.weighting
                means = whole.nnz / whole.shape[0], whole.nnz / whole.shape[1]
                parts = [
                    mean / (mean + offset) ** exponent
                    for mean, offset in zip(means, offsets, strict=True)
                ]
                ridge = RIDGE_PER_ENTRY * math.sqrt(parts[0] * parts[1])
            ridge *= (1.0 + weight) / weight
        return Penalty(
            ridge,
            loss.bias_ridge if self.bias_ridge is None else self.bias_ridge,
            weighting if self.weighting is None else self.weighting,
            loss.biases if self.biases is None else self.biases,
            self.row_biases,
            offsets,
        )

    def start(self, objective: LowRankObjective) -> Floats:
        """Where to begin: at random for sweeps, by the truncated SVD for other methods."""
        if not self.by_sweeps:
            return objective.start()
        rng, scale, loss = (
            np.random.default_rng(self.random_state),
            self.start_scale,
            self.loss_object,
        )
        if self.learns_priors and isinstance(loss, Squared):
            # In the unit of the factors: few plain sweeps do not find it from far away.
            scale *= math.sqrt(loss.unit(objective.ratings.whole))
        return objective.random_start(rng, scale)

    def steps(self, objective: LowRankObjective) -> int | None:
        """Steps of conjugate gradients per row and half sweep; None: rows are solved exactly."""
        if self.half_sweeps == "auto":
            return automatic_steps(objective)
        return STEPS if self.half_sweeps == "cg" else None


@dataclass(frozen=True, eq=False)
class FitRun:
    """A fit between two iterations: what the solver remembers, and what was best so far.

    A fit that goes on with it takes the steps of one that was never cut.
    """

    solver: PackedRun
    steps: int | None  # `FitConfig.steps`
    # On the entries held out, where there are any:
    lowest: float = math.inf  # the least error
    since: int = 0  # iterations without an improvement
    best: Floats | None = None  # the point with the least error
    best_value: float = math.nan  # the objective there

    def is_of(self, objective: LowRankObjective, config: FitConfig, x0: Floats) -> bool:
        """Can a fit of this objective, which is the run's own, go on with it?"""
        best = x0 if self.best is None else self.best
        if self.steps != config.steps(objective) or best.shape != x0.shape:
            return False
        try:
            found, wanted = self.solver.method, config.method.description()
            return _but_tolerance(found) == _but_tolerance(wanted)
        except MALFORMED:
            return False


def _but_tolerance(described: JsonObject) -> JsonObject:
    """The description of a method, without when it stops."""
    return described | {"parameters": described["parameters"] | {"value_tol": None}}


def solve(
    objective: LowRankObjective,
    config: FitConfig,
    start: Floats | None = None,
    observer: Observer | None = None,
) -> tuple[Floats, Result]:
    """Minimise until the tolerance is reached; the point, and how it was found."""
    x0 = config.start(objective) if start is None else start
    observer = observer or Observer(objective)
    observer.config = config
    run = _learn if config.learns_priors else _sweep if config.by_sweeps else _descend
    try:
        try:
            x, result = run(objective, config, x0, observer)
        except CheckpointError as error:
            if observer.begun is None or objective.ranks.size > 1:  # ranks end together
                raise
            warnings.warn(
                f"the fit begins anew at its last model, without the momentum that it had: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
            observer.begun = None
            x, result = run(objective, config, x0, observer)
    except MemoryError as error:
        if observer.last is None or objective.ranks.size > 1:  # other ranks do not go on
            raise
        observer.error = error.with_traceback(None)  # which would hold on to arrays
    if observer.error is not None:
        objective.backend.release_memory()
        x, result = observer.kept()
    return x if observer.best is None else observer.best, result


def _sweep(
    objective: LowRankObjective, config: FitConfig, x0: Floats, observer: Observer
) -> tuple[Floats, Result]:
    sweep = Sweep(objective, steps=config.steps(objective))
    method, begun = config.map_method, observer.begun
    return sweep.run(
        x0,
        restart=method.restart,
        value_tol=method.value_tol,
        max_iterations=config.max_iterations or SWEEPS,
        callback=lambda intermediate_result: observer(intermediate_result, sweep.point),
        checkpoint=observer.checkpoint,
        resume=None if begun is None else begun.solver.with_method(method.description()),
        secants=method.secants,
    )


def _learn(
    objective: LowRankObjective, config: FitConfig, x0: Floats, observer: Observer
) -> tuple[Floats, Result]:
    """Some plain sweeps with the fixed ridge, unless x0 has variances already, and the others.

    Interrupted in the plain ones it is a point of ``objective.fixed``: priors that are learned too
    early would stay poor in a fit that goes on from there.
    """
    assert isinstance(objective, FreeEnergy)
    steps, begun = config.steps(objective), observer.begun
    if begun is None and len(x0) == objective.fixed.dimension:
        plain = Sweep(objective.fixed, steps=steps, rescale=False, state="V")
        x0, result = plain.run(x0, restart="always", max_iterations=PLAIN_SWEEPS)
        if result.status is Status.INTERRUPTED:
            return x0, result
        x0 = objective.begin(x0)
        del plain, result  # vectors as long as the factors
    return LearnedSweep(objective, steps).run(
        x0,
        config.tol,
        lambda intermediate_result: observer(intermediate_result, lambda x: x),
        max_iterations=config.max_iterations or SWEEPS,
        checkpoint=observer.checkpoint,
        resume=None if begun is None else begun.solver,
    )


def _descend(
    objective: LowRankObjective, config: FitConfig, x0: Floats, observer: Observer
) -> tuple[Floats, Result]:
    # What the tolerance is relative to does not depend on where this run begins.
    reference_gradient = objective.gradient(objective.random_start(np.random.default_rng(0)))
    result = iterate(
        objective.value_and_gradient,
        x0,
        jac=True,
        method=config.solver,
        tol=config.tol * objective.norm(reference_gradient),
        max_iterations=config.max_iterations or ITERATIONS,
        callback=lambda intermediate_result: observer(intermediate_result, lambda x: x),
        checkpoint=observer.checkpoint,
        resume=None if observer.begun is None else observer.begun.solver,
        ranks=objective.layout,
        interrupts="return",
    ).finish()
    if "hess_inv" in result:  # pairs of vectors as long as x, which an estimator would keep
        del result["hess_inv"]
    return result.x, result


class FitProgress(NamedTuple):
    """What there is to report after an iteration."""

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


Watcher = Callable[[FitProgress], object]


class Observer:
    """Looks on after each iteration: watches, saves, and knows when to stop early.

    ``save`` gets the best point on the entries held out (without any: the present one), its
    `FitProgress` and the `FitRun`, after the first iteration and then every ``save_every`` seconds.
    ``begun`` is a run to go on with.  ``run`` is the one that a later fit can go on with; None
    where the solver has come to an end from which there is no way on.
    """

    def __init__(
        self,
        objective: LowRankObjective,
        held_out: Ratings | None = None,
        patience: int = 1,
        watch: Watcher | None = None,
        save: Callable[[Floats, FitProgress, FitRun | None], None] | None = None,
        save_every: float = 60.0,
        begun: FitRun | None = None,
    ):
        self.objective, self.held_out, self.patience = objective, held_out, patience
        self.watch, self.save, self.save_every = watch, save, save_every
        self.begun = self.run = begun
        self.config = FitConfig()  # `solve` says which
        self.held_out_errors: list[float] = []
        self.last: tuple[IntermediateResult, Callable[[Floats], Floats]] | None = (
            None  # iteration, and its point
        )
        self.error: MemoryError | None = None  # that ended the run
        self.best: Floats | None = None
        self.lowest = math.inf  # error on the entries held out, at the best point
        self._step = self._best_step = FitProgress(0, math.nan, math.nan, math.nan, 0)
        self._since, self._saved_at, self._due = 0, -math.inf, False
        self._value_range = objective.ratings.whole.value_range
        if begun is not None and begun.best is not None and held_out is not None:
            self.best = objective.backend.asarray(begun.best, objective.dtype)
            self.lowest = begun.lowest
            # A fit that had given up is asked to try once more.
            self._since = begun.since if begun.since < patience else 0
            self._best_step = FitProgress(0, begun.best_value, math.nan, begun.lowest, 0)

    def __call__(self, result: IntermediateResult, point: Callable[[Floats], Floats]) -> bool:
        """Has the watcher, or the held-out error, seen enough?"""
        self.last = result, point
        x, error = None, math.nan
        if self.held_out is not None:
            x = point(result.x)
            error = self.objective.error(x, self.held_out, self._value_range)
            self.held_out_errors.append(error)
        step = FitProgress(result.nit, result.fun, result.grad_norm, error, result.restarts)
        self._step = step
        if x is not None:
            self._since += 1
            if error < self.lowest:
                self.best, self._best_step = x.copy(), step
                if error < (1.0 - IMPROVEMENT) * self.lowest:
                    self._since = 0
                self.lowest = error
        enough = self.watch is not None and bool(self.watch(step))
        return enough or self.gave_up

    @property
    def checkpoint(self) -> InMemory:
        """How the solver's run comes here: when a save is due, and at the end."""
        return InMemory(self._is_due, self._take_run)

    def _is_due(self) -> bool:
        due = monotonic() - self._saved_at >= self.save_every
        self._due = self.save is not None and self.objective.ranks.sum(float(due)) > 0.0
        return self._due

    def _take_run(self, state: RunState) -> None:
        self.run = self._run_of(state)
        if self._due and self.save is not None and self.last is not None:
            self._due = False  # not again where it raises
            last, point = self.last
            if self.best is None:
                self.save(point(last.x), self._step, self.run)
            else:
                self.save(self.best, self._best_step, self.run)
            self._saved_at = monotonic()

    def _run_of(self, state: RunState) -> FitRun | None:
        ending = state.report.ending
        if ending is not None:
            if not (self.config.by_sweeps and ending.status is Status.CONVERGED):
                return None
            # To go on, perhaps to another tolerance, is what a later fit is for.
            state = dataclasses.replace(
                state, report=dataclasses.replace(state.report, ending=None)
            )
        try:
            packed = PackedRun.of(state.counted_from_here())
        except TypeError:  # a method of the user's own, whose memory no file can hold
            return None
        run = FitRun(packed, self.config.steps(self.objective))
        if self.best is None:
            return run
        best, value = self.objective.backend.to_host(self.best), self._best_step.fun
        return dataclasses.replace(
            run, lowest=self.lowest, since=self._since, best=best, best_value=value
        )

    def kept(self) -> tuple[Floats, Result]:
        """The last point and its result, where memory has ended in the iteration after it."""
        assert self.last is not None
        last, point = self.last
        names = ("x", "fun", "grad_norm", "nit", "nfev", "njev", "restarts", "time")
        result = Result({name: getattr(last, name) for name in names})
        result["success"], result["status"] = False, Status.INTERRUPTED
        result["message"] = (
            f"memory ended after iteration {last.nit}, whose point is kept: "
            f"{str(self.error).rstrip('.')}; take a lower rank, fewer entries or another device"
        )
        return point(last.x), result

    @property
    def gave_up(self) -> bool:
        """Has the held-out error stopped falling?"""
        return self._since >= self.patience

    def why_ended(self, result: Result) -> str:
        """Why the fit ended, in words: what the run says, unless it was stopped early."""
        if not (self.gave_up and result.status is Status.STOPPED):
            return result.message
        return (
            f"the held-out error {self.lowest:.6g} was not improved on in "
            f"{self.patience} iterations"
        )
