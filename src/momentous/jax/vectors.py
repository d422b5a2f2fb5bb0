"""Vectors that are pytrees of arrays: what the compiled methods do with them.

The formulas are those of `momentous.core.passes`, leaf by leaf; sums are made in the widest
floating-point type that JAX has switched on (with ``jax_enable_x64`` in double precision, whatever
the leaves are).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from momentous.core import passes
from momentous.core.passes import Pass

Tree = Any
Scalar = Any


class Limits(NamedTuple):
    """What the numbers of a run can hold."""

    rounding: float  # unit roundoff of the coarsest leaf
    largest: float  # of any leaf
    smallest: float  # positive number whose square and inverse are numbers
    dimension: int

    @staticmethod
    def of(x: Tree) -> Limits:
        leaves = jax.tree.leaves(x)
        kinds = [jnp.finfo(leaf.dtype) for leaf in leaves] or [jnp.finfo(wide())]
        return Limits(
            max(float(kind.eps) for kind in kinds) / 2,
            min(float(kind.max) for kind in kinds),
            1e-150 if wide() == jnp.float64 else 1e-18,
            sum(math.prod(leaf.shape) for leaf in leaves),
        )


def wide() -> Any:
    """The dtype of sums and of all numbers that decide something."""
    return jnp.result_type(float)


def number(value: Any) -> Scalar:
    """A number of that dtype."""
    return jnp.asarray(value, wide())


def run(work: Pass, vectors: tuple[Tree, ...], numbers: tuple[Any, ...] = ()) -> Any:
    """The new vectors and the sums of a pass, as `Space.compute` gives them."""
    tree = jax.tree.structure(vectors[0])
    columns = [jax.tree.leaves(vector) for vector in vectors]
    made, sums = [], None
    for leaves in zip(*columns, strict=True):
        weights = [jnp.asarray(value).astype(leaves[0].dtype) for value in numbers]
        fresh, products = work.formula(*leaves, *weights)
        made.append(fresh)
        here = [jnp.sum(a.astype(wide()) * b.astype(wide())) for a, b in products]
        sums = here if sums is None else [a + b for a, b in zip(sums, here, strict=True)]
    vectors = tuple(tree.unflatten(column) for column in zip(*made, strict=True))
    return vectors, tuple(sums or ())


def inner(a: Tree, b: Tree) -> Scalar:
    return run(passes.INNER, (a, b))[1][0]


def norm(a: Tree) -> Scalar:
    """The Euclidean norm, in units of the largest entry, whose square may overflow: two passes over
    the vector, and no branch."""
    sizes = [number(jnp.max(jnp.abs(leaf), initial=0.0)) for leaf in jax.tree.leaves(a)]
    largest = jnp.max(jnp.stack(sizes)) if sizes[1:] else sizes[0]
    unit = jnp.where(largest > 0.0, largest, 1.0)
    parts = [jnp.sum(jnp.square(leaf.astype(wide()) / unit)) for leaf in jax.tree.leaves(a)]
    return unit * jnp.sqrt(sum(parts, number(0.0)))


def distance_squared(a: Tree, b: Tree) -> Scalar:
    return run(passes.DISTANCE, (a, b))[1][0]


def combination(x: Tree, weight: Any, y: Tree, z: Tree = None) -> Tree:
    """x + weight (y - z), or x + weight y without z."""
    if z is None:
        return run(passes.ADD, (x, y), (weight,))[0][0]
    return run(passes.ADD_DIFFERENCE, (x, y, z), (weight,))[0][0]


def stepped(x: Tree, weight: Any, y: Tree, origin: Tree) -> tuple[Tree, Scalar]:
    """z = x + weight y, and |z - origin|^2."""
    (made,), (square,) = run(passes.STEPPED, (x, y, origin), (weight,))
    return made, square


def select(condition: Scalar, a: Any, b: Any) -> Any:
    """Leaf by leaf, of a where the condition holds and of b where not."""
    return jax.tree.map(lambda p, q: p if p is q else jnp.where(condition, p, q), a, b)
