"""The regression on a GPU, in both layouts, with tensors of PyTorch."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from problem import Regression

from momentous import minimize
from momentous.distributed import Data, Ranks, Torch, Variables


def both(A, b, x, ranks: Ranks | None = None):
    product = A @ x
    r = (product if ranks is None else ranks.all_reduce(product)) - b
    return torch.log1p(r * r / 2).sum(), A.T @ (r / (1 + r * r / 2))


if __name__ == "__main__":
    # One process has a group too: by NCCL, if it has the GPU to itself.
    ranks = Torch()
    problem, device = Regression(300, 150), "cuda" if torch.cuda.is_available() else "cpu"
    A, b, start = (torch.tensor(a, device=device) for a in (problem.A, problem.b, problem.start))
    rows, columns = ranks.share(300), ranks.share(150)
    options = {"jac": True, "max_iterations": 25, "method": "lbfgs", "tol": 1e-9}
    results = [minimize(lambda x: both(A, b, x), start, **options)]
    for layout, fun, x0 in (
        (Data, lambda x: both(A[rows], b[rows], x), start),
        (Variables, lambda x: both(A[:, columns].contiguous(), b, x, ranks), start[columns]),
    ):
        results.append(minimize(fun, x0, ranks=layout(ranks), **options))
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
        "alone": float(results[0].fun),
        "funs": [float(result.fun) for result in results],
        "paths": [[result.nit, result.restarts] for result in results],
        "bytes": ranks.traffic.bytes,
    }
    (Path(sys.argv[1]) / f"{ranks.rank}.json").write_text(json.dumps(found))
