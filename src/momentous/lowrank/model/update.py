"""A model that takes further entries: the rows and columns that they touch are computed again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.backends import Backend
from momentous.lowrank.data.ratings import Ratings
from momentous.lowrank.data.vocabulary import Positions, Vocabulary
from momentous.lowrank.model.fitted import LowRankModel, join_entries, of_rows, vocabulary_of


def updated(
    model: LowRankModel, new: Ratings, backend: str | Backend = "auto", device: str = "cpu"
) -> LowRankModel:
    """The model with these entries, too; where it has an entry of a pair, the new one counts.

    One step of block descent on the objective of all entries: the rows of the new entries become
    the best for the columns as they are, then the columns of the new entries for the rows.  The
    mean and the penalty stay.
    """
    new = new.astype(model.row_factors.dtype)
    model.loss.check(new)
    rows, new_rows = _extend(model.rows, new, 0)
    cols, new_cols = _extend(model.cols, new, 1)
    more = len(rows) - len(model.rows), len(cols) - len(model.cols)
    shape = len(rows), len(cols)
    cells = new_rows.astype(np.int64) * shape[1] + new_cols

    def others(old: Ratings) -> NDArray[np.bool_]:
        return ~np.isin(old.rows.astype(np.int64) * shape[1] + old.cols, cells)

    held_out = model.held_out
    if held_out is not None:
        left = others(held_out)
        held_out = join_entries(held_out, left, shape) if left.any() else None
    seen = join_entries(model.seen, others(model.seen), shape, new_rows, new_cols, new.values)
    ranges = model.value_range, new.value_range
    grown = replace(
        model,
        rows=rows,
        cols=cols,
        row_factors=np.pad(model.row_factors, [(0, more[0]), (0, 0)]),
        col_factors=np.pad(model.col_factors, [(0, more[1]), (0, 0)]),
        row_bias=np.pad(model.row_bias, (0, more[0])),
        col_bias=np.pad(model.col_bias, (0, more[1])),
        value_range=(min(low for low, _ in ranges), max(high for _, high in ranges)),
        seen=seen,
        held_out=held_out,
        run=None,
    )
    grown = _with_best_rows(grown, np.unique(new_rows), backend, device)
    turned = _with_best_rows(grown.transposed(), np.unique(new_cols), backend, device)
    return replace(grown, col_factors=turned.row_factors, col_bias=turned.row_bias)


def _extend(known: Vocabulary, new: Ratings, side: int) -> tuple[Vocabulary, Positions]:
    """The ids with those of the new entries, and where each new entry stands among them."""
    ids = vocabulary_of(new, side).ids[(new.rows, new.cols)[side]]
    extended = known.extended(ids)
    return extended, extended.positions(ids)


def _with_best_rows(
    model: LowRankModel, rows: Positions, backend: str | Backend, device: str
) -> LowRankModel:
    """The model with these rows the best for their entries."""
    solved = model.solve_rows(of_rows(model.seen.by_row, rows), backend, device)
    factors, bias = model.row_factors.copy(), model.row_bias.copy()
    factors[rows] = solved[:, : model.rank]
    if model.penalty.biases:
        bias[rows] = solved[:, -1]
    return replace(model, row_factors=factors, row_bias=bias)


def objective_at(
    model: LowRankModel, backend: str | Backend = "auto", device: str = "cpu"
) -> float:
    """What a fit minimises, at the model, of the entries it has seen."""
    problem, x = model.problem(backend, device)
    return float(problem.value(x, balance=0.0))
