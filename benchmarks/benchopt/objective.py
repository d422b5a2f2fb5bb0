"""Logistic regression with a nonconvex penalty that levels off."""

import numpy as np

from benchopt import BaseObjective


class Objective(BaseObjective):
    name = "Logistic regression with a nonconvex penalty"
    min_benchopt_version = "1.7"
    requirements = ["numpy"]
    parameters = {"alpha": [0.001, 0.01]}

    def set_data(self, X, y):
        self.X, self.y = X, y

    def value_and_gradient(self, w):
        """Mean of log(1 + exp(-y X w)) plus alpha times the sum of w^2/(1 + w^2)."""
        margin = self.y * (self.X @ w)
        below = -self.y * np.exp(-np.logaddexp(0, margin)) / len(self.y)
        share = 1 / (1 + w**2)
        value = np.mean(np.logaddexp(0, -margin)) + self.alpha * np.sum(1 - share)
        return value, self.X.T @ below + self.alpha * 2 * w * share**2

    def evaluate_result(self, w):
        value, gradient = self.value_and_gradient(w)
        return {
            "value": value,
            "gradient norm": np.linalg.norm(gradient),
            "weights that matter": int(np.sum(np.abs(w) > 0.1)),
        }

    def get_one_result(self):
        return {"w": np.zeros(self.X.shape[1])}

    def get_objective(self):
        return {"function": self.value_and_gradient, "start": np.zeros(self.X.shape[1])}
