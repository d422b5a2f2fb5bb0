"""Tiles of 8 x 8 numbers in registers: sums of products and elimination, for every rank.

Rows of a factor, of a system and of a triangular factor are cut into **strips** of 8 columns, the
last one filled up with zeros: an array (strips, rows, 8), in which the rows of a strip follow each
other in memory.  A tile is 8 rows of a strip; the loops over tiles have their counts at run time, so
that a kernel is compiled once and not once per rank.  `benchmarks/ranks.py` measures the whole.

This file needs numba, so is itself imported only where it is used.
"""

from __future__ import annotations

from typing import Any

from momentous.lowrank.backends.blocks import Matrix
from momentous.lowrank.backends.numba.compiler import compiled_kernel
from momentous.lowrank.backends.numba.lanes import (
    FUSE,
    I64,
    cgutils,
    filled,
    intrinsic,
    ir,
    make_array,
    total,
    types,
)
from momentous.lowrank.data.ratings import Floats

SIDE = 8  # rows and columns of a tile
DOUBLE, SINGLE = ir.DoubleType(), ir.FloatType()
VECTOR = ir.VectorType(DOUBLE, SIDE)


class _Lines:
    """An array as lines of 8 numbers, from an offset in numbers on."""

    def __init__(self, context: Any, builder: Any, kind: Any, array: Any, offset: Any = None):
        self.builder = builder
        self.type = context.get_value_type(kind.dtype)
        self.vector = ir.VectorType(self.type, SIDE)
        self.alignment = kind.dtype.bitwidth // 8
        data = make_array(kind)(context, builder, array).data
        self.data = data if offset is None else builder.gep(data, [offset])

    def number(self, k: Any) -> Any:
        return self.builder.load(self.builder.gep(self.data, [k]))

    def _place(self, k: Any) -> Any:
        first = self.builder.gep(self.data, [self.builder.mul(k, I64(SIDE))])
        return self.builder.bitcast(first, self.vector.as_pointer())

    def load(self, k: Any) -> Any:
        return self.builder.load(self._place(k), align=self.alignment)

    def store(self, k: Any, vector: Any) -> None:
        self.builder.store(vector, self._place(k), align=self.alignment)


def _double(builder: Any, vector: Any) -> Any:
    return vector if vector.type.element == DOUBLE else builder.fpext(vector, VECTOR)


def _plus(builder: Any, to: Any, number: Any, vector: Any) -> Any:
    scaled = builder.fmul(filled(builder, number, SIDE), vector, flags=FUSE)
    return builder.fadd(to, scaled, flags=FUSE)


def _rows_at_once(context: Any, number: Any) -> int:
    """Rows of a tile whose sums fit the registers: 32 of 64 bytes, or 16 of 32 bytes."""
    features: str = context.codegen().magic_tuple()[2]
    return 8 if number == SINGLE or "+avx512f" in features else 4


