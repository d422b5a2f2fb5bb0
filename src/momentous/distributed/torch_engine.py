"""Ranks over torch.distributed: Gloo between hosts, NCCL between GPUs."""

from __future__ import annotations

import atexit
import contextlib
import datetime
import os
import time
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import array_api_compat
import numpy as np

from momentous.core.space import Array, to_numpy
from momentous.distributed.ranks import TIMEOUT, Operation, RankError, Ranks
from momentous.distributed.torch_setup import set_up
from momentous.io.optional import require
from momentous.io.types import AnyFunction

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup, Work

LOOK_SECONDS = 0.2  # seconds between two looks at what the other ranks have announced
FIRST_SLEEP_SECONDS = 2e-5  # seconds of the first sleep while a GPU works; they grow
SHUTDOWN_GRACE_SECONDS = 2.0  # seconds that a rank which is gone may take to be heard of


class Torch(Ranks):
    """The ranks of a process group of PyTorch.

    Where the program has not set up torch.distributed, this does it from the environment that
    torchrun, Slurm scripts, Kubernetes' PyTorchJob and Spark's TorchDistributor set (``RANK``,
    ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT``), and takes it down at the end of the program.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup, optional
        Some of the ranks, by default all of them.
    backend : str, optional
        For the set-up: "gloo", "nccl", ...  By default Gloo, and NCCL beside it for arrays on GPUs
        where every process of a machine can have a GPU of its own.
    timeout : float
        Seconds to wait for the other ranks in one call.
    setup_timeout : float, optional
        Seconds to wait for them in the set-up: by default those of the environment's
        ``MOMENTOUS_SETUP_TIMEOUT``, otherwise 60.

    Notes
    -----
    Arrays on GPUs travel by NCCL if the group has it, otherwise through the memory of the host.
    """

    def __init__(
        self,
        group: ProcessGroup | None = None,
        *,
        backend: str | None = None,
        timeout: float = TIMEOUT,
        setup_timeout: float | None = None,
    ) -> None:
        super().__init__()
        self._torch = torch = require("torch", "torch", "momentous.distributed.Torch")
        self._dist = dist = require("torch.distributed", "torch", "momentous.distributed.Torch")
        if not dist.is_initialized():
            set_up(dist, backend or _backend(torch), timeout, setup_timeout)
            atexit.register(self._close)
        self._group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise ValueError("this process is not in the group: make Torch(group) in its ranks")
        backends = str(dist.get_backend_config(group))  # such as "cpu:gloo,cuda:nccl"
        self._sends_from_host, self._has_nccl = "cpu:" in backends, "nccl" in backends
        self._last_message = ""
        # Messages of failed ranks go through the store that set the group up.
        self._store = dist.distributed_c10d._get_default_store()
        self._key = f"momentous/failed/{group.group_name if group is not None else ''}"
        self._meet(timeout)

    def _all_reduce(self, a: Array, operation: Operation) -> Array:
        tensor = self._tensor(a, copy=True)
        op = self._dist.ReduceOp.SUM if operation == "sum" else self._dist.ReduceOp.MAX
        work = self._dist.all_reduce(tensor, op, group=self._group, async_op=True)
        self._wait("all_reduce", work, tensor.is_cuda)
        return _like(tensor, a)

    def _reduce_scatter(self, a: Array) -> Array:
        torch, tensor = self._torch, self._tensor(a)
        count, block = len(tensor), self.block(len(tensor))
        if count < block * self.size:
            rest = tensor.new_zeros((block * self.size - count, *tensor.shape[1:]))
            tensor = torch.cat([tensor, rest])
        part = tensor.new_empty((block, *tensor.shape[1:]))
        call = _of(self._dist, "reduce_scatter_single", "reduce_scatter_tensor")
        work = call(part, tensor.contiguous(), group=self._group, async_op=True)
        self._wait("reduce_scatter", work, tensor.is_cuda)
        mine = self.share(count)
        return _like(part[: mine.stop - mine.start], a)

    def _all_gather(self, a: Array, rows: Sequence[int]) -> Array:
        torch, tensor, block = self._torch, self._tensor(a), max(rows)
        if len(tensor) < block:
            rest = tensor.new_zeros((block - len(tensor), *tensor.shape[1:]))
            tensor = torch.cat([tensor, rest])
        whole = tensor.new_empty((block * self.size, *tensor.shape[1:]))
        call = _of(self._dist, "all_gather_single", "all_gather_into_tensor")
        work = call(whole, tensor.contiguous(), group=self._group, async_op=True)
        self._wait("all_gather", work, tensor.is_cuda)
        if min(rows) < block:
            whole = torch.cat([whole[r * block : r * block + n] for r, n in enumerate(rows)])
        return _like(whole, a)

    def _broadcast(self, a: Array, root: int) -> Array:
        tensor = self._tensor(a, copy=True)
        source = root if self._group is None else self._dist.get_global_rank(self._group, root)
        work = self._dist.broadcast(tensor, source, group=self._group, async_op=True)
        self._wait("broadcast", work, tensor.is_cuda)
        return _like(tensor, a)

    def _announce(self, message: str) -> None:
        with contextlib.suppress(RuntimeError):  # the store goes down with rank 0
            self._store.set(self._key, message)

    def _tensor(self, a: Array, *, copy: bool = False) -> torch.Tensor:
        """The array as a contiguous tensor that the engine can send."""
        torch = self._torch
        if array_api_compat.is_torch_array(a):
            tensor = a.detach()
        elif array_api_compat.is_cupy_array(a) and self._has_nccl:
            tensor = torch.from_dlpack(a)
        else:
            host = to_numpy(a)
            copy = copy or not host.flags.writeable
            tensor = torch.from_numpy(np.array(host, order="C", copy=True if copy else None))
            copy = False
        if not (tensor.is_cuda or self._sends_from_host):  # a group of NCCL alone
            return tensor.cuda()
        if tensor.is_cuda and not self._has_nccl:
            return tensor.cpu()
        return tensor.clone(memory_format=torch.contiguous_format) if copy else tensor.contiguous()

    def _wait(self, call: str, work: Work, on_gpu: bool) -> None:
        """Wait for the other ranks, and for news of one that failed."""
        begun = time.monotonic()
        while not self._done(call, work, on_gpu):
            self._look()
            self._check(call, begun)
        self._ended(begun)

    def _done(self, call: str, work: Work, on_gpu: bool) -> bool:
        """Is the call over, now or within a short time?"""
        end, pause = time.monotonic() + LOOK_SECONDS, FIRST_SLEEP_SECONDS
        # NCCL takes a wait that ends too early for a failure.
        while on_gpu and not work.is_completed() and time.monotonic() < end:
            time.sleep(pause)
            pause *= 1.5
        if on_gpu and not work.is_completed():
            return False
        failure = _outcome(work, None if on_gpu else LOOK_SECONDS)
        if failure is not None and not work.is_completed() and "timed out" in failure.lower():
            return False
        if failure is not None:
            failure = _outcome(work, None)  # it may have come to its end just now
        if failure is not None and "timed out" in failure.lower():
            raise self._late(call, "the group's own timeout")  # that of a program's own set-up
        if failure is not None:
            raise self._lost(call, failure)
        return True

    def _look(self) -> None:
        """Has a rank announced that it has failed, and has this not been heard before?"""
        try:
            if not self._store.check([self._key]):
                return
            message = self._store.get(self._key).decode()
        except RuntimeError:
            return  # the store went down with rank 0
        if message != self._last_message:
            self._last_message = message
            self._hear(message)

    def _lost(self, call: str, failure: str) -> RankError:
        """The connection is gone, and perhaps there are last words of the rank that went."""
        begun = time.monotonic()
        while time.monotonic() - begun < SHUTDOWN_GRACE_SECONDS:
            self._look()
            self._check(call, begun, patience=0.0)
            time.sleep(LOOK_SECONDS / 4)
        self._broken = "a rank has ended or was killed"
        why = " ".join(failure.split())[:200]
        return RankError(f"rank {self.rank} lost the others in {call}: {self._broken} ({why})")

    def _close(self) -> None:
        if self._dist.is_initialized():
            self._dist.destroy_process_group()


