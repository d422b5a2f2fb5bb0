"""Rows of a factor as SIMD vectors: what plain compiled loops over the rank are too slow for.

A row of r numbers is taken in pieces whose lengths are powers of two (10 = 8 + 2), each one LLVM
vector; LLVM maps these to whatever registers the machine has. A low rank reaches the compiler as
the length of a tuple, so that there is one compiled version per rank and no loop over the rank in
it; a higher one is a number at run time, and all of them have one version.
`benchmarks/lowrank_gradient.py` measures the whole. This file needs numba, so is itself
imported only where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib import import_module
from inspect import Parameter, Signature
from typing import TYPE_CHECKING

from momentous.io.types import AnyFunction

if TYPE_CHECKING:
    from llvmlite import ir as ir
    from numba import types as types
    from numba.core import cgutils as cgutils
    from numba.core.base import BaseContext
    from numba.core.typing import Context
    from numba.core.typing import Signature as CallSignature
    from numba.extending import intrinsic
    from numba.np.arrayobj import make_array
else:
    ir, types = import_module("llvmlite.ir"), import_module("numba.types")
    cgutils, intrinsic = (
        import_module("numba.core.cgutils"),
        import_module("numba.extending").intrinsic,
    )
    make_array = import_module("numba.np.arrayobj").make_array

LONGEST_PIECE = 64  # longer vectors only make the compiler slow
MOST_LANES = 16  # the highest rank with a compiled version of its own
WIDE = 8  # numbers per vector where the rank is known at run time only,
GROUP = 4  # and vectors whose sums are in registers at a time
I32, I64 = ir.IntType(32), ir.IntType(64)
ROUNDER = 1.5 * 2.0**52  # a float64 of this size has no binary places: adding it rounds
FUSE = ("contract",)  # a * b + c may be rounded once


def pieces(rank: int) -> Iterator[tuple[int, int]]:
    """Offset and length of each piece: 10 gives (0, 8), (8, 2)."""
    offset = 0
    while offset < rank:
        length = min(1 << ((rank - offset).bit_length() - 1), LONGEST_PIECE)
        yield offset, length
        offset += length


def lanes_of(rank: int) -> tuple[int, ...] | int:
    """The rank as kernels are given it: as the length of a tuple where it is low."""
    return (0,) * rank if rank <= MOST_LANES else rank


# --- functions that write their own LLVM instructions ---------------------------------------------


class Code:
    """A call in compiled code: its arguments with their types, and where its instructions go."""

    def __init__(
        self,
        context: BaseContext,
        builder: ir.IRBuilder,
        kinds: list[types.Type],
        values: list[ir.Value],
    ):
        self.context, self.builder, self.kinds, self.values = context, builder, kinds, values

    def number_type(self, k: int) -> ir.Type:
        """Of the numbers of the array that is the argument k."""
        return self.context.get_value_type(self.kinds[k].dtype)

    def data(self, k: int) -> ir.Value:
        """Where its numbers begin."""
        return make_array(self.kinds[k])(self.context, self.builder, self.values[k]).data

    def shape(self, k: int) -> tuple[ir.Value, ir.Value]:
        """Its first two lengths."""
        shape = make_array(self.kinds[k])(self.context, self.builder, self.values[k]).shape
        return self.builder.extract_value(shape, 0), self.builder.extract_value(shape, 1)

    def loop(self, count: ir.Value) -> AbstractContextManager[cgutils.Loop]:
        """Instructions that are run so many times."""
        return cgutils.for_range(self.builder, count, intp=I64)  # type: ignore[no-any-return]


def instructions(*names: str) -> Callable[[Callable[[Code], None]], AnyFunction]:
    """A function of compiled code, with these arguments and no result, that writes instructions."""
    own = Signature([Parameter(name, Parameter.POSITIONAL_ONLY) for name in ("typing", *names)])

    def make(write: Callable[[Code], None]) -> AnyFunction:
        def typed(typing: Context, *kinds: types.Type) -> tuple[CallSignature, AnyFunction]:
            def generate(
                context: BaseContext, builder: ir.IRBuilder, call: CallSignature,
                values: list[ir.Value],
            ) -> ir.Value:  # fmt: skip
                write(Code(context, builder, call.args, values))
                return context.get_dummy_value()

            return types.void(*kinds), generate

        typed.__name__, typed.__doc__ = write.__name__, write.__doc__
        typed.__signature__ = own  # type: ignore[attr-defined]  # which numba goes by
        made: AnyFunction = intrinsic(typed)
        return made

    return make


class _Rows:
    """A C-contiguous array with r columns, read and written row by row, r known to the compiler."""

    def __init__(self, code: Code, k: int, rank: int):
        self.builder, self.pieces, self.rank = code.builder, list(pieces(rank)), rank
        self.number, self.data = code.number_type(k), code.data(k)
        self.alignment = code.kinds[k].dtype.bitwidth // 8

    def _places(self, row: ir.Value) -> Iterator[ir.Value]:
        first = self.builder.mul(row, I64(self.rank))
        for offset, length in self.pieces:
            place = self.builder.gep(self.data, [self.builder.add(first, I64(offset))])
            yield self.builder.bitcast(place, ir.VectorType(self.number, length).as_pointer())

    def load(self, row: ir.Value) -> list[ir.Value]:
        return [self.builder.load(place, align=self.alignment) for place in self._places(row)]

    def store(self, row: ir.Value, vectors: list[ir.Value]) -> None:
        for place, vector in zip(self._places(row), vectors, strict=True):
            self.builder.store(vector, place, align=self.alignment)


def total(builder: ir.IRBuilder, vectors: list[ir.Value]) -> ir.Value:
    """Sum of all elements of all vectors."""
    total = None
    for vector in vectors:
        number, length = vector.type.element, vector.type.count
        suffix = "f32" if isinstance(number, ir.FloatType) else "f64"
        add = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(number, [number, vector.type]),
            f"llvm.vector.reduce.fadd.v{length}{suffix}",
        )
        # Any order of the sum will do, as long as it is always the same one.
        part = builder.call(add, [number(-0.0), vector], fastmath=("reassoc",))
        total = part if total is None else builder.fadd(total, part)
    return total


def filled(builder: ir.IRBuilder, number: ir.Value, length: int) -> ir.Value:
    """A vector that has the same number everywhere."""
    kind = ir.VectorType(number.type, length)
    one = builder.insert_element(kind(ir.Undefined), number, I32(0))
    return builder.shuffle_vector(one, kind(ir.Undefined), ir.VectorType(I32, length)([0] * length))


def mask_of(builder: ir.IRBuilder, count: ir.Value, length: int) -> ir.Value:
    """Which of so many places of a vector are among the first ``count``."""
    kind = ir.VectorType(I64, length)
    return builder.icmp_signed("<", kind(list(range(length))), filled(builder, count, length))


def load_masked(builder: ir.IRBuilder, place: ir.Value, mask: ir.Value) -> ir.Value:
    """The vector there, with 0 where the mask is not set: nothing is read from memory for these."""
    vector = place.type.pointee
    size = 32 if isinstance(vector.element, ir.FloatType) else 64
    name = f"llvm.masked.load.v{vector.count}f{size}.p0"
    kinds = [place.type, I32, mask.type, vector]
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, kinds), name)
    return builder.call(function, [place, I32(size // 8), mask, vector([0.0] * vector.count)])


def store_masked(builder: ir.IRBuilder, vector: ir.Value, place: ir.Value, mask: ir.Value) -> None:
    """Store what the mask is set for, and touch nothing else."""
    kind = vector.type
    size = 32 if isinstance(kind.element, ir.FloatType) else 64
    name = f"llvm.masked.store.v{kind.count}f{size}.p0"
    kinds = [kind, place.type, I32, mask.type]
    function = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(ir.VoidType(), kinds), name
    )
    builder.call(function, [vector, place, I32(size // 8), mask])


def add_multiple(
    builder: ir.IRBuilder, to: ir.Value, factor: ir.Value, vector: ir.Value
) -> ir.Value:
    """``to + factor vector``."""
    scaled = builder.fmul(filled(builder, factor, vector.type.count), vector, flags=FUSE)
    return builder.fadd(to, scaled, flags=FUSE)


class _WideRow:
    """A row of a C-contiguous array whose r is known at run time only: vectors of 8, and a rest."""

    def __init__(
        self, builder: ir.IRBuilder, number: ir.Type, data: ir.Value, rank: ir.Value, row: ir.Value
    ):
        self.builder, self.vector = builder, ir.VectorType(number, WIDE)
        self.data = builder.gep(data, [builder.mul(row, rank)])
        self.whole = builder.sdiv(rank, I64(WIDE))
        more = builder.srem(rank, I64(WIDE))
        self.rest = mask_of(builder, more, WIDE)
        self.has_rest = builder.icmp_signed(">", more, I64(0))
        self.alignment = 4 if isinstance(number, ir.FloatType) else 8

    def _place(self, k: ir.Value) -> ir.Value:
        place = self.builder.gep(self.data, [self.builder.mul(k, I64(WIDE))])
        return self.builder.bitcast(place, self.vector.as_pointer())

    def load(self, k: ir.Value | None) -> ir.Value:
        """The vector k; None: the rest, with zeros beyond it."""
        if k is None:
            return load_masked(self.builder, self._place(self.whole), self.rest)
        return self.builder.load(self._place(k), align=self.alignment)

    def store(self, k: ir.Value | None, vector: ir.Value) -> None:
        if k is None:
            store_masked(self.builder, vector, self._place(self.whole), self.rest)
        else:
            self.builder.store(vector, self._place(k), align=self.alignment)

    def dot(self, other: _WideRow) -> ir.Value:
        builder = self.builder
        first = builder.fmul(self.load(None), other.load(None))
        products = cgutils.alloca_once_value(builder, first)
        builder.store(first, products)
        with cgutils.for_range(builder, self.whole, intp=I64) as loop:
            product = builder.fmul(self.load(loop.index), other.load(loop.index), flags=FUSE)
            builder.store(builder.fadd(builder.load(products), product, flags=FUSE), products)
        return total(builder, [builder.load(products)])


def _wide_rows(code: Code, k: int) -> Callable[[ir.Value], _WideRow]:
    """Of an array with the rank of the argument 0, the row of an index."""
    number, data = code.number_type(k), code.data(k)
    return lambda row: _WideRow(code.builder, number, data, code.values[0], row)


@instructions("lanes", "left", "i", "right", "others", "begin", "end", "out")
def row_products(code: Code) -> None:
    """``out[k] = left[i] . right[others[begin + k]]`` for the entries from begin to end - 1."""
    builder, lanes, (begin, end) = code.builder, code.kinds[0], code.values[5:7]
    index, result = code.data(4), code.data(7)
    wide = isinstance(lanes, types.Integer)
    if wide:
        own, far = (_wide_rows(code, k) for k in (1, 3))
        u = own(code.values[2])
    else:
        rows = [_Rows(code, k, lanes.count) for k in (1, 3)]
        vectors = rows[0].load(code.values[2])
    with code.loop(builder.sub(end, begin)) as loop:
        j = builder.load(builder.gep(index, [builder.add(begin, loop.index)]))
        j = builder.sext(j, I64)
        if wide:
            product = u.dot(far(j))
        else:
            pairs = zip(vectors, rows[1].load(j), strict=True)
            product = total(builder, [builder.fmul(a, b) for a, b in pairs])
        builder.store(product, builder.gep(result, [loop.index]))


@instructions(
    "lanes", "left", "i", "right", "others", "begin", "end", "slopes", "left_gradient",
    "right_gradient",
)  # fmt: skip
def spread_slopes(code: Code) -> None:
    """Add what the entries from begin to end - 1 give to the gradients.

    With j the other index and s the slope of an entry: ``left_gradient[i] += s right[j]`` and
    ``right_gradient[j] += s left[i]``.
    """
    if isinstance(code.kinds[0], types.Integer):
        _spread_wide(code)
        return
    builder, count, (begin, end) = code.builder, code.kinds[0].count, code.values[5:7]
    table, own, far = (_Rows(code, k, count) for k in (3, 8, 9))
    u = _Rows(code, 1, count).load(code.values[2])
    index, slope = code.data(4), code.data(7)
    # Sums of the own row, in variables that LLVM keeps in registers.
    sums = [cgutils.alloca_once_value(builder, start) for start in own.load(code.values[2])]
    with code.loop(builder.sub(end, begin)) as loop:
        j = builder.load(builder.gep(index, [builder.add(begin, loop.index)]))
        j = builder.sext(j, I64)
        s = builder.load(builder.gep(slope, [loop.index]))
        for place, v in zip(sums, table.load(j), strict=True):
            builder.store(add_multiple(builder, builder.load(place), s, v), place)
        before = far.load(j)
        far.store(j, [add_multiple(builder, g, s, a) for g, a in zip(before, u, strict=True)])
    own.store(code.values[2], [builder.load(place) for place in sums])


def _spread_wide(code: Code) -> None:
    """The same where the rank is known at run time only."""
    builder, (begin, end) = code.builder, code.values[5:7]
    left, right, own, far = (_wide_rows(code, k) for k in (1, 3, 8, 9))
    index, slope = code.data(4), code.data(7)
    u, total = left(code.values[2]), own(code.values[2])

    def spread(parts: list[ir.Value | None]) -> None:
        """Take these vectors of every row, or, for None, the rest of it."""
        vectors = [u.load(k) for k in parts]
        sums = [cgutils.alloca_once(builder, vector.type) for vector in vectors]
        for k, one in zip(parts, sums, strict=True):
            builder.store(total.load(k), one)
        with code.loop(builder.sub(end, begin)) as loop:
            j = builder.load(builder.gep(index, [builder.add(begin, loop.index)]))
            j = builder.sext(j, I64)
            s = builder.load(builder.gep(slope, [loop.index]))
            v, gradient = right(j), far(j)
            for k, vector, one in zip(parts, vectors, sums, strict=True):
                builder.store(add_multiple(builder, builder.load(one), s, v.load(k)), one)
                gradient.store(k, add_multiple(builder, gradient.load(k), s, vector))
        for k, one in zip(parts, sums, strict=True):
            total.store(k, builder.load(one))

    groups = builder.sdiv(u.whole, I64(GROUP))
    with code.loop(groups) as group:
        first = builder.mul(group.index, I64(GROUP))
        spread([builder.add(first, I64(k)) for k in range(GROUP)])
    done = builder.mul(groups, I64(GROUP))
    with code.loop(builder.sub(u.whole, done)) as single:
        spread([builder.add(done, single.index)])
    with builder.if_then(u.has_rest):
        spread([None])


@intrinsic  # type: ignore[untyped-decorator]  # numba has no types
def polynomial(
    typing: Context, x: types.Type, coefficients: types.Type
) -> tuple[CallSignature, AnyFunction]:
    """Horner's rule written out, highest power first: loops over it can then be vectorised."""

    def generate(
        context: BaseContext, builder: ir.IRBuilder, call: CallSignature, values: list[ir.Value]
    ) -> ir.Value:
        x, constants = values
        total = builder.extract_value(constants, 0)
        for k in range(1, coefficients.count):
            constant = builder.extract_value(constants, k)
            total = builder.fadd(builder.fmul(total, x, flags=FUSE), constant, flags=FUSE)
        return total

    return types.float64(types.float64, coefficients), generate


@intrinsic  # type: ignore[untyped-decorator]
def power_of_two(typing: Context, rounded: types.Type) -> tuple[CallSignature, AnyFunction]:
    """``2.0**n`` for n from -1022 to 1023, given ``n + ROUNDER``.

    The lowest bits of that sum are n; moved into the exponent and biased, they make the power. No
    conversion to an integer takes part: few machines have one for vectors, and none for NaN.
    """

    def generate(
        context: BaseContext, builder: ir.IRBuilder, call: CallSignature, values: list[ir.Value]
    ) -> ir.Value:
        moved = builder.shl(builder.bitcast(values[0], I64), I64(52))
        return builder.bitcast(builder.add(moved, I64(1023 << 52)), ir.DoubleType())

    return types.float64(types.float64), generate
