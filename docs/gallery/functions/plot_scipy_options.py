"""
A SciPy script, with one word changed
=====================================

`minimize` takes SciPy's arguments, options and callbacks, and gives back an ``OptimizeResult``.
Here a curve is fitted as with ``scipy.optimize.minimize``; only the import differs.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.optimize

import momentous

rng = np.random.default_rng(0)
t = np.linspace(0, 4, 80)
y = 2.5 * np.exp(-1.3 * t) * np.cos(5.0 * t) + 0.05 * rng.standard_normal(t.size)


def curve(p, t):
    return p[0] * np.exp(-p[1] * t) * np.cos(p[2] * t)


def misfit(p, t, y):
    r = curve(p, t) - y
    e, c, s = np.exp(-p[1] * t), np.cos(p[2] * t), np.sin(p[2] * t)
    jacobian = np.array([e * c, -p[0] * t * e * c, -p[0] * t * e * s])
    return r @ r / 2, jacobian @ r


# %%
# The same call three times: SciPy's own method, `minimize` in its place, and `minimize` as a method
# of SciPy's.

start = [1.0, 1.0, 4.0]
options = {"maxiter": 200, "gtol": 1e-8}
history = []
scipys = scipy.optimize.minimize(misfit, start, (t, y), method="BFGS", jac=True, options=options)
ours = momentous.minimize(misfit, start, (t, y), jac=True, options=options, callback=history.append)
both = scipy.optimize.minimize(misfit, start, (t, y), method=momentous.minimize, jac=True,
                               options=options)  # fmt: skip
for name, result in (("SciPy's BFGS", scipys), ("momentous", ours), ("by both", both)):
    print(f"{name:13s} {result.x.round(4)}  {result.nfev} values, success: {result.success}")
print(isinstance(ours, scipy.optimize.OptimizeResult), ours["fun"] == ours.fun, len(history))

# %%
plt.plot(t, y, ".", color="0.6", label="data")
plt.plot(t, curve(np.array(start), t), "--", label="start")
plt.plot(t, curve(ours.x, t), label="fit")
plt.legend()
plt.show()
