"""Bounds of pytrees: in SciPy's forms, leaf by leaf, or as a pair of trees."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from momentous.core.box import read_sides
from momentous.jax.vectors import Tree


def tree_of_bounds(bounds: Any, x0: Tree) -> tuple[Tree, Tree] | None:
    """Lower and upper bounds like x0, or None where none is finite.

    ``bounds`` is a tree like x0 with the bounds of each leaf in any form that `minimize` takes; or
    a pair of a lower and an upper side, each a number, None or a tree like x0.  Of one array it is
    all that `minimize` takes.  Inside of compiled code bounds are taken as they are, unchecked.
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
        return [bounds]
    if isinstance(bounds, tuple) and len(bounds) == 2:
        # A number, or None, is for all leaves.
        numbers = (type(None), int, float, np.generic, np.ndarray, jax.Array)
        sides = [
            [side] * count if isinstance(side, numbers) else tree.flatten_up_to(side)
            for side in bounds
        ]
        return list(zip(*sides, strict=True))
    return list(tree.flatten_up_to(bounds))


def _traced(bounds: Any, leaf: Any) -> tuple[Any, Any]:
    lower, upper = bounds
    sides = ((-jnp.inf if lower is None else lower), (jnp.inf if upper is None else upper))
    low, high = (jnp.broadcast_to(jnp.asarray(side, leaf.dtype), leaf.shape) for side in sides)
    return low, high
