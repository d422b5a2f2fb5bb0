"""Ranks of two releases: what each of them is told goes to RANK.json in a folder."""

import json
import os
import sys
from pathlib import Path

import momentous.version

rank = int(os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
if rank == 1:
    momentous.version.__version__ = "0.0.1"

from momentous.distributed import RankError, find  # noqa: E402

message = ""
try:
    find()
except RankError as error:
    message = str(error)
(Path(sys.argv[1]) / f"{rank}.json").write_text(json.dumps(message))
