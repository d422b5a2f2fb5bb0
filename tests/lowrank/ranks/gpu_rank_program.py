"""Fits with passes on the GPU on every rank, for test_gpu_rank_fits.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import rank_cases as cases

from momentous.distributed import find

if __name__ == "__main__":
    ranks = find()
    found = {name: cases.fit(ranks, name, device="cuda") for name in cases.ON_GPU}
    (Path(sys.argv[1]) / f"{ranks.rank}.json").write_text(json.dumps(found))
