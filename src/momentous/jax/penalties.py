"""Simple terms in compiled code: of an array as it is, and of other pytrees as one flat vector."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from momentous.core.box import Entries
from momentous.core.penalties import L1, Ball, ElasticNet, GroupL2, Penalty, Simplex, check_term


def _register(cls: type) -> None:
    """Make a pytree of a term: its numbers are arrays of a compiled program, which may change and
    be vmapped; labels are a part of the program."""
    names = [field.name for field in dataclasses.fields(cls)]
    data = [name for name in names if name != "groups"]
    rest = [name for name in names if name == "groups"]

    def flatten(term: Any) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(term, name) for name in data], tuple(getattr(term, name) for name in rest)

    def unflatten(labels: tuple[Any, ...], leaves: Iterable[Any]) -> Any:
        term: Any = object.__new__(
            cls
        )  # unchecked: JAX puts axes and marks in the place of numbers
        for name, value in zip([*data, *rest], [*leaves, *labels], strict=True):
            object.__setattr__(term, name, value)
        return term

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)


for _cls in (L1, ElasticNet, GroupL2, Simplex, Ball):
    _register(_cls)


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
