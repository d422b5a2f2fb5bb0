"""Learned priors: the formulas against naive ones, the free energy, the end, odd data."""

from __future__ import annotations

import itertools
import signal

import numpy as np
import pytest

from momentous.core.status import Status
from momentous.lowrank import Ratings
from momentous.lowrank.model import fit_model, load_model, save_model, updated
from momentous.lowrank.model.shards import WithIds
from momentous.lowrank.priors import PredictionVariance, calibration_of
from momentous.lowrank.solvers.fit import FitConfig, solve
from momentous.lowrank.solvers.learned import FreeEnergy, LearnedSweep
from momentous.lowrank.solvers.sweeps import Sweep

ROWS, COLS = 0, 1


# --- the reference: loops over rows, dense matrices -----------------------------------------------


def naive_precisions(prior, weights):
    counts = np.maximum(weights.sum(axis=1), 1.0)
    p = counts[:, None] ** -0.4 * prior
    p[:, -1] = prior[-1]
    return p


def naive_half(X, weights, other, other_variances, prior, noise):
    """New means, variances and prior of the rows of X, less the mean; 0 in ``weights``: a gap."""
    p = naive_precisions(prior, weights)
    F, T = other.copy(), other_variances.copy()
    F[:, -1], T[:, -1] = 1.0, 0.0
    ridge = noise * p + weights @ T
    means = np.zeros(p.shape)
    for i, w in enumerate(weights):
        system = (F.T * w) @ F + np.diag(ridge[i])
        means[i] = np.linalg.solve(system, (F.T * w) @ (X[i] - other[:, -1]))
    variances = noise / (ridge + weights @ F**2)
    there = weights.sum(axis=1) > 0
    return means, variances, 1.0 / np.mean((p / prior * (means**2 + variances))[there], axis=0)


def naive_error(X, weights, P, S, Q, T):
    (U, b), (V, c) = ((side[:, :-1], side[:, -1:]) for side in (P, Q))
    (A, d), (B, e) = ((side[:, :-1], side[:, -1:]) for side in (S, T))
    square = (X - U @ V.T - b - c.T) ** 2 + U**2 @ B.T + A @ (V**2).T + A @ B.T + d + e.T
    return float((weights * square).sum())


def naive_energy(X, weights, point, error):
    N, noise, rest = weights.sum(), point.noises[0], 0.0
    for which, w in enumerate((weights, weights.T)):
        there = w.sum(axis=1) > 0
        p = naive_precisions(point.priors[which], w)[there]
        u, S = (side[which][there] for side in (point.means, point.variances))
        rest += (p * (u**2 + S) - np.log(p * S) - 1.0).sum()
    return 0.5 * (N * np.log(2 * np.pi * noise) + error / noise + rest) / N


def problem(seed, weighted=False, **options):
    """A small matrix with gaps, a row and a column without entries, as dense arrays and to fit."""
    rng = np.random.default_rng(seed)
    m, n = rng.integers(5, 12, 2)
    weights = np.where(rng.random((m, n)) < 0.5, rng.integers(1, 4, (m, n)), 0)
    weights[0], weights[:, 0], weights[1, 1] = 0, 0, 1
    if not weighted:
        weights = np.minimum(weights, 1)
    X = 2.0 * rng.standard_normal((m, 1)) @ rng.standard_normal((1, n))
    X += 3.0 + rng.standard_normal((m, n))
    rows, cols = np.nonzero(weights)
    given = {"weights": weights[rows, cols].astype(float)} if weighted else {}
    ratings = Ratings(rows, cols, X[rows, cols], (m, n), **given)
    config = FitConfig(rank=2, threads=1, **({"backend": "numpy"} | options))
    energy = config.objective(ratings)
    assert isinstance(energy, FreeEnergy)
    x = energy.begin(rng.standard_normal(energy.fixed.dimension).astype(energy.dtype))
    return X - energy.mean, weights.astype(float), energy, energy.unpack(x)


# --- formulas -------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize("weighted", [False, True])
def test_half_sweeps_are_the_formulas(backend, weighted):
    X, weights, energy, point = problem(3, weighted, backend=backend)
    for which in (ROWS, COLS, ROWS, COLS):
        data = (X, weights) if which == ROWS else (X.T, weights.T)
        other = point.means[1 - which], point.variances[1 - which]
        expected = naive_half(*data, *other, point.priors[which], point.noises[0])
        point, sums = energy.half(point, which)
        found = point.means[which], point.variances[which], point.priors[which]
        for one, naive in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, naive, rtol=1e-10, atol=1e-12)
        if which == COLS:
            (P, Q), (S, T) = point.means, point.variances
            point = energy.with_noise(point, COLS, sums)
            error = naive_error(X, weights, P, S, Q, T)
            assert point.noises[0] == pytest.approx(error / weights.sum(), rel=1e-10)
            energy_now = naive_energy(X, weights, point, error)
            assert energy.value(energy.pack(point)) == pytest.approx(energy_now, rel=1e-10)


