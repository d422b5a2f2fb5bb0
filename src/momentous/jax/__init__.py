"""For users of JAX: functions of pytrees, and whole runs that are compiled.

- `minimize` and `iterate`: every method, over pytrees, with a compiled gradient;
- `solve`: every rule ("auto" among them) as one compiled loop;
- `AdaRAGD`, `RAGD` and the other classes of methods that `solve` takes: the same as minimisers of
  Optimistix (which must be installed).
"""

from typing import TYPE_CHECKING

from momentous.io.optional import require

require("jax", "jax", "momentous.jax")

from momentous.jax.compiled import solve  # noqa: E402
from momentous.jax.driver import Solution  # noqa: E402
from momentous.jax.pytrees import iterate, minimize  # noqa: E402
from momentous.methods.registry import rules  # noqa: E402

if TYPE_CHECKING:
    from momentous.jax.minimisers import AbstractMomentous

__all__ = [
    "Solution", "iterate", "minimize", "solve",
    *(cls.__name__ for cls in rules().values()),
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> "type[AbstractMomentous]":
    """The minimisers, when they are first used: Optimistix is needed for them alone."""
    if name not in {cls.__name__ for cls in rules().values()}:
        raise AttributeError(f"module 'momentous.jax' has no attribute {name!r}")
    require("optimistix", "jax", f"momentous.jax.{name}")
    from momentous.jax import minimisers

    return getattr(minimisers, name)  # type: ignore[no-any-return]
