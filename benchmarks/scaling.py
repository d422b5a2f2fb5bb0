"""How the work to reach a stationary point grows as the problem gets harder.

On the nested chain with parameter mu, a gradient of mu/4 costs any first-order method of the order
of 1/sqrt(mu) gradients, and gradient descent of the order of 1/mu.  The table gives gradients to
that tolerance and the exponent p of a fit ``gradients ~ mu^(-p)``.

The step sizes of RAGD, RHB and the first gradient descent follow the bound L = 4 + 181 mu, which
falls from 9.4 to 4.2 over the range and takes about 0.2 off the exponent of gradient descent.  The
second gradient descent has the step 1/4, the limit of 1/L, for all mu.

The second table is for AdaRAGD and AdaRHB with nothing given: chains of 4, 8 and 16 potentials with
mu down to 3e-6.

    python benchmarks/scaling.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import momentous
from momentous.lab.paper.exponents import fitted_exponent
from momentous.testbed import Problem, nested_chain

MUS = (0.03, 0.01, 0.003, 0.001)
FREE = ("AdaRAGD", "AdaRHB")
FREE_LENGTHS = (4, 8, 16)
FREE_MUS = (1e-2, 1e-3, 1e-4, 1e-5, 3e-6)


def fewest_gradients(length: int, mu: float) -> int:
    """(m + 1)(T - 1): what a method needs whose iterates stay in the span of the gradients seen.

    With fewer it knows nothing of the last coordinates, and the norm is above mu/4.
    """
    return (nested_chain(length, mu).dimension - 1) // length * (length - 1)


def gradient_descent(step_size: float) -> momentous.Method:
    """The heavy ball without momentum and without restarts."""
    return momentous.RHB(step_size=step_size, momentum=0.0, radius=math.inf, epoch_length=10**9)


def methods(problem: Problem) -> dict[str, momentous.Method]:
    """What is compared; the methods by theory take eps from the tolerance."""
    L, rho = problem.gradient_lipschitz, problem.hessian_lipschitz
    assert L is not None
    constants: dict[str, Any] = {"gradient_lipschitz": L, "hessian_lipschitz": rho}
    return {
        "GD, step 1/L": gradient_descent(1 / L),
        "GD, step 1/4": gradient_descent(1 / 4),
        "RAGD": momentous.RAGD(**constants),
        "RHB": momentous.RHB(**constants),
        "AdaRAGD by theory": momentous.AdaRAGD(**constants),
        "AdaRHB by theory": momentous.AdaRHB(**constants),
        "AdaRAGD": momentous.AdaRAGD(),
        "AdaRHB": momentous.AdaRHB(),
    }


def gradients_to_tolerance(name: str, length: int, mu: float) -> int:
    """Gradients until the norm is mu/4."""
    problem = nested_chain(length, mu)
    result = momentous.minimize(
        problem.value,
        problem.start,
        jac=problem.gradient,
        method=methods(problem)[name],
        tol=mu / 4,
        max_iterations=10**7,
        trace=False,
    )
    if not result.grad_norm <= mu / 4:
        raise RuntimeError(f"{name} did not reach the tolerance: {result.message}")
    return int(result.njev)


def exponent(mus: Sequence[float], gradients: Sequence[int]) -> float:
    """p in gradients ~ mu^(-p), by least squares."""
    return fitted_exponent([1 / mu for mu in mus], gradients)


def main(length: int = 8, mus: Sequence[float] = MUS) -> None:
    print(f"Nested chain of {length} potentials: gradients until the gradient norm is mu/4")
    print(f"\n{'mu':26}" + "".join(f"{mu:>9g}" for mu in mus) + f"{'exponent':>11}")
    print_row("any first-order method >=", mus, [fewest_gradients(length, mu) for mu in mus])
    for name in methods(nested_chain(length, mus[0])):
        print_row(name, mus, [gradients_to_tolerance(name, length, mu) for mu in mus])


def print_free_rule() -> None:
    print("\nWith nothing given, on longer chains and down to smaller mu")
    print(f"\n{'mu':26}" + "".join(f"{mu:>9g}" for mu in FREE_MUS) + f"{'exponent':>11}")
    for name in FREE:
        for length in FREE_LENGTHS:
            counts = [gradients_to_tolerance(name, length, mu) for mu in FREE_MUS]
            print_row(f"{name}, {length} potentials", FREE_MUS, counts)


def print_row(name: str, mus: Sequence[float], gradients: Sequence[int]) -> None:
    counts = "".join(f"{n:>9d}" for n in gradients)
    print(f"{name:26}{counts}{exponent(mus, gradients):>11.2f}", flush=True)


if __name__ == "__main__":
    main()
    print_free_rule()
