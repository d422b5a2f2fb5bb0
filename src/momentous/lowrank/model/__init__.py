"""Fitted models: predictions, recommendations and their reasons, new entries, files."""

from momentous.lowrank.model.explain import Explanation, explain
from momentous.lowrank.model.files import load_model, save_model
from momentous.lowrank.model.fit import Fit, fit_model
from momentous.lowrank.model.fitted import LowRankModel, Recommended, Similar, Unknown
from momentous.lowrank.model.ranking import RankingMetrics, fold_in_metrics, ranking_metrics
from momentous.lowrank.model.update import updated

__all__ = [
    "Explanation", "Fit", "LowRankModel", "RankingMetrics", "Recommended", "Similar", "Unknown",
    "explain", "fit_model", "fold_in_metrics", "load_model", "ranking_metrics", "save_model",
    "updated",
]  # fmt: skip
