"""Tiles of 8 x 8 numbers in registers: sums of products of entries, for every rank.

Rows of a factor, of a system and of a triangular factor are cut into **strips** of 8 columns, the
last one filled up with zeros: an array (strips, rows, 8), in which the rows of a strip follow each
other in memory.  A tile is 8 rows of a strip; the loops over tiles have their counts at run time,
so that a kernel is compiled once and not once per rank.  `benchmarks/ranks.py` measures the whole.

This file needs numba, so is itself imported only where it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
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
    load_masked,
    make_array,
    mask_of,
    total,
    types,
)
from momentous.lowrank.data.ratings import Floats

SIDE = 8  # rows and columns of a tile
DOUBLE, SINGLE = ir.DoubleType(), ir.FloatType()
VECTOR = ir.VectorType(DOUBLE, SIDE)
ZERO = VECTOR([0.0] * SIDE)


class Lines:
    """An array as lines of 8 numbers."""

    def __init__(self, context: Any, builder: Any, kind: Any, array: Any):
        self.builder = builder
        self.type = context.get_value_type(kind.dtype)
        self.alignment = kind.dtype.bitwidth // 8
        self.data = make_array(kind)(context, builder, array).data

    def moved(self, offset: Any) -> Lines:
        """The same from so many numbers further on."""
        other = copy(self)
        other.data = self.builder.gep(self.data, [offset])
        return other

    def number(self, k: Any) -> Any:
        return self.builder.load(self.builder.gep(self.data, [k]))

    def put(self, k: Any, number: Any) -> None:
        self.builder.store(number, self.builder.gep(self.data, [k]))

    def place(self, k: Any, columns: int = SIDE) -> Any:
        first = self.builder.gep(self.data, [self.builder.mul(k, I64(SIDE))])
        return self.builder.bitcast(first, ir.VectorType(self.type, columns).as_pointer())

    def load(self, k: Any, columns: int = SIDE) -> Any:
        return self.builder.load(self.place(k, columns), align=self.alignment)

    def store(self, k: Any, vector: Any) -> None:
        self.builder.store(vector, self.place(k, vector.type.count), align=self.alignment)


def lines_at(context: Any, builder: Any, signature: Any, values: Any, *which: int) -> list[Lines]:
    """These arguments, each from the number on that is the argument after it."""
    return [
        Lines(context, builder, signature.args[k], values[k]).moved(values[k + 1]) for k in which
    ]


def in_double(builder: Any, vector: Any) -> Any:
    if vector.type.element == DOUBLE:
        return vector
    return builder.fpext(vector, ir.VectorType(DOUBLE, vector.type.count))


def plus(builder: Any, to: Any, number: Any, vector: Any) -> Any:
    scaled = builder.fmul(filled(builder, number, vector.type.count), vector, flags=FUSE)
    return builder.fadd(to, scaled, flags=FUSE)


class _Tile:
    """Sums of 8 rows and up to 8 columns of ``left'right`` in registers, to be added to ``out``."""

    def __init__(self, builder: Any, right: Lines, out: Lines, places: list[Any], columns: int):
        self.builder, self.right, self.out = builder, right, out
        self.places, self.columns = places, columns
        # In single precision sums begin with 0, and are added to `out` in double precision.
        self.apart = right.type == SINGLE
        zero = ir.VectorType(right.type, columns)([0.0] * columns)
        self.sums = [cgutils.alloca_once_value(builder, zero) for _ in places]
        for place, one in zip(places, self.sums, strict=True):
            builder.store(zero if self.apart else out.load(place, columns), one)

    def add(self, k: Any, numbers: list[Any]) -> None:
        """Add the line k of ``right`` times these numbers, one per row."""
        builder = self.builder
        line = self.right.load(k, self.columns)
        for number, one in zip(numbers, self.sums, strict=True):
            builder.store(plus(builder, builder.load(one), number, line), one)

    def store(self) -> None:
        builder = self.builder
        for place, one in zip(self.places, self.sums, strict=True):
            found = builder.load(one)
            if self.apart:
                before = self.out.load(place, self.columns)
                found = builder.fadd(before, builder.fpext(found, before.type))
            self.out.store(place, found)


