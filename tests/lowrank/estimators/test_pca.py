"""PCA with gaps: scikit-learn's where nothing is missing, and near it where something is."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn import decomposition
from sklearn.datasets import load_wine

from momentous.lowrank import PCA


@pytest.fixture(scope="module")
def table():
    wine = load_wine().data
    return (wine - wine.mean(axis=0)) / wine.std(axis=0) + np.arange(13.0)


def test_without_gaps_it_is_that_of_scikit_learn(table):
    ours, theirs = PCA(3, backend="numpy").fit(table), decomposition.PCA(3).fit(table)
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-5, atol=1e-7)
    signs = np.sign(np.sum(ours.components_ * theirs.components_, axis=1))
    np.testing.assert_allclose(ours.components_, signs[:, None] * theirs.components_, atol=1e-5)
    scores = ours.transform(table)
    np.testing.assert_allclose(scores, signs * theirs.transform(table), atol=1e-4)
    back = ours.inverse_transform(scores)
    np.testing.assert_allclose(back, theirs.inverse_transform(theirs.transform(table)), atol=1e-4)
    assert list(ours.get_feature_names_out()) == ["pca0", "pca1", "pca2"]


def test_with_three_tenths_missing_the_components_are_nearly_those_of_the_whole(table):
    gaps = np.random.default_rng(0).random(table.shape) < 0.3
    ours = PCA(2, backend="numpy").fit(np.where(gaps, np.nan, table))
    whole = decomposition.PCA(2).fit(table)
    cosines = np.linalg.svd(ours.components_ @ whole.components_.T)[1]
    assert cosines.min() > 0.95
    np.testing.assert_allclose(ours.explained_variance_, whole.explained_variance_, rtol=0.15)
    np.testing.assert_allclose(ours.components_ @ ours.components_.T, np.eye(2), atol=1e-10)
    filled = ours.inverse_transform(ours.transform(np.where(gaps, np.nan, table)))
    by_means = np.nanmean(np.where(gaps, np.nan, table), axis=0)
    error, plain = (np.mean((one - table)[gaps] ** 2) for one in (filled, by_means))
    assert error < 0.8 * plain


def test_a_column_without_entries_is_refused(table):
    with pytest.raises(ValueError, match="column 1 of X has no entries"):
        PCA(2).fit(np.where(np.arange(13) == 1, np.nan, table))
