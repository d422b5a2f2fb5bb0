"""Passes over the gathered features of one row's entries: products with a vector, and sums of them.

The features lie row by row, each filled up with zeros to whole registers, and so are the
entries to whole blocks of 8: a block's 8 products with a vector are in registers at the
same time, and share what they read of it.  The loops over a row's parts have their counts at run
time, so that a kernel is compiled once and not once per rank.

This file needs numba, so is itself imported only where it is used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from momentous.lowrank.backends.blocks import Matrix
from momentous.lowrank.backends.numba.compiler import compiled_kernel
from momentous.lowrank.backends.numba.lanes import (
    FUSE,
    I32,
    I64,
    cgutils,
    filled,
    intrinsic,
    ir,
    make_array,
    types,
)
from momentous.lowrank.backends.numba.tiles import DOUBLE, SINGLE, Lines
from momentous.lowrank.data.ratings import Floats

BLOCK = 8  # entries
# Entries between two additions to the sums in double precision; they fit the fastest cache.
CHUNK = 64
REGISTER = 64  # bytes of the longest vectors that machines have
AHEAD = 8  # entries between asking for features and reading them
# Numbers of one row's entries that are kept between passes; longer rows are gathered every time.
KEPT = 1 << 18


class _Pass:
    """8 rows of gathered features beside one vector; sums are in the precision of the vector."""

    def __init__(self, context: Any, builder: Any, kinds: Any, values: Any, vector: int):
        self.builder = builder
        self.vector = Lines(context, builder, kinds[vector], values[vector])
        self.length = 16 if self.vector.type == SINGLE else 8
        self.kind = ir.VectorType(self.vector.type, self.length)
        table = make_array(kinds[0])(context, builder, values[0])
        self.width = builder.extract_value(table.shape, 1)
        self.count = builder.sdiv(self.width, I64(self.length))
        self.number = context.get_value_type(kinds[0].dtype)
        first = builder.mul(values[1], self.width)
        self.rows = [
            builder.gep(table.data, [builder.add(first, builder.mul(self.width, I64(i)))])
            for i in range(BLOCK)
        ]

    def _place(self, data: Any, k: Any, kind: Any) -> Any:
        first = self.builder.gep(data, [self.builder.mul(k, I64(self.length))])
        return self.builder.bitcast(first, kind.as_pointer())

    def load(self, row: int, k: Any) -> Any:
        """The part k of a row, in the precision of the vector."""
        kind = ir.VectorType(self.number, self.length)
        alignment = 4 if self.number == SINGLE else 8
        part = self.builder.load(self._place(self.rows[row], k, kind), align=alignment)
        return part if kind == self.kind else self.builder.fpext(part, self.kind)

    def load_vector(self, k: Any) -> Any:
        place = self._place(self.vector.data, k, self.kind)
        return self.builder.load(place, align=self.vector.alignment)

    def store_vector(self, k: Any, part: Any) -> None:
        place = self._place(self.vector.data, k, self.kind)
        self.builder.store(part, place, align=self.vector.alignment)


def _shuffled(builder: Any, one: Any, other: Any, places: list[int]) -> Any:
    return builder.shuffle_vector(one, other, ir.VectorType(I32, len(places))(places))


def _sums_of(builder: Any, vectors: list[Any]) -> Any:
    """One vector with the sums of 8 vectors of 8 or 16 numbers."""
    if vectors[0].type.count > BLOCK:
        vectors = [
            builder.fadd(
                _shuffled(builder, one, one, list(range(8))),
                _shuffled(builder, one, one, list(range(8, 16))),
            )
            for one in vectors
        ]
    # Each round adds neighbours: of 8 vectors with one sum each in 8 parts it makes 4 vectors with
    # two sums in 4 parts each, and so on.
    for apart in (1, 2, 4):
        low = [k - k % (2 * apart) + k % apart for k in range(BLOCK)]
        first = [p if k % (2 * apart) < apart else BLOCK + p for k, p in enumerate(low)]
        second = [p + apart for p in first]
        half = len(vectors) // 2
        vectors = [
            builder.fadd(
                _shuffled(builder, one, other, first), _shuffled(builder, one, other, second)
            )
            for one, other in zip(vectors[:half], vectors[half:], strict=True)
        ]
    # Vectors were paired with those half the list further on, so sums come in the order of bits.
    return _shuffled(builder, vectors[0], vectors[0], [0, 4, 2, 6, 1, 5, 3, 7])


@intrinsic
def add_block_dots(typing: Any, T: Any, k: Any, vector: Any, z: Any, at: Any) -> Any:
    """``z[at + i] += vector . T[k + i]`` for 8 rows."""
    signature = types.void(T, k, vector, z, at)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        table = _Pass(context, builder, signature.args, values, 2)
        zero = table.kind([0.0] * table.length)
        sums = [cgutils.alloca_once_value(builder, zero) for _ in range(BLOCK)]
        for one in sums:
            builder.store(zero, one)
        with cgutils.for_range(builder, table.count, intp=I64) as loop:
            part = table.load_vector(loop.index)
            for i, one in enumerate(sums):
                product = builder.fmul(part, table.load(i, loop.index), flags=FUSE)
                builder.store(builder.fadd(builder.load(one), product, flags=FUSE), one)
        found = _sums_of(builder, [builder.load(one) for one in sums])
        if found.type.element != DOUBLE:
            found = builder.fpext(found, ir.VectorType(DOUBLE, BLOCK))
        out = Lines(context, builder, signature.args[3], values[3]).moved(values[4])
        out.store(I64(0), builder.fadd(out.load(I64(0)), found))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_block(typing: Any, T: Any, k: Any, factors: Any, at: Any, out: Any) -> Any:
    """``out += sum_i factors[at + i] T[k + i]`` for 8 rows."""
    signature = types.void(T, k, factors, at, out)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        table = _Pass(context, builder, signature.args, values, 4)
        given = Lines(context, builder, signature.args[2], values[2]).moved(values[3])
        numbers = [given.number(I64(i)) for i in range(BLOCK)]
        if table.vector.type == SINGLE:
            numbers = [builder.fptrunc(number, SINGLE) for number in numbers]
        weights = [filled(builder, number, table.length) for number in numbers]
        with cgutils.for_range(builder, table.count, intp=I64) as loop:
            total = table.load_vector(loop.index)
            for i, weight in enumerate(weights):
                product = builder.fmul(weight, table.load(i, loop.index), flags=FUSE)
                total = builder.fadd(total, product, flags=FUSE)
            table.store_vector(loop.index, total)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def copy_row(typing: Any, features: Any, j: Any, next_j: Any, T: Any, k: Any) -> Any:
    """``T[k] = features[j]``; the row next_j is asked for, so that it is near when its turn comes."""
    signature = types.void(features, j, next_j, T, k)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = signature.args
        source = make_array(kinds[0])(context, builder, values[0])
        target = make_array(kinds[3])(context, builder, values[3])
        width = builder.extract_value(source.shape, 1)
        number = context.get_value_type(kinds[0].dtype)
        length = REGISTER // (kinds[0].dtype.bitwidth // 8)
        kind = ir.VectorType(number, length)
        pointer = ir.IntType(8).as_pointer()
        prefetch = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [pointer, I32, I32, I32]),
            "llvm.prefetch.p0",
        )

        def row(data: Any, index: Any) -> Any:
            if index.type != I64:
                index = builder.sext(index, I64)
            return builder.gep(data, [builder.mul(index, width)])

        here, there, out = (
            row(source.data, values[1]), row(source.data, values[2]), row(target.data, values[4]),
        )  # fmt: skip
        with cgutils.for_range(builder, builder.sdiv(width, I64(length)), intp=I64) as loop:
            offset = builder.mul(loop.index, I64(length))
            ahead = builder.bitcast(builder.gep(there, [offset]), pointer)
            builder.call(prefetch, [ahead, I32(0), I32(3), I32(1)])
            part = builder.bitcast(builder.gep(here, [offset]), kind.as_pointer())
            place = builder.bitcast(builder.gep(out, [offset]), kind.as_pointer())
            builder.store(builder.load(part, align=4), place, align=4)
        return context.get_dummy_value()

    return signature, generate


@compiled_kernel()
def gather_rows(
    others: NDArray[np.int32], begin: int, count: int, features: Floats, T: Floats, first: int
) -> None:
    """``T[first + k] = features[others[begin + k]]``, filled up with zeros to a whole block."""
    last = others.size - 1
    for k in range(begin, begin + count):
        copy_row(features, others[k], others[min(k + AHEAD, last)], T, first + k - begin)
    for k in range(count, whole_blocks(count)):
        for q in range(T.shape[1]):
            T[first + k, q] = 0.0


@compiled_kernel()
def whole_blocks(count: int) -> int:
    """The least multiple of 8 that is no less."""
    return (count + BLOCK - 1) // BLOCK * BLOCK


@compiled_kernel()
def add_dots(count: int, T: Floats, first: int, vector: Floats, z: Matrix) -> None:
    """``z[k] += vector . T[first + k]``."""
    for k in range(0, count, BLOCK):
        add_block_dots(T, first + k, vector, z, k)


@compiled_kernel()
def add_rows(count: int, T: Floats, first: int, factors: Matrix, out: Floats) -> None:
    """``out += sum_k factors[k] T[first + k]``."""
    for k in range(0, count, BLOCK):
        add_block(T, first + k, factors, k, out)


@compiled_kernel()
def add_system(
    count: int, T: Floats, first: int, curvatures: Matrix, place: int, unit: bool,
    direction: Floats, moves: Matrix, part: Floats, out: Matrix,
) -> None:  # fmt: skip
    """``out += sum_k c_k (direction . T[first + k]) T[first + k]``; sums of up to `CHUNK` entries
    are in the precision of T, in ``part``."""
    for begin in range(0, count, CHUNK):
        end = min(begin + CHUNK, count)
        part[:] = 0.0
        for k in range(begin, end, BLOCK):
            moves[:] = 0.0
            add_block_dots(T, first + k, direction, moves, 0)
            if not unit:
                for i in range(BLOCK):
                    moves[i] *= curvatures[place + k + i]
            add_block(T, first + k, moves, 0, part)
        for q in range(out.size):
            out[q] += part[q]