@intrinsic
def add_tile(
    typing: Any, count: Any, left: Any, l: Any, right: Any, r: Any, out: Any, o: Any
) -> Any:  # fmt: skip
    """``out[i, q] += sum_k left[k, i] right[k, q]``, lines from the offsets l, r and o on.

    The sum is in the precision of left and right, and is added to ``out`` in that of ``out``.
    """
    signature = types.void(count, left, l, right, r, out, o)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = signature.args
        left, right, out = (
            _Lines(context, builder, kinds[k], values[k], values[k + 1]) for k in (1, 3, 5)
        )
        rows = _rows_at_once(context, left.type)
        zero = right.vector([0.0] * SIDE)
        for first in range(0, SIDE, rows):
            places = [I64(first + i) for i in range(rows)]
            begin = [zero if right.type == SINGLE else out.load(place) for place in places]
            sums = [cgutils.alloca_once_value(builder, one) for one in begin]
            with cgutils.for_range(builder, values[0], intp=I64) as loop:
                line = right.load(loop.index)
                here = builder.mul(loop.index, I64(SIDE))
                for place, one in zip(places, sums, strict=True):
                    number = left.number(builder.add(here, place))
                    builder.store(_plus(builder, builder.load(one), number, line), one)
            for place, one in zip(places, sums, strict=True):
                found = builder.load(one)
                if right.type == SINGLE:
                    found = builder.fadd(out.load(place), builder.fpext(found, VECTOR))
                out.store(place, found)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_side(
    typing: Any, count: Any, slopes: Any, right: Any, r: Any, side: Any, s: Any
) -> Any:
    """``side[q] += sum_k slopes[k] right[k, q]``, in double precision."""
    signature = types.void(count, slopes, right, r, side, s)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = signature.args
        slope = _Lines(context, builder, kinds[1], values[1])
        right = _Lines(context, builder, kinds[2], values[2], values[3])
        side = _Lines(context, builder, kinds[4], values[4], values[5])
        # Four sums at once: one alone would wait for itself.
        zero = VECTOR([0.0] * SIDE)
        sums = [
            cgutils.alloca_once_value(builder, side.load(I64(0)) if k == 0 else zero)
            for k in range(4)
        ]
        for one in sums[1:]:
            builder.store(zero, one)

        def add(k: Any, one: Any) -> None:
            line = _double(builder, right.load(k))
            builder.store(_plus(builder, builder.load(one), slope.number(k), line), one)

        fours = builder.ashr(values[0], I64(2))
        with cgutils.for_range(builder, fours, intp=I64) as loop:
            first = builder.shl(loop.index, I64(2))
            for k, one in enumerate(sums):
                add(builder.add(first, I64(k)), one)
        done = builder.shl(fours, I64(2))
        with cgutils.for_range(builder, builder.sub(values[0], done), intp=I64) as loop:
            add(builder.add(done, loop.index), sums[0])
        a, b, c, d = (builder.load(one) for one in sums)
        side.store(I64(0), builder.fadd(builder.fadd(a, b), builder.fadd(c, d)))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def finish_tile(
    typing: Any, shares: Any, inverses: Any, i: Any, tile: Any, o: Any, scaled: Any
) -> Any:
    """Eliminate within the 8 rows of a tile: ``tile[b] += shares[b, c] tile[c]`` for b > c, in
    order; in ``scaled`` the rows times ``-inverses``."""
    signature = types.void(shares, inverses, i, tile, o, scaled)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = signature.args
        share = _Lines(context, builder, kinds[0], values[0])
        inverse = _Lines(context, builder, kinds[1], values[1], values[2])
        tile = _Lines(context, builder, kinds[3], values[3], values[4])
        scaled = _Lines(context, builder, kinds[5], values[5], values[4])
        rows = [tile.load(I64(k)) for k in range(SIDE)]
        for c in range(SIDE):
            for b in range(c + 1, SIDE):
                rows[b] = _plus(builder, rows[b], share.number(I64(SIDE * b + c)), rows[c])
        for c in range(SIDE):
            tile.store(I64(c), rows[c])
            factor = builder.fneg(inverse.number(I64(c)))
            scaled.store(I64(c), builder.fmul(filled(builder, factor, SIDE), rows[c]))
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_dots(typing: Any, count: Any, u: Any, T: Any, z: Any) -> Any:
    """``z[k] += u . T[:, k]`` for the first ``count`` rows of all strips, in double precision."""
    signature = types.void(count, u, T, z)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = signature.args
        strips, rows = _strips_and_rows(context, builder, kinds[2], values[2])
        u = _Lines(context, builder, kinds[1], values[1])
        table = _Lines(context, builder, kinds[2], values[2])
        out = _Lines(context, builder, kinds[3], values[3])
        zero = VECTOR([0.0] * SIDE)
        dot = cgutils.alloca_once_value(builder, zero)
        with cgutils.for_range(builder, values[0], intp=I64) as entry:
            builder.store(zero, dot)
            with cgutils.for_range(builder, strips, intp=I64) as strip:
                place = builder.add(builder.mul(strip.index, rows), entry.index)
                line = _double(builder, table.load(place))
                product = builder.fmul(u.load(strip.index), line, flags=FUSE)
                builder.store(builder.fadd(builder.load(dot), product, flags=FUSE), dot)
            place = builder.gep(out.data, [entry.index])
            one = total(builder, [builder.load(dot)])
            builder.store(builder.fadd(builder.load(place), one), place)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def gather_lines(
    typing: Any, others: Any, begin: Any, count: Any, fixed: Any, T: Any
) -> Any:
    """``T[s, k] = fixed[others[begin + k], 8 s : 8 s + 8]``, in the precision of T."""
    signature = types.void(others, begin, count, fixed, T)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = signature.args
        strips, rows = _strips_and_rows(context, builder, kinds[4], values[4])
        index = make_array(kinds[0])(context, builder, values[0]).data
        source = _Lines(context, builder, kinds[3], values[3])
        table = _Lines(context, builder, kinds[4], values[4])
        with cgutils.for_range(builder, values[2], intp=I64) as entry:
            j = builder.load(builder.gep(index, [builder.add(values[1], entry.index)]))
            first = builder.mul(builder.sext(j, I64), strips)
            with cgutils.for_range(builder, strips, intp=I64) as strip:
                line = source.load(builder.add(first, strip.index))
                if table.type != source.type:
                    line = builder.fpext(line, VECTOR)
                table.store(builder.add(builder.mul(strip.index, rows), entry.index), line)
        return context.get_dummy_value()

    return signature, generate


