"""Low-rank models of partly observed matrices: ratings, likes, implicit feedback.

`Ratings` are the observed entries, from arrays, a file or a synthetic `twin`; `LowRankObjective` is
the function to minimise; `Sweep`, `ALSSweep` and `MMSweep` are maps for `momentous.accelerate`; the
estimators `MatrixCompletion`, `OneBitMatrixCompletion`, `ImplicitMF` and `LowRankImputer` put it
all together.
"""

from importlib import import_module
from typing import Any

from momentous.lowrank.backends import Backend, find_backend, register_backend
from momentous.lowrank.data import RatingsFileError, describe, fetch, read_ratings
from momentous.lowrank.data.ratings import Compressed, Ratings
from momentous.lowrank.data.twins import twin
from momentous.lowrank.factors import balanced, svd_start
from momentous.lowrank.losses import Loss, find_loss, register_loss
from momentous.lowrank.objective import LowRankObjective
from momentous.lowrank.penalty import Penalty
from momentous.lowrank.solvers.metric import GaussNewton, Metric, minimize_in_metric
from momentous.lowrank.solvers.sweeps import ALSSweep, MMSweep, Sweep

__all__ = [
    "ALSSweep",
    "Backend",
    "Compressed",
    "GaussNewton",
    "Loss",
    "LowRankObjective",
    "MMSweep",
    "Metric",
    "Penalty",
    "Ratings",
    "RatingsFileError",
    "Sweep",
    "balanced",
    "describe",
    "fetch",
    "find_backend",
    "find_loss",
    "minimize_in_metric",
    "read_ratings",
    "register_backend",
    "register_loss",
    "svd_start",
    "twin",
]

_ESTIMATORS = ("ImplicitMF", "LowRankImputer", "MatrixCompletion", "OneBitMatrixCompletion")


def __getattr__(name: str) -> Any:
    """The estimators, which need scikit-learn, are imported when they are asked for."""
    if name in _ESTIMATORS:
        return getattr(import_module("momentous.lowrank.estimators"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ESTIMATORS])
