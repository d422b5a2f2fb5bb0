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

from momentous.core.jax_mail import JaxMail, has_mail, mailed
from momentous.core.jitted import is_jitted
from momentous.core.passes import MOMENTUM, Pass, names, written

# A larger objective would take long to compile again with every pass; one that takes long itself
# has nothing to gain.  Operations, and bytes of constants within inner functions.
LARGEST, LARGEST_CONSTANTS = 200, 1 << 16
# What has been made of the user's jitted functions: they are compiled once per process.
_KNOWN: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()


# A program of a kernel handles so many entries at a time, and there are at most so many programs.
BLOCK, PROGRAMS = 512, 1024
MANY = 8  # sums; with more of them a thread has two entries at a time in place of four
INTERPRETED = False  # runs kernels on the host, for tests


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
    blocks, given = -(-size // BLOCK), len(vectors)
    programs = min(blocks, PROGRAMS)
    weights = 0 if numbers is None else len(numbers)

    def kernel(*places: Any) -> None:
        *made, shares = places[given + 2 :]
        program = pallas.program_id(0)
        weight = [places[given][i].astype(dtype) for i in range(weights)]

        def add(turn: Any, sums: Any) -> Any:
            block = program + turn * programs
            begin = BLOCK * (blocks - 1 - block if work.backwards else block)
            place = begin + jnp.arange(BLOCK)
            entries, there = pallas.ds(begin, BLOCK), (place >= 0) & (place < size)
            # Entries behind the end are read as 0, and so are all that is made of them.
            read = [triton.load(a.at[entries], mask=there, other=0.0) for a in places[:given]]
            fresh, products = work.formula(*read, *weight)
            for new, a in zip(made, fresh, strict=True):
                triton.store(new.at[entries], a, mask=there)
            doubles = [(a.astype(jnp.float64), b.astype(jnp.float64)) for a, b in products]
            return tuple([s + a * b for s, (a, b) in zip(sums, doubles, strict=True)])

        zeros = tuple([jnp.zeros(BLOCK, jnp.float64)] * count)
        for i, sum in enumerate(jax.lax.fori_loop(0, -(-blocks // programs), add, zeros)):
            shares[i, program] = jnp.sum(sum)
        # The value is a sum, too: of itself, and zeros.
        shares[count, program] = jnp.where(
            program == 0, places[given + 1][0].astype(jnp.float64), 0.0
        )

    one = jax.ShapeDtypeStruct((size,), dtype)
    run = pallas.pallas_call(
        kernel,
        out_shape=[*[one] * work.made, jax.ShapeDtypeStruct((count + 1, programs), jnp.float64)],
        grid=(programs,),
        interpret=INTERPRETED,
        compiler_params=None
        if INTERPRETED
        else triton.CompilerParams(num_warps=8 if count > MANY else 4, num_stages=1),
    )
    numbers = jnp.zeros(1) if numbers is None else numbers
    known = jnp.zeros(1) if value is None else value.reshape(1)
    *made, sums = run(*[a.reshape(-1) for a in vectors], numbers, known)
    sums = sums.sum(axis=1)
    return tuple([a.reshape(shape) for a in made]), sums[:count] if value is None else sums


@cache
def _jitted(work: Pass, one_kernel: bool, mail_of: Any) -> Any:
    return _compiled(
        lambda numbers, vectors, value: _applied(work, vectors, numbers, value, one_kernel), mail_of
    )


def _compiled(compute: Callable[..., Any], mail_of: Any) -> Any:
    """A function of numbers and arrays that gives an answer and sums, for `JaxPasses._run`."""
    import jax

    return jax.jit(compute) if mail_of is None else mailed(compute, mail_of)


@cache
def _has_kernels(device: Any) -> bool:
    """Does Pallas work on this device?  It is tried out: old GPUs and some builds cannot."""
    import jax

    if device.platform != "gpu":
        return False
    ones = jax.device_put(np.ones(8, np.float32), device)
    try:
        with jax.enable_x64(True):
            run, numbers = _jitted(MOMENTUM, True, None), np.array([1.0, 1.0])
            made, sums = run(numbers, (ones, ones, ones), ones[:1])
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
        device = next(iter(devices))
        self._mail_of = device if len(devices) == 1 and has_mail(device) else None
        with jax.enable_x64(True):
            self._mail = None if self._mail_of is None else JaxMail(self._mail_of)

    def brings(self, value: Any) -> bool:
        """Is this a scalar of JAX?"""
        return isinstance(value, self._jax.Array) and value.size == 1 and value.dtype.kind == "f"

    def start(
        self, work: Pass, vectors: Sequence[Any], numbers: Sequence[float], value: Any
    ) -> tuple[tuple[Any, ...], Callable[[], tuple[Any, float]]]:
        """The new vectors, and a function that waits for the sums and the value."""
        run = _jitted(work, self._one_kernel, self._mail_of)
        made, read = self._run(run, work, numbers, tuple(vectors), value)

        def answer() -> tuple[Any, float]:
            sums = read()
            last = float(sums[-1]) if len(sums) else np.nan
            return sums if value is None else sums[:-1], last

        return made, answer

    def _run(self, run: Any, work: Pass, numbers: Sequence[float], *given: Any) -> Any:
        """The answer of a function of `_compiled`, and what gives the sums."""
        with self._jax.enable_x64(True):
            if self._mail is not None:
                return self._mail.run(run, work.name, numbers, *given)
            made, sums = run(np.array(numbers, np.float64) if len(numbers) else None, *given)
        return made, lambda: () if sums is None else self._jax.device_get(sums).tolist()

    def joined(self, fun: Any, x: Any, *, differentiate: bool) -> Any:
        """A function of the user in a form that `compute_joined` compiles together with passes:
        what gives value and gradient, or what gives a value and is to be differentiated.  None
        where that cannot be, or is not worth it."""
        if not is_jitted(fun):
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
    ) -> tuple[Any, tuple[Any, ...], Sequence[float], float]:
        """The gradient; what a pass makes of it and of ``vectors``; and the value."""
        others = tuple([None if a is x else a for a in vectors])  # x itself is not read twice
        run = joined.with_pass(work, self._one_kernel, self._mail_of)
        (gradient, made), read = self._run(run, work, numbers, joined.constants, x, others)
        *sums, value = read()
        return gradient, made, sums, value


class _Joined:
    """Value and gradient as a formula of JAX; what it was closed over goes in as arguments, so that
    it is not copied into every compiled function."""

    def __init__(self, formula: Any):
        self._formula, self.constants = formula.jaxpr, tuple(formula.consts)
        self._runs: dict[Any, Any] = {}

    def with_pass(self, work: Pass, one_kernel: bool, mail_of: Any) -> Any:
        """The compiled function that does both."""
        key = work.name, one_kernel, mail_of
        if key not in self._runs:
            from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

            def compute(numbers: Any, constants: Any, x: Any, others: Any) -> Any:
                value, gradient = jaxpr_as_fun(ClosedJaxpr(self._formula, constants))(x)
                vectors = (gradient, *[x if a is None else a for a in others])
                made, sums = _applied(work, vectors, numbers, value, one_kernel)
                return (gradient, made), sums

            self._runs[key] = _compiled(compute, mail_of)
        return self._runs[key]


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
