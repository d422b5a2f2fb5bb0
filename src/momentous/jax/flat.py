"""Pytrees as one array, and back: the methods of this library know of arrays alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from momentous.core.admission import both_of
from momentous.core.box import Sides, read_sides, sides_or_pairs
from momentous.core.jitted import is_jitted, kept

Tree = Any


class Flat:
    """A pytree as one array, and back.

    A tree of one leaf is that leaf, in its shape and spread over devices as it is; of several
    leaves all entries stand in one vector, of the widest of their dtypes.
    """

    vector: jax.Array
    tree: Callable[[jax.Array], Tree]

    def __init__(self, x0: Tree):
        x0 = jax.tree.map(_floating, x0)
        leaves, tree = jax.tree.flatten(x0)
        if not leaves:
            raise ValueError("x0 has no arrays in it: there is nothing to minimise over")
        self.structure = tree, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
        if len(leaves) == 1:
            self.vector, self.tree = leaves[0], lambda a: tree.unflatten([jnp.asarray(a)])
        else:
            self.vector, self.tree = ravel_pytree(x0)

    def function(self, fun: Callable[..., Any], has_aux: bool) -> Callable[..., Any]:
        """fun as a function of the array; the same one for a jitted function in every run."""
        if not is_jitted(fun):
            return self._of_array(lambda: fun, has_aux)
        key = "of array", self.structure, has_aux
        return kept(fun, key, lambda: jax.jit(self._of_array(ref(fun), has_aux)))

    def _of_array(self, fun: Callable[[], Any], has_aux: bool) -> Callable[..., Any]:
        tree = self.tree

        def of_array(a: jax.Array, *args: Any) -> Any:
            answer = fun()(tree(a), *args)
            return value_and_aux(answer)[0] if has_aux else answer

        return of_array

    def bounds(self, bounds: Any) -> Sides | None:
        """Lower and upper bounds like the array, or None where none is finite.

        ``bounds`` is a tree like x0 with the bounds of each leaf in any form that `minimize` takes;
        or a pair of a lower and an upper side, each a number, None or a tree like x0.  Of one array
        it is all that `minimize` takes.  A tuple of two is that pair wherever it can be read so.
        Inside of compiled code the values of bounds are not checked.
        """
        leaves, tree = jax.tree.flatten(self.tree(self.vector))
        known = not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(bounds))
        pairs = []
        for leaf, given in zip(leaves, _bounds_of_leaves(bounds, tree), strict=True):
            of_leaf = read_sides(given, leaf.shape, str(leaf.dtype)) if known else None
            pairs.append(of_leaf or _traced_sides(given, leaf))
        if known and not any(np.isfinite(side).any() for pair in pairs for side in pair):
            return None
        return Sides(*(Flat(tree.unflatten(side)).vector for side in zip(*pairs, strict=True)))


def value_and_aux(answer: Any) -> tuple[Any, Any]:
    """What a function returns that brings more than its value."""
    value, aux = both_of(answer, "with has_aux=True fun must return (value, aux)")
    return value, aux


def _floating(leaf: Any) -> jax.Array:
    """A leaf as an array of floating-point numbers."""
    leaf = jnp.asarray(leaf)
    if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
        raise TypeError(
            f"x0 has a leaf of dtype {leaf.dtype}; split it into real and imaginary parts, "
            "momentous minimises over real numbers only"
        )
    return leaf if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf.astype(float)


def _bounds_of_leaves(bounds: Any, tree: Any) -> list[Any]:
    """The bounds of each leaf."""
    if jax.tree_util.treedef_is_leaf(tree):
        return [sides_or_pairs(bounds)]
    if isinstance(bounds, tuple) and len(bounds) == 2:
        # A number, or None, is for all leaves.
        numbers = (type(None), int, float, np.generic, np.ndarray, jax.Array)
        sides = [
            [side] * tree.num_leaves if isinstance(side, numbers) else _of_leaves(side, tree)
            for side in bounds
        ]
        return [Sides(*both) for both in zip(*sides, strict=True)]
    of_leaves = _of_leaves(bounds, tree)
    return [Sides(None, None) if each is None else sides_or_pairs(each) for each in of_leaves]


def _of_leaves(bounds: Any, tree: Any) -> list[Any]:
    """What a tree like x0 has for each of its leaves."""
    try:
        return tree.flatten_up_to(bounds)  # type: ignore[no-any-return]
    except ValueError:
        words = str(tree.unflatten(["(0, None)"] * tree.num_leaves)).replace(
            "'(0, None)'", "(0, None)"
        )
        raise ValueError(
            f"bounds={bounds!r:.200} must be like x0, which is a tree of {tree.num_leaves} arrays: "
            f"{words:.200}, with None "
            "for a leaf without bounds; or a tuple (lower, upper), each a number, None or a tree "
            "like x0.  SciPy's pairs and Bounds are for one array, or for one leaf"
        ) from None


def _traced_sides(bounds: Any, leaf: jax.Array) -> tuple[jax.Array, jax.Array]:
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


def _side(side: Any, like: jax.Array, missing: float) -> jax.Array:
    """Bounds of the shape and dtype of an array."""
    given = missing if side is None else side
    return jnp.broadcast_to(jnp.asarray(given, like.dtype), like.shape)
