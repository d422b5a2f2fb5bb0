"""
Principal components of a table with gaps
=========================================

`momentous.lowrank.PCA` is scikit-learn's PCA where nothing is missing, and takes NaN where
something is: each row gets its scores from the entries that it has.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn import decomposition
from sklearn.datasets import load_wine

from momentous.lowrank import PCA

# %%
# Thirteen measurements of 178 wines of three kinds; 30 % are taken away.

data = load_wine()
whole = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
gaps = np.random.default_rng(0).random(whole.shape) < 0.3
table = np.where(gaps, np.nan, whole)

# %%
# The components are nearly those of the whole table.

pca, expected = PCA(n_components=2).fit(table), decomposition.PCA(n_components=2).fit(whole)
print("explained variance", pca.explained_variance_.round(2), expected.explained_variance_.round(2))
print("cosines", np.abs(np.sum(pca.components_ * expected.components_, axis=1)).round(3))

# %%
# The scores of rows with gaps still show the three kinds; `inverse_transform` fills the gaps.

scores = pca.transform(table)
filled = pca.inverse_transform(scores)
errors = [np.sqrt(np.mean(np.square(one - whole)[gaps])) for one in (0.0 * filled, filled)]
print(f"error in the gaps: {errors[0]:.3f} by means, {errors[1]:.3f} by two components")
for kind in range(3):
    plt.scatter(*scores[data.target == kind].T, s=15, label=data.target_names[kind])
plt.xlabel("first score")
plt.ylabel("second score")
plt.legend()
plt.show()
