"""
A JAX model in a pytree
=======================

`momentous.jax.minimize` takes any pytree of arrays and gives one back; the gradient is made by JAX
and compiled.  `momentous.jax.solve` compiles the whole run, so that `jax.vmap` can make many of it.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import momentous.jax

jax.config.update("jax_enable_x64", True)

# %%
# A sum of three Gaussian peaks, fitted to noisy data.

rng = np.random.default_rng(0)
t = jnp.linspace(0, 10, 200)


def peaks(p, t):
    shape = jnp.exp(-((t[:, None] - p["place"]) ** 2) / (2 * p["width"] ** 2))
    return p["ground"] + shape @ p["height"]


truth = {"height": jnp.array([1.0, 2.0, 1.5]), "place": jnp.array([2.0, 5.0, 7.5]),
         "width": jnp.array([0.5, 0.8, 0.6]), "ground": jnp.array(0.3)}  # fmt: skip
y = peaks(truth, t) + 0.05 * rng.standard_normal(t.size)


def misfit(p):
    return jnp.mean((peaks(p, t) - y) ** 2)


start = {"height": jnp.ones(3), "place": jnp.array([1.5, 4.5, 8.0]), "width": jnp.ones(3),
         "ground": jnp.array(0.0)}  # fmt: skip
result = momentous.jax.minimize(misfit, start, tol=1e-8)
print(result.message)
for name, leaf in result.x.items():
    print(f"{name:7s} {np.round(leaf, 2)}")

# %%
# The same from fifty starts at once: the run is compiled, and ``vmap`` makes fifty of it.

places = jnp.sort(jnp.asarray(rng.uniform(0, 10, (50, 3))), axis=1)
many = jax.vmap(
    lambda place: (
        momentous.jax.solve(
            misfit, {**start, "place": place}, method="universal-hb", tol=1e-6, max_evaluations=4000
        ).fun
    )
)(places)
print(f"lowest {many.min():.5f}; {int(jnp.sum(many < 1.01 * many.min()))} of 50 starts get there")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.plot(t, y, ".", color="0.7", label="data")
left.plot(t, peaks(start, t), "--", label="start")
left.plot(t, peaks(result.x, t), label="fit")
left.legend()
right.semilogy(np.sort(many), "o", markersize=3)
right.set(xlabel="start, sorted", ylabel="mean square at the end")
plt.show()
