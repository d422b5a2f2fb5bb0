"""Hyper-parameters: checks that methods share, and products that stay within floats."""

from __future__ import annotations

import math
from typing import Any

from momentous.core.machine import NUMBERS, Arithmetic
from momentous.core.method import Method

# Products and squares within these bounds have not lost digits to underflow or overflow.
SMALLEST, LARGEST = 1e-290, 1e290


def check(method: Method, name: str, is_valid: bool, words: str) -> None:
    """Is that parameter what the words say?"""
    if not is_valid:
        value = getattr(method, name)
        raise ValueError(f"{type(method).__name__}: {name}={value!r} {words}")


def check_positive(method: Method, *names: str) -> None:
    """Each parameter that is given must be positive (infinity included)."""
    for name in names:
        value = getattr(method, name)
        check(method, name, value is None or value > 0, "must be positive")


def check_momentum(method: Method, momentum: float | None) -> None:
    """1 - theta, if it is given."""
    is_valid = momentum is None or 0 <= momentum < 1
    check(method, "momentum", is_valid, "(1 - theta) must be in [0, 1)")


def check_whole(method: Method, name: str, symbol: str = "") -> None:
    """A parameter that must be a whole number >= 1, if it is given."""
    value = getattr(method, name)
    is_valid = value is None or (isinstance(value, int | float) and value >= 1 and value % 1 == 0)
    check(method, name, is_valid, f"{symbol} must be a whole number >= 1".lstrip())


def needed(method: Method, name: str, instead: str) -> float:
    """A parameter that must be given."""
    value: float | None = getattr(method, name)
    if value is None:
        raise ValueError(
            f"{type(method).__name__} needs {name}= (or {instead} by hand); method='auto' needs "
            "no constants"
        )
    return value


def root_of_product(a: Any, b: Any, m: Arithmetic = NUMBERS) -> Any:
    """sqrt(a b), where the product may be no float."""
    fits = (a * b > SMALLEST) & (a * b < LARGEST)
    return m.where(fits, m.sqrt(a * b), m.sqrt(a) * m.sqrt(b))


def square_over(a: float, b: float) -> float:
    """a^2/b, where the square may be no float."""
    return a * a / b if SMALLEST < a * a < LARGEST else a / b * a


def cube_root_of_product(a: float, b: float) -> float:
    """cbrt(a b^2), where the product may be no float."""
    product = a * b * b
    return math.cbrt(product) if SMALLEST < product < LARGEST else math.cbrt(a) * math.cbrt(b) ** 2
