"""Further entries: what they touch is computed again, the objective of all does not rise."""

from __future__ import annotations

import numpy as np
import pytest

from momentous.lowrank import Ratings
from momentous.lowrank.losses import Implicit
from momentous.lowrank.model import fit_model, updated
from momentous.lowrank.solvers.fit import FitConfig

RNG = np.random.default_rng(0)
ROWS, COLS = np.nonzero(RNG.random((20, 15)) < 0.5)
VALUES = RNG.integers(1, 6, ROWS.size).astype(float)


def ratings(rows, cols, values, loss):
    """Entries by name, for users u0, u1, ... and items 0, 1, ..."""
    made = Ratings(rows, cols, values, row_ids=[f"u{k}" for k in range(max(rows) + 1)])
    return made.signs(3.0) if loss == "logistic" else made


def fitted(loss, **options):
    config = FitConfig(rank=2, loss=loss, backend="numpy", max_iterations=8, **options)
    return fit_model(ratings(ROWS, COLS, VALUES, loss), config)


def objective_at(model, backend):
    problem, x = model.problem(backend)
    return problem.value(x)


LOSSES = pytest.mark.parametrize("loss", ["squared", "logistic", Implicit(0.5)], ids=str)


@LOSSES
def test_the_objective_of_all_entries_falls(loss):
    fit = fitted(loss)
    assert objective_at(fit.model, "numpy") == pytest.approx(fit.objective, rel=1e-10)
    # u4 and item 3 are known, u20 and item 15 are new.
    new = ratings([4, 20, 20, 4], [3, 3, 15, 15], [1.0, 5.0, 5.0, 1.0], loss)
    once = updated(fit.model, new, "numpy")
    assert len(once.rows) == 21
    assert len(once.cols) == 16
    places = {(int(i), int(j)) for i, j in zip(ROWS, COLS, strict=True)} | {(4, 3)}
    assert once.seen.nnz == len(places) + 3
    twice = updated(once, new, "numpy")
    assert twice.seen.nnz == once.seen.nnz
    assert objective_at(twice, "numpy") < objective_at(once, "numpy")
    start = np.abs(once.row_factors - np.pad(fit.model.row_factors, [(0, 1), (0, 0)])).max(axis=1)
    assert np.flatnonzero(start).tolist() == [4, 20]
    untouched = [k for k in range(15) if k != 3]
    np.testing.assert_array_equal(once.col_factors[untouched], fit.model.col_factors[untouched])


def test_a_new_value_of_a_pair_replaces_the_old_one():
    model = fitted("squared").model
    i, j = int(ROWS[7]), int(COLS[7])
    new = updated(model, Ratings([0], [0], [9.0], row_ids=[f"u{i}"], col_ids=[j]), "numpy")
    assert new.seen.nnz == model.seen.nnz
    assert new.seen.to_sparse()[i, j] == 9.0
    assert new.value_range == (1.0, 9.0)
    assert new.scores([[f"u{i}", j]])[0] > model.scores([[f"u{i}", j]])[0]


def test_what_was_held_out_and_comes_again_is_fitted_to():
    model = fitted("squared", validation_share=0.2).model
    held = model.held_out
    given = held.where(held.rows == held.rows[0])
    ids = np.array([f"u{k}" for k in range(20)])
    new = updated(model, Ratings(given.rows, given.cols, given.values, row_ids=ids), "numpy")
    assert new.held_out.nnz == held.nnz - given.nnz
    assert new.seen.nnz == model.seen.nnz + given.nnz


@LOSSES
def test_folding_in_columns_is_folding_in_rows_of_the_transpose(loss):
    model = fitted(loss).model
    mine = COLS == 4
    new = Ratings(ROWS[mine], np.zeros(mine.sum(), int), VALUES[mine],
                  row_ids=[f"u{k}" for k in range(20)], col_ids=[77])  # fmt: skip
    new = new.signs(3.0) if loss == "logistic" else new
    folded = model.fold_in_columns(new, backend="numpy")
    assert folded.cols.ids.tolist() == [*range(15), 77]
    np.testing.assert_array_equal(folded.row_factors, model.row_factors)
    np.testing.assert_array_equal(folded.col_factors[:15], model.col_factors)
    # The same entries as item 4 has: where that is the best for them, too, it is the same item.
    again = model.fold_in_columns(
        Ratings(new.rows, np.full(new.nnz, 4), new.values, row_ids=new.row_ids), backend="numpy"
    )
    np.testing.assert_allclose(folded.col_factors[15], again.col_factors[4], atol=1e-10)
    assert folded.seen.nnz == model.seen.nnz + mine.sum()
    assert again.seen.nnz == model.seen.nnz
