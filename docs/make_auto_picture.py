"""Draw docs/explanation/auto.png: which of its two methods `auto` lets run, and why.

python docs/make_auto_picture.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from momentous import minimize
from momentous.core.status import EventKind
from momentous.testbed.suite import suite

PROBLEMS = {
    "nested-chain-20-0.001": "a worst-case chain, 381 variables",
    "rosenbrock-1000": "Rosenbrock, 1,000 variables",
}


def turns_of_the_guard(trace):
    """The first and the last iteration of each turn."""
    began, spans = None, []
    for nit, event in trace.events:
        if event.kind is EventKind.TURN and event.value == 1:
            began = nit
        elif event.kind is EventKind.TURN and began is not None:
            spans.append((began, nit))
            began = None
    return spans


def main():
    entries = {entry.name: entry for entry in suite()}
    figure, panels = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained", sharey=True)
    for axes, (name, title) in zip(panels, PROBLEMS.items(), strict=True):
        problem = entries[name].make()
        result = minimize(problem.value_and_gradient, problem.start, jac=True, tol=1e-6)
        trace = result.trace
        calls, norm = np.asarray(trace["njev"]), np.asarray(trace["grad_norm"])
        axes.semilogy(calls, norm, color="C0", lw=0.9, label="L-BFGS has the turn")
        spans = turns_of_the_guard(trace)
        for i, (first, last) in enumerate(spans):
            span = slice(first, last + 1)
            label = "the guard has the turn" if i == 0 else None
            axes.semilogy(calls[span], norm[span], color="C1", lw=2.5, label=label)
        share = sum(calls[last] - calls[first] for first, last in spans) / calls[-1]
        axes.set(title=f"{title}: {len(spans)} turns, {share:.0%}", xlabel="evaluations")
        axes.grid(True, color="0.9")
    panels[0].set_ylabel("gradient norm")
    panels[0].legend(loc="lower left", fontsize=9)
    figure.savefig(Path(__file__).parent / "explanation" / "auto.png", dpi=110)


if __name__ == "__main__":
    main()
