"""rank="auto" and ridge="path": estimators, imputer, command; and their certificates."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("sklearn")
from click.testing import CliRunner

from momentous.cli.fit import command
from momentous.lowrank import (
    ImplicitMF,
    LowRankImputer,
    MatrixCompletion,
    OneBitMatrixCompletion,
    Ratings,
    Verdict,
)
from momentous.lowrank.solvers import certificate, ridge_path

OPTIONS = {"backend": "numpy"}


@pytest.fixture(scope="module")
def ratings():
    """Of rank 3, with noise: 80 x 50."""
    rng = np.random.default_rng(0)
    signal = rng.standard_normal((80, 3)) @ rng.standard_normal((3, 50))
    there = rng.random((80, 50)) < 0.5
    values = 3.0 + signal[there] + 0.5 * rng.standard_normal(there.sum())
    return Ratings(*np.nonzero(there), values, (80, 50))


def test_the_rank_is_found_with_a_proof_and_kept_in_files(ratings, tmp_path):
    fitted = MatrixCompletion(rank="auto", ridge=1.0, **OPTIONS).fit(ratings)
    assert fitted.certificate_.verdict is Verdict.GLOBAL
    assert fitted.certificate_.relative_gap <= fitted.gap_tol
    assert fitted.objective_ == fitted.certificate_.objective
    assert 3 <= fitted.model_.rank < 50
    assert fitted.rank_ == fitted.model_.rank == fitted.row_factors_.shape[1]
    assert f"rank {fitted.model_.rank}: the global optimum" in fitted.message_
    fitted.save(tmp_path / "model.npz")
    again = MatrixCompletion.load(tmp_path / "model.npz")
    assert again.rank == "auto"
    assert again.certificate_.relative_gap == pytest.approx(fitted.certificate_.relative_gap, 0.1)


def test_no_fit_of_a_given_rank_is_below_the_certified_one(ratings):
    options = OPTIONS | {"ridge": 1.0, "tol": 1e-9}
    best = MatrixCompletion(rank="auto", gap_tol=1e-6, **OPTIONS, ridge=1.0).fit(ratings)
    for rank, verdict in ((1, Verdict.NOT_GLOBAL), (best.model_.rank + 5, None)):
        other = MatrixCompletion(rank=rank, **options).fit(ratings)
        assert other.objective_ >= best.objective_ - best.certificate_.gap
        assert other.certificate_.gap >= other.objective_ - best.objective_
        assert verdict is None or other.certificate_.verdict is verdict


def test_certificates_follow_the_model(ratings):
    fitted = MatrixCompletion(rank="auto", ridge=1.0, **OPTIONS).fit(ratings)
    before = fitted.certificate_
    assert fitted.certificate_ is before
    fitted.partial_fit([[0, 0]], [30.0])
    assert fitted.certificate_.objective == pytest.approx(fitted.objective_)
    assert fitted.certificate_.gap > before.gap


@pytest.mark.parametrize("kind", [OneBitMatrixCompletion, ImplicitMF])
def test_other_losses_find_their_rank(ratings, kind):
    given = {"threshold": "mean"} if kind is OneBitMatrixCompletion else {"ridge": 20.0}
    values = np.abs(ratings.values)
    fitted = kind(rank="auto", **given, **OPTIONS).fit(ratings.with_values(values))
    assert fitted.certificate_.verdict is Verdict.GLOBAL


def test_a_path_ends_at_the_ridge_with_the_least_held_out_error(ratings):
    fitted = MatrixCompletion(rank="auto", ridge="path", **OPTIONS).fit(ratings)
    best = min(fitted.path_, key=lambda point: point.held_out)
    ridges = [point.ridge for point in fitted.path_]
    assert ridges == sorted(ridges, reverse=True)
    assert fitted.certificate_.ridge == pytest.approx(best.ridge)
    assert fitted.certificate_.verdict is Verdict.GLOBAL
    assert fitted.model_.seen.nnz == ratings.nnz  # what the path held out is given back
    assert fitted.path_[0].rank <= best.rank
    assert len(str(fitted.path_[0]).splitlines()) == 1


@pytest.mark.slow
def test_what_the_user_holds_out_stays_so_after_a_path(ratings):
    options = OPTIONS | {"rank": "auto", "ridge": "path", "validation_share": 0.2}
    fitted = MatrixCompletion(**options).fit(ratings)
    assert fitted.model_.held_out.nnz == round(0.2 * ratings.nnz)
    assert fitted.validation_errors_ == [point.held_out for point in fitted.path_]


def test_above_the_largest_ridge_there_are_no_factors(ratings):
    objective = MatrixCompletion(rank="auto", **OPTIONS)._config().objective(ratings)
    largest = ridge_path.largest_ridge(objective)
    for factor, empty in ((1.02, True), (0.9, False)):
        fitted = MatrixCompletion(rank="auto", ridge=factor * largest, **OPTIONS).fit(ratings)
        assert (np.abs(fitted.col_factors_).max() < 1e-6) == empty


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rank": 5, "ridge": "path"}, "rank=5 must be 'auto'"),
        ({"rank": "auto", "solver": "lbfgs"}, "solver='lbfgs' must be 'auto'"),
        ({"rank": "auto", "ridge": 0.0}, "ridge=0.0 has not: .* number as rank"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(ratings, given, message):
    with pytest.raises(ValueError, match=message):
        MatrixCompletion(**given, **OPTIONS).fit(ratings)


def test_the_command_finds_the_rank(ratings, tmp_path):
    rows = zip(ratings.rows, ratings.cols, ratings.values, strict=True)
    file = tmp_path / "ratings.csv"
    file.write_text("\n".join(f"{i},{j},{x}" for i, j, x in rows))
    asked = ["--rank", "auto", "--gap-tol", "1e-5", "--backend", "numpy", "--json"]
    found = CliRunner().invoke(command, [str(file), "--out", str(tmp_path / "model"), *asked])
    assert found.exit_code == 0, found.output
    facts = json.loads(found.stdout)
    assert facts["relative_gap"] <= 1e-5
    assert facts["rank"] > 1
    wrong = CliRunner().invoke(command, [str(file), "--out", str(tmp_path / "m"), "--rank", "x"])
    assert wrong.exit_code == 2


@pytest.mark.slow
def test_the_imputer_finds_rank_and_ridge_and_row_effects():
    rng = np.random.default_rng(1)
    whole = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 20))
    whole += 3.0 * rng.standard_normal((60, 1)) + 5.0 * rng.standard_normal(20)
    table = whole + 0.1 * rng.standard_normal(whole.shape)
    table[rng.random(table.shape) < 0.3] = np.nan
    gaps = np.isnan(table)
    errors = {}
    for effects in (False, True):
        imputer = LowRankImputer(rank="auto", ridge="path", row_effects=effects, **OPTIONS)
        filled = imputer.fit_transform(table)
        assert imputer.certificate_.verdict is Verdict.GLOBAL
        assert imputer.path_
        assert imputer.rank_ == imputer.components_.shape[1] < 20
        errors[effects] = np.sqrt(np.mean((filled - whole)[gaps] ** 2))
    assert errors[True] < 0.5
    assert errors[False] < 0.5


def test_free_effects_of_a_complete_table_leave_sums_of_rounding_and_still_a_certificate():
    table = np.array([[2, -4], [-1, 2], [0, 3], [-1, 0], [-1, 1], [1, -5], [1, -2], [-2, 3.0]])
    for size in range(3, 9):
        imputer = LowRankImputer(rank="auto", row_effects=True, **OPTIONS).fit(table[:size])
        assert imputer.certificate_.verdict is Verdict.GLOBAL
        assert imputer.n_iter_ < 1000


def test_a_path_over_entries_that_leave_factors_nothing_is_one_ridge(ratings):
    for value in (3.3, 0.0):
        constant = ratings.with_values(np.full(ratings.nnz, value))
        fitted = MatrixCompletion(rank="auto", ridge="path", **OPTIONS).fit(constant)
        assert len(fitted.path_) == 1
        assert fitted.certificate_.verdict is Verdict.GLOBAL
        np.testing.assert_allclose(fitted.predict([[0, 0], [5, 7]]), value)


def test_the_imputer_ends_its_search_after_max_iterations(ratings):
    table = np.full(ratings.shape, np.nan)
    table[ratings.rows, ratings.cols] = ratings.values
    imputer = LowRankImputer(rank="auto", ridge=0.01, max_iterations=7, **OPTIONS).fit(table)
    assert imputer.n_iter_ == 7


def test_a_certificate_can_be_had_from_another_random_vector(ratings, monkeypatch):
    monkeypatch.setattr(certificate, "DENSE", 0)
    model = MatrixCompletion(rank=2, ridge=1.0, **OPTIONS).fit(ratings).model_
    one, two = (model.certify(backend="numpy", seed=seed) for seed in (0, 1))
    assert one.sigma_max != two.sigma_max == pytest.approx(one.sigma_max, rel=0.1)
