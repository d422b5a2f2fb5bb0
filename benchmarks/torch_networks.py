"""Small networks, full batch: evaluations that momentous and the optimizers of PyTorch need.

One evaluation is one call of the closure: a value and a gradient of the loss of all data.  Per
problem and seed, all start at the same parameters; the table has the median over the seeds of the
evaluations until the loss is first at the target, and of the lowest loss within the limit.  For
Adam the step size that reaches the target soonest (in the median) is shown, of three.

    python benchmarks/torch_networks.py
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any

import torch
from torch import nn

import momentous.torch

LIMIT, SEEDS = 1000, range(3)
Loss = Callable[[], torch.Tensor]


def sine() -> tuple[nn.Module, Callable[[nn.Module], Loss], float]:
    """A curve through 100 points: float64, 97 parameters."""
    x = torch.linspace(-3, 3, 100, dtype=torch.float64)[:, None]
    y = torch.sin(2 * x) * torch.exp(-0.1 * x * x)
    net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    return net.double(), lambda m: lambda: nn.functional.mse_loss(m(x), y), 1e-4


def spirals() -> tuple[nn.Module, Callable[[nn.Module], Loss], float]:
    """Two spirals of 200 points to tell apart, with a small penalty: float32, 353 parameters."""
    t = torch.linspace(0.5, 3.5, 100) * math.pi
    arm = torch.stack([t.cos() * t, t.sin() * t], 1) / 10
    x, y = torch.cat([arm, -arm]), torch.cat([torch.zeros(100), torch.ones(100)])
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))

    def loss_of(m: nn.Module) -> Loss:
        def loss() -> torch.Tensor:
            fit = nn.functional.binary_cross_entropy_with_logits(m(x)[:, 0], y)
            return fit + 1e-5 * sum(p.square().sum() for p in m.parameters())

        return loss

    return net, loss_of, 0.05


def autoencoder() -> tuple[nn.Module, Callable[[nn.Module], Loss], float]:
    """300 points near a curved surface in 20 dimensions through 2 numbers: float32, 1,238
    parameters."""
    generator = torch.Generator().manual_seed(0)
    code = torch.rand(300, 2, generator=generator) * 2 - 1
    bend = torch.randn(2, 20, generator=generator)
    x = torch.sin(2 * code @ bend) + 0.01 * torch.randn(300, 20, generator=generator)
    net = nn.Sequential(
        nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 2), nn.Linear(2, 32), nn.Tanh(),
        nn.Linear(32, 20),
    )  # fmt: skip
    return net, lambda m: lambda: nn.functional.mse_loss(m(x), x), 0.05


class Meter:
    """A closure that counts, and notes when the loss reached the target and how low it came."""

    def __init__(self, net: nn.Module, loss: Loss, target: float):
        self.net, self.loss, self.target = net, loss, target
        self.calls, self.reached, self.lowest = 0, math.inf, math.inf

    def __call__(self) -> torch.Tensor:
        self.net.zero_grad()
        loss = self.loss()
        loss.backward()
        self.calls += 1
        value = loss.item()
        if value < self.lowest:
            self.lowest = value
            if value <= self.target:
                self.reached = min(self.reached, self.calls)
        return loss


SOLVERS: dict[str, Callable[[nn.Module], Any]] = {
    "momentous": lambda net: momentous.torch.Optimizer(net.parameters(), tol=1e-10),
    "LBFGS(line_search_fn='strong_wolfe')": lambda net: torch.optim.LBFGS(
        net.parameters(), max_iter=20, line_search_fn="strong_wolfe"
    ),
    "LBFGS()": lambda net: torch.optim.LBFGS(net.parameters()),
    "Adam(lr=0.001)": lambda net: torch.optim.Adam(net.parameters(), lr=0.001),
    "Adam(lr=0.01)": lambda net: torch.optim.Adam(net.parameters(), lr=0.01),
    "Adam(lr=0.1)": lambda net: torch.optim.Adam(net.parameters(), lr=0.1),
}


def run(solver: str, problem: Callable[..., Any], seed: int) -> tuple[float, float, float]:
    """Evaluations until the target, the lowest loss, and CPU microseconds per evaluation."""
    torch.manual_seed(seed)
    net, loss_of, target = problem()
    meter, optimizer = Meter(net, loss_of(net), target), SOLVERS[solver](net)
    started, before = process_time(), -1
    while meter.calls < LIMIT and before != meter.calls:  # a solver that has ended calls no more
        before = meter.calls
        optimizer.step(meter)
    return meter.reached, meter.lowest, (process_time() - started) / meter.calls * 1e6


def main() -> None:
    torch.set_num_threads(1)
    print("| problem | solver | evaluations to the target | lowest loss | us per evaluation |")
    print("| --- | --- | ---: | ---: | ---: |")
    for problem in (sine, spirals, autoencoder):
        target = problem()[2]
        rows = {}
        for solver in SOLVERS:
            found = zip(*[run(solver, problem, seed) for seed in SEEDS], strict=True)
            rows[solver] = [median(column) for column in found]
        adams = [name for name in rows if name.startswith("Adam")]
        best = min(adams, key=lambda name: tuple(rows[name]))
        for solver, (reached, lowest, time) in rows.items():
            if solver not in adams or solver == best:
                shown = f"{reached:.0f}" if reached < math.inf else f"not in {LIMIT}"
                print(
                    f"| {problem.__name__}, {target:g} | {solver} | {shown} | {lowest:.2g} "
                    f"| {time:.0f} |"
                )


if __name__ == "__main__":
    main()
