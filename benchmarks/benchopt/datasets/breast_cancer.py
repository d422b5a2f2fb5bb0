"""Benign or malignant: 569 tumours with 30 measurements, and their products, from scikit-learn."""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "Breast cancer"
    parameters = {"degree": [1, 2]}
    requirements = ["scikit-learn"]

    def get_data(self):
        X, y = load_breast_cancer(return_X_y=True)
        X = StandardScaler().fit_transform(X)
        X = PolynomialFeatures(self.degree).fit_transform(X)
        return {"X": X, "y": np.where(y == 1, 1.0, -1.0)}
