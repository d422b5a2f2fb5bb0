"""Sweeps that rescale their factors: the same product, the least penalty, fewer sweeps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from momentous import Status
from momentous.api import accelerate
from momentous.lowrank import LowRankObjective, Penalty, Ratings, Sweep
from momentous.lowrank.factors import balanced, least_penalty
from momentous.lowrank.model import fit_model
from momentous.lowrank.solvers import sweeps as module
from momentous.lowrank.solvers.fit import FitConfig

RANK = 3


def factors(seed=0, sizes=(1.0, 10.0, 0.1)):
    rng = np.random.default_rng(seed)
    U, V = rng.standard_normal((12, RANK)) * sizes, rng.standard_normal((9, RANK))
    return U, V, rng.uniform(0.5, 20.0, 12), rng.uniform(0.5, 20.0, 9)


def penalty(U, V, w, v):
    return np.sum(w[:, None] * U**2) + np.sum(v[:, None] * V**2)


def ratings(users=40, items=25, share=0.4, seed=0):
    rng = np.random.default_rng(seed)
    full = 3.0 + rng.standard_normal((users, 2)) @ rng.standard_normal((2, items))
    rows, cols = np.nonzero(rng.random(full.shape) < share)
    return Ratings(rows, cols, full[rows, cols], full.shape)


def problem(data=None, biases=True, weighting=0.5, ridge=0.7):
    given = Penalty(ridge, 0.4, weighting, biases)
    data = ratings() if data is None else data
    return LowRankObjective(data, RANK, balance=0.0, ridge=given, mean=0.3, threads=1)


def test_the_product_stays_and_no_other_scaling_has_a_smaller_penalty():
    U, V, w, v = factors()
    P, Q = least_penalty(U, V, w, v)
    np.testing.assert_allclose(P @ Q.T, U @ V.T, atol=1e-12 * np.abs(U @ V.T).max())

    def penalised(entries):
        S = entries.reshape(RANK, RANK)
        return penalty(U @ S, V @ np.linalg.inv(S).T, w, v)

    # Any invertible matrix is allowed, symmetric or not; a general search finds nothing below.
    found = minimize(penalised, np.diag([1.0, 0.3, 3.0]).ravel(), options={"gtol": 1e-6})
    assert penalty(P, Q, w, v) == pytest.approx(found.fun, rel=1e-8)
    assert penalty(P, Q, w, v) < 0.9 * penalty(U, V, w, v)


def test_with_equal_weights_the_penalty_is_that_of_balanced_factors():
    U, V, *_ = factors()
    ones = np.ones(12), np.ones(9)
    found = penalty(*least_penalty(U, V, *ones), *ones)
    assert found == pytest.approx(penalty(*balanced(U, V), *ones), rel=1e-10)


def test_factors_that_are_the_best_already_are_hardly_moved():
    U, V, w, v = factors()
    P, Q = least_penalty(U, V, w, v)
    again = least_penalty(P, Q, w, v)
    np.testing.assert_allclose(again[0], P, atol=1e-6)
    np.testing.assert_allclose(again[1], Q, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vanishing_directions_do_no_harm(dtype):
    U, V, w, v = factors(sizes=(1.0, 1e-9, 0.0))
    V[:, 2] = 0.0
    U, V = U.astype(dtype), V.astype(dtype)
    P, Q = least_penalty(U, V, w, v)
    assert P.dtype == Q.dtype == dtype
    np.testing.assert_allclose(P @ Q.T, U @ V.T, atol=1e3 * np.finfo(dtype).eps)
    assert penalty(P, Q, w, v) <= penalty(U, V, w, v)
    for one in (U, np.full_like(U, np.nan)):
        kept = least_penalty(one, np.zeros_like(V), w, v)
        np.testing.assert_array_equal(kept[0], one)


@pytest.mark.parametrize("shape", [(40, 25), (25, 40)])
@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("weighting", [0.0, 1.0])
def test_the_point_after_a_sweep_is_no_higher_and_its_rows_are_the_best(shape, biases, weighting):
    p = problem(ratings(*shape), biases, weighting)
    sweep = Sweep(p)
    state = sweep.begin(p.random_start(np.random.default_rng(0)))
    values = []
    for _ in range(8):
        image, value = sweep(state)
        after = sweep.point_after(state, image)
        assert p.value(after) <= value * (1 + 1e-12)
        P, Q = p.split(after)
        np.testing.assert_allclose(sweep.objective.half_sweep(0, None, Q)[0], P, atol=1e-9)
        values.append(value)
        state = image
    assert all(later <= sooner for sooner, later in itertools.pairwise(values))


@pytest.mark.parametrize(("seed", "biases"), [(3, False), (5, True)])
@pytest.mark.parametrize("ridge", [0.0, 1e-20])
@pytest.mark.parametrize("turned", [False, True])
def test_nearly_dependent_factors_do_not_make_a_sweep_rise(seed, biases, ridge, turned):
    """Noise seen in few places: without a ridge factors grow, and become more and more alike."""
    rng = np.random.default_rng(seed)
    seen = rng.random((30, 20)) < 0.4
    (rows, cols), noise = np.nonzero(seen), rng.standard_normal(np.count_nonzero(seen))
    data = Ratings(cols, rows, noise, (20, 30)) if turned else Ratings(rows, cols, noise, (30, 20))
    given = Penalty(ridge, ridge, 0.0, biases)
    p = LowRankObjective(data, 5, balance=0.0, ridge=given, threads=1)
    sweep = Sweep(p)
    start = sweep.begin(p.random_start(np.random.default_rng(0)))
    result = accelerate(sweep, start, True, tol=0, max_iterations=600)
    assert result.status is not Status.OBJECTIVE_ROSE
    for point in (
        sweep.point(result.x),
        sweep.point_after(result.x, result.x - result.jac),
        Sweep(p).point_after(result.x, result.x - result.jac),  # one that remembers nothing
    ):
        assert p.value(point) <= result.fun * (1 + 1e-6) + 1e-12


def test_the_state_is_the_side_whose_rows_have_enough_entries():
    mine = np.stack([np.arange(60) % 8, (np.arange(60) + 3) % 8], axis=1).ravel()
    few_a_row = Ratings(np.repeat(np.arange(60), 2), mine, np.ones(120), (60, 8))
    rows, cols, values = few_a_row.rows, few_a_row.cols, few_a_row.values
    few_a_col = Ratings(cols, rows, values, (8, 60))
    assert Sweep(problem(few_a_row)).side == 1
    assert Sweep(problem(few_a_col)).side == 0


@pytest.mark.parametrize(("weighting", "ridge"), [(0.0, 1.0), (1.0, 0.02)])
def test_rescaling_saves_sweeps(weighting, ridge, monkeypatch):
    data = ratings(120, 80, share=0.3)
    config = FitConfig(
        rank=RANK, ridge=ridge, weighting=weighting, biases=False, centre=False, threads=1,
        tol=0.0, max_iterations=100,
    )  # fmt: skip

    def values():
        told = []
        fit_model(data, config, watch=lambda step: told.append(step.fun))
        return np.array(told)

    rescaled = values()
    monkeypatch.setattr(module, "least_penalty", lambda U, V, *weights, **how: (U, V))
    plain = values()
    goal = 1.001 * min(rescaled.min(), plain.min())
    sweeps = [int(np.argmax(told <= goal)) for told in (rescaled, plain)]
    assert 0 < 1.5 * sweeps[0] < sweeps[1], sweeps


def test_without_a_ridge_nothing_is_rescaled(monkeypatch):
    monkeypatch.setattr(module, "least_penalty", None)  # would fail if called
    p = problem(ridge=0.0)
    sweep = Sweep(p)
    sweep(sweep.begin(p.random_start(np.random.default_rng(0))))
