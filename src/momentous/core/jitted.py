"""Is a function jitted by JAX?  What is compiled of such a function is kept between runs."""

from collections.abc import Callable, Hashable
from weakref import WeakKeyDictionary

from momentous.io.types import AnyFunction

_KEPT: WeakKeyDictionary[AnyFunction, dict[Hashable, AnyFunction]] = WeakKeyDictionary()


def is_jitted(fun: AnyFunction) -> bool:
    """JAX's contract is then that what it reads besides its arguments does not change."""
    import jax

    return isinstance(fun, type(jax.jit(len)))


def kept(fun: AnyFunction, key: Hashable, make: Callable[[], AnyFunction]) -> AnyFunction:
    """What an earlier run has made of a jitted function, or this one does; it may not hold fun."""
    made = _KEPT.setdefault(fun, {})
    if key not in made:
        made[key] = make()
    return made[key]
