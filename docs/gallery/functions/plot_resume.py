"""
Stop today, go on tomorrow
==========================

A run that is killed loses nothing but its last seconds: ``checkpoint=`` writes it down, and
``resume=`` goes on from there, with the same bits as if it had never been stopped.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from momentous import Checkpoint, minimize, testbed

problem = testbed.rosenbrock(50)
path = Path(tempfile.mkdtemp()) / "run.npz"

# %%
# The first run is stopped after 100 iterations; it could as well be Ctrl-C or a loss of power.

keep = Checkpoint(path, every_seconds=30)
first = minimize(problem.value, problem.start, jac=problem.gradient, method="ada-rhb",
                 tol=1e-6, checkpoint=keep, max_iterations=100)  # fmt: skip
print(first.message)

# %%
# The second one goes on.  Counts and trace are those of the whole run.

second = minimize(problem.value, problem.start, jac=problem.gradient, method="ada-rhb",
                  tol=1e-6, resume=path)  # fmt: skip
print(second.message)

unbroken = minimize(problem.value, problem.start, jac=problem.gradient, method="ada-rhb", tol=1e-6)
print("same bits as an unbroken run:", np.array_equal(second.x, unbroken.x))

# %%
plt.semilogy(second.trace["grad_norm"], label="first run and the one that went on")
plt.axvline(first.nit, color="0.5", linestyle="--", label="stopped here")
plt.xlabel("iterations")
plt.ylabel("gradient norm")
plt.legend()
plt.show()
