"""The estimators: fits, predictions, recommendations, scikit-learn's manners, files, bad days."""

from __future__ import annotations

import doctest
import itertools
import json
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse

from helpers import NEEDS_CONSTANTS
from momentous.io.archive import ArchiveError
from momentous.lowrank import LowRankObjective, Penalty, Ratings, Sweep
from momentous.lowrank.data.vocabulary import Vocabulary
from momentous.lowrank.model import fit_model
from momentous.lowrank.solvers.fit import FitConfig
from momentous.methods.registry import REGISTRY

sklearn = pytest.importorskip("sklearn")
from devices import device  # noqa: E402, F401  # every test runs on the GPU, too
from sklearn.base import clone  # noqa: E402
from sklearn.datasets import load_wine  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator  # noqa: E402

from momentous.lowrank.estimators import (  # noqa: E402
    LowRankImputer,
    MatrixCompletion,
    OneBitMatrixCompletion,
    implicit_mf,
    imputer,
    load,
    matrix_completion,
)


def small(users=30, items=20, share=0.5, seed=0, noise=0.05):
    """Pairs of positions and ratings of rank 2 with biases."""
    rng = np.random.default_rng(seed)
    U, V = rng.standard_normal((users, 2)), rng.standard_normal((items, 2))
    full = 3 + rng.standard_normal((users, 1)) + rng.standard_normal((1, items)) + U @ V.T
    full += noise * rng.standard_normal(full.shape)
    chosen = rng.random(full.shape) < share
    chosen[np.arange(users), np.arange(users) % items] = True
    pairs = np.argwhere(chosen)
    return pairs, full[chosen]


PAIRS, Y = small()
LIKED = np.where(Y > 3, "yes", "no")


def regressor(**options):
    return MatrixCompletion(**{"rank": 2, "threads": 1, "ridge": 0.1, "bias_ridge": 0.1, **options})


def classifier(**options):
    return OneBitMatrixCompletion(**{"rank": 2, "threads": 1, **options})


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(PAIRS, Y)


@pytest.fixture(scope="module")
def labelled():
    return classifier().fit(PAIRS, LIKED)


# --- the objective and the sweep ------------------------------------------------------------------


def problem(loss, biases=True, mean=0.3, balance=0.0, weighting=0.5):
    ratings = Ratings(PAIRS[:, 0], PAIRS[:, 1], Y)
    ratings = ratings.signs() if loss == "logistic" else ratings
    penalty = Penalty(0.7, 0.4, weighting, biases)
    return LowRankObjective(ratings, 3, loss, balance, penalty, threads=1, mean=mean)


def naive_value(p, x):
    P, Q = p.split(x)
    total, r = 0.0, p.rank
    for i, j, value in zip(p.ratings.rows, p.ratings.cols, p.ratings.values, strict=True):
        z = p.mean + P[i, :r] @ Q[j, :r] + (P[i, r:].sum() + Q[j, r:].sum())
        loss = 0.5 * (z - value) ** 2 if p.loss.name == "squared" else np.log1p(np.exp(-value * z))
        total += loss
    for side, index in ((P, p.ratings.rows), (Q, p.ratings.cols)):
        counts = np.bincount(index, minlength=len(side))
        for row, count in zip(side, counts, strict=True):
            total += 0.5 * p.penalty.ridge * count**p.penalty.weighting * np.sum(row[:r] ** 2)
            total += 0.5 * p.penalty.bias_ridge * np.sum(row[r:] ** 2)
    imbalance = P[:, :r].T @ P[:, :r] - Q[:, :r].T @ Q[:, :r]
    return (total + 0.5 * p.balance * np.sum(imbalance**2)) / p.ratings.nnz


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("biases", [True, False])
def test_the_objective_is_the_written_formula_and_its_gradient_the_difference_quotient(
    loss, biases
):
    p = problem(loss, biases, balance=0.6)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((30 + 20) * p.width)
    value, gradient = p.value_and_gradient(x)
    assert value == pytest.approx(naive_value(p, x), rel=1e-12)
    along, h = rng.standard_normal(x.size), 1e-6
    slope = (naive_value(p, x + h * along) - naive_value(p, x - h * along)) / (2 * h)
    assert gradient @ along == pytest.approx(slope, rel=1e-6)
    p.balance = 0.0
    assert p.value(x) == pytest.approx(naive_value(p, x), rel=1e-12)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("biases", [True, False])