def _add_tiles(
    context: Any, builder: Any, count: Any, left: Lines, rights: list[Lines], outs: list[Lines],
    columns: int = SIDE, height: int = SIDE, extra: Callable[[Any], None] | None = None,
) -> None:  # fmt: skip
    """``out[i, q] += sum_k left[k, i] right[k, q]`` for each pair of right and out; ``extra`` is
    called once for every line k."""
    wide = "+avx512f" in context.codegen().magic_tuple()[2]  # 32 registers in place of 16
    rows = height if wide or left.type == SINGLE or columns < SIDE else SIDE // 2
    at_once = len(rights) if wide else 1
    for first in range(0, height, rows):
        places = [I64(first + i) for i in range(rows)]
        for begin in range(0, len(rights), at_once):
            chosen = slice(begin, begin + at_once)
            tiles = [
                _Tile(builder, right, out, places, columns)
                for right, out in zip(rights[chosen], outs[chosen], strict=True)
            ]
            with cgutils.for_range(builder, count, intp=I64) as loop:
                line = builder.mul(loop.index, I64(SIDE))
                numbers = [left.number(builder.add(line, place)) for place in places]
                for tile in tiles:
                    tile.add(loop.index, numbers)
                if extra is not None and first == 0:
                    extra(loop.index)
            for tile in tiles:
                tile.store()


@intrinsic
def add_tile(
    typing: Any, count: Any, left: Any, at_left: Any, right: Any, at_right: Any, out: Any, at: Any
) -> Any:
    """``out[i, q] += sum_k left[k, i] right[k, q]`` for 8 rows i and 8 columns q.

    Lines begin at these numbers of the arrays.  The sum is in the precision of left and right.
    """
    signature = types.void(count, left, at_left, right, at_right, out, at)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        left, right, out = lines_at(context, builder, signature, values, 1, 3, 5)
        _add_tiles(context, builder, values[0], left, [right], [out])
        return context.get_dummy_value()

    return signature, generate


def _add_tile_and_side(context: Any, builder: Any, signature: Any, values: Any, size: int) -> None:
    left, right, out, side = lines_at(context, builder, signature, values, 1, 3, 5, 8)
    factors = Lines(context, builder, signature.args[7], values[7])
    found = cgutils.alloca_once(builder, ir.VectorType(DOUBLE, size))
    builder.store(side.load(I64(0), size), found)

    def extra(k: Any) -> None:
        line = in_double(builder, right.load(k, size))
        builder.store(plus(builder, builder.load(found), factors.number(k), line), found)

    _add_tiles(context, builder, values[0], left, [right], [out], size, size, extra)
    side.store(I64(0), builder.load(found))


