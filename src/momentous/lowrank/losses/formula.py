"""The formula of a loss as text: what its Python does with symbols, one operation per line.

So a loss is written once, in NumPy's functions, and compiled for the CPU and the GPU from the same
lines.  `core.passes` writes its formulas in a similar way; those have sums and products alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

# What an operation of NumPy's looks like; its arguments are names or constants.
FUNCTIONS = ("exp", "expm1", "log", "log1p", "sqrt", "tanh")  # of the same name everywhere
EVERYWHERE = {
    "add": "{} + {}", "subtract": "{} - {}", "multiply": "{} * {}", "divide": "{} / {}",
    "negative": "-{}", "positive": "{}", "square": "{0} * {0}", "absolute": "fabs({})",
    "greater": "{} > {}", "greater_equal": "{} >= {}", "less": "{} < {}", "less_equal": "{} <= {}",
    "equal": "{} == {}", "not_equal": "{} != {}",
    **{name: f"{name}({{}})" for name in FUNCTIONS},
}  # fmt: skip
PYTHON = EVERYWHERE | {
    "where": "{1} if {0} else {2}",
    "maximum": "{0} if {0} > {1} else {1}",
    "minimum": "{0} if {0} < {1} else {1}",
    "power": "{} ** {}",
}
C = EVERYWHERE | {
    "where": "{0} ? {1} : {2}",
    "maximum": "{0} > {1} ? {0} : {1}",
    "minimum": "{0} < {1} ? {0} : {1}",
    "power": "pow({}, {})",
}


class Line(NamedTuple):
    """``name = operation(*arguments)``; an argument is a name or a number."""

    name: str
    operation: str
    arguments: tuple[str | float, ...]


class Symbol(NDArrayOperatorsMixin):
    """What stands for a number when a formula is written down."""

    def __init__(self, name: str, lines: list[Line]):
        self.name, self.lines = name, lines

    def _note(self, operation: str, *arguments: Symbol | float) -> Symbol:
        if operation not in PYTHON:
            raise TypeError(
                f"np.{operation} cannot be compiled in the formula of a loss; known are "
                f"{', '.join(PYTHON)}"
            )
        given = tuple(one.name if isinstance(one, Symbol) else float(one) for one in arguments)
        if not all(isinstance(one, str) or math.isfinite(one) for one in given):
            raise TypeError(f"np.{operation}: constants of the formula of a loss must be finite")
        line = Line(f"t{len(self.lines)}", operation, given)
        self.lines.append(line)
        return Symbol(line.name, self.lines)

    def __array_ufunc__(
        self, function: np.ufunc, method: str, *arguments: Symbol | float, **options: object
    ) -> Symbol:
        if function is np.sign:
            (z,) = arguments
            below = self._note("where", self._note("less", z, 0.0), -1.0, 0.0)
            return self._note("where", self._note("greater", z, 0.0), 1.0, below)
        return self._note(function.__name__, *arguments)

    def __array_function__(
        self, function: Callable[..., Any], kinds: Sequence[type],
        arguments: tuple[Symbol | float, ...], options: dict[str, object],
    ) -> Symbol:  # fmt: skip
        if function is np.clip:
            z, low, high = arguments
            return self._note("minimum", self._note("maximum", z, low), high)
        return self._note(function.__name__, *arguments)

    def __bool__(self) -> bool:
        raise TypeError(
            "the formula of a loss cannot branch on a number: write np.where(condition, a, b)"
        )


class Formula(NamedTuple):
    """Lines in order, and what they give: names or numbers."""

    lines: tuple[Line, ...]
    results: tuple[str | float, ...]

    @classmethod
    def of(cls, function: Callable[..., Any], *names: str | tuple[str, ...]) -> Formula:
        """What a function does with arguments of these names; it returns a number or several."""
        lines: list[Line] = []
        given = (
            Symbol(name, lines)
            if isinstance(name, str)
            else tuple(Symbol(one, lines) for one in name)
            for name in names
        )
        made = function(*given)
        made = made if isinstance(made, tuple) else (made,)
        results = tuple(one.name if isinstance(one, Symbol) else float(one) for one in made)
        needed, kept = set(results), list[Line]()
        for line in reversed(lines):
            if line.name in needed:
                needed.update(line.arguments)
                kept.insert(0, line)
        return cls(tuple(kept), results)

    def in_python(self) -> str:
        """The body of a function that returns a tuple."""

        def text(one: str | float) -> str:
            # -2.0 ** z is -(2.0 ** z)
            return f"({one!r})" if isinstance(one, float) and one < 0.0 else str(one)

        lines = [
            f"    {line.name} = " + PYTHON[line.operation].format(*map(text, line.arguments))
            for line in self.lines
        ]
        return "\n".join([*lines, f"    return {', '.join(map(str, self.results))},"])

    def in_c(self, number: str) -> str:
        """The body of a function in C++ that returns a struct, with numbers of this type."""

        def text(one: str | float) -> str:
            return one if isinstance(one, str) else f"{number}({one!r})"

        lines = [
            f"const auto {line.name} = " + C[line.operation].format(*map(text, line.arguments))
            for line in self.lines
        ]
        return ";\n    ".join([*lines, f"return {{{', '.join(map(text, self.results))}}};"])
