"""Fitted models: predictions, recommendations, new rows, and files."""

from momentous.lowrank.model.files import load_model, save_model
from momentous.lowrank.model.fit import Fit, fit_model
from momentous.lowrank.model.fitted import LowRankModel, Recommended, Unknown

__all__ = [
    "Fit", "LowRankModel", "Recommended", "Unknown", "fit_model", "load_model", "save_model",
]  # fmt: skip
