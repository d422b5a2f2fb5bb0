"""Kernels of the GPU backend in other settings, and what determinism costs.

The settings are those of `momentous.lowrank.backends.cuda.modules` and `layout`: each is tried in
turn, and the one that is fastest should be the one that stands there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cupy
import numpy as np

from gpu_common import report, timed, twin
from momentous.lowrank import LowRankObjective
from momentous.lowrank.backends import RowStep, cuda
from momentous.lowrank.backends.cuda import layout, modules
from momentous.lowrank.backends.cuda.launch import pack_rows

FACTORS = 10


@contextlib.contextmanager
def settings(**values: Any) -> Iterator[None]:
    """Other constants of the backend, with kernels compiled anew."""
    homes = [(home, name) for name in values for home in (layout, modules) if hasattr(home, name)]
    before = [getattr(home, name) for home, name in homes]
    for home, name in homes:
        setattr(home, name, values[name])
    modules._row_kernels.cache_clear()
    try:
        yield
    finally:
        for (home, name), old in zip(homes, before, strict=True):
            setattr(home, name, old)
        modules._row_kernels.cache_clear()


def variants(folder: Path | None) -> None:
    """Value and gradient on the MovieLens 10M twin, solves of rank 32 and 64 on the Netflix one."""
    ratings = twin("ml-10m", folder)
    print(f"\nvariants: value and gradient, {ratings}")
    for steps, resident in ((4, 8), (4, 10), (2, 10), (2, 12), (8, 6)):
        for warps in (8192, 32768):
            with settings(PASS_STEPS=steps, PASS_RESIDENT=resident, WARPS=warps):
                objective = LowRankObjective(ratings, FACTORS, device="cuda")
                x = objective.random_start(np.random.default_rng(0))
                both = timed(lambda o=objective, x=x: o.value_and_gradient(x), 40)
                rows, columns = (one_pass(objective, x, which) for which in (0, 1))
                name = f"PASS_STEPS {steps}, PASS_RESIDENT {resident}, WARPS {warps}"
                report(f"  {name} (passes {rows:.3f}, {columns:.3f})", both)
    objective = LowRankObjective(ratings, FACTORS, device="cuda")
    x = objective.random_start(np.random.default_rng(0))
    report("  as it is", timed(lambda: objective.value_and_gradient(x), 100))
    with one_stream():
        report("  the same on one stream", timed(lambda: objective.value_and_gradient(x), 100))
    for size in (64, 32):
        big = twin("netflix", folder)
        print(f"\nvariants: rows of a sweep, rank {size}, {big}")
        for values in ({"WARP_SIZE": 0}, *({"SOLVE_RESIDENT": count} for count in (2, 3, 4, 5))):
            with settings(**values):
                objective = LowRankObjective(big, size, balance=0.0, ridge=5.0, device="cuda")
                V = objective.split(objective.random_start(np.random.default_rng(0)))[1]
                side, step = objective.side(0), RowStep(objective.weights[0], V)
                name = ", ".join(f"{name} {value}" for name, value in values.items())
                report(f"  {name}", timed(lambda s=side, t=step: s.solve_rows(t), 5, 2))


def one_pass(objective: LowRankObjective, x: Any, which: int) -> float:
    """The pass over the entries by rows or by columns alone."""
    factors = [pack_rows(one) for one in objective.split(x)]
    side: Any = objective.side(which)
    return timed(lambda: side.pass_chunks(factors[which], factors[1 - which], FACTORS), 40)


@contextlib.contextmanager
def one_stream() -> Iterator[None]:
    """Nothing runs beside the current stream."""
    before = cuda.second_stream
    cuda.second_stream = cupy.cuda.get_current_stream  # type: ignore[attr-defined]
    try:
        yield
    finally:
        cuda.second_stream = before  # type: ignore[attr-defined]


# The pass over the rows that also adds to the other side's gradient, by atomics: one pass for both
# gradients, and other bits at each call.
ATOMIC = r"""
constexpr int Q = (SIZE + V - 1) / V, LANES = power_of_two(Q), SLOTS = 32 / LANES, STEPS = 4;
__device__ inline void add_to(Vec* to, Vec x) {
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.v[0]),
                 "f"(x.v[1]), "f"(x.v[2]), "f"(x.v[3]) : "memory");
}
extern "C" __global__ void __launch_bounds__(128) atomic_pass(
    Int chunks, const int* order, const int* owners, const uint2* bounds, const int* others,
    const T* values, const Vec* left, const Vec* right, const double* parameters, Vec* own,
    Vec* far, double* totals) {
    Int warp = (Int(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
    if (warp >= chunks) return;
    const int lane = threadIdx.x % 32, part = lane % LANES, slot = lane / LANES;
    const int chunk = order[warp], owner = owners[chunk];
    const unsigned begin = bounds[warp].x, end = bounds[warp].y;
    const Vec zero = {};
    Vec u = part < Q ? left[Int(owner) * Q + part] : zero, g = zero;
    double total = 0.0;
    for (unsigned base = begin + slot; base - slot < end; base += SLOTS * STEPS) {
        int other[STEPS];
        T x[STEPS];
        Vec f[STEPS];
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            unsigned k = base + s * SLOTS;
            other[s] = k < end ? others[k] : -1;
            x[s] = k < end ? values[k] : T(0);
        }
#pragma unroll
        for (int s = 0; s < STEPS; s++)
            f[s] = other[s] >= 0 && part < Q ? right[Int(other[s]) * Q + part] : zero;
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            T z = T(0);
#pragma unroll
            for (int i = 0; i < V; i++) z += u.v[i] * f[s].v[i];
#pragma unroll
            for (int half = LANES / 2; half; half /= 2) z += __shfl_xor_sync(ALL, z, half);
            Entry e = entry(z, x[s], parameters);
            if (other[s] < 0) continue;
            if (part == 0) total += e.value;
            Vec away;
#pragma unroll
            for (int i = 0; i < V; i++) {
                g.v[i] += e.slope * f[s].v[i];
                away.v[i] = e.slope * u.v[i];
            }
            if (part < Q) add_to(far + Int(other[s]) * Q + part, away);
        }
    }
#pragma unroll
    for (int i = 0; i < V; i++)
#pragma unroll
        for (int half = LANES; half < 32; half *= 2) g.v[i] += __shfl_xor_sync(ALL, g.v[i], half);
    if (slot == 0 && part < Q) add_to(own + Int(owner) * Q + part, g);
    total = add_all(total);
    if (lane == 0) totals[chunk] = total;
}
"""


def determinism(folder: Path | None) -> None:
    """The gradient of both factors by two passes, which give the same bits, and by atomics."""
    ratings = twin("ml-10m", folder)
    objective = LowRankObjective(ratings, FACTORS, device="cuda")
    x = objective.random_start(np.random.default_rng(0))
    U, V = (pack_rows(one) for one in objective.split(x))
    sides: list[Any] = [objective.side(0), objective.side(1)]
    defines = "".join(f"#define {name}\n" for name in ("T float", "A float", f"SIZE {FACTORS}"))
    common = (modules.FOLDER / "common.cu").read_text()
    code = defines + common + modules.entry_source(objective.loss) + ATOMIC
    kernel = modules.Module(code).get_function("atomic_pass")
    groups, chunks = sides[0].groups, sides[0].chunks
    own, far = cupy.zeros_like(U), cupy.zeros_like(V)
    losses = cupy.empty(chunks.total, np.float64)

    def by_atomics() -> None:
        own.fill(0)
        far.fill(0)
        kernel((-(-chunks.total // 4),), (128,), (
            chunks.total, chunks.order, chunks.owners, chunks.bounds, groups.others, groups.values,
            U, V, sides[0].parameters, own, far, losses,
        ))  # fmt: skip

    def by_two_passes() -> list[Any]:
        pairs = (U, V), (V, U)
        return [side.pass_chunks(*pair, FACTORS) for side, pair in zip(sides, pairs, strict=True)]

    print(f"\ndeterminism, {ratings}, rank {FACTORS}, float32")
    fixed, other = timed(by_two_passes, 50), timed(by_atomics, 50)
    report("  two passes, the same bits every time", fixed)
    report("  one pass and atomics", other)
    report("  price of determinism, times", fixed / other, unit="")
    by_atomics()
    gradients = [np.zeros(one.shape) for one in (U, V)]
    for side, passed, to in zip(sides, by_two_passes(), gradients, strict=True):
        np.add.at(to, cupy.asnumpy(side.chunks.owners), cupy.asnumpy(passed.gradients))
    for name, mine, theirs in zip(("rows", "columns"), gradients, (own, far), strict=True):
        off = np.abs(cupy.asnumpy(theirs) - mine).max() / np.abs(mine).max()
        print(f"  {name}: largest difference, relative {off:.1e}")
