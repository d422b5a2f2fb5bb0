"""The demonstration: the paper's methods, the default and L-BFGS-B on a worst-case function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from momentous.comparison import Comparison, compare
from momentous.comparison.plots import plot_convergence
from momentous.comparison.report import new_console, print_tables
from momentous.methods import RAGD, RHB, AdaRAGD, AdaRHB, PerturbedRAGD
from momentous.testbed import nested_chain


def run_demo(out: Path, mu: float = 1e-3) -> Comparison:
    """Run, print the table, save the picture."""
    console = new_console()
    problem, tol = nested_chain(8, mu), mu / 4
    L, rho = problem.gradient_lipschitz, problem.hessian_lipschitz
    methods: dict[str, Any] = {
        "auto": "auto",
        "RAGD": RAGD(L, rho),
        "RHB": RHB(L, rho),
        "PerturbedRAGD": PerturbedRAGD(L, rho, eps=tol),
        "AdaRAGD": AdaRAGD(),
        "AdaRHB": AdaRHB(),
        "scipy:l-bfgs-b": "scipy:l-bfgs-b",
    }
    console.print(
        f"[bold]{problem.name}[/bold], {problem.dimension} variables: a function on which no "
        f"first-order method can be fast.  Goal: gradient norm {tol:.3g}."
    )
    found = compare(
        problem, methods, tol=tol, max_evaluations=2_000_000, max_time=600.0, separate=True
    )
    print_tables(console, found)
    if not found.interrupted:
        picture = out / "convergence.png"
        plot_convergence(found, problem.name, picture)
        spent = {row.method: f"{row.evaluations:,}" for row in found.rows}
        console.print(
            f"The picture is [bold]{picture}[/bold].  Look at the two adaptive methods: they were "
            "told nothing, find their own step size and restart where the circles are.  Values + "
            f"gradients: AdaRAGD {spent['AdaRAGD']}, AdaRHB {spent['AdaRHB']}, with theory's fixed "
            f"radius RAGD {spent['RAGD']}.  L-BFGS-B, which has no guarantee on nonconvex "
            f"functions, needs {spent['scipy:l-bfgs-b']}; auto, which has one, {spent['auto']}."
        )
    return found
