"""
Write a method of your own
==========================

A method that calls its oracle is a frozen dataclass with two functions, ``start`` and ``step``:
the short way for a method of one array library, here NumPy.  Counting, traces, checkpoints and
stopping come with the loop.  One that is to run everywhere, compiled too, is a rule, which asks and
is told: :doc:`/how-to/write-a-method`.
"""

import dataclasses

import matplotlib.pyplot as plt
import numpy as np

from momentous import Event, EventKind, Method, Report, Sample, Step, minimize, record

# %%
# Each coordinate goes by a step size of its own: it grows while the sign of the derivative stays,
# and is halved when the sign changes (Riedmiller and Braun's Rprop, 1993).


@record
class RpropMemory:
    last: Sample  # the point and its gradient
    steps: np.ndarray  # one step size per coordinate


@dataclasses.dataclass(frozen=True)
class Rprop(Method[RpropMemory]):
    """Signs of derivatives, with a step size per coordinate."""

    name = "rprop"
    step_size: float = 0.1

    def start(self, oracle, x0, tol, seed):
        here = oracle.gradient(x0)
        return Step(RpropMemory(here, 0 * x0 + self.step_size), Report(here, self.step_size))

    def step(self, oracle, memory):
        last, steps = memory.last, memory.steps
        here = oracle.gradient(last.point - steps * np.sign(last.gradient))
        changed = here.gradient * last.gradient < 0
        steps = np.where(changed, 0.5, 1.2) * steps
        events = (Event(EventKind.RESTART, float(changed.sum())),) if changed.all() else ()
        return Step(RpropMemory(here, steps), Report(here, float(steps.mean()), events))


# %%
# It is called as any other.  A badly scaled valley:


def valley(x):
    scales = np.array([1.0, 100.0])
    bend = np.array([0.0, x[0] ** 2])
    r = x - bend
    slope = scales * r
    return 0.5 * scales @ r**2, slope - np.array([2 * x[0] * slope[1], 0.0])


start = np.array([-1.2, 2.0])
for method in (Rprop(), "gd", "auto"):
    result = minimize(valley, start, jac=True, method=method, tol=1e-6, max_iterations=5000)
    print(f"{str(method)[:5]:5s} {result.status.name:12s} {result.njev:5d} gradients")

# %%
points = [start]
minimize(valley, start, jac=True, method=Rprop(), tol=1e-6, callback=lambda xk: points.append(xk))
a, b = np.meshgrid(np.linspace(-1.5, 0.7, 200), np.linspace(-0.4, 2.2, 200))
plt.contour(a, b, np.log1p(0.5 * a**2 + 50 * (b - a**2) ** 2), levels=20, linewidths=0.7)
plt.plot(*np.array(points).T, ".-", linewidth=0.8)
plt.title("The way of Rprop")
plt.show()
