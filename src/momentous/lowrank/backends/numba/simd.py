"""Rows of a factor as SIMD values, for the pass over all entries: the one place with LLVM in it.

Everything else here is plain loops, which the compiler vectorises as well.  Not those over a row of
ten numbers: they took 2.1 times as long (ML-1M twin, rank 10, either precision), because each row's
loop checks anew whether its arrays overlap and how many whole registers it has.

A row of r numbers is a tuple of vectors whose lengths are powers of two (10 = 8 + 2), which LLVM
maps to whatever registers the machine has.  r is the length of the tuple ``lanes``, so known to the
compiler.  This file needs numba, so is itself imported only where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.core.base import BaseContext
    from numba.core.typing import Context, Signature
    from numba.extending import intrinsic, models, register_model
    from numba.np.arrayobj import make_array
else:
    ir, types = import_module("llvmlite.ir"), import_module("numba.types")
    cgutils, extending = import_module("numba.core.cgutils"), import_module("numba.extending")
    intrinsic, models, register_model = (
        extending.intrinsic, extending.models, extending.register_model,
    )  # fmt: skip
    make_array = import_module("numba.np.arrayobj").make_array

Generator = Callable[["BaseContext", "ir.IRBuilder", "Signature", list["ir.Value"]], "ir.Value"]
FUSE = ("contract",)  # a * b + c may be rounded once
# A kernel has a compiled version of its own for each rank up to 16; beyond that it takes strips of
# 16 numbers, or of 32 where a row has four of these and more.
STRIP, LONG_STRIP = 16, 32
I32, I64 = ir.IntType(32), ir.IntType(64)


def strip_length(rank: int) -> int:
    """How many numbers of a row are taken at once."""
    return rank if rank <= STRIP else STRIP if rank <= 3 * STRIP else LONG_STRIP


class Vector(types.Type):  # type: ignore[misc]  # numba has no types
    """So many numbers of one type in registers."""

    def __init__(self, number: types.Type, length: int):
        self.number, self.length = number, length
        super().__init__(name=f"Vector({number} x {length})")


@register_model(Vector)
class VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    """In LLVM: its vector."""

    def __init__(self, manager: models.DataModelManager, kind: Vector):
        number = manager.lookup(kind.number).get_value_type()
        super().__init__(manager, kind, ir.VectorType(number, kind.length))


def piece_lengths(count: int) -> Iterator[int]:
    """Powers of two that add up to it: 10 gives 8, 2."""
    while count:
        length = 1 << (count.bit_length() - 1)
        yield length
        count -= length


def _places(
    context: BaseContext, builder: ir.IRBuilder, kind: types.Array, row: types.Tuple,
    array: ir.Value, first: ir.Value,
) -> Iterator[ir.Value]:  # fmt: skip
    """Where the pieces of the row lie that begins with the number ``first`` of an array."""
    place = builder.gep(make_array(kind)(context, builder, array).data, [first])
    for piece in row:
        yield builder.bitcast(place, context.get_value_type(piece).as_pointer())
        place = builder.gep(place, [I64(piece.length)])


@intrinsic  # type: ignore[untyped-decorator]
def load_row(
    typing: Context, lanes: types.Type, array: types.Type, first: types.Type
) -> tuple[Signature, Generator]:
    """As many numbers as lanes of a C-contiguous array, from its number ``first`` on."""
    row = types.Tuple([Vector(array.dtype, length) for length in piece_lengths(lanes.count)])
    size = array.dtype.bitwidth // 8

    def generate(
        context: BaseContext, builder: ir.IRBuilder, call: Signature, values: list[ir.Value]
    ) -> ir.Value:
        places = _places(context, builder, array, row, *values[1:])
        found = [builder.load(place, align=size) for place in places]
        return context.make_tuple(builder, row, found)

    return row(lanes, array, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]
def store_row(
    typing: Context, array: types.Type, first: types.Type, row: types.Type
) -> tuple[Signature, Generator]:
    """The other way round."""

    def generate(
        context: BaseContext, builder: ir.IRBuilder, call: Signature, values: list[ir.Value]
    ) -> ir.Value:
        places = _places(context, builder, array, row, *values[:2])
        for place, vector in zip(places, cgutils.unpack_tuple(builder, values[2]), strict=True):
            builder.store(vector, place, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, row), generate


@intrinsic  # type: ignore[untyped-decorator]
def add_multiple(
    typing: Context, to: types.Type, factor: types.Type, row: types.Type
) -> tuple[Signature, Generator]:
    """``to + factor row``."""

    def generate(
        context: BaseContext, builder: ir.IRBuilder, call: Signature, values: list[ir.Value]
    ) -> ir.Value:
        found = []
        for before, vector in zip(*_pieces(builder, values[0], values[2]), strict=True):
            nothing = vector.type(ir.Undefined)
            first = builder.insert_element(nothing, values[1], I32(0))
            everywhere = ir.VectorType(I32, vector.type.count)(None)
            factors = builder.shuffle_vector(first, nothing, everywhere)
            product = builder.fmul(factors, vector, flags=FUSE)
            found.append(builder.fadd(before, product, flags=FUSE))
        return context.make_tuple(builder, row, found)

    return row(row, row[0].number, row), generate


@intrinsic  # type: ignore[untyped-decorator]
def dot_rows(typing: Context, one: types.Type, other: types.Type) -> tuple[Signature, Generator]:
    """Their product; any order of the sum will do, as long as it is always the same one."""
    number = one[0].number

    def generate(
        context: BaseContext, builder: ir.IRBuilder, call: Signature, values: list[ir.Value]
    ) -> ir.Value:
        total, zero = None, context.get_value_type(number)(-0.0)
        for a, b in zip(*_pieces(builder, *values), strict=True):
            name = f"llvm.vector.reduce.fadd.v{a.type.count}f{number.bitwidth}"
            kind = ir.FunctionType(zero.type, [zero.type, a.type])
            add = cgutils.get_or_insert_function(builder.module, kind, name)
            part = builder.call(add, [zero, builder.fmul(a, b)], fastmath=("reassoc",))
            total = part if total is None else builder.fadd(total, part)
        return total

    return number(one, other), generate


def _pieces(builder: ir.IRBuilder, *rows: ir.Value) -> list[list[ir.Value]]:
    return [cgutils.unpack_tuple(builder, row) for row in rows]
