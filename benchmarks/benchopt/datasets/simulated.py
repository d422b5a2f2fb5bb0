"""Labels from few of many weights, with columns that are correlated."""

import numpy as np

from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "Simulated"
    parameters = {"n_samples, n_features": [(1000, 200), (500, 2000)], "correlation": [0.5]}
    requirements = ["numpy"]

    def get_data(self):
        rng = np.random.default_rng(0)
        noise = rng.standard_normal((self.n_samples, self.n_features))
        X = np.empty_like(noise)
        X[:, 0] = noise[:, 0]
        rho = self.correlation
        for j in range(1, self.n_features):
            X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * noise[:, j]
        weights = np.zeros(self.n_features)
        weights[:: self.n_features // 10] = 2.0
        y = np.where(X @ weights + rng.standard_normal(self.n_samples) > 0, 1.0, -1.0)
        return {"X": X, "y": y}
