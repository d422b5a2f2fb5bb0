"""The matrix H of a self-scaled method: one symmetric matrix, scaled by a number beside it.

H = scale M.  An iteration reads M once, for M g at the new gradient g; as M g is known from the
last one, so is M y.  A pair then changes M by a matrix of rank two, which reads and writes it once,

    M + [s, z] C [s, z]',    z = M y,

and M g and the direction follow from inner products with s and z.

Where a search along -H g fails, little may be wrong: values that cancel, or a step that rounding
spoils.  So H is kept for one step along the gradient and tried again.  If that fails too, the next
such step corrects the scale of H, and only after a third failure nothing is kept.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import array_api_compat
import numpy as np
from scipy.linalg.blas import ddot, dsymv, dsyr2k

from momentous.core.checkpoint import Plain
from momentous.core.machine import Host, has_kinks
from momentous.core.oracle import Sample
from momentous.core.record import record
from momentous.core.space import Array, Space, host_memory, to_numpy
from momentous.methods.classical.box_model import where_held
from momentous.methods.classical.curvature import (
    Curvature,
    CurvatureMachine,
    column,
    flat,
    is_of_use,
    line_from,
    solve_positive,
    times,
    zeros,
)
from momentous.methods.classical.matrix import mirrored, solve_in_arrays, solve_on_face
from momentous.methods.classical.self_scaling import SelfScaling, is_newton
from momentous.methods.search.wolfe import Line

# What is done next about searches along -H g that have failed one after the other; it is odd where
# the step under way is one along the gradient.
TRUSTED, FIRST_PLAIN_STEP, TRIED_AGAIN, RESCALING_STEP, LAST_TRIAL = range(5)


@record
class Dense(Curvature):
    """H of all pairs of a run, in double precision where the library has it."""

    matrix: Any  # M: `HostSquare`, `DeviceSquare` or `ArraySquare`
    product: Array  # M g where the run stands
    scale: Any
    gamma: Any  # <s, y>/<y, y> of the newest pair; 1 without pairs
    count: Any
    recovery: Any  # `TRUSTED`, ...
    way: Any = None

    @staticmethod
    def unknown(m: Any) -> Dense:
        """Without pairs; `at` a point it knows more."""
        if isinstance(m, Host):
            return Dense(square_of(m.space), None, 1.0, 1.0, 0, TRUSTED)
        lanes = math.prod(m.lanes_shape)
        is_single = m.wide == m.xp.float32
        require_room(m.dimension, lanes * (4 if is_single else 8), host_memory())
        whole = zeros(m, m.dimension, m.dimension) + _unit(m)  # to be changed in place
        one, none = zeros(m) + 1.0, zeros(m, dtype=m.whole)
        return Dense(ArraySquare(whole), zeros(m, m.dimension), one, one, none, none)

    @property
    def is_plain(self) -> Any:
        """Does the next search go along the gradient, although H is known?"""
        return self.recovery % 2 == 1

    @property
    def can_recover(self) -> Any:
        return (self.count > 0) & (self.recovery % 2 == 0)

    @property
    def forgets(self) -> Any:
        return self.recovery == LAST_TRIAL

    def after_failure(self, m: Host) -> Dense:
        if self.recovery == LAST_TRIAL:
            return Dense.unknown(m)
        return Dense(
            self.matrix, self.product, self.scale, self.gamma, self.count, self.recovery + 1
        )

    def at(self, m: Any, here: Sample) -> Dense:
        g = self.matrix.entries(m, here.gradient)
        moved = Dense(
            self.matrix, self.matrix.times(m, g), self.scale, self.gamma, self.count,
            0 * self.recovery,
        )  # fmt: skip
        moved.way = moved.known_line(m, here)
        return moved

    def without_pairs_at(self, m: Any, here: Sample) -> Dense:
        return self.at(m, here)

    @np.errstate(over="ignore", invalid="ignore")  # a pair of no use, or a step for the search
    def _after(
        self, m: Any, moved: Any, failed: Any, here: Sample, there: Sample, noise: Any,
        scaling: SelfScaling | None,
    ) -> Dense:  # fmt: skip
        """Where a search has failed the two samples are one."""
        assert scaling is not None
        M, line, recovery = self.matrix, self.line(m, here), self.recovery
        g = M.entries(m, there.gradient)
        s = M.entries(m, there.point) - M.entries(m, here.point)
        y = g - M.entries(m, here.gradient)
        of_g = M.times(m, g)
        z, felt = of_g - self._product(m, here), y
        if has_kinks(m):  # see `moved_square`
            felt = M.library(m).where(s != 0.0, y, M.library(m).zeros_like(y))
        ss, sy, yy, yz, sg, zg = M.products(m, (s, s), (s, y), (y, felt), (y, z), (s, g), (z, g))
        use = is_of_use(ss, sy, yy, m) & (yz > 0.0)
        ss, sy, yy, yz = (m.where(use, a, 1.0) for a in (ss, sy, yy, yz))
        slope = m.where(use, -line.slope, 1.0)

        # H before the pair, and what is known of it along s and y.
        gamma, first = m.maximum(sy / yy, m.tiny), self.count == 0
        scale = m.where(recovery == RESCALING_STEP, sy / yz, self.scale)
        scale = m.maximum(m.where(first, gamma, scale), m.tiny)
        bend = m.where(first, ss / gamma, (sg - sy) * (sg - sy) / slope)  # <s, Bs>
        tau, phi = scaling.factors(m, m.dimension, bend / sy, scale * (yz / sy))
        newton = m.no(self.is_plain) & is_newton(m, here, line)
        scales = scaling.scales(m, self.count, newton)
        tau, phi = m.where(scales, tau, 1.0), m.where(scales, phi, 1.0)

        # The update of M, [s, z] C [s, z]'.
        c_ss, c_sz, c_zz = (phi * (yz / sy) + tau / scale) / sy, -phi / sy, (phi - 1.0) / yz
        s, z = pick(m, use, s, 0.0), pick(m, use, z, 0.0)
        right = [
            column(c_ss) * s + column(c_sz) * z,
            column(c_sz) * s + column(c_zz) * z,
        ]
        matrix = M.plus(m, use, [s, z], right)
        to_s = m.where(use, c_ss * sg + c_sz * zg, 0.0)
        to_z = m.where(use, c_sz * sg + c_zz * zg, 0.0)
        product = of_g + column(to_s) * s + column(to_z) * z
        scale, gamma = m.where(use, scale / tau, self.scale), m.where(use, gamma, self.gamma)
        count = self.count + m.where(use, 1, 0)
        stage = m.where(self.is_plain, recovery + 1, TRUSTED)
        if isinstance(m, Host):
            return Dense(matrix, product, scale, gamma, count, stage)

        forgets = failed & self.forgets
        if m.needs(forgets):
            matrix = ArraySquare(m.where(forgets[..., None, None], _unit(m), matrix.whole))
        after = Dense(
            matrix,
            pick(m, forgets, g, product),
            m.where(forgets, 1.0, scale),
            m.where(forgets, 1.0, gamma),
            m.where(forgets, 0, count),
            m.where(
                failed, m.where(forgets, TRUSTED, recovery + 1), m.where(moved, stage, recovery)
            ),
        )
        after.way = m.case(line, (moved | failed, lambda: after.make_line(m, there)))
        return after

    def make_line(self, m: Any, here: Sample) -> Line:
        if has_kinks(m):
            return line_from(m, here, self, self.count == 0)  # type: ignore[return-value]
        M, d = self.matrix, self._along(m, here.gradient, self._product(m, here))
        along = M.entries(m, d)
        slope, square = M.products(m, (along, M.entries(m, here.gradient)), (along, along))
        return Line.of(m, here, d, slope, square, self.count == 0)

    def _product(self, m: Any, here: Sample) -> Array:
        """M g where the run stands."""
        if self.product is None:  # on the host, before the first pair
            self.product = self.matrix.times(m, self.matrix.entries(m, here.gradient))
        return self.product

    def _along(self, m: Any, gradient: Array, product: Array) -> Array:
        """-H g; or the step along the gradient."""
        M = self.matrix
        plain = column(-self.gamma) * M.entries(m, gradient)
        return M.vector(m, pick(m, self.is_plain, plain, column(-self.scale) * product))

    def descent(self, m: Any, gradient: Array) -> Array:
        entries = self.matrix.entries(m, gradient)
        return self._along(m, gradient, self.matrix.times(m, entries))

    def held_step(self, m: Any, held: Array, target: Array, gradient: Array) -> Array:
        missing = m.combination(target, -1.0, self.descent(m, gradient))
        z = self.matrix.solve(m, self.scale, held, missing)
        p = m.each(where_held, held, target, self.descent(m, m.combination(gradient, -1.0, z)))
        p = m.combination(p, -self.gamma, z)
        # Without H the model is that of gamma I, and p - gamma (B p + g) is -gamma g everywhere.
        return m.choose(self.is_plain, self.descent(m, gradient), p)

    def inverse(self, held: np.ndarray | None) -> Callable[[np.ndarray], np.ndarray]:
        matrix = self.scale * self.matrix.on_host()
        if held is not None:
            block = solve_positive(matrix[np.ix_(held, held)], matrix[held])
            matrix = matrix - matrix[:, held] @ block
        return functools.partial(np.matmul, matrix)

    def is_at_hand(self, space: Space) -> bool:
        return isinstance(self.matrix, HostSquare)

    def packed(self) -> StoredDense:
        product = None if self.product is None else Plain(to_numpy(self.product))
        return StoredDense(
            self.count, float(self.scale), float(self.gamma), self.recovery,
            Plain(triangle(self.matrix.on_host())), product,
        )  # fmt: skip


@record
class StoredDense:
    """A `Dense` on the host in a checkpoint: the upper triangle of M, column by column."""

    count: int
    scale: float
    gamma: float
    recovery: int
    triangle: Plain
    product: Plain | None

    def unpacked(self, space: Space | None) -> Dense:
        numbers = self.triangle.array
        d = math.isqrt(2 * len(numbers))
        if len(numbers) != d * (d + 1) // 2 or (space is not None and space.size != d):
            raise ValueError(f"{len(numbers)} numbers are no triangle of the matrix of this x")
        if self.product is not None and self.product.array.shape != (d,):
            raise ValueError(f"a product of {self.product.array.size} numbers, not of {d}")
        if self.recovery not in range(LAST_TRIAL + 1):
            raise ValueError(f"recovery is {self.recovery!r}, not 0 to {LAST_TRIAL}")
        upper = np.zeros((d, d), order="F")
        for j in range(d):
            upper[: j + 1, j] = numbers[j * (j + 1) // 2 :][: j + 1]
        if space is None:
            matrix: Any = HostSquare(upper)
        else:
            matrix = square_of(space, upper)
        product = None if self.product is None else matrix.from_host(self.product.array)
        return Dense(matrix, product, self.scale, self.gamma, self.count, self.recovery)


def triangle(matrix: np.ndarray) -> np.ndarray:
    """The upper triangle, column by column."""
    d = len(matrix)
    numbers = np.empty(d * (d + 1) // 2)
    for j in range(d):
        numbers[j * (j + 1) // 2 :][: j + 1] = matrix[: j + 1, j]
    return numbers


# --- where the matrix is kept ---------------------------------------------------------------------


def square_of(space: Space, upper: np.ndarray | None = None) -> HostSquare | DeviceSquare:
    """The unit matrix, or the one with this upper triangle, beside vectors of that space."""
    if space.is_part:
        raise ValueError(
            "a self-scaled matrix is not spread over ranks: take method='lbfgs' with "
            "scaling='self', which keeps pairs"
        )
    name, xp, d = array_name(space), space.xp, space.size
    require_room(d, 8, host_memory() if name is None else device_memory(space))
    try:
        if name is None:
            return HostSquare(np.eye(d, order="F") if upper is None else upper)
        if upper is None:
            return DeviceSquare(xp.eye(d, dtype=xp.float64, device=space.device), xp, name)
        whole = xp.asarray(mirrored(upper), device=space.device)
        return DeviceSquare(whole, xp, name)
    except Exception as error:
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
            raise _no_room(d, 8) from error
        raise


def array_name(space: Space) -> str | None:
    """The library that keeps the matrix on the device of x; None: it is in the host's memory."""
    if array_api_compat.is_torch_namespace(space.xp) and "cuda" in str(space.device):
        return "torch"
    return "cupy" if array_api_compat.is_cupy_namespace(space.xp) else None


