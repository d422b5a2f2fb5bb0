"""Is a function jitted by JAX?  What is compiled of such a function is kept between runs."""

from momentous.io.types import AnyFunction


def is_jitted(fun: AnyFunction) -> bool:
    """JAX's contract is then that what it reads besides its arguments does not change."""
    import jax

    return isinstance(fun, type(jax.jit(len)))
