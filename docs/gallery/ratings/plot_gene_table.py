"""
A gene table with gaps: the rank and the ridge found
====================================================

Expression tables have more genes than samples, batches that shift whole samples, and gaps.
`momentous.lowrank.LowRankImputer` fits effects of rows and columns that are not penalised, and a
matrix of low rank beside them; the ridge is chosen by entries held out, and the rank comes with a
proof that no other one is better.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from momentous.lowrank import LowRankImputer

# %%
# A table as such tables are: 120 samples of 40 genes, four pathways of falling strength, an effect
# of each sample and each gene, noise that differs from gene to gene; 30 % are missing.

rng = np.random.default_rng(0)
samples, genes = 120, 40
pathways = rng.gamma(2.0, 1.0, (samples, 4)) * [1.0, 0.7, 0.5, 0.3]
whole = pathways @ rng.standard_normal((4, genes))
whole += rng.normal(0.0, 1.0, (samples, 1)) + rng.normal(7.0, 2.0, genes)
whole += rng.standard_normal(whole.shape) * rng.uniform(0.2, 0.6, genes)
gaps = rng.random(whole.shape) < 0.3
table = np.where(gaps, np.nan, whole)

# %%
# The path over the ridge, and the fit at its best.

imputer = LowRankImputer(ridge="path", row_effects=True)
filled = imputer.fit_transform(table)
for point in imputer.path_:
    print(point)
print(imputer.certificate_)

# %%
# The error in the gaps, beside those of the columns' means and of scikit-learn's IterativeImputer.


def error(found):
    return float(np.sqrt(np.mean((found - whole)[gaps] ** 2)))


means = np.where(gaps, np.nanmean(table, axis=0), table)
warnings.simplefilter("ignore", ConvergenceWarning)  # three rounds are enough to compare
regressions = IterativeImputer(max_iter=3, n_nearest_features=10, random_state=0)
print(f"column means      {error(means):.3f}")
print(f"IterativeImputer  {error(regressions.fit_transform(table)):.3f}")
print(f"LowRankImputer    {error(filled):.3f}")

# %%
# Error and rank against the ridge.

ridges = [point.ridge for point in imputer.path_]
plt.semilogx(ridges, [point.held_out for point in imputer.path_], "o-", color="C0")
plt.axvline(imputer.certificate_.ridge, color="0.6", linestyle="--", label="chosen")
plt.xlabel("ridge")
plt.ylabel("error on entries held out (standard deviations)", color="C0")
plt.legend()
ranks = plt.twinx()
ranks.plot(ridges, [point.rank for point in imputer.path_], "s-", color="C1")
ranks.set_ylabel("rank", color="C1")
plt.show()