def test_a_sweep_never_raises_the_objective_and_tells_it_truly(loss, biases):
    p = problem(loss, biases)
    sweep = Sweep(p)
    state = sweep.begin(p.random_start(np.random.default_rng(0)))
    values = []
    for _ in range(15):
        truth = p.value(sweep.point(state))
        state, told = sweep(state)
        assert told == pytest.approx(truth, rel=1e-10)
        values.append(truth)
    assert all(after <= before for before, after in itertools.pairwise(values))


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_at_the_end_of_the_sweeps_the_gradient_vanishes(loss):
    p = problem(loss)
    config = FitConfig(rank=3, loss=loss, ridge=0.7, bias_ridge=0.4, tol=1e-13, threads=1)
    fit = fit_model(p.ratings, config)
    own = LowRankObjective(
        p.ratings, 3, loss, 0.0, fit.model.penalty, threads=1, mean=fit.model.mean
    )
    x = own.join(
        np.column_stack([fit.model.row_factors, fit.model.row_bias]),
        np.column_stack([fit.model.col_factors, fit.model.col_bias]),
    )
    at_start = own.value_and_gradient(own.random_start(np.random.default_rng(0)))[1]
    gradient = own.value_and_gradient(x)[1]
    assert np.linalg.norm(gradient) < 1e-5 * np.linalg.norm(at_start)
    assert fit.objective == pytest.approx(own.value(x), rel=1e-12)


@pytest.mark.parametrize("share", [0.9, 0.95])
def test_a_fit_from_a_small_start_does_not_end_while_factors_grow(share):
    """After the strong factor is there the objective hardly falls, until the others have grown."""
    random = np.random.default_rng(0)
    left, right = (np.linalg.qr(random.standard_normal((n, 5)))[0] for n in (200, 150))
    X = (left * [100, 24.2, 24.1, 24, 23.9]) @ right.T + 0.05 * random.standard_normal((200, 150))
    known = random.random(X.shape) < 0.8
    ridge = share * np.linalg.svd(X * known, compute_uv=False)[4]

    def fit(**more):
        options = {"rank": 8, "ridge": float(ridge), "weighting": 0.0, "biases": False}
        options |= {"centre": False, "start_scale": 1e-3, "backend": "numpy"}
        return MatrixCompletion(**options, **more).fit(np.argwhere(known), X[known])

    assert fit().objective_ <= (1.0 + 1e-4) * fit(tol=0.0, max_iterations=100).objective_


def test_both_backends_give_the_same_fit():
    compiled, plain = (
        regressor(backend=name).fit(PAIRS, Y).predict(PAIRS) for name in ("numba", "numpy")
    )
    np.testing.assert_allclose(plain, compiled, rtol=1e-9)


# --- fit and predict ------------------------------------------------------------------------------


def test_ratings_of_low_rank_are_recovered_where_they_were_not_seen():
    pairs, y = small(60, 40, share=0.6, noise=0.0)
    held = np.random.default_rng(0).random(len(y)) < 0.1
    model = regressor(ridge=1e-3, bias_ridge=1e-3, tol=1e-8).fit(pairs[~held], y[~held])
    assert model.score(pairs[held], y[held]) > 0.97
    assert model.row_factors_.shape == (60, 2)
    assert model.row_bias_.shape == (60,)
    assert model.col_factors_.shape == (40, 2)
    assert model.col_bias_.shape == (40,)
    assert model.mean_ == pytest.approx(np.mean(y[~held]))
    assert model.n_iter_ == model.result_.nit


@pytest.mark.parametrize("solver", ["sweep", *sorted(REGISTRY.keys() - NEEDS_CONSTANTS - {"gd"})])
def test_every_solver_comes_to_the_objective_of_the_sweeps(solver, fitted):
    other = regressor(solver=solver, tol=1e-6, max_iterations=3000).fit(PAIRS, Y)
    assert other.objective_ == pytest.approx(fitted.objective_, rel=2e-2)
    assert other.score(PAIRS, Y) == pytest.approx(fitted.score(PAIRS, Y), abs=0.01)


@pytest.mark.parametrize("solver", ["sweep", "lbfgs", "universal-hb"])
def test_labels_have_the_same_objective_by_every_solver(solver, labelled):
    other = classifier(solver=solver, tol=1e-6).fit(PAIRS, LIKED)
    assert other.objective_ == pytest.approx(labelled.objective_, rel=1e-3)


def test_a_solver_may_be_an_instance_or_a_class():
    from momentous import LBFGS

    one = regressor(solver=LBFGS()).fit(PAIRS, Y)
    assert one.objective_ == regressor(solver=LBFGS).fit(PAIRS, Y).objective_


@pytest.mark.parametrize("options", [{"biases": False}, {"centre": False}, {"ridge": 0.0},
    {"biases": False, "centre": False}, {"dtype": np.float32}, {"weighting": 0.0}])  # fmt: skip
@pytest.mark.parametrize("kind", [regressor, classifier])
def test_every_option_gives_a_fit_that_beats_the_mean(kind, options):
    model = kind(**options).fit(PAIRS, Y if kind is regressor else LIKED)
    if kind is regressor:
        assert model.score(PAIRS, Y) > 0.5
    else:
        assert model.score(PAIRS, LIKED) > np.mean(LIKED == "no") + 0.1
    if options.get("biases") is False:
        assert not model.row_bias_.any()
    if "dtype" in options:
        assert model.row_factors_.dtype == np.float32
    if "ridge" in options:
        U, V = model.row_factors_, model.col_factors_
        np.testing.assert_allclose(U.T @ U, V.T @ V, atol=1e-8 * np.abs(U.T @ U).max())


