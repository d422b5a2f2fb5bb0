"""
An algorithm of optimagic
=========================

`optimagic <https://optimagic.readthedocs.io>`_ has one call for many optimizers; this adds ours.
"""

import dataclasses

import optimagic as om
from optimagic.optimization.algorithm import Algorithm, InternalOptimizeResult

import momentous


@om.mark.minimizer(
    name="momentous", solver_type=om.typing.AggregationLevel.SCALAR, is_available=True,
    is_global=False, needs_jac=True, needs_hess=False, needs_bounds=False,
    supports_parallelism=False, supports_bounds=True, supports_infinite_bounds=True,
    supports_linear_constraints=False, supports_nonlinear_constraints=False,
)  # fmt: skip
@dataclasses.dataclass(frozen=True)
class Momentous(Algorithm):
    convergence_gtol_abs: float = 1e-5

    def _solve_internal_problem(self, problem, x0):
        box, tol = problem.bounds, self.convergence_gtol_abs
        box = None if box.lower is None else [*zip(box.lower, box.upper, strict=True)]
        run = momentous.minimize(problem.fun_and_jac, x0, jac=True, bounds=box, tol=tol)
        return InternalOptimizeResult(run.x, run.fun, run.success, run.message)


# %%
# Parameters with names, one with a bound; optimagic takes the gradient by differences.
result = om.minimize(
    lambda p: (1 - p["a"]) ** 2 + 100 * (p["b"] - p["a"] ** 2) ** 2, {"a": -1.0, "b": 2.0},
    bounds=om.Bounds(upper={"a": 0.5}), algorithm=Momentous(convergence_gtol_abs=1e-6),
)  # fmt: skip
print(f"a = {result.params['a']:.3f}, b = {result.params['b']:.3f}: {result.message}")
figure = om.criterion_plot(result, backend="matplotlib")
