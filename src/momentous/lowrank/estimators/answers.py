"""Answers of estimators: recommendations, neighbours, reasons and metrics, as arrays or tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from momentous.io.types import AnyArray
from momentous.lowrank.data.ids import Id, Ids, as_ids
from momentous.lowrank.estimators.frames import (
    Column,
    Kind,
    Output,
    Table,
    as_column,
    as_table,
    check_output,
    ids_of,
    kind_of,
    names_of_ids,
)
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


Answer = TypeVar("Answer", Recommended, Similar)


class Answers(BaseEstimator):
    """What a fitted estimator says beyond predictions, and what its answers come in."""

    if TYPE_CHECKING:
        model_: LowRankModel
        unknown: Unknown
        backend: str | Backend
        device: str

        def _further_ratings(self, X: Pairs, y: ArrayLike | None) -> Ratings: ...

    def set_output(self, *, answers: Output) -> Self:
        """What answers come in, as scikit-learn's method of this name does for transformers.

        "input": columns and tables of pandas, polars or Arrow where the question came in one of
        these, and arrays otherwise.  "pandas", "polars", "arrow": always that, also from
        `recommend`, `similar_items`, `similar_users`, `explain` and `ranking_metrics`.  "default":
        arrays and named tuples.

        Without a call of this, `recommend_all` answers as for "input".  ``predict``,
        ``predict_proba`` and ``decision_function`` give arrays: scikit-learn's scorers and
        meta-estimators call them with tables, and need arrays back.
        """
        check_output(answers)
        # Under this name scikit-learn's clone keeps it.
        self._sklearn_output_config = {"answers": answers}
        return self

    def _kind(self, X: object = None) -> Kind | None:
        """The kind of table to answer with, if it is one."""
        wanted: Output = getattr(self, "_sklearn_output_config", {}).get("answers", "input")
        if wanted == "input":
            return kind_of(X)
        return None if wanted == "default" else wanted

    def _kind_of_prediction(self, X: object) -> Kind | None:
        """The same for the methods that scikit-learn calls: none until `set_output` asks for it."""
        return self._kind(X) if hasattr(self, "_sklearn_output_config") else None

    def _column(self, values: AnyArray, name: str, X: Pairs) -> Column:
        return as_column(self._kind_of_prediction(X), values, name, X)

    def _table(self, answer: Answer, *names: str) -> Answer | Table:
        """A named tuple as a table with these names, where tables are asked for."""
        kind = self._kind()
        parts = zip(names, answer[: len(names)], strict=True)
        return answer if kind is None else as_table(kind, dict(parts))

    def _id_names(self) -> tuple[str, str]:
        return names_of_ids(getattr(self, "feature_names_in_", None))

    def recommend(
        self,
        user: Id,
        n: int = 10,
        exclude_seen: bool = True,
        *,
        allowed: Iterable[Id] | None = None,
        forbidden: Iterable[Id] | None = None,
    ) -> Recommended | Table:
        """The n items that suit a user best, and their scores (ratings, probabilities, ...).

        Those that the user has rated are left out, and so are those that are ``forbidden``; with
        ``allowed``, only these are looked at.  A user who is not known is an error, or with
        ``unknown="mean"`` gets what all like.

        The answer is `Recommended`, a pair of arrays, or a table where `set_output` says so.
        """
        check_is_fitted(self, "model_")
        found = self.model_.recommend(
            user, n, exclude_seen, self.unknown, allowed=allowed, forbidden=forbidden
        )
        return self._table(found, self._id_names()[1], "score")

    def recommend_all(
        self,
        users: Ids | Column,
        n: int = 10,
        exclude_seen: bool = True,
        *,
        allowed: Iterable[Id] | None = None,
        forbidden: Iterable[Id] | None = None,
    ) -> list[Recommended] | Table:
        """The same for many users at once, on the device of the fit.

        One answer per user, in a list.  Users in a column of pandas, polars or Arrow (or where
        `set_output` says so): one table of users, items and scores.
        """
        check_is_fitted(self, "model_")
        kind = self._kind(users)
        if kind_of(users) is not None:
            users = ids_of(users)
        found = self.model_.recommend_all(
            users,
            n,
            exclude_seen,
            self.unknown,
            allowed=allowed,
            forbidden=forbidden,
            backend=self.backend,
            device=self.device,
        )
        if kind is None:
            return found
        user, item = self._id_names()
        counts = [len(one.items) for one in found]
        columns = {
            user: np.repeat(as_ids(users), counts),
            item: np.concatenate([self.model_.cols.ids[:0], *(one.items for one in found)]),
            "score": np.concatenate([self.model_.row_bias[:0], *(one.scores for one in found)]),
        }
        return as_table(kind, columns)

    def similar_items(self, item: Id, n: int = 10) -> Similar | Table:
        """The items whose factors are most like those of an item, and their cosines with them.

        The answer is `Similar`, a pair of arrays, or a table where `set_output` says so.
        """
        check_is_fitted(self, "model_")
        found = self.model_.similar_columns(item, n)
        return self._table(found, self._id_names()[1], "similarity")

    def similar_users(self, user: Id, n: int = 10) -> Similar | Table:
        """The same for users."""
        check_is_fitted(self, "model_")
        found = self.model_.similar_rows(user, n)
        return self._table(found, self._id_names()[0], "similarity")

    def explain(self, user: Id, item: Id, n: int | None = None) -> Explanation | Table:
        """How much each of a user's ratings adds to the score of an item, the most first.

        The contributions of all of them and ``rest`` sum up to the score; see `Explanation`.  As a
        table (see `set_output`) every row has ``rest`` and ``score`` beside the contribution.
        """
        check_is_fitted(self, "model_")
        found = explain(self.model_, user, item, n)
        kind = self._kind()
        if kind is None:
            return found
        columns = {self._id_names()[1]: found.items, "contribution": found.contributions}
        of_all = {"rest": found.rest, "score": found.score}
        columns |= {name: np.full(len(found.items), each) for name, each in of_all.items()}
        return as_table(kind, columns)

    def ranking_metrics(
        self, X: Pairs, y: ArrayLike | None = None, k: int = 10, relevant: float | None = None
    ) -> RankingMetrics | Table:
        """How well the first k recommendations meet what was held out; see `RankingMetrics`.

        ``relevant``: the least value of an entry that should be recommended; by default all should,
        and of labels those of the second class.
        """
        ratings = self._further_ratings(X, y)
        found = ranking_metrics(
            self.model_, ratings, k, relevant, backend=self.backend, device=self.device
        )
        kind = self._kind()
        if kind is None:
            return found
        return as_table(kind, {name: np.array([each]) for name, each in found._asdict().items()})

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
