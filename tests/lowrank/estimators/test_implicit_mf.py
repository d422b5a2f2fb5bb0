"""Implicit feedback: the sum over all pairs, sweeps, recommendations, against plain matrices."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from momentous import Status, accelerate
from momentous.io.archive import ArchiveError
from momentous.lowrank import LowRankObjective, Penalty, Ratings, Sweep
from momentous.lowrank.losses import Implicit
from momentous.lowrank.solvers.fit import FitConfig
from momentous.lowrank.tasks import fit_file

pytest.importorskip("sklearn")
from devices import device  # noqa: F401  # every test runs on the GPU, too

from momentous.lowrank import ImplicitMF, MatrixCompletion, load

BACKENDS = pytest.mark.parametrize("backend", ["numpy", "numba"])
ALPHA, RIDGE, RANK = 2.5, 0.7, 3


def plays(users=40, items=30, seed=0):
    """Two groups of users who play two groups of items, a few times each; user 3 plays nothing."""
    rng = np.random.default_rng(seed)
    alike = (np.arange(users)[:, None] % 2) == (np.arange(items) % 2)
    seen = rng.random((users, items)) < np.where(alike, 0.5, 0.03)
    seen[3] = False
    rows, cols = np.nonzero(seen)
    return Ratings(rows, cols, rng.integers(1, 5, rows.size).astype(float), (users, items))


def dense(ratings):
    """Confidence and preference of all pairs."""
    values, p = np.zeros(ratings.shape), np.zeros(ratings.shape)
    values[ratings.rows, ratings.cols], p[ratings.rows, ratings.cols] = ratings.values, 1.0
    return 1.0 + ALPHA * values, p


def naive_value(problem, x):
    C, p = dense(problem.ratings)
    P, Q = problem.split(x)
    r = problem.rank
    z = problem.mean + P[:, :r] @ Q[:, :r].T
    if problem.penalty.biases:
        z = z + P[:, r:] + Q[:, r:].T
    weighted = sum(np.sum(w * side**2) for w, side in zip(problem.weights, (P, Q), strict=True))
    return (np.sum(C * (p - z) ** 2) + weighted) / (2 * problem.ratings.nnz)


def made(backend="numba", biases=False, mean=0.0, dtype=None, data=None, balance=0.0):
    penalty = Penalty(RIDGE, 0.4 if biases else 0.0, biases=biases)
    return LowRankObjective(
        plays() if data is None else data, RANK, Implicit(ALPHA), balance, penalty, dtype,
        mean=mean, backend=backend,
    )  # fmt: skip


@BACKENDS
@pytest.mark.parametrize(("biases", "mean"), [(False, 0.0), (True, 0.0), (False, 0.2), (True, 0.2)])
def test_value_and_gradient_are_those_of_all_pairs(backend, biases, mean):
    problem = made(backend, biases, mean)
    rng = np.random.default_rng(1)
    x, along = rng.standard_normal((2, problem.dimension))
    value, gradient = problem.value_and_gradient(x)
    assert value == pytest.approx(naive_value(problem, x), rel=1e-12)
    assert problem.value(x) == pytest.approx(value, rel=1e-14)
    h = 1e-6
    slope = (naive_value(problem, x + h * along) - naive_value(problem, x - h * along)) / (2 * h)
    assert gradient @ along == pytest.approx(slope, rel=1e-7)


@BACKENDS
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_half_sweep_is_weighted_least_squares_over_all_columns(backend, dtype):
    problem = made(backend, dtype=dtype)
    V = np.random.default_rng(2).standard_normal((30, RANK)).astype(dtype)
    accuracy = 1e-10 if dtype == np.float64 else 1e-4
    for current in (None, np.ones((40, RANK), dtype)):
        U, least = problem.half_sweep(0, current, V)
        C, p = dense(problem.ratings)
        for i in range(40):
            system = (V.T * C[i]) @ V + RIDGE * np.eye(RANK)
            expected = np.linalg.solve(system, V.T @ (C[i] * p[i]))
            np.testing.assert_allclose(U[i], expected, atol=accuracy)
        assert not np.any(np.abs(U[3]) > 1e-12)  # nothing was seen: all zeros fit best
        value = least / problem.ratings.nnz + problem.penalty_of(V, 1)
        assert value == pytest.approx(naive_value(problem, problem.join(U, V)), rel=accuracy)


@BACKENDS
@pytest.mark.parametrize(("biases", "mean"), [(False, 0.0), (True, 0.2)])
def test_sweeps_never_raise_it_and_end_where_the_gradient_is_zero(backend, biases, mean):
    problem = made(backend, biases, mean)
    sweep = Sweep(problem)
    state, values = sweep.begin(problem.random_start(np.random.default_rng(0))), []
    for _ in range(10):
        truth = naive_value(problem, sweep.point(state))
        state, value = sweep(state)
        assert value == pytest.approx(truth, rel=1e-10)
        values.append(value)
    assert np.all(np.diff(values) <= 1e-14)
    result = accelerate(sweep, state, value=True, tol=1e-9, max_iterations=3000)
    assert result.status is Status.CONVERGED
    assert np.linalg.norm(problem.gradient(sweep.point(result.x))) < 1e-7


def test_the_estimator_minimises_it_by_sweeps_and_by_gradients():
    data = plays()
    fitted = ImplicitMF(RANK, ALPHA, RIDGE, tol=1e-10).fit(data)
    problem = made()
    x = problem.join(fitted.row_factors_, fitted.col_factors_)
    assert fitted.objective_ == pytest.approx(naive_value(problem, x), rel=1e-10)
    assert np.linalg.norm(problem.gradient(x)) < 1e-6
    for solver in ("sweep", "lbfgs", "ada-ragd", "universal-hb"):
        other = ImplicitMF(RANK, ALPHA, RIDGE, solver=solver, tol=1e-8, max_iterations=3000)
        assert other.fit(data).objective_ == pytest.approx(fitted.objective_, rel=1e-3)
    single = ImplicitMF(RANK, ALPHA, RIDGE, dtype=np.float32).fit(data)
    assert single.col_factors_.dtype == np.float32
    assert single.objective_ == pytest.approx(fitted.objective_, rel=1e-3)


def test_recommendations_and_similar_items_are_of_the_same_group():
    fitted = ImplicitMF(2, 1.0, 3.0).fit(plays())
    for user in (0, 1, 8, 9):
        best = fitted.recommend(user, n=4)
        assert np.all(best.items % 2 == user % 2)
        assert np.all(np.diff(best.scores) <= 0)
    everything = fitted.similar_items(4, n=100)
    assert len(everything.ids) == 29
    assert np.all(everything.ids[:10] % 2 == 0)
    assert np.all(np.abs(everything.scores) <= 1 + 1e-12)
    with pytest.raises(ValueError, match="column id 99"):
        fitted.similar_items(99)


def test_pairs_alone_count_once_each_time():
    data = plays()
    pairs = np.column_stack([data.rows, data.cols])
    one = ImplicitMF(2, ALPHA, RIDGE).fit(pairs)
    other = ImplicitMF(2, ALPHA, RIDGE).fit(pairs, np.ones(len(pairs)))
    matrix = scipy.sparse.coo_array((np.ones(data.nnz), (data.rows, data.cols)))
    assert one.objective_ == other.objective_
    assert np.isfinite(ImplicitMF(2).fit(matrix).objective_)
    counted = ImplicitMF(2, ALPHA, RIDGE).fit(np.vstack([pairs, pairs[:3]])).model_.seen
    assert counted.values.tolist() == [2.0] * 3 + [1.0] * (data.nnz - 3)


def test_a_user_who_is_folded_in_is_solved_for_like_the_others(tmp_path):
    data = plays()
    fitted = ImplicitMF(RANK, ALPHA, RIDGE).fit(data)
    V = fitted.col_factors_
    folded = fitted.fold_in([["new", 2], ["new", 4]], [3.0, 1.0])
    c = np.ones(30)
    c[[2, 4]] += ALPHA * np.array([3.0, 1.0])
    p = np.isin(np.arange(30), [2, 4]).astype(float)
    expected = np.linalg.solve((V.T * c) @ V + RIDGE * np.eye(RANK), V.T @ (c * p))
    np.testing.assert_allclose(folded.row_factors_[-1], expected, atol=1e-10)
    assert np.all(folded.recommend("new", n=3).items % 2 == 0)
    folded.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert isinstance(again, ImplicitMF)
    assert again.get_params() == fitted.get_params()
    assert again.model_.loss == Implicit(ALPHA)
    assert again.recommend("new").items.tolist() == folded.recommend("new").items.tolist()
    with pytest.raises(ArchiveError, match="implicit loss"):
        MatrixCompletion.load(tmp_path / "m")


def test_what_the_command_has_fitted_is_loaded(tmp_path):
    pytest.importorskip("duckdb")
    data = plays()
    lines = [f"{u},{i},{v:g}" for u, i, v in zip(data.rows, data.cols, data.values, strict=True)]
    (tmp_path / "r.csv").write_text("\n".join(["user,item,rating", *lines, ""]))
    options = {"threads": 1, "rank": 2, "max_iterations": 4}
    fit_file(tmp_path / "r.csv", tmp_path / "m", loss=Implicit(ALPHA), **options)
    again = ImplicitMF.load(tmp_path / "m")
    assert (again.rank, again.alpha, again.max_iterations) == (2, ALPHA, 4)
    assert not again.row_bias_.any()
    assert len(again.recommend(0, n=3).items) == 3
    fit_file(tmp_path / "r.csv", tmp_path / "m", resume=True)


def test_a_held_out_share_and_a_warm_start_work():
    data = plays()
    fitted = ImplicitMF(2, ALPHA, RIDGE, validation_share=0.2, warm_start=True).fit(data)
    assert len(fitted.validation_errors_) == fitted.n_iter_
    assert min(fitted.validation_errors_) < 0.9
    first = fitted.objective_
    fitted.set_params(validation_share=None).fit(data)
    assert np.isfinite(first)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="needs values of 0 or more, but entry 0 is -1"):
        ImplicitMF(1).fit([["a", "b"]], [-1.0])
    with pytest.raises(ValueError, match="alpha=-1"):
        ImplicitMF(1, alpha=-1).fit([["a", "b"]])


# --- iALS as published ----------------------------------------------------------------------------


def published(seen, lam, a0, nu, rank, sweeps):
    """Alternating least squares for the paper's objective, written out: W, H and the objective."""
    Y = np.zeros(seen.shape)
    Y[seen.rows, seen.cols] = 1.0
    m, n = Y.shape
    rng = np.random.default_rng(5)
    W, H = (0.1 / np.sqrt(rank) * rng.standard_normal((k, rank)) for k in (m, n))
    weights = [lam * (Y.sum(axis=1 - k) + a0 * Y.shape[1 - k]) ** nu for k in (0, 1)]

    def half(Y, H, weights):
        return np.array([
            np.linalg.solve((H.T * (y + a0)) @ H + w * np.eye(rank), H.T @ y)
            for y, w in zip(Y, weights, strict=True)
        ])  # fmt: skip

    for _ in range(sweeps):
        W = half(Y, H, weights[0])
        H = half(Y.T, W, weights[1])

    def objective(W, H):
        z = W @ H.T
        penalty = sum(w @ np.sum(side**2, axis=1) for w, side in zip(weights, (W, H), strict=True))
        return np.sum(Y * (z - 1) ** 2) + a0 * np.sum(z**2) + penalty

    return W, H, objective


