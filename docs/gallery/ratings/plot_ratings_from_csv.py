"""
From a CSV file to recommendations
==================================

A file with one rating per line is all that is needed: `momentous.lowrank.MatrixCompletion` fits a
matrix of low rank to it, predicts what is missing, and recommends.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from momentous.lowrank import MatrixCompletion, Ratings

# %%
# Here the file is made first: synthetic ratings with the size and the habits of MovieLens 100K.
# Your own file takes its place; the delimiter, the header and the columns are found out.

made = Ratings.twin("ml-100k")
path = Path(tempfile.mkdtemp()) / "ratings.csv"
with path.open("w") as file:
    file.write("user,movie,stars\n")
    for i, j, stars in zip(made.rows, made.cols, made.values, strict=True):
        file.write(f"user{i},movie{j},{stars:g}\n")

ratings = Ratings.read(path)
print(ratings)

# %%
# A tenth of the ratings is held out.  The fit stops when the error on a part of the known ones
# (``validation_share``) no longer falls.

known, held_out = ratings.split(0.1)
model = MatrixCompletion(rank=10, validation_share=0.1).fit(known)
error = np.sqrt(np.mean((model.predict(held_out) - held_out.values) ** 2))
plain = np.sqrt(np.mean((known.values.mean() - held_out.values) ** 2))
print(f"error on held-out ratings: {error:.3f}; of the mean alone: {plain:.3f}")

# %%
# Ids are those of the file.

items, scores = model.recommend("user7", n=5)
for item, score in zip(items, scores, strict=True):
    print(f"{item:10s} {score:.2f}")

# %%
predicted = model.predict(held_out)
stars = np.unique(held_out.values)
plt.boxplot([predicted[held_out.values == s] for s in stars], tick_labels=[f"{s:g}" for s in stars])
plt.xlabel("stars given")
plt.ylabel("stars predicted")
plt.title("Held-out ratings")
plt.show()