def require_room(dimension: int, bytes_each: int, total: float) -> None:
    """Raise where the matrix is larger than all the memory that there is."""
    if bytes_each * dimension**2 > total:
        raise _no_room(dimension, bytes_each)


def _no_room(dimension: int, bytes_each: int) -> MemoryError:
    size = bytes_each * dimension**2
    return MemoryError(
        f"the matrix of a self-scaled method in {dimension:,} variables takes {size:,} bytes, for "
        "which the device has no room: take LBFGS(scaling='self'), which keeps pairs"
    )


def device_memory(space: Space) -> float:
    """All that the device of x has, in bytes."""
    if array_name(space) == "torch":
        cuda = import_module("torch").cuda
        return float(cuda.get_device_properties(space.device).total_memory)
    return float(import_module("cupy").cuda.runtime.memGetInfo()[1])


class HostSquare:
    """M in the memory of the host, changed in place; only the upper triangle is used."""

    __slots__ = ("upper",)

    def __init__(self, upper: np.ndarray):
        self.upper = upper

    def entries(self, m: Host, a: Array) -> np.ndarray:
        return flat(m.space, a)

    from_host = staticmethod(np.array)

    def vector(self, m: Host, entries: np.ndarray) -> Array:
        space = m.space
        with np.errstate(over="ignore"):  # a step that overflows is for the search to judge
            return entries if space.flat else space.from_numpy(entries.reshape(space.shape))

    @staticmethod
    def library(m: Host) -> Any:
        return np

    def times(self, m: Host, entries: np.ndarray) -> np.ndarray:
        product: np.ndarray = dsymv(1.0, self.upper, entries)
        return product

    def products(self, m: Host, *pairs: tuple[np.ndarray, np.ndarray]) -> tuple[float, ...]:
        return tuple([ddot(a, b) for a, b in pairs])

    def plus(self, m: Host, use: bool, left: list[Any], right: list[Any]) -> HostSquare:
        """M + left' right, which is symmetric, where it is of ``use``."""
        if use:
            a, b = np.array(left), np.array(right)
            # In place, half of it and half of its transpose; keywords cost time.
            dsyr2k(0.5, a.T, b.T, 1.0, self.upper, 0, 0, 1)
        return self

    def solve(self, m: Host, scale: float, held: Array, r: Array) -> Array:
        """z with (H z)_A = r_A and z = 0 outside of A, where ``held``."""
        return solve_on_face(m, held, r, lambda block: scale * self.upper[block])

    def on_host(self) -> np.ndarray:
        return mirrored(self.upper)


