"""A model that takes further entries: the rows and columns that they touch are computed again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.backends import Backend
from momentous.lowrank.data.ratings import Ratings
from momentous.lowrank.data.vocabulary import Positions, Vocabulary
from momentous.lowrank.model.fitted import LowRankModel


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
    cells = new_rows.astype(np.int64) * len(cols) + new_cols

    def stays(old: Ratings) -> NDArray[np.bool_]:
        return ~np.isin(old.rows.astype(np.int64) * len(cols) + old.cols, cells)

    ranges = model.value_range, new.value_range
    limits = min(low for low, _ in ranges), max(high for _, high in ranges)
    grown = model.grown(rows, cols, stays, new_rows, new_cols, new.by_row.values)
    grown = grown.with_best_rows(np.unique(new_rows), backend, device)
    turned = grown.transposed().with_best_rows(np.unique(new_cols), backend, device)
    return replace(
        grown,
        col_factors=turned.row_factors,
        col_bias=turned.row_bias,
        learned=None if turned.learned is None else turned.learned.transposed(),
        value_range=limits,
    )


def _extend(known: Vocabulary, new: Ratings, side: int) -> tuple[Vocabulary, Positions]:
    """The ids with those of the new entries, and where each new entry stands among them."""
    ids = new.ids(side)[(new.rows, new.cols)[side]]
    extended = known.extended(ids)
    return extended, extended.positions(ids)
