"""scikit-learn, which the estimators build on, or a message that says how to get it."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def scikit_learn(module: str) -> Any:
    """A module of scikit-learn."""
    try:
        return import_module(f"sklearn.{module}")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the estimators need scikit-learn ({error.name} is missing), which a library-only "
            'installation leaves out; install it with: pip install "momentous[app]"',
            name=error.name,
        ) from error