class DeviceSquare:
    """M on a device, in PyTorch or CuPy, changed in place: whole, and symmetric up to rounding."""

    __slots__ = ("name", "whole", "xp")

    def __init__(self, whole: Array, xp: Any, name: str):
        self.whole, self.xp, self.name = whole, xp, name

    def entries(self, m: Host, a: Array) -> Array:
        return self.from_host(a)

    def from_host(self, a: Array) -> Array:
        """As a flat vector of doubles beside M."""
        xp, device = self.xp, array_api_compat.device(self.whole)
        return xp.reshape(xp.asarray(a, dtype=xp.float64, device=device), (-1,))

    def vector(self, m: Host, entries: Array) -> Array:
        return self.xp.astype(self.xp.reshape(entries, m.space.shape), m.space.dtype)

    def library(self, m: Host) -> Any:
        return self.xp

    def times(self, m: Host, entries: Array) -> Array:
        return self.whole @ entries

    def products(self, m: Host, *pairs: tuple[Array, Array]) -> tuple[float, ...]:
        """In one transfer."""
        one, other = (self.xp.stack(list(rows)) for rows in zip(*pairs, strict=True))
        return tuple(to_numpy(self.xp.sum(one * other, axis=1)).tolist())

    def plus(self, m: Host, use: bool, left: list[Any], right: list[Any]) -> DeviceSquare:
        """M + left' right where it is of ``use``: M is read and written once."""
        if use:
            a, b = self.xp.stack(left), self.xp.stack(right)
            if self.name == "torch":
                self.whole.addmm_(a.T, b)
            else:
                import_module("cupy.cublas").gemm("T", "N", a, b, out=self.whole, beta=1.0)
        return self

    def solve(self, m: Host, scale: float, held: Array, r: Array) -> Array:
        """z with (H z)_A = r_A and z = 0 outside of A, where ``held``: on the host."""
        return solve_on_face(m, held, r, lambda block: scale * to_numpy(self.whole)[block])

    def on_host(self) -> np.ndarray:
        return to_numpy(self.whole)


