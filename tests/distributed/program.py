"""All cases on every rank; what came of them goes to a file per rank, RANK.json in a folder."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import engine_cases
import numpy as np
import run_cases
from engine_cases import another

from momentous.distributed import MPI, Ranks, Torch, find

LIMIT = 60.0  # seconds for a case in which something goes wrong: a few on a machine at rest


def first(count: int) -> Ranks | None:
    """The first so many ranks as ranks of their own; None on the others."""
    rank = find().rank
    if isinstance(find(), MPI):
        import mpi4py.MPI

        made = MPI(mpi4py.MPI.COMM_WORLD.Split(int(rank >= count), rank))
        return made if rank < count else None
    import torch.distributed as dist

    group = dist.new_group(range(count))
    return Torch(group) if rank < count else None


def cases_of_engines(ranks: Ranks) -> dict:
    found = {"calls": engine_cases.calls(ranks)}
    if isinstance(ranks, Torch):
        found["tensors"] = engine_cases.tensors(ranks)
    return found


def cases_on_three(ranks: Ranks, two: Ranks | None, folder: Path) -> dict:
    layouts = run_cases.LAYOUTS
    found = {"steps": {layout: run_cases.steps(ranks, layout) for layout in layouts}}
    found["empty part"] = run_cases.runs_with_an_empty_part(ranks)
    if isinstance(ranks, Torch):
        return found
    # The rest only by MPI: its small messages are the faster ones.
    return found | {
        "maps": run_cases.map_runs(ranks),
        "terms": run_cases.term_runs(ranks),
        "certificates": run_cases.certificates(ranks),
        "traffic": run_cases.traffic(ranks),
        "checkpoints": {
            layout: run_cases.checkpoints(ranks, two, folder, layout) for layout in layouts
        },
        "full disk": run_cases.full_disk(ranks, folder),
    }


def faults(ranks: Ranks) -> dict:
    found = {}

    def case(name: str, work: Callable, *given: Any) -> None:
        """Each case has a time limit of its own: past it, the stack is shown and the rank ends."""
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        found[name] = work(*given)
        ranks.all_reduce(np.ones(1))
        faulthandler.cancel_dump_traceback_later()

    for layout in run_cases.LAYOUTS:
        for work in run_cases.FAULTS:
            case(f"{work.__name__} {layout}", work, ranks, layout)
        case(f"failure {layout}", run_cases.failure, another(), layout)
        case(f"hanging {layout}", run_cases.hanging, another(timeout=1.0), layout)
    case("failure", engine_cases.failure, another(), 1)
    case("hanging", engine_cases.hanging, another(timeout=0.5))
    return found


def main(folder: Path, ranks: Ranks) -> None:
    two, three = first(2), ranks if ranks.size == 3 else first(3)
    found: dict = {}
    if isinstance(ranks, MPI):
        found["examples"] = run_cases.examples()
        for count, part in ((2, two), (3, three), (4, ranks)):
            found[f"methods {count}"] = run_cases.method_runs(part) if part is not None else None
    if three is not None:
        found |= cases_of_engines(three)
        found |= cases_on_three(three, two, folder)
    found["faults"] = faults(ranks)
    (folder / f"{ranks.rank}.json").write_text(json.dumps(found))
    ranks.all_reduce(np.ones(1))
    os._exit(0)  # calls that were broken off have no end


if __name__ == "__main__":
    with find().announced():
        main(Path(sys.argv[1]), find())
