"""How good recommendations are: NDCG, MAP, recall, precision at k, and the area under the curve."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from momentous.lowrank.backends import Backend
from momentous.lowrank.checks import check_number
from momentous.lowrank.data.ratings import Ratings
from momentous.lowrank.data.vocabulary import UNKNOWN, Positions
from momentous.lowrank.model.fitted import LowRankModel, cells, of_rows

SCORES = 1 << 20  # that are held at a time


class RankingMetrics(NamedTuple):
    """Means over the users who have something relevant held out; all lie between 0 and 1.

    A hit is a relevant item among the first k that are recommended.  Recommended is what the model
    has not seen of a user.  An item that the model does not know is a miss.
    """

    ndcg: float  # sum of 1/log2(1 + place) over the hits, over that of the best order
    map: float  # mean over the first min(k, relevant) hits of hits so far / place; a miss is 0
    recall: float  # hits / relevant items
    precision: float  # hits / k
    auc: float  # how often a relevant item is above another one, in the whole order
    users: int  # over whom the means are taken
    capped_recall: float  # hits / min(k, relevant items): 1 can be reached


def ranking_metrics(
    model: LowRankModel,
    held_out: Ratings,
    k: int = 10,
    relevant: float | None = None,
    *,
    backend: str | Backend = "auto",
    device: str = "cpu",
) -> RankingMetrics:
    """Compare the first k recommendations of each user with what was held out.

    Relevant are the entries of at least that value; by default all, and of labels those of +1.
    Users whom the model does not know are left out, and so are entries that it was fitted to.
    """
    check_number("k", k, 1, whole=True)
    rows, cols = _relevant(model, held_out, relevant)
    if not rows.size:
        raise ValueError(
            f"none of the {held_out.nnz} entries is relevant and new for a user whom the model "
            f"knows (relevant={relevant}): hold out entries of users of the fit, or lower relevant"
        )
    users, own, counts = np.unique(rows, return_inverse=True, return_counts=True)
    best, _ = model.best_columns(users, k, backend=backend, device=device)
    known, width = cols != UNKNOWN, len(model.cols)
    wanted = own[known].astype(np.int64) * width + cols[known]
    hits = np.isin(np.arange(len(users))[:, None] * width + best, wanted) & (best != UNKNOWN)
    places = np.arange(1, hits.shape[1] + 1)
    most = np.minimum(counts, k)
    discounts = 1.0 / np.log2(1.0 + np.arange(1, k + 1))
    ideal = np.cumsum(discounts)[most - 1]
    so_far = np.cumsum(hits, axis=1) / places
    return RankingMetrics(
        ndcg=float(np.mean(hits @ discounts[: hits.shape[1]] / ideal)),
        map=float(np.mean(np.sum(so_far * hits, axis=1) / most)),
        recall=float(np.mean(hits.sum(axis=1) / counts)),
        precision=float(np.mean(hits.sum(axis=1) / k)),
        auc=_auc(model, users, own[known], cols[known]),
        users=len(users),
        capped_recall=float(np.mean(hits.sum(axis=1) / most)),
    )


def fold_in_metrics(
    model: LowRankModel,
    given: Ratings,
    held_out: Ratings,
    *,
    backend: str | Backend = "auto",
    device: str = "cpu",
) -> dict[str, float]:
    """How well a model serves users whom it was not fitted to, from a part of their entries.

    They are folded in with what is ``given`` of them, and what was ``held_out`` should be
    recommended: recall at 20 and 50, over the most that can be reached, and NDCG at 100, as in
    Liang, Krishnan, Hoffman and Jebara (WWW 2018) and the papers that compare with theirs.
    """
    folded = model.fold_in(given, backend=backend, device=device)
    found = {
        k: ranking_metrics(folded, held_out, k, backend=backend, device=device)
        for k in (20, 50, 100)
    }
    recalls = {f"recall@{k}": found[k].capped_recall for k in (20, 50)}
    return recalls | {"ndcg@100": found[100].ndcg}


def _relevant(
    model: LowRankModel, held_out: Ratings, least: float | None
) -> tuple[Positions, Positions]:
    """The positions of what should be recommended: known rows, and columns that may be unknown."""
    rows, cols = model.positions(held_out)
    if least is None and model.loss.labels:
        least = 1.0
    chosen = rows != UNKNOWN
    if least is not None:
        chosen &= held_out.values >= least
    places = np.where(cols == UNKNOWN, UNKNOWN, rows * len(model.cols) + cols)
    for old in (model.seen, model.held_out):
        if old is not None:
            chosen &= ~np.isin(places, cells(old))
    return rows[chosen], cols[chosen]


def _auc(model: LowRankModel, users: Positions, own: Positions, cols: Positions) -> float:
    """The mean over users; of equal scores half is counted.  NaN where nobody has two to compare.

    A relevant item is compared with each one that is neither relevant nor seen.
    """
    order = np.argsort(own, kind="stable")
    cols, starts = cols[order], np.searchsorted(own[order], np.arange(len(users) + 1))
    areas = []
    length = max(1, SCORES // len(model.cols))
    for begin in range(0, len(users), length):
        part = users[begin : begin + length]
        scores = model.row_factors[part] @ model.col_factors.T + model.col_bias
        free = np.ones(scores.shape, bool)
        for old in (model.seen, model.held_out):
            if old is not None:
                known = of_rows(old.by_row, part)
                free[np.repeat(np.arange(len(part)), np.diff(known.starts)), known.others] = False
        for k, (row, others) in enumerate(zip(scores, free, strict=True), begin):
            wanted = cols[starts[k] : starts[k + 1]]
            others[wanted] = False
            below = np.sort(row[others])
            if wanted.size and below.size:
                found = row[wanted]
                sides = np.searchsorted(below, found), np.searchsorted(below, found, "right")
                areas.append(float(np.mean(sides) / below.size))
    return float(np.mean(areas)) if areas else float("nan")
