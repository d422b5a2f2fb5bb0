"""Passes of JAX: one jitted function per pass.

On one GPU it is one kernel, made by Pallas: XLA would read the vectors once for the new ones and
again for the sums.  Elsewhere XLA does as it sees fit; arrays that are spread over devices stay so,
and XLA adds up the sums of the shards.  Sums are in double precision also where JAX has that
switched off.

A jitted objective that is small is compiled together with the pass that follows it: one call per
iteration in place of two, and the gradient is used while it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from momentous.core.passes import NESTEROV, Pass, names, written

# A larger objective would take long to compile again with every pass; one that takes long itself
# has nothing to gain.  Operations, and bytes of constants within inner functions.
LARGEST, LARGEST_CONSTANTS = 200, 1 << 16
# What has been made of the user's jitted functions: they are compiled once per process.
_KNOWN: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()


# A program of a kernel handles so many entries; interpreted, it runs on the host, for tests.
BLOCK, INTERPRETED = 1024, False


def _applied(
    work: Pass, vectors: Sequence[Any], numbers: Any, value: Any, one_kernel: bool
) -> tuple[Any, Any]:
    """The new vectors, and the sums with the value behind them."""
    import jax.numpy as jnp

    length = 0 if numbers is None else len(numbers)
    count = len(written(work, *names(work, len(vectors), length)[:2])[2])
    if one_kernel and count:
        return _in_one_kernel(work, vectors, numbers, value, count)
    weights = [] if numbers is None else list(numbers.astype(vectors[0].dtype))
    made, products = work.formula(*vectors, *weights)
    doubles = [(a.astype(jnp.float64), b.astype(jnp.float64)) for a, b in products]
    sums = [jnp.sum(a * b) for a, b in doubles]
    if value is not None:
        sums.append(value.reshape(()).astype(jnp.float64))
    return made, jnp.stack(sums) if count else None


def _in_one_kernel(
    work: Pass, vectors: Sequence[Any], numbers: Any, value: Any, count: int
) -> tuple[Any, Any]:
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    shape, dtype, size = vectors[0].shape, vectors[0].dtype, vectors[0].size
    programs, given = -(-size // BLOCK), len(vectors)
    weights = 0 if numbers is None else len(numbers)

    def kernel(*places: Any) -> None:
        *made, sums = places[given + 2 :]
        program = pallas.program_id(0)
        begin = BLOCK * (programs - 1 - program if work.backwards else program)
        entries, there = pallas.ds(begin, BLOCK), begin + jnp.arange(BLOCK) < size
        # Entries behind the end are read as 0, and so are all that is made of them.
        read = [triton.load(a.at[entries], mask=there, other=0.0) for a in places[:given]]
        weight = places[given]
        fresh, products = work.formula(*read, *[weight[i].astype(dtype) for i in range(weights)])
        for place, a in zip(made, fresh, strict=True):
            triton.store(place.at[entries], a, mask=there)
        for i, (a, b) in enumerate(products):
            sums[i, program] = jnp.sum(a.astype(jnp.float64) * b.astype(jnp.float64))
        # The value is a sum, too: of itself, and zeros.
        sums[count, program] = jnp.where(
            program == 0, places[given + 1][0].astype(jnp.float64), 0.0
        )

    one = jax.ShapeDtypeStruct((size,), dtype)
    shares = jax.ShapeDtypeStruct((count + 1, programs), jnp.float64)
    run = pallas.pallas_call(
        kernel,
        out_shape=[*[one] * work.made, shares],
        grid=(programs,),
        interpret=INTERPRETED,
        compiler_params=None if INTERPRETED else triton.CompilerParams(num_warps=4, num_stages=1),
    )
    numbers = jnp.zeros(1) if numbers is None else numbers
    known = jnp.zeros(1) if value is None else value.reshape(1)
    *made, sums = run(*[a.reshape(-1) for a in vectors], numbers, known)
    sums = sums.sum(axis=1)
    return tuple([a.reshape(shape) for a in made]), sums[:count] if value is None else sums


@cache
def _jitted(work: Pass, one_kernel: bool) -> Any:
    import jax

    return jax.jit(
        lambda vectors, numbers, value: _applied(work, vectors, numbers, value, one_kernel)
    )


@cache
def _has_kernels(device: Any) -> bool:
    """Does Pallas work on this device?  It is tried out: old GPUs and some builds cannot."""
    import jax

    if device.platform != "gpu":
        return False
    ones = jax.device_put(np.ones(8, np.float32), device)
    try:
        with jax.enable_x64(True):
            run, numbers = _jitted(NESTEROV, True), np.array([1.0, 1.0])
            made, sums = run((ones, ones, ones), numbers, ones[:1])
            return bool(made[0].tolist() == [2.0] * 8 and sums.tolist() == [8.0, 8.0, 1.0])
    except Exception:  # whatever the compiler says: there is another way
        return False


class JaxPasses:
    """Runs passes on arrays of JAX."""

    def __init__(self, like: Any):
        import jax

        self._jax = jax
        devices = like.devices()
        self._one_kernel = (
            len(devices) == 1
            and like.dtype.name in ("float32", "float64")
            and (INTERPRETED or _has_kernels(next(iter(devices))))
        )
        self._numbers: dict[Pass, tuple[Any, Any]] = {}

    def brings(self, value: Any) -> bool:
        """Is this a scalar of JAX?"""
        return isinstance(value, self._jax.Array) and value.size == 1 and value.dtype.kind == "f"

    def __call__(
        self, work: Pass, vectors: Sequence[Any], numbers: Sequence[float], value: Any
    ) -> tuple[tuple[Any, ...], np.ndarray, float]:
        """The new vectors; and once they are there, the sums and the value."""
        made, answer = self.start(work, vectors, numbers, value)
        return made, *answer()

    def start(
        self, work: Pass, vectors: Sequence[Any], numbers: Sequence[float], value: Any
    ) -> tuple[tuple[Any, ...], Callable[[], tuple[Any, float]]]:
        """The same without the wait: the new vectors, and what gives the sums and the value."""
        with self._jax.enable_x64(True):
            weights = self._on_device(work, numbers)
            run = _jitted(work, self._one_kernel)
            made, sums = run(tuple(vectors), weights, value)

        def answer() -> tuple[Any, float]:
            if sums is None:
                return (), np.nan
            host = self._jax.device_get(sums)
            return host if value is None else host[:-1], float(host[-1])

        return made, answer

    def _on_device(self, work: Pass, numbers: Sequence[float]) -> Any:
        """Numbers that stay the same, as step sizes do, are kept on the device."""
        if not len(numbers):
            return None
        before, place = self._numbers.get(work, (None, None))
        if before != tuple(numbers):
            self._numbers[work] = tuple(numbers), None
            return np.array(numbers, np.float64)
        if place is None:
            place = self._jax.numpy.asarray(np.array(numbers, np.float64))
            self._numbers[work] = before, place
        return place

    def joined(self, fun: Any, x: Any, *, differentiate: bool) -> Any:
        """A function of the user in a form that `compute_joined` compiles together with passes:
        what gives value and gradient, or what gives a value and is to be differentiated.  None
        where that cannot be, or is not worth it."""
        if not isinstance(fun, type(self._jax.jit(len))):
            return None
        known = _KNOWN.setdefault(fun, {})
        key = x.shape, x.dtype, differentiate, self._jax.config.jax_enable_x64
        if key not in known:
            known[key] = self._join(self._jax.value_and_grad(fun) if differentiate else fun, x)
        return known[key]

    def _join(self, pair: Callable[[Any], Any], x: Any) -> _Joined | None:
        formula, shape = self._jax.make_jaxpr(pair, return_shape=True)(x)
        if not isinstance(shape, (tuple, list)) or len(shape) != 2:
            return None
        value, gradient = shape
        if getattr(value, "size", 0) != 1 or value.dtype.kind != "f":
            return None
        if gradient.shape != x.shape or gradient.dtype != x.dtype:
            return None
        formula = _unwrapped(formula)
        parts = list(_parts(formula.jaxpr))
        inner = sum(getattr(a, "nbytes", 8) for part in parts[1:] for a in part[1])
        if sum(part[0] for part in parts) > LARGEST or inner > LARGEST_CONSTANTS:
            return None
        return _Joined(formula)

    def compute_joined(
        self, joined: Any, x: Any, work: Pass, vectors: Sequence[Any], numbers: Sequence[float]
    ) -> tuple[Any, tuple[Any, ...], np.ndarray, float]:
        """The gradient; what a pass makes of it and of ``vectors``; and the value."""
        others = tuple([None if a is x else a for a in vectors])  # x itself is not read twice
        with self._jax.enable_x64(True):
            run = joined.with_pass(work, self._one_kernel)
            gradient, made, sums = run(joined.constants, x, others, self._on_device(work, numbers))
        host = self._jax.device_get(sums)
        return gradient, made, host[:-1], float(host[-1])


class _Joined:
    """Value and gradient as a formula of JAX; what it was closed over goes in as arguments, so that
    it is not copied into every compiled function."""

    def __init__(self, formula: Any):
        self._formula, self.constants = formula.jaxpr, tuple(formula.consts)
        self._runs: dict[tuple[Pass, bool], Any] = {}

    def with_pass(self, work: Pass, one_kernel: bool) -> Any:
        """The jitted function that does both."""
        if (work, one_kernel) not in self._runs:
            import jax
            from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

            def run(constants: Any, x: Any, others: Any, numbers: Any) -> Any:
                value, gradient = jaxpr_as_fun(ClosedJaxpr(self._formula, constants))(x)
                vectors = (gradient, *[x if a is None else a for a in others])
                return gradient, *_applied(work, vectors, numbers, value, one_kernel)

            self._runs[work, one_kernel] = jax.jit(run)
        return self._runs[work, one_kernel]


def _unwrapped(formula: Any) -> Any:
    """The formula within calls of jitted functions that do nothing else."""
    while len(formula.jaxpr.eqns) == 1:
        (call,) = formula.jaxpr.eqns
        within = call.params.get("jaxpr")
        whole = call.invars == formula.jaxpr.invars and call.outvars == formula.jaxpr.outvars
        if call.primitive.name not in ("jit", "pjit") or not whole or formula.consts:
            break
        formula = within
    return formula


def _parts(formula: Any) -> Iterator[tuple[int, Sequence[Any]]]:
    """Operations and constants of a formula, and of all that are within it."""
    yield len(formula.eqns), ()
    for call in formula.eqns:
        for item in call.params.values():
            for part in item if isinstance(item, (tuple, list)) else (item,):
                within = getattr(part, "jaxpr", part)
                if hasattr(within, "eqns"):
                    yield 0, getattr(part, "consts", ())
                    yield from _parts(within)
