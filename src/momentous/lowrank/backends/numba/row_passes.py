"""Passes over the entries of one row: products of their features with a vector, and sums of them.

Entries are taken in blocks of 8, whose products with a vector are in registers at the same time and
share what they read of it.  The features are read where they lie, twice in a row, so from the
fastest cache the second time; gathered once per row they would have to be written, which takes
longer than a step of conjugate gradients.  The loops over a row's parts have their counts at run
time, so that a kernel is compiled once and not once per rank.

Features, and vectors like them, are `in_whole_registers`.  This file needs numba, so is itself
imported only where it is used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

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
REGISTER = 64  # bytes of the longest registers that machines have, and of a line of the caches
CHUNK = 64  # entries between two additions to sums in double precision


def in_whole_registers(features: Floats) -> Floats:
    """A copy whose rows, filled up with zeros, begin and end with lines of the caches: half of all
    reads would otherwise touch two.  One more row has zeros alone."""
    rows, size = features.shape
    copy = aligned_zeros(rows + 1, size + -size % (REGISTER // features.itemsize), features.dtype)
    copy[:rows, :size] = features
    return copy


def aligned_zeros(rows: int, width: int, dtype: DTypeLike) -> Floats:
    """An array that begins with a line of the caches."""
    count = rows * width * np.dtype(dtype).itemsize
    memory = np.zeros(count + REGISTER, np.uint8)
    first = -memory.ctypes.data % REGISTER
    array: Floats = memory[first : first + count].view(dtype).reshape(rows, width)
    return array


class _Block:
    """The features of 8 entries from k on, beside one vector; (features, others, k, end) are the
    first arguments.  From ``end`` on they are zeros."""

    def __init__(self, context: Any, builder: Any, kinds: Any, values: Any, vector: int):
        self.builder = builder
        self.number = context.get_value_type(kinds[0].dtype)
        self.length = REGISTER // (kinds[0].dtype.bitwidth // 8)
        self.kind = ir.VectorType(self.number, self.length)
        self.vector = make_array(kinds[vector])(context, builder, values[vector]).data
        table = make_array(kinds[0])(context, builder, values[0])
        rows, width = (builder.extract_value(table.shape, axis) for axis in (0, 1))
        self.count = builder.sdiv(width, I64(self.length))
        index = make_array(kinds[1])(context, builder, values[1]).data
        zeros, last = (builder.sub(one, I64(1)) for one in (rows, values[3]))
        self.rows = []
        for i in range(BLOCK):
            entry = builder.add(values[2], I64(i))
            inside = builder.icmp_signed("<", entry, values[3])
            j = builder.load(builder.gep(index, [builder.select(inside, entry, last)]))
            j = builder.select(inside, builder.sext(j, I64), zeros)
            self.rows.append(builder.gep(table.data, [builder.mul(j, width)]))

    def _place(self, data: Any, k: Any) -> Any:
        first = self.builder.gep(data, [self.builder.mul(k, I64(self.length))])
        return self.builder.bitcast(first, self.kind.as_pointer())

    def load(self, row: int, k: Any) -> Any:
        """The part k of an entry's features."""
        return self.builder.load(self._place(self.rows[row], k), align=4)

    def load_vector(self, k: Any) -> Any:
        return self.builder.load(self._place(self.vector, k), align=4)

    def store_vector(self, k: Any, part: Any) -> None:
        self.builder.store(part, self._place(self.vector, k), align=4)


def _shuffled(builder: Any, one: Any, other: Any, places: list[int]) -> Any:
    return builder.shuffle_vector(one, other, ir.VectorType(I32, len(places))(places))


def _sums_of(builder: Any, vectors: list[Any]) -> Any:
    """One vector with the sums of 8 vectors of 8 or 16 numbers."""
    if vectors[0].type.count > BLOCK:
        halves = [list(range(BLOCK)), list(range(BLOCK, 2 * BLOCK))]
        vectors = [
            builder.fadd(*(_shuffled(builder, one, one, half) for half in halves))
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
def add_block_dots(
    typing: Any, features: Any, others: Any, k: Any, end: Any, vector: Any, z: Any, at: Any
) -> Any:
    """``z[at + i] += vector . f`` with f the features of the entry k + i, for 8 entries."""
    signature = types.void(features, others, k, end, vector, z, at)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        block = _Block(context, builder, signature.args, values, 4)
        sums = [cgutils.alloca_once(builder, block.kind) for _ in range(BLOCK)]
        for one in sums:
            builder.store(block.kind([0.0] * block.length), one)
        with cgutils.for_range(builder, block.count, intp=I64) as loop:
            part = block.load_vector(loop.index)
            for i, one in enumerate(sums):
                product = builder.fmul(part, block.load(i, loop.index), flags=FUSE)
                builder.store(builder.fadd(builder.load(one), product, flags=FUSE), one)
        found = _sums_of(builder, [builder.load(one) for one in sums])
        if block.number == SINGLE:
            found = builder.fpext(found, ir.VectorType(DOUBLE, BLOCK))
        out = Lines(context, builder, signature.args[5], values[5]).moved(values[6])
        out.store(I64(0), builder.fadd(out.load(I64(0)), found))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_block(
    typing: Any, features: Any, others: Any, k: Any, end: Any, factors: Any, at: Any, out: Any
) -> Any:
    """``out += sum_i factors[at + i] f`` with f the features of the entry k + i, for 8 entries."""
    signature = types.void(features, others, k, end, factors, at, out)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        block = _Block(context, builder, signature.args, values, 6)
        given = Lines(context, builder, signature.args[4], values[4]).moved(values[5])
        numbers = [given.number(I64(i)) for i in range(BLOCK)]
        if block.number == SINGLE:
            numbers = [builder.fptrunc(number, SINGLE) for number in numbers]
        weights = [filled(builder, number, block.length) for number in numbers]
        with cgutils.for_range(builder, block.count, intp=I64) as loop:
            total = block.load_vector(loop.index)
            for i, weight in enumerate(weights):
                product = builder.fmul(weight, block.load(i, loop.index), flags=FUSE)
                total = builder.fadd(total, product, flags=FUSE)
            block.store_vector(loop.index, total)
        return context.get_dummy_value()

    return signature, generate


@compiled_kernel()
def add_products(
    features: Floats, others: NDArray[np.int32], begin: int, end: int, curvatures: Floats,
    weighted: bool, direction: Floats, moves: Matrix, part: Floats, out: Matrix,
) -> None:  # fmt: skip
    """``out += sum_k c_k (direction . f_k) f_k`` for the entries from begin to end - 1; the first
    curvature is that of the first of them.  ``moves`` and ``part`` are for its own use."""
    for chunk in range(begin, end, CHUNK):
        part[:] = 0.0
        for k in range(chunk, min(chunk + CHUNK, end), BLOCK):
            moves[:] = 0.0
            add_block_dots(features, others, k, end, direction, moves, 0)
            if weighted:
                for i in range(min(BLOCK, end - k)):
                    moves[i] *= curvatures[k - begin + i]
            add_block(features, others, k, end, moves, 0, part)
        for q in range(out.size):
            out[q] += part[q]
