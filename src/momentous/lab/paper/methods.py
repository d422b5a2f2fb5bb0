"""The methods of the paper's experiments, with the parameters of its section 5.1."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from momentous.core.method import Method
from momentous.lab.paper.problems import Profile
from momentous.lab.record import Json
from momentous.methods import (
    RAGD,
    RHB,
    AdaRAGD,
    AdaRHB,
    ConjugateGradient,
    ConvexUntilGuilty,
    GradientDescent,
    HeuristicAGD,
    JinAGD,
)
from momentous.methods.restarted.fixed_radius import whole_epoch

EPS, RHO = 1e-4, 1.0  # section 5.1
RECOVERS = 1e6  # methods that go back, and on with a smaller step, may climb on their way


@dataclass(frozen=True)
class PaperMethod:
    """A method of the experiments, up to its step size."""

    name: str  # in the registry, and on the command line
    label: str  # in the paper, as far as it has one
    make: Callable[[float, str, Profile], Method]  # of step size, problem and profile
    evaluations: int  # values and gradients in an iteration, about
    step_of: str = ""  # takes the step size that this other one was tuned to
    step_factor: float = 1.0  # times so much
    divergence_factor: float = 1.0  # times the objective of the start, where a run ends


def _epochs(step_size: float) -> Json:
    """B = sqrt(eps/rho), theta = 0.005 (eps rho eta^2)^(1/4), K = floor(1/theta): for the heavy
    ball the same as for AGD, not those of its theory."""
    theta = 0.005 * math.sqrt(step_size * math.sqrt(EPS * RHO))
    return {
        "step_size": step_size, "momentum": 1 - theta, "radius": math.sqrt(EPS / RHO),
        "epoch_length": whole_epoch(theta),
    }  # fmt: skip


def _adaptive(cls: type[AdaRAGD] | type[AdaRHB]) -> Callable[[float, str, Profile], Method]:
    """eps = 1e-4, rho = 1 at first, B0 = 100, gamma = 1e-5, c0 = 1 + 0.001 t, c1 = 10, c2 = 2."""

    def make(step_size: float, problem: str, profile: Profile) -> Method:
        return cls(
            **_epochs(step_size), hessian_lipschitz=RHO, eps=EPS, initial_radius=100.0,
            decrease=1e-5, failure_shrink=10.0, backoff=2.0,
        )  # fmt: skip

    return make


def _fixed(cls: type[RAGD] | type[RHB]) -> Callable[[float, str, Profile], Method]:
    """With B from the start: what the adaptive method becomes once B0 <= B."""
    return lambda step_size, *_: cls(**_epochs(step_size))


def _guilty(step_size: float, problem: str, profile: Profile) -> Method:
    """As theory has it, but at most 100 inner iterations.

    The paper does not say for which eps; 1e-12 and 1e-14 are those of the published code.
    """
    eps = 1e-12 if problem == "completion" else 1e-14
    return ConvexUntilGuilty(step_size=step_size, hessian_lipschitz=RHO, eps=eps, inner_cap=100)


def _conjugate_gradient(step_size: float, problem: str, profile: Profile) -> Method:
    """At most 10 halvings; the published code then takes the last step even if F rises by it."""
    return ConjugateGradient(step_size=step_size, guarded=profile == "paper", max_halvings=10)


PAPER_METHODS = {
    each.name: each
    for each in (
        PaperMethod("ada-ragd", "Ada-RAGD-NC", _adaptive(AdaRAGD), 1, divergence_factor=RECOVERS),
        PaperMethod("ada-rhb", "Ada-RHB-NC", _adaptive(AdaRHB), 1, divergence_factor=RECOVERS),
        PaperMethod("jin-agd", "Jin's AGD", lambda eta, *_: JinAGD.as_compared(eta), 2),
        PaperMethod("guilty", "convex until guilty", _guilty, 3, divergence_factor=RECOVERS),
        PaperMethod("heuristic-agd", "heuristic RAGD", lambda eta, *_: HeuristicAGD(eta), 2),
        PaperMethod("gd", "GD", lambda eta, *_: GradientDescent(eta), 1),
        PaperMethod("cg", "CG", _conjugate_gradient, 3, step_of="gd"),
        PaperMethod("ragd", "RAGD-NC", _fixed(RAGD), 1, step_of="gd"),
        # It restarts half way between the last two points, which halves a step of one iteration.
        PaperMethod("rhb", "RHB-NC", _fixed(RHB), 1, step_of="gd", step_factor=2.0),
    )
}
"""In the order in which they are run: the last three go by the step size of GD."""

ADAPTIVE = tuple(PAPER_METHODS[name].label for name in ("ada-ragd", "ada-rhb"))
OTHERS = tuple(
    PAPER_METHODS[name].label for name in ("jin-agd", "guilty", "heuristic-agd", "cg", "gd")
)
SEVEN = (*ADAPTIVE, *OTHERS)
"""Those that are compared and drawn, in the order in which pictures and verdicts name them; the
colours go by it."""
FIXED = tuple(PAPER_METHODS[name].label for name in ("ragd", "rhb"))
"""Those that the paper says to be like GD; they are run, and, as in the paper, not drawn."""

_TUNED = ("gd", "ada-ragd", "ada-rhb", "jin-agd", "guilty", "heuristic-agd", "cg")
AUTHORS_STEPS = {
    where: dict(zip(_TUNED, steps, strict=True))
    for where, steps in {
        ("completion", "ml-10m"): (110.0, 40.0, 120.0, 40.0, 50.0, 40.0, 100.0),
        ("completion", "ml-20m"): (150.0, 50.0, 120.0, 60.0, 60.0, 40.0, 100.0),
        ("completion", "netflix"): (330.0, 120.0, 370.0, 140.0, 140.0, 120.0, 300.0),
        ("one-bit", "ml-10m"): (450.0, 90.0, 210.0, 120.0, 100.0, 70.0, 400.0),
        ("one-bit", "ml-20m"): (640.0, 130.0, 300.0, 180.0, 140.0, 90.0, 500.0),
        ("one-bit", "netflix"): (1700.0, 420.0, 1000.0, 640.0, 460.0, 260.0, 1500.0),
    }.items()
}
"""The step sizes in the authors' scripts, for (problem, data set): where the search begins.

That of CG is for their code alone: in the paper it is the step of GD.
"""


def select_methods(names: list[str] | None) -> list[PaperMethod]:
    """The methods of these names, by default all."""
    if names is None:
        return list(PAPER_METHODS.values())
    for name in names:
        if name not in PAPER_METHODS:
            raise ValueError(
                f"{name!r} is not one of the paper's methods: {', '.join(PAPER_METHODS)}"
            )
    return [each for name, each in PAPER_METHODS.items() if name in names]
