"""All cases on every rank; what came of them goes to a file per rank, RANK.json in a folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import rank_cases as cases
import torch.distributed as dist

from momentous.distributed import Torch, find
from momentous.lowrank.tasks import evaluate_file, fit_file


def main(folder: Path) -> None:
    ranks = find()
    found: dict = {"fits": {}}
    for size in range(1, ranks.size + 1):  # the first ranks alone are so many
        group = dist.new_group([*range(size)])
        if ranks.rank < size:
            some = Torch(group)
            found["fits"][size] = {name: cases.fit(some, name) for name in cases.cases_on(size)}
            if size == 3:
                found["conjugate"] = {name: cases.conjugate(some, name) for name in cases.STEPS}
                found["certified"] = {
                    loss: cases.certified(some, loss)
                    for loss in ("squared", "logistic", "implicit")
                }
                found["traffic"] = cases.traffic(some)
    found["files"] = cases.files(ranks, folder)
    found["going on"] = cases.going_on(ranks, folder)
    options = {"rank": 3, "threads": 1, "backend": "numpy", "validation_share": 0.1}
    parts = folder / "sources" / "parts"
    found["read"] = fit_file(parts, folder / "model", **options)
    found["resumed"] = fit_file(parts, folder / "begun", resume=True)
    found["evaluated"] = evaluate_file(folder / "begun", parts)
    found["full disk"] = cases.full_disk(ranks, parts, folder / "full")
    found["reads"] = cases.reads(ranks, folder / "sources")
    found["hang"] = cases.hang(Torch(dist.new_group([*range(ranks.size)]), timeout=1.0))
    (folder / f"{ranks.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
