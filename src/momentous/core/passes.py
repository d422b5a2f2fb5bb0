"""Passes: what an iteration does with its vectors, entry by entry, with every entry read once.

A pass makes new vectors out of given ones and sums up products of entries.  It is written once, as
a Python function of vectors and numbers in which only +, - and * occur: such a function can be
called with short vectors, traced by JAX, and its `trace` runs block by block on the host
(`core.blocks`) or is written out in CUDA and Triton.  The sums of a pass are made together: they
come to the host, and are added up over ranks, in one go.

A pass whose name begins with "gradient" has the gradient as its first vector and its square as its
first sum.  On a GPU it goes from the end to the beginning: what user code has written last is read
first, while the GPU's cache still has it, and what comes next finds the beginning there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

import array_api_compat
import numpy as np


class Entry(Protocol):
    """What formulas are written in: an entry of a vector, or all of them at once, or a number."""

    def __add__(self, other: Entry | float, /) -> Entry: ...
    def __sub__(self, other: Entry | float, /) -> Entry: ...
    def __rsub__(self, other: float, /) -> Entry: ...
    def __mul__(self, other: Entry | float, /) -> Entry: ...
    def __rmul__(self, other: float, /) -> Entry: ...


Vectors = tuple[Entry, ...]
Products = tuple[tuple[Entry, Entry], ...]
# Numbers of vectors that a pass may have besides its own; more are cut into groups.  Each number is
# a kernel to compile, which takes longer than many iterations; a vector that fills a place up, the
# first once more, is read from the cache.  Ten pairs are twenty vectors.
SIZES = (0, 20, 32)
MOST = SIZES[-1]


@dataclasses.dataclass(frozen=True)
class Pass:
    """``formula(*vectors, *numbers)`` gives new vectors, and pairs whose products are summed."""

    name: str
    formula: Callable[..., Any]  # -> Vectors, Products
    made: int = 0  # how many new vectors it makes

    @property
    def backwards(self) -> bool:
        """Does it go from the end to the beginning?"""
        return self.name.startswith("gradient")


def _inner(a: Entry, b: Entry) -> tuple[Vectors, Products]:
    return (), ((a, b),)


def _distance(a: Entry, b: Entry) -> tuple[Vectors, Products]:
    c = a - b
    return (), ((c, c),)


def _add(x: Entry, y: Entry, w: Entry) -> tuple[Vectors, Products]:
    return (x + w * y,), ()


def _add_difference(x: Entry, y: Entry, z: Entry, w: Entry) -> tuple[Vectors, Products]:
    return (x + w * (y - z),), ()


def _stepped(x: Entry, y: Entry, origin: Entry, w: Entry) -> tuple[Vectors, Products]:
    z = x + w * y
    c = z - origin
    return (z,), ((c, c),)


def _gradient(g: Entry) -> tuple[Vectors, Products]:
    return (), ((g, g),)


def _gradient_along(g: Entry, d: Entry) -> tuple[Vectors, Products]:
    return (), ((g, g), (g, d))


def _gradient_slopes(g: Entry, g_prev: Entry, d: Entry) -> tuple[Vectors, Products]:
    return (), ((g, g), (g_prev, d), (g, d))


def _ball(v: Entry, g: Entry, x: Entry, w: Entry) -> tuple[Vectors, Products]:
    u = v + w * g
    return (u, x + u), ((u, u),)


def _momentum(g: Entry, e: Entry, x: Entry, w: Entry, m: Entry) -> tuple[Vectors, Products]:
    z = e + w * g
    c = z - x
    return (z, z + m * c), ((g, g), (c, c))


def _free_nesterov(
    g: Entry, y: Entry, x: Entry, points: Entry, w: Entry, m: Entry, share: Entry
) -> tuple[Vectors, Products]:
    z = y + w * g
    c = z - x
    return (z, z + m * c, points + share * y), ((c, c),)


def _free_heavy_ball(
    g: Entry, x: Entry, x_prev: Entry, points: Entry, w: Entry, m: Entry, share: Entry
) -> tuple[Vectors, Products]:
    z = x + m * (x - x_prev) + w * g
    c = z - x
    return (z, points + share * x), ((c, c),)


INNER = Pass("inner", _inner)  # <a, b>
DISTANCE = Pass("distance", _distance)  # |a - b|^2
ADD = Pass("add", _add, 1)  # x + w y
ADD_DIFFERENCE = Pass("add_difference", _add_difference, 1)  # x + w (y - z)
STEPPED = Pass("stepped", _stepped, 1)  # z = x + w y, |z - origin|^2
GRADIENT = Pass("gradient", _gradient)  # |g|^2
GRADIENT_ALONG = Pass("gradient_along", _gradient_along)  # |g|^2, <g, d>
GRADIENT_SLOPES = Pass("gradient_slopes", _gradient_slopes)  # |g|^2, <g_prev, d>, <g, d>
BALL = Pass("ball", _ball, 2)  # u = v + w g, x + u; |u|^2
# x' = e + w g, e' = x' + m (x' - x); |g|^2, |x' - x|^2
MOMENTUM = Pass("gradient_momentum", _momentum, 2)
# x' as y + w g, with y' = x' + m (x' - x), or as x + m (x - x_prev) + w g; points + share y, or
# points + share x; |x' - x|^2
FREE_NESTEROV = Pass("free_nesterov", _free_nesterov, 3)
FREE_HEAVY_BALL = Pass("free_heavy_ball", _free_heavy_ball, 2)


@cache
def inners(count: int) -> Pass:
    """The products of ``count`` vectors with the one before them."""

    def formula(a: Entry, *vectors: Entry) -> tuple[Vectors, Products]:
        return (), tuple((vector, a) for vector in vectors)

    return Pass(f"inners_{count}", formula)


@cache
def weighted_sum(count: int) -> Pass:
    """w_1 a_1 + w_2 a_2 + ..."""

    def formula(*given: Entry) -> tuple[Vectors, Products]:
        return (_added_up(given[:count], given[count:]),), ()

    return Pass(f"weighted_sum_{count}", formula, 1)


@cache
def direction(count: int) -> Pass:
    """z = x + w_1 g + w_2 a_2 + ..., d = z - x; <g, d>, |d|^2.

    ``count`` vectors, the first of which is g, come after x.  With d as the difference of two
    points it is also, to the last bit, the step from x to z.
    """

    def formula(x: Entry, *given: Entry) -> tuple[Vectors, Products]:
        g, z = given[0], x + _added_up(given[:count], given[count:])
        d = z - x
        return (d, z), ((g, d), (d, d))

    return Pass(f"direction_{count}", formula, 2)


@cache
def new_pair(count: int) -> Pass:
    """y = g - g_prev; |g|^2, <s, g>, <y, g>, |s|^2, <s, y>, |y|^2, and the products of g with
    ``count`` more vectors."""

    def formula(g: Entry, g_prev: Entry, s: Entry, *vectors: Entry) -> tuple[Vectors, Products]:
        y = g - g_prev
        own = ((g, g), (s, g), (y, g), (s, s), (s, y), (y, y))
        return (y,), (*own, *((vector, g) for vector in vectors))

    return Pass(f"gradient_new_pair_{count}", formula, 1)


class Line(NamedTuple):
    """One operation of a formula: name = left sign right."""

    name: str
    left: str
    right: str
    sign: str

    def __str__(self) -> str:
        return f"{self.name} = {self.left} {self.sign} {self.right}"


class _Symbol:
    """What stands for a vector or a number when a formula is written out."""

    def __init__(self, name: str, lines: list[Line]):
        self.name, self.lines = name, lines

    def _line(self, sign: str, other: _Symbol) -> _Symbol:
        name = f"t{len(self.lines)}"
        self.lines.append(Line(name, self.name, other.name, sign))
        return _Symbol(name, self.lines)

    def __add__(self, other: _Symbol) -> _Symbol:
        return self._line("+", other)

    def __sub__(self, other: _Symbol) -> _Symbol:
        return self._line("-", other)

    def __mul__(self, other: _Symbol) -> _Symbol:
        return self._line("*", other)


def names(work: Pass, vectors: int, numbers: int) -> tuple[list[str], list[str], list[str]]:
    """Names for the vectors and the numbers of a pass, and for the vectors that it makes."""
    counts = (("a", vectors), ("w", numbers), ("z", work.made))
    given, weights, made = ([f"{letter}{i}" for i in range(count)] for letter, count in counts)
    return given, weights, made


def trace(
    work: Pass, vectors: Sequence[str], numbers: Sequence[str]
) -> tuple[list[Line], list[str], list[tuple[str, str]]]:
    """The formula of a pass line by line, the names of the new vectors, and the pairs of names
    whose products are summed."""
    lines: list[Line] = []
    made, products = work.formula(*(_Symbol(name, lines) for name in (*vectors, *numbers)))
    return lines, [a.name for a in made], [(a.name, b.name) for a, b in products]


def padded(vectors: Sequence[Any]) -> tuple[Any, ...]:
    """With the first one repeated, up to one of a few numbers: for each a pass is compiled."""
    count = next(size for size in SIZES if size >= len(vectors))
    return (*vectors, *[vectors[0]] * (count - len(vectors))) if vectors else ()


def add_shares(shares: np.ndarray, sums: int) -> tuple[list[float], float]:
    """Sums whose shares come one after the other from a GPU, and the value behind them."""
    return shares[:-1].reshape(sums, -1).sum(1).tolist(), float(shares[-1])


def _added_up(vectors: Vectors, weights: Vectors) -> Entry:
    total = weights[0] * vectors[0]
    for weight, vector in zip(weights[1:], vectors[1:], strict=True):
        total = total + weight * vector
    return total


def device_passes(like: Any) -> Any:
    """What runs passes in one kernel on arrays like this one, or None."""
    if array_api_compat.is_jax_array(like):
        return import_module("momentous.core.jax_passes").JaxPasses(like)
    if str(like.dtype).rsplit(".", 1)[-1] not in ("float32", "float64"):
        return None
    if array_api_compat.is_torch_array(like):
        if like.device.type != "cuda" or find_spec("triton") is None:
            return None
        return import_module("momentous.core.triton_passes").TritonPasses(like)
    if array_api_compat.is_cupy_array(like):
        return import_module("momentous.core.cuda_passes").CudaPasses(like)
    return None
