"""A run with a checkpoint in every fifth iteration, which goes on from there when started again."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from problem import Regression

from momentous import Checkpoint, minimize
from momentous.distributed import find

STEPS, EVERY = 120, 5
METHOD = {"method": "ada-ragd", "step_size": 0.3, "initial_radius": 2.0}

if __name__ == "__main__":
    folder, layout, pause = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    ranks, problem, path = find(), Regression(300, 150), folder / "run.ckpt"
    fun = problem.on(ranks, layout)

    def slow(x):
        time.sleep(pause)
        return fun(x)

    def note(intermediate_result) -> None:
        """Who is where, for who kills; and where the run has begun."""
        state = intermediate_result
        new = folder / f"new-{ranks.rank}"
        new.write_text(f"{os.getpid()} {state.nit}")
        new.replace(folder / f"process-{ranks.rank}")
        if ranks.rank == 0 and not note.noted:
            note.noted = True
            with open(folder / "begun", "a") as log:
                log.write(f"{state.nit - 1} {ranks.size}\n")

    note.noted = False
    options = {"resume": path} if path.exists() else METHOD
    with ranks.announced():
        result = minimize(
            slow, problem.start_on(ranks, layout), jac=True, ranks=layout, tol=0.0, callback=note,
            max_iterations=STEPS, checkpoint=Checkpoint(path, None, EVERY), **options,
        )  # fmt: skip
    if ranks.rank == 0:
        end = [result.fun, result.nit, result.restarts, result.status.name]
        (folder / "result.json").write_text(json.dumps(end))
