"""Low-rank models of partly observed matrices: ratings, likes, implicit feedback.

`Ratings` are the observed entries, from arrays, a file or a synthetic `twin`; `LowRankObjective` is
the function to minimise; `Sweep`, `ALSSweep` and `MMSweep` are maps for `momentous.accelerate`; the
estimators `MatrixCompletion`, `OneBitMatrixCompletion`, `ImplicitMF` and `LowRankImputer` put it
all together.  Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names as in _NAMES, for editors and type checkers
    from momentous.lowrank.backends import Backend as Backend
    from momentous.lowrank.backends import find_backend as find_backend
    from momentous.lowrank.backends import register_backend as register_backend
    from momentous.lowrank.data import RatingsFileError as RatingsFileError
    from momentous.lowrank.data import describe as describe
    from momentous.lowrank.data import fetch as fetch
    from momentous.lowrank.data import read_ratings as read_ratings
    from momentous.lowrank.data.by_time import split_by_time as split_by_time
    from momentous.lowrank.data.ratings import Compressed as Compressed
    from momentous.lowrank.data.ratings import Ratings as Ratings
    from momentous.lowrank.data.twins import twin as twin
    from momentous.lowrank.estimators import ImplicitMF as ImplicitMF
    from momentous.lowrank.estimators import LowRankImputer as LowRankImputer
    from momentous.lowrank.estimators import MatrixCompletion as MatrixCompletion
    from momentous.lowrank.estimators import OneBitMatrixCompletion as OneBitMatrixCompletion
    from momentous.lowrank.factors import balanced as balanced
    from momentous.lowrank.factors import svd_start as svd_start
    from momentous.lowrank.losses import Loss as Loss
    from momentous.lowrank.losses import find_loss as find_loss
    from momentous.lowrank.losses import register_loss as register_loss
    from momentous.lowrank.objective import LowRankObjective as LowRankObjective
    from momentous.lowrank.penalty import Penalty as Penalty
    from momentous.lowrank.solvers.metric import GaussNewton as GaussNewton
    from momentous.lowrank.solvers.metric import Metric as Metric
    from momentous.lowrank.solvers.metric import minimize_in_metric as minimize_in_metric
    from momentous.lowrank.solvers.sweeps import ALSSweep as ALSSweep
    from momentous.lowrank.solvers.sweeps import MMSweep as MMSweep
    from momentous.lowrank.solvers.sweeps import Sweep as Sweep

# The public names, by the module that each is imported from.
_NAMES = {
    "backends": ("Backend", "find_backend", "register_backend"),
    "data": ("RatingsFileError", "describe", "fetch", "read_ratings"),
    "data.by_time": ("split_by_time",),
    "data.ratings": ("Compressed", "Ratings"),
    "data.twins": ("twin",),
    "factors": ("balanced", "svd_start"),
    "losses": ("Loss", "find_loss", "register_loss"),
    "objective": ("LowRankObjective",),
    "penalty": ("Penalty",),
    "solvers.metric": ("GaussNewton", "Metric", "minimize_in_metric"),
    "solvers.sweeps": ("ALSSweep", "MMSweep", "Sweep"),
    "estimators": ("ImplicitMF", "LowRankImputer", "MatrixCompletion", "OneBitMatrixCompletion"),
}
_MODULE_OF = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names}

__all__ = sorted(_MODULE_OF)


if not TYPE_CHECKING:  # to type checkers a misspelt name is an error

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used, and keep it."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return value


def __dir__() -> list[str]:
    return __all__