@pytest.mark.parametrize("nu", [1.0, 0.5])
def test_ials_is_the_published_one(nu):
    seen, lam, a0 = plays().with_values(np.ones(plays().nnz)), 0.05, 0.3
    W, H, objective = published(seen, lam, a0, nu, RANK, 400)
    fitted = ImplicitMF(
        RANK, ridge=lam, weighting=nu, unobserved_weight=a0, tol=0.0, max_iterations=200
    ).fit(seen)
    scale = np.sqrt(1.0 + a0)
    U, V = fitted.row_factors_ / scale, fitted.col_factors_ / scale
    assert objective(U, V) == pytest.approx(objective(W, H), rel=1e-8)
    np.testing.assert_allclose(U @ V.T, W @ H.T, atol=1e-3)


def test_the_ridge_of_ials_scales_with_the_weight_of_what_was_not_seen(tmp_path):
    seen, a0 = plays().with_values(np.ones(plays().nnz)), 0.1
    fitted = ImplicitMF(RANK, unobserved_weight=a0).fit(seen)
    penalty = fitted.model_.penalty
    share = seen.nnz / (40 * 30)
    assert penalty.ridge == pytest.approx(0.05 / (1 + a0 / share) * (1 + a0) / a0)
    flat = ImplicitMF(RANK, unobserved_weight=a0, weighting=0.0).fit(seen).model_.penalty
    mean_entries = seen.nnz / np.sqrt(40 * 30)
    assert flat.ridge == pytest.approx(0.05 * mean_entries * (1 + a0) / a0)
    assert (penalty.weighting, *penalty.offsets) == (1.0, a0 * 30, a0 * 40)
    assert fitted.model_.transposed().penalty.offsets == (a0 * 40, a0 * 30)
    fitted.save(tmp_path / "model.npz")
    again = ImplicitMF.load(tmp_path / "model.npz")
    assert (again.model_.penalty, again.unobserved_weight) == (penalty, a0)
    own = seen.where(seen.rows == 0)  # a row that is folded in has the same penalty
    np.testing.assert_allclose(
        fitted.fold_in(Ratings(own.rows, own.cols, own.values, seen.shape)).row_factors_[0],
        fitted.row_factors_[0], rtol=0.05, atol=0.01,
    )  # fmt: skip


