"""Starts spread over four devices of the host, each with runs of its own: see the test of it."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from momentous.jax import solve

jax.config.update("jax_enable_x64", True)


def rosenbrock(x):
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def many(starts):
    found = jax.vmap(lambda x: solve(rosenbrock, x, method="lbfgs"))(starts)
    return found.x, found.nfev, found.success


if __name__ == "__main__":
    mesh = Mesh(np.array(jax.devices()), ("starts",))
    spec = PartitionSpec("starts")
    starts = jnp.asarray(np.random.default_rng(0).standard_normal((8, 3)))
    shard_map = getattr(jax, "shard_map", None)
    if shard_map is None:
        from jax.experimental.shard_map import shard_map
    spread = jax.jit(shard_map(many, mesh=mesh, in_specs=spec, out_specs=spec))(starts)
    assert len(spread[0].sharding.device_set) == 4
    alone = many(starts)
    assert spread[2].all()
    assert (np.asarray(spread[1]) == np.asarray(alone[1])).all()
    assert np.allclose(spread[0], alone[0], atol=1e-8)
    print("the same on", len(jax.devices()), "devices")