@pytest.mark.parametrize("steps", [None, 2])
def test_the_free_energy_falls_in_every_half_update(steps):
    for seed in range(100):
        X, weights, energy, point = problem(seed, weighted=seed % 2 == 1)

        def value(point, X=X, weights=weights):
            (P, Q), (S, T) = point.means, point.variances
            return naive_energy(X, weights, point, naive_error(X, weights, P, S, Q, T))

        before = value(point)
        for _ in range(3):
            for which in (ROWS, COLS):
                point, sums = energy.half(point, which, steps)
                after = value(point)
                assert after <= before + 1e-12, (seed, which)
                before = after
            point = energy.with_noise(point, COLS, sums)
            after = value(point)
            assert after <= before + 1e-12, seed
            before = after


def test_weights_count_as_repeated_entries():
    """Beside one sweep with weights: the sums of a matrix whose entries come as often."""
    _, weights, energy, point = problem(5, weighted=True)
    rows, cols = np.nonzero(weights)
    times = weights[rows, cols].astype(int)
    for which, (own, partners) in enumerate(((rows, cols), (cols, rows))):
        sums = energy.partner_sums(which, point.means[1 - which], point.variances[1 - which])
        again = np.zeros_like(sums.variances)
        numbers = point.variances[1 - which].copy()
        numbers[:, -1] = 0.0
        np.add.at(again, np.repeat(own, times), numbers[np.repeat(partners, times)])
        np.testing.assert_allclose(sums.variances, again, rtol=1e-12)


def test_backends_and_precisions_agree():
    """Partner sums of many entries, in chunks and registers that are not whole."""
    rng = np.random.default_rng(0)
    rows, cols = np.nonzero(rng.random((30, 400)) < 0.6)
    ratings = Ratings(rows, cols, rng.random(rows.size), (30, 400), weights=rng.random(rows.size))
    numbers = rng.random((400, 13))
    sums = {}
    for dtype in (np.float64, np.float32):
        for backend in ("numpy", "numba"):
            config = FitConfig(rank=2, threads=1, backend=backend)
            side = config.objective(ratings.astype(dtype)).side(ROWS)
            sums[backend, dtype] = side.partner_sums(numbers.astype(dtype))
    exact = sums["numpy", np.float64]
    np.testing.assert_allclose(sums["numba", np.float64], exact, rtol=1e-13)
    np.testing.assert_allclose(sums["numba", np.float32], exact, rtol=1e-6)


def test_the_variance_of_a_prediction_is_that_of_independent_draws():
    rng = np.random.default_rng(0)
    u, v, s, t = 1.0 + rng.random((4, 1, 4))
    found = PredictionVariance.at((u, s), (v, t), biases=True)
    count = 200_000
    a, b = (x + np.sqrt(y) * rng.standard_normal((count, 4)) for x, y in ((u, s), (v, t)))
    drawn = a[:, 3] + b[:, 3] + (a[:, :3] * b[:, :3]).sum(axis=1)
    assert found.total[0] == pytest.approx(drawn.var(), rel=0.03)


def test_leave_one_out_errors_are_those_of_fits_without_the_entry():
    """Of a mean of n numbers with a prior, which is a bias: e/(1 - h) is exact."""
    x, noise, prior = np.array([1.0, 2.0, 4.0, 9.0]), 2.0, 0.5
    S = noise / (noise * prior + x.size)
    mean = S / noise * x.sum()
    variance = PredictionVariance(np.full(4, S), np.zeros(4), np.zeros(4))
    found = variance.standardised_errors(x - mean, x, noise, (-100.0, 100.0))
    for k, one in enumerate(x):
        left = noise / (noise * prior + x.size - 1)
        error = abs(one - left / noise * (x.sum() - one))
        assert found[k] == pytest.approx(error / np.sqrt(noise + left), rel=1e-12)
    # An entry is left out with all of its weight.
    twice = PredictionVariance(np.full(4, 0.2), np.zeros(4), np.zeros(4))
    found = twice.standardised_errors(x - 1.0, x, noise, (-100.0, 100.0), np.array([1, 2, 3, 4.0]))
    share = 0.1 * np.arange(1, 5)
    expected = np.abs(x - 1.0) / (1.0 - share) / np.sqrt(noise + 0.2 / (1.0 - share))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    normal = np.abs(np.random.default_rng(0).standard_normal(100_000))
    assert calibration_of(3.0 * normal) == pytest.approx(3.0, rel=0.02)


# --- fits -----------------------------------------------------------------------------------------


