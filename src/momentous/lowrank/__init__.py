"""Low-rank models of partly observed matrices: matrix completion and one-bit matrix completion.

`Ratings` are the observed entries, from arrays, a file or a synthetic `twin`; `LowRankObjective` is
the function to minimise; `ALSSweep` and `MMSweep` are maps for `momentous.accelerate`; the
estimators `MatrixCompletion`, `OneBitMatrixCompletion` and `LowRankImputer` put it all together.
"""

from importlib import import_module
from typing import Any

from momentous.lowrank.data import RatingsFileError, describe, fetch, read_ratings
from momentous.lowrank.data.ratings import Compressed, Ratings
from momentous.lowrank.data.twins import twin
from momentous.lowrank.metric import Metric, minimize_in_metric
from momentous.lowrank.objective import LowRankObjective
from momentous.lowrank.start import balanced, svd_start
from momentous.lowrank.sweeps import ALSSweep, MMSweep

__all__ = [
    "ALSSweep",
    "Compressed",
    "LowRankObjective",
    "MMSweep",
    "Metric",
    "Ratings",
    "RatingsFileError",
    "balanced",
    "describe",
    "fetch",
    "minimize_in_metric",
    "read_ratings",
    "svd_start",
    "twin",
]

_ESTIMATORS = ("LowRankImputer", "MatrixCompletion", "OneBitMatrixCompletion")


def __getattr__(name: str) -> Any:
    """The estimators, which need scikit-learn, are imported when they are asked for."""
    if name in _ESTIMATORS:
        return getattr(import_module("momentous.lowrank.estimators"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_ESTIMATORS])
