"""Simple terms in compiled code: of an array as it is, and of other pytrees as one flat vector."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from momentous.core.box import Entries
from momentous.core.penalties import L1, Ball, ElasticNet, GroupL2, Penalty, Simplex, check_term

for _cls in (L1, ElasticNet, GroupL2, Simplex, Ball):
    _names = [field.name for field in dataclasses.fields(_cls)]
    # Weights are arrays of a compiled program: they may change, and be vmapped.
    _data = [name for name in _names if name != "groups"]
    jax.tree_util.register_dataclass(_cls, _data, [name for name in _names if name == "groups"])


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class OwnTerm:
    """A term of the user's own, which is fixed when a run is compiled."""

    term: Any

    def tree_flatten(self) -> tuple[tuple[()], Any]:
        return (), self.term

    @classmethod
    def tree_unflatten(cls, term: Any, _: Any) -> OwnTerm:
        return cls(term)


def as_argument(term: Any) -> Any:
    """The term as an argument of compiled code."""
    check_term(term)
    leaves = jax.tree.leaves(term)
    return OwnTerm(term) if len(leaves) == 1 and leaves[0] is term else term


class CompiledPenalty(Penalty):
    """A simple term of arrays of JAX."""

    __slots__ = ()

    def __init__(self, given: Any):
        super().__init__(given.term if isinstance(given, OwnTerm) else given)

    def apply(self, m: Entries, function: Any, x: jax.Array, *others: Any) -> jax.Array:
        made: jax.Array = function(x, *(jnp.asarray(each, x.dtype) for each in others))
        return made

    def value(self, m: Entries, x: jax.Array) -> jax.Array:
        return jnp.asarray(self.apply(m, self.term.value, x), float)

    def start(self, m: Entries, x0: jax.Array) -> jax.Array:
        """x0, or prox(x0, 1) where the term is infinite there."""
        return jnp.where(jnp.isfinite(self.value(m, x0)), x0, self.prox(m, x0, 1.0))
