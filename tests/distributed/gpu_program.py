"""The regression on a GPU, in both layouts, with tensors of PyTorch."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from problem import Regression

from momentous import api, minimize
from momentous.core.loop import Layout
from momentous.distributed import Data, RankError, Ranks, Torch, Variables


def both(A, b, x, ranks: Ranks | None = None):
    product = A @ x
    r = (product if ranks is None else ranks.all_reduce(product)) - b
    return torch.log1p(r * r / 2).sum(), A.T @ (r / (1 + r * r / 2))


def sent_per_evaluation(fun, start, ranks: Ranks) -> list[float]:
    """Bytes and calls of a gradient and its value, where the data is spread."""
    fixed = {"method": "ragd", "step_size": 0.05, "momentum": 0.9, "radius": 1e6}
    counts = []
    for steps in (12, 22):
        before = ranks.traffic.bytes, ranks.traffic.calls
        minimize(
            fun, start, jac=True, max_iterations=steps, ranks=Data(ranks), epoch_length=10**6,
            tol=0.0, **fixed,
        )  # fmt: skip
        counts.append((ranks.traffic.bytes - before[0], ranks.traffic.calls - before[1]))
    return [(b - a) / 10 for a, b in zip(*counts, strict=True)]


def failure(fun, start, ranks: Ranks) -> str:
    """What every rank is told where the last one fails in its sixth call."""
    calls = 0

    def failing(x):
        nonlocal calls
        calls += 1
        if calls == 6 and ranks.rank == ranks.size - 1:
            raise ZeroDivisionError("no such number")
        return fun(x)

    try:
        minimize(failing, start, jac=True, ranks=Data(ranks))
    except (ZeroDivisionError, RankError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    # One process has a group too: by NCCL, if it has the GPU to itself.  It runs as many would.
    api.layout_of = lambda given: Layout() if given is None else type(given)(given.ranks)
    ranks = Torch()
    problem, device = Regression(300, 150), "cuda" if torch.cuda.is_available() else "cpu"
    A, b, start = (torch.tensor(a, device=device) for a in (problem.A, problem.b, problem.start))
    rows, columns = ranks.share(300), ranks.share(150)
    own = A[rows], b[rows], A[:, columns].contiguous()

    def by_rows(x):
        return both(*own[:2], x)

    results = []
    for method in ("lbfgs", "ada-ragd"):
        options = {"jac": True, "max_iterations": 25, "method": method, "tol": 1e-9}
        results += [
            minimize(lambda x: both(A, b, x), start, **options),
            minimize(by_rows, start, ranks=Data(ranks), **options),
            minimize(lambda x: both(own[2], b, x, ranks), start[columns], ranks=Variables(ranks),
                     **options),
        ]  # fmt: skip
    ones = torch.ones((4, 1), device=device)
    made = [
        ranks.all_reduce(ones),
        ranks.all_gather(ranks.reduce_scatter(ones), rows=ranks.shares(4)),
        ranks.broadcast(ones * ranks.size),
        ranks.all_reduce(ones * (ranks.rank + 1), "max"),
    ]
    found = {
        "on": [array.device.type for array in (results[1].x, *made)],
        "summed": [array[-1].tolist() for array in made],
        "funs": [float(result.fun) for result in results],
        "paths": [[result.nit, result.restarts] for result in results],
        "sent": sent_per_evaluation(by_rows, start, ranks),
        "failure": failure(by_rows, start, ranks),
    }
    (Path(sys.argv[1]) / f"{ranks.rank}.json").write_text(json.dumps(found))
