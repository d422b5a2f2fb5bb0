"""
An optimizer of ASE
===================

`ASE <https://ase-lib.org>`_ relaxes atoms: it moves them until every force is below `fmax`.  An
optimizer for it has one method, `step`; here that is a step of `momentous.iterate`.
"""

import matplotlib.pyplot as plt
import numpy as np
from ase import Atoms
from ase.calculators.lj import LennardJones
from ase.optimize.optimize import Optimizer

from momentous import iterate


class Momentous(Optimizer):
    def energy(self, x):
        self.optimizable.set_x(x)
        return self.optimizable.get_value(), self.optimizable.get_gradient()

    def step(self):
        if self.nsteps == 0:
            self.steps = iterate(self.energy, self.optimizable.get_x(), jac=True, tol=self.fmax)
        if (step := next(self.steps, None)) is None:
            raise RuntimeError(self.steps.result.message)
        self.optimizable.set_x(step.x)


# %%
# Thirteen atoms of argon, from random places to a cluster.
atoms = Atoms("Ar13", np.random.default_rng(0).normal(size=(13, 3)))
atoms.calc = LennardJones(rc=20.0)
relaxation, energies = Momentous(atoms, logfile=None), []
relaxation.attach(lambda: energies.append(atoms.get_potential_energy()))
print("forces below 0.001:", relaxation.run(fmax=1e-3), f"energy: {energies[-1]:.4f}")
plt.plot(energies)
plt.gca().set(xlabel="step", ylabel="energy", yscale="symlog")
plt.show()
