"""For users of JAX."""

from momentous.jax.compiled import Solution, solve

__all__ = ["Solution", "solve"]