def _strips_and_rows(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    shape = make_array(kind)(context, builder, array).shape
    return builder.extract_value(shape, 0), builder.extract_value(shape, 1)


@compiled_kernel()
def add_products(count: int, S: Floats, T: Floats, A: Matrix) -> None:
    """The upper tiles of ``A += S'T``, of the first ``count`` rows of S and T."""
    strips, strip, far = A.shape[0], SIDE * T.shape[1], SIDE * A.shape[1]
    for c in range(strips):
        for a in range(c, strips):
            add_tile(count, S, c * strip, T, a * strip, A, a * far + c * SIDE * SIDE)


@compiled_kernel()
def add_slopes(count: int, slopes: Matrix, T: Floats, side: Matrix) -> None:
    """``side += T'slopes``, of the first ``count`` rows of T."""
    for s in range(T.shape[0]):
        add_side(count, slopes, T, s * SIDE * T.shape[1], side, s * SIDE)


@compiled_kernel("contract")
def pivot_tile(rows: Matrix, inverses: Matrix, shares: Matrix) -> None:
    """Eliminate in the tile on the diagonal, 8 rows: inverses of the pivots, 0 where there is nothing
    to divide by, and what `finish_tile` needs."""
    for c in range(SIDE):
        inverse = 1.0 / rows[c, c] if rows[c, c] > 0.0 else 0.0
        inverses[c] = inverse
        for b in range(c + 1, SIDE):
            share = -rows[c, b] * inverse
            shares[b, c] = share
            for q in range(SIDE):
                rows[b, q] += share * rows[c, q]


@compiled_kernel()
def eliminate(A: Matrix, scaled: Matrix, inverses: Matrix, shares: Matrix) -> None:
    """Gauss's elimination in the upper tiles of A; in ``scaled`` its rows over minus the pivots.

    Every tile is finished before the next row of tiles begins (left-looking), so that its numbers
    stay in registers while all rows above it are taken off.
    """
    strips, far, tile = A.shape[0], SIDE * A.shape[1], SIDE * SIDE
    for p in range(strips):
        for a in range(p, strips):
            add_tile(SIDE * p, scaled, p * far, A, a * far, A, a * far + p * tile)
        pivot_tile(
            A[p, SIDE * p : SIDE * p + SIDE], inverses[SIDE * p : SIDE * p + SIDE], shares
        )
        for a in range(p + 1, strips):
            finish_tile(shares, inverses, SIDE * p, A, a * far + p * tile, scaled)


@compiled_kernel("contract")
def forward(A: Matrix, inverses: Matrix, side: Matrix) -> None:
    """Eliminate in a right-hand side, (strips, 8), what `eliminate` did in the rows."""
    strips = A.shape[0]
    for p in range(strips):
        first = SIDE * p
        rows = A[p, first : first + SIDE]
        for c in range(SIDE):
            share = side[p, c] * inverses[first + c]
            for b in range(c + 1, SIDE):
                side[p, b] -= share * rows[c, b]
        for a in range(p + 1, strips):
            below = A[a, first : first + SIDE]
            for c in range(SIDE):
                share = side[p, c] * inverses[first + c]
                for q in range(SIDE):
                    side[a, q] -= share * below[c, q]


@compiled_kernel("contract", "reassoc")
def backward(A: Matrix, inverses: Matrix, side: Matrix, x: Matrix) -> None:
    """The solution x, (strips, 8), after `eliminate` and `forward`."""
    strips = A.shape[0]
    for p in range(strips - 1, -1, -1):
        first = SIDE * p
        for c in range(SIDE):
            rest = side[p, c]
            for a in range(p + 1, strips):
                for q in range(SIDE):
                    rest -= A[a, first + c, q] * x[a, q]
            x[p, c] = rest
        rows = A[p, first : first + SIDE]
        for c in range(SIDE - 1, -1, -1):
            value = x[p, c] * inverses[first + c]
            x[p, c] = value
            for b in range(c):
                x[p, b] -= rows[b, c] * value
