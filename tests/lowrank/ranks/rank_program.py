"""All cases on every rank; what came of them goes to a file per rank, RANK.json in a folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import rank_cases as cases
import torch.distributed as dist

from momentous.distributed import RankError, Torch, find
from momentous.lowrank.data import RatingsFileError
from momentous.lowrank.tasks import fit_file


def main(folder: Path) -> None:
    ranks = find()
    found: dict = {"fits 3": cases.fits(ranks), "traffic": cases.traffic(ranks)}
    group = dist.new_group([0, 1])
    if ranks.rank < 2:
        two = Torch(group)
        found["fits 2"] = {name: cases.fit(two, name) for name in ("squared", "logistic")}
    found["files"] = cases.files(ranks, folder)
    options = {"rank": 3, "threads": 1, "backend": "numpy", "validation_share": 0.1}
    found["read"] = fit_file(folder / "parts", folder / "model", **options)
    found["resumed"] = fit_file(folder / "parts", folder / "alone", resume=True)
    try:
        fit_file(folder / "bad", folder / "none", **options)
    except (RankError, RatingsFileError) as error:
        found["bad"] = f"{type(error).__name__}: {error}"
    (folder / f"{ranks.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
