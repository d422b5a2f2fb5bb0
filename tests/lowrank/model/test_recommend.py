"""The best items of many users at once are those of each alone; on the GPU they are the same."""

from __future__ import annotations

import numpy as np
import pytest

from momentous.lowrank import Ratings
from momentous.lowrank.backends import base, find_backend
from momentous.lowrank.backends.device import gpu_available
from momentous.lowrank.data.ratings import Compressed
from momentous.lowrank.model import fit_model
from momentous.lowrank.solvers.fit import FitConfig

gpu = [pytest.mark.gpu, pytest.mark.skipif(not gpu_available(), reason="no GPU to use")]
DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    pairs = rng.choice(40 * 300, 2000, replace=False)
    ids = np.array([f"u{k}" for k in range(40)])
    ratings = Ratings(pairs // 300, pairs % 300, rng.integers(1, 6, 2000), (40, 300), row_ids=ids)
    config = FitConfig(rank=4, max_iterations=3, validation_share=0.1, backend="numpy")
    return fit_model(ratings, config).model


def sorted_scores(model, user):
    """All items, best first, and their predictions; those rated have none."""
    row = int(model.rows.positions([user])[0])
    scores = model.predict([[user, item] for item in model.cols.ids])
    raw = model.scores([[user, item] for item in model.cols.ids])
    for known in (model.seen, model.held_out):
        raw[known.cols[known.rows == row]] = -np.inf
    order = np.argsort(-raw, kind="stable")[: np.count_nonzero(np.isfinite(raw))]
    return model.cols.ids[order], scores[order]


@DEVICES
@pytest.mark.parametrize("n", [1, 10, 1000])
def test_many_users_get_the_highest_scores_of_what_they_have_not_rated(
    model, n, device, monkeypatch
):
    monkeypatch.setattr(base, "SCORES", 2000)  # several blocks
    users = ["u7", "u0", "u39", "u7", *model.rows.ids]
    for user, found in zip(users, model.recommend_all(users, n, device=device), strict=True):
        items, scores = sorted_scores(model, user)
        np.testing.assert_allclose(found.scores, scores[:n], rtol=1e-5)
        assert found.items.tolist() == items[:n].tolist()


@DEVICES
def test_unknown_users_are_refused_or_get_what_all_like(model, device):
    with pytest.raises(ValueError, match="the row id 'nobody' at position 1"):
        model.recommend_all(["u1", "nobody"], 3, device=device)
    known, other = model.recommend_all(["u1", "nobody"], 3, unknown="mean", device=device)
    assert other.items.tolist() == np.argsort(-model.col_bias, kind="stable")[:3].tolist()
    assert known.items.tolist() == model.recommend("u1", 3).items.tolist()


@DEVICES
def test_what_was_rated_can_be_kept(model, device):
    best = [model.recommend_all(["u3"], 300, kept, device=device)[0] for kept in (False, True)]
    rated = sum(int(np.count_nonzero(one.rows == 3)) for one in (model.seen, model.held_out))
    assert best[0].items.size == 300
    assert best[1].items.size == 300 - rated


@DEVICES
def test_of_equal_scores_the_first_is_better(device):
    rng = np.random.default_rng(0)
    left, right = (rng.integers(-1, 2, (n, 2)).astype(np.float32) for n in (30, 200))
    seen = Compressed(np.arange(31, dtype=np.int64), np.arange(30, dtype=np.int32), np.zeros(30))
    offsets = np.zeros(200, np.float32)
    backend = find_backend("auto", device)
    columns, scores = backend.best_columns(left, right, offsets, [seen], 9)
    for row in range(30):
        expected = left[row] @ right.T
        expected[row] = -np.inf
        order = np.argsort(-expected, kind="stable")[:9]
        assert columns[row].tolist() == order.tolist()
        assert scores[row].tolist() == expected[order].tolist()


@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e60])
def test_the_best_of_many_near_ties_are_told_apart(scale):
    """Scores that single precision does not tell apart, or cannot hold, are compared in double."""
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((40, 3)), np.ones((2000, 3))
    right += 1e-9 * rng.integers(-3, 4, right.shape)
    left, right, offsets = scale * left, right, scale * 1e-9 * rng.integers(0, 3, 2000)
    counts = rng.integers(0, 1990, 40)  # some rows have hardly more than 7 left
    others = [np.sort(rng.choice(2000, size, replace=False)) for size in counts]
    starts = np.append(0, np.cumsum(counts))
    seen = Compressed(starts, np.concatenate(others).astype(np.int32), np.zeros(starts[-1]))
    best, scores = find_backend("numpy").best_columns(left, right, offsets, [seen], 7)
    for row, known in enumerate(others):
        exact = np.einsum("j,ij->i", left[row], right) + offsets
        exact[known] = -np.inf
        expected = np.argsort(-exact, kind="stable")[:7]
        assert best[row].tolist() == expected.tolist()
        np.testing.assert_allclose(scores[row], exact[expected], rtol=1e-14)


@DEVICES
def test_filters_leave_the_order_of_what_passes(model, device):
    users = ["u7", "u0", "u39"]
    allowed, forbidden = [*range(20, 120), "no such item"], {25, 40, 41, 999}
    passes = [j for j in range(20, 120) if j not in forbidden]
    found = model.recommend_all(
        users, 30, allowed=allowed, forbidden=forbidden, device=device, unknown="mean"
    )
    for user, best in zip(users, found, strict=True):
        items, scores = sorted_scores(model, user)
        chosen = np.isin(items, passes)
        assert best.items.tolist() == items[chosen][:30].tolist()
        np.testing.assert_allclose(best.scores, scores[chosen][:30], rtol=1e-5)
    only = model.recommend("u0", 300, exclude_seen=False, forbidden=range(1, 300))
    assert only.items.tolist() == [0]
    assert model.recommend("u0", 5, allowed=["no such item"]).items.size == 0


def test_similar_rows_are_those_of_the_largest_cosine(model):
    U = model.row_factors
    cosines = U @ U[5] / (np.linalg.norm(U, axis=1) * np.linalg.norm(U[5]))
    order = [k for k in np.argsort(-cosines, kind="stable") if k != 5]
    found = model.similar_rows("u5", 3)
    assert found.ids.tolist() == [f"u{k}" for k in order[:3]]
    np.testing.assert_allclose(found.scores, cosines[order[:3]], rtol=1e-12)
    assert model.transposed().similar_rows(7, 4).ids.tolist() == (
        model.similar_columns(7, 4).ids.tolist()
    )
    with pytest.raises(ValueError, match="row id 'nobody'"):
        model.similar_rows("nobody")
