"""Elimination and substitution in tiles of 8 x 8 numbers, for systems of any size.

A system lies in strips of 8 columns (see `tiles`), its last strip filled up with a part of the
identity.  This file needs numba, so is itself imported only where it is used.
"""

from __future__ import annotations

from momentous.lowrank.backends.blocks import Matrix
from momentous.lowrank.backends.numba.compiler import compiled_kernel
from momentous.lowrank.backends.numba.lanes import (
    FUSE,
    I64,
    Code,
    add_multiple,
    cgutils,
    filled,
    instructions,
    ir,
    total,
)
from momentous.lowrank.backends.numba.tiles import (
    DOUBLE,
    SIDE,
    ZERO,
    Lines,
    add_tile,
    in_double,
    lines_at,
)


@instructions("count", "factors", "right", "at_right", "side", "at")
def add_side(code: Code) -> None:
    """``side[q] += sum_k factors[k] right[k, q]`` for 8 columns q, in double precision."""
    builder = code.builder
    factor = Lines(code, 1)
    right, side = lines_at(code, 2, 4)
    # Four sums at once: one alone would wait for itself.
    sums = [cgutils.alloca_once_value(builder, ZERO) for _ in range(4)]
    for one in sums:
        builder.store(ZERO, one)

    def add(k: ir.Value, one: ir.Value) -> None:
        line = in_double(builder, right.load(k))
        builder.store(add_multiple(builder, builder.load(one), factor.number(k), line), one)

    fours = builder.ashr(code.values[0], I64(2))
    with code.loop(fours) as loop:
        first = builder.shl(loop.index, I64(2))
        for k, one in enumerate(sums):
            add(builder.add(first, I64(k)), one)
    done = builder.shl(fours, I64(2))
    with code.loop(builder.sub(code.values[0], done)) as loop:
        add(builder.add(done, loop.index), sums[0])
    a, b, c, d = (builder.load(one) for one in sums)
    found = builder.fadd(builder.fadd(a, b), builder.fadd(c, d))
    side.store(I64(0), builder.fadd(side.load(I64(0)), found))


@instructions("tile", "at", "inverses", "i", "shares")
def pivot_tile(code: Code) -> None:
    """Eliminate in the upper triangle of a tile on the diagonal.

    In ``inverses``, from i on, those of the pivots, 0 where there is nothing to divide by; in
    ``shares`` what `finish_tile` needs.  Numbers one by one: each waits for the pivot before it.
    """
    builder = code.builder
    tile, inverses = lines_at(code, 0, 2)
    shares = Lines(code, 4)
    upper = {(a, b): tile.number(I64(SIDE * a + b)) for a in range(SIDE) for b in range(a, SIDE)}
    for c in range(SIDE):
        pivot = upper[c, c]
        inverse = builder.select(
            builder.fcmp_ordered(">", pivot, DOUBLE(0.0)),
            builder.fdiv(DOUBLE(1.0), pivot),
            DOUBLE(0.0),
        )
        inverses.put(I64(c), inverse)
        for a in range(c + 1, SIDE):
            share = builder.fmul(builder.fneg(upper[c, a]), inverse)
            shares.put(I64(SIDE * a + c), share)
            for b in range(a, SIDE):
                product = builder.fmul(share, upper[c, b], flags=FUSE)
                upper[a, b] = builder.fadd(upper[a, b], product, flags=FUSE)
    for (a, b), number in upper.items():
        tile.put(I64(SIDE * a + b), number)


@instructions("shares", "inverses", "i", "tile", "at", "scaled")
def finish_tile(code: Code) -> None:
    """Eliminate within the 8 rows of a tile: ``tile[b] += shares[b, c] tile[c]`` for b > c, in
    order; in ``scaled``, at the same place, the rows times ``-inverses``."""
    builder = code.builder
    share = Lines(code, 0)
    inverse, tile = lines_at(code, 1, 3)
    scaled = Lines(code, 5, code.values[4])
    rows = [tile.load(I64(k)) for k in range(SIDE)]
    for c in range(SIDE):
        for b in range(c + 1, SIDE):
            rows[b] = add_multiple(builder, rows[b], share.number(I64(SIDE * b + c)), rows[c])
    for c in range(SIDE):
        tile.store(I64(c), rows[c])
        factor = builder.fneg(inverse.number(I64(c)))
        scaled.store(I64(c), builder.fmul(filled(builder, factor, SIDE), rows[c]))


