"""Bounds of pytrees: in SciPy's forms, leaf by leaf, or as a pair of trees."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from momentous.core.box import Sides, read_sides, sides_or_pairs
from momentous.jax.vectors import Tree


def tree_of_bounds(bounds: Any, x0: Tree) -> tuple[Tree, Tree] | None:
    """Lower and upper bounds like x0, or None where none is finite.

    ``bounds`` is a tree like x0 with the bounds of each leaf in any form that `minimize` takes; or
    a pair of a lower and an upper side, each a number, None or a tree like x0.  Of one array it is
    all that `minimize` takes.  A tuple of two is that pair wherever it can be read so.  Inside of
    compiled code the values of bounds are not checked.
    """
    leaves, tree = jax.tree.flatten(x0)
    known = not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(bounds))
    sides = []
    for leaf, given in zip(leaves, _of_leaves(bounds, tree), strict=True):
        dtype = str(leaf.dtype)
        sides.append(read_sides(given, leaf.shape, dtype) if known else _traced(given, leaf))
    if known and not any(np.isfinite(side).any() for pair in sides for side in pair):
        return None
    lower, upper = (
        tree.unflatten([jnp.asarray(side, leaf.dtype) for side, leaf in zip(*pair, strict=True)])
        for pair in ((each, leaves) for each in zip(*sides, strict=True))
    )
    return lower, upper


def _of_leaves(bounds: Any, tree: Any) -> list[Any]:
    """The bounds of each leaf."""
    count = tree.num_leaves
    if jax.tree_util.treedef_is_leaf(tree):
        return [sides_or_pairs(bounds)]
    if isinstance(bounds, tuple) and len(bounds) == 2:
        # A number, or None, is for all leaves.
        numbers = (type(None), int, float, np.generic, np.ndarray, jax.Array)
        sides = [
            [side] * count if isinstance(side, numbers) else tree.flatten_up_to(side)
            for side in bounds
        ]
        return [Sides(*both) for both in zip(*sides, strict=True)]
    return [sides_or_pairs(given) for given in tree.flatten_up_to(bounds)]


def _traced(bounds: Any, leaf: Any) -> tuple[Any, Any]:
    if isinstance(bounds, Sides) or (len(bounds) == 2 and leaf.size != 2):
        lower, upper = bounds
        return _side(lower, leaf, -jnp.inf), _side(upper, leaf, jnp.inf)
    pairs = list(bounds)  # one for each entry
    if len(pairs) != leaf.size or any(len(pair) != 2 for pair in pairs):
        raise ValueError(
            f"bounds= has {len(pairs)} parts for {leaf.size} variables: inside of compiled code "
            "give (lower, upper), each a number, None or an array, or one pair per variable"
        )
    low, high = (
        jnp.stack([_side(each, jnp.zeros((), leaf.dtype), missing) for each in sides])
        for sides, missing in zip(zip(*pairs, strict=True), (-jnp.inf, jnp.inf), strict=True)
    )
    return low.reshape(leaf.shape), high.reshape(leaf.shape)


def _side(side: Any, like: Any, missing: float) -> Any:
    """Bounds of the shape and dtype of an array."""
    given = missing if side is None else side
    return jnp.broadcast_to(jnp.asarray(given, like.dtype), like.shape)
