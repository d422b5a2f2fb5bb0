"""A quadratic whose x is one array of JAX that is spread over processes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import momentous

SCALES = np.geomspace(1, 10, 400).astype(np.float32)
OPTIONS = {"jac": True, "method": "ada-ragd", "tol": 1e-3}

if __name__ == "__main__":
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{os.environ['MASTER_PORT']}", size, rank)
    mesh = Mesh(np.array(jax.devices()), ("shard",))
    spread = NamedSharding(mesh, PartitionSpec("shard"))
    a, x0 = (
        jax.make_array_from_callback(SCALES.shape, spread, lambda part, whole=whole: whole[part])
        for whole in (SCALES, np.ones_like(SCALES))
    )
    both = jax.jit(lambda x, a: (0.5 * (a * x * x).sum(), a * x))
    result = momentous.minimize(lambda x: both(x, a), x0, **OPTIONS)
    (mine,) = result.x.addressable_shards
    found = [result.fun, result.nit, result.restarts, mine.data.shape]
    (Path(sys.argv[1]) / f"{rank}.json").write_text(json.dumps(found))
    jax.distributed.shutdown()
