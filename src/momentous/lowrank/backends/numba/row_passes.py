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

import numpy as np
from numpy.typing import DTypeLike, NDArray

from momentous.lowrank.backends.blocks import Matrix
from momentous.lowrank.backends.numba.compiler import compiled_kernel
from momentous.lowrank.backends.numba.lanes import (
    FUSE,
    I32,
    I64,
    Code,
    cgutils,
    filled,
    instructions,
    ir,
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

    def __init__(self, code: Code, vector: int):
        builder, self.number = code.builder, code.number_type(0)
        self.builder, self.vector = builder, code.data(vector)
        self.length = REGISTER // (code.kinds[0].dtype.bitwidth // 8)
        self.kind = ir.VectorType(self.number, self.length)
        table, index, (rows, width) = code.data(0), code.data(1), code.shape(0)
        self.count = builder.sdiv(width, I64(self.length))
        first, end = code.values[2:4]
        zeros, last = (builder.sub(one, I64(1)) for one in (rows, end))
        self.rows = []
        for i in range(BLOCK):
            entry = builder.add(first, I64(i))
            inside = builder.icmp_signed("<", entry, end)
            j = builder.load(builder.gep(index, [builder.select(inside, entry, last)]))
            j = builder.select(inside, builder.sext(j, I64), zeros)
            self.rows.append(builder.gep(table, [builder.mul(j, width)]))

    def _place(self, data: ir.Value, k: ir.Value) -> ir.Value:
        first = self.builder.gep(data, [self.builder.mul(k, I64(self.length))])
        return self.builder.bitcast(first, self.kind.as_pointer())

    def load(self, row: int, k: ir.Value) -> ir.Value:
        """The part k of an entry's features."""
        return self.builder.load(self._place(self.rows[row], k), align=4)

    def load_vector(self, k: ir.Value) -> ir.Value:
        return self.builder.load(self._place(self.vector, k), align=4)

    def store_vector(self, k: ir.Value, part: ir.Value) -> None:
        self.builder.store(part, self._place(self.vector, k), align=4)


def _shuffled(builder: ir.IRBuilder, one: ir.Value, other: ir.Value, places: list[int]) -> ir.Value:
    return builder.shuffle_vector(one, other, ir.VectorType(I32, len(places))(places))


def _sums_of(builder: ir.IRBuilder, vectors: list[ir.Value]) -> ir.Value:
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


@instructions("features", "others", "k", "end", "vector", "z", "at")
def add_block_dots(code: Code) -> None:
    """``z[at + i] += vector . f`` with f the features of the entry k + i, for 8 entries."""
    builder = code.builder
    block = _Block(code, 4)
    sums = [cgutils.alloca_once(builder, block.kind) for _ in range(BLOCK)]
    for one in sums:
        builder.store(block.kind([0.0] * block.length), one)
    with code.loop(block.count) as loop:
        part = block.load_vector(loop.index)
        for i, one in enumerate(sums):
            product = builder.fmul(part, block.load(i, loop.index), flags=FUSE)
            builder.store(builder.fadd(builder.load(one), product, flags=FUSE), one)
    found = _sums_of(builder, [builder.load(one) for one in sums])
    if block.number == SINGLE:
        found = builder.fpext(found, ir.VectorType(DOUBLE, BLOCK))
    out = Lines(code, 5, code.values[6])
    out.store(I64(0), builder.fadd(out.load(I64(0)), found))


@instructions("features", "others", "k", "end", "factors", "at", "out")
def add_block(code: Code) -> None:
    """``out += sum_i factors[at + i] f`` with f the features of the entry k + i, for 8 entries."""
    builder = code.builder
    block = _Block(code, 6)
    given = Lines(code, 4, code.values[5])
    numbers = [given.number(I64(i)) for i in range(BLOCK)]
    if block.number == SINGLE:
        numbers = [builder.fptrunc(number, SINGLE) for number in numbers]
    weights = [filled(builder, number, block.length) for number in numbers]
    with code.loop(block.count) as loop:
        total = block.load_vector(loop.index)
        for i, weight in enumerate(weights):
            product = builder.fmul(weight, block.load(i, loop.index), flags=FUSE)
            total = builder.fadd(total, product, flags=FUSE)
        block.store_vector(loop.index, total)


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
