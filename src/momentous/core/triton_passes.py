"""Passes for tensors of PyTorch on a GPU: one Triton kernel per pass.

Triton comes with PyTorch.  It compiles Python functions, of which it reads the text: those here are
written by this module, one per pass.  Sums are in double precision; each program adds up its share,
the one that ends last adds the shares in their order and writes the sums to memory of the host.
"""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from momentous.core.mailbox import Mailbox
from momentous.core.passes import MOST, Pass, names, written
from momentous.io.optional import LazyModule

torch: Any = LazyModule("torch", "torch", "a tensor of PyTorch")
triton: Any = LazyModule("triton", "torch", "a tensor of PyTorch on a GPU")
SUMS = 2 * MOST  # room for sums
PROGRAMS = 8  # per multiprocessor
NO_CONTEXT = contextlib.nullcontext()
ENTRIES = 512  # a program handles so many at a time
MANY = 8  # sums; with more of them a thread has two entries at a time in place of four

KERNEL = """
def run(size, {parameters}value, shares, ended, answer, ENTRIES: tl.constexpr):
    program, programs = tl.program_id(0), tl.num_programs(0)
    {numbers}
    {zeros}
    last = (tl.cdiv(size, ENTRIES) - 1) * ENTRIES
    for begin in range(program * ENTRIES, size, programs * ENTRIES):
        k = {place} + tl.arange(0, ENTRIES).to(tl.int64)
        there = k < size
        {load}
        {lines}
        {store}
        {add}
    {finish}
"""
FINISH = """{share}
    if tl.atomic_add(ended, 1) == programs - 1:
        each = tl.arange(0, {room})
        {answer}
        tl.store(answer + {count}, tl.load(value).to(tl.float64))
        tl.store(ended, 0)
"""


@cache
def source(work: Pass, vectors: int, numbers: int, dtype: str, room: int) -> tuple[str, int]:
    """The text of the kernel of a pass, and how many sums it makes; ``room`` is a power of two, at
    least the number of programs."""
    given, weights, out = names(work, vectors, numbers)
    lines, made, products = written(work, given, weights)
    count = range(len(products))
    # Entries behind the end are read as 0, and so are all that is made of them.
    shares = [f"tl.store(shares + {i} * programs + program, tl.sum(s{i}))" for i in count]
    answers = [
        f"tl.store(answer + {i}, tl.sum(tl.load(shares + {i} * programs + each, "
        "mask=each < programs, other=0.0, volatile=True)))"
        for i in count
    ]
    finish = FINISH.format(
        share=_block(shares, 4), answer=_block(answers, 8), room=room, count=len(products)
    )
    parameters = [f"{name}_, " for name in (*given, *out)]
    parameters += [f'{name}_: "fp64", ' for name in weights]
    text = KERNEL.format(
        place="last - begin" if work.backwards else "begin",
        parameters="".join(parameters),
        numbers=_block([f"{name} = tl.full((1,), {name}_, tl.{dtype})" for name in weights], 4),
        zeros=_block([f"s{i} = tl.zeros((ENTRIES,), tl.float64)" for i in count], 4),
        load=_block([f"{a} = tl.load({a}_ + k, mask=there, other=0.0)" for a in given], 8),
        lines=_block([f"{name} = {formula}" for name, formula in lines], 8),
        store=_block(
            [f"tl.store({z}_ + k, {a}, mask=there)" for z, a in zip(out, made, strict=True)], 8
        ),
        add=_block(
            [
                f"s{i} += {a}.to(tl.float64) * {b}.to(tl.float64)"
                for i, (a, b) in enumerate(products)
            ],
            8,
        ),
        finish=finish if products else "pass",
    )
    return text, len(products)


def _block(lines: Sequence[str], indent: int) -> str:
    return ("\n" + " " * indent).join(lines) or "pass"


@cache
def _kernel(work: Pass, vectors: int, numbers: int, dtype: str, room: int) -> tuple[Any, int]:
    text, sums = source(work, vectors, numbers, dtype, room)
    file = f"<pass {work.name} of {vectors} in {dtype}, {room}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, Any] = {"tl": triton.language, "__name__": __name__}
    exec(compile(text, file, "exec"), space)
    return triton.jit(space["run"], do_not_specialize=["value"]), sums


class TritonPasses:
    """Runs passes on tensors that are like a given one."""

    def __init__(self, like: Any):
        self._shape, self._size = tuple(like.shape), like.numel()
        self._place = {"dtype": like.dtype, "device": like.device}
        self._device, self._name = like.device, str(like.dtype).rsplit(".", 1)[-1]
        # What starts a kernel, once it is compiled, without Triton's look at all arguments.
        self._starts: dict[Any, Any] = {}
        with torch.cuda.device(self._device):
            count = torch.cuda.get_device_properties(self._device).multi_processor_count
            self._programs = max(1, min(PROGRAMS * count, -(-self._size // ENTRIES)))
            self._room = 1 << (self._programs - 1).bit_length()
            on_device = {"device": self._device}
            self._shares = torch.empty(SUMS * self._programs, dtype=torch.float64, **on_device)
            self._ended = torch.zeros(1, dtype=torch.int32, **on_device)
            self._nothing = torch.zeros(1, dtype=torch.float32, **on_device)
            # Memory of the host that the GPU can write to.
            self._answer = torch.empty(SUMS + 1, dtype=torch.float64, pin_memory=True)
            self._mail = Mailbox(self._answer.numpy())

    def brings(self, value: Any) -> bool:
        """Is this a scalar on the GPU?"""
        return (
            isinstance(value, torch.Tensor)
            and value.numel() == 1
            and value.dtype.is_floating_point
            and value.device == self._device
        )

    def __call__(
        self, work: Pass, vectors: Sequence[Any], numbers: Sequence[float], value: Any
    ) -> tuple[tuple[Any, ...], Any, float]:
        """The new vectors; and once they are there, the sums and the value."""
        kernel, sums = _kernel(work, len(vectors), len(numbers), self._name, self._room)
        made = tuple([torch.empty(self._shape, **self._place) for _ in range(work.made)])
        vectors = [a.contiguous() for a in vectors]
        value = self._nothing if value is None else value.detach()
        arguments = (
            self._size, *vectors, *made, *map(float, numbers), value,
            self._shares, self._ended, self._answer, ENTRIES,
        )  # fmt: skip
        other = torch.cuda.current_device() != self._device.index
        with torch.cuda.device(self._device) if other else NO_CONTEXT:
            if sums:
                self._mail.clear(sums + 1, torch.cuda.current_stream)
            self._start(kernel, work, vectors, value, sums, arguments)
            if not sums:
                return made, np.empty(0), np.nan
            answer = self._mail.wait(torch.cuda.current_stream)
        return made, answer[:sums], answer[sums]

    def _start(
        self, kernel: Any, work: Pass, vectors: Sequence[Any], value: Any, sums: int, given: Any
    ) -> None:
        key = work, value.dtype
        aligned = all(a.data_ptr() % 16 == 0 for a in vectors)
        start = self._starts.get(key) if aligned else None
        if start is not None:
            start(*given)
            return
        compiled = kernel[(self._programs,)](*given, num_warps=8 if sums > MANY else 4)
        if aligned:
            self._starts[key] = compiled[(self._programs, 1, 1)]
