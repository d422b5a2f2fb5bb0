"""For users of JAX: functions of pytrees, and whole runs that are compiled.

- `minimize` and `iterate`: every method, over pytrees, with a compiled gradient;
- `solve`: the paper's methods, the parameter-free ones and L-BFGS as one compiled loop;
- `RAGD`, `RHB`, `PerturbedRAGD`, `AdaRAGD`, `AdaRHB`, `ParameterFreeAGD`, `UniversalHeavyBall` and
  `LBFGS`: the same as minimisers of Optimistix (which must be installed).
"""

from typing import TYPE_CHECKING, Any

from momentous.io.optional import require

require("jax", "jax", "momentous.jax")

from momentous.jax.compiled import Solution, solve  # noqa: E402
from momentous.jax.pytrees import iterate, minimize  # noqa: E402

if TYPE_CHECKING:
    from momentous.jax.minimisers import LBFGS as LBFGS
    from momentous.jax.minimisers import RAGD as RAGD
    from momentous.jax.minimisers import RHB as RHB
    from momentous.jax.minimisers import AdaRAGD as AdaRAGD
    from momentous.jax.minimisers import AdaRHB as AdaRHB
    from momentous.jax.minimisers import ParameterFreeAGD as ParameterFreeAGD
    from momentous.jax.minimisers import PerturbedRAGD as PerturbedRAGD
    from momentous.jax.minimisers import UniversalHeavyBall as UniversalHeavyBall

_MINIMISERS = (
    "RAGD", "RHB", "PerturbedRAGD", "AdaRAGD", "AdaRHB", "ParameterFreeAGD", "UniversalHeavyBall",
    "LBFGS",
)  # fmt: skip

__all__ = ["Solution", "iterate", "minimize", "solve", *_MINIMISERS]


def __getattr__(name: str) -> Any:
    """The minimisers, when they are first used: Optimistix is needed for them alone."""
    if name not in _MINIMISERS:
        raise AttributeError(f"module 'momentous.jax' has no attribute {name!r}")
    require("optimistix", "jax", f"momentous.jax.{name}")
    from momentous.jax import minimisers

    return getattr(minimisers, name)
