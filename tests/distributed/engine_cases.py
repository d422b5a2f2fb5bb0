"""The six calls on ranks, and ranks that fail or hang."""

from __future__ import annotations

import time

import numpy as np

from momentous.distributed import MPI, RankError, Ranks, Torch, find


def calls(ranks: Ranks) -> dict:
    k, P = ranks.rank, ranks.size
    table = np.arange(14.0).reshape(7, 2) * (k + 1)
    table.flags.writeable = False
    before = ranks.traffic.bytes
    found = {
        "rank": k,
        "size": P,
        "engine": type(ranks).__name__,
        "sum": ranks.all_reduce(table).tolist(),
        "max": ranks.all_reduce(np.array([k, -k]), "max").tolist(),
        "scattered": ranks.reduce_scatter(table).tolist(),
        "gathered": ranks.all_gather(np.full((k, 2), float(k))).tolist(),
        "known": ranks.all_gather(np.full(k, k, np.float32), rows=range(P)).tolist(),
        "nothing": ranks.all_gather(np.empty((0, 3))).shape,
        "broadcast": ranks.broadcast(np.array([10 * k, 7]), root=P - 1).tolist(),
        "single": ranks.all_reduce(np.ones(3, np.float32)).dtype.name,
        "number": ranks.sum(0.1 * k),
        "texts": ranks.gather_text(f"rank {k}" if k else ""),
        "same": find() is find(),
    }
    found["bytes"] = ranks.traffic.bytes - before
    before = ranks.traffic.bytes, ranks.traffic.calls
    ranks.all_reduce(np.ones(1000))
    ranks.reduce_scatter(np.ones((1000, 3), np.float32))
    ranks.all_gather(np.ones(2), rows=[2] * P)
    found["counted"] = [ranks.traffic.bytes - before[0], ranks.traffic.calls - before[1]]
    return found


def tensors(ranks: Ranks) -> dict:
    import torch

    total = ranks.all_reduce(torch.ones(4, dtype=torch.float32) * ranks.rank)
    part = ranks.reduce_scatter(torch.ones(4, 2, dtype=torch.float64))
    return {"total": total.tolist(), "dtype": str(total.dtype), "part": part.tolist()}


def failure(ranks: Ranks, failing: int) -> dict:
    """One rank raises while the others wait for it."""
    try:
        with ranks.announced():
            if ranks.rank == failing:
                raise ValueError("a bad number")
            ranks.all_reduce(np.ones(3))
    except (ValueError, RankError) as error:
        return {
            "type": type(error).__name__,
            "message": str(error),
            "failed": getattr(error, "rank", None),
        }
    return {"type": "none"}


def hanging(ranks: Ranks) -> dict:
    """One rank does not come."""
    try:
        if ranks.rank:
            ranks.all_reduce(np.ones(3))
        else:
            time.sleep(1.5)
    except RankError as error:
        return {"message": str(error)}
    return {}


def another(timeout: float = 60.0) -> Ranks:
    """The same ranks on ways of their own: what breaks there breaks nothing else."""
    if isinstance(find(), MPI):
        return MPI(timeout=timeout)
    import torch.distributed as dist

    return Torch(dist.new_group(), timeout=timeout)
