"""Backends: who does the arithmetic over the entries, one folder per backend, found by name."""

from momentous.lowrank.backends.base import (
    BACKENDS,
    Backend,
    RowStep,
    Side,
    find_backend,
    register_backend,
)

__all__ = [
    "BACKENDS",
    "Backend",
    "RowStep",
    "Side",
    "find_backend",
    "register_backend",
]