def ratings_of(seed=0, m=60, n=40, share=0.3, dtype=np.float64):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((m, 2)) @ rng.standard_normal((2, n)) + 0.5 * rng.standard_normal(
        (m, n)
    )
    rows, cols = np.nonzero(rng.random((m, n)) < share)
    return Ratings(rows, cols, z[rows, cols].astype(dtype), (m, n))


def test_a_fit_ends_when_the_noise_stops_rising():
    config = FitConfig(rank=5, threads=1, backend="numpy")
    energy = config.objective(ratings_of())
    x, result = solve(energy, config)
    assert result.success, result.message
    assert "noise" in result.message
    values = result.trace["fun"].tolist()
    assert all(after <= before for before, after in itertools.pairwise(values))
    assert result.trace["grad_norm"][-1] < 0.5  # of parameters: not of the count of sweeps
    now, before, first = LearnedSweep(energy).objective.unpack(result.x).noises
    assert max(now - before, before - first) <= 0.002 * now
    assert energy.value(x) <= values[-1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rank", [1, 40])
def test_any_rank_and_precision(rank, dtype):
    """More features than are there take no part: the noise is near what it is."""
    model = fit_model(ratings_of(dtype=dtype), FitConfig(rank=rank, threads=1)).model
    assert model.row_factors.dtype == model.learned.variances[ROWS].dtype == dtype
    if rank > 1:
        assert 0.15 < model.learned.noise < 0.5


CASES = {
    "one rating": Ratings([0], [0], [3.0]),
    "one value": Ratings([0, 0, 1, 1], [0, 1, 0, 1], [3.0, 3.0, 3.0, 3.0]),
    "zeros": Ratings([0, 1, 2], [0, 1, 1], [0.0, 0.0, 0.0]),
    "one per row": Ratings(range(30), np.arange(30) % 4, np.arange(30.0) % 5),
    "exact": Ratings(
        *np.indices((6, 5)).reshape(2, -1), np.outer(range(1, 7), range(1, 6)).ravel()
    ),
    "large": Ratings([0, 0, 1, 1], [0, 1, 0, 1], [1e60, 2e60, 3e60, 1e60]),
}


@pytest.mark.parametrize("case", CASES)
def test_odd_data_end_in_numbers(case):
    ratings = CASES[case]
    fit = fit_model(ratings, FitConfig(rank=3, threads=1))
    assert np.isfinite(fit.objective)
    predicted, spread = fit.model.predict(ratings), fit.model.deviations(ratings)
    assert np.all(np.isfinite(predicted))
    assert np.all(np.isfinite(spread) & (spread >= 0.0))
    if case in ("one value", "zeros"):
        np.testing.assert_allclose(predicted, ratings.values, atol=1e-6)


@pytest.mark.parametrize("unit", [1e6, 1e-6])
def test_the_unit_of_ratings_makes_no_difference(unit):
    ratings, config = ratings_of(), FitConfig(rank=3, threads=1)
    weighted = ratings.with_weights(np.full(ratings.nnz, 2.0))
    for one in (ratings, weighted):
        model = fit_model(one, config).model
        other = fit_model(one.with_values(unit * one.values), config).model
        assert other.learned.noise == pytest.approx(unit**2 * model.learned.noise, rel=1e-6)
        np.testing.assert_allclose(other.predict(one), unit * model.predict(one), rtol=1e-4)


def test_ratings_far_from_zero_are_fitted_in_single_precision():
    """The least noise is a share of what is fitted, not of the ratings."""
    ratings = ratings_of()
    far = ratings.with_values(ratings.values + 1e5).astype(np.float32)
    noise, far_noise = (
        fit_model(one, FitConfig(rank=3, threads=1)).model.learned.noise for one in (ratings, far)
    )
    assert far_noise == pytest.approx(noise, rel=0.01)


def test_new_rows_are_those_of_the_formulas(tmp_path):
    """Folded in, or computed again with new entries; an id without entries has its prior."""
    ratings = ratings_of()
    model = fit_model(ratings, FitConfig(rank=3, threads=1)).model
    new = Ratings([0, 0, 1], [3, 7, 5], [1.0, 2.0, -1.0], (3, 40), row_ids=[90, 91, 92])
    folded = model.fold_in(new)
    weights, X = np.zeros((2, 40)), np.zeros((2, 40))
    weights[[0, 0, 1], [3, 7, 5]], X[[0, 0, 1], [3, 7, 5]] = 1.0, [1.0, 2.0, -1.0]
    (prior, _), (_, T) = model.learned.priors, model.learned.variances
    Q = np.column_stack([model.col_factors, model.col_bias])
    means, variances, _ = naive_half(X - model.mean, weights, Q, T, prior, model.learned.noise)
    at = folded.rows.positions([90, 91])
    found = np.column_stack([folded.row_factors, folded.row_bias])[at]
    np.testing.assert_allclose(found, means, rtol=1e-9)
    np.testing.assert_allclose(folded.learned.variances[ROWS][at], variances, rtol=1e-9)
    # Further entries of known columns: those of all their entries.
    grown = updated(model, new)
    of_cols = grown.transposed().learned.of_rows(grown.seen.by_col, grown.row_factors)[1]
    found = grown.learned.variances[COLS][[3, 5, 7]]
    np.testing.assert_allclose(found, of_cols[[3, 5, 7]], rtol=1e-12)
    # An id that is not known has the variances of the prior, and new entries make it known.
    (near, far), noise = model.deviations([[3, 5], [99, 5]]), model.learned.noise
    assert np.sqrt(noise) * model.learned.calibration < near < far
    grown = model.fold_in_columns([[3, 77], [4, 77]], [1.0, 2.0])
    assert grown.deviations([[3, 77]]) < model.deviations([[3, 77]])
    assert np.isnan(model.deviations([[99, 5]], unknown="nan")[0])
    save_model(folded, tmp_path / "m")
    again = load_model(tmp_path / "m")[0]
    np.testing.assert_array_equal(again.deviations([[90, 5]]), folded.deviations([[90, 5]]))
    empty = load_model(tmp_path / "m", WithIds([-1]))[0]  # which has no row
    np.testing.assert_array_equal(empty.deviations([[-1, 5]]), folded.deviations([[-1, 5]]))
    with pytest.raises(ValueError, match=r"no certificate, .* ridge='fixed'"):
        again.certify()
    fixed = fit_model(ratings, FitConfig(rank=3, ridge="fixed", threads=1)).model
    with pytest.raises(ValueError, match=r"no standard deviations: .*ridge=None"):
        fixed.deviations([[3, 5]])


@pytest.mark.parametrize(("weight", "within"), [(1.0, 0.04), (1e3, 0.1)])
def test_standard_deviations_cover_what_was_held_out(weight, within):
    for seed in range(3):
        known, held_out = ratings_of(seed, 300, 100, 0.2).split(0.2)
        known = known.with_weights(np.full(known.nnz, weight))
        model = fit_model(known, FitConfig(rank=5, threads=1)).model
        errors = np.abs(held_out.values - model.predict(held_out)) / model.deviations(held_out)
        assert np.mean(errors <= 1.2816) == pytest.approx(0.80, abs=within)
        assert np.mean(errors <= 1.96) == pytest.approx(0.95, abs=within)


def test_a_fit_of_learned_priors_begins_at_those_of_a_model():
    ratings = ratings_of()
    config = FitConfig(rank=3, threads=1, max_iterations=3)
    first = fit_model(ratings, config).model
    more = ratings.where(np.arange(ratings.nnz) % 50 != 0)
    second = fit_model(more, config, start=first)
    assert second.result.trace["fun"][0] == pytest.approx(
        fit_model(ratings, config).objective, abs=0.1
    )
    assert second.model.learned.noise == pytest.approx(first.learned.noise, rel=0.2)


def test_a_fit_that_is_interrupted_before_its_priors_learns_them_later(monkeypatch):
    ratings, config = ratings_of(), FitConfig(rank=3, threads=1)
    whole, plain = fit_model(ratings, config), Sweep.__call__

    def interrupted(self, x):
        signal.raise_signal(signal.SIGINT)
        return plain(self, x)

    with monkeypatch.context() as patch:
        patch.setattr(Sweep, "__call__", interrupted)
        early = fit_model(ratings, config)
    assert early.result.status is Status.INTERRUPTED
    assert early.model.learned is None
    assert np.isfinite(early.objective)
    again = fit_model(ratings, config, start=early.model).model
    assert again.learned.noise == pytest.approx(whole.model.learned.noise, rel=0.02)


def test_rows_that_are_held_have_no_bias():
    config = FitConfig(rank=2, threads=1, row_biases=False)
    model = fit_model(ratings_of(), config).model
    np.testing.assert_allclose(model.row_bias, 0.0, atol=1e-9)
    assert not model.learned.variances[ROWS][:, -1].any()
    assert fit_model(ratings_of(), FitConfig(rank=2, biases=False, threads=1)).model.learned


def test_a_fixed_ridge_is_asked_for_by_name_or_by_what_belongs_to_it():
    assert FitConfig().learns_priors
    fixed = (
        {"ridge": "fixed"}, {"ridge": 1.0}, {"weighting": 0.3}, {"bias_ridge": 1.0},
        {"rank": "auto"}, {"loss": "logistic"}, {"solver": "lbfgs"},
    )  # fmt: skip
    assert not any(FitConfig(**options).learns_priors for options in fixed)