def test_pairs_ratings_sparse_matrices_and_tables_give_the_same_fit(fitted):
    ratings = Ratings(PAIRS[:, 0], PAIRS[:, 1], Y)
    matrix = scipy.sparse.coo_array((Y, (PAIRS[:, 0], PAIRS[:, 1])))
    for data in (ratings, matrix, matrix.tocsr()):
        np.testing.assert_array_equal(regressor().fit(data).row_factors_, fitted.row_factors_)
    assert fitted.score(ratings) == pytest.approx(fitted.score(PAIRS, Y), rel=1e-12)
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"user": PAIRS[:, 0], "item": [f"i{j:02d}" for j in PAIRS[:, 1]]})
    named = regressor().fit(table, Y)
    np.testing.assert_array_equal(named.row_factors_, fitted.row_factors_)
    assert named.col_ids_[3] == "i03"


def test_ids_may_be_strings_or_numbers_with_gaps(fitted):
    strange = np.column_stack([1000 - 7 * PAIRS[:, 0], PAIRS[:, 1] * 3])
    model = regressor(tol=1e-9).fit(strange, Y)
    exact = regressor(tol=1e-9).fit(PAIRS, Y)
    np.testing.assert_allclose(model.predict(strange), exact.predict(PAIRS), atol=1e-3)
    texts = np.array([[f"u{i:03d}", f"{j:03d}"] for i, j in PAIRS])
    named = regressor().fit(texts, Y)
    np.testing.assert_array_equal(named.predict(texts), fitted.predict(PAIRS))
    mixed = regressor().fit([[int(i), f"{j:03d}"] for i, j in PAIRS], Y)
    assert mixed.row_ids_.dtype.kind == "i"
    assert mixed.predict(np.array([[3, "002"]])) == mixed.predict([[3, "002"]])


def test_predictions_stay_on_the_scale(fitted):
    everything = np.array([[i, j] for i in range(30) for j in range(20)])
    predicted = fitted.predict(everything)
    assert predicted.min() >= Y.min()
    assert predicted.max() <= Y.max()
    assert np.ptp(fitted.model_.scores(everything)) > np.ptp(predicted)


def test_unknown_ids_do_as_configured(fitted):
    asked = np.array([[0, 0], [99, 0], [0, 99], [99, 99]])
    known, item_only, user_only, nothing = fitted.predict(asked)
    assert abs(known - fitted.model_.scores(asked)[0]) < 1e-12
    mean, low, high = fitted.mean_, Y.min(), Y.max()
    assert item_only == pytest.approx(np.clip(mean + fitted.col_bias_[0], low, high))
    assert user_only == pytest.approx(np.clip(mean + fitted.row_bias_[0], low, high))
    assert nothing == pytest.approx(mean)
    strict = regressor(unknown="error").fit(PAIRS, Y)
    with pytest.raises(ValueError, match="row id 99 at position 1 is not in the model"):
        strict.predict(asked)
    silent = regressor(unknown="nan").fit(PAIRS, Y)
    assert list(np.isnan(silent.predict(asked))) == [False, True, True, True]
    with pytest.raises(ValueError, match="unknown='never'"):
        regressor(unknown="never").fit(PAIRS, Y).predict(asked)


def test_a_fit_repeats_and_the_threads_do_not_matter():
    one, two = regressor().fit(PAIRS, Y), regressor(threads=2).fit(PAIRS, Y)
    np.testing.assert_array_equal(one.row_factors_, two.row_factors_)
    assert not np.array_equal(regressor(random_state=3).fit(PAIRS, Y).row_factors_,
                              one.row_factors_)  # fmt: skip


def test_early_stopping_keeps_the_best_model_on_the_validation_share():
    pairs, y = small(60, 40, share=0.2, noise=1.0)
    options = {"ridge": 1e-3, "bias_ridge": 1e-3, "rank": 3}
    patient = regressor(validation_share=0.2, patience=3, **options).fit(pairs, y)
    errors = patient.validation_errors_
    # It ends three iterations after the last that lowered the error by more than 1e-4 of it.
    lowest = np.minimum.accumulate([np.inf, *errors])
    last = np.flatnonzero(errors < (1 - 1e-4) * lowest[:-1])[-1]
    assert len(errors) == patient.n_iter_ == last + 4
    assert (
        patient.message_
        == f"the held-out error {min(errors):.6g} was not improved on in 3 iterations"
    )
    kept, held_out = Ratings(pairs[:, 0], pairs[:, 1], y, (60, 40)).split(0.2, 0)
    predicted = patient.predict(held_out)
    rmse = np.sqrt(np.mean((predicted - held_out.values) ** 2))
    assert rmse == pytest.approx(min(errors), rel=1e-9)
    assert not np.array_equal(predicted, patient.model_.scores(held_out))  # some are clipped
    result = patient.result_  # of the run alone: nothing in it is about the entries held out
    assert result.status.name == "STOPPED"
    assert not result.success
    assert "callback asked to stop" in result.message
    assert patient.model_.seen.nnz == kept.nnz
    rmse = np.sqrt(np.mean((patient.predict(kept) - kept.values) ** 2))
    assert patient.model_.training_error() == pytest.approx(rmse)


