"""Networks and PINNs, full batch: "auto" of momentous.torch against other solvers.

    python benchmarks/networks.py --small --out runs      # for two cores: at most 2,000 parameters
    python benchmarks/networks.py --device cuda --processes 8 --minutes 8 --out runs
    python benchmarks/networks.py --half choose           # the half that defaults were chosen on
    python benchmarks/networks.py --syncs                 # what a call costs besides the closure

One call of the closure is a value and a gradient of the loss of all data.  All solvers start at the
same parameters.  Every kind of problem is in both halves and both precisions, with other seeds and
sizes; ``--seeds`` runs of each.  Data are made here.

With ``--out`` each run is a small file in that folder, and a run that is there is not made again:
the same command goes on where ``--minutes`` ended it, and solvers that have not changed are run
once.  The table shows the lowest loss within so many calls (the geometric mean over the seeds), the
error of the solution where that is known (relative, in L2), and at its end ratios of losses.
With several ``--processes`` times say little: take one to see the milliseconds per call.

Solvers: ``auto``; ``auto before``, with 100 pairs, as it was until 0.2; ``limited``, 300
self-scaled pairs; ``reference``, the dense SSBroyden of the literature with the strong Wolfe search
of PyTorch, after 50 pairs of BFGS; ``torch LBFGS``, with 100 pairs, in one step without tolerances;
``adam`` with a rate of 1e-3; ``plain 20``: "auto" with so many pairs of BFGS before it is scaled.

``--syncs`` counts, on the host and the same every time, what a solver has a GPU do per call besides
the closure: kernels of passes, other operations of PyTorch, and waits of the host for an answer.
``guard`` is the method that guards "auto", alone.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise, product
from pathlib import Path
from statistics import geometric_mean, median
from time import monotonic, perf_counter
from typing import Any, NamedTuple

import torch
from numpy.polynomial.hermite import hermgauss
from torch import nn
from torch.optim.lbfgs import _strong_wolfe
from torch.utils._python_dispatch import TorchDispatchMode

import momentous.torch
from momentous.core import passes
from momentous.methods.classical import dense
from momentous.torch.flat import FlatParameters

Loss = Callable[[], torch.Tensor]
# A network, its loss and, where the solution is known, the error of what the network says.
Made = tuple[nn.Module, Loss, Callable[[], float] | None]
MARKS = (250, 500, 1000, 1500, 3000)


class Setting(NamedTuple):
    """How large a problem is, and where it lives."""

    seed: int
    wide: bool  # the wider form of a problem
    small: bool  # for two cores
    place: dict[str, Any]  # device and dtype

    def size(self, whole: int, small: int) -> int:
        return small if self.small else whole

    def uniform(self, *shape: int) -> torch.Tensor:
        """Numbers in [0, 1], the same on every device."""
        generator = torch.Generator().manual_seed(100 + self.seed)
        return torch.rand(*shape, generator=generator, dtype=torch.float64).to(**self.place)

    def network(self, *widths: int) -> nn.Sequential:
        torch.manual_seed(self.seed)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.Tanh()]
        return nn.Sequential(*layers[:-1]).to(**self.place)

    def pinn(self, outputs: int = 1) -> nn.Sequential:
        """A network of x and y, or x and t."""
        width = self.size(64, 20)
        return self.network(2, *[width] * (5 if self.wide else 4), outputs)


def derivatives(u: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    (slopes,) = torch.autograd.grad(u.sum(), points, create_graph=True)
    return slopes


def grid(count: int, low: float, high: float, at: Setting) -> torch.Tensor:
    return torch.linspace(low, high, count, **at.place)


def inside(at: Setting, count: int) -> torch.Tensor:
    """Points of the unit square."""
    return at.uniform(count, 2).requires_grad_(True)


def border(at: Setting, count: int) -> torch.Tensor:
    """Points on the four sides of the unit square."""
    t = grid(count, 0.0, 1.0, at)
    zero, one = torch.zeros_like(t), torch.ones_like(t)
    sides = [(t, zero), (t, one), (zero, t), (one, t)]
    return torch.cat([torch.stack(side, 1) for side in sides])


def error_of(
    net: nn.Module, exact: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], low: float = 0.0
) -> Callable[[], float]:
    """|u - u*|/|u*| on a grid of [low, 1] x [0, 1], in L2."""

    def error() -> float:
        like = next(net.parameters())
        x, y = (torch.linspace(a, 1.0, 60).to(like) for a in (low, 0.0))
        points = torch.cartesian_prod(x, y)
        with torch.no_grad():
            wanted = exact(*points.double().T).reshape(len(points), -1)
            found = net(points).double()[:, : wanted.shape[1]]
        return float((found - wanted).norm() / wanted.norm())

    return error


def poisson(at: Setting) -> Made:
    """-(u_xx + u_yy) = f on a square, u = 0 on its border."""
    net, points, edge = at.pinn(), inside(at, at.size(2000, 300)), border(at, at.size(100, 25))
    k = math.pi * (2 if at.wide else 1)
    x, y = points.detach().T
    f = 2 * k * k * torch.sin(k * x) * torch.sin(k * y)

    def loss() -> torch.Tensor:
        slopes = derivatives(net(points)[:, 0], points)
        bend = derivatives(slopes[:, 0], points)[:, 0] + derivatives(slopes[:, 1], points)[:, 1]
        return (bend + f).square().mean() + 100 * net(edge).square().mean()

    return net, loss, error_of(net, lambda x, y: torch.sin(k * x) * torch.sin(k * y))


def helmholtz(at: Setting) -> Made:
    """u_xx + u_yy + k^2 u = f on a square, u = 0 on its border."""
    net, points, edge = at.pinn(), inside(at, at.size(2000, 300)), border(at, at.size(100, 25))
    k = 4.0 if at.wide else 2.0
    x, y = points.detach().T
    a, b = math.pi, 2 * math.pi
    f = (k * k - a * a - b * b) * torch.sin(a * x) * torch.sin(b * y)

    def loss() -> torch.Tensor:
        u = net(points)[:, 0]
        slopes = derivatives(u, points)
        bend = derivatives(slopes[:, 0], points)[:, 0] + derivatives(slopes[:, 1], points)[:, 1]
        return (bend + k * k * u - f).square().mean() + 100 * net(edge).square().mean()

    return net, loss, error_of(net, lambda x, y: torch.sin(a * x) * torch.sin(b * y))


def burgers(at: Setting) -> Made:
    """u_t + u u_x = nu u_xx with u = -sin(pi x) at t = 0 and u = 0 at x = -1 and 1."""
    net, points = at.pinn(), inside(at, at.size(2000, 300))
    points = points.detach() * points.new_tensor([2.0, 1.0]) - points.new_tensor([1.0, 0.0])
    points = points.requires_grad_(True)
    nu, s = (0.01 if at.wide else 0.05) / math.pi * 2, grid(at.size(200, 50), -1.0, 1.0, at)
    zero, t = torch.zeros_like(s), (s + 1) / 2
    start, value = torch.stack([s, zero], 1), -torch.sin(math.pi * s)
    sides = torch.cat([torch.stack([zero - 1, t], 1), torch.stack([zero + 1, t], 1)])

    def loss() -> torch.Tensor:
        u = net(points)[:, 0]
        slopes = derivatives(u, points)
        bend = derivatives(slopes[:, 0], points)[:, 0]
        inner = (slopes[:, 1] + u * slopes[:, 0] - nu * bend).square().mean()
        return inner + (net(start)[:, 0] - value).square().mean() + net(sides).square().mean()

    roots, weights = (torch.as_tensor(a).to(s.device) for a in hermgauss(100))

    def exact(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """By Cole and Hopf: a mean of heat that starts as exp(-cos(pi x)/(2 pi nu))."""
        origin = x[:, None] - 2 * (nu * t[:, None]).sqrt() * roots
        heat = weights * torch.exp(-(torch.cos(math.pi * origin) + 1) / (2 * math.pi * nu))
        return -(heat * torch.sin(math.pi * origin)).sum(1) / heat.sum(1)

    return net, loss, error_of(net, exact, low=-1.0)


def wave(at: Setting) -> Made:
    """u_tt = c^2 u_xx with u = sin(pi x), u_t = 0 at t = 0 and u = 0 at x = 0 and 1."""
    net, points = at.pinn(), inside(at, at.size(2000, 300))
    c, s = 2.0 if at.wide else 1.0, grid(at.size(200, 50), 0.0, 1.0, at)
    zero = torch.zeros_like(s)
    start = torch.stack([s, zero], 1).requires_grad_(True)
    value, sides = torch.sin(math.pi * s), border(at, at.size(100, 25))[at.size(200, 50) :]

    def loss() -> torch.Tensor:
        slopes = derivatives(net(points)[:, 0], points)
        bend = derivatives(slopes[:, 0], points)[:, 0]
        inner = (derivatives(slopes[:, 1], points)[:, 1] - c * c * bend).square().mean()
        u = net(start)[:, 0]
        begin = (u - value).square().mean() + derivatives(u, start)[:, 1].square().mean()
        return inner + 10 * begin + 10 * net(sides).square().mean()

    return (
        net,
        loss,
        error_of(net, lambda x, t: torch.sin(math.pi * x) * torch.cos(math.pi * c * t)),
    )


def allen_cahn(at: Setting) -> Made:
    """u_t = d u_xx + 5 (u - u^3) + f with the f of u = exp(-t) cos(pi x) (1 + sin(2 pi t x)/4)."""
    net, points = at.pinn(), inside(at, at.size(2000, 300))
    points = points.detach() * points.new_tensor([2.0, 1.0]) - points.new_tensor([1.0, 0.0])
    points = points.requires_grad_(True)
    d, s = 1e-3 if at.wide else 1e-2, grid(at.size(200, 50), -1.0, 1.0, at)
    zero, t = torch.zeros_like(s), (s + 1) / 2
    edge = torch.cat([torch.stack(side, 1) for side in ((s, zero), (zero - 1, t), (zero + 1, t))])

    def exact(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return torch.exp(-t) * torch.cos(math.pi * x) * (1 + torch.sin(2 * math.pi * t * x) / 4)

    def residual(u: torch.Tensor) -> torch.Tensor:
        slopes = derivatives(u, points)
        bend = derivatives(slopes[:, 0], points)[:, 0]
        return slopes[:, 1] - d * bend - 5 * (u - u**3)

    f, value = residual(exact(*points.T)).detach(), exact(*edge.T)

    def loss() -> torch.Tensor:
        inner = (residual(net(points)[:, 0]) - f).square().mean()
        return inner + 10 * (net(edge)[:, 0] - value).square().mean()

    return net, loss, error_of(net, exact, low=-1.0)


def stokes(at: Setting) -> Made:
    """-(u_xx + u_yy) + p_x = f, the same for v, u_x + v_y = 0: a flow that turns in a square."""
    net, points, edge = at.pinn(3), inside(at, at.size(2000, 300)), border(at, at.size(100, 25))
    k = math.pi * (2 if at.wide else 1)

    def exact(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        u = torch.sin(k * x) ** 2 * torch.sin(2 * k * y)
        v = -torch.sin(2 * k * x) * torch.sin(k * y) ** 2
        return torch.stack([u, v], 1)

    def residuals(flow: torch.Tensor, p: torch.Tensor) -> tuple[torch.Tensor, ...]:
        slopes = [derivatives(flow[:, i], points) for i in range(2)]
        pressure = derivatives(p, points)
        bends = [sum(derivatives(slope[:, i], points)[:, i] for i in range(2)) for slope in slopes]
        parts = [pressure[:, i] - bends[i] for i in range(2)]
        return (*parts, slopes[0][:, 0] + slopes[1][:, 1])

    flow, p = exact(*points.T), torch.cos(math.pi * points[:, 0]) * torch.cos(points[:, 1])
    f, start = [part.detach() for part in residuals(flow, p)], exact(*edge.T)

    def loss() -> torch.Tensor:
        out = net(points)
        found = residuals(out[:, :2], out[:, 2])
        inner = sum((a - b).square().mean() for a, b in zip(found, f, strict=True))
        level = out[:, 2].mean() - p.detach().mean()  # the pressure is known up to a constant
        return inner + 100 * (net(edge)[:, :2] - start).square().mean() + level.square()

    return net, loss, error_of(net, exact)


def regression(at: Setting) -> Made:
    """A function of ten variables, with noise."""
    x = 2 * at.uniform(at.size(20_000, 500), 10) - 1
    y = torch.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] + torch.exp(-5 * x[:, 3:6].square().sum(1))
    y = y + 0.05 * (at.uniform(len(y)) - 0.5)
    width = at.size(512, 36) if at.wide else at.size(256, 28)
    net = at.network(10, width, width, 1)
    return net, lambda: (net(x)[:, 0] - y).square().mean(), None


def classification(at: Setting) -> Made:
    """Three spirals to tell apart, with a small penalty."""
    count = at.size(3000, 150)
    t = grid(count, 0.5, 3.5 if at.wide else 2.5, at) * math.pi
    turns = [2 * math.pi * k / 3 for k in range(3)]
    arms = [torch.stack([(t + a).cos() * t, (t + a).sin() * t], 1) / 10 for a in turns]
    x = torch.cat(arms) + 0.02 * (at.uniform(3 * count, 2) - 0.5)
    y = torch.arange(3, device=x.device).repeat_interleave(count)
    width = at.size(128, 32)
    net = at.network(2, *[width] * (3 if at.wide else 2), 3)

    def loss() -> torch.Tensor:
        penalty = 1e-6 * sum(p.square().sum() for p in net.parameters())
        return nn.functional.cross_entropy(net(x), y) + penalty

    return net, loss, None


def convolution(at: Setting) -> Made:
    """Which of four textures is on a picture?  With a small penalty."""
    count, side, channels = at.size(1000, 100), at.size(16, 12), at.size(8, 4) * (1 + at.wide)
    i = torch.arange(side, **at.place)
    shift = 6.3 * at.uniform(count, 2)
    ways = torch.tensor([(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, -1.0)], **at.place)
    y = torch.arange(count, device=i.device) % 4
    phase = ways[y, :1, None] * i[:, None] + ways[y, 1:, None] * i[None, :] + shift[:, :1, None]
    x = torch.sin(phase) + 2 * (at.uniform(count, side, side) - 0.5)
    x = x[:, None]
    torch.manual_seed(at.seed)
    net = nn.Sequential(
        nn.Conv2d(1, channels, 3, stride=2), nn.Tanh(), nn.Conv2d(channels, 2 * channels, 3),
        nn.Tanh(), nn.Flatten(), nn.LazyLinear(4),
    ).to(**at.place)  # fmt: skip
    net(x[:1])

    def loss() -> torch.Tensor:
        penalty = 1e-5 * sum(p.square().sum() for p in net.parameters())
        return nn.functional.cross_entropy(net(x), y) + penalty

    return net, loss, None


def autoencoder(at: Setting) -> Made:
    """Points near a curved surface in many dimensions, through three numbers."""
    high, width = at.size(100, 20), at.size(256, 32) * (2 if at.wide else 1)
    code = 2 * at.uniform(at.size(5000, 300), 3) - 1
    bend = 4 * at.uniform(3, high) - 2
    x = torch.sin(2 * code @ bend) + 0.01 * at.uniform(len(code), high)
    net = at.network(high, width, 3, width, high)
    return net, lambda: (net(x) - x).square().mean(), None


PINNS = (poisson, helmholtz, burgers, wave, allen_cahn, stokes)
KINDS = (*PINNS, regression, classification, convolution, autoencoder)
# The first seed of each half, and the kinds in their wider form; runs have seeds 100 apart.
HALVES = {"choose": (0, KINDS[1::2]), "held": (20, KINDS[::2])}


class Problem(NamedTuple):
    kind: str
    name: str
    seed: int
    make: Callable[[], Made]


def problems(given: argparse.Namespace) -> list[Problem]:
    found, kinds = [], set(filter(None, given.problems.split(",")))
    first, wide = HALVES[given.half]
    for i, kind in enumerate(KINDS):
        if kinds and kind.__name__ not in kinds:
            continue
        for precision, run in product(given.precision.split(","), range(given.seeds)):
            place = {"device": given.device, "dtype": getattr(torch, precision)}
            at = Setting(first + i + 100 * run, kind in wide, given.small, place)
            name = f"{kind.__name__} {precision}{' wide' if at.wide else ''}"
            found.append(Problem(kind.__name__, name, at.seed, lambda k=kind, at=at: k(at)))
    return found


class _EnoughError(Exception):
    """The calls are spent."""


class Meter:
    """A closure that counts its calls, times them, and notes the lowest loss."""

    def __init__(self, net: nn.Module, loss: Loss, calls: int, device: str):
        self.net, self.loss, self.most, self.cuda = net, loss, calls, device == "cuda"
        self.values: list[torch.Tensor] = []
        self.best, self.parameters = math.inf, [p.detach().clone() for p in net.parameters()]
        self.began: list[float] = []
        self.own: list[float] = []

    def __call__(self) -> torch.Tensor:
        if len(self.values) == self.most:
            raise _EnoughError
        begin = perf_counter()
        self.net.zero_grad()
        loss = self.loss()
        loss.backward()
        if self.cuda:
            torch.cuda.synchronize()  # so that what follows is not the closure's
        self.own.append(perf_counter() - begin)
        self.began.append(begin)
        self.values.append(loss.detach())
        if len(self.values) > self.most // 2 and loss.item() < 0.9 * self.best:
            self.best = loss.item()
            torch._foreach_copy_(self.parameters, [p.detach() for p in self.net.parameters()])
        return loss

    def lowest(self, calls: int) -> float:
        found = [float(value) for value in self.values[:calls]]
        return min((value for value in found if math.isfinite(value)), default=math.nan)

    @property
    def seconds(self) -> float:
        """Per call, the closure's own included."""
        times = [b - a for a, b in pairwise(self.began)]
        return median(times) if times else math.nan  # it has failed in its first call

    @property
    def compiling(self) -> float:
        """What calls that take more than 50 ms beyond that took."""
        usual = self.seconds
        beyond = (b - a - usual for a, b in pairwise(self.began))
        return sum(time for time in beyond if time > 0.05)