def test_ials_says_what_does_not_fit_together():
    with pytest.raises(ValueError, match="leave one of them out"):
        ImplicitMF(unobserved_weight=0.1, alpha=3.0).fit(plays())
    with pytest.raises(ValueError, match=r"unobserved_weight=0\.0 must be"):
        ImplicitMF(unobserved_weight=0.0).fit(plays())
    with pytest.raises(ValueError, match="is for the implicit loss, not for loss='squared'"):
        FitConfig(unobserved_weight=0.1)


def test_users_who_were_not_in_the_fit_are_folded_in_and_served():
    seen = plays(users=80, items=60)
    new = seen.rows >= 60
    first = new & (seen.cols % 3 > 0)
    pairs = np.column_stack([seen.rows, seen.cols])
    fitted = ImplicitMF(RANK, ridge=1.0).fit(pairs[~new], seen.values[~new])
    given = pairs[first], seen.values[first]
    found = fitted.fold_in_metrics(pairs[new & ~first], given=given)
    folded = fitted.fold_in(*given)
    for k in (20, 50):
        assert (
            found[f"recall@{k}"] == folded.ranking_metrics(pairs[new & ~first], k=k).capped_recall
        )
    assert found["recall@20"] > 0.5  # the half of the items that is theirs has 30
    assert found["ndcg@100"] == folded.ranking_metrics(pairs[new & ~first], k=100).ndcg


