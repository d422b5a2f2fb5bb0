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

from momentous.lowrank.backends.blocks import Matrix
from momentous.lowrank.backends.numba.compiler import compiled_kernel
from momentous.lowrank.backends.numba.lanes import (
    FUSE,
    I64,
    Code,
    add_multiple,
    cgutils,
    instructions,
    ir,
    load_masked,
    mask_of,
    total,
)
from momentous.lowrank.data.ratings import Floats

SIDE = 8  # rows and columns of a tile
DOUBLE, SINGLE = ir.DoubleType(), ir.FloatType()
VECTOR = ir.VectorType(DOUBLE, SIDE)
ZERO = VECTOR([0.0] * SIDE)


class Lines:
    """The array that is the argument k, as lines of 8 numbers; from so many numbers on."""

    def __init__(self, code: Code, k: int, offset: ir.Value | None = None):
        self.builder, self.type, self.data = code.builder, code.number_type(k), code.data(k)
        self.alignment = code.kinds[k].dtype.bitwidth // 8
        if offset is not None:
            self.data = self.builder.gep(self.data, [offset])

    def moved(self, offset: ir.Value) -> Lines:
        """The same from so many numbers further on."""
        other = copy(self)
        other.data = self.builder.gep(self.data, [offset])
        return other

    def number(self, k: ir.Value) -> ir.Value:
        return self.builder.load(self.builder.gep(self.data, [k]))

    def put(self, k: ir.Value, number: ir.Value) -> None:
        self.builder.store(number, self.builder.gep(self.data, [k]))

    def place(self, k: ir.Value, columns: int = SIDE) -> ir.Value:
        first = self.builder.gep(self.data, [self.builder.mul(k, I64(SIDE))])
        return self.builder.bitcast(first, ir.VectorType(self.type, columns).as_pointer())

    def load(self, k: ir.Value, columns: int = SIDE) -> ir.Value:
        return self.builder.load(self.place(k, columns), align=self.alignment)

    def store(self, k: ir.Value, vector: ir.Value) -> None:
        self.builder.store(vector, self.place(k, vector.type.count), align=self.alignment)


def lines_at(code: Code, *which: int) -> list[Lines]:
    """These arguments, each from the number on that is the argument after it."""
    return [Lines(code, k, code.values[k + 1]) for k in which]


def in_double(builder: ir.IRBuilder, vector: ir.Value) -> ir.Value:
    if vector.type.element == DOUBLE:
        return vector
    return builder.fpext(vector, ir.VectorType(DOUBLE, vector.type.count))


class _Tile:
    """Sums of 8 rows and up to 8 columns of ``left'right`` in registers, to be added to ``out``."""

    def __init__(self, right: Lines, out: Lines, places: list[ir.Value], columns: int):
        self.builder, self.right, self.out = right.builder, right, out
        self.places, self.columns = places, columns
        # In single precision sums begin with 0, and are added to `out` in double precision.
        self.apart = right.type == SINGLE
        zero = ir.VectorType(right.type, columns)([0.0] * columns)
        self.sums = [cgutils.alloca_once_value(self.builder, zero) for _ in places]
        for place, one in zip(places, self.sums, strict=True):
            self.builder.store(zero if self.apart else out.load(place, columns), one)

    def add(self, k: ir.Value, numbers: list[ir.Value]) -> None:
        """Add the line k of ``right`` times these numbers, one per row."""
        builder = self.builder
        line = self.right.load(k, self.columns)
        for number, one in zip(numbers, self.sums, strict=True):
            builder.store(add_multiple(builder, builder.load(one), number, line), one)

    def store(self) -> None:
        builder = self.builder
        for place, one in zip(self.places, self.sums, strict=True):
            found = builder.load(one)
            if self.apart:
                before = self.out.load(place, self.columns)
                found = builder.fadd(before, builder.fpext(found, before.type))
            self.out.store(place, found)


def _add_tiles(
    code: Code, left: Lines, rights: list[Lines], outs: list[Lines], columns: int = SIDE,
    height: int = SIDE, extra: Callable[[ir.Value], None] | None = None,
) -> None:  # fmt: skip
    """``out[i, q] += sum_k left[k, i] right[k, q]`` for each pair of right and out, with as many k
    as the argument 0 says; ``extra`` is called once for every line k."""
    builder = code.builder
    wide = "+avx512f" in code.context.codegen().magic_tuple()[2]  # 32 registers in place of 16
    rows = height if wide or left.type == SINGLE or columns < SIDE else SIDE // 2
    at_once = len(rights) if wide else 1
    for first in range(0, height, rows):
        places = [I64(first + i) for i in range(rows)]
        for begin in range(0, len(rights), at_once):
            chosen = slice(begin, begin + at_once)
            tiles = [
                _Tile(right, out, places, columns)
                for right, out in zip(rights[chosen], outs[chosen], strict=True)
            ]
            with code.loop(code.values[0]) as loop:
                line = builder.mul(loop.index, I64(SIDE))
                numbers = [left.number(builder.add(line, place)) for place in places]
                for tile in tiles:
                    tile.add(loop.index, numbers)
                if extra is not None and first == 0:
                    extra(loop.index)
            for tile in tiles:
                tile.store()