def run_torch(net: nn.Module, meter: Meter) -> None:
    many = meter.most
    optimizer = torch.optim.LBFGS(
        net.parameters(), history_size=100, line_search_fn="strong_wolfe", max_iter=many,
        max_eval=2 * many, tolerance_grad=0.0, tolerance_change=0.0,
    )  # fmt: skip
    while True:  # where it has ended, on with what it knows
        optimizer.step(meter)


def run_adam(net: nn.Module, meter: Meter) -> None:
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    while True:
        optimizer.step(meter)


def run_momentous(method: Any) -> Callable[[nn.Module, Meter], None]:
    def run(net: nn.Module, meter: Meter) -> None:
        momentous.torch.minimize(net, meter, method, tol=0.0, max_iterations=None, trace=False)

    return run


def run_reference(net: nn.Module, meter: Meter) -> None:
    """Dense SSBroyden as it is published, with a strong Wolfe search, after 50 pairs of BFGS; where
    a search fails it begins anew."""
    flat = FlatParameters([*net.named_parameters()])

    def evaluate(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        flat.write(flat.tensor(x.to(dtype).cpu().numpy() if on_host else x.to(dtype)))
        return meter().item(), torch.as_tensor(flat.gradient()).double()

    on_host, dtype = next(net.parameters()).device.type == "cpu", next(net.parameters()).dtype
    x = torch.as_tensor(flat.point()).double()
    n, pairs = len(x), 0
    f, g = evaluate(x)
    H = torch.eye(n, dtype=torch.float64, device=x.device)
    while True:
        d = -(H @ g)
        slope = float(g @ d)
        if slope < 0.0:
            first = min(1.0, 1.0 / float(g.abs().sum())) if pairs == 0 else 1.0
            value, there, t, _ = _strong_wolfe(
                lambda x, t, d: evaluate(x + t * d), x, first, d, f, g.clone(), slope
            )
        if slope >= 0.0 or t == 0.0:
            if pairs == 0:
                return
            H, pairs = torch.eye(n, dtype=torch.float64, device=x.device), 0
            continue
        s, y, x = t * d, there - g, x + t * d
        sy, yy = float(s @ y), float(y @ y)
        if sy > 1e-10 * float(s.norm()) * math.sqrt(yy):
            if pairs == 0:
                H *= sy / yy
            z = H @ y
            zy = float(z @ y)
            tau, phi = (1.0, 1.0) if pairs < 50 else _ssbroyden(n, -t * float(g @ s) / sy, zy / sy)
            # (1/tau) (H - z z'/zy + phi v v') + s s'/sy, v = sqrt(zy) (s/sy - z/zy)
            H.div_(tau).addr_(z, z, alpha=(phi - 1) / (tau * zy))
            H.addr_(s, z, alpha=-phi / (tau * sy)).addr_(z, s, alpha=-phi / (tau * sy))
            H.addr_(s, s, alpha=phi * zy / (tau * sy * sy) + 1 / sy)
            pairs += 1
        f, g = value, there


def _ssbroyden(n: int, b: float, h: float) -> tuple[float, float]:
    most, a = min(1.0, 1.0 / b), max(h * b - 1.0, 1e-12)
    low = max(min(1.0, h * (1.0 - math.sqrt(a / (1.0 + a)))), 1e-10)
    theta = max((low - 1.0) / a, min(1.0 / low, (1.0 - b) / b))
    sigma = 1.0 + theta * a
    width = abs(sigma) ** (1.0 / (1.0 - n))
    tau = most * min(width, 1.0 / theta) if theta > 0 else min(most * width, sigma)
    return max(tau, 1e-10), (1.0 - theta) / (1.0 + a * theta)


BEFORE = momentous.Safeguarded(fast=momentous.LBFGS(memory=100))
LIMITED = momentous.Safeguarded(fast=momentous.LBFGS(memory=300, scaling="self"))
SOLVERS: dict[str, Callable[[nn.Module, Meter], None]] = {
    "auto": run_momentous("auto"),
    "auto before": run_momentous(BEFORE),
    "limited": run_momentous(LIMITED),
    "reference": run_reference,
    "torch LBFGS": run_torch,
    "adam": run_adam,
    "lbfgs": run_momentous("lbfgs"),
    "ssbroyden": run_momentous("ssbroyden"),
    "ssbfgs": run_momentous(momentous.SelfScaledBroyden(update="ssbfgs")),
    **{
        f"plain {pairs}": run_momentous(
            momentous.Safeguarded(fast=momentous.SelfScaledBroyden(plain_pairs=pairs))
        )
        for pairs in (0, 20, 100)
    },
    "guard": run_momentous(momentous.UniversalHeavyBall(average_growth=1)),
}


class Run(NamedTuple):
    """One solver on one problem, as its file holds it."""

    problem: str
    seed: int
    solver: str
    parameters: int
    losses: dict[str, float]  # the lowest within so many calls
    error: float | None
    milliseconds: float  # per call
    closure: float  # the closure's own of them
    compiling: float  # seconds
    ended: str = ""  # why, where it has ended before


def run_of(solver: str) -> Callable[[nn.Module, Meter], None]:
    """``lbfgs 40`` has so many pairs."""
    name, _, pairs = solver.rpartition(" ")
    if name == "lbfgs" and pairs.isdigit():
        return run_momentous(momentous.LBFGS(memory=int(pairs)))
    return SOLVERS[solver]


def measure(problem: Problem, solver: str, calls: int, device: str) -> Run:
    net, loss, error = problem.make()
    meter, ended = Meter(net, loss, calls, device), ""
    try:
        run_of(solver)(net, meter)
        ended = f"after {len(meter.values)} calls"
    except _EnoughError:
        pass
    except Exception as problem_seen:  # a solver that fails is a row, too
        ended = f"{type(problem_seen).__name__}: {problem_seen}"[:200]
    with torch.no_grad():
        torch._foreach_copy_([*net.parameters()], meter.parameters)
    losses = {str(mark): meter.lowest(mark) for mark in (*MARKS, calls) if mark <= calls}
    return Run(
        problem.name, problem.seed, solver, sum(p.numel() for p in net.parameters()), losses,
        None if error is None else error(), 1e3 * meter.seconds,
        1e3 * median(meter.own or [math.nan]), meter.compiling, ended,
    )  # fmt: skip


def file_of(given: argparse.Namespace, problem: Problem, solver: str) -> Path | None:
    if not given.out:
        return None
    where = given.device + (" small" if given.small else "")
    name = f"{where} {given.half} {problem.name} {problem.seed} {solver} {given.calls}.json"
    return Path(given.out) / name.replace(" ", "-")


def work(given: argparse.Namespace, part: int, end: float) -> list[Run]:
    """The runs of one of the processes, as far as there is time for them."""
    if given.threads:
        torch.set_num_threads(given.threads)
    runs = []
    tasks = [*product(problems(given), filter(None, given.solvers.split(",")))]
    for i, (problem, solver) in enumerate(tasks):
        file = file_of(given, problem, solver)
        if i % given.processes == part and monotonic() < end and not (file and file.exists()):
            run = measure(problem, solver, given.calls, given.device)
            runs.append(run)
            if file is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(run._asdict()))
    return runs