def test_what_was_held_out_is_not_recommended_either(tmp_path):
    model = regressor(validation_share=0.3).fit(PAIRS, Y)
    model.save(tmp_path / "m")
    again = MatrixCompletion.load(tmp_path / "m")
    folded = again.fold_in([["new", 1]], [Y[0]])
    for one in (model, again, folded):
        for user in range(30):
            offered = one.recommend(user, n=100).items.tolist()
            assert sorted(offered) == sorted(set(range(20)) - set(PAIRS[PAIRS[:, 0] == user, 1]))
    anew = model.fold_in([[4, 1]], [3.0])  # from this entry alone
    assert sorted(anew.recommend(4, n=100).items) == [j for j in range(20) if j != 1]


def test_verbose_prints_a_line_per_iteration_and_the_ending(capsys):
    model = regressor(verbose=True, validation_share=0.1).fit(PAIRS, Y)
    *lines, ending = capsys.readouterr().out.splitlines()
    assert len(lines) == model.n_iter_
    assert ending == model.message_
    assert all("objective" in line and "held out" in line for line in lines)


def test_a_fit_that_has_converged_names_its_tolerance():
    fitted = MatrixCompletion(2, ridge="fixed", tol=1e-3, threads=1).fit(PAIRS, Y)
    assert fitted.message_.endswith("within the tolerance, 0.001 of it")


# --- recommend, fold in, warm start ---------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fitted", "labelled"])
def test_recommendations_are_the_best_of_what_was_not_seen(kind, request):
    model = request.getfixturevalue(kind)
    seen = set(PAIRS[PAIRS[:, 0] == 4, 1])
    items, scores = model.recommend(4, n=5)
    assert len(items) == 5
    assert not seen & set(items.tolist())
    assert np.all(np.diff(scores) <= 0)
    everything = np.array([[4, j] for j in range(20)])
    order = np.argsort(-model.model_.scores(everything), kind="stable")
    assert [j for j in order if j not in seen][:5] == items.tolist()
    all_items, _ = model.recommend(4, n=100, exclude_seen=False)
    assert all_items.tolist() == order.tolist()


def test_an_unknown_user_gets_what_all_like_or_an_error(fitted):
    items, _ = fitted.recommend("nobody", n=20)
    assert items.tolist() == np.argsort(-fitted.col_bias_, kind="stable").tolist()
    with pytest.raises(ValueError, match="'nobody'"):
        regressor(unknown="error").fit(PAIRS, Y).recommend("nobody")
    with pytest.raises(ValueError, match="n=0"):
        fitted.recommend(0, n=0)
    with pytest.raises(ValueError, match="unknown='zzz' must be"):
        fitted.model_.recommend(0, unknown="zzz")


@pytest.mark.parametrize("kind", [regressor, classifier])
def test_folding_in_the_ratings_of_a_user_gives_the_fitted_factors(kind):
    y = Y if kind is regressor else LIKED
    # The squared loss keeps the rows the best for the columns wherever it stops.
    limit = 4 if kind is regressor else 3000
    model = kind(tol=1e-12, max_iterations=limit).fit(PAIRS, y)
    mine = PAIRS[:, 0] == 4
    new = PAIRS[mine] + [[1000, 0]]
    folded = model.fold_in(new, y[mine])
    where = list(folded.row_ids_).index(1004)
    tolerance = 1e-8 if kind is regressor else 1e-3
    np.testing.assert_allclose(folded.row_factors_[where], model.row_factors_[4], atol=tolerance)
    assert folded.row_bias_[where] == pytest.approx(model.row_bias_[4], abs=tolerance)
    np.testing.assert_array_equal(folded.col_factors_, model.col_factors_)
    assert len(model.row_ids_) == 30
    assert set(folded.recommend(1004, n=50).items) == set(folded.recommend(4, n=50).items)


def test_folding_in_a_matrix_leaves_users_without_entries_as_they_are(fitted):
    matrix = scipy.sparse.coo_array(([5.0, 1.0], ([31, 31], [0, 3])), shape=(33, 20))
    folded = fitted.fold_in(Ratings.from_sparse(matrix))
    np.testing.assert_array_equal(folded.row_factors_[:30], fitted.row_factors_)
    np.testing.assert_array_equal(folded.row_bias_[:30], fitted.row_bias_)
    assert folded.row_ids_.tolist() == [*range(30), 31]
    assert folded.model_.seen.nnz == fitted.model_.seen.nnz + 2
    np.testing.assert_array_equal(
        folded.row_factors_[-1], fitted.fold_in([[31, 0], [31, 3]], [5.0, 1.0]).row_factors_[-1]
    )


