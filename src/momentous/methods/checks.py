"""Checks of hyper-parameters that several methods share."""

from __future__ import annotations


def check_positive(owner: str, **values: float | None) -> None:
    """Each value that is given must be positive (infinity included)."""
    for name, value in values.items():
        if value is not None and not value > 0:
            raise ValueError(f"{owner}: {name}={value!r} must be positive")


def check_momentum(owner: str, momentum: float | None) -> None:
    """1 - theta, if it is given."""
    if momentum is not None and not 0 <= momentum < 1:
        raise ValueError(f"{owner}: momentum={momentum!r} (1 - theta) must be in [0, 1)")


def check_whole(owner: str, symbol: str = "", **values: float | None) -> None:
    """Each value that is given must be a whole number >= 1."""
    for name, value in values.items():
        if value is not None and (value < 1 or value != int(value)):
            shown = f" ({symbol})" if symbol else ""
            raise ValueError(f"{owner}: {name}={value!r}{shown} must be a whole number >= 1")


def check_probability(owner: str, probability: float) -> None:
    """A probability of failure."""
    if not 0 < probability < 1:
        raise ValueError(f"{owner}: failure_probability={probability!r} must be in (0, 1)")


def needed(owner: str, name: str, value: float | None, instead: str) -> float:
    """A parameter that must be given."""
    if value is None:
        raise ValueError(
            f"{owner} needs {name}= (or {instead} by hand); method='auto' needs no constants"
        )
    return value
