"""Why a score is what it is: the share that each of a row's entries has in it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from momentous.io.types import AnyArray
from momentous.lowrank.checks import check_number
from momentous.lowrank.data.ids import Id
from momentous.lowrank.data.ratings import Floats
from momentous.lowrank.model.fitted import LowRankModel, known_position, of_rows


class Explanation(NamedTuple):
    """The items that a user has rated, and what each rating adds to the score of another item."""

    items: AnyArray  # those that add most first
    contributions: Floats
    rest: float  # the mean, the bias of the item, and what no rating accounts for
    score: float  # rest + the sum of the contributions of all ratings


def explain(model: LowRankModel, row: Id, col: Id, n: int | None = None) -> Explanation:
    """What each entry of a row adds to its score for a column; the n largest, or all.

    The parameters p of a row are the best for its entries, so that with ``f_k`` the features of the
    columns, ``w`` the weights of the penalty and l', l'' slope and curvature of the loss at p::

        A p = sum_k f_k (l''_k f_k.p - l'_k),    A = sum_k l''_k f_k f_k' + diag(w)

    and the score of column j is the sum of ``f_j' A^-1 f_k (l''_k f_k.p - l'_k)`` over the entries
    k, and of what does not depend on p.  For squares the last factor is the entry less the bias of
    its column; for implicit feedback, whose A has a part of all columns, it is Hu, Koren and
    Volinsky's explanation [1]_.  Scores are those of `LowRankModel.scores`, before they are cut to
    the range of the ratings or made a probability.

    .. [1] Y. Hu, Y. Koren, C. Volinsky, "Collaborative filtering for implicit feedback datasets",
       ICDM 2008, section 5.
    """
    if n is not None:
        check_number("n", n, 1, whole=True)
    i, j = known_position(model.rows, row, "row"), known_position(model.cols, col, "column")
    own = of_rows(model.seen.by_row, np.array([i]))
    others, loss = own.others, model.loss.of(own.values)
    features = model.col_factors.astype(np.float64)
    p = model.row_factors[i].astype(np.float64)
    if model.penalty.biases:
        features = np.column_stack([features, np.ones(len(features))])
        p = np.append(p, model.row_bias[i])
    of_entries = features[others]
    without_offset = of_entries @ p
    offsets = model.mean + model.col_bias.astype(np.float64)
    _, slope, curvature = loss.entries(without_offset + offsets[others], own.values)
    curvature = np.broadcast_to(curvature, slope.shape)
    weights = model.row_weights(own)[0]
    system = (of_entries.T * curvature) @ of_entries + np.diag(weights)
    if loss.dense_weight:
        system += loss.dense_weight * features.T @ features
    answer = np.linalg.lstsq(system, features[j])[0]  # the shortest, where entries leave a choice
    parts = (of_entries @ answer) * (curvature * without_offset - slope)
    score = float(features[j] @ p + offsets[j])
    rest = score - float(parts.sum())
    order = np.argsort(-parts, kind="stable")[:n]
    return Explanation(model.cols.ids[others[order]], parts[order], rest, score)