def test_folding_in_leaves_out_items_that_are_not_known(fitted):
    pairs = [["new", 0], ["new", 777]]
    folded = fitted.fold_in(pairs, [5.0, 1.0])
    only = fitted.fold_in(pairs[:1], [5.0])
    np.testing.assert_array_equal(folded.row_factors_[-1], only.row_factors_[-1])
    nothing = fitted.fold_in(pairs[1:], [5.0])
    assert nothing.predict([["new", 3]]) == pytest.approx(fitted.predict([["other", 3]]))


def test_a_warm_start_goes_on_and_takes_new_users_and_items():
    model = regressor(warm_start=True, tol=1e-9).fit(PAIRS, Y)
    first, reached = model.n_iter_, model.objective_
    model.fit(PAIRS, Y)
    assert model.n_iter_ < first
    assert model.result_.trace["fun"][0] == pytest.approx(reached, rel=1e-9)
    more = np.vstack([PAIRS, [[100, 0], [100, 3], [0, 50]]])
    cold = regressor(tol=1e-9).fit(more, np.append(Y, [4.0, 2.0, 3.0]))
    model.fit(more, np.append(Y, [4.0, 2.0, 3.0]))
    assert model.row_factors_.shape == (31, 2)
    assert model.col_ids_[-1] == 50
    assert model.objective_ == pytest.approx(cold.objective_, rel=1e-3)


def interrupt_after(monkeypatch, calls):
    sweep, count = Sweep.__call__, itertools.count(1)

    def interrupted(self, state):
        if next(count) > calls:
            raise KeyboardInterrupt
        return sweep(self, state)

    monkeypatch.setattr(Sweep, "__call__", interrupted)


def test_ctrl_c_stops_the_program_and_leaves_what_was_reached(monkeypatch):
    model = regressor(tol=0.0)
    interrupt_after(monkeypatch, 6)
    with pytest.raises(KeyboardInterrupt):
        model.fit(PAIRS, Y)
    assert model.result_.status.name == "INTERRUPTED"
    assert model.score(PAIRS, Y) > 0.5


@pytest.mark.parametrize("pairs", [PAIRS, PAIRS[:, ::-1]], ids=["columns", "rows"])
def test_looking_at_the_held_out_error_costs_no_sweep_of_its_own(pairs, monkeypatch):
    half, calls = LowRankObjective.half_sweep, []
    monkeypatch.setattr(
        LowRankObjective,
        "half_sweep",
        lambda self, *given, **how: calls.append(given[0]) or half(self, *given, **how),
    )
    model = regressor(validation_share=0.2, max_iterations=8, patience=100, tol=0.0).fit(pairs, Y)
    assert len(calls) == 2 * model.result_.njev + 1


# --- the classifier -------------------------------------------------------------------------------


def test_labels_of_any_kind_are_predicted_with_probabilities(labelled):
    assert list(labelled.classes_) == ["no", "yes"]
    assert set(labelled.predict(PAIRS)) <= {"no", "yes"}
    both = labelled.predict_proba(PAIRS)
    np.testing.assert_allclose(both.sum(axis=1), 1.0)
    np.testing.assert_array_equal(both[:, 1] > 0.5, labelled.decision_function(PAIRS) > 0)
    np.testing.assert_array_equal(both[:, 1] > 0.5, labelled.predict(PAIRS) == "yes")
    assert labelled.score(PAIRS, LIKED) > 0.8


def test_ratings_become_labels_by_a_threshold(labelled):
    by_mean = classifier(threshold="mean").fit(PAIRS, Y)
    assert by_mean.threshold_ == pytest.approx(np.mean(Y))
    assert list(by_mean.classes_) == [False, True]
    by_number = classifier(threshold=3).fit(PAIRS, Y)
    np.testing.assert_array_equal(by_number.row_factors_, labelled.row_factors_)
    ratings = Ratings(PAIRS[:, 0], PAIRS[:, 1], Y)
    same = classifier(threshold=3).fit(ratings)
    np.testing.assert_array_equal(same.row_factors_, labelled.row_factors_)
    assert same.score(ratings) == pytest.approx(labelled.score(PAIRS, LIKED))


@pytest.mark.parametrize(
    ("y", "told"),
    [
        (Y, r"y has \d+ classes .*, two are needed"),
        (np.ones(len(Y)), r"y has 1 classes \(1.0\), two are needed"),
        (np.where(np.arange(len(Y)) == 2, np.nan, 1.0), "label at position 2 is nan"),
    ],
)
def test_labels_that_are_no_two_classes_are_refused(y, told):
    with pytest.raises(ValueError, match=told):
        classifier().fit(PAIRS, y)


def test_a_label_that_the_fit_has_not_seen_cannot_be_folded_in(labelled):
    with pytest.raises(ValueError, match="label maybe at position 0 is none of the classes"):
        labelled.fold_in([["new", 1]], ["maybe"])


