"""Metrics at k, against their definitions written as loops and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from momentous.lowrank import Ratings
from momentous.lowrank.model import fit_model, ranking_metrics
from momentous.lowrank.solvers.fit import FitConfig


@pytest.fixture(scope="module")
def parts():
    rng = np.random.default_rng(1)
    rows, cols = np.nonzero(rng.random((25, 30)) < 0.5)
    ratings = Ratings(rows, cols, rng.integers(1, 6, rows.size).astype(float), (25, 30))
    known, held_out = ratings.split(0.3)
    config = FitConfig(rank=2, backend="numpy", max_iterations=4)
    return fit_model(known, config).model, held_out


def by_hand(model, held_out, k, least):
    """ndcg, map, recall, precision and auc of each user, one at a time."""
    found = []
    for user in range(25):
        wanted = set(held_out.cols[(held_out.rows == user) & (held_out.values >= least)].tolist())
        if not wanted:
            continue
        seen = set(model.seen.cols[model.seen.rows == user].tolist())
        free = [j for j in range(30) if j not in seen]
        scores = dict(zip(free, model.scores([[user, j] for j in free]), strict=True))
        order = sorted(free, key=lambda j: -scores[j])[:k]
        gains = [1 / np.log2(place + 2) for place in range(k)]
        hits = [item in wanted for item in order]
        ndcg = sum(g for g, hit in zip(gains, hits, strict=False) if hit)
        ndcg /= sum(gains[: len(wanted)])
        precisions = [np.mean(hits[: place + 1]) for place, hit in enumerate(hits) if hit]
        pairs = [(a, b) for a in wanted for b in free if b not in wanted]
        auc = np.mean([(scores[a] > scores[b]) + 0.5 * (scores[a] == scores[b]) for a, b in pairs])
        found.append((ndcg, sum(precisions) / min(k, len(wanted)), sum(hits) / len(wanted),
                      sum(hits) / k, auc))  # fmt: skip
    return np.mean(found, axis=0), len(found)


@pytest.mark.parametrize(("k", "least"), [(1, 1), (5, 1), (5, 4), (100, 3)])
def test_metrics_are_their_definitions(parts, k, least):
    model, held_out = parts
    expected, users = by_hand(model, held_out, k, least)
    found = ranking_metrics(model, held_out, k, relevant=least)
    np.testing.assert_allclose(found[:5], expected, rtol=1e-10)
    assert found.users == users


def test_ndcg_and_auc_agree_with_scikit_learn(parts):
    metrics = pytest.importorskip("sklearn.metrics")
    model, held_out = parts
    one = held_out.where(held_out.rows == 7)
    free = np.setdiff1d(np.arange(30), model.seen.cols[model.seen.rows == 7])
    truth, scores = np.isin(free, one.cols), model.scores([[7, j] for j in free])
    found = ranking_metrics(model, one, 5)
    assert found.ndcg == pytest.approx(metrics.ndcg_score([truth], [scores], k=5))
    assert found.auc == pytest.approx(metrics.roc_auc_score(truth, scores))


def test_what_cannot_be_recommended_counts_as_the_docstring_says(parts):
    model, held_out = parts
    one = held_out.where(held_out.rows == 7)
    alone = ranking_metrics(model, one, 30)
    assert alone.recall == 1.0
    more = Ratings(
        [*one.rows, 7, 60], [*one.cols, 99, 0], np.append(one.values, [1.0, 1.0])
    )  # an unknown item, which is a miss, and an unknown user, who is left out
    found = ranking_metrics(model, more, 30)
    assert found.users == 1
    assert found.recall == pytest.approx(one.nnz / (one.nnz + 1))
    assert found.auc == alone.auc
    with pytest.raises(ValueError, match=r"none of the 1 entries is relevant .*relevant=9"):
        ranking_metrics(model, Ratings([7], [0], [1.0]), relevant=9)
    with pytest.raises(ValueError, match="none of the"):
        ranking_metrics(model, model.seen)
    with pytest.raises(ValueError, match="k=0"):
        ranking_metrics(model, held_out, 0)
