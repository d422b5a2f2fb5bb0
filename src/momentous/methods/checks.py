"""Hyper-parameters: checks that methods share, and products that stay within floats."""

from __future__ import annotations

import math

# Products and squares within these bounds have not lost digits to underflow or overflow.
SMALLEST, LARGEST = 1e-290, 1e290


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


def root_of_product(a: float, b: float) -> float:
    """sqrt(a b), where the product may be no float."""
    return math.sqrt(a * b) if SMALLEST < a * b < LARGEST else math.sqrt(a) * math.sqrt(b)


def square_over(a: float, b: float) -> float:
    """a^2/b, where the square may be no float."""
    return a * a / b if SMALLEST < a * a < LARGEST else a / b * a


def cube_root_of_product(a: float, b: float) -> float:
    """cbrt(a b^2), where the product may be no float."""
    product = a * b * b
    return math.cbrt(product) if SMALLEST < product < LARGEST else math.cbrt(a) * math.cbrt(b) ** 2