def test_the_hit_rate_of_the_ncf_protocol_is_that_of_taste_and_not_of_popularity():
    """One item of each user is held out and ranked among 99 that the user has none of: HR@10.

    Users like the items of one of six groups, and popular ones more.
    """
    rng = np.random.default_rng(0)
    users, items, groups = 300, 240, 6
    liked = (np.arange(items) % groups == rng.integers(groups, size=(users, 1))) * 1.0
    chance = (liked + 0.05) * rng.pareto(2.0, items)
    seen = np.array([rng.choice(items, 21, replace=False, p=one / one.sum()) for one in chance])
    known, wanted = seen[:, 1:], seen[:, 0]
    others = np.array([rng.choice(np.setdiff1d(np.arange(items), own), 99, False) for own in seen])
    ranked = np.column_stack([wanted, others])

    def hit_rate(scores):
        return np.mean(np.sum(scores[:, 1:] >= scores[:, :1], axis=1) < 10)

    pairs = np.column_stack([np.repeat(np.arange(users), 20), known.ravel()])
    fitted = ImplicitMF(12, unobserved_weight=0.1, ridge=0.03, backend="numpy").fit(pairs)
    asked = np.column_stack([np.repeat(np.arange(users), 100), ranked.ravel()])
    found = hit_rate(fitted.predict(asked).reshape(ranked.shape))
    popularity = hit_rate(np.bincount(known.ravel(), minlength=items)[ranked])
    assert found > popularity + 0.1
    assert found > 0.7
