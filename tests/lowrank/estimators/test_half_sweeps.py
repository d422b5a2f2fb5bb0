"""What users choose about sweeps: how half of one is done, and how small the start is."""

from __future__ import annotations

import numpy as np
import pytest

from momentous.lowrank import LowRankObjective, Ratings, Sweep, find_backend
from momentous.lowrank.solvers.fit import FitConfig, solve
from momentous.lowrank.solvers.sweeps import STEPS

pytest.importorskip("sklearn")
from momentous.lowrank import ImplicitMF, MatrixCompletion, OneBitMatrixCompletion


def some_ratings(seed=0):
    rng = np.random.default_rng(seed)
    full = 3.0 + rng.standard_normal((50, 3)) @ rng.standard_normal((3, 40))
    rows, cols = np.nonzero(rng.random(full.shape) < 0.5)
    return Ratings(rows, cols, full[rows, cols], full.shape)


@pytest.mark.parametrize("kind", [MatrixCompletion, OneBitMatrixCompletion, ImplicitMF])
def test_fits_by_conjugate_gradients_reach_what_exact_ones_reach(kind):
    options = {"tol": 1e-8, "max_iterations": 1000, "backend": "numpy"}
    if kind is OneBitMatrixCompletion:
        options["threshold"] = "mean"
    if kind is MatrixCompletion:
        options["ridge"] = "fixed"
    data = some_ratings()
    data = data.with_values(np.abs(data.values)) if kind is ImplicitMF else data
    exact, found = (
        kind(3, half_sweeps=how, **options).fit(data).objective_ for how in ("exact", "cg")
    )
    assert found == pytest.approx(exact, rel=1e-5)


def test_half_sweeps_by_conjugate_gradients_need_about_as_many_sweeps_as_exact_ones():
    """With a small ridge, too, where rows are little alike; one step would need twice as many."""
    rng = np.random.default_rng(0)
    full = 3.0 + rng.standard_normal((60, 6)) @ rng.standard_normal((6, 40)) / np.sqrt(6)
    full += rng.standard_normal(full.shape)
    rows, cols = np.nonzero(rng.random(full.shape) < 0.5)
    ratings = Ratings(rows, cols, full[rows, cols], full.shape)
    kept = {"rank": 10, "ridge": 1.0, "weighting": 0.0, "tol": 0.0, "backend": "numpy"}

    def objective_after(sweeps, how):
        config = FitConfig(half_sweeps=how, max_iterations=sweeps, **kept)
        return solve(config.objective(ratings), config)[1].fun

    assert objective_after(21, "cg") <= objective_after(14, "exact")


def test_auto_is_exact_up_to_a_rank():
    assert FitConfig().half_sweeps == MatrixCompletion().half_sweeps == "auto"
    ratings, highest = some_ratings(), find_backend("numpy").exact_up_to
    for rank, steps in ((highest, None), (highest + 1, STEPS)):
        problem = LowRankObjective(ratings, rank, backend="numpy")
        assert FitConfig().steps(problem) == steps
        assert FitConfig(half_sweeps="cg").steps(problem) == STEPS
        assert FitConfig(half_sweeps="exact").steps(problem) is None


def test_the_start_has_the_size_that_is_asked_for():
    ratings = some_ratings()
    sizes = []
    for scale in (0.1, 0.001):
        config = FitConfig(rank=3, ridge="fixed", start_scale=scale, backend="numpy")
        problem = config.objective(ratings)
        P, Q = problem.split(config.start(problem))
        assert not P[:, 3].any()  # no biases
        sizes.append(np.std(Q[:, :3]))
    assert sizes[0] == pytest.approx(0.1, rel=0.2)
    assert sizes[1] == pytest.approx(0.01 * sizes[0], rel=1e-6)


def test_wrong_values_are_refused_by_name():
    with pytest.raises(ValueError, match="half_sweeps='fast' must be one of auto, exact, cg"):
        FitConfig(half_sweeps="fast")
    with pytest.raises(ValueError, match="start_scale"):
        FitConfig(start_scale=0.0)
    with pytest.raises(ValueError, match="steps"):
        Sweep(LowRankObjective(some_ratings(), 2, backend="numpy"), steps=0)