@record
class ArraySquare:
    """M where numbers are arrays."""

    whole: Array  # (..., d, d)

    def entries(self, m: CurvatureMachine, a: Array) -> Array:
        return m.widened(m.entries(a))

    def vector(self, m: CurvatureMachine, entries: Array) -> Array:
        return m.vector(entries)

    def library(self, m: CurvatureMachine) -> Any:
        return m.xp

    def times(self, m: CurvatureMachine, entries: Array) -> Array:
        return times(m, self.whole, entries)

    def products(self, m: CurvatureMachine, *pairs: tuple[Array, Array]) -> tuple[Array, ...]:
        return tuple([m.inner(a, b) for a, b in pairs])

    def plus(
        self, m: CurvatureMachine, use: Array, left: list[Array], right: list[Array]
    ) -> ArraySquare:
        """M + left' right; of no ``use`` are zeros."""
        both = (m.xp.stack(rows, axis=-2) for rows in (left, right))
        return ArraySquare(m.plus_product(self.whole, *both))

    def solve(self, m: CurvatureMachine, scale: Array, held: Array, r: Array) -> Array:
        """z with (H z)_A = r_A and z = 0 outside of A, where ``held``."""
        return solve_in_arrays(m, held, r, scale[..., None, None] * self.whole)


def pick(m: Any, condition: Any, a: Any, b: Any) -> Any:
    """Vectors, by a condition of each run."""
    return m.where(condition if isinstance(condition, bool) else condition[..., None], a, b)


def _unit(m: CurvatureMachine) -> Array:
    return m.xp.eye(m.dimension, dtype=m.wide, device=m.device)
