"""Where the first call of `momentous.jax.solve` spends its time, beside Optimistix.

    python benchmarks/jax_compile.py [--size 100] [--methods ada-ragd,lbfgs,auto] [--lanes 0]

Processor time of tracing, lowering and XLA; equations of the traced program; kernels (fusions) of
what XLA makes of it, how many of them differ, and branches.  Nearly all of the time is XLA's.  On a
CPU it goes with the number of kernels that differ, about 10 ms each: of 60 inner products of
vectors of one length XLA compiles three kernels, in 60 ms; 60 formulas of a few numbers, each
another one, take 500 ms.  Most of the kernels that differ are single numbers and conditions that
branches compute: what a formula is fused with makes it another kernel.

What was tried and brought nothing, or not enough (JAX 0.10.2, two cores):

- branches of single numbers as selections: hardly fewer kernels, 1.1 to 1.2 of the time;
- XLA's options: a lower level of optimisation with its older emitters takes 0.7 to 0.8 of the time
  for one run, 1.8 for runs under ``vmap``, and cannot be set for a part of a program;
- a turn in few kernels, by the mark ``xla_cpu_small_call`` that XLA sets on small loops: 0.5 of the
  time (ada-ragd) to 0.75 (auto) at 10 variables, 0.8 to 1.05 at 100, where LLVM unrolls every sum;
  and XLA ends the process where such a call does not read an argument: no user should meet that;
- norms by one sum in three units, not by a maximum and a sum: 606 kernels of 685 (auto), in the
  same time: the sums of a program are compiled once;
- ``optimization_barrier`` between formulas, so that they are not fused and alike: XLA takes the
  barriers out before it fuses;
- the numbers of a branch in one vector, which takes 0.4 to 0.7 of the time on a loop of three
  branches alone: here 1.3 (ada-ragd) to 2.2 (auto) times the time, since reading a number from
  the vector becomes a kernel of its own.

- ends of a run in one branch, ``lax.cond`` in place of a switch of two, a start without products:
  248 kernels of 249 (lbfgs), in the same time, though a turn takes .8 of the time; whatever is cut
  out whole (the search behind a first trial: 1.1 s of 2.7, what looks at noise: .3, the end of a
  run: .2) is needed by some run.  So `solve` outside of ``jit`` compiles the opening of "auto"
  alone, the last row: .58 of the whole;
- XLA's older emitters for that program alone: .8 of its time, by an option that XLA may drop.

JAX's own cache of compiled programs (``jax_compilation_cache_dir``) leaves tracing and lowering.
"""

from __future__ import annotations

import argparse
import itertools
import re
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

import optimistix as optx  # noqa: E402

from momentous import Safeguarded  # noqa: E402
from momentous.jax import compiled, solve  # noqa: E402


def rosenbrock(x: Any) -> Any:
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def equations(program: Any) -> int:
    """Of a traced program, those of its branches and loops included."""
    total = 0
    for equation in program.eqns:
        total += 1
        for value in equation.params.values():
            for each in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(each, "jaxpr", each)
                total += equations(inner) if hasattr(inner, "eqns") else 0
    return total


def fusions(text: str) -> list[str]:
    """The bodies of the fusions of a compiled program, alike where XLA compiles them once."""
    blocks = re.findall(r"^%(\S+) \(.*{\n((?:  .*\n)+)}", text, flags=re.MULTILINE)
    bodies = {name: re.sub(r", metadata={.*?}", "", body) for name, body in blocks}

    def canonical(name: str) -> str:
        numbers: dict[str, int] = {}

        def rename(match: re.Match[str]) -> str:
            name = match[1]
            if name in bodies:
                return canonical(name)
            return f"%{numbers.setdefault(name, len(numbers))}"

        return re.sub(r"%([\w.-]+)", rename, bodies[name])

    return [canonical(name) for name in re.findall(r" fusion\(.*calls=%([\w.-]+)", text)]


def row(name: str, run: Callable[[Any], Any], x: Any) -> str:
    clock = [time.process_time()]
    traced = jax.jit(run).trace(x)
    clock.append(time.process_time())
    lowered = traced.lower()
    clock.append(time.process_time())
    text = lowered.compile().as_text()
    clock.append(time.process_time())
    trace, lower, xla = (after - before for before, after in itertools.pairwise(clock))
    kernels, branches = fusions(text), len(re.findall(r" conditional\(", text))
    return (
        f"{name:18} {clock[-1] - clock[0]:6.2f} s: trace {trace:.2f}, lower {lower:.2f}, XLA "
        f"{xla:.2f}; {equations(traced.jaxpr.jaxpr)} equations, {len(kernels)} kernels "
        f"({len(set(kernels))} differ), {branches} branches"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--methods", default="ada-ragd,ada-rhb,lbfgs,auto")
    parser.add_argument("--lanes", type=int, default=0, help="Runs under vmap; 0: one run.")
    given = parser.parse_args()
    x = np.full(given.size, 0.5)
    if given.lanes:
        x = np.tile(x, (given.lanes, 1))

    def optimistix(x: Any) -> Any:
        solver = optx.LBFGS(1e-5, 1e-5)
        return optx.minimise(lambda y, _: rosenbrock(y), solver, x, throw=False).value

    runs: dict[str, Callable[[Any], Any]] = {"optimistix.LBFGS": optimistix}
    for method in given.methods.split(","):
        runs[method] = lambda x, method=method: solve(rosenbrock, x, method=method, tol=1e-5)
    if "auto" in runs and not given.lanes:
        opening, key = Safeguarded().opening(), jax.random.key(0)
        how = rosenbrock, 1e-5, 0.0, False
        runs["auto, not in jit"] = lambda x: compiled._open(
            opening, *how, x, (), key, 100_000, None, None
        )
    row("", lambda x: jnp.sum(x), x)  # what JAX does once
    for name, run in runs.items():
        print(row(name, jax.vmap(run) if given.lanes else run, x), flush=True)


if __name__ == "__main__":
    main()
