"""Passes for tensors of PyTorch on a GPU: one Triton kernel per pass.

Triton comes with PyTorch.  It compiles Python functions, of which it reads the text: those here are
written by this module, one per pass.  Each program adds up its share of the sums in double
precision, and the host adds the shares.
"""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from momentous.core.passes import Pass, add_shares, names, trace
from momentous.io.optional import LazyModule

torch: Any = LazyModule("torch", "torch", "a tensor of PyTorch")
triton: Any = LazyModule("triton", "torch", "a tensor of PyTorch on a GPU")
ALIGNMENT = 16  # bytes, as Triton takes for granted once it has seen it
PROGRAMS = 8  # per multiprocessor
NO_CONTEXT = contextlib.nullcontext()
THREADS = 128  # of a program
WIDTHS = {"float32": 4, "float64": 2}  # entries that a thread handles at a time

KERNEL = """
def run(size, {parameters}value, shares, THREADS: tl.constexpr):
    program, programs = tl.program_id(0), tl.num_programs(0)
    # One row per thread: its entries are added up before they go to a sum.
    each = tl.arange(0, THREADS)[:, None] * {width} + tl.arange(0, {width})[None, :]
    {numbers}
    {zeros}
    last = (tl.cdiv(size, {entries}) - 1) * {entries}
    for begin in range(program * {entries}, size, programs * {entries}):
        k = {place} + each.to(tl.int64)
        there = k < size
        {load}
        {lines}
        {store}
        {add}
    {share}
    if program == 0:
        tl.store(shares + {count} * programs, tl.load(value).to(tl.float64))
"""


@cache
def source(work: Pass, vectors: int, numbers: int, dtype: str) -> tuple[str, int]:
    """The text of the kernel of a pass, and how many sums it makes."""
    given, weights, out = names(work, vectors, numbers)
    lines, made, products = trace(work, given, weights)
    count = range(len(products))
    parameters = [f"{name}_, " for name in (*given, *out)]
    parameters += [f'{name}_: "fp64", ' for name in weights]
    text = KERNEL.format(
        width=WIDTHS[dtype],
        entries=f"(THREADS * {WIDTHS[dtype]})",
        place="last - begin" if work.backwards else "begin",
        parameters="".join(parameters),
        numbers=_block([f"{name} = tl.full((1, 1), {name}_, tl.{dtype})" for name in weights], 4),
        zeros=_block([f"s{i} = tl.zeros((THREADS,), tl.float64)" for i in count], 4),
        # Entries behind the end are read as 0, and so are all that is made of them.
        load=_block([f"{a} = tl.load({a}_ + k, mask=there, other=0.0)" for a in given], 8),
        lines=_block([str(line) for line in lines], 8),
        store=_block(
            [f"tl.store({z}_ + k, {a}, mask=there)" for z, a in zip(out, made, strict=True)], 8
        ),
        add=_block(
            [
                f"s{i} += tl.sum({a}.to(tl.float64) * {b}.to(tl.float64), 1)"
                for i, (a, b) in enumerate(products)
            ],
            8,
        ),
        share=_block(
            [f"tl.store(shares + {i} * programs + program, tl.sum(s{i}))" for i in count], 4
        ),
        count=len(products),
    )
    return text, len(products)


def _block(lines: Sequence[str], indent: int) -> str:
    return ("\n" + " " * indent).join(lines) or "pass"


@cache
def _kernel(work: Pass, vectors: int, numbers: int, dtype: str) -> tuple[Any, int]:
    text, sums = source(work, vectors, numbers, dtype)
    file = f"<pass {work.name} of {vectors} in {dtype}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, Any] = {"tl": triton.language, "__name__": __name__}
    exec(compile(text, file, "exec"), space)
    return triton.jit(space["run"], do_not_specialize=["value"]), sums


class TritonPasses:
    """Runs passes on tensors that are like a given one."""

    def __init__(self, like: Any):
        self._size = like.numel()
        self._device, self._name = like.device, str(like.dtype).rsplit(".", 1)[-1]
        # What starts a kernel, and its number of sums, by the name of a pass and the value's dtype.
        self._plans: dict[tuple[str, Any], tuple[Any, int]] = {}
        entries = THREADS * WIDTHS[self._name]  # that a program handles at a time
        count = torch.cuda.get_device_properties(self._device).multi_processor_count
        self._programs = max(1, min(PROGRAMS * count, -(-self._size // entries)))
        self._nothing = torch.zeros(1, dtype=torch.float32, device=self._device)

    def brings(self, value: Any) -> bool:
        """Is this a scalar on the GPU?"""
        return (
            isinstance(value, torch.Tensor)
            and value.numel() == 1
            and value.dtype.is_floating_point
            and value.device == self._device
        )

    def start(
        self, work: Pass, vectors: Sequence[Any], numbers: Sequence[float], value: Any
    ) -> tuple[tuple[Any, ...], Callable[[], tuple[list[float], float]]]:
        """The new vectors, and a function that waits for the sums and the value."""
        vectors = [a if a.is_contiguous() else a.contiguous() for a in vectors]
        pointers, together = [a.data_ptr() for a in vectors], 0
        for pointer in pointers:
            together |= pointer
        if together % ALIGNMENT:
            return self.start(work, [a.clone() for a in vectors], numbers, value)
        value = self._nothing if value is None else value
        made = tuple([torch.empty_like(vectors[0]) for _ in range(work.made)])
        other = torch.cuda.current_device() != self._device.index
        with torch.cuda.device(self._device) if other else NO_CONTEXT:
            plan = self._plans.get((work.name, value.dtype))
            begin, sums = plan or self._plan(work, vectors, made, numbers, value.detach())
            shares = self._room(sums)
            # Pointers as numbers: Triton looks at tensors, each time.
            begin(
                self._size, *pointers, *[a.data_ptr() for a in made], *numbers, value.data_ptr(),
                shares.data_ptr(), THREADS,
            )  # fmt: skip

        def read() -> tuple[list[float], float]:
            if not sums:
                return [], np.nan
            here = shares.to("cpu", non_blocking=True)
            # PyTorch's search for hidden waits (`set_sync_debug_mode`) lets those for events pass.
            arrived = torch.cuda.current_stream(self._device).record_event()
            arrived.synchronize()
            return add_shares(here.numpy(), sums)

        return made, read

    def _room(self, sums: int) -> Any:
        """For a share of every sum from every program, and the value."""
        count = sums * self._programs + 1
        return torch.empty(count, dtype=torch.float64, device=self._device)

    def _plan(
        self, work: Pass, vectors: Sequence[Any], made: Sequence[Any], numbers: Any, value: Any
    ) -> tuple[Any, int]:
        kernel, sums = _kernel(work, len(vectors), len(numbers), self._name)
        arguments = self._size, *vectors, *made, *numbers, value, self._room(sums)
        ready = kernel.warmup(*arguments, THREADS, grid=(1,), num_warps=THREADS // 32)
        plan = self._plans[work.name, value.dtype] = ready[(self._programs, 1, 1)], sums
        return plan