def compare(given: argparse.Namespace) -> None:
    for pairs in filter(None, given.memory.split(",")):
        given.solvers += f",lbfgs {pairs}"
    end = monotonic() + 60 * given.minutes
    if given.processes > 1:
        with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
            parts = pool.starmap(work, [(given, i, end) for i in range(given.processes)])
        runs = [run for part in parts for run in part]
    else:
        runs = work(given, 0, end)
    made = {(run.problem, run.seed, run.solver): run for run in runs}
    for problem, solver in product(problems(given), given.solvers.split(",")):
        file = file_of(given, problem, solver)
        if file is not None and file.exists():
            run = Run(**json.loads(file.read_text()))
            made[run.problem, run.seed, run.solver] = run
    show(given, [*made.values()])


def show(given: argparse.Namespace, runs: list[Run]) -> None:
    solvers = [name for name in given.solvers.split(",") if name]
    names = list(dict.fromkeys(run.problem for run in runs))
    print(f"| problem | parameters | closure, ms | {' | '.join(f'{s} | ms' for s in solvers)} |")
    print("| --- " * (3 + 2 * len(solvers)) + "|")
    means: dict[tuple[str, str], float] = {}
    for name in names:
        of = {s: [r for r in runs if (r.problem, r.solver) == (name, s)] for s in solvers}
        cells = []
        for solver, found in of.items():
            losses = [run.losses[str(given.calls)] for run in found]
            if not losses:
                cells.append("- | -")
                continue
            means[name, solver] = mean(losses)
            errors = [run.error for run in found if run.error is not None]
            shown = f"{mean(losses):.2g}" + (f" (error {mean(errors):.1g})" if errors else "")
            late = median(run.compiling for run in found)
            time = f"{median(run.milliseconds for run in found):.2f}"
            cells.append(f"{shown} | {time}" + (f" + {late:.1f} s" if late else ""))
        every = [run for found in of.values() for run in found]
        own = median(run.closure for run in every)
        print(f"| {name} | {every[0].parameters:,} | {own:.2f} | {' | '.join(cells)} |")
    pinns = tuple(kind.__name__ for kind in PINNS)
    for solver, other in product(solvers, solvers):
        for precision in given.precision.split(","):
            for label, chosen in (
                ("PINNs", [n for n in names if n.startswith(pinns)]),
                ("others", [n for n in names if not n.startswith(pinns)]),
            ):
                ratios = [
                    means[n, solver] / means[n, other]
                    for n in chosen
                    if precision in n and (n, solver) in means and (n, other) in means
                ]
                if ratios and solver != other and solvers.index(solver) == 0:
                    near = sum(ratio <= 3 for ratio in ratios) / len(ratios)
                    print(
                        f"{precision} {label}: {solver} over {other} {geometric_mean(ratios):.2g} "
                        f"in the geometric mean, {max(ratios):.2g} at worst; at most 3 on "
                        f"{near:.0%} of {len(ratios)}"
                    )
    for run in runs:
        if run.ended:
            print(f"{run.problem} {run.seed}, {run.solver}: ended {run.ended}")