TILE = ("count", "left", "at_left", "right", "at_right", "out", "at")
SIDE_OF_TILE = ("factors", "side", "at_side")


@instructions(*TILE)
def add_tile(code: Code) -> None:
    """``out[i, q] += sum_k left[k, i] right[k, q]`` for 8 rows i and 8 columns q.

    Lines begin at these numbers of the arrays.  The sum is in the precision of left and right.
    """
    left, right, out = lines_at(code, 1, 3, 5)
    _add_tiles(code, left, [right], [out])


@instructions(*TILE)
def add_half_tile(code: Code) -> None:
    """`add_tile` for the first 4 columns."""
    left, right, out = lines_at(code, 1, 3, 5)
    _add_tiles(code, left, [right], [out], SIDE // 2)


@instructions(*TILE, "next_right", "next_out")
def add_two_tiles(code: Code) -> None:
    """`add_tile`, and the same for the next strip, so many numbers further on: each number of
    ``left`` is read once for both."""
    left, right, out = lines_at(code, 1, 3, 5)
    rights, outs = [right, right.moved(code.values[7])], [out, out.moved(code.values[8])]
    _add_tiles(code, left, rights, outs)


@instructions(*TILE, *SIDE_OF_TILE)
def add_diagonal_tile(code: Code) -> None:
    """`add_tile`, and ``side[q] += sum_k factors[k] right[k, q]`` in double precision."""
    _add_tile_and_side(code, SIDE)


@instructions(*TILE, *SIDE_OF_TILE)
def add_corner_tile(code: Code) -> None:
    """`add_diagonal_tile` for the first 4 rows and columns."""
    _add_tile_and_side(code, SIDE // 2)


def _add_tile_and_side(code: Code, size: int) -> None:
    builder = code.builder
    left, right, out, side = lines_at(code, 1, 3, 5, 8)
    factors = Lines(code, 7)
    found = cgutils.alloca_once(builder, ir.VectorType(DOUBLE, size))
    builder.store(side.load(I64(0), size), found)

    def extra(k: ir.Value) -> None:
        line = in_double(builder, right.load(k, size))
        builder.store(add_multiple(builder, builder.load(found), factors.number(k), line), found)

    _add_tiles(code, left, [right], [out], size, size, extra)
    side.store(I64(0), builder.load(found))


@instructions("count", "u", "T", "z")
def add_dots(code: Code) -> None:
    """``z[k] += u . T[:, k]`` for the first ``count`` rows of all strips, in double precision."""
    builder, (strips, rows) = code.builder, code.shape(2)
    u, table, out = (Lines(code, k) for k in (1, 2, 3))
    dot = cgutils.alloca_once_value(builder, ZERO)
    with code.loop(code.values[0]) as entry:
        builder.store(ZERO, dot)
        with code.loop(strips) as strip:
            place = builder.add(builder.mul(strip.index, rows), entry.index)
            line = in_double(builder, table.load(place))
            product = builder.fmul(u.load(strip.index), line, flags=FUSE)
            builder.store(builder.fadd(builder.load(dot), product, flags=FUSE), dot)
        place = builder.gep(out.data, [entry.index])
        one = total(builder, [builder.load(dot)])
        builder.store(builder.fadd(builder.load(place), one), place)


@instructions("others", "begin", "count", "fixed", "T")
def gather_lines(code: Code) -> None:
    """``T[s, k] = fixed[others[begin + k], 8 s : 8 s + 8]``, in the precision of T; what is beyond
    the end of a row is 0."""
    builder, (strips, rows), (_, size) = code.builder, code.shape(4), code.shape(3)
    index, source, table = code.data(0), Lines(code, 3), Lines(code, 4)
    whole = builder.sub(strips, I64(1))
    inside = mask_of(builder, builder.sub(size, builder.mul(whole, I64(SIDE))), SIDE)

    def store(line: ir.Value, strip: ir.Value, entry: ir.Value) -> None:
        if table.type != source.type:
            line = builder.fpext(line, VECTOR)
        table.store(builder.add(builder.mul(strip, rows), entry), line)

    with code.loop(code.values[2]) as entry:
        j = builder.load(builder.gep(index, [builder.add(code.values[1], entry.index)]))
        row = source.moved(builder.mul(builder.sext(j, I64), size))
        with code.loop(whole) as strip:
            store(row.load(strip.index), strip.index, entry.index)
        store(load_masked(builder, row.place(whole), inside), whole, entry.index)


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
