"""The decisions of every method are those of the release in which they were stored.

``decisions.json`` holds status, counts, events and the final objective of small runs.  Where a
change of a method is meant, write it anew: ``python tests/methods/test_decisions.py``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import momentous
from helpers import NEEDS_CONSTANTS
from momentous import RAGD, RHB, AdaRAGD, AdaRHB, PerturbedRAGD, testbed
from momentous.methods.registry import REGISTRY

STORE = Path(__file__).with_name("decisions.json")


class Bumps:
    """Wells of different depth, with L = rho = 30."""

    name = "bumps"
    start = np.array([3.0, -2.5, 0.1, 7.0])
    gradient_lipschitz = hessian_lipschitz = 30.0

    def value(self, x):
        return float(np.sum(0.05 * x**2 + np.cos(2 * x)) + 0.1 * math.sin(x[0] * x[1]))

    def gradient(self, x):
        g, slope = 0.1 * x - 2 * np.sin(2 * x), 0.1 * math.cos(x[0] * x[1])
        g[:2] += slope * x[1::-1]
        return g


BY_HAND = {"step_size": 0.005, "momentum": 0.9, "radius": 0.5, "epoch_length": 12}
ADAPTIVE = {
    "step_size": 0.05, "hessian_lipschitz": 10.0, "eps": 1e-2, "initial_radius": 1.0,
    "momentum": 0.9, "epoch_length": 8, "radius": 0.3,
}  # fmt: skip
VARIANTS = {
    "RAGD by hand": RAGD(**BY_HAND),
    "RHB by hand": RHB(**BY_HAND),
    "PerturbedRAGD by hand": PerturbedRAGD(**BY_HAND | {"radius": 0.3, "perturbation": 1e-2}),
    "AdaRAGD, Remark 2": AdaRAGD(**ADAPTIVE),
    "AdaRHB, Remark 2": AdaRHB(**ADAPTIVE),
    "RAGD, L and rho": RAGD(30.0, 30.0, eps=1e-2),
    "RHB, L and rho": RHB(30.0, 30.0, eps=4e-6),
    "AdaRAGD, L and rho": AdaRAGD(gradient_lipschitz=30.0, hessian_lipschitz=30.0, eps=1e-2),
    "AdaRHB, L and rho": AdaRHB(gradient_lipschitz=30.0, hessian_lipschitz=30.0, eps=4e-6),
}
PAPER = {"AdaRAGD.paper": AdaRAGD.paper(), "AdaRHB.paper": AdaRHB.paper()}  # nothing else given
PROBLEMS = {
    "bumps": Bumps(),
    "rosenbrock": testbed.rosenbrock(4),
    "qing": testbed.qing(6),
    "chain": testbed.nested_chain(2, 0.1),
}
PLAIN = ("bumps", "rosenbrock", "qing")
# Later steps of these runs depend on the last digits of the first ones, which every CPU has of its
# own: noise of one unit of rounding in values and gradients changes what they decide.
SENSITIVE = {
    ("AdaRAGD.paper", "bumps"): 4,
    ("ada-ragd", "rosenbrock"): 40,
    ("cg", "rosenbrock"): 40,
}
CASES = [(label, name, 200) for label in VARIANTS for name in PROBLEMS]
CASES += [
    (label, name, SENSITIVE.get((label, name), 120))
    for label in (*PAPER, *REGISTRY)
    for name in PLAIN
]


def decided(label: str, name: str, most: int) -> dict[str, Any]:
    """What a run decided: status, counts, events, and how low it came."""
    problem, method = PROBLEMS[name], (VARIANTS | PAPER).get(label)
    if method is None:
        cls = REGISTRY[label]
        constants = dict.fromkeys(("gradient_lipschitz", "hessian_lipschitz"), 30.0)
        method = cls(**constants) if label in NEEDS_CONSTANTS else cls()
    with np.errstate(over="ignore", invalid="ignore"):  # rosenbrock's L is much larger
        result = momentous.minimize(
            problem.value, problem.start, jac=problem.gradient, method=method, max_iterations=most
        )
    counts = [result.nit, result.nfev, result.njev, result.restarts]
    events = [[nit, str(event.kind)] for nit, event in result.trace.events]
    return {"status": result.status.name, "counts": counts, "events": events, "fun": result.fun}


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    return json.loads(STORE.read_text())


@pytest.mark.parametrize(("label", "name", "most"), CASES, ids=lambda part: str(part))
def test_a_run_decides_as_it_did(label, name, most, stored):
    wanted, found = stored[f"{label} | {name}"], decided(label, name, most)
    rounding = 1e-14 * abs(PROBLEMS[name].value(PROBLEMS[name].start))
    assert found.pop("fun") == pytest.approx(wanted["fun"], rel=1e-12, abs=rounding)
    assert found == {key: wanted[key] for key in found}


def test_the_store_is_small_and_holds_every_case(stored):
    assert set(stored) == {f"{label} | {name}" for label, name, _ in CASES}
    assert STORE.stat().st_size < 100_000
    assert {"COMPLETED", "CONVERGED", "MAX_ITERATIONS"} <= {
        run["status"] for run in stored.values()
    }
    kinds = {kind for run in stored.values() for _, kind in run["events"]}
    assert {"restart", "rollback", "radius reached", "perturbed"} <= kinds


if __name__ == "__main__":
    runs = {f"{label} | {name}": decided(label, name, most) for label, name, most in CASES}
    lines = [f"{json.dumps(key)}: {json.dumps(run)}" for key, run in runs.items()]
    STORE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
