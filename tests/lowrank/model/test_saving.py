"""Fits that save the model while they run: what is saved is a model to go on from."""

from __future__ import annotations

import numpy as np
import pytest

from momentous.lowrank import Ratings
from momentous.lowrank.model import fit_model, load_model, save_model
from momentous.lowrank.solvers.fit import FitConfig


def ratings():
    rng = np.random.default_rng(0)
    rows, cols = np.nonzero(rng.random((30, 20)) < 0.5)
    values = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 20))
    return Ratings(rows, cols, values[rows, cols], (30, 20))


def saved_models(config, every, watch=None):
    saved = []
    fit = fit_model(
        ratings(), config, watch=watch, save=lambda *one: saved.append(one), save_every=every
    )
    return fit, saved


@pytest.mark.parametrize("solver", ["auto", "lbfgs"])
@pytest.mark.parametrize("share", [None, 0.2])
def test_models_are_saved_after_the_first_iteration_and_then_by_the_clock(solver, share):
    config = FitConfig(
        rank=2, threads=1, solver=solver, max_iterations=6, tol=0.0, validation_share=share
    )
    often, seldom = saved_models(config, 0.0)[1], saved_models(config, 1e6)[1]
    assert len(often) == 6
    assert [step.nit for _, step in seldom] == [1]
    plain = fit_model(ratings(), config)
    for model, step in (*often, *seldom):
        assert model.seen.nnz == plain.model.seen.nnz
        assert (model.held_out is None) == (share is None)
        assert np.isfinite(step.fun)
    if share is None:
        assert [step.nit for _, step in often] == [1, 2, 3, 4, 5, 6]


def test_what_is_saved_is_the_best_on_the_held_out_share():
    config = FitConfig(rank=6, ridge=0.01, threads=1, validation_share=0.3, tol=0.0, patience=4)
    fit, saved = saved_models(config, 0.0)
    lowest = np.minimum.accumulate(fit.held_out_errors)
    assert [step.held_out for _, step in saved] == lowest.tolist()
    model, step = saved[-1]
    assert step.nit == np.argmin(fit.held_out_errors) + 1 < len(fit.held_out_errors)
    np.testing.assert_array_equal(model.row_factors, fit.model.row_factors)


def test_saving_changes_nothing_and_a_fit_goes_on_from_the_last_one(tmp_path):
    config = FitConfig(rank=2, threads=1, max_iterations=30, tol=1e-9)
    fit, saved = saved_models(config, 0.0)
    plain = fit_model(ratings(), config)
    assert (fit.objective, fit.result.nit) == (plain.objective, plain.result.nit)
    save_model(saved[4][0], tmp_path / "m")  # as if the fit had been killed after five sweeps
    after = fit_model(ratings(), config, start=load_model(tmp_path / "m")[0])
    assert after.objective <= saved[4][1].fun
    assert after.objective == pytest.approx(plain.objective, rel=1e-4)


def test_the_seconds_between_saves_are_a_number():
    with pytest.raises(ValueError, match="save_every=-1 must be"):
        fit_model(ratings(), FitConfig(rank=2), save=print, save_every=-1)


def test_what_save_raises_passes_on_once():
    calls = []

    def save(model, step):
        calls.append(step.nit)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        fit_model(ratings(), FitConfig(rank=2, max_iterations=5), save=save)
    assert calls == [1]
