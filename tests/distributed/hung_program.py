"""Rank 1 does not come to a call, and stays alive: what rank 0 says goes to 0.json in a folder."""

import datetime
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch.distributed as dist

from momentous.distributed import RankError, Torch

LIMIT = 200.0  # seconds that rank 1 waits for the end of rank 0

ranks = Torch(timeout=1.0)  # set up here, and
others = Torch(dist.new_group(timeout=datetime.timedelta(seconds=5)), timeout=100.0)  # by a program
answer = Path(sys.argv[1]) / "0.json"
if ranks.rank == 0:
    found = []
    for each in (ranks, others):
        try:
            each.all_reduce(np.ones(3))
        except RankError as error:
            found.append(str(error))
    answer.write_text(json.dumps(found))
else:
    end = time.monotonic() + LIMIT
    while not answer.exists() and time.monotonic() < end:
        time.sleep(0.05)
os._exit(0)  # calls that were broken off have no end
