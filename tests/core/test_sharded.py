"""Arrays of JAX that are spread over devices stay so, and give the run of one device."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import momentous

mesh = Mesh(np.array(jax.devices()), ("shard",))
spread = NamedSharding(mesh, PartitionSpec("shard"))
whole = NamedSharding(mesh, PartitionSpec())
assert len(jax.devices()) == 4
scales = np.geomspace(1, 10, 400).astype(np.float32).reshape(200, 2)
given = dict(step_size=0.05, hessian_lipschitz=1.0, eps=1e-6)
methods = [
    momentous.AdaRAGD(**given),
    momentous.LBFGS(memory=2),
    momentous.PerturbedRAGD(gradient_lipschitz=10.0, hessian_lipschitz=1.0, eps=1e-2),
]

def solve(method, place, answers):
    a, seen = jax.device_put(scales, place), []
    both = jax.jit(lambda x: (0.5 * (a * x * x).sum(), a * x), out_shardings=(None, answers))

    def fun(x):
        seen.append(x.sharding)
        return both(x)

    x0 = jax.device_put(np.ones((200, 2), np.float32), place)
    with jax.transfer_guard_device_to_host("disallow"):
        result = momentous.minimize(fun, x0, jac=True, method=method, tol=1e-3, max_iterations=8)
    for sharding in (*seen, result.x.sharding, result.jac.sharding):
        assert sharding.is_equivalent_to(x0.sharding, 2), sharding
    return result

for method in methods:
    alone = solve(method, jax.devices()[0], None)
    # The gradient comes back spread as x is, or whole on every device.
    for answers in (spread, whole) if method.name == "lbfgs" else (spread,):
        shared = solve(method, spread, answers)
        assert (shared.nit, shared.restarts) == (alone.nit, alone.restarts), method.name
        np.testing.assert_allclose(np.asarray(shared.x), np.asarray(alone.x), atol=1e-5)
print("the shards agree")
"""


@pytest.mark.slow
def test_a_sharded_array_stays_sharded() -> None:
    pytest.importorskip("jax")
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert "the shards agree" in done.stdout, done.stdout + done.stderr
