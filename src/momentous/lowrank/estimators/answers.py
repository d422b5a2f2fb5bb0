"""Answers of estimators: recommendations, neighbours, reasons and metrics.

They are named tuples; of those of arrays ``pandas.DataFrame(answer._asdict())`` makes a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike

from momentous.io.types import AnyArray
from momentous.lowrank.checks import corrects_names
from momentous.lowrank.data.ids import Id, Ids, as_ids
from momentous.lowrank.estimators.scikit import BaseEstimator, check_is_fitted
from momentous.lowrank.model import (
    Explanation,
    RankingMetrics,
    Recommended,
    Similar,
    explain,
    fold_in_metrics,
    ranking_metrics,
)

if TYPE_CHECKING:
    from momentous.lowrank.backends import Backend
    from momentous.lowrank.data.ratings import Ratings
    from momentous.lowrank.data.vocabulary import Pairs
    from momentous.lowrank.model import LowRankModel, Unknown

    class Table(Protocol):
        """A table, or a column, of pandas, polars or Arrow."""


_OTHER = "score"  # a column of a table of recommendations beside ids


class Answers(BaseEstimator):
    """What a fitted estimator says beyond predictions."""

    if TYPE_CHECKING:
        model_: LowRankModel
        unknown: Unknown
        backend: str | Backend
        device: str

        def _further_ratings(self, X: Pairs, y: ArrayLike | None) -> Ratings: ...

    @property
    def _fitted(self) -> LowRankModel:
        check_is_fitted(self, "model_")
        return self.model_

    @corrects_names
    def recommend(
        self,
        user: Id,
        n: int = 10,
        exclude_seen: bool = True,
        *,
        allowed: Iterable[Id] | None = None,
        forbidden: Iterable[Id] | None = None,
    ) -> Recommended:
        """The n items that suit a user best, and their scores (ratings, probabilities, ...).

        Those that the user has rated are left out, and so are those that are ``forbidden``; with
        ``allowed``, only these are looked at.  A user who is not known is an error, or with
        ``unknown="mean"`` gets what all like.
        """
        return self._fitted.recommend(
            user, n, exclude_seen, self.unknown, allowed=allowed, forbidden=forbidden
        )

    @corrects_names
    def recommend_all(
        self,
        users: Ids | Table,
        n: int = 10,
        exclude_seen: bool = True,
        *,
        allowed: Iterable[Id] | None = None,
        forbidden: Iterable[Id] | None = None,
    ) -> list[Recommended] | Table:
        """The same for many users at once, on the device of the fit.

        One answer per user, in a list.  Users in a column of pandas, polars or Arrow: one table of
        the same kind, of users, items and scores.
        """
        model, make_table = self._fitted, _table_maker(users)
        asked = as_ids(users if make_table is None else np.asarray(users))  # type: ignore[arg-type]
        found = model.recommend_all(
            asked,
            n,
            exclude_seen,
            self.unknown,
            allowed=allowed,
            forbidden=forbidden,
            backend=self.backend,
            device=self.device,
        )
        if make_table is None:
            return found
        names = getattr(self, "feature_names_in_", None)
        user, item = ("user", "item") if names is None or _OTHER in names else names
        columns = {
            user: np.repeat(asked, [len(one.items) for one in found]),
            item: np.concatenate([model.cols.ids[:0], *(one.items for one in found)]),
            _OTHER: np.concatenate([model.row_bias[:0], *(one.scores for one in found)]),
        }
        return make_table(columns)

    @corrects_names
    def similar_items(self, item: Id, n: int = 10) -> Similar:
        """The items whose factors are most like those of an item, and their cosines with them."""
        return self._fitted.similar_columns(item, n)

    @corrects_names
    def similar_users(self, user: Id, n: int = 10) -> Similar:
        """The same for users."""
        return self._fitted.similar_rows(user, n)

    @corrects_names
    def explain(self, user: Id, item: Id, n: int | None = None) -> Explanation:
        """How much each of a user's ratings adds to the score of an item, the most first.

        The contributions of all of them and ``rest`` sum up to the score; see `Explanation`.
        """
        return explain(self._fitted, user, item, n)

    @corrects_names
    def ranking_metrics(
        self, X: Pairs, y: ArrayLike | None = None, k: int = 10, relevant: float | None = None
    ) -> RankingMetrics:
        """How well the first k recommendations meet what was held out; see `RankingMetrics`.

        ``relevant``: the least value of an entry that should be recommended; by default all should,
        and of labels those of the second class.
        """
        ratings = self._further_ratings(X, y)
        return ranking_metrics(
            self.model_, ratings, k, relevant, backend=self.backend, device=self.device
        )

    @corrects_names
    def fold_in_metrics(
        self, X: Pairs, y: ArrayLike | None = None, *, given: tuple[Pairs, ArrayLike | None]
    ) -> dict[str, float]:
        """Recall at 20 and 50 and NDCG at 100 of users who were not in the fit.

        They are folded in with the entries ``given``, a pair of X and y, and X and y here are what
        should be recommended to them; see `momentous.lowrank.model.fold_in_metrics`.
        """
        known, held_out = self._further_ratings(*given), self._further_ratings(X, y)
        return fold_in_metrics(
            self.model_, known, held_out, backend=self.backend, device=self.device
        )


def _table_maker(column: object) -> Callable[[dict[str, AnyArray]], Table] | None:
    """What makes a table of the kind that a column is of; None for arrays, lists and all else."""
    package = type(column).__module__.partition(".")[0]
    if not hasattr(column, "to_numpy") or package not in ("pandas", "polars", "pyarrow"):
        return None
    library = import_module(package)
    made: Callable[[dict[str, AnyArray]], Table] = (
        getattr(library, "DataFrame", None) or library.table
    )
    return made
