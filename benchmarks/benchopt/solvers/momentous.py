"""The methods of momentous, by name; none of them needs a parameter."""

import numpy as np
from benchopt.stopping_criterion import SufficientProgressCriterion

import momentous
from benchopt import BaseSolver


class Solver(BaseSolver):
    name = "momentous"
    parameters = {"method": ["auto", "ada-ragd", "ada-rhb", "universal-hb"]}
    sampling_strategy = "callback"
    # Momentum may climb for a while before an epoch is discarded.
    stopping_criterion = SufficientProgressCriterion(eps=1e-12, patience=20)
    requirements = ["pip::momentous"]

    def set_objective(self, function, start):
        self.function, self.start = function, start
        self.w = start

    def run(self, callback):
        def look(xk):
            self.w = np.array(xk)
            return not callback()  # True ends the run

        result = momentous.minimize(
            self.function, self.start, jac=True, method=self.method, tol=1e-12, callback=look
        )
        self.w = result.x

    def get_result(self):
        return {"w": self.w}
