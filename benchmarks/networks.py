"""Networks and PINNs, full batch: momentous against ``torch.optim.LBFGS`` with 100 pairs.

    python benchmarks/networks.py                        # the half that is held back
    python benchmarks/networks.py --half choose          # the half that defaults were chosen on
    python benchmarks/networks.py --device cuda --calls 1000
    python benchmarks/networks.py --small --calls 500    # for two cores
    python benchmarks/networks.py --memory 100,200,400   # L-BFGS with so many pairs, too
    python benchmarks/networks.py --syncs                # what a call costs besides the closure

One call of the closure is a value and a gradient of the loss of all data.  All solvers start at the
same parameters.  A row has the lowest loss within so many calls, and the milliseconds per call, the
closure's own included: the median over the calls, so that kernels which are compiled once do not
count; what the slowest calls take beyond that, compilation for the most part, is shown in seconds
behind it.  ``closure`` is what the closure alone takes.  Behind a loss stands its ratio with that
of PyTorch's L-BFGS, which runs in one step without tolerances, as nothing of it is lost then.

``--syncs`` counts, on the host and the same every time, what a solver has a GPU do per call besides
the closure: kernels of passes, other operations of PyTorch, and waits of the host for an answer.
``guard`` is the method that guards "auto", alone.

A kind of problem is in both halves, in the other precision, with other seeds and sizes.  Data are
made here.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import momentous.torch
from momentous.core import passes
from momentous.torch.flat import FlatParameters

Loss = Callable[[], torch.Tensor]
BASELINE = "torch LBFGS"


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

    def pinn(self) -> nn.Sequential:
        """A network of x and y, or x and t."""
        width = self.size(64, 32)
        return self.network(2, *[width] * (5 if self.wide else 4), 1)


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


def poisson(at: Setting) -> tuple[nn.Module, Loss]:
    """-(u_xx + u_yy) = f on a square, u = 0 on its border."""
    net, points, edge = at.pinn(), inside(at, at.size(2000, 300)), border(at, at.size(100, 25))
    k = math.pi * (2 if at.wide else 1)
    x, y = points.detach().T
    f = 2 * k * k * torch.sin(k * x) * torch.sin(k * y)

    def loss() -> torch.Tensor:
        slopes = derivatives(net(points)[:, 0], points)
        bend = derivatives(slopes[:, 0], points)[:, 0] + derivatives(slopes[:, 1], points)[:, 1]
        return (bend + f).square().mean() + 100 * net(edge).square().mean()

    return net, loss


def helmholtz(at: Setting) -> tuple[nn.Module, Loss]:
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

    return net, loss


def burgers(at: Setting) -> tuple[nn.Module, Loss]:
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

    return net, loss


def wave(at: Setting) -> tuple[nn.Module, Loss]:
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

    return net, loss


def regression(at: Setting) -> tuple[nn.Module, Loss]:
    """A function of ten variables, with noise."""
    x = 2 * at.uniform(at.size(20_000, 500), 10) - 1
    y = torch.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] + torch.exp(-5 * x[:, 3:6].square().sum(1))
    y = y + 0.05 * (at.uniform(len(y)) - 0.5)
    width = at.size(512, 64) if at.wide else at.size(256, 48)
    net = at.network(10, width, width, 1)
    return net, lambda: (net(x)[:, 0] - y).square().mean()


def classification(at: Setting) -> tuple[nn.Module, Loss]:
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

    return net, loss


def convolution(at: Setting) -> tuple[nn.Module, Loss]:
    """Which of four textures is on a picture?  With a small penalty."""
    count, side, channels = at.size(1000, 100), at.size(16, 12), 16 if at.wide else 8
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

    return net, loss


def autoencoder(at: Setting) -> tuple[nn.Module, Loss]:
    """Points near a curved surface in many dimensions, through three numbers."""
    high, width = at.size(100, 20), at.size(256, 32) * (2 if at.wide else 1)
    code = 2 * at.uniform(at.size(5000, 300), 3) - 1
    bend = 4 * at.uniform(3, high) - 2
    x = torch.sin(2 * code @ bend) + 0.01 * at.uniform(len(code), high)
    net = at.network(high, width, 3, width, high)
    return net, lambda: (net(x) - x).square().mean()


KINDS = (poisson, helmholtz, burgers, wave, regression, classification, convolution, autoencoder)
# In the half to choose on, every other kind is in float64 and narrow.
HALVES = {
    "choose": [(kind, i % 2 == 0, i % 2 == 1, i) for i, kind in enumerate(KINDS)],
    "held": [(kind, i % 2 == 1, i % 2 == 0, 20 + i) for i, kind in enumerate(KINDS)],
}


class Problem(NamedTuple):
    name: str
    make: Callable[[], tuple[nn.Module, Loss]]


def problems(half: str, device: str, small: bool, kinds: set[str] | None = None) -> list[Problem]:
    found = []
    for kind, double, wide, seed in HALVES[half]:
        if kinds is None or kind.__name__ in kinds:
            place = {"device": device, "dtype": torch.float64 if double else torch.float32}
            at, dtype = Setting(seed, wide, small, place), "float64" if double else "float32"
            name = f"{kind.__name__} {dtype}{' wide' if wide else ''}"
            found.append(Problem(name, lambda kind=kind, at=at: kind(at)))
    return found


class _EnoughError(Exception):
    """The calls are spent."""


class Meter:
    """A closure that counts its calls, times them, and notes the lowest loss."""

    def __init__(self, net: nn.Module, loss: Loss, calls: int, device: str):
        self.net, self.loss, self.most, self.cuda = net, loss, calls, device == "cuda"
        self.values: list[torch.Tensor] = []
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
        return loss

    @property
    def lowest(self) -> float:
        found = [float(value) for value in self.values]
        return min((value for value in found if math.isfinite(value)), default=math.nan)

    @property
    def seconds(self) -> float:
        """Per call, the closure's own included."""
        return median(b - a for a, b in pairwise(self.began))

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


