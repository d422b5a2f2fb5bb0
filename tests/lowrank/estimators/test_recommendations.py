"""What estimators say beyond predictions: reasons, neighbours, metrics, and further entries."""

from __future__ import annotations

import numpy as np
import pytest

from momentous.lowrank import split_by_time

pytest.importorskip("sklearn")
from sklearn.exceptions import NotFittedError

from momentous.lowrank import ImplicitMF, MatrixCompletion, OneBitMatrixCompletion

RNG = np.random.default_rng(0)
CELLS = np.argwhere(RNG.random((24, 18)) < 0.5)
PAIRS = np.array([[f"u{i:02d}", f"i{j:02d}"] for i, j in CELLS])
SAME = CELLS.sum(axis=1) % 2 == 0  # two groups of users, who like two groups of items
Y = np.where(SAME, 5.0, 1.0)


def made(kind):
    return kind(rank=2, ridge=0.5, threads=1, backend="numpy", max_iterations=20)


KINDS = [
    (MatrixCompletion, PAIRS, Y),
    (OneBitMatrixCompletion, PAIRS, np.where(SAME, "yes", "no")),
    (ImplicitMF, PAIRS[SAME], np.ones(SAME.sum())),
]


@pytest.fixture(scope="module", params=KINDS, ids=lambda one: one[0].__name__)
def case(request):
    kind, X, y = request.param
    return made(kind).fit(X, y), X, y


def test_neighbours_are_of_the_same_group(case):
    model = case[0]
    assert {int(one[1:]) % 2 for one in model.similar_users("u03", 5).ids} == {1}
    assert {int(one[1:]) % 2 for one in model.similar_items("i04", 5).ids} == {0}


def test_recommendations_for_many_pass_the_filters(case):
    model = case[0]
    even = [f"i{j:02d}" for j in range(0, 18, 2)]
    for user, found in zip(
        ("u00", "u01"), model.recommend_all(["u00", "u01"], 18, False, allowed=even), strict=True
    ):
        assert sorted(found.items) == even
        one = model.recommend(user, 18, False, forbidden=even)
        assert not {*one.items} & {*even}


def test_one_user_or_many_are_asked_for_by_name(case):
    with pytest.raises(TypeError, match=r"takes one id, not .*; recommend_all takes many"):
        case[0].recommend(["u00", "u01"])


@pytest.mark.parametrize("name", ["k", "N", "top_n"])
def test_names_of_other_libraries_are_corrected(case, name):
    fitted = case[0]
    for ask in (fitted.recommend, fitted.similar_items, fitted.model_.recommend):
        with pytest.raises(TypeError, match=f"no parameter '{name}'; it is called n here"):
            ask(0, **{name: 3})
    with pytest.raises(TypeError, match="'n'; it is called k here"):
        fitted.ranking_metrics([[0, 0]], [1.0], n=3)


def test_an_estimator_whose_fit_failed_is_not_fitted(case):
    model = made(type(case[0])).set_params(rank=0)
    with pytest.raises(ValueError, match="rank=0"):
        model.fit(case[1], case[2])
    for call in (model.predict, model.recommend_all, model.similar_users):
        with pytest.raises(NotFittedError):
            call(case[1])


def test_ratings_of_items_of_the_same_kind_carry_a_recommendation(case):
    model, X, _ = case
    best = model.recommend("u06", 1).items[0]
    found = model.explain("u06", best)
    assert found.score == pytest.approx(model.model_.scores([["u06", best]])[0])
    assert {*found.items} == {*X[X[:, 0] == "u06", 1]}
    assert int(found.items[0][1:]) % 2 == int(best[1:]) % 2 == 0
    assert model.explain("u06", best, n=1).items.tolist() == [found.items[0]]


def test_new_items_are_folded_in_from_their_ratings(case):
    model, _, y = case
    high = y[int(np.argmax(SAME))] if len(y) == len(SAME) else 1.0
    fans = np.array([[f"u{k:02d}", "fresh"] for k in range(1, 24, 2)])
    folded = model.fold_in_items(fans, np.full(len(fans), high))
    assert folded.col_ids_[-1] == "fresh"
    assert "fresh" not in model.col_ids_
    assert {int(one[1:]) % 2 for one in folded.similar_items("fresh", 5).ids} == {1}


def test_further_entries_come_in_batches(case):
    model, X, y = case
    parts = np.array_split(np.random.default_rng(1).permutation(len(X)), 3)
    other = made(type(model))
    for part in parts:
        assert other.partial_fit(X[part], y[part]) is other
    assert other.model_.seen.nnz == len(X)
    assert other.result_ is None
    value = other.objective_
    other.partial_fit(X, y)  # all again: one sweep
    assert other.objective_ <= value
    assert np.corrcoef(other.model_.scores(X), model.model_.scores(X))[0, 1] > 0.5
    with pytest.raises(ValueError, match="expecting 2 features"):
        other.partial_fit(np.zeros((2, 3)), y[:2])


def test_the_classes_of_further_labels_are_compared():
    labels = np.where(SAME, "yes", "no")
    model = made(OneBitMatrixCompletion).partial_fit(PAIRS, labels, classes=["yes", "no"])
    with pytest.raises(ValueError, match=r"classes=\['a', 'b'\] are not those of the labels"):
        model.partial_fit(PAIRS, labels, classes=["a", "b"])
    with pytest.raises(ValueError, match="label perhaps at position 0 is none of the classes"):
        model.partial_fit(PAIRS[:1], ["perhaps"])


# All pairs: what is not known to a fit is held out, so that the other group is all that is worse.
ALL = np.array([[i, j] for i in range(24) for j in range(18)])
ALIKE = ALL.sum(axis=1) % 2 == 0


@pytest.mark.parametrize("kind", [one[0] for one in KINDS])
def test_what_was_held_out_is_met_by_recommendations(kind):
    X, alike = (ALL[ALIKE], ALIKE[ALIKE]) if kind is ImplicitMF else (ALL, ALIKE)
    y = np.where(alike, 5.0, 1.0) if kind is MatrixCompletion else alike
    held = np.random.default_rng(0).random(len(X)) < 0.3
    model = made(kind).fit(X[~held], y[~held])
    least = 4.0 if kind is MatrixCompletion else None
    found = model.ranking_metrics(X[held], y[held], k=9, relevant=least)
    assert found.auc > 0.95
    assert found.ndcg > 0.9
    assert found.recall > 0.9


def test_the_latest_ratings_are_what_a_fit_is_compared_with():
    times = np.random.default_rng(0).permutation(len(ALL))
    known, latest = split_by_time(ALL, np.where(ALIKE, 5.0, 1.0), times, 0.2)
    assert made(MatrixCompletion).fit(known).ranking_metrics(latest, k=3, relevant=5).auc > 0.95


@pytest.mark.parametrize("many", [["a", "b"], np.array(["a", "b"])], ids=["list", "array"])
def test_many_ids_where_one_is_needed_are_told_what_takes_many(many):
    pairs, ratings = [["a", "x"], ["a", "y"], ["b", "x"]], [1.0, 2.0, 3.0]
    model = MatrixCompletion(rank=1, max_iterations=2, backend="numpy").fit(pairs, ratings)
    with pytest.raises(TypeError, match=r"takes one id, not \w+ of 2 ids; recommend_all takes"):
        model.recommend(many)
    for ask in (model.similar_items, model.similar_users, lambda ids: model.explain(ids, "x")):
        with pytest.raises(TypeError, match=r"one (row|column) id is needed, not .*'a'.*'b'"):
            ask(many)
