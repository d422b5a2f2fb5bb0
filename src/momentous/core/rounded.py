"""Bounds as text that are still bounds: rounded down or up, never to the nearest."""

import decimal
import math


def at_least(bound: float, digits: int = 3) -> str:
    """A lower bound, rounded down: "none is below ..."."""
    return _text(bound, digits, decimal.ROUND_FLOOR)


def at_most(bound: float, digits: int = 3) -> str:
    """An upper bound, rounded up: "an error of ..."."""
    return _text(bound, digits, decimal.ROUND_CEILING)


def _text(number: float, digits: int, rounding: str) -> str:
    if math.isfinite(number):
        context = decimal.Context(prec=digits, rounding=rounding)
        number = float(context.create_decimal(repr(float(number))))  # 0.1 is 0.1, not a bit more
    return f"{number:.{digits}g}"
