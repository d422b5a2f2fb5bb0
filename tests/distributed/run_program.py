"""All cases on every rank; what came of them goes to a file per rank."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import cases
import numpy as np
from engine_program import another

from momentous.distributed import MPI, Ranks, Torch, find


def first(count: int) -> Ranks | None:
    """The first so many ranks as ranks of their own; None on the others."""
    rank = find().rank
    if isinstance(find(), MPI):
        from mpi4py import MPI as mpi

        part = mpi.COMM_WORLD.Split(0 if rank < count else 1, rank)
        made = MPI(part)
    else:
        import torch.distributed as dist

        group = dist.new_group(range(count))
        made = Torch(group) if rank < count else None
    return made if rank < count else None


def faults(ranks: Ranks) -> dict:
    found = {}
    for layout in cases.LAYOUTS:
        for case in (cases.interruption, cases.not_a_number, cases.time_limit, cases.wishes,
                     cases.different_arguments, cases.wrong_gradient):  # fmt: skip
            found[f"{case.__name__} {layout}"] = case(ranks, layout)
        found[f"failure {layout}"] = cases.failure(another(), layout)
        ranks.all_reduce(np.ones(1))
    return found


def main(folder: Path, ranks: Ranks) -> None:
    begun = time.process_time()
    found: dict = {"times": {}}

    def note(name: str, result) -> None:
        found[name] = result
        found["times"][name] = time.process_time() - begun
        ranks.all_reduce(np.ones(1))

    three = first(3) if ranks.size > 3 else ranks
    two = first(2)
    if isinstance(ranks, MPI):
        for count, part in ((2, two), (3, three), (4, ranks)):
            note(f"methods {count}", cases.method_runs(part) if part is not None else None)
    if three is not None:
        found["maps"] = cases.map_runs(three)
        found["certificates"] = cases.certificates(three)
        found["traffic"] = cases.traffic(three)
        found["steps"] = {layout: cases.steps(three, layout) for layout in cases.LAYOUTS}
        found["checkpoints"] = {
            layout: cases.checkpoints(three, two, folder, layout) for layout in cases.LAYOUTS
        }
        found["full disk"] = cases.full_disk(three, folder)
    note("rest", None)
    note("faults", faults(ranks))
    (folder / f"{ranks.rank}.json").write_text(json.dumps(found))
    ranks.all_reduce(np.ones(1))
    os._exit(0)


if __name__ == "__main__":
    with find().announced():
        main(Path(sys.argv[1]), find())
