"""The algorithms of the paper as they are printed: every iterate in a list, nothing clever.

Li & Lin, "Restarted Nonconvex Accelerated Gradient Descent", JMLR 24 (2023).  `restarted` is
Algorithm 1 (Algorithm 3 with ``heavy_ball``), `adaptively_restarted` is Algorithm 2 (Algorithm 4)
with the rule of Remark 2 in place of line 11.  Two things are not as printed: K is a whole number,
the integer part of 1/theta, and Remark 2 requires a decrease that is measured with the current rho'
(Theorem 6).
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

import momentous
from momentous import EventKind, testbed


def started(problem, spread=1.0):
    """The problem with a start off every stable manifold and a long way to go."""
    displacement = np.random.default_rng(1).standard_normal(problem.dimension)
    return replace(problem, start=problem.start + spread * displacement)


def _separable(loss, dimension):
    """No coordinate is special, and all of them matter; L and rho are exact."""
    problem = testbed.separable(loss, weights=np.linspace(1.0, 0.3, dimension), scales=1.0)
    return started(testbed.rotated(problem))


COSINES = _separable("cosine", 30)
SADDLE = started(testbed.saddle(5, 5, negative_curvature=(1.0, 0.5, 0.2, 0.1, 0.05)))
FLAT_SADDLE = started(testbed.flat_saddle(3, 4))
CHAIN = started(testbed.second_order_chain(8, 0.2))
NESTED = started(testbed.nested_chain(2, 0.3), spread=8.0)
FUNCTIONS = [
    COSINES,
    _separable("geman-mcclure", 100),
    _separable("cauchy", 40),
    _separable("tanh-squared", 20),
    SADDLE,
    FLAT_SADDLE,
    CHAIN,
    NESTED,
]
"""Nonconvex functions with global L and rho, in up to 100 variables."""


def epoch_length(theta):
    return max(1, math.floor(1 / theta + 1e-9))


# --- the parameters of the theorems ---------------------------------------------------------------


@dataclass
class Theory:
    """What Theorems 1 and 2 (or, for the heavy ball, 4 and 5) say, for one L, rho and eps."""

    L: float
    rho: float
    eps: float
    heavy_ball: bool = False

    def __post_init__(self):
        self.eta = 1 / (4 * self.L)
        quarter = (self.eps * self.rho * self.eta**2) ** (1 / 4)
        self.theta = (10 if self.heavy_ball else 4) * quarter
        self.B = math.sqrt(self.eps / (4 * self.rho if self.heavy_ball else self.rho))
        self.K = epoch_length(self.theta)

    @property
    def unit(self):
        """eps^(3/2)/sqrt(rho): what epochs lower f by is measured in it."""
        return self.eps**1.5 / math.sqrt(self.rho)

    @property
    def decrease(self):
        """How much a restarted epoch lowers f, at least."""
        return self.unit if self.heavy_ball else 7 / 8 * self.unit

    def most_restarts(self, gap):
        return math.floor(gap / self.decrease)

    @property
    def gradient_bound(self):
        """At the output, for integer 1/theta."""
        return (242 if self.heavy_ball else 82) * self.eps

    @property
    def averaging_error(self):
        """Between the gradient at the average and the average of the gradients."""
        return (1 if self.heavy_ball else 4) * self.rho * self.B**2

    @property
    def sharp_gradient_bound(self):
        """Lemma 6, before it is simplified, with the K that is really used."""
        first = 2 * math.sqrt(2) * self.B / (self.eta * self.K**2)
        second = 2 * self.theta * self.B / (self.eta * self.K)
        return first + second + self.averaging_error

    @classmethod
    def with_integer_length(cls, problem, K, heavy_ball=False):
        """The eps for which theta is 1/K."""
        L, rho = problem.gradient_lipschitz, problem.hessian_lipschitz
        return cls(L, rho, L**2 / ((625 if heavy_ball else 16) * rho * K**4), heavy_ball)


# --- the algorithms -------------------------------------------------------------------------------


@dataclass
class Epoch:
    """One epoch with all that it went through."""

    x: list  # x^0, x^1, ...
    eta: float
    theta: float
    B: float
    K: int
    B0: float = 0.0
    rho: float = math.nan
    y: list = field(default_factory=list)  # where gradients were taken (heavy ball: x^0, x^1, ...)
    g: list = field(default_factory=list)  # these gradients
    end: str = ""  # "restart", "rollback", "complete", or "" while it runs
    next_start: np.ndarray = None

    @property
    def k(self):
        return len(self.x) - 1

    def moved(self, t):
        return np.linalg.norm(self.x[t + 1] - self.x[t])

    def criterion(self, k=None):
        """k * sum_{t<k} |x^{t+1} - x^t|^2."""
        k = self.k if k is None else k
        return k * sum(self.moved(t) ** 2 for t in range(k))

    def shortest(self):
        """K0, the index of the shortest step in the second half; the first one if there are two."""
        return min(range(self.K // 2, self.K), key=self.moved)

    def average(self):
        k0 = self.shortest()
        return sum(self.y[: k0 + 1]) / (k0 + 1)

    def iterate(self, gradient, heavy_ball):
        """Lines 3-5."""
        x, before = self.x[-1], self.x[max(self.k - 1, 0)]
        momentum = (1 - self.theta) * (x - before)
        y = x if heavy_ball else x + momentum
        g = gradient(y)
        self.x.append(x - self.eta * g + momentum if heavy_ball else y - self.eta * g)
        self.y.append(y)
        self.g.append(g)

    def restart_point(self, heavy_ball):
        if not heavy_ball:
            return self.x[-1]
        a = (1 - 2 * self.theta) * (1 - self.theta)
        return (self.x[-1] + a * self.x[-2]) / (1 + a)


@dataclass
class History:
    """A run: its epochs, and where values were asked for."""

    epochs: list
    values: list
    output: np.ndarray = None

    @property
    def points(self):
        """Where gradients were taken, in order."""
        return [y for epoch in self.epochs for y in epoch.y]

    def ended(self, how):
        """The iterations, counted from 1, in which an epoch ended so."""
        ends = np.cumsum([epoch.k for epoch in self.epochs])
        return [int(n) for n, epoch in zip(ends, self.epochs, strict=True) if epoch.end == how]


def restarted(gradient, x_init, *, eta, theta, B, K=None, heavy_ball=False, most=10**6):
    """Algorithm 1, or 3; ends early, without output, after ``most`` iterations."""
    K = K or epoch_length(theta)
    epochs = [Epoch([x_init], eta, theta, B, K)]
    for _ in range(most):
        epoch = epochs[-1]
        if epoch.k >= K:  # line 2
            epoch.end = "complete"
            return History(epochs, [], epoch.average())
        epoch.iterate(gradient, heavy_ball)
        if epoch.criterion() > B**2:  # line 6
            epoch.end, epoch.next_start = "restart", epoch.restart_point(heavy_ball)
            epochs.append(Epoch([epoch.next_start], eta, theta, B, K))
    return History(epochs, [])


def adaptively_restarted(
    value,
    gradient,
    x_init,
    *,
    eta,
    theta,
    B,
    B0,
    eps,
    rho,
    K=None,
    gamma=1e-5,
    c0=None,
    c1=10.0,
    c2=1.0,
    eta_min=0.0,
    rho_max=math.inf,
    heavy_ball=False,
    most=10**6,
):
    """Algorithm 2, or 4, with Remark 2 (c2 = 1 switches it off).

    c0 is a number, or None for 1 + 0.001 t at the t-th restart.
    """
    epochs = [Epoch([x_init], eta, theta, B, K or epoch_length(theta), B0, rho)]
    values = [x_init]
    f_start = value(x_init)
    for _ in range(most):
        epoch = epochs[-1]
        if not (epoch.k < epoch.K or epoch.B0 > epoch.B):  # line 2
            epoch.end = "complete"
            candidates = (epoch.x[-1], epoch.average())
            return History(epochs, values, min(candidates, key=lambda x: _norm(gradient(x))))
        epoch.iterate(gradient, heavy_ball)
        if not (epoch.criterion() > max(epoch.B, epoch.B0) ** 2 or epoch.k > epoch.K):  # line 6
            continue
        t = len(epochs)
        eta, theta, B, K, rho = epoch.eta, epoch.theta, epoch.B, epoch.K, epoch.rho
        B0 = epoch.B0 / (1 + 0.001 * t if c0 is None else c0)  # line 7
        end = epoch.restart_point(heavy_ball)
        values.append(end)
        f_end = value(end)
        if f_end - f_start <= -gamma * eps**1.5 / math.sqrt(rho):  # line 8
            epoch.end, epoch.next_start, f_start = "restart", end, f_end
        else:
            epoch.end, epoch.next_start = "rollback", epoch.x[0]
            B0 = B0 / c1
            eta, rho = max(eta / c2, eta_min), min(rho * c2**2, rho_max)
            B = epoch.B * math.sqrt(epoch.rho / rho)  # ~ sqrt(eps/rho')
            factor = rho * eta**2 / (epoch.rho * epoch.eta**2)
            if not math.isclose(factor, 1):  # only one cap binds: theta by the theorem, anew
                quarter = (eps * rho * eta**2) ** (1 / 4)
                theta = min(10 * quarter, 0.1) if heavy_ball else min(4 * quarter, 1.0)
                K = epoch_length(theta)
        epochs.append(Epoch([epoch.next_start], eta, theta, B, K, B0, rho))
    return History(epochs, values)


def _norm(g):
    return math.sqrt(np.dot(g, g))


# --- a run of the library, seen from outside ------------------------------------------------------


class Watched:
    """A problem that writes down where it was evaluated."""

    def __init__(self, problem):
        self.problem, self.values, self.gradients = problem, [], []

    def value(self, x):
        self.values.append(np.array(x))
        return self.problem.value(x)

    def gradient(self, x):
        self.gradients.append(np.array(x))
        return self.problem.gradient(x)


def watched_run(problem, x0, method, *, tol=0.0, max_iterations=100_000, **options):
    """Run ``method``; returns its epochs (as `Epoch`), its result and the `Watched` problem.

    Its y and g are what the method asked for, its x and its numbers what the memory holds; the last
    x of an epoch, which no memory holds, is computed from the step before.
    """
    seen = Watched(problem)
    run = momentous.iterate(
        seen.value,
        x0,
        jac=seen.gradient,
        method=method,
        tol=tol,
        max_iterations=max_iterations,
        **options,
    )
    epochs = [_epoch_of(run.memory)]
    evaluated = len(seen.gradients)
    for step in run:
        epoch, memory, ending = epochs[-1], step.memory, step.report.ending
        y, g = step.x, step.jac
        if ending is not None and memory.epoch.k > 0:
            # The step went on to the output; its own gradient is the first that it asked for.
            y = seen.gradients[evaluated] if epoch.k > 0 else epoch.x[0]
            g = problem.gradient(y)
        evaluated = len(seen.gradients)
        epoch.y.append(np.array(y))
        epoch.g.append(np.array(g))
        if memory.epoch.k > 0 and ending is None:
            epoch.x.append(np.array(memory.epoch.x))
            continue
        x, before = epoch.x[-1], epoch.x[max(epoch.k - 1, 0)]
        epoch.x.append(x + (1 - epoch.theta) * (x - before) - epoch.eta * g)
        if memory.epoch.k > 0:
            epoch.end = "complete"
            continue
        rolled_back = any(event.kind is EventKind.ROLLBACK for event in step.events)
        epoch.end = "rollback" if rolled_back else "restart"
        epoch.next_start = np.array(memory.epoch.start)
        epochs.append(_epoch_of(memory))
    return epochs, run.result, seen


def _epoch_of(memory):
    """A fresh epoch with the numbers that the memory says it runs with."""
    x0 = [np.array(memory.epoch.start)]
    if hasattr(memory, "schedule"):
        now = memory.schedule
        return Epoch(
            x0,
            now.step_size,
            now.theta,
            now.radius,
            now.epoch_length,
            now.wide_radius,
            now.hessian_lipschitz,
        )
    p = memory.parameters
    return Epoch(x0, p.step_size, p.theta, p.radius, p.epoch_length)


# --- self-scaled quasi-Newton updates -------------------------------------------------------------


def self_scaled_update(H, s, y, update, scales=True):
    """H+ as Al-Baali, Spedicato and Maggioni (2014) print it, with whole matrices."""
    n, sy, z, B = len(s), s @ y, H @ y, np.linalg.inv(H)
    b, h, tau, phi = s @ B @ s / sy, y @ z / sy, 1.0, 1.0
    if scales and update != "bfgs":
        tau = min(1.0, 1 / b)
    if scales and update == "ssbroyden":
        a = h * b - 1
        c = math.sqrt(a / (1 + a))
        lower = min(1.0, h * (1 - c))
        theta = max((lower - 1) / a, min(1 / lower, (1 - b) / b))
        sigma = 1 + theta * a
        root = abs(sigma) ** (1 / (1 - n))
        tau = tau * min(root, 1 / theta) if theta > 0 else min(tau * root, sigma)
        phi = (1 - theta) / (1 + a * theta)
    v = math.sqrt(y @ z) * (s / sy - z / (y @ z))
    return (H - np.outer(z, z) / (y @ z) + phi * np.outer(v, v)) / tau + np.outer(s, s) / sy