@instructions("tile", "at", "inverses", "i", "side", "scaled")
def finish_side(code: Code) -> None:
    """Eliminate in 8 numbers of a right-hand side, from i on, by the tile on the diagonal; in
    ``scaled`` what is left of them over minus the pivots."""
    builder = code.builder
    tile, inverse = lines_at(code, 0, 2)
    side, scaled = (Lines(code, k, code.values[3]) for k in (4, 5))
    numbers = [side.number(I64(k)) for k in range(SIDE)]
    for c in range(SIDE):
        share = builder.fmul(builder.fneg(numbers[c]), inverse.number(I64(c)))
        scaled.put(I64(c), share)
        for b in range(c + 1, SIDE):
            product = builder.fmul(share, tile.number(I64(SIDE * c + b)), flags=FUSE)
            numbers[b] = builder.fadd(numbers[b], product, flags=FUSE)
    for c in range(SIDE):
        side.put(I64(c), numbers[c])


@instructions("A", "p", "inverses", "side", "x")
def substitute_tile(code: Code) -> None:
    """The 8 numbers of x that belong to the strip p, from those of the strips after it."""
    builder = code.builder
    p, (strips, rows) = code.values[1], code.shape(0)
    first = builder.mul(p, I64(SIDE))
    A, inverse, side, x = (Lines(code, k) for k in (0, 2, 3, 4))
    dots = [cgutils.alloca_once_value(builder, ZERO) for _ in range(SIDE)]
    for one in dots:
        builder.store(ZERO, one)
    after = builder.add(p, I64(1))
    with code.loop(builder.sub(strips, after)) as loop:
        strip = builder.add(after, loop.index)
        line = builder.add(builder.mul(strip, rows), first)
        known = x.load(strip)
        for c, one in enumerate(dots):
            product = builder.fmul(A.load(builder.add(line, I64(c))), known, flags=FUSE)
            builder.store(builder.fadd(builder.load(one), product, flags=FUSE), one)
    tile = A.moved(builder.mul(builder.add(builder.mul(p, rows), first), I64(SIDE)))
    inverse, side, x = (lines.moved(first) for lines in (inverse, side, x))
    rest = [
        builder.fsub(side.number(I64(c)), total(builder, [builder.load(one)]))
        for c, one in enumerate(dots)
    ]
    for c in range(SIDE - 1, -1, -1):
        found = builder.fmul(rest[c], inverse.number(I64(c)))
        x.put(I64(c), found)
        for b in range(c):
            product = builder.fmul(tile.number(I64(SIDE * b + c)), found, flags=FUSE)
            rest[b] = builder.fsub(rest[b], product, flags=FUSE)


@compiled_kernel()
def eliminate(A: Matrix, scaled: Matrix, inverses: Matrix, shares: Matrix) -> None:
    """Gauss's elimination in the upper tiles of A; in ``scaled`` its rows over minus the pivots.

    A row of tiles is finished before the next one begins (left-looking), so that the numbers of a
    tile stay in registers while all rows above it are taken off.
    """
    strips, far, tile = A.shape[0], SIDE * A.shape[1], SIDE * SIDE
    for p in range(strips):
        place = p * (far + tile)
        add_tile(SIDE * p, scaled, p * far, A, p * far, A, place)
        pivot_tile(A, place, inverses, SIDE * p, shares)
        for a in range(p + 1, strips):
            place = a * far + p * tile
            add_tile(SIDE * p, scaled, p * far, A, a * far, A, place)
            finish_tile(shares, inverses, SIDE * p, A, place, scaled)


@compiled_kernel()
def substitute(A: Matrix, inverses: Matrix, side: Matrix, shares: Matrix, x: Matrix) -> None:
    """The solution x for a right-hand side, after `eliminate`; leaves in ``side`` what elimination
    makes of it."""
    strips, far, tile = A.shape[0], SIDE * A.shape[1], SIDE * SIDE
    for p in range(strips):
        add_side(SIDE * p, shares, A, p * far, side, SIDE * p)
        finish_side(A, p * (far + tile), inverses, SIDE * p, side, shares)
    for p in range(strips - 1, -1, -1):
        substitute_tile(A, p, inverses, side, x)