# --- bad days -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "y"),
    [
        ([[0, 0], [0, 1], [0, 2]], [1.0, 2.0, 4.0]),  # one user
        ([[0, 0], [1, 0], [2, 0]], [1.0, 2.0, 4.0]),  # one item
        ([[0, 0]], [3.0]),  # one rating
        ([[0, 0], [0, 1], [1, 0], [1, 1], [2, 1]], [3.0] * 5),  # all equal
    ],
)
@pytest.mark.parametrize("solver", ["auto", "lbfgs"])
@pytest.mark.parametrize("options", [{}, {"ridge": 0.0}, {"ridge": 0.0, "biases": False}])
@pytest.mark.parametrize("backend", ["numba", "numpy"])
def test_degenerate_ratings_have_a_fit(pairs, y, solver, options, backend):
    model = MatrixCompletion(5, threads=1, solver=solver, backend=backend, **options).fit(pairs, y)
    predicted = model.predict(pairs)
    assert np.all(np.isfinite(predicted))
    assert np.sum((predicted - y) ** 2) <= np.sum((np.mean(y) - y) ** 2) + 1e-9
    assert model.row_factors_.shape[1] == min(5, *model.model_.seen.shape)


def test_a_user_with_a_single_rating_is_drawn_towards_it():
    pairs, y = np.vstack([PAIRS, [[77, 0]]]), np.append(Y, Y.max())
    model = regressor().fit(pairs, y)
    assert model.predict([[77, 0]])[0] > model.predict([[99, 0]])[0]


def test_a_pair_that_comes_twice_counts_as_it_came_last():
    with pytest.warns(RuntimeWarning, match="1 of"):
        model = regressor().fit(np.vstack([PAIRS[:1], PAIRS]), np.append(100.0, Y))
    np.testing.assert_array_equal(model.row_factors_, regressor().fit(PAIRS, Y).row_factors_)


@pytest.mark.parametrize(
    ("pairs", "y", "told"),
    [
        (np.empty((0, 2), int), [], "there are no ratings"),
        (PAIRS, np.where(np.arange(len(Y)) == 5, np.nan, Y), "position 5 .* is nan"),
        (PAIRS, Y[:-1], "there are"),
        (PAIRS, None, "y is missing"),
        (PAIRS[:, :1], Y, r"shape \(N, 2\)"),
        (PAIRS[:, 0], Y, r"shape \(N, 2\)"),
        (np.where(PAIRS == 3, np.nan, PAIRS), Y, "an id is missing"),
        ([["a", "x"], [None, "y"]], [1.0, 2.0], "position 1 is None; an id is missing"),
        ([["a", "x"], ["b", np.nan]], [1.0, 2.0], "position 1 is nan; an id is missing"),
        (Ratings([0], [0], [1.0]), [1.0], "leave y out"),
    ],
)
def test_what_cannot_be_fitted_is_told(pairs, y, told):
    with pytest.raises(ValueError, match=told):
        regressor().fit(pairs, y)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"rank": 0}, ValueError, "rank=0"),
        ({"rank": 2.5}, TypeError, "rank=2.5"),
        ({"ridge": -1.0}, ValueError, "ridge=-1.0"),
        ({"tol": -1.0}, ValueError, "tol=-1.0"),
        ({"patience": 0}, ValueError, "patience=0"),
        ({"max_iterations": 0}, ValueError, "max_iterations=0"),
        ({"solver": "nonsense"}, ValueError, "nonsense"),
        ({"solver": 3}, TypeError, "solver=3"),
        ({"validation_share": 1.5}, ValueError, "validation_share=1.5 .* between 0 and 1"),
        ({"validation_share": 0.0}, ValueError, "validation_share=0.0 .* between 0 and 1"),
        ({"validation_share": 1.0}, ValueError, "validation_share=1.0 .* between 0 and 1"),
        ({"balance": np.nan}, ValueError, "balance=nan"),
        ({"balance": -1}, ValueError, "balance=-1"),
        ({"max_iterations": 2.5}, TypeError, "max_iterations=2.5"),
        ({"tol": "a"}, TypeError, "tol='a'"),
        ({"tol": None}, TypeError, "tol=None"),
        ({"patience": None}, TypeError, "patience=None"),
        ({"ridge": "a"}, TypeError, "ridge='a'"),
        ({"random_state": -1}, ValueError, "random_state=-1"),
        ({"unknown": "foo"}, ValueError, "unknown='foo'"),
        ({"dtype": np.int32}, ValueError, "int32"),
        ({"threads": 0}, ValueError, "threads must be 1 or more"),
    ],
)
def test_parameters_out_of_range_are_named(options, error, told):
    with pytest.raises(error, match=told):
        regressor(**options).fit(PAIRS, Y)