def _outcome(work: Work, seconds: float | None) -> str | None:
    """The message of a call that has failed, or is not over after so many seconds; or None."""
    try:
        work.wait(*([] if seconds is None else [datetime.timedelta(seconds=seconds)]))
    except RuntimeError as error:
        return str(error)
    return None


def _backend(torch: ModuleType) -> str:
    """Gloo, and NCCL where every process of this machine can have a GPU of its own."""
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if not torch.cuda.is_available() or torch.cuda.device_count() < processes:
        return "gloo"
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    return "cpu:gloo,cuda:nccl"


def _of(module: ModuleType, name: str, older_name: str) -> AnyFunction:
    found: AnyFunction = getattr(module, name, None) or getattr(module, older_name)
    return found


def _like(tensor: torch.Tensor, a: Array) -> Array:
    """The tensor as an array of the library, and on the device, of ``a``."""
    if array_api_compat.is_torch_array(a):
        return tensor.to(a.device)
    if array_api_compat.is_numpy_array(a):
        return tensor.numpy() if not tensor.is_cuda else tensor.cpu().numpy()
    xp = array_api_compat.array_namespace(a)
    if tensor.is_cuda and array_api_compat.is_cupy_array(a):
        return xp.from_dlpack(tensor)
    host = tensor.cpu().numpy()
    return xp.asarray(host, dtype=a.dtype, device=array_api_compat.device(a))
