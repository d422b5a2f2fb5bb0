"""Draw docs/how-to/pinns.png: loss and error of the solution against calls, of three optimizers.

python docs/make_pinn_picture.py
"""

import runpy
from contextlib import suppress
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

HERE = Path(__file__).parent
NETWORKS = runpy.run_path(str(HERE.parent / "benchmarks" / "networks.py"))
SOLVERS = {"auto": "momentous", "torch LBFGS": "torch LBFGS, 100 pairs", "adam": "Adam, 1e-3"}
CALLS, EVERY = 1500, 10


def main():
    figure, panels = plt.subplots(1, 2, figsize=(9.5, 3.4), layout="constrained")
    for solver, label in SOLVERS.items():
        place = {"device": "cpu", "dtype": torch.float64}
        net, loss, error = NETWORKS["helmholtz"](NETWORKS["Setting"](21, False, True, place))
        errors = []

        def watched(loss=loss, error=error, errors=errors):
            errors.append(error() if len(errors) % EVERY == 0 else errors[-1])
            return loss()

        meter = NETWORKS["Meter"](net, watched, CALLS, "cpu")
        with suppress(NETWORKS["_EnoughError"]):
            NETWORKS["SOLVERS"][solver](net, meter)
        rows = [[float(value) for value in meter.values], errors]
        for axes, row in zip(panels, rows, strict=True):
            axes.plot(np.minimum.accumulate(row), label=label)
    for axes, title in zip(panels, ("loss", "relative error of the solution"), strict=True):
        axes.set(title=title, xlabel="calls of the closure", yscale="log")
        axes.grid(alpha=0.3)
    panels[0].legend()
    figure.savefig(HERE / "how-to" / "pinns.png", dpi=110)


if __name__ == "__main__":
    main()
