"""
Likes and dislikes: one-bit matrix completion
=============================================

Where only yes or no is known, the model is a logistic one: the probability of a like is a smooth
function of the entry of a matrix of low rank.
"""

import matplotlib.pyplot as plt
import numpy as np

from momentous.lowrank import OneBitMatrixCompletion, Ratings

# %%
# Likes are drawn from a known matrix of rank 3, so that the answer can be checked.

rng = np.random.default_rng(0)
users, items, rank = 300, 200, 3
truth = 3 * rng.standard_normal((users, rank)) @ rng.standard_normal((rank, items)) / np.sqrt(rank)
probability = 1 / (1 + np.exp(-truth))
rows, cols = np.nonzero(rng.random((users, items)) < 0.4)
likes = np.where(rng.random(len(rows)) < probability[rows, cols], 1.0, -1.0)
known, held_out = Ratings(rows, cols, likes, (users, items)).split(0.2)

model = OneBitMatrixCompletion(rank=rank, ridge=0.1).fit(known)
print(model.message_)
print(f"right on held-out entries: {model.score(held_out):.3f}")

best = np.mean((truth[held_out.rows, held_out.cols] > 0) == (held_out.values > 0))
print(f"with the true matrix:      {best:.3f}")

# %%
# The probabilities are right, too: of the entries with a predicted 70 % about 70 % are likes.

pairs = np.column_stack([held_out.rows, held_out.cols])
predicted = model.predict_proba(pairs)[:, 1]
tenths = np.array_split(np.argsort(predicted), 10)  # from the least to the most likely
share = [np.mean(held_out.values[each] > 0) for each in tenths]
plt.plot([0, 1], [0, 1], color="0.7")
plt.plot([predicted[each].mean() for each in tenths], share, "o-")
plt.xlabel("predicted probability of a like")
plt.ylabel("share of likes")
plt.title("Held-out entries")
plt.show()