def run_momentous(method: Any) -> Callable[[nn.Module, Meter], None]:
    def run(net: nn.Module, meter: Meter) -> None:
        momentous.torch.minimize(net, meter, method, tol=0.0, max_iterations=None, trace=False)

    return run


SOLVERS: dict[str, Callable[[nn.Module, Meter], None]] = {
    BASELINE: run_torch,
    "auto": run_momentous("auto"),
    "lbfgs": run_momentous("lbfgs"),
    "guard": run_momentous(momentous.UniversalHeavyBall(average_growth=1)),
}


def measure(problem: Problem, solver: str, calls: int, device: str) -> Meter:
    net, loss = problem.make()
    meter = Meter(net, loss, calls, device)
    with suppress(_EnoughError):
        SOLVERS[solver](net, meter)
    return meter


def compare(given: argparse.Namespace) -> None:
    solvers = [name for name in given.solvers.split(",") if name]
    for pairs in map(int, filter(None, given.memory.split(","))):
        SOLVERS[f"lbfgs {pairs}"] = run_momentous(momentous.LBFGS(memory=pairs))
        solvers.append(f"lbfgs {pairs}")
    print(f"| problem | parameters | closure, ms | {' | '.join(f'{s} | ms' for s in solvers)} |")
    print("| --- " * (3 + 2 * len(solvers)) + "|")
    ratios: dict[str, list[tuple[float, float]]] = {solver: [] for solver in solvers}
    kinds = set(given.problems.split(",")) if given.problems else None
    for problem in problems(given.half, given.device, given.small, kinds):
        size = sum(p.numel() for p in problem.make()[0].parameters())
        meters = {solver: measure(problem, solver, given.calls, given.device) for solver in solvers}
        own = median(time for meter in meters.values() for time in meter.own)
        cells, base = [], meters.get(BASELINE)
        for solver, meter in meters.items():
            shown = f"{meter.lowest:.3g}"
            if base is not None and meter is not base:
                pair = meter.lowest / base.lowest, meter.seconds / base.seconds
                ratios[solver].append(pair)
                shown += f" ({pair[0]:.2f})"
            late = f" + {meter.compiling:.1f} s" if meter.compiling else ""
            cells.append(f"{shown} | {1e3 * meter.seconds:.2f}{late}")
        print(f"| {problem.name} | {size:,} | {1e3 * own:.2f} | {' | '.join(cells)} |", flush=True)
    for solver, pairs in ratios.items():
        if pairs:
            losses, times = zip(*pairs, strict=True)
            print(
                f"{solver}: loss against {BASELINE} {median(losses):.2f} in the median, "
                f"{max(losses):.2f} at worst; time per call {median(times):.2f}, {max(times):.2f}"
            )


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

    def on_device(self: FlatParameters, named: Any) -> None:
        begin(self, named)
        self._staged = None

    passes.device_passes = lambda like: CountedPasses(counts)
    FlatParameters.__init__ = on_device  # type: ignore[method-assign]
    try:
        with Operations(counts):
            yield
    finally:
        passes.device_passes, FlatParameters.__init__ = fused, begin  # type: ignore[method-assign]


def count(solver: str, calls: int = 200, first: int = 100) -> dict[str, float]:
    """What a call takes besides the closure, from the call ``first`` on; and how many kernels
    there are to compile."""
    counts: Counter[str] = Counter()
    marks: list[Counter[str]] = []
    net, loss = wave(Setting(0, False, True, {"device": "cpu", "dtype": torch.float64}))

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
    parser.add_argument("--solvers", default=f"{BASELINE},auto,lbfgs")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--memory", help="pairs, separated by commas", default="")
    parser.add_argument("--syncs", action="store_true")
    parser.add_argument("--threads", type=int, default=0)
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    if given.syncs:
        count_all([*SOLVERS])
    else:
        compare(given)


if __name__ == "__main__":
    main()