def test_the_threshold_and_the_number_of_items_are_checked(fitted):
    with pytest.raises(ValueError, match="threshold='foo' must be 'mean'"):
        classifier(threshold="foo").fit(PAIRS, Y)
    with pytest.raises(ValueError, match="threshold=nan"):
        classifier(threshold=np.nan).fit(PAIRS, Y)
    with pytest.raises(TypeError, match=r"n=2\.5"):
        fitted.recommend(0, n=2.5)
    with pytest.raises(ValueError, match="ridge=-1"):
        LowRankImputer(ridge=-1).fit(np.eye(3))
    with pytest.raises(ValueError, match="ridge=None must be a number"):
        LowRankImputer(ridge=None).fit(np.eye(3))


def test_a_missing_id_in_a_table_is_refused():
    pandas = pytest.importorskip("pandas")
    for kind in (object, "string"):
        users = pandas.Series(["a", "b", pandas.NA], dtype=kind)
        table = pandas.DataFrame({"user": users, "item": ["x", "y", "z"]})
        with pytest.raises(ValueError, match=r"position 2 is .*; an id is missing"):
            regressor().fit(table, [1.0, 2.0, 3.0])


def test_names_find_their_positions():
    names = Vocabulary(np.array([30, 10, 20]))
    assert names.positions([10, 20, 30, 40]).tolist() == [1, 2, 0, -1]
    assert names.positions(["10", "x"]).tolist() == [1, -1]
    assert names.positions([10.0]).tolist() == [1]
    longer = names.extended([5, 10])
    assert longer.ids.tolist() == [30, 10, 20, 5]
    assert Vocabulary(np.arange(3)).positions([2, 3]).tolist() == [2, -1]


# --- scikit-learn ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [regressor, classifier])
def test_parameters_can_be_read_set_and_cloned(kind):
    model = kind(ridge=0.25)
    assert model.get_params()["ridge"] == 0.25
    assert model.set_params(rank=7).rank == 7
    fitted = kind().fit(PAIRS, Y if kind is regressor else LIKED)
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "model_")
    with pytest.raises(sklearn.exceptions.NotFittedError):
        copy.predict(PAIRS)


@pytest.mark.parametrize(("kind", "y", "least"), [(regressor, Y, 0.5), (classifier, LIKED, 0.7)])
def test_cross_validation_and_grid_search_take_pairs(kind, y, least):
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    texts = np.array([[f"u{i}", f"i{j}"] for i, j in PAIRS])[order]
    assert np.mean(cross_val_score(kind(), texts, y[order], cv=3)) > least
    search = GridSearchCV(kind(), {"rank": [1, 2], "bias_ridge": [1.0, 1000.0]}, cv=3)
    search.fit(texts, y[order])
    assert search.best_params_["bias_ridge"] == 1.0
    assert search.best_estimator_.recommend("u4", n=3).items[0].startswith("i")


def test_the_imputer_passes_the_checks_of_scikit_learn():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(LowRankImputer(threads=1), on_fail=None)
    failed = {c["check_name"]: c["exception"] for c in found if c["status"] == "failed"}
    assert not failed
    assert sum(check["status"] == "passed" for check in found) > 40


def test_the_imputer_fills_gaps_and_leaves_the_rest():
    rng = np.random.default_rng(0)
    full = rng.standard_normal((80, 2)) @ rng.standard_normal((2, 12)) * np.logspace(-2, 3, 12)
    gaps = rng.random(full.shape) < 0.2
    X = np.where(gaps, np.nan, full)
    imputer = LowRankImputer(rank=2, ridge=1e-3, threads=1)
    filled = imputer.fit_transform(X)
    np.testing.assert_array_equal(filled[~gaps], full[~gaps])
    scaled = (filled - full) / full.std(axis=0)
    assert np.sqrt(np.mean(scaled[gaps] ** 2)) < 0.05
    np.testing.assert_allclose(imputer.transform(X[:5]), filled[:5], rtol=1e-8)
    empty = imputer.transform(np.full((1, 12), np.nan))[0]
    np.testing.assert_allclose(empty, imputer.mean_ + imputer.scale_ * imputer.offsets_)
    assert imputer.get_feature_names_out(list("abcdefghijkl"))[1] == "b"


def test_the_imputer_finds_the_rank_by_default():
    whole = load_wine().data
    gaps = np.random.default_rng(0).random(whole.shape) < 0.3
    imputer = LowRankImputer(threads=1).fit(np.where(gaps, np.nan, whole))
    assert imputer.certificate_.verdict.name == "GLOBAL"
    assert imputer.rank_ == imputer.components_.shape[1]


def test_the_imputer_takes_empty_columns_and_refuses_empty_tables():
    X = np.array([[1.0, np.nan, 2.0], [2.0, np.nan, np.nan], [3.0, np.nan, 6.0]])
    filled = LowRankImputer(rank=1, threads=1).fit_transform(X)
    assert np.all(np.isfinite(filled))
    assert np.all(filled[:, 1] == 0.0)
    with pytest.raises(ValueError, match="nothing to learn from"):
        LowRankImputer().fit(np.full((3, 2), np.nan))


