"""
A pandas table with names as ids
================================

Tables of pandas, polars and Arrow are taken as they are; ids of any kind stay what they are.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from momentous.lowrank import MatrixCompletion

# %%
# Who likes which dish, on a scale from 1 to 5.

rng = np.random.default_rng(0)
people = [f"{first} {last}" for first in ("Ada", "Bo", "Cem", "Dora", "Emil", "Fay", "Gus", "Hana")
          for last in ("Ito", "Klein", "Lund", "Moreau", "Novak", "Okoye")]  # fmt: skip
dishes = ["pho", "ramen", "laksa", "pizza", "risotto", "gnocchi", "tacos", "pozole", "mole"]
kitchen = np.repeat([0, 1, 2], 3)
taste = rng.normal(3, 1.2, (len(people), 3))
table = pd.DataFrame(
    [
        (person, dish, float(np.clip(round(taste[i, kitchen[j]] + rng.normal(0, 0.4)), 1, 5)))
        for i, person in enumerate(people)
        for j, dish in enumerate(dishes)
        if rng.random() < 0.6
    ],
    columns=["person", "dish", "stars"],
)
print(table.head())

# %%
# The columns with the ids are X, the stars are y.

model = MatrixCompletion(rank=3, ridge=0.5, random_state=0)
model.fit(table[["person", "dish"]], table["stars"])
asked = pd.DataFrame(
    {"person": ["Ada Ito", "Ada Ito", "Bo Lund"], "dish": ["pho", "mole", "pizza"]}
)
print(asked.assign(stars=model.predict(asked)))
print(model.feature_names_in_, model.recommend("Ada Ito", n=2)[0])

# %%
# Dishes of one kitchen are similar.

near = {
    dish: dict(zip(*model.similar_items(dish, n=len(dishes) - 1), strict=True)) for dish in dishes
}
similar = pd.DataFrame(near).reindex(index=dishes, columns=dishes)
plt.imshow(similar, cmap="RdBu_r", vmin=-1, vmax=1)
plt.xticks(range(len(dishes)), dishes, rotation=60)
plt.yticks(range(len(dishes)), dishes)
plt.colorbar(label="similarity")
plt.tight_layout()
plt.show()