@intrinsic
def add_diagonal_tile(
    typing: Any, count: Any, left: Any, at_left: Any, right: Any, at_right: Any, out: Any, at: Any,
    factors: Any, side: Any, at_side: Any,
) -> Any:  # fmt: skip
    """`add_tile`, and ``side[q] += sum_k factors[k] right[k, q]`` in double precision."""
    signature = types.void(count, left, at_left, right, at_right, out, at, factors, side, at_side)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _add_tile_and_side(context, builder, signature, values, SIDE)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_corner_tile(
    typing: Any, count: Any, left: Any, at_left: Any, right: Any, at_right: Any, out: Any, at: Any,
    factors: Any, side: Any, at_side: Any,
) -> Any:  # fmt: skip
    """`add_diagonal_tile` for the first 4 rows and columns."""
    signature = types.void(count, left, at_left, right, at_right, out, at, factors, side, at_side)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _add_tile_and_side(context, builder, signature, values, SIDE // 2)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_half_tile(
    typing: Any, count: Any, left: Any, at_left: Any, right: Any, at_right: Any, out: Any, at: Any
) -> Any:
    """`add_tile` for the first 4 columns."""
    signature = types.void(count, left, at_left, right, at_right, out, at)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        left, right, out = lines_at(context, builder, signature, values, 1, 3, 5)
        _add_tiles(context, builder, values[0], left, [right], [out], SIDE // 2)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_two_tiles(
    typing: Any, count: Any, left: Any, at_left: Any, right: Any, at_right: Any, out: Any, at: Any,
    next_right: Any, next_out: Any,
) -> Any:  # fmt: skip
    """`add_tile`, and the same for the next strip, so many numbers further on: each number of
    ``left`` is read once for both."""
    signature = types.void(count, left, at_left, right, at_right, out, at, next_right, next_out)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        left, right, out = lines_at(context, builder, signature, values, 1, 3, 5)
        rights, outs = [right, right.moved(values[7])], [out, out.moved(values[8])]
        _add_tiles(context, builder, values[0], left, rights, outs)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_dots(typing: Any, count: Any, u: Any, T: Any, z: Any) -> Any:
    """``z[k] += u . T[:, k]`` for the first ``count`` rows of all strips, in double precision."""
    signature = types.void(count, u, T, z)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = signature.args
        strips, rows = strips_and_rows(context, builder, kinds[2], values[2])
        u = Lines(context, builder, kinds[1], values[1])
        table = Lines(context, builder, kinds[2], values[2])
        out = Lines(context, builder, kinds[3], values[3])
        dot = cgutils.alloca_once_value(builder, ZERO)
        with cgutils.for_range(builder, values[0], intp=I64) as entry:
            builder.store(ZERO, dot)
            with cgutils.for_range(builder, strips, intp=I64) as strip:
                place = builder.add(builder.mul(strip.index, rows), entry.index)
                line = in_double(builder, table.load(place))
                product = builder.fmul(u.load(strip.index), line, flags=FUSE)
                builder.store(builder.fadd(builder.load(dot), product, flags=FUSE), dot)
            place = builder.gep(out.data, [entry.index])
            one = total(builder, [builder.load(dot)])
            builder.store(builder.fadd(builder.load(place), one), place)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def gather_lines(typing: Any, others: Any, begin: Any, count: Any, fixed: Any, T: Any) -> Any:
    """``T[s, k] = fixed[others[begin + k], 8 s : 8 s + 8]``, in the precision of T; what is beyond
    the end of a row is 0."""
    signature = types.void(others, begin, count, fixed, T)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = signature.args
        strips, rows = strips_and_rows(context, builder, kinds[4], values[4])
        _, size = strips_and_rows(context, builder, kinds[3], values[3])
        index = make_array(kinds[0])(context, builder, values[0]).data
        source = Lines(context, builder, kinds[3], values[3])
        table = Lines(context, builder, kinds[4], values[4])
        whole = builder.sub(strips, I64(1))
        inside = mask_of(builder, builder.sub(size, builder.mul(whole, I64(SIDE))), SIDE)

        def store(line: Any, strip: Any, entry: Any) -> None:
            if table.type != source.type:
                line = builder.fpext(line, VECTOR)
            table.store(builder.add(builder.mul(strip, rows), entry), line)

        with cgutils.for_range(builder, values[2], intp=I64) as entry:
            j = builder.load(builder.gep(index, [builder.add(values[1], entry.index)]))
            row = source.moved(builder.mul(builder.sext(j, I64), size))
            with cgutils.for_range(builder, whole, intp=I64) as strip:
                store(row.load(strip.index), strip.index, entry.index)
            store(load_masked(builder, row.place(whole), inside), whole, entry.index)
        return context.get_dummy_value()

    return signature, generate


def strips_and_rows(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    shape = make_array(kind)(context, builder, array).shape
    return builder.extract_value(shape, 0), builder.extract_value(shape, 1)


@compiled_kernel()
def add_products(
    size: int, count: int, S: Floats, T: Floats, A: Matrix, slopes: Matrix, side: Matrix
) -> None:
    """The upper tiles of ``A += S'T``, and ``side += T'slopes``, of the first ``count`` rows."""
    strip, far, tile = SIDE * T.shape[1], SIDE * A.shape[1], SIDE * SIDE
    half = (size - 1) % SIDE < SIDE // 2
    whole = A.shape[0] - half
    last = whole * strip
    for c in range(whole):
        here = c * strip
        place = c * (far + tile)
        add_diagonal_tile(count, S, here, T, here, A, place, slopes, side, SIDE * c)
        for a in range(c + 1, whole - 1, 2):
            add_two_tiles(count, S, here, T, a * strip, A, a * far + c * tile, strip, far)
        if (whole - c) % 2 == 0:
            add_tile(count, S, here, T, last - strip, A, (whole - 1) * far + c * tile)
        if half:
            add_half_tile(count, S, here, T, last, A, whole * far + c * tile)
    if half:
        place = whole * (far + tile)
        add_corner_tile(count, S, last, T, last, A, place, slopes, side, SIDE * whole)
