"""
Compare methods on your problem
===============================

`compare` runs several methods to the same accuracy and counts values and gradients of each in the
same way, SciPy's among them.
"""

import matplotlib.pyplot as plt

from momentous import compare, testbed

# %%
# A problem is a function, its gradient and a start; here one of the test bed.  For your own:
# ``testbed.Problem(name, value, gradient, start)``.

problem = testbed.rosenbrock(100)
methods = ["auto", "ada-rhb", "universal-hb", "cg", "scipy:l-bfgs-b"]
found = compare(problem, methods, rtol=1e-6)
for row in found.rows:
    print(f"{row.method:16s} {row.status:10s} {row.nfev:6d} values {row.njev:6d} gradients")

# %%
# Every run has its trace; `compare` keeps all of them in one table of columns.

traces = found.traces
for method in methods:
    its = traces["method"] == method
    plt.loglog((traces["nfev"] + traces["njev"])[its], traces["grad_norm"][its], label=method)
plt.xlabel("values + gradients")
plt.ylabel("gradient norm")
plt.legend()
plt.show()