def test_without_scikit_learn_the_message_names_the_extra():
    program = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import momentous.lowrank\n"
        "try:\n    momentous.lowrank.MatrixCompletion\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert 'pip install "momentous[app]"' in told.stdout, told.stderr


def test_the_examples_in_the_docstrings_run():
    for module in (matrix_completion, imputer, implicit_mf):
        results = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
        assert results.attempted >= 4
        assert results.failed == 0


# --- on disk --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fitted", "labelled"])
def test_what_is_saved_is_loaded(kind, request, tmp_path):
    model, path = request.getfixturevalue(kind), tmp_path / "model"
    model.save(path)
    again = load(path)
    assert type(again) is type(model)
    assert again.get_params() == type(model).load(path).get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict(PAIRS), model.predict(PAIRS))
    assert again.recommend(4).items.tolist() == model.recommend(4).items.tolist()
    assert again.objective_ == model.objective_
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    folded = again.fold_in([["new", 1]], [Y[0]] if kind == "fitted" else ["yes"])
    assert "new" in folded.row_ids_


def test_parameters_that_json_cannot_hold_are_saved_by_name(tmp_path):
    from momentous import LBFGS

    model = regressor(solver=LBFGS, dtype=np.float32, random_state=np.random.default_rng(0))
    model.fit([["a", "x"], ["a", "y"], ["b", "x"]], [1.0, 2.0, 3.0]).save(tmp_path / "m")
    again = MatrixCompletion.load(tmp_path / "m")
    assert (again.solver, again.dtype, again.random_state) == ("lbfgs", "float32", None)
    assert again.row_ids_.tolist() == ["a", "b"]
    again.fit([["a", "x"], ["b", "y"]], [1.0, 2.0])


def test_a_solver_is_saved_with_its_parameters(tmp_path):
    from momentous import LBFGS, Safeguarded

    for solver in (LBFGS(memory=3), Safeguarded(LBFGS(memory=4))):
        regressor(solver=solver).fit(PAIRS, Y).save(tmp_path / "m")
        assert MatrixCompletion.load(tmp_path / "m").solver == solver


def test_a_solver_that_is_not_registered_is_saved_by_name_with_a_warning(tmp_path):
    from momentous import LBFGS

    class Mine(LBFGS):
        name = "mine"

    model = regressor(solver=Mine(memory=3)).fit(PAIRS, Y)
    with pytest.warns(RuntimeWarning, match="only the name 'mine' is saved"):
        model.save(tmp_path / "m")
    assert MatrixCompletion.load(tmp_path / "m").solver == "mine"


def test_files_that_are_no_models_are_refused(tmp_path, fitted, labelled):
    good = tmp_path / "good"
    fitted.save(good)
    content = good.read_bytes()
    (tmp_path / "cut").write_bytes(content[: len(content) // 2])
    (tmp_path / "text").write_text("hello")
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    for name in ("cut", "text", "other.npz"):
        with pytest.raises(ArchiveError, match=name):
            MatrixCompletion.load(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        MatrixCompletion.load(tmp_path / "nothing")
    with pytest.raises(ArchiveError, match="squared loss"):
        OneBitMatrixCompletion.load(good)
    with np.load(good) as archive:
        arrays = dict(archive)
    header = json.loads(arrays["header"].tobytes())
    header["version"] = 99
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(tmp_path / "newer.npz", **arrays)
    with pytest.raises(ArchiveError, match="version 99"):
        MatrixCompletion.load(tmp_path / "newer.npz")
    arrays["header"] = np.load(good)["header"]
    arrays["row_ids"] = arrays["row_ids"][:-1]
    np.savez(tmp_path / "damaged.npz", **arrays)
    with pytest.raises(ArchiveError, match="damaged"):
        MatrixCompletion.load(tmp_path / "damaged.npz")


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_a_table_of_three_columns_is_fitted_as_it_is(kind):
    make = {"pandas": "DataFrame", "polars": "DataFrame", "arrow": "table"}[kind]
    table = getattr(pytest.importorskip("pyarrow" if kind == "arrow" else kind), make)
    ids = {"user": ["a", "a", "b", "b", "c"], "item": [1, 2, 1, 3, 2]}
    values = [5.0, 3.0, 4.0, 1.0, 2.0]
    fresh = MatrixCompletion(rank=1, max_iterations=3)
    expected = fresh.fit(table(ids), values).predict(table(ids))
    for columns in (
        {"stars": values, **ids},  # the names say which is which
        dict(zip("abc", [*ids.values(), values], strict=True)),  # or else the order
    ):
        fitted = MatrixCompletion(rank=1, max_iterations=3).fit(table(columns))
        pairs = {name: one for name, one in columns.items() if one is not values}
        np.testing.assert_array_equal(fitted.predict(table(pairs)), expected)
    with pytest.raises(ValueError, match="which columns are user, item and rating"):
        fresh.fit(table({"user": [1, 2], "b": [1, 2], "c": [1.0, 2.0]}))