def mean(numbers: Sequence[float]) -> float:
    """The geometric mean; NaN where there is one."""
    return math.exp(sum(math.log(max(a, 1e-300)) for a in numbers) / len(numbers))


class CountedPasses:
    """Passes over tensors of the host, one by one, in place of the kernels of a GPU."""

    def __init__(self, counts: Counter[str]):
        self._counts = counts

    def brings(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.numel() == 1

    def start(
        self, work: passes.Pass, vectors: Sequence[Any], numbers: Sequence[float], value: Any
    ) -> tuple[tuple[Any, ...], Callable[[], tuple[list[float], float]]]:
        counts, before = self._counts, self._counts.copy()
        made, products = work.formula(*vectors, *numbers)
        sums = [float(torch.dot(a.double(), b.double())) for a, b in products]
        found = math.nan if value is None else float(value)
        counts.clear()
        counts.update(before)
        counts["kernels"] += 1
        counts["under way"] = 1
        counts[f"kernel {work.name}"] += 1

        def answer() -> tuple[list[float], float]:
            if sums:  # those of kernels that were started together come together
                counts["waits"] += counts["under way"]
                counts["under way"] = 0
            return sums, found

        return made, answer


class Operations(TorchDispatchMode):
    """Counts the operations of PyTorch, and those whose answer the host waits for."""

    WAITS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)

    def __init__(self, counts: Counter[str]):
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.counts["operations"] += not function.is_view
        self.counts["waits"] += function in self.WAITS
        return function(*args, **(kwargs or {}))


