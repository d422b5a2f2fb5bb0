"""The methods of SciPy that go by gradients."""

import numpy as np
import scipy.optimize
from benchopt.stopping_criterion import SufficientProgressCriterion

from benchopt import BaseSolver


class Solver(BaseSolver):
    name = "scipy"
    parameters = {"method": ["L-BFGS-B", "CG", "BFGS"]}
    sampling_strategy = "callback"
    # Momentum may climb for a while before an epoch is discarded.
    stopping_criterion = SufficientProgressCriterion(eps=1e-12, patience=20)
    requirements = ["scipy"]

    def set_objective(self, function, start):
        self.function, self.start = function, start
        self.w = start

    def run(self, callback):
        def look(xk):
            self.w = np.array(xk)
            if not callback():
                raise StopIteration

        tight = {"L-BFGS-B": {"ftol": 0.0, "gtol": 1e-12, "maxfun": 100_000}}
        options = {"maxiter": 100_000, **tight.get(self.method, {"gtol": 1e-12})}
        result = scipy.optimize.minimize(
            self.function, self.start, jac=True, method=self.method, options=options, callback=look
        )
        self.w = result.x

    def get_result(self):
        return {"w": self.w}
