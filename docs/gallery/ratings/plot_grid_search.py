"""
Search for rank and ridge with scikit-learn
===========================================

The estimators are scikit-learn's in form: grid search, cross-validation and pipelines take them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV, KFold

from momentous.lowrank import MatrixCompletion

# %%
# Pairs of ids are X, ratings are y.  The truth has rank 3.  Folds are shuffled: cut in order, each
# would hold out all ratings of some users.

rng = np.random.default_rng(0)
users, items, rank = 150, 100, 3
truth = 3 + rng.standard_normal((users, rank)) @ rng.standard_normal((rank, items)) / 2
X = np.argwhere(rng.random((users, items)) < 0.3)
y = truth[X[:, 0], X[:, 1]] + 0.3 * rng.standard_normal(len(X))

grid = {"rank": [1, 2, 3, 4, 6], "ridge": [0.01, 0.03, 0.1, 0.3, 1.0]}
folds = KFold(3, shuffle=True, random_state=0)
search = GridSearchCV(
    MatrixCompletion(random_state=0), grid, cv=folds, scoring="neg_root_mean_squared_error"
).fit(X, y)
print(search.best_params_)
print(f"cross-validated error {-search.best_score_:.3f}; the noise alone has 0.3")

# %%
table = -search.cv_results_["mean_test_score"].reshape(len(grid["rank"]), len(grid["ridge"]))
plt.imshow(table, cmap="viridis_r")
plt.xticks(range(len(grid["ridge"])), grid["ridge"])
plt.yticks(range(len(grid["rank"])), grid["rank"])
plt.xlabel("ridge")
plt.ylabel("rank")
plt.colorbar(label="cross-validated error")
plt.show()