@contextmanager
def as_on_a_gpu(counts: Counter[str]) -> Iterator[None]:
    """Parameters in the memory of the host are handled like those of a GPU."""
    fused, begin = passes.device_passes, FlatParameters.__init__
    library, room = dense.array_name, dense.device_memory

    def on_device(self: FlatParameters, named: Any) -> None:
        begin(self, named)
        self._staged = None

    passes.device_passes = lambda like: CountedPasses(counts)
    dense.array_name, dense.device_memory = lambda space: "torch", lambda space: math.inf
    FlatParameters.__init__ = on_device  # type: ignore[method-assign]
    try:
        with Operations(counts):
            yield
    finally:
        passes.device_passes, FlatParameters.__init__ = fused, begin  # type: ignore[method-assign]
        dense.array_name, dense.device_memory = library, room


def count(solver: str, calls: int = 200, first: int = 100) -> dict[str, float]:
    """What a call takes besides the closure, from the call ``first`` on; and how many kernels
    there are to compile."""
    counts: Counter[str] = Counter()
    marks: list[Counter[str]] = []
    net, loss, _ = wave(Setting(0, False, True, {"device": "cpu", "dtype": torch.float64}))

    class Marked(Meter):
        def __call__(self) -> torch.Tensor:
            marks.append(counts.copy())
            answer = super().__call__()
            counts.clear()
            counts.update(marks[-1])
            return answer

    meter = Marked(net, loss, calls, "cpu")
    with suppress(_EnoughError), as_on_a_gpu(counts):
        SOLVERS[solver](net, meter)
    named = ("kernels", "operations", "waits")
    found = {name: (marks[-1][name] - marks[first][name]) / (calls - first) for name in named}
    return found | {"to compile": sum(name.startswith("kernel ") for name in counts)}


def count_all(solvers: Sequence[str]) -> None:
    print("| solver | kernels per call | other operations | waits | kernels to compile |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for solver in solvers:
        found = count(solver)
        print(f"| {solver} | {' | '.join(f'{number:.3g}' for number in found.values())} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=[*HALVES], default="held")
    parser.add_argument("--problems", help="kinds, separated by commas", default="")
    parser.add_argument("--precision", default="float64,float32")
    parser.add_argument("--solvers", default="auto,auto before,limited,reference,torch LBFGS")
    parser.add_argument("--calls", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each problem")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--memory", help="pairs, separated by commas", default="")
    parser.add_argument("--out", help="folder of the runs", default="")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no run after that")
    parser.add_argument("--syncs", action="store_true")
    parser.add_argument("--threads", type=int, default=0)
    given = parser.parse_args()
    if given.syncs:
        count_all([*SOLVERS])
    else:
        compare(given)


if __name__ == "__main__":
    main()
