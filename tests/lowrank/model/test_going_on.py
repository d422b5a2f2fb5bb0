"""A fit that goes on is the fit that was never cut: bit for bit, on one CPU."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from momentous.lowrank import Ratings
from momentous.lowrank.model import fit_model, load_model, save_model
from momentous.lowrank.solvers.fit import FitConfig
from momentous.lowrank.tasks import fit_file

RNG = np.random.default_rng(0)
ROWS, COLS = np.nonzero(RNG.random((60, 40)) < 0.4)
VALUES = np.clip(np.round(3 + RNG.standard_normal(ROWS.size)), 1, 5)
CASES = {
    "squared": {},
    "no ridge": {"ridge": 0.0, "biases": False},
    "single precision": {"dtype": np.float32},
    "conjugate gradients": {"half_sweeps": "cg"},
    "plain sweeps": {"solver": "sweep"},
    "logistic": {"loss": "logistic"},
    "implicit": {"loss": "implicit"},
    "lbfgs": {"solver": "lbfgs"},
    "ada-ragd": {"solver": "ada-ragd"},
    "validation": {"validation_share": 0.2, "patience": 1000},
}


def ratings_of(options):
    made = Ratings(ROWS, COLS, VALUES, (60, 40)).astype(options.get("dtype", np.float64))
    return made.signs() if options.get("loss") == "logistic" else made


def config_of(options, iterations, tol=0.0):
    options = {name: value for name, value in options.items() if name != "dtype"}
    return FitConfig(rank=4, threads=1, max_iterations=iterations, tol=tol, **options)


def require_same(found, whole):
    assert found.objective == whole.objective
    for name in ("row_factors", "col_factors", "row_bias", "col_bias"):
        np.testing.assert_array_equal(getattr(found.model, name), getattr(whole.model, name))


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
@pytest.mark.parametrize("in_file", [False, True])
def test_a_fit_in_pieces_is_the_fit_in_one(options, in_file, tmp_path):
    ratings = ratings_of(options)
    whole = fit_model(ratings, config_of(options, 30))
    found = None
    for iterations in (7, 4, 19):
        found = fit_model(ratings, config_of(options, iterations), start=found and found.model)
        assert found.result.nit == iterations
        assert len(found.result.trace) == iterations + 1
        if in_file:
            save_model(found.model, tmp_path / "m")
            found.model = load_model(tmp_path / "m")[0]
    require_same(found, whole)


@pytest.mark.parametrize("options", [CASES["squared"], CASES["validation"]])
def test_every_save_is_one_to_go_on_from(options, tmp_path):
    """As if the fit had been killed there."""
    ratings, saved = ratings_of(options), []
    whole = fit_model(
        ratings, config_of(options, 12), save=lambda *one: saved.append(one[0]), save_every=0.0
    )
    for done, model in enumerate(saved, 1):
        save_model(model, tmp_path / "m")
        rest = config_of(options, max(1, 12 - done))
        found = fit_model(ratings, rest, start=load_model(tmp_path / "m")[0])
        if done < 12:
            require_same(found, whole)


def test_a_fit_that_has_converged_goes_on_to_a_smaller_tolerance():
    ratings = ratings_of({})
    first = fit_model(ratings, config_of({}, 500, tol=1e-3))
    assert first.result.success
    second = fit_model(ratings, config_of({}, 15), start=first.model)
    require_same(second, fit_model(ratings, config_of({}, first.result.nit + 15)))


def test_the_command_goes_on(tmp_path):
    lines = [f"{u},{i},{v:g}" for u, i, v in zip(ROWS, COLS, VALUES, strict=True)]
    (tmp_path / "r.csv").write_text("\n".join(["user,item,rating", *lines, ""]))
    given = {"rank": 4, "threads": 1, "tol": 0.0}
    fit_file(tmp_path / "r.csv", tmp_path / "whole", max_iterations=25, **given)
    fit_file(tmp_path / "r.csv", tmp_path / "parts", max_iterations=12, **given)
    facts = fit_file(tmp_path / "r.csv", tmp_path / "parts", max_iterations=13, resume=True)
    assert facts["iterations"] == 13
    whole, parts = (load_model(tmp_path / name)[0] for name in ("whole", "parts"))
    np.testing.assert_array_equal(whole.row_factors, parts.row_factors)
    np.testing.assert_array_equal(whole.col_factors, parts.col_factors)


def test_a_warm_start_of_an_estimator_goes_on():
    pytest.importorskip("sklearn")
    from momentous.lowrank import MatrixCompletion

    pairs, given = np.column_stack([ROWS, COLS]), {"threads": 1, "tol": 0.0, "warm_start": True}
    whole = MatrixCompletion(4, max_iterations=20, **given).fit(pairs, VALUES)
    parts = MatrixCompletion(4, max_iterations=10, **given).fit(pairs, VALUES).fit(pairs, VALUES)
    np.testing.assert_array_equal(whole.row_factors_, parts.row_factors_)
    # What an update has changed is where the next fit begins.
    before = parts.partial_fit(pairs[:5], 6 - VALUES[:5]).objective_
    assert parts.model_.run is None
    assert parts.fit(pairs, np.append(6 - VALUES[:5], VALUES[5:])).objective_ < before


def test_other_ratings_or_another_fit_begin_at_the_model():
    ratings, config = ratings_of({}), config_of({}, 10)
    start = fit_model(ratings, config).model
    more = ratings.with_values(np.where(np.arange(ratings.nnz) == 3, 1.0, ratings.values))
    others = [(more, config), (ratings, dataclasses.replace(config, ridge=3.0)),
              (ratings, dataclasses.replace(config, solver="lbfgs")),
              (ratings, dataclasses.replace(config, ridge="fixed", solver="sweep")),
              (ratings, dataclasses.replace(config, half_sweeps="cg"))]  # fmt: skip
    for entries, asked in others:
        bare = dataclasses.replace(start, run=None)
        found, expected = (fit_model(entries, asked, start=one) for one in (start, bare))
        require_same(found, expected)


def test_a_run_that_is_not_the_models_costs_a_warning(tmp_path):
    ratings, config = ratings_of({}), config_of({}, 10)
    first = fit_model(ratings, config).model
    for array in first.run.solver.arrays.values():
        array.flags.writeable = True
        array *= 1.5
    with pytest.warns(RuntimeWarning, match="begins anew at its last model"):
        found = fit_model(ratings, config, start=first)
    require_same(found, fit_model(ratings, config, start=dataclasses.replace(first, run=None)))


def test_a_solver_whose_memory_no_file_can_hold_still_fits(monkeypatch):
    def refuse(state):
        raise TypeError("a checkpoint cannot hold it")

    monkeypatch.setattr("momentous.lowrank.solvers.fit.PackedRun.of", refuse)
    found = fit_model(ratings_of({}), config_of({}, 3))
    assert found.result.nit == 3
    assert found.model.run is None
