"""Certificates: the gap is an upper bound, optima are known as such, and saddles are refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from convex_problems import KINDS, OPTIMA, RIDGES, options, ratings

from momentous.lowrank import LowRankObjective, Ratings, Verdict, certify, find_loss
from momentous.lowrank.backends import find_backend
from momentous.lowrank.losses import Loss, Squared
from momentous.lowrank.model import fit_model
from momentous.lowrank.penalty import Penalty
from momentous.lowrank.solvers import certificate, rank_search
from momentous.lowrank.solvers.certificate import Dual, examine
from momentous.lowrank.solvers.fit import FitConfig, solve
from momentous.lowrank.solvers.rank_search import search_rank

PROBLEMS = [(loss, seed) for loss in RIDGES for seed in range(len(KINDS))]


def problem(loss, seed, rank, **more):
    config = FitConfig(rank=rank, backend="numpy", **options(loss, seed), **more)
    return config, config.objective(ratings(loss, seed))


def dense(dual):
    return dual.times(np.eye(len(dual.V)))


@pytest.mark.parametrize(("loss", "seed"), PROBLEMS)
def test_the_rank_is_found_and_the_gap_is_below_1e_6_at_the_optimum_that_cvxpy_finds(loss, seed):
    fit = fit_model(
        ratings(loss, seed),
        FitConfig(rank="auto", gap_tol=1e-6, backend="numpy", **options(loss, seed)),
    )
    found = fit.certificate
    assert found.verdict is Verdict.GLOBAL
    assert found.relative_gap <= 1e-6
    assert fit.objective * fit.model.seen.nnz == pytest.approx(OPTIMA[loss, seed], rel=2e-6)
    assert 1 <= fit.model.rank < 40


@pytest.mark.parametrize(("loss", "seed"), PROBLEMS)
def test_at_any_point_the_gap_is_at_least_the_distance_from_the_optimum(loss, seed):
    for rank, scale in ((1, 0.1), (5, 1.0)):
        _, objective = problem(loss, seed, rank)
        x = objective.random_start(np.random.default_rng(seed), scale)
        found = certify(objective, x)
        assert found.objective == pytest.approx(objective.value(x, balance=0.0), rel=1e-12)
        assert found.gap >= found.objective - OPTIMA[loss, seed] / objective.nnz - 1e-7
        assert found.verdict is not Verdict.GLOBAL


@pytest.mark.parametrize(("loss", "seed"), PROBLEMS[::2])
def test_a_rank_deficient_stationary_point_is_refused_with_a_way_down(loss, seed):
    config, small = problem(loss, seed, 1, tol=1e-12, max_iterations=500)
    x, _ = solve(small, config)
    larger = small.with_rank(2)  # with a column of zeros: the gradient is as small as before
    P, Q = (np.insert(side, 1, 0.0, axis=1) for side in small.split(x))
    saddle = larger.join(P, Q)
    assert np.linalg.norm(larger.gradient(saddle)) < 1e-4
    found, escape = examine(larger, saddle)
    assert found.verdict is Verdict.NOT_GLOBAL
    P, Q = P.copy(), Q.copy()
    P[:, 1], Q[:, 1] = (side[:, 0] * np.sqrt(escape.left.shape[1]) for side in escape)
    fall = larger.value(saddle) - larger.value(larger.join(P, Q))
    assert fall > 0.5 * found.decrease > 0.0
    assert found.decrease < found.gap


def test_all_columns_of_an_escape_lower_the_objective_together():
    _, objective = problem("squared", 0, 1)
    x = np.zeros(objective.dimension)
    found, escape = examine(objective, x)
    many = objective.with_rank(escape.right.shape[1])
    assert many.rank > 3
    assert many.value(many.join(*escape)) < found.objective - found.decrease / many.rank


@pytest.mark.parametrize(("loss", "seed"), PROBLEMS[::2])
def test_the_bound_of_sigma_is_above_it_and_near_by_svd_and_by_lanczos(monkeypatch, loss, seed):
    config, objective = problem(loss, seed, 4, max_iterations=5)
    x, _ = solve(objective, config)
    exact = np.linalg.norm(dense(Dual(objective, x)), 2) * objective.ridge
    by_svd = certify(objective, x).sigma_max
    monkeypatch.setattr(certificate, "DENSE", 0)
    by_steps = certify(objective, x).sigma_max
    assert exact <= by_svd <= 1.2 * exact
    assert exact <= by_steps <= certificate.NEAR * exact


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("seed", [3, 4])
def test_columns_that_are_vanishing_do_not_keep_a_fit_from_being_certified(
    monkeypatch, seed, small
):
    if not small:
        monkeypatch.setattr(certificate, "DENSE", 0)
    config, objective = problem("implicit", seed, 30, max_iterations=40, tol=0.0)
    x, _ = solve(objective, config)
    sizes = np.linalg.svd(Dual(objective, x).V, compute_uv=False)
    assert sizes[-1] < 0.01 * sizes[0]
    assert certify(objective, x).verdict is Verdict.GLOBAL


def test_few_lanczos_steps_from_any_random_vector_bound_the_norm():
    sizes = 1.0 - 0.5 * np.linspace(0.0, 1.0, 200) ** 2  # no gap above: the hardest case

    def scaled(v):
        return sizes[:, None] * v

    for seed in range(20):
        start = np.random.default_rng(seed).standard_normal((200, 1))
        given = scaled, scaled, start, np.asarray, find_backend("numpy")
        highs = [
            certificate._bidiagonalise(*given, steps, lambda *_: False)[0] for steps in (3, 10, 40)
        ]
        assert all(high >= 1.0 for high in highs)
        assert highs[2] < highs[1] < highs[0]
        assert highs[2] < 1.1


@pytest.mark.parametrize("loss", RIDGES)
def test_conjugates_satisfy_fenchel_and_young(loss):
    kind, rng = find_loss(loss), np.random.default_rng(0)
    x = ratings(loss, 0).values[:300]
    z = rng.standard_normal(300)

    def whole(z):
        values, slopes, _ = kind.entries(z, x)
        return values + 0.5 * kind.dense_weight * z * z, slopes + kind.dense_weight * z

    values, slopes = whole(z)
    np.testing.assert_allclose(kind.conjugate(-slopes, x), slopes * z - values, atol=1e-12)
    for other in rng.standard_normal((20, 300)):
        assert np.all(kind.conjugate(-slopes, x) >= slopes * other - whole(other)[0] - 1e-12)


def test_slopes_that_no_label_has_give_no_bound():
    assert find_loss("logistic").conjugate(np.array([1.5]), np.array([1.0])) == np.inf


def test_without_a_ridge_or_a_conjugate_there_is_no_certificate():
    class Absolute(Loss):
        name = "absolute"

        @staticmethod
        def entry(z, x, parameters):
            return np.abs(z - x), np.sign(z - x), 1.0 + 0.0 * z

    entries = ratings("squared", 0)
    objective = LowRankObjective(entries, 2)
    with pytest.raises(ValueError, match="ridge=0 has no certificate"):
        certify(objective, objective.start())
    objective = LowRankObjective(entries, 2, Absolute(), ridge=1.0, backend="numpy")
    with pytest.raises(ValueError, match=r"absolute loss has no certificate.*conjugate"):
        certify(objective, np.zeros(objective.dimension))
    penalty = problem("implicit", 0, 2)[1].penalty
    free = LowRankObjective(
        ratings("implicit", 0), 2, "implicit", ridge=type(penalty)(1.0, biases=True)
    )
    with pytest.raises(ValueError, match="bias_ridge is above 0"):
        certify(free, np.zeros(free.dimension))


def test_a_ridge_that_leaves_no_factors_is_certified_at_zero():
    entries = Ratings([0, 0, 1], [0, 1, 1], [1.0, -1.0, 0.5])
    objective = LowRankObjective(entries, 1, ridge=10.0, balance=0.0)
    found = certify(objective, np.zeros(objective.dimension))
    assert found.verdict is Verdict.GLOBAL
    assert found.relative_gap < 1e-12
    assert found.sigma_max < 10.0


def test_in_single_precision_the_gap_is_that_of_the_rounded_factors():
    config = FitConfig(rank="auto", backend="numpy", **options("squared", 2))
    fit = fit_model(ratings("squared", 2).astype(np.float32), config)
    assert fit.certificate.verdict is Verdict.GLOBAL
    again = fit.model.certify()
    assert again.relative_gap == pytest.approx(fit.certificate.relative_gap, rel=1e-2, abs=1e-6)


@pytest.mark.slow
def test_the_optimum_of_a_twin_of_movielens_is_found_with_a_gap_below_1e_5():
    known = Ratings.twin("ml-100k").astype(np.float64)
    known = known.split(9430 / known.nnz, 0)[0]
    bare = {"weighting": 0.0, "biases": False, "centre": False}
    fit = fit_model(known, FitConfig(rank="auto", ridge=15.0, gap_tol=1e-5, **bare))
    assert known.nnz == 90570
    assert fit.certificate.relative_gap <= 1e-5
    assert fit.objective * known.nnz == pytest.approx(86932.5066, rel=1e-5)
    again = fit.model.certify(1e-5)  # with another random vector
    assert again.relative_gap <= 2e-5


def far_below_the_ridge():
    """Entries whose best factors are 0, where the bound of sigma takes Lanczos steps."""
    rng = np.random.default_rng(0)
    rows, cols = np.nonzero(rng.random((600, 500)) < 0.05)
    entries = Ratings(rows, cols, rng.standard_normal(rows.size), (600, 500))
    sigma = np.linalg.norm(entries.to_sparse().toarray(), 2)
    return LowRankObjective(entries, 4, "squared", 0.0, 1.05 * sigma, backend="numpy")


def test_without_factors_a_loose_bound_of_sigma_is_not_enough_and_the_search_ends():
    objective = far_below_the_ridge()
    assert certificate.DENSE < 600 * 500
    assert certify(objective, np.zeros(objective.dimension)).relative_gap <= 1e-4
    start = objective.random_start(np.random.default_rng(0))
    *_, found = search_rank(objective, start, max_sweeps=50)
    assert found.certificate.verdict is Verdict.GLOBAL


@pytest.mark.parametrize("columns", [0, 1])
def test_a_search_ends_where_neither_sweeps_nor_looks_decide(monkeypatch, columns):
    objective, looks = far_below_the_ridge(), []

    def undecided(objective, x, *rest, **more):
        looks.append(objective.rank)
        found, _ = examine(objective, x)
        escape = certificate.Escape(np.zeros((600, columns)), np.zeros((500, columns)))
        return dataclasses.replace(found, verdict=Verdict.UNDECIDED), escape

    monkeypatch.setattr(rank_search, "examine", undecided)
    for _ in search_rank(objective, np.zeros(objective.dimension), max_sweeps=12):
        assert len(looks) <= 12


def test_free_biases_whose_sums_cannot_be_made_zero_leave_the_gap_infinite(monkeypatch):
    n = 200  # a chain of entries, which biases alone fit: the optimum is 0, slow to project to
    rows, cols = np.repeat(np.arange(n), 2)[:-1], np.repeat(np.arange(n), 2)[1:]
    entries = Ratings(rows, cols, np.where(np.arange(rows.size) % 2 == 0, 1.0, -1.0), (n, n))
    penalty = Penalty(100.0, bias_ridge=0.0, weighting=0.0, biases=True)
    objective = LowRankObjective(entries, 1, "squared", 0.0, penalty, backend="numpy")
    x = np.zeros(objective.dimension)
    assert Dual(objective, x).reach >= 1.0  # what rounding leaves is not free at biases of 0
    assert certify(objective, x).relative_gap == pytest.approx(1.0)
    monkeypatch.setattr(certificate, "BALANCING", 10)
    found = certify(objective, x)
    assert found.gap == np.inf
    assert found.verdict is Verdict.UNDECIDED
    assert "sums over rows and columns" in found.message


@pytest.mark.parametrize("centre", [True, False])
def test_an_objective_of_rounding_alone_is_known_as_the_optimum(centre):
    rows, cols = np.nonzero(np.random.default_rng(1).random((30, 20)) < 0.5)
    constant = Ratings(rows, cols, np.full(rows.size, 3.3), (30, 20))
    config = FitConfig(rank="auto", backend="numpy", centre=centre, max_iterations=300)
    fit = fit_model(constant, config)
    assert config.objective(constant).ridge > 0.1  # the spread of a mean's rounding is no spread
    assert fit.certificate.verdict is Verdict.GLOBAL


def test_a_large_mean_hides_no_gap():
    entries = ratings("squared", 0)
    gaps = []
    for mean in (0.0, 2.0**30):
        shifted = entries.with_values(entries.values + mean)
        objective = LowRankObjective(shifted, 2, "squared", 0.0, 1.0, mean=mean, backend="numpy")
        gaps.append(certify(objective, np.zeros(objective.dimension)).relative_gap)
    assert gaps[1] == pytest.approx(gaps[0], rel=1e-3)


def test_a_loss_without_a_bound_of_its_curvature_is_refused_by_name():
    class Unbounded(Squared):
        name = "unbounded"

        def largest_curvature(self, x):
            return np.inf

    objective = LowRankObjective(ratings("squared", 0), 2, Unbounded(), 0.0, 1.0, backend="numpy")
    with pytest.raises(ValueError, match=r"unbounded loss has no certificate.*largest_curvature"):
        certify(objective, np.zeros(objective.dimension))


def test_the_certificate_leaves_out_the_balance_term():
    objective = LowRankObjective(ratings("squared", 0), 2, "squared", 5.0, 1.0, backend="numpy")
    x = objective.random_start(np.random.default_rng(0), 1.0)
    assert certify(objective, x).objective == pytest.approx(objective.value(x, balance=0.0))
    assert objective.value(x) > 1.001 * objective.value(x, balance=0.0)


def test_one_column_takes_off_what_is_promised_though_free_biases_are_off_their_optimum():
    rng = np.random.default_rng(0)
    rows, cols = np.nonzero(rng.random((12, 9)) < 0.6)
    entries = Ratings(rows, cols, rng.standard_normal(rows.size), (12, 9))
    penalty = Penalty(0.1, bias_ridge=0.0, weighting=0.0, biases=True)
    refused = 0
    for _ in range(20):
        objective = LowRankObjective(entries, 2, "squared", 0.0, penalty, backend="numpy")
        P, Q = rng.standard_normal((12, 3)), rng.standard_normal((9, 3))
        P[:, -1] *= 4.0
        found, escape = examine(objective, objective.join(P, Q))
        if found.decrease == 0.0:
            continue
        refused += 1
        larger, count = objective.with_rank(3), escape.left.shape[1]
        P, Q = np.insert(P, 2, 0.0, axis=1), np.insert(Q, 2, 0.0, axis=1)
        values = []
        for k in range(count):
            P[:, 2], Q[:, 2] = (side[:, k] * np.sqrt(count) for side in escape)
            values.append(larger.value(larger.join(P, Q)))
        assert found.objective - min(values) >= 0.999 * found.decrease
    assert refused > 5
